/* SPDX-License-Identifier: MIT */
/*
 * A model of Linux's SCHED_DEADLINE: earliest deadline first over all CPUs, with a constant
 * bandwidth server for each thread. A VCPU is a thread; its runtime is `budget_ns`, and its
 * deadline is its period. docs/explanation/policies.md has the rules; linux.h has the order of all
 * CPUs.
 *
 * A VCPU that has used up its runtime is throttled: it is not ready, and stands in `throttled`
 * until its period ends, which the account timer tells.
 *
 * A VCPU that reclaims pays less for its time while others leave bandwidth unused (GRUB). The price
 * depends on the VCPUs that are inactive when it pays, so the CPU's timer lets it pay at every
 * tick.
 */
#include "linux.h"

struct deadline_vcpu {
    struct global_vcpu global; /* its key is the deadline */
    struct heap_node due;      /* in `throttled`; its key is the end of the period */
    bool is_throttled;
    int64_t left_ns; /* of the runtime; below 0 where it was overrun */
    int64_t deadline_ns;
    int64_t inactive_ns; /* when its bandwidth is not in use any more; LAXITY_NEVER: it has work */
};

struct deadline_cpu {
    struct global_cpu global;
    int64_t charged_ns; /* up to when the current VCPU has paid */
    int64_t armed_ns;   /* when the current VCPU pays by the timer */
};

/* Bandwidths are fractions of a CPU in units of 2^-20, as the kernel's (BW_SHIFT). */
#define DEADLINE_BANDWIDTH_SHIFT 20
/* 95 %: kernel.sched_rt_runtime_us of kernel.sched_rt_period_us. */
#define DEADLINE_BANDWIDTH_MAX LAXITY_NS(996147)
/* 1 / 0.95 in units of 2^-8, as the kernel rounds it (bw_ratio). */
#define DEADLINE_RATIO LAXITY_NS(269)
#define DEADLINE_RATIO_SHIFT 8
/* The shortest wait of the kernel's HRTICK. */
#define DEADLINE_LOOK_AGAIN LAXITY_NS(10000)

struct deadline_instance {
    struct global_instance global;
    struct heap throttled;
    int64_t armed_ns;
};

static struct deadline_instance *deadline_of(struct laxity_instance *instance)
{
    return laxity_container(global_of(instance), struct deadline_instance, global);
}

static struct deadline_vcpu *deadline_vcpu_of(struct laxity_vcpu *vcpu)
{
    return laxity_container(global_vcpu_of(vcpu), struct deadline_vcpu, global);
}

static struct deadline_cpu *deadline_cpu_of(struct laxity_cpu *cpu)
{
    return laxity_container(global_cpu_of(cpu), struct deadline_cpu, global);
}

static int64_t global_left_ns(const struct global_vcpu *vcpu)
{
    return laxity_container(vcpu, const struct deadline_vcpu, global)->left_ns;
}

static int64_t global_due_ns(const struct global_vcpu *vcpu)
{
    return laxity_container(vcpu, const struct deadline_vcpu, global)->deadline_ns;
}

/* A product of two durations, which needs 84 bits. */
__extension__ typedef __int128 deadline_product;

static enum laxity_error deadline_check(const struct laxity_parameters *parameters)
{
    if (parameters->period_ns < 1 || parameters->period_ns > LAXITY_DURATION_MAX)
        return LAXITY_ERROR_PERIOD;
    if (parameters->budget_ns < 1 || parameters->budget_ns > parameters->period_ns)
        return LAXITY_ERROR_BUDGET;
    return LAXITY_OK;
}

static enum laxity_error deadline_check_settings(const struct laxity_settings *settings)
{
    if (settings->jiffy_ns < 0 || settings->jiffy_ns > LAXITY_ACCOUNTING_MAX)
        return LAXITY_ERROR_JIFFY;
    return LAXITY_OK;
}

static int64_t deadline_bandwidth(const struct deadline_vcpu *vcpu)
{
    const struct laxity_parameters *parameters = &vcpu->global.vcpu.parameters;
    return (parameters->budget_ns << DEADLINE_BANDWIDTH_SHIFT) / parameters->period_ns;
}

/* The runtime that a reclaiming VCPU pays for a time on the CPU (grub_reclaim of
 * kernel/sched/deadline.c). */
