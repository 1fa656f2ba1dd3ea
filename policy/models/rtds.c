/* SPDX-License-Identifier: MIT */
/*
 * A model of Xen's rtds: global earliest deadline first. Every VCPU has a budget in each period,
 * and keeps it while it is blocked. One whose budget ends goes one level down with another budget
 * if it has extratime, and else waits for its next period. Lower levels come first, whatever their
 * deadlines.
 *
 * Two queues hold all CPUs' VCPUs: RunQ those that wait with budget, the depleted ones those that
 * wait for it. A third holds the replenishments to come of all VCPUs that are not blocked.
 * docs/explanation/policies.md has the rules.
 */
#include "model.h"

struct rtds_vcpu {
    struct laxity_vcpu vcpu;
    struct list queue;         /* RunQ or the depleted ones */
    struct list replenishment; /* held while the VCPU is not blocked */
    int64_t left_ns;
    int64_t used_until_ns; /* while it runs: up to when `left_ns` was counted */
    int64_t deadline_ns;
    uint32_t level;
    bool is_depleted; /* since it last waited for a replenishment */
    bool was_skipped; /* by a CPU that decided while the state of this VCPU was being saved */
};

struct rtds_cpu {
    struct laxity_cpu cpu;
    bool is_called; /* and has not decided since */
};

struct rtds_instance {
    struct laxity_instance instance;
    struct list run_queue, depleted, replenishments;
};

static struct rtds_instance *rtds_of(struct laxity_instance *instance)
{
    return laxity_container(instance, struct rtds_instance, instance);
}

static struct rtds_vcpu *rtds_vcpu_of(struct laxity_vcpu *vcpu)
{
    return laxity_container(vcpu, struct rtds_vcpu, vcpu);
}

static struct rtds_cpu *rtds_cpu_of(struct laxity_cpu *cpu)
{
    return laxity_container(cpu, struct rtds_cpu, cpu);
}

static bool rtds_before(const struct rtds_vcpu *a, const struct rtds_vcpu *b)
{
    return a->level < b->level || (a->level == b->level && a->deadline_ns < b->deadline_ns);
}

static bool rtds_is_current(struct laxity_instance *instance, const struct rtds_vcpu *vcpu)
{
    return instance->cpu[vcpu->vcpu.cpu]->current == &vcpu->vcpu;
}

/* Puts a node before another one of a list. */
static void rtds_insert(struct list *before, struct list *node)
{
    list_append(before, node);
}

/* ---- Replenishments ---- */

static void rtds_arm(struct laxity_instance *instance, int64_t now)
{
    struct list *queue = &rtds_of(instance)->replenishments;
    int64_t at_ns = LAXITY_NEVER;

    if (!list_is_empty(queue)) {
        at_ns = laxity_container(queue->next, struct rtds_vcpu, replenishment)->deadline_ns;
        at_ns = at_ns > now ? at_ns : now;
    }
    laxity_arm_account(instance, at_ns);
}

/* Inserts it behind its equals, by level and deadline as they are now. */
static void rtds_expect(struct laxity_instance *instance, struct rtds_vcpu *vcpu, int64_t now)
{
    struct list *queue = &rtds_of(instance)->replenishments, *node = queue->next;

    while (node != queue &&
           !rtds_before(vcpu, laxity_container(node, struct rtds_vcpu, replenishment)))
        node = node->next;
    rtds_insert(node, &vcpu->replenishment);
    if (queue->next == &vcpu->replenishment)
        rtds_arm(instance, now);
}

static void rtds_expect_no_more(struct laxity_instance *instance, struct rtds_vcpu *vcpu,
                                int64_t now)
{
    struct list *queue = &rtds_of(instance)->replenishments;
    bool was_first = queue->next == &vcpu->replenishment;

    list_remove(&vcpu->replenishment);
    if (was_first)
        rtds_arm(instance, now);
}

static void rtds_begin_period(struct laxity_instance *instance, struct rtds_vcpu *vcpu, int64_t now)
{
    int64_t period_ns = vcpu->vcpu.parameters.period_ns;

    vcpu->deadline_ns += ((now - vcpu->deadline_ns) / period_ns + 1) * period_ns;
    vcpu->left_ns = vcpu->vcpu.parameters.budget_ns;
    vcpu->used_until_ns = now;
    vcpu->level = 0;
    model_trace(instance, &vcpu->vcpu, LAXITY_EVENT_REPLENISH, vcpu->left_ns);
}

