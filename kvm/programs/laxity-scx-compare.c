/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tells a policy in BPF and the same policy built for this processor, as the simulator has it, the
 * same random events, and compares after each what both decided, asked for and traced.
 *
 *   laxity-scx-compare OBJECT POLICY SEED EVENTS
 *
 * It says "state same EVENTS DECISIONS", or "state differs" with the event and both answers, and
 * ends with 1. Nothing is attached: the kernel's own schedulers run all the while.
 */
#include "scx.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A history begins anew after so many events, with other parameters and another number of VCPUs. */
#define HISTORY_EVENTS 5000
#define DOMAINS_MAX 4
#define VCPUS_MAX 12
#define CPU 0

/* One of the two: its blocks, and how it is asked. */
struct side {
    const struct scx *scx; /* NULL: the policy of this processor */
    const struct laxity_policy *policy;
    struct laxity_instance *instance;
    struct scx_requests *requests;
    struct laxity_cpu *cpu;
    struct laxity_domain *domains[DOMAINS_MAX];
    struct laxity_vcpu *vcpus[VCPUS_MAX];
    struct laxity_parameters *parameters;
    struct laxity_settings *settings;
};

static struct scx scx;
static struct side sides[2];
static unsigned domain_count, vcpu_count;
static int64_t now_ns;
static uint64_t random_state, decisions;

/* xorshift64*, Vigna 2016. */
static uint64_t next_random(void)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * 0x2545f4914f6cdd1dull;
}

static uint64_t below(uint64_t end)
{
    return next_random() % end;
}

static bool one_in(uint64_t count)
{
    return !below(count);
}

/* The embedder of this processor's side: what kvm/bpf/embedder.h does in BPF. */

static struct scx_requests *requests_of(const struct laxity_instance *instance)
{
    return instance->owner;
}

static void arm_timer(struct laxity_instance *instance, uint32_t cpu, int64_t at_ns)
{
    requests_of(instance)->cpu[cpu].timer_ns = at_ns;
}

static void arm_account(struct laxity_instance *instance, int64_t at_ns)
{
    requests_of(instance)->account_ns = at_ns;
}

static void kick(struct laxity_instance *instance, uint32_t cpu)
{
    requests_of(instance)->cpu[cpu].kicked = 1;
}

static void extend(struct laxity_instance *instance, uint32_t cpu, int64_t until_ns)
{
    requests_of(instance)->cpu[cpu].until_ns = until_ns;
}

static bool may_run_on(struct laxity_instance *instance, const struct laxity_vcpu *vcpu,
                       uint32_t cpu)
{
    (void)instance, (void)vcpu, (void)cpu;
    return true;
}

static bool try_lock(struct laxity_instance *instance, uint32_t cpu)
{
    (void)instance, (void)cpu;
    return true;
}

static void unlock(struct laxity_instance *instance, uint32_t cpu)
{
    (void)instance, (void)cpu;
}

static void trace(struct laxity_instance *instance, const struct laxity_vcpu *vcpu,
                  enum laxity_event event, int64_t argument)
{
    uint64_t words[] = {(uint64_t)vcpu->owner, (uint64_t)event, (uint64_t)argument};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        requests_of(instance)->events =
            (requests_of(instance)->events ^ words[i]) * 0x100000001b3ull;
}

static const struct laxity_embedder embedder = {
    .arm_timer = arm_timer,
    .arm_account = arm_account,
    .kick = kick,
    .extend = extend,
    .may_run_on = may_run_on,
    .try_lock = try_lock,
    .unlock = unlock,
    .trace = trace,
};

