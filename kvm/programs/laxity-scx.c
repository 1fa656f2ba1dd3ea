/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Has a policy of Laxity schedule the threads of VCPUs, as a sched_ext scheduler in BPF.
 *
 *   laxity-scx OBJECT POLICY <orders
 *
 * Orders, a line each; keys and values are those of policy/parameters.def, times in ns:
 *
 *   settings CPUS KEY=VALUE...    first; the host has CPUs 0 to CPUS - 1
 *   domain NAME KEY=VALUE...      a domain; keys that are not named have their defaults, or their
 *                                 least values where they have no default
 *   vcpu NAME NUMBER THREAD CPU   a VCPU of that domain, with the domain's parameters; it begins
 *                                 on that CPU, and may run wherever its thread may
 *   patience NS                   a VCPU that has waited for so long gets a moment, whatever the
 *                                 policy says; 10 s at most, and if nobody says otherwise; comes
 *                                 before `schedule`
 *   trace MIB FILE                keeps what the policy does to VCPUs in so much memory, and writes
 *                                 it to FILE in the end; comes before `schedule`
 *   schedule                      from now on; says "state scheduling"
 *   phase START KHZ               all periods begin at START ns of the TSC's clock, from which
 *                                 accounting has its phase, too
 *   set NAME KEY=VALUE...         changes parameters of a domain and of its VCPUs
 *   set NAME/NUMBER KEY=VALUE...  those of a VCPU
 *   show                          a line for each VCPU: vcpu NAME NUMBER THREAD CPU KEY=VALUE...
 *   serve SOCKET                  last: says "state serving", and takes further orders from
 *                                 whoever connects there, who gets the answers, then "state obeyed"
 *   end                           ends the program
 *
 * Others than settings and schedule may come at any time. While it schedules, an order that is
 * refused changes nothing: it says "state error TEXT", and goes on.
 *
 * The threads of VCPUs are the policy's as soon as they ask for SCHED_EXT. All other ordinary tasks
 * of the host run where the policy has no VCPU to run, and have a small reserve of each CPU; see
 * scheduler.bpf.c.
 *
 * The file of a trace, little-endian:
 *
 *   offset 0   8 bytes  LAXITYPT
 *          8   u64      events for which there was no room
 *         16   u64      n, then n events: u64 cycles of the TSC, u32 thread, u32 event as
 *                       enum laxity_event numbers them, i64 argument
 *
 * It ends with its orders, and the scheduler with it: it says "state done DECISIONS EXIT OTHERS
 * RESERVE", where EXIT is 0 unless the kernel had taken the scheduler off before, OTHERS are the ns
 * that ordinary tasks have had of all CPUs, and RESERVE those of them in which a VCPU waited.
 */
#include "scx.h"
#include "tsc.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#define DOMAINS_MAX 64
#define VCPUS_MAX 256
#define NAME_BYTES 64
#define LINE_BYTES 4096
/* Less than the arena. */
#define TRACE_MIB_MAX 2000

/* One time by two clocks. */
struct instant {
    int64_t monotonic_ns;
    uint64_t cycles;
};

struct named_domain {
    char name[NAME_BYTES];
    struct laxity_domain *block;
    struct laxity_parameters *parameters;
};

/* A VCPU, and what it was given. Once its thread has left, `owner` has none, and another VCPU may
 * have its place. */
struct named_vcpu {
    struct named_domain *domain;
    struct laxity_vcpu *block;
};

static struct named_domain domains[DOMAINS_MAX];
static size_t domain_count;
static struct named_vcpu vcpus[VCPUS_MAX];
static size_t vcpu_count;
static struct laxity_parameters *scratch; /* in the arena, for calls */
static struct laxity_settings *changed;   /* the same */
static int64_t accounting_phase_ns;       /* of the settings that were given */
static const char *trace_path;            /* NULL: nothing is traced */
static struct instant trace_begin;
static struct bpf_link *attached;  /* NULL: it does not schedule yet */
static struct bpf_link *listening; /* NULL: guests' hypercalls are not followed */
static FILE *answers;
static jmp_buf next_order;