/* ---- Queues ---- */

static void rtds_enqueue(struct laxity_instance *instance, struct rtds_vcpu *vcpu)
{
    struct list *queue = &rtds_of(instance)->run_queue, *node = queue->next;

    if (vcpu->left_ns <= 0) {
        list_append(&rtds_of(instance)->depleted, &vcpu->queue);
        return;
    }
    while (node != queue && !rtds_before(vcpu, laxity_container(node, struct rtds_vcpu, queue)))
        node = node->next;
    rtds_insert(node, &vcpu->queue);
}

static bool rtds_may_be_called(struct laxity_instance *instance, const struct rtds_vcpu *vcpu,
                               uint32_t number)
{
    struct laxity_cpu *cpu = instance->cpu[number];
    return cpu && !rtds_cpu_of(cpu)->is_called && model_may_run_on(instance, &vcpu->vcpu, number);
}

/* Asks a CPU for a decision for the VCPU: the first idle one from the VCPU's own on, cyclically;
 * else the one that runs the last VCPU in order, if that comes after this VCPU. A CPU that was
 * called already is not called again. */
static void rtds_call(struct laxity_instance *instance, const struct rtds_vcpu *vcpu)
{
    const struct rtds_vcpu *last = NULL;
    uint32_t number = vcpu->vcpu.cpu;
    struct laxity_cpu *called = NULL;

    for (uint32_t step = 0; step < instance->cpus; step++) {
        struct laxity_cpu *cpu = instance->cpu[number];
        if (rtds_may_be_called(instance, vcpu, number)) {
            const struct rtds_vcpu *running;
            if (!cpu->current) {
                called = cpu;
                break;
            }
            running = rtds_vcpu_of(cpu->current);
            if (!last || rtds_before(last, running))
                last = running;
        }
        number = number + 1 == instance->cpus ? 0 : number + 1;
    }
    if (!called && last && rtds_before(vcpu, last))
        called = instance->cpu[last->vcpu.cpu];
    if (called) {
        rtds_cpu_of(called)->is_called = true;
        model_kick(instance, called->number);
    }
}

/* The running VCPU's use is taken from its budget; without any left it goes a level down, or has to
 * wait. */
static void rtds_use(struct laxity_instance *instance, struct rtds_vcpu *vcpu, int64_t now)
{
    vcpu->left_ns -= now - vcpu->used_until_ns;
    vcpu->used_until_ns = now;
    if (vcpu->left_ns > 0) {
        model_trace(instance, &vcpu->vcpu, LAXITY_EVENT_BUDGET, vcpu->left_ns);
    } else if (vcpu->vcpu.parameters.extratime) {
        vcpu->level++;
        vcpu->left_ns = vcpu->vcpu.parameters.budget_ns;
        model_trace(instance, &vcpu->vcpu, LAXITY_EVENT_BUDGET, vcpu->left_ns);
    } else {
        vcpu->left_ns = 0;
        vcpu->is_depleted = true;
        model_trace(instance, &vcpu->vcpu, LAXITY_EVENT_EXHAUST, 0);
    }
}

/* ---- Operations ---- */

static enum laxity_error rtds_init(struct laxity_instance *instance,
                                   const struct laxity_settings *settings)
{
    struct rtds_instance *rtds = rtds_of(instance);

    instance->settings = *settings;
    list_init(&rtds->run_queue);
    list_init(&rtds->depleted);
    list_init(&rtds->replenishments);
    return LAXITY_OK;
}

static enum laxity_error rtds_check(const struct laxity_parameters *parameters)
{
    if (parameters->period_ns < 1 || parameters->period_ns > LAXITY_DURATION_MAX)
        return LAXITY_ERROR_PERIOD;
    if (parameters->budget_ns < 1 || parameters->budget_ns > parameters->period_ns)
        return LAXITY_ERROR_BUDGET;
    if (parameters->phase_ns < 0 || parameters->phase_ns > parameters->period_ns)
        return LAXITY_ERROR_PHASE;
    return LAXITY_OK;
}

static enum laxity_error rtds_add_vcpu(struct laxity_instance *instance, struct laxity_vcpu *base,
                                       const struct laxity_parameters *parameters, int64_t now)
{
    enum laxity_error error = rtds_check(parameters);

    if (error)
        return error;
    base->parameters = *parameters;
    rtds_vcpu_of(base)->deadline_ns = parameters->phase_ns - parameters->period_ns;
    rtds_begin_period(instance, rtds_vcpu_of(base), now);
    return LAXITY_OK;
}

