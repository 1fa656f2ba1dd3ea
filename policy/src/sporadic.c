/* SPDX-License-Identifier: MIT */
/*
 * Sporadic server: a fixed-priority server whose used budget is replenished one period after its
 * use began (RT-Xen, EMSOFT 2011, section 4.2, after Stanovich and others, RTAS 2010;
 * docs/explanation/policies.md has the rules).
 *
 * Every run on budget, from the decision that chose the VCPU to the one that chose another, or to
 * the end of its budget, registers one replenishment of just what it used, for one period after the
 * run began. At all times
 *
 *     budget left + used in the run that goes on + all pending replenishments = budget,
 *
 * so the budget is never amplified. Nothing comes back earlier than a period after its use, so in
 * no window of one period is more used than one budget: nothing is replenished prematurely.
 *
 * Merging. Two replenishments that follow one another become one of both amounts, which comes when
 * the later of them would, less the amount of the earlier. What was used last is in time: what was
 * used first comes with it, is used before it, and takes that long. What was used first is late by
 * the time between the two runs in which the VCPU did not run, and by no more; and nothing is used
 * within a period of its last use. Replenishments are merged in two cases:
 *
 *   - One that is too small to be worth the decisions that it causes is merged with the next, if
 *     that is registered before it is due (sporadic_worth_ns): without that, the trifles for which
 *     a guest wakes, its ticks, would split its budget, and each piece that comes back splits the
 *     runs of the VCPUs that it preempts. At any time less than that amount is late for this.
 *   - A VCPU has at most SERVER_REPLENISHMENTS_MAX pending, in a ring in order of time. If there is
 *     one more, those two neighbours are merged of which the first is late the least. The runs of
 *     all but the first of them lie within the last period. They make 16 pairs that do not overlap,
 *     so in one of these a sixteenth of a period went by at most without the VCPU running: nothing
 *     is late by more, nor is more than that late at a time.
 *
 * docs/explanation/policies.md has the proofs, and what follows: a VCPU whose budget is the whole
 * period never waits for it; nor does one, alone on its CPU, that leaves a sixteenth of a period
 * unused.
 *
 * Queues, use of budget, and locking: server.h. RepQ holds a VCPU by its earliest replenishment.
 */
#include <laxity/policy.h>

#include "server.h"

/* Several ticks of a guest's kernel, and few enough of a small budget. */
#define SPORADIC_WORTH_NS (100 * 1000)
#define SPORADIC_WORTH_PARTS 16

static int64_t server_key(const struct server_vcpu *vcpu)
{
    return vcpu->vcpu.parameters.priority;
}

static void server_blocked(struct laxity_instance *instance, struct server_cpu *cpu,
                           struct server_vcpu *vcpu)
{
    (void)instance;
    if (!server_has_lead(vcpu))
        server_dequeue(cpu, vcpu); /* its server has nothing more to serve */
}

static bool server_rests(const struct laxity_instance *instance, const struct server_vcpu *vcpu)
{
    (void)instance;
    return !server_has_lead(vcpu);
}

/* The pending replenishment at a place in the order of time. */
static struct server_replenishment *sporadic_pending(struct server_vcpu *vcpu, uint32_t place)
{
    return &vcpu->pending[(vcpu->pending_first + place) % SERVER_REPLENISHMENTS_MAX];
}

static void sporadic_update_due(struct server_cpu *cpu, struct server_vcpu *vcpu)
{
    server_set_due(cpu, vcpu,
                   vcpu->pending_count ? sporadic_pending(vcpu, 0)->at_ns : LAXITY_NEVER);
}

static int64_t sporadic_least(int64_t a_ns, int64_t b_ns)
{
    return a_ns < b_ns ? a_ns : b_ns;
}

/* The least amount that is replenished by itself. At any time less than this is late, and nothing
 * is if the budget is the whole period, which leaves no time for it. */