static int64_t deadline_reclaimed_ns(struct laxity_instance *instance,
                                     const struct deadline_vcpu *vcpu, uint32_t number,
                                     int64_t used_ns, int64_t now)
{
    struct list *members = &global_of(instance)->members;
    int64_t own = deadline_bandwidth(vcpu), inactive = 0, extra = DEADLINE_BANDWIDTH_MAX;
    int64_t active = own;

    for (struct list *node = members->next; node != members; node = node->next) {
        struct global_vcpu *global = laxity_container(node, struct global_vcpu, member);
        struct deadline_vcpu *other = laxity_container(global, struct deadline_vcpu, global);
        int64_t bandwidth = deadline_bandwidth(other);
        if (global->vcpu.cpu == number && other->inactive_ns <= now)
            inactive += bandwidth;
        if (global_may_have(instance, global, number))
            extra -= bandwidth / global_cpu_count(instance, global);
    }
    if (inactive + extra <= DEADLINE_BANDWIDTH_MAX - own)
        active = DEADLINE_BANDWIDTH_MAX - inactive - extra;
    active = active * DEADLINE_RATIO >> DEADLINE_RATIO_SHIFT;
    return (int64_t)((deadline_product)used_ns * active >> DEADLINE_BANDWIDTH_SHIFT);
}

/* Tells the embedder when the CPU's current VCPU pays next, if it reclaims. */
static void deadline_arm_tick(struct laxity_instance *instance, struct laxity_cpu *base,
                              int64_t now)
{
    struct deadline_cpu *cpu = deadline_cpu_of(base);
    int64_t jiffy_ns = instance->settings.jiffy_ns, at_ns = LAXITY_NEVER;

    if (base->current && base->current->parameters.reclaim) {
        int64_t left_ns = deadline_vcpu_of(base->current)->left_ns;
        at_ns = now + (left_ns > DEADLINE_LOOK_AGAIN ? left_ns : DEADLINE_LOOK_AGAIN);
        if (jiffy_ns)
            at_ns = (now / jiffy_ns + 1) * jiffy_ns;
    }
    if (at_ns == cpu->armed_ns)
        return;
    cpu->armed_ns = at_ns;
    laxity_arm_timer(instance, base->number, at_ns);
}

/* A VCPU has blocked: its bandwidth is in use until its 0-lag time, from which on it can get a
 * whole runtime by its next wake. */
static void deadline_leave_work(struct deadline_vcpu *vcpu)
{
    const struct laxity_parameters *parameters = &vcpu->global.vcpu.parameters;
    deadline_product worth_ns =
        (deadline_product)vcpu->left_ns * parameters->period_ns / parameters->budget_ns;

    /* More is left or owed only after new parameters. */
    if (worth_ns > LAXITY_DURATION_MAX)
        worth_ns = LAXITY_DURATION_MAX;
    if (worth_ns < -LAXITY_DURATION_MAX)
        worth_ns = -LAXITY_DURATION_MAX;
    vcpu->inactive_ns = vcpu->deadline_ns - (int64_t)worth_ns;
}

/* Tells the embedder when the first throttled VCPU is due. */
static void deadline_arm(struct laxity_instance *instance)
{
    struct deadline_instance *deadline = deadline_of(instance);
    int64_t at_ns = deadline->throttled.first ? deadline->throttled.first->key : LAXITY_NEVER;

    if (at_ns == deadline->armed_ns)
        return;
    deadline->armed_ns = at_ns;
    laxity_arm_account(instance, at_ns);
}

static void deadline_begin_period(struct laxity_instance *instance, struct deadline_vcpu *vcpu,
                                  int64_t now)
{
    const struct laxity_parameters *parameters = &vcpu->global.vcpu.parameters;

    vcpu->deadline_ns = now + parameters->period_ns;
    vcpu->left_ns = parameters->budget_ns;
    model_trace(instance, &vcpu->global.vcpu, LAXITY_EVENT_REPLENISH, vcpu->left_ns);
}

/* A throttled VCPU's period is over. */
static void deadline_replenish(struct laxity_instance *instance, struct deadline_vcpu *vcpu,
                               int64_t now)
{
    const struct laxity_parameters *parameters = &vcpu->global.vcpu.parameters;

    /* The VCPU owes an overrun, even one of several periods. */
    if (vcpu->left_ns <= 0) {
        int64_t periods = -vcpu->left_ns / parameters->budget_ns + 1;
        vcpu->left_ns += periods * parameters->budget_ns;
        vcpu->deadline_ns += periods * parameters->period_ns;
    }
    if (vcpu->deadline_ns < now)
        deadline_begin_period(instance, vcpu, now);
    else
        model_trace(instance, &vcpu->global.vcpu, LAXITY_EVENT_REPLENISH, vcpu->left_ns);
}

/* The VCPU is no longer throttled. */
static void deadline_unthrottle(struct laxity_instance *instance, struct deadline_vcpu *vcpu)
{
    heap_remove(&deadline_of(instance)->throttled, &vcpu->due);
    vcpu->is_throttled = false;
}