/* What the operations of `struct scx_call` are for this processor's side. */
static uint64_t serve(struct side *side, enum scx_operation operation, void *object,
                      uint64_t argument)
{
    const struct laxity_policy *policy = side->policy;
    struct laxity_instance *instance = side->instance;
    struct laxity_vcpu *vcpu = object;
    struct laxity_decision decision;

    switch (operation) {
    case SCX_ADD_DOMAIN:
        return policy->add_domain(instance, object, (void *)argument);
    case SCX_ADD_VCPU:
        return policy->add_vcpu(instance, vcpu, (void *)argument, now_ns);
    case SCX_SET_SETTINGS:
        return policy->set_settings(instance, (void *)argument, now_ns);
    case SCX_SET_DOMAIN:
        return policy->set_domain(instance, object, (void *)argument, now_ns);
    case SCX_SET_VCPU:
        return policy->set_vcpu(instance, vcpu, (void *)argument, now_ns);
    case SCX_SET_PHASE:
        if (policy->set_phase)
            policy->set_phase(instance, vcpu, (int64_t)argument, now_ns);
        return 0;
    case SCX_WAKE:
        vcpu->runnable = true;
        policy->wake(instance, vcpu, now_ns);
        return 0;
    case SCX_BLOCK:
        vcpu->runnable = false;
        return 1;
    case SCX_SLEEP:
        vcpu->runnable = false;
        policy->sleep(instance, vcpu, now_ns);
        return 0;
    case SCX_YIELD:
        policy->yield(instance, vcpu, now_ns);
        return 0;
    case SCX_EVENT:
        if (policy->event)
            policy->event(instance, vcpu, now_ns);
        return 0;
    case SCX_TIMER:
        side->requests->cpu[CPU].timer_ns = LAXITY_NEVER;
        policy->timer(instance, side->cpu, now_ns);
        return 0;
    case SCX_ACCOUNT:
        side->requests->account_ns = LAXITY_NEVER;
        if (policy->account)
            policy->account(instance, now_ns);
        return 0;
    case SCX_SCHEDULE:
        side->requests->cpu[CPU].kicked = 0;
        decision = policy->schedule(instance, side->cpu, now_ns);
        side->requests->cpu[CPU].until_ns = decision.until_ns;
        return decision.vcpu ? (uint64_t)decision.vcpu->owner : 0;
    default:
        quit("operation %d is not compared", operation);
    }
}

static uint64_t ask(struct side *side, enum scx_operation operation, void *object,
                    uint64_t argument)
{
    if (!side->scx)
        return serve(side, operation, object, argument);
    return scx_call(side->scx, operation, object, argument, now_ns);
}

static void print_side(const char *name, const struct side *side, uint64_t answer)
{
    const struct scx_cpu *cpu = &side->requests->cpu[CPU];
    printf("%s: answer %" PRIu64 ", timer %" PRId64 ", until %" PRId64 ", account %" PRId64
           ", kicked %" PRIu64 ", trace %016" PRIx64 "\n",
           name, answer, cpu->timer_ns, cpu->until_ns, side->requests->account_ns, cpu->kicked,
           side->requests->events);
}

static void compare(enum scx_operation operation, int object, const uint64_t answers[2])
{
    if (answers[0] == answers[1] &&
        !memcmp(sides[0].requests, sides[1].requests, sizeof *sides[0].requests))
        return;
    printf("state differs at %" PRId64 " ns, operation %d, object %d\n", now_ns, operation, object);
    print_side("this processor", &sides[0], answers[0]);
    print_side("BPF", &sides[1], answers[1]);
    exit(1);
}

/* Tells both sides; `objects` and `arguments` are each one's own. Returns the answer. */
static uint64_t tell(enum scx_operation operation, int number, void *const objects[2],
                     const uint64_t arguments[2])
{
    uint64_t answers[2];
    for (int i = 0; i < 2; i++)
        answers[i] = ask(&sides[i], operation, objects[i], arguments[i]);
    compare(operation, number, answers);
    return answers[0];
}

static uint64_t tell_of_vcpu(enum scx_operation operation, unsigned vcpu, uint64_t argument)
{
    void *objects[2] = {sides[0].vcpus[vcpu], sides[1].vcpus[vcpu]};
    return tell(operation, (int)vcpu, objects, (uint64_t[]){argument, argument});
}

static uint64_t tell_of_cpu(enum scx_operation operation)
{
    return tell(operation, CPU, (void *[2]){NULL, NULL}, (uint64_t[]){CPU, CPU});
}

