/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Has a policy of Laxity schedule the threads of VCPUs, as a sched_ext scheduler in BPF.
 *
 *   laxity-scx OBJECT POLICY <orders
 *
 * Orders, a line each; keys and values are those of policy/parameters.def, times in ns:
 *
 *   settings KEY=VALUE...          first
 *   domain NAME KEY=VALUE...
 *   vcpu NAME NUMBER THREAD        a VCPU of that domain, with the domain's parameters
 *   schedule                       from now on; says "state scheduling"
 *   phase START KHZ                the periods of all VCPUs begin at START ns of the TSC's clock
 *
 * It ends with its orders, and the scheduler with it: it says "state done DECISIONS EXIT", where
 * EXIT is 0 unless the kernel had taken the scheduler off before.
 */
#include "scx.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#define DOMAINS_MAX 64
#define VCPUS_MAX 256
#define NAME_BYTES 64
#define LINE_BYTES 4096

struct named_domain {
    char name[NAME_BYTES];
    struct laxity_domain *block;
    struct laxity_parameters *parameters;
};

static struct named_domain domains[DOMAINS_MAX];
static size_t domain_count;
static struct laxity_vcpu *vcpus[VCPUS_MAX];
static size_t vcpu_count;

/* Sets the field of a key; false: there is no such key. */
static bool set_parameter(struct laxity_parameters *parameters, const char *key, long long value)
{
#define LAXITY_PARAMETER(name_, field_, key_, kind_, ...) \
    if (!strcmp(key, key_)) {                             \
        parameters->field_ = (LAXITY_TYPE_##kind_)value;  \
        return true;                                      \
    }
#include <parameters.def>
    return false;
}

static bool set_setting(struct laxity_settings *settings, const char *key, long long value)
{
#define LAXITY_SETTING(name_, field_, key_, kind_, ...) \
    if (!strcmp(key, key_)) {                           \
        settings->field_ = (LAXITY_TYPE_##kind_)value;  \
        return true;                                    \
    }
#include <parameters.def>
    return false;
}

/* The next KEY=VALUE of a line that strtok walks; false: there is none. */
static bool next_pair(char **key, long long *value)
{
    char *word = strtok(NULL, " "), *equals = word ? strchr(word, '=') : NULL, *end;
    if (!word)
        return false;
    if (!equals)
        quit("\"%s\" must be KEY=VALUE", word);
    *equals = '\0';
    *value = strtoll(equals + 1, &end, 10);
    if (end == equals + 1 || *end)
        quit("the value of %s must be an integer", word);
    *key = word;
    return true;
}

static const char *next_word(const char *what)
{
    const char *word = strtok(NULL, " ");
    if (!word)
        quit("%s is missing", what);
    return word;
}

static unsigned long long next_number(const char *what)
{
    const char *word = next_word(what);
    char *end;
    unsigned long long number = strtoull(word, &end, 10);
    if (*end)
        quit("%s must be a number, and is %s", what, word);
    return number;
}

static void refuse(uint64_t error, const char *what)
{
    if (error)
        quit("the policy refuses %s: error %llu", what, (unsigned long long)error);
}

static void take_settings(struct scx *scx)
{
    struct laxity_settings settings = {
#define LAXITY_SETTING(name_, field_, key_, kind_, least_, most_, standard_, ...) \
    .field_ = (LAXITY_TYPE_##kind_)standard_,
#include <parameters.def>
    };
    char *key;
    long long value;
    while (next_pair(&key, &value))
        if (!set_setting(&settings, key, value))
            quit("there is no setting %s", key);
    scx_start(scx, 1, &settings, 0);
}

static void take_domain(struct scx *scx)
{
    if (domain_count == DOMAINS_MAX)
        quit("there are more than %d domains", DOMAINS_MAX);
    struct named_domain *domain = &domains[domain_count++];
    char *key;
    long long value;
    snprintf(domain->name, sizeof domain->name, "%s", next_word("the name of a domain"));
    domain->block = scx_allocate(scx, scx->policy->domain_bytes);
    domain->block->id = (uint32_t)domain_count;
    domain->parameters = scx_allocate(scx, sizeof *domain->parameters);
    *domain->parameters = (struct laxity_parameters){
#define LAXITY_PARAMETER(name_, field_, key_, kind_, least_, most_, standard_, ...) \
    .field_ = (LAXITY_TYPE_##kind_)standard_,
#include <parameters.def>
    };
    while (next_pair(&key, &value))
        if (!set_parameter(domain->parameters, key, value))
            quit("there is no parameter %s", key);
    refuse(scx_call_with(scx, SCX_ADD_DOMAIN, domain->block, domain->parameters, 0), domain->name);
}

static struct named_domain *find_domain(const char *name)
{
    for (size_t i = 0; i < domain_count; i++)
        if (!strcmp(domains[i].name, name))
            return &domains[i];
    quit("there is no domain %s", name);
}

static void take_vcpu(struct scx *scx)
{
    const struct named_domain *domain = find_domain(next_word("the name of a domain"));
    uint32_t number = (uint32_t)next_number("the number of a VCPU");
    uint32_t thread = (uint32_t)next_number("a thread");
    if (vcpu_count == VCPUS_MAX)
        quit("there are more than %d VCPUs", VCPUS_MAX);
    struct laxity_vcpu *vcpu = scx_allocate(scx, scx->policy->vcpu_bytes);
    vcpu->domain = domain->block;
    vcpu->owner = (void *)(uint64_t)thread;
    vcpu->id = number;
    refuse(scx_call_with(scx, SCX_ADD_VCPU, vcpu, domain->parameters, 0), domain->name);
    uint64_t address = (uint64_t)vcpu;
    if (bpf_map_update_elem(scx->threads_file, &thread, &address, BPF_NOEXIST))
        quit("thread %u is one VCPU's already: %s", thread, strerror(errno));
    vcpus[vcpu_count++] = vcpu;
}

static int64_t monotonic_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void take_phase(struct scx *scx)
{
    int64_t start_ns = (int64_t)next_number("the start");
    unsigned long long khz = next_number("the kHz of the TSC");
    int64_t now_ns = monotonic_ns();
    int64_t tsc_ns = (int64_t)((unsigned __int128)__rdtsc() * 1000000 / khz);
    int64_t phase_ns = now_ns + (start_ns - tsc_ns);
    for (size_t i = 0; i < vcpu_count; i++)
        scx_call(scx, SCX_SET_PHASE, vcpus[i], (uint64_t)phase_ns, 0);
}

static struct bpf_link *attach(const struct scx *scx)
{
    struct bpf_map *map = bpf_object__find_map_by_name(scx->object, "scheduler");
    struct bpf_link *link = map ? bpf_map__attach_struct_ops(map) : NULL;
    if (!link)
        quit("the kernel does not take the scheduler: %s", strerror(errno));
    printf("state scheduling\n");
    return link;
}

int main(int count, char **words)
{
    static struct scx scx;
    static char line[LINE_BYTES];
    struct bpf_link *link = NULL;
    if (count != 3) {
        fprintf(stderr, "use: laxity-scx OBJECT POLICY <orders\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    scx_load(&scx, words[1], words[2], false);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        const char *order = strtok(line, " ");
        if (!order)
            continue;
        if (!strcmp(order, "settings"))
            take_settings(&scx);
        else if (!strcmp(order, "domain"))
            take_domain(&scx);
        else if (!strcmp(order, "vcpu"))
            take_vcpu(&scx);
        else if (!strcmp(order, "phase"))
            take_phase(&scx);
        else if (!strcmp(order, "schedule") && !link)
            link = attach(&scx);
        else
            quit("\"%s\" must be settings, domain, vcpu, phase, or schedule, once", order);
    }
    uint64_t exit_kind = scx.state->exit_kind;
    bpf_link__destroy(link);
    printf("state done %llu %llu\n", (unsigned long long)scx.state->decisions,
           (unsigned long long)exit_kind);
    return 0;
}