/* A VCPU that is ready has used up its runtime. */
static void deadline_throttle(struct laxity_instance *instance, struct deadline_vcpu *vcpu,
                              int64_t now)
{
    struct global_vcpu *global = &vcpu->global;

    model_trace(instance, &global->vcpu, LAXITY_EVENT_EXHAUST, 0);
    if (vcpu->deadline_ns <= now) {
        deadline_replenish(instance, vcpu, now);
        global_change_key(instance, global, vcpu->deadline_ns);
        return;
    }
    global_leave(instance, global);
    vcpu->is_throttled = true;
    vcpu->due.key = vcpu->deadline_ns;
    vcpu->due.order = global_of(instance)->next_order++;
    heap_insert(&deadline_of(instance)->throttled, &vcpu->due);
    deadline_arm(instance);
}

/* The CPU's current VCPU pays for the time up to now. */
static void deadline_charge(struct laxity_instance *instance, struct laxity_cpu *base, int64_t now)
{
    struct deadline_cpu *cpu = deadline_cpu_of(base);
    struct deadline_vcpu *vcpu;
    int64_t used_ns = now - cpu->charged_ns;

    cpu->charged_ns = now;
    if (!base->current)
        return;
    vcpu = deadline_vcpu_of(base->current);
    if (base->current->parameters.reclaim)
        used_ns = deadline_reclaimed_ns(instance, vcpu, base->number, used_ns, now);
    vcpu->left_ns -= used_ns;
    if (vcpu->left_ns <= 0 && global_is_ready(&vcpu->global))
        deadline_throttle(instance, vcpu, now);
    else if (used_ns)
        model_trace(instance, base->current, LAXITY_EVENT_BUDGET, vcpu->left_ns);
}

/* A VCPU with work that is not throttled becomes ready, behind those of the same deadline. */
static void deadline_enter(struct laxity_instance *instance, struct deadline_vcpu *vcpu)
{
    global_set_key(instance, &vcpu->global, vcpu->deadline_ns);
    global_enter(instance, &vcpu->global);
}

static enum laxity_error deadline_init(struct laxity_instance *instance,
                                       const struct laxity_settings *settings)
{
    enum laxity_error error = deadline_check_settings(settings);

    if (error)
        return error;
    global_init(instance, settings);
    deadline_of(instance)->armed_ns = LAXITY_NEVER;
    return LAXITY_OK;
}

static void deadline_add_cpu(struct laxity_instance *instance, struct laxity_cpu *cpu, int64_t now)
{
    deadline_cpu_of(cpu)->charged_ns = now;
    deadline_cpu_of(cpu)->armed_ns = LAXITY_NEVER;
    global_add_cpu(instance, cpu, now);
}

static enum laxity_error deadline_set_domain(struct laxity_instance *instance,
                                             struct laxity_domain *domain,
                                             const struct laxity_parameters *parameters,
                                             int64_t now)
{
    enum laxity_error error = deadline_check(parameters);

    (void)instance, (void)now;
    if (!error)
        domain->parameters = *parameters;
    return error;
}

static enum laxity_error deadline_add_domain(struct laxity_instance *instance,
                                             struct laxity_domain *domain,
                                             const struct laxity_parameters *parameters)
{
    return deadline_set_domain(instance, domain, parameters, 0);
}

static enum laxity_error deadline_add_vcpu(struct laxity_instance *instance,
                                           struct laxity_vcpu *base,
                                           const struct laxity_parameters *parameters, int64_t now)
{
    struct deadline_vcpu *vcpu = deadline_vcpu_of(base);
    enum laxity_error error = deadline_check(parameters);

    if (error)
        return error;
    base->parameters = *parameters;
    vcpu->deadline_ns = now - 1; /* over, so that the first wake begins a period */
    list_append(&global_of(instance)->members, &vcpu->global.member);
    return LAXITY_OK;
}

static void deadline_remove_vcpu(struct laxity_instance *instance, struct laxity_vcpu *base,
                                 int64_t now)
{
    struct deadline_vcpu *vcpu = deadline_vcpu_of(base);

    (void)now;
    if (global_is_ready(&vcpu->global))
        global_leave(instance, &vcpu->global);
    if (vcpu->is_throttled)
        deadline_unthrottle(instance, vcpu);
    deadline_arm(instance);
    list_remove(&vcpu->global.member);
}

static void deadline_wake(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    struct deadline_vcpu *vcpu = deadline_vcpu_of(base);
    const struct laxity_parameters *parameters = &base->parameters;
    int64_t rest_ns = vcpu->deadline_ns - now;

    vcpu->inactive_ns = LAXITY_NEVER;
    /* A VCPU that was put to sleep and has not been descheduled since never slept. */
    if (vcpu->is_throttled || global_is_ready(&vcpu->global))
        return;
    if (rest_ns < 0 || (deadline_product)vcpu->left_ns * parameters->period_ns >
                           (deadline_product)rest_ns * parameters->budget_ns)
        deadline_begin_period(instance, vcpu, now);
    deadline_enter(instance, vcpu);
}