static void choose_parameters(void)
{
    struct laxity_parameters chosen = {
        .period_ns = 1 + (int64_t)below(one_in(4) ? 200000 : 20000000),
        .priority = 1 + (uint32_t)below(4),
        .extratime = one_in(3),
        .weight = 1 + (uint32_t)below(1024),
        .cap_percent = one_in(3) ? 1 + (uint32_t)below(100) : 0,
        .laxity_ns = one_in(2) ? (int64_t)below(5000000) : 0,
    };
    chosen.budget_ns = 1 + (int64_t)below((uint64_t)chosen.period_ns);
    *sides[0].parameters = *sides[1].parameters = chosen;
}

static void choose_settings(void)
{
    struct laxity_settings chosen = {
        .quantum_ns = one_in(3) ? 1 + (int64_t)below(2000000) : 0,
        .time_slice_ns = 1 + (int64_t)below(30000000),
        .tick_ns = 1 + (int64_t)below(10000000),
    };
    chosen.accounting_ns = chosen.tick_ns * (1 + (int64_t)below(4));
    *sides[0].settings = *sides[1].settings = chosen;
}

static void *zeroed(size_t bytes)
{
    void *block = calloc(1, bytes);
    if (!block)
        quit("there is no memory");
    return block;
}

/* The arena is used again for each history: what came before is forgotten. */
static void start_history(void)
{
    static char *beginning;
    struct side *plain = &sides[0], *bpf = &sides[1];
    const struct laxity_policy *policy = scx.policy;

    if (!beginning)
        beginning = scx.free_place;
    scx.free_place = beginning;
    *bpf = (struct side){.scx = &scx, .policy = policy};
    bpf->settings = scx_allocate(&scx, sizeof *bpf->settings);
    bpf->parameters = scx_allocate(&scx, sizeof *bpf->parameters);
    /* Blocks of the last history are left to the end of the program. */
    *plain = (struct side){.policy = policy,
                           .settings = zeroed(sizeof *plain->settings),
                           .parameters = zeroed(sizeof *plain->parameters)};
    choose_settings();
    bpf->instance = scx_start(&scx, 1, bpf->settings, now_ns);
    bpf->instance->tracing = true;
    bpf->requests = bpf->instance->owner;
    bpf->cpu = bpf->instance->cpu[CPU];
    struct laxity_cpu **cpus = zeroed(sizeof *cpus);
    plain->instance = zeroed(policy->instance_bytes);
    plain->requests = zeroed(sizeof *plain->requests);
    plain->cpu = cpus[CPU] = zeroed(policy->cpu_bytes);
    plain->instance->policy = policy;
    plain->instance->embedder = &embedder;
    plain->instance->owner = plain->requests;
    plain->instance->cpus = 1;
    plain->instance->cpu = cpus;
    plain->instance->tracing = true;
    *plain->requests = (struct scx_requests){.account_ns = LAXITY_NEVER};
    for (int i = 0; i < SCX_CPUS_MAX; i++)
        plain->requests->cpu[i] = bpf->requests->cpu[i];
    plain->requests->cpu[CPU].timer_ns = plain->requests->cpu[CPU].until_ns = LAXITY_NEVER;
    if (policy->init(plain->instance, plain->settings))
        quit("the policy refuses random settings");
    policy->add_cpu(plain->instance, plain->cpu, now_ns);

    domain_count = 1 + (unsigned)below(DOMAINS_MAX);
    vcpu_count = 1 + (unsigned)below(VCPUS_MAX);
    for (unsigned i = 0; i < domain_count; i++) {
        plain->domains[i] = zeroed(policy->domain_bytes);
        bpf->domains[i] = scx_allocate(&scx, policy->domain_bytes);
        choose_parameters();
        tell(SCX_ADD_DOMAIN, (int)i, (void *[2]){plain->domains[i], bpf->domains[i]},
             (uint64_t[]){(uint64_t)plain->parameters, (uint64_t)bpf->parameters});
    }
    for (unsigned i = 0; i < vcpu_count; i++) {
        plain->vcpus[i] = zeroed(policy->vcpu_bytes);
        bpf->vcpus[i] = scx_allocate(&scx, policy->vcpu_bytes);
        for (int side = 0; side < 2; side++) {
            sides[side].vcpus[i]->domain = sides[side].domains[i % domain_count];
            sides[side].vcpus[i]->id = i;
            sides[side].vcpus[i]->owner = (void *)(uint64_t)(i + 1);
        }
        choose_parameters();
        tell(SCX_ADD_VCPU, (int)i, (void *[2]){plain->vcpus[i], bpf->vcpus[i]},
             (uint64_t[]){(uint64_t)plain->parameters, (uint64_t)bpf->parameters});
    }
}

