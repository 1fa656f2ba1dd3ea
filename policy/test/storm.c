/* SPDX-License-Identifier: MIT */
/*
 * A storm on a policy, driven by bytes: from libFuzzer (LAXITY_FUZZER), or at random from a seed.
 * Beside what crates/laxity-policy/tests/storm does it removes VCPUs, takes CPUs away and gives
 * them back, lets locks be taken, keeps VCPUs on their CPU for a while after they were switched
 * out, and looks at the queues themselves.
 *
 * The embedder is as late as the bytes say, so what is asserted holds for any embedder.
 */
#include "check.h"

#include <laxity/policy.h>

#define SERVER_LENDS(instance_) ((instance_)->policy == &laxity_lending)
#include "../src/scheduler_s.h"
#include "../src/server.h"

#define CPUS 4
#define VCPUS 12
#define DOMAINS 3

/* server.h wants its hooks; only its structures are used here. */
static int64_t server_key(const struct server_vcpu *vcpu)
{
    return vcpu->place.key;
}

static void server_blocked(struct laxity_instance *instance, struct server_cpu *cpu,
                           struct server_vcpu *vcpu)
{
    (void)instance, (void)cpu, (void)vcpu;
}

static void server_unblocked(struct laxity_instance *instance, struct server_cpu *cpu,
                             struct server_vcpu *vcpu, int64_t now)
{
    (void)instance, (void)cpu, (void)vcpu, (void)now;
}

static void server_stopped(struct laxity_instance *instance, struct server_cpu *cpu,
                           struct server_vcpu *vcpu)
{
    (void)instance, (void)cpu, (void)vcpu;
}

static bool server_rests(const struct laxity_instance *instance, const struct server_vcpu *vcpu)
{
    (void)instance, (void)vcpu;
    return false;
}

static void server_replenish(struct laxity_instance *instance, struct server_cpu *cpu,
                             struct server_vcpu *vcpu, int64_t now)
{
    (void)instance, (void)cpu, (void)vcpu, (void)now;
}