/* Refuses an order. */
static void __attribute__((format(printf, 1, 2), noreturn)) complain(const char *form, ...)
{
    va_list arguments;
    fprintf(answers, "state error ");
    va_start(arguments, form);
    vfprintf(answers, form, arguments);
    va_end(arguments);
    fprintf(answers, "\n");
    if (!attached)
        exit(1);
    longjmp(next_order, 1);
}

static struct scx_vcpu *owner_of(const struct named_vcpu *vcpu)
{
    return vcpu->block->owner;
}

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
        complain("\"%s\" must be KEY=VALUE", word);
    *equals = '\0';
    *value = strtoll(equals + 1, &end, 10);
    if (end == equals + 1 || *end)
        complain("the value of %s must be an integer", word);
    *key = word;
    return true;
}

static const char *next_word(const char *what)
{
    const char *word = strtok(NULL, " ");
    if (!word)
        complain("%s is missing", what);
    return word;
}

static unsigned long long next_number(const char *what)
{
    const char *word = next_word(what);
    char *end;
    unsigned long long number = strtoull(word, &end, 10);
    if (*end)
        complain("%s must be a number, and is %s", what, word);
    return number;
}

static void refuse(uint64_t error, const char *what)
{
    if (error)
        complain("the policy refuses %s: error %llu", what, (unsigned long long)error);
}