static int64_t sporadic_worth_ns(const struct server_vcpu *vcpu)
{
    const struct laxity_parameters *parameters = &vcpu->vcpu.parameters;
    int64_t part_ns =
        sporadic_least(SPORADIC_WORTH_NS, parameters->budget_ns / SPORADIC_WORTH_PARTS);
    return sporadic_least(part_ns, parameters->period_ns - parameters->budget_ns);
}

static void server_unblocked(struct laxity_instance *instance, struct server_cpu *cpu,
                             struct server_vcpu *vcpu, int64_t now)
{
    server_catch_up(instance, cpu, vcpu, now);
}

/* Merges a replenishment with the one that follows it. */
static struct server_replenishment sporadic_merged(struct server_replenishment first,
                                                   struct server_replenishment next)
{
    int64_t at_ns = next.at_ns - first.amount_ns;
    return (struct server_replenishment){
        /* After a period was shortened the next one may have been made to wait for the first. */
        .at_ns = at_ns > first.at_ns ? at_ns : first.at_ns,
        .amount_ns = first.amount_ns + next.amount_ns,
        .first_ns = first.first_ns,
    };
}

/* The delay of the first part of a replenishment if it is merged with one that follows at a time.
 */
static int64_t sporadic_late_ns(const struct server_replenishment *first, int64_t next_at_ns)
{
    return next_at_ns - first->amount_ns - first->first_ns;
}

/* The place behind one in the ring. */
static uint32_t sporadic_behind(uint32_t place)
{
    return (place + 1) % SERVER_REPLENISHMENTS_MAX;
}

/* The ring is full: merges the two neighbours that make the first of them late the least, the
 * replenishment that is to be added among them. Returns false if that is merged. */
static bool sporadic_make_room(struct server_vcpu *vcpu, struct server_replenishment added)
{
    uint32_t place = vcpu->pending_first % SERVER_REPLENISHMENTS_MAX, best = place;
    uint32_t last = (place + SERVER_REPLENISHMENTS_MAX - 1) % SERVER_REPLENISHMENTS_MAX;
    struct server_replenishment *pending = vcpu->pending;
    int64_t best_ns = LAXITY_NEVER;

    for (; place != last; place = sporadic_behind(place)) {
        int64_t late_ns = sporadic_late_ns(&pending[place], pending[sporadic_behind(place)].at_ns);
        /* Without a branch, which would be mispredicted. */
        bool is_less = late_ns < best_ns;
        best = is_less ? place : best;
        best_ns = is_less ? late_ns : best_ns;
    }
    if (sporadic_late_ns(&pending[last], added.at_ns) < best_ns) {
        pending[last] = sporadic_merged(pending[last], added);
        return false;
    }
    place = sporadic_behind(best);
    pending[best] = sporadic_merged(pending[best], pending[place]);
    for (; place != last; place = sporadic_behind(place))
        pending[place] = pending[sporadic_behind(place)];
    vcpu->pending_count--;
    return true;
}

static void server_stopped(struct laxity_instance *instance, struct server_cpu *cpu,
                           struct server_vcpu *vcpu)
{
    struct server_replenishment used = {
        .at_ns = vcpu->run_start_ns + vcpu->vcpu.parameters.period_ns,
        .amount_ns = vcpu->run_used_ns,
    };
    struct server_replenishment *latest =
        vcpu->pending_count ? sporadic_pending(vcpu, vcpu->pending_count - 1) : NULL;

    (void)instance;
    vcpu->run_used_ns = 0;
    /* A period that was shortened meanwhile must not overtake. */
    if (latest && used.at_ns < latest->at_ns)
        used.at_ns = latest->at_ns;
    used.first_ns = used.at_ns;
    if (latest && latest->amount_ns < sporadic_worth_ns(vcpu))
        *latest = sporadic_merged(*latest, used);
    else if (vcpu->pending_count < SERVER_REPLENISHMENTS_MAX || sporadic_make_room(vcpu, used))
        *sporadic_pending(vcpu, vcpu->pending_count++) = used;
    sporadic_update_due(cpu, vcpu);
}

