/* SPDX-License-Identifier: GPL-2.0-only */
#include "scx.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

void quit(const char *form, ...)
{
    va_list arguments;
    printf("state error ");
    va_start(arguments, form);
    vprintf(form, arguments);
    va_end(arguments);
    printf("\n");
    exit(1);
}

static int say(enum libbpf_print_level level, const char *form, va_list arguments)
{
    return level == LIBBPF_WARN ? vfprintf(stderr, form, arguments) : 0;
}

const struct laxity_policy *scx_find_policy(const char *name)
{
    static const struct {
        const char *name;
        const struct laxity_policy *policy;
    } policies[] = {
#define LAXITY_POLICY(identifier_, name_, ...) {name_, &laxity_##identifier_},
#include <policies.def>
    };
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        if (!strcmp(policies[i].name, name))
            return policies[i].policy;
    return NULL;
}

static struct bpf_map *find_map(const struct scx *scx, const char *name)
{
    struct bpf_map *map = bpf_object__find_map_by_name(scx->object, name);
    if (!map)
        quit("the scheduler has no map %s", name);
    return map;
}

/* Leaves out what follows guests' hypercalls, which takes a kernel with KVM. */
static void leave_hypercalls(struct bpf_object *object)
{
    struct bpf_program *program = bpf_object__find_program_by_name(object, SCX_ON_HYPERCALL);
    if (program)
        bpf_program__set_autoload(program, false);
}

/* Leaves out what takes a kernel with sched_ext. */
static void keep_calls(struct bpf_object *object)
{
    struct bpf_program *program;
    struct bpf_map *map;
    bpf_object__for_each_program(program,
                                 object) if (bpf_program__type(program) == BPF_PROG_TYPE_STRUCT_OPS)
        bpf_program__set_autoload(program, false);
    bpf_object__for_each_map(map, object) if (bpf_map__type(map) == BPF_MAP_TYPE_STRUCT_OPS)
        bpf_map__set_autocreate(map, false);
}

void scx_load(struct scx *scx, const char *object, const char *policy, bool only_calls)
{
    scx->policy = scx_find_policy(policy);
    if (!scx->policy)
        quit("there is no policy %s", policy);
    libbpf_set_print(say);
    scx->object = bpf_object__open_file(object, NULL);
    if (!scx->object)
        quit("%s cannot be read: %s", object, strerror(errno));
    if (only_calls)
        keep_calls(scx->object);
    if (only_calls || !scx->policy->tell)
        leave_hypercalls(scx->object);
    int error = bpf_object__load(scx->object);
    if (error)
        quit("the kernel refuses %s: %s", object, strerror(-error));
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes;
    /* Without a skeleton libbpf maps arenas, and leaves global variables to be mapped. */
    scx->state =
        mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(find_map(scx, ".bss")), 0);
    if (scx->state == MAP_FAILED)
        quit("the state of the scheduler cannot be mapped: %s", strerror(errno));
    char *arena = bpf_map__initial_value(find_map(scx, "arena"), &bytes);
    if (!arena)
        quit("the arena cannot be mapped");
    /* The first page stays unused: no object is at an offset of 0. */
    scx->free_place = arena + page;
    scx->end = arena + SCX_ARENA_PAGES * page;
    scx->threads_file = bpf_map__fd(find_map(scx, "threads"));
    struct bpf_program *call = bpf_object__find_program_by_name(scx->object, "call");
    if (!call)
        quit("%s has no program to call", object);
    scx->call_file = bpf_program__fd(call);
}

void *scx_allocate(struct scx *scx, size_t bytes)
{
    size_t rounded = (bytes + 63) / 64 * 64;
    if ((size_t)(scx->end - scx->free_place) < rounded)
        quit("the arena is full");
    void *place = scx->free_place;
    scx->free_place += rounded;
    /* A page of the arena comes to be when it is written here; the scheduler cannot make one. */
    return memset(place, 0, rounded);
}

uint64_t scx_call(const struct scx *scx, enum scx_operation operation, const void *object,
                  uint64_t argument, int64_t now)
{
    struct scx_call call = {
        .operation = operation, .object = (uint64_t)object, .argument = argument, .now = now};
    LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &call, .ctx_size_in = sizeof call);
    int error = bpf_prog_test_run_opts(scx->call_file, &options);
    if (error || options.retval)
        quit("a call of the scheduler fails: %s", strerror(-error));
    return call.result;
}

uint64_t scx_call_with(const struct scx *scx, enum scx_operation operation, const void *object,
                       const void *argument, int64_t now)
{
    return scx_call(scx, operation, object, (uint64_t)argument, now);
}

struct laxity_instance *scx_start(struct scx *scx, uint32_t cpus,
                                  const struct laxity_settings *settings, int64_t now)
{
    if (cpus < 1 || cpus > SCX_CPUS_MAX)
        quit("a host has 1 to %d CPUs, and not %u", SCX_CPUS_MAX, cpus);
    struct laxity_instance *instance = scx_allocate(scx, scx->policy->instance_bytes);
    struct scx_requests *requests = scx_allocate(scx, sizeof *requests);
    struct laxity_cpu **cpu = scx_allocate(scx, cpus * sizeof *cpu);
    struct laxity_settings *given = scx_allocate(scx, sizeof *given);

    *given = *settings;
    requests->account_ns = LAXITY_NEVER;
    instance->owner = requests;
    instance->cpus = cpus;
    instance->cpu = cpu;
    *scx->state = (struct scx_state){
        .instance = (uint64_t)instance,
        .requests = (uint64_t)requests,
        .cpus = cpus,
        .patience_ns = SCX_PATIENCE_NS,
    };
    uint64_t error = scx_call_with(scx, SCX_INIT, instance, given, now);
    if (error)
        quit("the policy refuses the settings: error %llu", (unsigned long long)error);
    for (uint32_t number = 0; number < cpus; number++) {
        requests->cpu[number].timer_ns = requests->cpu[number].until_ns = LAXITY_NEVER;
        requests->cpu[number].armed_ns = LAXITY_NEVER;
        cpu[number] = scx_allocate(scx, scx->policy->cpu_bytes);
        cpu[number]->number = number;
        scx_call(scx, SCX_ADD_CPU, cpu[number], 0, now);
    }
    return instance;
}

struct laxity_vcpu *scx_allocate_vcpu(struct scx *scx)
{
    struct laxity_vcpu *vcpu = scx_allocate(scx, scx->policy->vcpu_bytes);
    vcpu->owner = scx_allocate(scx, sizeof(struct scx_vcpu));
    return vcpu;
}

void scx_clear_vcpu(const struct scx *scx, struct laxity_vcpu *vcpu)
{
    void *owner = vcpu->owner;
    memset(vcpu, 0, scx->policy->vcpu_bytes);
    vcpu->owner = owner;
}