static void deadline_sleep(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    struct deadline_vcpu *vcpu = deadline_vcpu_of(base);

    (void)now;
    if (global_is_current(instance, &vcpu->global)) {
        model_kick(instance, base->cpu);
        return;
    }
    deadline_leave_work(vcpu);
    if (global_is_ready(&vcpu->global))
        global_leave(instance, &vcpu->global);
}

/* A thread that yields has no more to do in this period. */
static void deadline_yield(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    struct deadline_vcpu *vcpu = deadline_vcpu_of(base);

    if (global_is_current(instance, &vcpu->global))
        deadline_charge(instance, instance->cpu[base->cpu], now);
    if (!global_is_ready(&vcpu->global))
        return;
    if (vcpu->left_ns > 0)
        vcpu->left_ns = 0;
    deadline_throttle(instance, vcpu, now);
}

static struct laxity_decision deadline_schedule(struct laxity_instance *instance,
                                                struct laxity_cpu *base, int64_t now)
{
    int64_t jiffy_ns = instance->settings.jiffy_ns;
    struct laxity_decision decision;

    global_cpu_of(base)->is_deciding = true;
    deadline_charge(instance, base, now);
    if (base->current && !base->current->runnable)
        deadline_leave_work(deadline_vcpu_of(base->current));
    decision = global_decide(instance, global_cpu_of(base), now);
    deadline_arm_tick(instance, base, now);
    if (!decision.vcpu || decision.vcpu->parameters.reclaim)
        return decision;
    decision.until_ns = now + deadline_vcpu_of(decision.vcpu)->left_ns;
    if (jiffy_ns)
        decision.until_ns = (decision.until_ns + jiffy_ns - 1) / jiffy_ns * jiffy_ns;
    return decision;
}

/* The current VCPU, which reclaims, pays. */
static void deadline_timer(struct laxity_instance *instance, struct laxity_cpu *cpu, int64_t now)
{
    deadline_cpu_of(cpu)->armed_ns = LAXITY_NEVER;
    deadline_charge(instance, cpu, now);
    deadline_arm_tick(instance, cpu, now);
}

/* Periods of throttled VCPUs are over. */
static void deadline_account(struct laxity_instance *instance, int64_t now)
{
    struct heap *throttled = &deadline_of(instance)->throttled;

    deadline_of(instance)->armed_ns = LAXITY_NEVER;
    while (throttled->first && throttled->first->key <= now) {
        struct deadline_vcpu *vcpu = laxity_container(throttled->first, struct deadline_vcpu, due);
        deadline_unthrottle(instance, vcpu);
        deadline_replenish(instance, vcpu, now);
        if (vcpu->global.vcpu.runnable)
            deadline_enter(instance, vcpu);
    }
    deadline_arm(instance);
}

static enum laxity_error deadline_set_settings(struct laxity_instance *instance,
                                               const struct laxity_settings *settings, int64_t now)
{
    enum laxity_error error = deadline_check_settings(settings);

    (void)now;
    if (error)
        return error;
    instance->settings = *settings;
    for (uint32_t number = 0; number < instance->cpus; number++)
        if (instance->cpu[number])
            model_kick(instance, number);
    return LAXITY_OK;
}

/* What is left of the runtime, and the deadline, stay for this period. */
static enum laxity_error deadline_set_vcpu(struct laxity_instance *instance,
                                           struct laxity_vcpu *base,
                                           const struct laxity_parameters *parameters, int64_t now)
{
    struct deadline_vcpu *vcpu = deadline_vcpu_of(base);
    enum laxity_error error = deadline_check(parameters);

    (void)now;
    if (error)
        return error;
    base->parameters = *parameters;
    global_change_key(instance, &vcpu->global, vcpu->deadline_ns);
    return LAXITY_OK;
}

const struct laxity_policy laxity_deadline = {
    .instance_bytes = sizeof(struct deadline_instance),
    .cpu_bytes = sizeof(struct deadline_cpu),
    .domain_bytes = sizeof(struct laxity_domain),
    .vcpu_bytes = sizeof(struct deadline_vcpu),
    .init = deadline_init,
    .add_cpu = deadline_add_cpu,
    .remove_cpu = global_remove_cpu,
    .add_domain = deadline_add_domain,
    .remove_domain = model_remove_domain,
    .add_vcpu = deadline_add_vcpu,
    .remove_vcpu = deadline_remove_vcpu,
    .move_vcpu = global_move_vcpu,
    .wake = deadline_wake,
    .sleep = deadline_sleep,
    .yield = deadline_yield,
    .schedule = deadline_schedule,
    .timer = deadline_timer,
    .account = deadline_account,
    .set_settings = deadline_set_settings,
    .set_domain = deadline_set_domain,
    .set_vcpu = deadline_set_vcpu,
    .become = model_become,
    .dump = global_dump,
};
