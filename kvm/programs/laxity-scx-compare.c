/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tells a policy in BPF and the same policy built for this processor, as the simulator has it, the
 * same random events, and compares after each what both decided, asked for and traced.
 *
 *   laxity-scx-compare OBJECT POLICY SEED EVENTS
 *
 * A host has several CPUs, and threads come, go, and are moved, as scheduler.bpf.c tells it.
 *
 * It says "state same EVENTS DECISIONS MOVES", with how often a VCPU was chosen on another CPU than
 * before, or "state differs" with the event and both answers, and
 * ends with 1. Nothing is attached: the kernel's own schedulers run all the while.
 */
#include "scx.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A history begins anew after so many events, with other parameters and other numbers of CPUs and
 * VCPUs. */
#define HISTORY_EVENTS 500
#define DOMAINS_MAX 4
#define VCPUS_MAX 12
#define CPUS_MAX 3

/* One of the two: its blocks, and how it is asked. */
struct side {
    const struct scx *scx; /* NULL: the policy of this processor */
    const struct laxity_policy *policy;
    struct laxity_instance *instance;
    struct scx_requests *requests;
    struct laxity_domain *domains[DOMAINS_MAX];
    struct laxity_vcpu *vcpus[VCPUS_MAX];
    struct laxity_parameters *parameters;
    struct laxity_settings *settings;
};

static struct scx scx;
static struct side sides[2];
static unsigned domain_count, vcpu_count, cpu_count;
static int64_t now_ns;
static uint64_t random_state, decisions, moves;
static unsigned last_cpu[VCPUS_MAX];

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

static struct scx_vcpu *owner_of(const struct laxity_vcpu *vcpu)
{
    return vcpu->owner;
}

static void arm_timer(struct laxity_instance *instance, uint32_t cpu, int64_t at_ns)
{
    requests_of(instance)->cpu[cpu].timer_ns = at_ns;
    requests_of(instance)->changed |= SCX_BIT(cpu);
}

static void arm_account(struct laxity_instance *instance, int64_t at_ns)
{
    requests_of(instance)->account_ns = at_ns;
    requests_of(instance)->changed |= SCX_BIT(0);
}

static void kick(struct laxity_instance *instance, uint32_t cpu)
{
    requests_of(instance)->kicked |= SCX_BIT(cpu);
    requests_of(instance)->changed |= SCX_BIT(cpu);
}

static void extend(struct laxity_instance *instance, uint32_t cpu, int64_t until_ns)
{
    requests_of(instance)->cpu[cpu].until_ns = until_ns;
    requests_of(instance)->changed |= SCX_BIT(cpu);
}