static void change(void)
{
    unsigned vcpu = (unsigned)below(vcpu_count), domain = (unsigned)below(domain_count);
    uint64_t parameters[2] = {(uint64_t)sides[0].parameters, (uint64_t)sides[1].parameters};
    uint64_t settings[2] = {(uint64_t)sides[0].settings, (uint64_t)sides[1].settings};

    switch (below(4)) {
    case 0:
        choose_parameters();
        tell(SCX_SET_VCPU, (int)vcpu, (void *[2]){sides[0].vcpus[vcpu], sides[1].vcpus[vcpu]},
             parameters);
        break;
    case 1:
        choose_parameters();
        tell(SCX_SET_DOMAIN, (int)domain,
             (void *[2]){sides[0].domains[domain], sides[1].domains[domain]}, parameters);
        break;
    case 2:
        choose_settings();
        tell(SCX_SET_SETTINGS, 0, (void *[2]){NULL, NULL}, settings);
        break;
    default:
        tell_of_vcpu(SCX_SET_PHASE, vcpu, (uint64_t)now_ns + below(50000000));
    }
}

static void decide(void)
{
    tell_of_cpu(SCX_SCHEDULE);
    decisions++;
}

static void happen(void)
{
    unsigned number = (unsigned)below(vcpu_count);
    const struct laxity_vcpu *vcpu = sides[0].vcpus[number];
    const struct scx_cpu *cpu = &sides[0].requests->cpu[CPU];

    /* What is due may be late, as a real host's timers are. */
    if (cpu->timer_ns <= now_ns && !one_in(8))
        tell_of_cpu(SCX_TIMER);
    else if (sides[0].requests->account_ns <= now_ns && !one_in(8))
        tell_of_cpu(SCX_ACCOUNT);
    else if ((cpu->kicked || cpu->until_ns <= now_ns) && !one_in(8))
        decide();
    else if (one_in(100))
        change();
    else if (one_in(20))
        decide();
    else if (!vcpu->runnable)
        tell_of_vcpu(SCX_WAKE, number, 0);
    else if (one_in(6))
        tell_of_vcpu(SCX_YIELD, number, 0);
    else if (one_in(6))
        tell_of_vcpu(SCX_EVENT, number, 0);
    else if (vcpu != sides[0].cpu->current || one_in(3))
        tell_of_vcpu(SCX_SLEEP, number, 0);
    else {
        tell_of_vcpu(SCX_BLOCK, number, 0);
        decide();
    }
}

/* To the next thing that is due, or somewhat on; now and then not at all. */
static void pass_time(void)
{
    const struct scx_cpu *cpu = &sides[0].requests->cpu[CPU];
    int64_t due_ns = cpu->timer_ns < cpu->until_ns ? cpu->timer_ns : cpu->until_ns;
    if (one_in(4))
        return;
    if (due_ns > now_ns && due_ns != LAXITY_NEVER && due_ns - now_ns < 100000000 && one_in(2))
        now_ns = due_ns;
    else
        now_ns += (int64_t)below(one_in(3) ? 3000000 : 200000);
}

int main(int count, char **words)
{
    if (count != 5) {
        fprintf(stderr, "use: laxity-scx-compare OBJECT POLICY SEED EVENTS\n");
        return 2;
    }
    uint64_t seed = strtoull(words[3], NULL, 10), events = strtoull(words[4], NULL, 10);
    setvbuf(stdout, NULL, _IOLBF, 0);
    scx_load(&scx, words[1], words[2], true);
    random_state = (seed + 1) * 0x9e3779b97f4a7c15ull;
    now_ns = 1;
    for (uint64_t event = 0; event < events; event++) {
        if (event % HISTORY_EVENTS == 0)
            start_history();
        pass_time();
        happen();
    }
    printf("state same %" PRIu64 " %" PRIu64 " seed %" PRIu64 "\n", events, decisions, seed);
    return 0;
}