static const struct {
    const struct laxity_policy *policy;
    const char *family, *switch_group;
} policies[] = {
#define LAXITY_POLICY(identifier_, name_, family_, switch_group_, ...) \
    {&laxity_##identifier_, #family_, #switch_group_},
#define LAXITY_MODEL LAXITY_POLICY
#include <policies.def>
};
#define POLICIES (sizeof policies / sizeof *policies)

struct input {
    const uint8_t *bytes;
    size_t count;
};

struct storm {
    struct input *input;
    int64_t now;
    struct laxity_instance *instance;
    uint32_t cpus;
    struct laxity_cpu *cpu[CPUS]; /* NULL: was taken away */
    uint32_t leaving;             /* the CPU that is being emptied; CPUS: none */
    struct laxity_domain *domain[DOMAINS];
    struct laxity_vcpu *vcpu[VCPUS]; /* NULL: none in this place */
    uint8_t affinity[VCPUS];
    bool locked[CPUS];
    bool kicked[CPUS];
    int64_t timer_ns[CPUS], until_ns[CPUS], account_ns;
    int64_t unit_ns;    /* by which time passes */
    bool parked[VCPUS]; /* as the policy told */
};

/* The first CPU there is, from one on, going round. */
static uint32_t cpu_from(const struct storm *storm, uint32_t number)
{
    while (!storm->cpu[number])
        number = (number + 1) % storm->cpus;
    return number;
}

/* The next byte; 0 when there is none left. */
static uint32_t take(struct storm *storm)
{
    if (!storm->input->count)
        return 0;
    storm->input->count--;
    return *storm->input->bytes++;
}

static uint32_t take_below(struct storm *storm, uint32_t count)
{
    return take(storm) % count;
}

static struct storm *storm_of(struct laxity_instance *instance)
{
    return instance->owner;
}

static uint32_t some_cpu(struct storm *storm)
{
    return cpu_from(storm, take_below(storm, storm->cpus));
}

static uint32_t place_of(const struct laxity_vcpu *vcpu)
{
    return (uint32_t)(uintptr_t)vcpu->owner;
}

/* The storm that a policy asks something of one of its CPUs. */
static struct storm *storm_for(struct laxity_instance *instance, uint32_t cpu)
{
    check(storm_of(instance)->cpu[cpu] != NULL, "something is asked of a CPU that is gone");
    return storm_of(instance);
}

static void on_arm_timer(struct laxity_instance *instance, uint32_t cpu, int64_t at_ns)
{
    storm_for(instance, cpu)->timer_ns[cpu] = at_ns;
}

static void on_arm_account(struct laxity_instance *instance, int64_t at_ns)
{
    storm_of(instance)->account_ns = at_ns;
}

static void on_kick(struct laxity_instance *instance, uint32_t cpu)
{
    storm_for(instance, cpu)->kicked[cpu] = true;
}

static void on_extend(struct laxity_instance *instance, uint32_t cpu, int64_t until_ns)
{
    storm_for(instance, cpu)->until_ns[cpu] = until_ns;
}

static bool on_may_run_on(struct laxity_instance *instance, const struct laxity_vcpu *vcpu,
                          uint32_t cpu)
{
    const struct storm *storm = storm_for(instance, cpu);
    return cpu != storm->leaving && storm->affinity[place_of(vcpu)] >> cpu & 1;
}

static bool on_prefers(struct laxity_instance *instance, const struct laxity_vcpu *vcpu,
                       uint32_t cpu)
{
    (void)storm_for(instance, cpu);
    return (place_of(vcpu) + cpu) % 3 != 0;
}

static bool on_try_lock(struct laxity_instance *instance, uint32_t cpu)
{
    struct storm *storm = storm_for(instance, cpu);
    check(!storm->locked[cpu], "a lock is taken twice");
    storm->locked[cpu] = take_below(storm, 8) != 7;
    return storm->locked[cpu];
}

static void on_unlock(struct laxity_instance *instance, uint32_t cpu)
{
    check(storm_of(instance)->locked[cpu], "a lock is given back that was not taken");
    storm_of(instance)->locked[cpu] = false;
}

static void on_trace(struct laxity_instance *instance, const struct laxity_vcpu *vcpu,
                     enum laxity_event event, int64_t argument)
{
    check(storm_of(instance)->vcpu[place_of(vcpu)] == vcpu, "an event of no VCPU");
    check(event <= LAXITY_EVENT_CLASS, "an event without a name");
    check(event != LAXITY_EVENT_MIGRATE || argument == vcpu->cpu, "a VCPU goes elsewhere");
    if (event == LAXITY_EVENT_CLASS)
        storm_of(instance)->parked[place_of(vcpu)] = argument == 3;
}

static const struct laxity_embedder embedder = {
    .arm_timer = on_arm_timer,
    .arm_account = on_arm_account,
    .kick = on_kick,
    .extend = on_extend,
    .may_run_on = on_may_run_on,
    .prefers = on_prefers,
    .try_lock = on_try_lock,
    .unlock = on_unlock,
    .trace = on_trace,
};

static void *block(size_t bytes)
{
    void *memory = calloc(1, bytes);
    check(memory != NULL, "no memory");
    return memory;
}

/* Often right, sometimes wrong in one place. */
static struct laxity_parameters some_parameters(struct storm *storm)
{
    int64_t period_ns = 1 + take_below(storm, 40);
    struct laxity_parameters parameters = {
        .budget_ns = 1 + take(storm) % period_ns,
        .period_ns = period_ns,
        .laxity_ns = take_below(storm, 2) ? take(storm) : 0,
        .priority = 1 + take_below(storm, 3),
        .weight = 1 + take(storm),
        .cap_percent = take_below(storm, 4) * 30,
        .extratime = take_below(storm, 2),
        .rt_priority = 1 + take_below(storm, 3),
        .quota_ns = take_below(storm, 2) ? take(storm) : 0,
        .quota_period_ns = 1 + take(storm),
        .credit_ns = take(storm) * LAXITY_NS(40000),
        .reclaim = take_below(storm, 2),
    };
    parameters.phase_ns = take(storm) % (period_ns + 1);
    switch (take_below(storm, 16)) {
    case 1:
        parameters.budget_ns = 0;
        break;
    case 2:
        parameters.period_ns = LAXITY_DURATION_MAX + 1;
        break;
    case 3:
        parameters.period_ns = INT64_MIN;
        break;
    case 4:
        parameters.priority = 0;
        break;
    case 5:
        parameters.weight = LAXITY_WEIGHT_MAX + 1;
        break;
    case 6:
        parameters.cap_percent = UINT32_MAX;
        break;
    case 7:
        parameters.laxity_ns = take_below(storm, 2) ? -1 : LAXITY_DURATION_MAX + 1;
        break;
    case 8: /* right, and as large as can be */
        parameters.budget_ns = parameters.period_ns = LAXITY_DURATION_MAX;
        parameters.laxity_ns = LAXITY_DURATION_MAX;
        parameters.cap_percent = LAXITY_CAP_MAX;
        break;
    case 10:
        parameters.quota_burst_ns = parameters.quota_ns;
        break;
    case 11:
        parameters.quota_burst_ns = parameters.quota_ns + 1;
        break;
    case 12:
        parameters.quota_period_ns = 0;
        break;
    case 13:
        parameters.quota_ns = -1;
        break;
    case 15:
        parameters.credit_ns = take_below(storm, 2) ? -1 : LAXITY_CREDIT_MAX + 1;
        break;
    case 14:
        parameters.phase_ns = take_below(storm, 2) ? -1 : period_ns + 1;
        break;
    case 9:
        parameters.rt_priority = take_below(storm, 2) ? 0 : LAXITY_RT_PRIORITY_MAX + 1;
        break;
    }
    return parameters;
}

static struct laxity_settings some_settings(struct storm *storm)
{
    uint32_t tick_ns = 1 + take_below(storm, 10);
    uint32_t accounting_ns = tick_ns * (1 + take_below(storm, 4));
    struct laxity_settings settings = {
        .quantum_ns = take_below(storm, 2) ? take_below(storm, 8) : 0,
        .time_slice_ns = 1 + take_below(storm, 30),
        .tick_ns = tick_ns,
        .accounting_ns = accounting_ns,
        .accounting_phase_ns = take_below(storm, 2) ? take_below(storm, accounting_ns) : 0,
        .jiffy_ns = take_below(storm, 2) ? take_below(storm, 8) : 0,
        .base_slice_ns = take_below(storm, 4),
        .run_queue_cpus = take_below(storm, 4),
    };
    switch (take_below(storm, 16)) {
    case 1:
        settings.quantum_ns = -1;
        break;
    case 2:
        settings.time_slice_ns = 0;
        break;
    case 3:
        settings.accounting_ns = INT64_MAX;
        break;
    case 4:
        settings.quantum_ns = settings.time_slice_ns = LAXITY_DURATION_MAX;
        settings.accounting_ns = settings.tick_ns = LAXITY_ACCOUNTING_MAX;
        break;
    case 5:
        settings.jiffy_ns = -1;
        break;
    case 6:
        settings.base_slice_ns = -1;
        break;
    case 7:
        settings.run_queue_cpus = LAXITY_RUN_QUEUE_MAX + 1;
        break;
    case 8:
        settings.accounting_phase_ns = settings.accounting_ns;
        break;
    case 9:
        settings.accounting_phase_ns = -1;
        break;
    }
    return settings;
}

static const struct laxity_policy *policy_of(const struct storm *storm)
{
    return storm->instance->policy;
}

static size_t number_of(const struct laxity_policy *policy)
{
    size_t number = 0;
    while (policies[number].policy != policy)
        number++;
    return number;
}

static const char *switch_group_of(const struct laxity_policy *policy)
{
    return policies[number_of(policy)].switch_group;
}

/* Whether its CPUs and VCPUs are those of server.h. */
static bool has_servers(const struct storm *storm)
{
    const char *family = policies[number_of(policy_of(storm))].family;
    return !strcmp(family, "servers") || !strcmp(family, "deadlines");
}

/* Whether its CPUs and VCPUs are those of global_server.h. */
static bool has_global_servers(const struct storm *storm)
{
    return !strcmp(policies[number_of(policy_of(storm))].family, "global");
}

static void add_vcpu(struct storm *storm, uint32_t place)
{
    struct laxity_parameters parameters = some_parameters(storm);
    struct laxity_vcpu *vcpu = block(policy_of(storm)->vcpu_bytes);

    vcpu->owner = (void *)(uintptr_t)place;
    vcpu->id = place;
    vcpu->domain = storm->domain[place % DOMAINS];
    vcpu->cpu = some_cpu(storm);
    storm->affinity[place] = (uint8_t)(take(storm) | 1u << vcpu->cpu);
    storm->vcpu[place] = vcpu;
    storm->parked[place] = false;
    if (policy_of(storm)->add_vcpu(storm->instance, vcpu, &parameters, storm->now)) {
        storm->vcpu[place] = NULL;
        free(vcpu);
    }
}

static void schedule(struct storm *storm, uint32_t number)
{
    struct laxity_cpu *cpu = storm->cpu[number];
    struct laxity_vcpu *before = cpu->current;
    struct laxity_decision decision;

    /* The state of those that were switched out is saved before the CPU decides again. */
    for (uint32_t place = 0; place < VCPUS; place++)
        if (storm->vcpu[place] && storm->vcpu[place]->cpu == number && storm->vcpu[place] != before)
            storm->vcpu[place]->on_cpu = false;
    storm->kicked[number] = false;
    decision = policy_of(storm)->schedule(storm->instance, cpu, storm->now);
    storm->until_ns[number] = decision.until_ns;
    check(decision.vcpu == cpu->current, "a decision that the policy does not know of");
    check(decision.until_ns > storm->now, "a decision for no time");
    if (decision.vcpu) {
        struct laxity_vcpu *vcpu = decision.vcpu;
        check(storm->vcpu[place_of(vcpu)] == vcpu, "a VCPU that is not there runs");
        check(vcpu->runnable, "a VCPU without work runs");
        check(vcpu->cpu == number, "a VCPU runs elsewhere than it is");
        check(storm->affinity[place_of(vcpu)] >> number & 1, "a VCPU runs where it may not");
        check(!vcpu->on_cpu || vcpu == before, "a VCPU runs whose state is not saved");
        vcpu->on_cpu = true;
    }
    if (before && before != decision.vcpu && take_below(storm, 2))
        before->on_cpu = false;
}

/* Puts a VCPU to sleep, and sees it off its CPU. */
static void put_to_sleep(struct storm *storm, struct laxity_vcpu *vcpu)
{
    if (vcpu->runnable) {
        vcpu->runnable = false;
        policy_of(storm)->sleep(storm->instance, vcpu, storm->now);
    }
    if (storm->cpu[vcpu->cpu]->current == vcpu)
        schedule(storm, vcpu->cpu);
    vcpu->on_cpu = false;
}

static void remove_vcpu(struct storm *storm, uint32_t place)
{
    struct laxity_vcpu *vcpu = storm->vcpu[place];

    put_to_sleep(storm, vcpu);
    policy_of(storm)->remove_vcpu(storm->instance, vcpu, storm->now);
    storm->vcpu[place] = NULL;
    free(vcpu);
}

static int64_t lead_of(const struct server_vcpu *vcpu)
{
    int64_t sum_ns = 0;
    for (uint32_t place = 0; place < vcpu->lead_count; place++)
        sum_ns += vcpu->lead[place].ns;
    return sum_ns;
}

/* What of a VCPU's budget goes with it to another CPU. */
struct luggage {
    int64_t left_ns, due_ns, lead_ns;
    uint32_t pending_count;
    bool queued;
};

/* Up to now. */
static struct luggage luggage_of(const struct storm *storm, const struct server_vcpu *vcpu)
{
    const struct server_cpu *cpu = server_cpu_of(storm->cpu[vcpu->vcpu.cpu]);
    int64_t used_ns = cpu->burning == vcpu ? storm->now - cpu->used_until_ns : 0;
    int64_t lead_ns = lead_of(vcpu);
    bool lends = policy_of(storm) == &laxity_lending && cpu->cpu.current != &vcpu->vcpu;

    if (lends && used_ns > lead_ns)
        used_ns = lead_ns;

    return (struct luggage){
        .left_ns = vcpu->left_ns - used_ns,
        .lead_ns = lead_ns - (lends ? used_ns : 0),
        .due_ns = vcpu->due.at_ns,
        .pending_count = vcpu->pending_count,
        .queued = vcpu->queue && vcpu->left_ns > used_ns && (!lends || lead_ns > used_ns),
    };
}

/* Moves a VCPU as Xen does: one that has work is put to sleep first, and wakes on its new CPU. */
static void move_vcpu(struct storm *storm, struct laxity_vcpu *vcpu, uint32_t to)
{
    bool servers = has_servers(storm), has_work = vcpu->runnable;
    struct luggage before, after;
    bool run_ends;

    put_to_sleep(storm, vcpu);
    /* Its server may serve a lead; that use comes back like all others. */
    run_ends = policy_of(storm) == &laxity_lending &&
               server_cpu_of(storm->cpu[vcpu->cpu])->burning == server_vcpu_of(vcpu);
    storm->affinity[place_of(vcpu)] |= (uint8_t)(1u << to);
    if (servers)
        before = luggage_of(storm, server_vcpu_of(vcpu));
    policy_of(storm)->move_vcpu(storm->instance, vcpu, to, storm->now);
    check(vcpu->cpu == to, "a VCPU that was moved is elsewhere");
    if (servers) {
        after = luggage_of(storm, server_vcpu_of(vcpu));
        check(before.left_ns == after.left_ns, "a move changes what is left");
        check(before.lead_ns == after.lead_ns, "a move changes a lead");
        check(run_ends || before.due_ns == after.due_ns, "a move changes when budget comes");
        check(run_ends || before.pending_count == after.pending_count,
              "a move changes what is to come");
        check(before.queued == after.queued, "a move changes whose budget runs down");
    }
    if (has_work) {
        vcpu->runnable = true;
        policy_of(storm)->wake(storm->instance, vcpu, storm->now);
    }
}

static void set_phase(struct storm *storm, struct laxity_vcpu *vcpu)
{
    const struct server_vcpu *server = server_vcpu_of(vcpu);
    int64_t phase_ns = storm->now + (int64_t)take(storm) - 128,
            period_ns = vcpu->parameters.period_ns;
    struct luggage before, after;
    int64_t later_ns;

    if (!has_servers(storm)) {
        policy_of(storm)->set_phase(storm->instance, vcpu, phase_ns, storm->now);
        return;
    }
    before = luggage_of(storm, server);

    policy_of(storm)->set_phase(storm->instance, vcpu, phase_ns, storm->now);
    after = luggage_of(storm, server);
    later_ns = after.due_ns - before.due_ns;
    check(before.left_ns == after.left_ns, "a phase changes what is left");
    check(later_ns >= 0 && later_ns < period_ns, "a phase brings budget too early or too late");
    check((after.due_ns - phase_ns) % period_ns == 0, "budget comes out of phase");
}

static void add_cpu(struct storm *storm, uint32_t number)
{
    storm->cpu[number] = block(policy_of(storm)->cpu_bytes);
    storm->cpu[number]->number = number;
    storm->timer_ns[number] = storm->until_ns[number] = LAXITY_NEVER;
    storm->kicked[number] = false;
    policy_of(storm)->add_cpu(storm->instance, storm->cpu[number], storm->now);
}

/* Moves everybody away first; what may still be stolen meanwhile is not, as it may not run here. */
static void remove_cpu(struct storm *storm, uint32_t number)
{
    uint32_t to = cpu_from(storm, (number + 1) % storm->cpus);
    struct laxity_cpu *cpu = storm->cpu[number];

    storm->leaving = number;
    for (uint32_t place = 0; place < VCPUS; place++)
        if (storm->vcpu[place] && storm->vcpu[place]->cpu == number)
            move_vcpu(storm, storm->vcpu[place], to);
    storm->leaving = CPUS;
    check(!cpu->current, "a CPU runs a VCPU that is gone");
    policy_of(storm)->remove_cpu(storm->instance, cpu, storm->now);
    check(storm->timer_ns[number] == LAXITY_NEVER, "the timer of a CPU that is gone");
    storm->cpu[number] = NULL;
    free(cpu);
}

/* Takes a CPU away, unless it is the last one, or gives one back. */
static void change_cpus(struct storm *storm)
{
    uint32_t number = take_below(storm, storm->cpus);

    if (!storm->cpu[number])
        add_cpu(storm, number);
    else if (cpu_from(storm, (number + 1) % storm->cpus) != number)
        remove_cpu(storm, number);
}

static void act_on(struct storm *storm, struct laxity_vcpu *vcpu, uint32_t what)
{
    const struct laxity_policy *policy = policy_of(storm);
    struct laxity_instance *instance = storm->instance;
    struct laxity_parameters parameters, before;

    switch (what) {
    case 0:
    case 1:
        if (!vcpu->runnable) {
            vcpu->runnable = true;
            policy->wake(instance, vcpu, storm->now);
        } else if (policy->event) {
            policy->event(instance, vcpu, storm->now);
        }
        break;
    case 7:
        if (policy->tell)
            policy->tell(instance, vcpu, storm->now + (int64_t)take(storm) - 32,
                         take_below(storm, 12), storm->now);
        break;
    case 2:
        if (vcpu->runnable) {
            vcpu->runnable = false;
            policy->sleep(instance, vcpu, storm->now);
        }
        break;
    case 3:
        if (storm->cpu[vcpu->cpu]->current == vcpu) {
            vcpu->runnable = false;
            schedule(storm, vcpu->cpu);
        }
        break;
    case 4:
        if (vcpu->runnable)
            policy->yield(instance, vcpu, storm->now);
        break;
    case 5:
        storm->affinity[place_of(vcpu)] = (uint8_t)(take(storm) | 1u << vcpu->cpu);
        parameters = some_parameters(storm);
        before = vcpu->parameters;
        if (policy->set_vcpu(instance, vcpu, &parameters, storm->now))
            check(!memcmp(&before, &vcpu->parameters, sizeof before), "refused, and yet changed");
        break;
    case 6:
        parameters = some_parameters(storm);
        before = vcpu->domain->parameters;
        if (policy->set_domain(instance, vcpu->domain, &parameters, storm->now))
            check(!memcmp(&before, &vcpu->domain->parameters, sizeof before),
                  "refused, and yet changed");
        break;
    default:
        remove_vcpu(storm, place_of(vcpu));
    }
}

static void change_all(struct storm *storm)
{
    struct laxity_settings settings = some_settings(storm), before = storm->instance->settings;
    const struct laxity_policy *other = policies[take_below(storm, POLICIES)].policy,
                               *own = policy_of(storm);

    if (take_below(storm, 2)) {
        if (own->set_settings(storm->instance, &settings, storm->now))
            check(!memcmp(&before, &storm->instance->settings, sizeof before),
                  "refused, and yet changed");
    } else {
        bool may = !strcmp(switch_group_of(own), switch_group_of(other));
        bool did = own->become(storm->instance, other, storm->now) == LAXITY_OK;
        check(did == may, "policies switch live that are of two groups, or refuse to in one");
        check(policy_of(storm) == (did ? other : own), "another policy than was answered");
    }
}

/* Serves what is due, as far as the bytes let it. */
static void serve(struct storm *storm)
{
    for (uint32_t cpu = 0; cpu < storm->cpus; cpu++) {
        if (storm->cpu[cpu] && storm->timer_ns[cpu] <= storm->now && take_below(storm, 4)) {
            storm->timer_ns[cpu] = LAXITY_NEVER;
            policy_of(storm)->timer(storm->instance, storm->cpu[cpu], storm->now);
        }
    }
    if (storm->account_ns <= storm->now && take_below(storm, 4)) {
        storm->account_ns = LAXITY_NEVER;
        policy_of(storm)->account(storm->instance, storm->now);
    }
    for (uint32_t cpu = 0; cpu < storm->cpus; cpu++)
        if (storm->cpu[cpu] && (storm->kicked[cpu] || storm->until_ns[cpu] <= storm->now) &&
            take_below(storm, 4))
            schedule(storm, cpu);
}

static uint32_t count_heap(const struct heap *heap, const struct heap_node *node,
                           const struct heap_node *parent)
{
    if (!node)
        return 0;
    check(node->parent == parent, "a node that does not know its parent");
    check(!parent || !heap_before(node, parent), "a node before its parent");
    return 1 + count_heap(heap, node->child[0], node) + count_heap(heap, node->child[1], node);
}

static void check_server_cpu(const struct storm *storm, const struct server_cpu *cpu)
{
    struct server_choice choice = server_choose(storm->instance, cpu);
    const struct heap *queues[] = {&cpu->run_queue, &cpu->ready_queue, &cpu->replenishment_queue,
                                   &cpu->urgent_queue};
    for (int i = 0; i < 4; i++)
        check(count_heap(queues[i], queues[i]->first, NULL) == queues[i]->count, "a lost node");
    check(cpu->cpu.current != (choice.run ? &choice.run->vcpu : NULL) ||
              cpu->burning == choice.burn,
          "a CPU is used, and nobody's budget, or another's, runs down");
    check(!cpu->burning || cpu->burning->vcpu.cpu == cpu->cpu.number,
          "the budget of a VCPU runs down that is elsewhere");
}

static bool is_sporadic(const struct storm *storm)
{
    return policy_of(storm) == &laxity_sporadic || policy_of(storm) == &laxity_lending;
}

/* Whether a blocked VCPU's budget changes with time. */
static bool can_lose_budget(const struct storm *storm)
{
    return policy_of(storm) == &laxity_periodic || policy_of(storm) == &laxity_polling;
}

static void check_server_vcpu(const struct storm *storm, const struct server_vcpu *vcpu)
{
    const struct laxity_vcpu *base = &vcpu->vcpu;
    const struct server_cpu *cpu = server_cpu_of(storm->cpu[base->cpu]);
    int64_t sum_ns = vcpu->left_ns + vcpu->run_used_ns;
    bool idle = storm->cpu[base->cpu]->current == NULL;
    bool active = base->runnable || storm->cpu[base->cpu]->current == base || vcpu->lead_count > 0;
    bool waits = !active && policy_of(storm) == &laxity_periodic;

    check(vcpu->left_ns <= base->parameters.budget_ns, "more than the budget is left");
    check(!vcpu->lead_count || policy_of(storm) == &laxity_lending, "a lead where nobody lends");
    check(vcpu->lead_count <= SERVER_LEADS_MAX, "too many leads");
    for (uint32_t place = 0; place < vcpu->lead_count; place++) {
        check(vcpu->lead[place].ns > 0, "a VCPU behind its server");
        check(!place || vcpu->lead[place - 1].order < vcpu->lead[place].order,
              "leads out of order");
    }
    check(vcpu->is_urgent == (base->runnable && policy_of(storm) == &laxity_lending),
          "a VCPU that is not urgent, or asleep");
    check(vcpu->pending_count <= SERVER_REPLENISHMENTS_MAX, "too many replenishments");
    check((vcpu->due.at_ns != LAXITY_NEVER) == (!is_sporadic(storm) || vcpu->pending_count),
          "a budget that never comes");
    check(!vcpu->due.rests || !active, "a VCPU that works, and rests");
    check(!vcpu->due.rests || !can_lose_budget(storm), "a budget that runs down without a timer");
    check(vcpu->due.is_queued == (vcpu->due.at_ns != LAXITY_NEVER && !vcpu->due.rests),
          "a replenishment that is in RepQ for nothing, or is missing there");
    if (vcpu->left_ns > 0 && (active || waits))
        check(vcpu->queue == (active ? &cpu->run_queue : &cpu->ready_queue), "a lost budget");
    else
        check(!vcpu->queue, "a VCPU without budget, or without work, in a queue");
    if (policy_of(storm) == &laxity_polling)
        check(active || vcpu->left_ns <= 0, "a polling server that sleeps has budget");
    check(!vcpu->queue || !list_holds(&vcpu->extra), "a VCPU with budget waits for extra time");
    check(base->runnable || !list_holds(&vcpu->extra), "a VCPU that sleeps waits for extra time");
    if (is_sporadic(storm)) {
        int64_t last_ns = 0;
        for (uint32_t i = 0; i < vcpu->pending_count; i++) {
            const struct server_replenishment *pending =
                &vcpu->pending[(vcpu->pending_first + i) % SERVER_REPLENISHMENTS_MAX];
            check(pending->at_ns >= last_ns, "replenishments out of order");
            last_ns = pending->at_ns;
            sum_ns += pending->amount_ns;
        }
        check(sum_ns == base->parameters.budget_ns, "budget lost or amplified");
    }
    if (idle && base->runnable && !storm->kicked[base->cpu] && vcpu->queue &&
        storm->timer_ns[base->cpu] > storm->now)
        check(cpu->ready_queue.count > 0, "a lost wake-up");
    if (vcpu->due.is_queued && !storm->kicked[base->cpu])
        check(storm->timer_ns[base->cpu] < LAXITY_NEVER, "a replenishment that nothing brings");
}

static void check_all(const struct storm *storm)
{
    bool servers = has_servers(storm);

    for (uint32_t cpu = 0; servers && cpu < storm->cpus; cpu++)
        if (storm->cpu[cpu])
            check_server_cpu(storm, server_cpu_of(storm->cpu[cpu]));
    for (uint32_t place = 0; place < VCPUS; place++)
        if (storm->vcpu[place] && servers)
            check_server_vcpu(storm, server_vcpu_of(storm->vcpu[place]));
}

struct counter {
    struct laxity_dump dump;
    const struct storm *storm;
    uint32_t lines[VCPUS];
    uint32_t cpu;     /* whose queues are told */
    bool waits[CPUS]; /* somebody there */
};

/* Whether a VCPU in that state of a model may have the CPU at once. Under credit2, a VCPU with
 * hardly more than the least credits may call another CPU, which then idles and leaves it, as in
 * Xen. */
static bool has_claim(const struct storm *storm, const char *state)
{
    if (policy_of(storm) == &laxity_credit2 && storm->cpus > 1)
        return false;
    return strcmp(state, "without a CPU") && strcmp(state, "depleted") &&
           strcmp(state, "called another CPU") && strcmp(state, "throttled") &&
           strcmp(state, "waits") && strcmp(state, "being saved") && strcmp(state, "no budget") &&
           strcmp(state, "extra") && strcmp(state, "RdyQ") && strcmp(state, "blocked");
}

/* What a model tells of a VCPU's budget or credits. */
static void check_model_line(const struct laxity_policy *policy, const char *state, int64_t left_ns)
{
    bool is_depleted = !strcmp(state, "depleted");

    if (policy == &laxity_rtds)
        check(is_depleted ? left_ns == 0 : left_ns > 0, "a VCPU in the wrong queue of rtds");
    if (!strcmp(state, "next") && policy != &laxity_fifo && policy != &laxity_deadline)
        check(left_ns > 0, "a server without budget has a CPU");
    if (policy == &laxity_credit2)
        check(left_ns >= -10 * LAXITY_MILLISECOND, "fewer credits than the least of credit2");
}

static void count_line(struct laxity_dump *dump, const struct laxity_vcpu *vcpu, const char *state,
                       int64_t left_ns, int64_t next_ns)
{
    struct counter *counter = laxity_container(dump, struct counter, dump);
    check(counter->storm->vcpu[place_of(vcpu)] == vcpu, "a VCPU that is not there is dumped");
    check(state[0] != 0, "a state without a name");
    check(vcpu->cpu == counter->cpu, "a VCPU in another CPU's queue");
    counter->lines[place_of(vcpu)]++;
    counter->waits[counter->cpu] |=
        counter->storm->cpu[counter->cpu]->current != vcpu && has_claim(counter->storm, state);
    check_model_line(policy_of(counter->storm), state, left_ns);
    (void)next_ns;
}

/* Without servers: who can run runs or waits, and where somebody waits a CPU will decide. */
static void check_shares(const struct storm *storm, const struct counter *counter)
{
    bool will_decide = false;

    for (uint32_t place = 0; place < VCPUS; place++) {
        const struct laxity_vcpu *vcpu = storm->vcpu[place];
        bool is_current = vcpu && storm->cpu[vcpu->cpu]->current == vcpu;
        bool waits = vcpu && vcpu->runnable && !storm->parked[place];
        bool is_told = has_global_servers(storm) ? vcpu != NULL : is_current || waits;
        check(counter->lines[place] == is_told, "a VCPU is lost, or not gone");
    }
    /* One that is to move may be left to the CPU to which it goes. */
    if (s_parts_of(policy_of(storm)) & S_BIND)
        for (uint32_t cpu = 0; cpu < storm->cpus; cpu++)
            will_decide |= storm->kicked[cpu];
    for (uint32_t cpu = 0; cpu < storm->cpus; cpu++)
        check(will_decide || !counter->waits[cpu] || storm->cpu[cpu]->current || storm->kicked[cpu],
              "a lost wake-up");
}

/* Nobody stands in two queues. */
static void check_dump(struct storm *storm)
{
    struct counter counter = {.dump = {count_line}, .storm = storm};
    for (uint32_t cpu = 0; cpu < storm->cpus; cpu++)
        if (storm->cpu[cpu]) {
            counter.cpu = cpu;
            policy_of(storm)->dump(storm->instance, storm->cpu[cpu], &counter.dump);
        }
    for (uint32_t place = 0; place < VCPUS; place++)
        check(counter.lines[place] <= 1, "a VCPU in two places");
    if (!has_servers(storm))
        check_shares(storm, &counter);
}

static void start(struct storm *storm)
{
    const struct laxity_policy *policy = policies[take_below(storm, POLICIES)].policy;
    struct laxity_settings settings = {
        .time_slice_ns = 30,
        .tick_ns = 10,
        .accounting_ns = 30,
        .jiffy_ns = 4,
        .base_slice_ns = 2,
        .run_queue_cpus = take_below(storm, 4),
    };

    storm->cpus = 1 + take_below(storm, CPUS);
    /* With the other, waits of 2 ms and whole seconds come and go. */
    storm->unit_ns = take_below(storm, 2) ? 1 : 10 * LAXITY_MILLISECOND;
    storm->leaving = CPUS;
    storm->account_ns = LAXITY_NEVER;
    storm->instance = block(policy->instance_bytes);
    *storm->instance = (struct laxity_instance){
        .policy = policy,
        .embedder = &embedder,
        .owner = storm,
        .cpus = storm->cpus,
        .cpu = storm->cpu,
        .tracing = true,
    };
    check(policy->init(storm->instance, &settings) == LAXITY_OK, "good settings are refused");
    for (uint32_t cpu = 0; cpu < storm->cpus; cpu++)
        add_cpu(storm, cpu);
    for (uint32_t id = 0; id < DOMAINS; id++) {
        struct laxity_parameters parameters = {.budget_ns = 1,
                                               .period_ns = 1,
                                               .priority = 1,
                                               .weight = 256,
                                               .rt_priority = 1,
                                               .quota_period_ns = 1};
        storm->domain[id] = block(policy->domain_bytes);
        storm->domain[id]->id = id;
        check(!policy->add_domain(storm->instance, storm->domain[id], &parameters), "refused");
    }
}

static void end(struct storm *storm)
{
    for (uint32_t place = 0; place < VCPUS; place++)
        if (storm->vcpu[place])
            remove_vcpu(storm, place);
    if (storm->account_ns != LAXITY_NEVER) {
        storm->now = storm->account_ns > storm->now ? storm->account_ns : storm->now;
        storm->account_ns = LAXITY_NEVER;
        policy_of(storm)->account(storm->instance, storm->now);
        check(storm->account_ns == LAXITY_NEVER, "accounting goes on for nobody");
    }
    for (uint32_t id = 0; id < DOMAINS; id++) {
        policy_of(storm)->remove_domain(storm->instance, storm->domain[id]);
        free(storm->domain[id]);
    }
    for (uint32_t cpu = 0; cpu < storm->cpus; cpu++)
        if (storm->cpu[cpu])
            remove_cpu(storm, cpu);
    free(storm->instance);
}

static void storm_of_bytes(const uint8_t *bytes, size_t count)
{
    struct input input = {bytes, count};
    struct storm storm = {.input = &input};

    start(&storm);
    while (input.count) {
        uint32_t what = take_below(&storm, 16), place = take_below(&storm, VCPUS);
        if (what == 15)
            change_all(&storm);
        else if (what == 14)
            schedule(&storm, some_cpu(&storm));
        else if (what == 12 && storm.vcpu[place] && policy_of(&storm)->set_phase)
            set_phase(&storm, storm.vcpu[place]);
        else if (what == 13 && take_below(&storm, 4) == 0)
            change_cpus(&storm);
        else if (what == 13 && storm.vcpu[place])
            move_vcpu(&storm, storm.vcpu[place], some_cpu(&storm));
        else if (what > 8)
            storm.now += storm.unit_ns * take_below(&storm, 16);
        else if (!storm.vcpu[place])
            add_vcpu(&storm, place);
        else if (what < 8 || take_below(&storm, 4) == 3)
            act_on(&storm, storm.vcpu[place], what);
        serve(&storm);
        check_all(&storm);
        check_dump(&storm);
    }
    end(&storm);
}

#ifdef LAXITY_FUZZER
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    storm_of_bytes(bytes, count);
    return 0;
}
#else
#define BYTES_MAX 3000

/* storm [FIRST_SEED [STORMS]] */
int main(int count, char **arguments)
{
    uint64_t first = count > 1 ? strtoull(arguments[1], NULL, 10) : 0;
    uint64_t storms = count > 2 ? strtoull(arguments[2], NULL, 10) : 5000;

    for (check_seed = first; check_seed < first + storms; check_seed++) {
        struct draw draw = {.state = check_seed};
        static uint8_t bytes[BYTES_MAX];
        size_t length = 1 + draw_below(&draw, BYTES_MAX);
        for (size_t i = 0; i < length; i++)
            bytes[i] = (uint8_t)draw_next(&draw);
        storm_of_bytes(bytes, length);
    }
    printf("storm: %llu storms from seed %llu\n", (unsigned long long)storms,
           (unsigned long long)first);
    return 0;
}
#endif