static void server_replenish(struct laxity_instance *instance, struct server_cpu *cpu,
                             struct server_vcpu *vcpu, int64_t now)
{
    while (vcpu->pending_count && sporadic_pending(vcpu, 0)->at_ns <= now) {
        vcpu->left_ns += sporadic_pending(vcpu, 0)->amount_ns;
        vcpu->pending_first = (vcpu->pending_first + 1) % SERVER_REPLENISHMENTS_MAX;
        vcpu->pending_count--;
    }
    sporadic_update_due(cpu, vcpu);
    server_trace(instance, vcpu, LAXITY_EVENT_REPLENISH, vcpu->left_ns);
}

static enum laxity_error sporadic_add_vcpu(struct laxity_instance *instance,
                                           struct laxity_vcpu *base,
                                           const struct laxity_parameters *parameters, int64_t now)
{
    struct server_vcpu *vcpu = server_vcpu_of(base);
    struct server_cpu *cpu = server_cpu_under(instance, base);
    enum laxity_error error = server_check(parameters);

    (void)now;
    if (error)
        return error;
    base->parameters = *parameters;
    server_tell_nothing(vcpu);
    server_join(cpu, vcpu);
    vcpu->left_ns = parameters->budget_ns;
    server_trace(instance, vcpu, LAXITY_EVENT_REPLENISH, vcpu->left_ns);
    return LAXITY_OK;
}

/* Takes from the remaining budget, then from pending replenishments, the latest first, then from
 * the replenishment of this run. Takes nothing twice: the sum of the three is the budget. */
static void sporadic_cut(struct server_vcpu *vcpu, int64_t cut_ns)
{
    int64_t from_ns;

    if (vcpu->left_ns > 0) {
        from_ns = sporadic_least(vcpu->left_ns, cut_ns);
        vcpu->left_ns -= from_ns;
        cut_ns -= from_ns;
    }
    while (cut_ns && vcpu->pending_count) {
        struct server_replenishment *latest = sporadic_pending(vcpu, vcpu->pending_count - 1);
        from_ns = sporadic_least(latest->amount_ns, cut_ns);
        latest->amount_ns -= from_ns;
        cut_ns -= from_ns;
        if (!latest->amount_ns)
            vcpu->pending_count--;
    }
    vcpu->run_used_ns -= sporadic_least(vcpu->run_used_ns, cut_ns);
}

static enum laxity_error sporadic_set_vcpu(struct laxity_instance *instance,
                                           struct laxity_vcpu *base,
                                           const struct laxity_parameters *parameters, int64_t now)
{
    struct server_vcpu *vcpu = server_vcpu_of(base);
    struct server_cpu *cpu = server_cpu_under(instance, base);
    struct laxity_parameters before = base->parameters;
    enum laxity_error error = server_check(parameters);

    if (error)
        return error;
    server_use(instance, cpu, now);
    base->parameters = *parameters;
    if (parameters->budget_ns < before.budget_ns)
        sporadic_cut(vcpu, before.budget_ns - parameters->budget_ns);
    else
        vcpu->left_ns += parameters->budget_ns - before.budget_ns;
    sporadic_update_due(cpu, vcpu);
    server_trace(instance, vcpu, LAXITY_EVENT_BUDGET, vcpu->left_ns);

    if (server_is_queued(vcpu) && vcpu->left_ns <= 0) {
        server_exhaust(instance, cpu, vcpu, now);
    } else if (!server_is_queued(vcpu) && vcpu->left_ns > 0 && server_is_active(cpu, vcpu)) {
        server_leave_extra(vcpu);
        server_enqueue_eligible(cpu, vcpu);
    } else if (parameters->priority != before.priority) {
        server_requeue(cpu, vcpu);
    }
    server_set_urgent(instance, cpu, vcpu);
    server_set_extratime(instance, cpu, vcpu);
    server_review(instance, cpu, now);
    return LAXITY_OK;
}

const struct laxity_policy laxity_sporadic = {
    SERVER_OPERATIONS,
    .add_vcpu = sporadic_add_vcpu,
    .set_vcpu = sporadic_set_vcpu,
    .become = server_become,
};