static bool may_run_on(struct laxity_instance *instance, const struct laxity_vcpu *vcpu,
                       uint32_t cpu)
{
    (void)instance;
    return owner_of(vcpu)->affinity & SCX_BIT(cpu);
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
    uint64_t words[] = {owner_of(vcpu)->thread, (uint64_t)event, (uint64_t)argument};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        requests_of(instance)->events =
            (requests_of(instance)->events ^ words[i]) * 0x100000001b3ull;
    /* Neither side has room for what is traced. */
    requests_of(instance)->untraced++;
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

static struct laxity_vcpu *decide_here(struct side *side, uint32_t cpu)
{
    struct laxity_instance *instance = side->instance;
    struct laxity_decision decision;

    side->requests->kicked &= ~SCX_BIT(cpu);
    decision = side->policy->schedule(instance, instance->cpu[cpu], now_ns);
    side->requests->cpu[cpu].until_ns = decision.until_ns;
    side->requests->changed |= SCX_BIT(cpu);
    return decision.vcpu;
}

static void save(struct side *side, struct laxity_vcpu *vcpu)
{
    struct laxity_instance *instance = side->instance;

    vcpu->on_cpu = false;
    if (!side->policy->steals || !vcpu->runnable || instance->cpu[vcpu->cpu]->current == vcpu)
        return;
    for (uint32_t cpu = instance->cpus; cpu-- > 0;)
        if (!instance->cpu[cpu]->current && may_run_on(instance, vcpu, cpu)) {
            kick(instance, cpu);
            return;
        }
}

static void move(struct side *side, struct laxity_vcpu *vcpu)
{
    uint32_t cpu = 0;

    while (!may_run_on(side->instance, vcpu, cpu))
        cpu++;
    side->policy->move_vcpu(side->instance, vcpu, cpu, now_ns);
}

static void steal(struct side *side, uint64_t number, int64_t for_ns)
{
    struct laxity_cpu *cpu = side->instance->cpu[number];
    struct scx_cpu *asked = &side->requests->cpu[number];

    cpu->stolen_ns += for_ns;
    if (cpu->current && asked->until_ns != LAXITY_NEVER)
        asked->until_ns += for_ns;
}

/* What the operations of `struct scx_call` are for this processor's side. */
static uint64_t serve(struct side *side, enum scx_operation operation, void *object,
                      uint64_t argument)
{
    const struct laxity_policy *policy = side->policy;
    struct laxity_instance *instance = side->instance;
    struct laxity_vcpu *vcpu = object;

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
        if (instance->cpu[vcpu->cpu]->current != vcpu)
            return 0;
        vcpu->runnable = false;
        return 1;
    case SCX_SLEEP:
        if (!vcpu->runnable)
            return 0;
        vcpu->runnable = false;
        policy->sleep(instance, vcpu, now_ns);
        return 0;
    case SCX_SAVED:
        save(side, vcpu);
        return 0;
    case SCX_SET_AFFINITY:
        owner_of(vcpu)->affinity = argument;
        return !may_run_on(instance, vcpu, vcpu->cpu);
    case SCX_MOVE:
        move(side, vcpu);
        return 0;
    case SCX_TAKE_OFF:
        if (instance->cpu[vcpu->cpu]->current != vcpu)
            return 0;
        decide_here(side, vcpu->cpu);
        kick(instance, vcpu->cpu);
        return 0;
    case SCX_LEAVE:
        policy->remove_vcpu(instance, vcpu, now_ns);
        return 0;
    case SCX_YIELD:
        policy->yield(instance, vcpu, now_ns);
        return 0;
    case SCX_EVENT:
        if (policy->event)
            policy->event(instance, vcpu, now_ns);
        return 0;
    case SCX_TELL:
        if (policy->tell)
            policy->tell(instance, vcpu, (int64_t)argument, (int64_t)argument, now_ns);
        return 0;
    case SCX_TIMER:
        arm_timer(instance, (uint32_t)argument, LAXITY_NEVER);
        policy->timer(instance, instance->cpu[argument], now_ns);
        return 0;
    case SCX_ACCOUNT:
        arm_account(instance, LAXITY_NEVER);
        if (policy->account)
            policy->account(instance, now_ns);
        return 0;
    case SCX_STEAL:
        steal(side, argument, (int64_t)object);
        return 0;
    case SCX_SCHEDULE:
        vcpu = decide_here(side, (uint32_t)argument);
        if (!vcpu)
            return 0;
        vcpu->on_cpu = true;
        return owner_of(vcpu)->thread;
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
    printf(
        "%s: answer %" PRIu64 ", account %" PRId64 ", kicked %" PRIx64 ", trace %016" PRIx64 "\n",
        name, answer, side->requests->account_ns, side->requests->kicked, side->requests->events);
    for (unsigned cpu = 0; cpu < cpu_count; cpu++)
        printf("  CPU %u: timer %" PRId64 ", until %" PRId64 "\n", cpu,
               side->requests->cpu[cpu].timer_ns, side->requests->cpu[cpu].until_ns);
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

static uint64_t tell_of_cpu(enum scx_operation operation, unsigned cpu)
{
    return tell(operation, (int)cpu, (void *[2]){NULL, NULL}, (uint64_t[]){cpu, cpu});
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
    chosen.accounting_phase_ns = one_in(2) ? (int64_t)below((uint64_t)chosen.accounting_ns) : 0;
    *sides[0].settings = *sides[1].settings = chosen;
}

static void *zeroed(size_t bytes)
{
    void *block = calloc(1, bytes);
    if (!block)
        quit("there is no memory");
    return block;
}

/* A VCPU comes, on the first CPU of a random affinity. Its blocks are there, zeroed. */
static void add_vcpu(unsigned number)
{
    uint64_t affinity = 1 + below(SCX_BIT(cpu_count) - 1);
    unsigned cpu = 0;

    while (!(affinity & SCX_BIT(cpu)))
        cpu++;
    for (int i = 0; i < 2; i++) {
        struct laxity_vcpu *vcpu = sides[i].vcpus[number];
        *owner_of(vcpu) = (struct scx_vcpu){.thread = number + 1, .affinity = affinity};
        vcpu->domain = sides[i].domains[number % domain_count];
        vcpu->id = number;
        vcpu->cpu = cpu;
    }
    last_cpu[number] = cpu;
    choose_parameters();
    tell(SCX_ADD_VCPU, (int)number, (void *[2]){sides[0].vcpus[number], sides[1].vcpus[number]},
         (uint64_t[]){(uint64_t)sides[0].parameters, (uint64_t)sides[1].parameters});
}

static void start_here(struct side *plain, const struct laxity_settings *settings)
{
    const struct laxity_policy *policy = plain->policy;
    struct laxity_cpu **cpus = zeroed(cpu_count * sizeof *cpus);

    plain->instance = zeroed(policy->instance_bytes);
    plain->requests = zeroed(sizeof *plain->requests);
    plain->instance->policy = policy;
    plain->instance->embedder = &embedder;
    plain->instance->owner = plain->requests;
    plain->instance->cpus = cpu_count;
    plain->instance->cpu = cpus;
    plain->requests->account_ns = LAXITY_NEVER;
    if (policy->init(plain->instance, settings))
        quit("the policy refuses random settings");
    for (uint32_t number = 0; number < cpu_count; number++) {
        plain->requests->cpu[number].timer_ns = LAXITY_NEVER;
        plain->requests->cpu[number].until_ns = LAXITY_NEVER;
        plain->requests->cpu[number].armed_ns = LAXITY_NEVER;
        cpus[number] = zeroed(policy->cpu_bytes);
        cpus[number]->number = number;
        policy->add_cpu(plain->instance, cpus[number], now_ns);
    }
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
    cpu_count = 1 + (unsigned)below(CPUS_MAX);
    domain_count = 1 + (unsigned)below(DOMAINS_MAX);
    vcpu_count = 1 + (unsigned)below(VCPUS_MAX);
    bpf->instance = scx_start(&scx, cpu_count, bpf->settings, now_ns);
    bpf->requests = bpf->instance->owner;
    start_here(plain, plain->settings);
    plain->instance->tracing = bpf->instance->tracing = true;

    for (unsigned i = 0; i < domain_count; i++) {
        plain->domains[i] = zeroed(policy->domain_bytes);
        bpf->domains[i] = scx_allocate(&scx, policy->domain_bytes);
        choose_parameters();
        tell(SCX_ADD_DOMAIN, (int)i, (void *[2]){plain->domains[i], bpf->domains[i]},
             (uint64_t[]){(uint64_t)plain->parameters, (uint64_t)bpf->parameters});
    }
    for (unsigned i = 0; i < vcpu_count; i++) {
        plain->vcpus[i] = zeroed(policy->vcpu_bytes);
        plain->vcpus[i]->owner = zeroed(sizeof(struct scx_vcpu));
        bpf->vcpus[i] = scx_allocate_vcpu(&scx);
        add_vcpu(i);
    }
}

/* The kernel takes the VCPU's thread off its queue, wherever it is. */
static void dequeue(unsigned vcpu)
{
    tell_of_vcpu(SCX_SLEEP, vcpu, 0);
    tell_of_vcpu(SCX_SAVED, vcpu, 0);
}

static void change_affinity(unsigned vcpu)
{
    dequeue(vcpu);
    if (!tell_of_vcpu(SCX_SET_AFFINITY, vcpu, 1 + below(SCX_BIT(cpu_count) - 1)))
        return;
    tell_of_vcpu(SCX_TAKE_OFF, vcpu, 0);
    tell_of_vcpu(SCX_MOVE, vcpu, 0);
}

/* A thread ends, and another one begins in its place. */
static void replace(unsigned number)
{
    dequeue(number);
    tell_of_vcpu(SCX_TAKE_OFF, number, 0);
    tell_of_vcpu(SCX_LEAVE, number, 0);
    for (int i = 0; i < 2; i++)
        scx_clear_vcpu(&scx, sides[i].vcpus[number]);
    add_vcpu(number);
}

static void change(void)
{
    unsigned vcpu = (unsigned)below(vcpu_count), domain = (unsigned)below(domain_count);
    uint64_t parameters[2] = {(uint64_t)sides[0].parameters, (uint64_t)sides[1].parameters};
    uint64_t settings[2] = {(uint64_t)sides[0].settings, (uint64_t)sides[1].settings};

    switch (below(6)) {
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
    case 3:
        change_affinity(vcpu);
        break;
    case 4:
        replace(vcpu);
        break;
    default:
        tell_of_vcpu(SCX_SET_PHASE, vcpu, (uint64_t)now_ns + below(50000000));
    }
}

static void decide(unsigned cpu)
{
    uint64_t thread = tell_of_cpu(SCX_SCHEDULE, cpu);

    decisions++;
    if (!thread)
        return;
    moves += last_cpu[thread - 1] != cpu;
    last_cpu[thread - 1] = cpu;
}

/* The guest of a VCPU works on something else, which has a deadline or none, perhaps a past one. */
static void work_on(unsigned vcpu)
{
    int64_t deadline_ns = one_in(6) ? LAXITY_NEVER : now_ns + (int64_t)below(20000000) - 2000000;
    tell_of_vcpu(SCX_TELL, vcpu, (uint64_t)deadline_ns);
}

static void happen(void)
{
    unsigned number = (unsigned)below(vcpu_count), place = (unsigned)below(cpu_count);
    const struct laxity_vcpu *vcpu = sides[0].vcpus[number];
    const struct scx_requests *requests = sides[0].requests;
    const struct scx_cpu *cpu = &requests->cpu[place];
    bool is_current = vcpu == sides[0].instance->cpu[vcpu->cpu]->current;
    bool kicked = requests->kicked & SCX_BIT(place);

    /* What is due may be late, as a real host's timers are. */
    if (cpu->timer_ns <= now_ns && !one_in(8))
        tell_of_cpu(SCX_TIMER, place);
    else if (requests->account_ns <= now_ns && !one_in(8))
        tell_of_cpu(SCX_ACCOUNT, place);
    else if ((kicked || cpu->until_ns <= now_ns) && !one_in(8))
        decide(place);
    else if (scx.policy->tell && one_in(4))
        work_on(number);
    else if (one_in(40))
        change();
    else if (one_in(20))
        decide(place);
    else if (vcpu->on_cpu && !is_current && one_in(2))
        tell_of_vcpu(SCX_SAVED, number, 0);
    else if (!vcpu->runnable)
        tell_of_vcpu(SCX_WAKE, number, 0);
    else if (one_in(6))
        tell_of_vcpu(SCX_YIELD, number, 0);
    else if (one_in(6))
        tell_of_vcpu(SCX_EVENT, number, 0);
    else if (!is_current || one_in(3))
        dequeue(number);
    else {
        tell_of_vcpu(SCX_BLOCK, number, 0);
        tell_of_vcpu(SCX_SAVED, number, 0);
        /* A task of a higher class may come first. */
        if (!one_in(8))
            decide(vcpu->cpu);
    }
}

/* Others had some of the time that has passed since then, on CPUs in the turns of their VCPUs. */
static void steal_since(int64_t then_ns)
{
    for (unsigned cpu = 0; cpu < cpu_count; cpu++) {
        uint64_t for_ns = below((uint64_t)(now_ns - then_ns) + 1);
        if (sides[0].instance->cpu[cpu]->current && one_in(8))
            tell(SCX_STEAL, (int)cpu, (void *[2]){(void *)for_ns, (void *)for_ns},
                 (uint64_t[]){cpu, cpu});
    }
}

/* To the next thing that is due on a CPU, or somewhat on; now and then not at all. */
static void pass_time(void)
{
    int64_t then_ns = now_ns;
    const struct scx_cpu *cpu = &sides[0].requests->cpu[below(cpu_count)];
    int64_t due_ns = cpu->timer_ns < cpu->until_ns ? cpu->timer_ns : cpu->until_ns;
    if (one_in(4))
        return;
    if (due_ns > now_ns && due_ns != LAXITY_NEVER && due_ns - now_ns < 100000000 && one_in(2))
        now_ns = due_ns;
    else
        now_ns += (int64_t)below(one_in(3) ? 3000000 : 200000);
    steal_since(then_ns);
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
    printf("state same %" PRIu64 " %" PRIu64 " %" PRIu64 " seed %" PRIu64 "\n", events, decisions,
           moves, seed);
    return 0;
}