static void rtds_remove_vcpu(struct laxity_instance *instance, struct laxity_vcpu *vcpu,
                             int64_t now)
{
    (void)instance, (void)vcpu, (void)now;
}

static void rtds_move_vcpu(struct laxity_instance *instance, struct laxity_vcpu *vcpu, uint32_t cpu,
                           int64_t now)
{
    (void)now;
    model_migrate(instance, vcpu, cpu);
}

static void rtds_remove_cpu(struct laxity_instance *instance, struct laxity_cpu *cpu, int64_t now)
{
    (void)now;
    laxity_arm_timer(instance, cpu->number, LAXITY_NEVER);
}

static void rtds_wake(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    struct rtds_vcpu *vcpu = rtds_vcpu_of(base);

    if (rtds_is_current(instance, vcpu))
        return;
    if (now >= vcpu->deadline_ns)
        rtds_begin_period(instance, vcpu, now);
    rtds_expect(instance, vcpu, now);
    rtds_enqueue(instance, vcpu);
    rtds_call(instance, vcpu);
}

static void rtds_sleep(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    struct rtds_vcpu *vcpu = rtds_vcpu_of(base);

    if (rtds_is_current(instance, vcpu)) {
        model_kick(instance, base->cpu);
        return;
    }
    list_remove(&vcpu->queue);
    rtds_expect_no_more(instance, vcpu, now);
}

static void rtds_yield(struct laxity_instance *instance, struct laxity_vcpu *vcpu, int64_t now)
{
    (void)now;
    if (rtds_is_current(instance, rtds_vcpu_of(vcpu)))
        model_kick(instance, vcpu->cpu);
}

/* The first VCPU that the CPU may take. One whose state is being saved calls again when it is
 * saved. */
static struct rtds_vcpu *rtds_first(struct laxity_instance *instance, uint32_t cpu)
{
    struct list *queue = &rtds_of(instance)->run_queue;

    for (struct list *node = queue->next; node != queue; node = node->next) {
        struct rtds_vcpu *vcpu = laxity_container(node, struct rtds_vcpu, queue);
        if (!model_may_run_on(instance, &vcpu->vcpu, cpu))
            continue;
        if (!vcpu->vcpu.on_cpu)
            return vcpu;
        vcpu->was_skipped = true;
        laxity_arm_timer(instance, vcpu->vcpu.cpu, instance->cpu[vcpu->vcpu.cpu]->switched_ns);
    }
    return NULL;
}

static struct laxity_decision rtds_schedule(struct laxity_instance *instance,
                                            struct laxity_cpu *cpu, int64_t now)
{
    struct rtds_vcpu *before = cpu->current ? rtds_vcpu_of(cpu->current) : NULL, *next;

    rtds_cpu_of(cpu)->is_called = false;
    if (before)
        rtds_use(instance, before, now);
    next = rtds_first(instance, cpu->number);
    /* Among equals the other one comes first. */
    if (before && before->vcpu.runnable && before->left_ns > 0 &&
        (!next || rtds_before(before, next)))
        next = before;
    if (next && next != before) {
        list_remove(&next->queue);
        next->was_skipped = false;
        model_migrate(instance, &next->vcpu, cpu->number);
    }
    cpu->current = next ? &next->vcpu : NULL;
    if (next)
        next->used_until_ns = now;
    if (before && before != next) {
        if (before->vcpu.runnable) {
            rtds_enqueue(instance, before);
            rtds_call(instance, before);
        } else {
            rtds_expect_no_more(instance, before, now);
        }
    }
    return (struct laxity_decision){cpu->current, next ? now + next->left_ns : LAXITY_NEVER};
}

/* The CPU has saved the state of its last VCPU, which calls a CPU if it was skipped. */
static void rtds_timer(struct laxity_instance *instance, struct laxity_cpu *cpu, int64_t now)
{
    struct list *queue = &rtds_of(instance)->run_queue, *node = queue->next;

    (void)now;
    while (node != queue) {
        struct rtds_vcpu *vcpu = laxity_container(node, struct rtds_vcpu, queue);
        node = node->next;
        if (vcpu->was_skipped && vcpu->vcpu.cpu == cpu->number) {
            vcpu->was_skipped = false;
            rtds_call(instance, vcpu);
        }
    }
}