static void take_settings(struct scx *scx)
{
    struct laxity_settings settings = {
#define LAXITY_SETTING(name_, field_, key_, kind_, least_, most_, standard_, ...) \
    .field_ = (LAXITY_TYPE_##kind_)standard_,
#include <parameters.def>
    };
    uint32_t cpus = (uint32_t)next_number("the number of CPUs");
    char *key;
    long long value;
    if (attached || scx->state->instance)
        complain("settings come first, and once");
    while (next_pair(&key, &value))
        if (!set_setting(&settings, key, value))
            complain("there is no setting %s", key);
    scx_start(scx, cpus, &settings, 0);
    changed = scx_allocate(scx, sizeof *changed);
    accounting_phase_ns = settings.accounting_phase_ns;
}

/* Sets what the rest of a line says. */
static void take_parameters(struct laxity_parameters *parameters)
{
    char *key;
    long long value;
    while (next_pair(&key, &value))
        if (!set_parameter(parameters, key, value))
            complain("there is no parameter %s", key);
}

static struct named_domain *search_domain(const char *name)
{
    for (size_t i = 0; i < domain_count; i++)
        if (!strcmp(domains[i].name, name))
            return &domains[i];
    return NULL;
}

static void take_domain(struct scx *scx)
{
    const char *name = next_word("the name of a domain");
    if (search_domain(name))
        complain("there is a domain %s already", name);
    if (strlen(name) >= NAME_BYTES)
        complain("the name of a domain has less than %d bytes, unlike %s", NAME_BYTES, name);
    if (domain_count == DOMAINS_MAX)
        complain("there are more than %d domains", DOMAINS_MAX);
    /* A policy also checks some parameters that it does not go by. */
    *scratch = (struct laxity_parameters){
#define LAXITY_PARAMETER(name_, field_, key_, kind_, least_, most_, standard_, ...) \
    .field_ = (LAXITY_TYPE_##kind_)((standard_) < (least_) ? (least_) : (standard_)),
#include <parameters.def>
    };
    take_parameters(scratch);
    struct named_domain *domain = &domains[domain_count];
    strcpy(domain->name, name);
    if (!domain->block)
        domain->block = scx_allocate(scx, scx->policy->domain_bytes);
    domain->block->id = (uint32_t)domain_count + 1;
    refuse(scx_call_with(scx, SCX_ADD_DOMAIN, domain->block, scratch, 0), name);
    domain_count++;
}

static struct named_domain *find_domain(const char *name)
{
    struct named_domain *domain = search_domain(name);
    if (!domain)
        complain("there is no domain %s", name);
    return domain;
}

/* A place for a VCPU: that of one that has left, or a new one. */
static struct named_vcpu *make_place(void)
{
    for (size_t i = 0; i < vcpu_count; i++)
        if (!owner_of(&vcpus[i])->thread)
            return &vcpus[i];
    if (vcpu_count == VCPUS_MAX)
        complain("there are more than %d VCPUs", VCPUS_MAX);
    return &vcpus[vcpu_count];
}

/* The CPUs of the host on which a thread may run. */
static uint64_t affinity_of(uint32_t thread, uint64_t cpus)
{
    cpu_set_t set;
    uint64_t affinity = 0;
    if (sched_getaffinity((pid_t)thread, sizeof set, &set))
        complain("the CPUs of thread %u are unknown: %s", thread, strerror(errno));
    for (uint64_t cpu = 0; cpu < cpus; cpu++)
        if (CPU_ISSET(cpu, &set))
            affinity |= SCX_BIT(cpu);
    if (!affinity)
        complain("thread %u may run on none of the host's CPUs", thread);
    return affinity;
}

static void take_vcpu(struct scx *scx)
{
    struct named_domain *domain = find_domain(next_word("the name of a domain"));
    uint32_t number = (uint32_t)next_number("the number of a VCPU");
    uint32_t thread = (uint32_t)next_number("a thread");
    unsigned long long cpu = next_number("the CPU of a VCPU");
    uint64_t named;
    if (cpu >= scx->state->cpus)
        complain("there is no CPU %llu", cpu);
    if (!bpf_map_lookup_elem(scx->threads_file, &thread, &named))
        complain("thread %u is a VCPU already", thread);
    struct named_vcpu *vcpu = make_place();
    if (!vcpu->block)
        vcpu->block = scx_allocate_vcpu(scx);
    scx_clear_vcpu(scx, vcpu->block);
    uint64_t affinity = affinity_of(thread, scx->state->cpus);
    vcpu->domain = domain;
    vcpu->block->domain = domain->block;
    vcpu->block->id = number;
    /* The kernel takes no thread to a CPU on which it may not run. */
    vcpu->block->cpu =
        affinity & SCX_BIT(cpu) ? (uint32_t)cpu : (uint32_t)__builtin_ctzll(affinity);
    *scratch = domain->block->parameters;
    refuse(scx_call_with(scx, SCX_ADD_VCPU, vcpu->block, scratch, 0), domain->name);
    *owner_of(vcpu) =
        (struct scx_vcpu){.vcpu = (uint64_t)vcpu->block, .thread = thread, .affinity = affinity};
    vcpu_count += vcpu == &vcpus[vcpu_count];
    named = (uint64_t)owner_of(vcpu);
    if (bpf_map_update_elem(scx->threads_file, &thread, &named, BPF_NOEXIST))
        quit("thread %u cannot be named: %s", thread, strerror(errno));
}

static struct instant now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    uint64_t cycles = tsc_cycles();
    return (struct instant){(int64_t)time.tv_sec * 1000000000 + time.tv_nsec, cycles};
}

static void take_phase(struct scx *scx)
{
    int64_t start_ns = (int64_t)next_number("the start");
    unsigned long long khz = next_number("the kHz of the TSC");
    if (!khz)
        complain("the kHz of the TSC must be more than 0");
    struct instant at = now();
    int64_t phase_ns = at.monotonic_ns + (start_ns - tsc_ns(at.cycles, khz));
    for (size_t i = 0; i < vcpu_count; i++)
        if (owner_of(&vcpus[i])->thread)
            scx_call(scx, SCX_SET_PHASE, vcpus[i].block, (uint64_t)phase_ns, 0);
    /* The settings' phase of accounting is one after the start. */
    *changed = ((struct laxity_instance *)scx->state->instance)->settings;
    changed->accounting_phase_ns =
        (accounting_phase_ns + phase_ns % changed->accounting_ns) % changed->accounting_ns;
    refuse(scx_call_with(scx, SCX_SET_SETTINGS, NULL, changed, 0), "the phase of accounting");
}

/* Changes what the rest of a line names, and nothing if it is refused. */
static void set_vcpu(struct scx *scx, const struct named_vcpu *vcpu)
{
    *scratch = vcpu->block->parameters;
    take_parameters(scratch);
    refuse(scx_call_with(scx, SCX_SET_VCPU, vcpu->block, scratch, 0), vcpu->domain->name);
}

static bool is_of(const struct named_vcpu *vcpu, const struct named_domain *domain)
{
    return vcpu->domain == domain && owner_of(vcpu)->thread;
}

/* Gives a domain, and those of the first `count` VCPUs that are its, what they had before. */
static void give_back(struct scx *scx, const struct named_domain *domain,
                      const struct laxity_parameters *of_domain,
                      const struct laxity_parameters *of_vcpus, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (is_of(&vcpus[i], domain)) {
            *scratch = of_vcpus[i];
            scx_call_with(scx, SCX_SET_VCPU, vcpus[i].block, scratch, 0);
        }
    *scratch = *of_domain;
    scx_call_with(scx, SCX_SET_DOMAIN, domain->block, scratch, 0);
}

static void set_domain(struct scx *scx, const struct named_domain *domain)
{
    /* strtok takes a line apart, and each VCPU needs it whole; it begins with a word to skip. */
    static char rest[LINE_BYTES], again[LINE_BYTES];
    static struct laxity_parameters of_vcpus[VCPUS_MAX];
    struct laxity_parameters of_domain = domain->block->parameters;
    snprintf(rest, sizeof rest, "- %s", strtok(NULL, "") ?: "");
    *scratch = of_domain;
    strtok(strcpy(again, rest), " ");
    take_parameters(scratch);
    refuse(scx_call_with(scx, SCX_SET_DOMAIN, domain->block, scratch, 0), domain->name);
    for (size_t i = 0; i < vcpu_count; i++)
        if (is_of(&vcpus[i], domain)) {
            of_vcpus[i] = vcpus[i].block->parameters;
            *scratch = of_vcpus[i];
            strtok(strcpy(again, rest), " ");
            take_parameters(scratch);
            uint64_t error = scx_call_with(scx, SCX_SET_VCPU, vcpus[i].block, scratch, 0);
            if (error)
                give_back(scx, domain, &of_domain, of_vcpus, i);
            refuse(error, domain->name);
        }
}

static void take_set(struct scx *scx)
{
    char *name = (char *)next_word("the name of a domain"), *slash = strchr(name, '/');
    if (!slash) {
        set_domain(scx, find_domain(name));
        return;
    }
    *slash = '\0';
    const struct named_domain *domain = find_domain(name);
    for (size_t i = 0; i < vcpu_count; i++)
        if (is_of(&vcpus[i], domain) && vcpus[i].block->id == strtoul(slash + 1, NULL, 10)) {
            set_vcpu(scx, &vcpus[i]);
            return;
        }
    complain("domain %s has no VCPU %s", name, slash + 1);
}

/* A policy's parameters are the VCPU's or the domain's; what the VCPU has not, its domain has. */
static void show(void)
{
    for (size_t i = 0; i < vcpu_count; i++) {
        const struct laxity_vcpu *vcpu = vcpus[i].block;
        if (!owner_of(&vcpus[i])->thread)
            continue;
        fprintf(answers, "vcpu %s %u %llu %u", vcpus[i].domain->name, vcpu->id,
                (unsigned long long)owner_of(&vcpus[i])->thread, vcpu->cpu);
#define LAXITY_PARAMETER(name_, field_, key_, ...) \
    fprintf(answers, " " key_ "=%lld", (long long)vcpu->parameters.field_);
#include <parameters.def>
        fprintf(answers, "\n");
    }
}

static void take_patience(struct scx *scx)
{
    unsigned long long patience_ns = next_number("the patience");
    if (attached)
        complain("it schedules already");
    if (patience_ns < 1000000 || patience_ns > SCX_PATIENCE_NS)
        complain("the patience must be 1000000 to %lld ns, and is %llu", (long long)SCX_PATIENCE_NS,
                 patience_ns);
    scx->state->patience_ns = (int64_t)patience_ns;
}

static struct scx_requests *requests_of(const struct scx *scx)
{
    return (struct scx_requests *)scx->state->requests;
}

static void take_trace(struct scx *scx)
{
    unsigned long long mib = next_number("the MiB of the trace");
    const char *path = next_word("the file of the trace");
    struct scx_requests *requests = requests_of(scx);
    if (attached || trace_path)
        complain("it is said once whether there is a trace, and before it schedules");
    if (mib < 1 || mib > TRACE_MIB_MAX)
        complain("a trace has 1 to %d MiB, and not %llu", TRACE_MIB_MAX, mib);
    requests->traced = scx_allocate(scx, mib << 20);
    requests->traced_max = (mib << 20) / sizeof *requests->traced;
    ((struct laxity_instance *)scx->state->instance)->tracing = true;
    trace_path = strdup(path);
    trace_begin = now();
}

/* Both clocks go evenly, and the program's begin and end tell how fast. */
static uint64_t cycles_at(int64_t time_ns, struct instant end)
{
    __int128 cycles = (__int128)(end.cycles - trace_begin.cycles) *
                      (time_ns - trace_begin.monotonic_ns) /
                      (end.monotonic_ns - trace_begin.monotonic_ns);
    return trace_begin.cycles + (uint64_t)cycles;
}

static void write_trace(const struct scx *scx)
{
    const struct scx_requests *requests = requests_of(scx);
    struct instant end = now();
    FILE *file = fopen(trace_path, "w");
    if (!file)
        quit("%s: %s", trace_path, strerror(errno));
    fwrite("LAXITYPT", 8, 1, file);
    fwrite(&requests->untraced, 8, 1, file);
    fwrite(&requests->traced_count, 8, 1, file);
    for (uint64_t i = 0; i < requests->traced_count; i++) {
        const struct scx_event *event = &requests->traced[i];
        uint64_t cycles = cycles_at(event->time_ns, end);
        fwrite(&cycles, 8, 1, file);
        fwrite(&event->thread, 4, 1, file);
        fwrite(&event->event, 4, 1, file);
        fwrite(&event->argument, 8, 1, file);
    }
    bool is_whole = !ferror(file);
    if (fclose(file) || !is_whole)
        quit("%s: %s", trace_path, strerror(errno));
}

/* What guests tell by hypercalls reaches the policy from now on. */
static void listen_to_guests(const struct scx *scx)
{
    struct bpf_program *program = bpf_object__find_program_by_name(scx->object, SCX_ON_HYPERCALL);
    listening = program ? bpf_program__attach(program) : NULL;
    if (!listening)
        quit("the hypercalls of guests cannot be followed: %s", strerror(errno));
}

static void attach(struct scx *scx)
{
    struct bpf_map *map = bpf_object__find_map_by_name(scx->object, "scheduler");
    if (attached)
        complain("it schedules already");
    scx->state->attached = 1;
    attached = map ? bpf_map__attach_struct_ops(map) : NULL;
    if (!attached)
        quit("the kernel does not take the scheduler: %s", strerror(errno));
    if (scx->policy->tell)
        listen_to_guests(scx);
    fprintf(answers, "state scheduling\n");
}

static bool take_orders(struct scx *scx, FILE *orders);

/* Takes orders from those who connect, one after the other, until one of them ends the program. */
static bool serve(struct scx *scx, const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool goes_on = true;

    if (answers != stdout)
        complain("it serves already");
    if (strlen(path) >= sizeof name.sun_path)
        quit("the name of the socket is too long: %s", path);
    strcpy(name.sun_path, path);
    struct stat found;
    if (!lstat(path, &found) && (!S_ISSOCK(found.st_mode) || found.st_uid != geteuid()))
        quit("%s is there already, and no socket of this user", path);
    unlink(name.sun_path);
    umask(077);
    if (listener < 0 || bind(listener, (struct sockaddr *)&name, sizeof name) ||
        listen(listener, 8))
        quit("there is no socket %s: %s", name.sun_path, strerror(errno));
    /* Whoever asks may not wait for the answer. */
    signal(SIGPIPE, SIG_IGN);
    printf("state serving\n");
    while (goes_on) {
        int connection = accept(listener, NULL, NULL);
        FILE *orders = connection < 0 ? NULL : fdopen(connection, "r");
        if (!orders)
            continue;
        answers = fdopen(dup(connection), "w");
        if (answers) {
            goes_on = take_orders(scx, orders);
            fprintf(answers, "state obeyed\n");
            fclose(answers);
        }
        fclose(orders);
    }
    answers = stdout;
    unlink(name.sun_path);
    return false;
}

/* Carries out a line. Returns whether the program goes on. */
static bool obey(struct scx *scx, char *line)
{
    line[strcspn(line, "\n")] = '\0';
    const char *order = strtok(line, " ");
    if (!order)
        return true;
    if (!strcmp(order, "end"))
        return false;
    if (!strcmp(order, "settings"))
        take_settings(scx);
    else if (!scx->state->instance)
        complain("settings must come before %s", order);
    else if (!strcmp(order, "domain"))
        take_domain(scx);
    else if (!strcmp(order, "vcpu"))
        take_vcpu(scx);
    else if (!strcmp(order, "phase"))
        take_phase(scx);
    else if (!strcmp(order, "set"))
        take_set(scx);
    else if (!strcmp(order, "show"))
        show();
    else if (!strcmp(order, "serve"))
        return serve(scx, next_word("a socket"));
    else if (!strcmp(order, "patience"))
        take_patience(scx);
    else if (!strcmp(order, "trace"))
        take_trace(scx);
    else if (!strcmp(order, "schedule"))
        attach(scx);
    else
        complain("\"%s\" is no order", order);
    return true;
}

/* Carries out all orders of a file. Returns whether the program goes on. */
static bool take_orders(struct scx *scx, FILE *orders)
{
    static char line[LINE_BYTES];
    setjmp(next_order);
    while (fgets(line, sizeof line, orders))
        if (!obey(scx, line))
            return false;
    return true;
}

static void say_done(const struct scx *scx, uint64_t exit_kind)
{
    const struct scx_requests *requests = requests_of(scx);
    long long others_ns = 0, reserve_ns = 0;

    for (uint64_t cpu = 0; requests && cpu < scx->state->cpus; cpu++) {
        others_ns += requests->cpu[cpu].others.total_ns;
        reserve_ns += requests->cpu[cpu].others.taken_ns;
    }
    printf("state done %llu %llu %lld %lld\n", (unsigned long long)scx->state->decisions,
           (unsigned long long)exit_kind, others_ns, reserve_ns);
}

int main(int count, char **words)
{
    static struct scx scx;
    if (count != 3) {
        fprintf(stderr, "use: laxity-scx OBJECT POLICY <orders\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    answers = stdout;
    scx_load(&scx, words[1], words[2], false);
    scratch = scx_allocate(&scx, sizeof *scratch);
    take_orders(&scx, stdin);
    uint64_t exit_kind = scx.state->exit_kind;
    bpf_link__destroy(listening);
    bpf_link__destroy(attached);
    if (trace_path)
        write_trace(&scx);
    say_done(&scx, exit_kind);
    return 0;
}