/* Replenishments, from the head of their queue up to the first that is not due. */
static void rtds_account(struct laxity_instance *instance, int64_t now)
{
    struct rtds_instance *rtds = rtds_of(instance);
    struct list done;

    list_init(&done);
    while (!list_is_empty(&rtds->replenishments)) {
        struct rtds_vcpu *vcpu =
            laxity_container(rtds->replenishments.next, struct rtds_vcpu, replenishment);
        if (now < vcpu->deadline_ns)
            break;
        list_remove(&vcpu->replenishment);
        rtds_begin_period(instance, vcpu, now);
        rtds_insert(done.next, &vcpu->replenishment);
        if (list_holds(&vcpu->queue)) {
            list_remove(&vcpu->queue);
            rtds_enqueue(instance, vcpu);
        }
    }
    while (!list_is_empty(&done)) {
        struct rtds_vcpu *vcpu = laxity_container(done.next, struct rtds_vcpu, replenishment);
        if (rtds_is_current(instance, vcpu)) {
            struct list *queue = &rtds->run_queue;
            struct rtds_vcpu *first = laxity_container(queue->next, struct rtds_vcpu, queue);
            if (!list_is_empty(queue) && rtds_before(first, vcpu))
                rtds_call(instance, first);
        } else if (vcpu->is_depleted) {
            vcpu->is_depleted = false;
            rtds_call(instance, vcpu);
        }
        list_remove(&vcpu->replenishment);
        rtds_expect(instance, vcpu, now);
    }
    rtds_arm(instance, now);
}

/* The period goes on; the new budget and period are those of the next one. */
static enum laxity_error rtds_set_vcpu(struct laxity_instance *instance, struct laxity_vcpu *base,
                                       const struct laxity_parameters *parameters, int64_t now)
{
    struct rtds_vcpu *vcpu = rtds_vcpu_of(base);
    enum laxity_error error = rtds_check(parameters);

    if (error)
        return error;
    base->parameters = *parameters;
    if (parameters->extratime && vcpu->left_ns <= 0) {
        vcpu->level++;
        vcpu->left_ns = parameters->budget_ns;
        vcpu->used_until_ns = now;
        if (list_holds(&vcpu->queue)) {
            list_remove(&vcpu->queue);
            rtds_enqueue(instance, vcpu);
            rtds_call(instance, vcpu);
        }
    }
    return LAXITY_OK;
}

static void rtds_dump_queue(struct list *queue, uint32_t cpu, const char *state,
                            struct laxity_dump *dump)
{
    for (struct list *node = queue->next; node != queue; node = node->next) {
        struct rtds_vcpu *vcpu = laxity_container(node, struct rtds_vcpu, queue);
        if (vcpu->vcpu.cpu == cpu)
            dump->line(dump, &vcpu->vcpu, state, vcpu->left_ns, vcpu->deadline_ns);
    }
}

static void rtds_dump(struct laxity_instance *instance, struct laxity_cpu *cpu,
                      struct laxity_dump *dump)
{
    if (cpu->current) {
        const struct rtds_vcpu *vcpu = rtds_vcpu_of(cpu->current);
        dump->line(dump, cpu->current, "runs", vcpu->left_ns, vcpu->deadline_ns);
    }
    rtds_dump_queue(&rtds_of(instance)->run_queue, cpu->number, "RunQ", dump);
    rtds_dump_queue(&rtds_of(instance)->depleted, cpu->number, "depleted", dump);
}

const struct laxity_policy laxity_rtds = {
    .instance_bytes = sizeof(struct rtds_instance),
    .cpu_bytes = sizeof(struct rtds_cpu),
    .domain_bytes = sizeof(struct laxity_domain),
    .vcpu_bytes = sizeof(struct rtds_vcpu),
    .steals = true,
    .init = rtds_init,
    .add_cpu = model_add_cpu,
    .remove_cpu = rtds_remove_cpu,
    .add_domain = model_add_domain,
    .remove_domain = model_remove_domain,
    .add_vcpu = rtds_add_vcpu,
    .remove_vcpu = rtds_remove_vcpu,
    .move_vcpu = rtds_move_vcpu,
    .wake = rtds_wake,
    .sleep = rtds_sleep,
    .yield = rtds_yield,
    .schedule = rtds_schedule,
    .timer = rtds_timer,
    .account = rtds_account,
    .set_settings = model_set_settings,
    .set_domain = model_set_domain,
    .set_vcpu = rtds_set_vcpu,
    .become = model_become,
    .dump = rtds_dump,
};
