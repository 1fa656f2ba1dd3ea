/* SPDX-License-Identifier: MIT */
/*
 * SEDF, simple earliest deadline first, the scheduler that Xen shipped until 4.5: every VCPU has a
 * slice of CPU a period. The slice is set to full when a period begins, and used by running. Among
 * the VCPUs with some of their slice left, the one whose period ends first runs.
 *
 * A VCPU that wakes goes on with its slice only if it cannot be used up faster than slices may be:
 * if what is left of it is to the rest of the period less than the whole slice to the whole period.
 * If it is more, or the period is over, a new period begins at the wake, with a full slice.
 * Therefore no VCPU demands more than its slice a period within any time that begins with a wake or
 * a period and ends with a period, and where all slices fit (slice / period add up to 1 at most)
 * all get theirs before their period ends, whatever the others do (constant bandwidth server, Abeni
 * and Buttazzo, RTSS 1998). Xen did the same for those that woke in a later period ("conservative
 * 2b" in its source), and gave the others no more of their slice. To use on what was kept over a
 * block, as RT-Xen (EMSOFT 2011, section 3.1) describes SEDF, makes others miss: two slices can
 * then come back to back.
 *
 * The order in RunQ and in RepQ is therefore the same time, the end of the current period.
 * docs/explanation/policies.md has the rules; queues, use of budget, and locking: server.h. The
 * slice is `budget_ns` there.
 */
#include "server.h"

static int64_t server_key(const struct server_vcpu *vcpu)
{
    return vcpu->due.at_ns;
}

static void server_blocked(struct laxity_instance *instance, struct server_cpu *cpu,
                           struct server_vcpu *vcpu)
{
    (void)instance;
    server_dequeue(cpu, vcpu);
}

static bool server_rests(const struct laxity_instance *instance, const struct server_vcpu *vcpu)
{
    (void)instance;
    (void)vcpu;
    return true;
}

static void server_stopped(struct laxity_instance *instance, struct server_cpu *cpu,
                           struct server_vcpu *vcpu)
{
    (void)instance;
    (void)cpu;
    (void)vcpu;
}

/* The period ends at another time: the VCPU moves in RunQ, but does not go behind its equals. */
static void sedf_set_deadline(struct server_cpu *cpu, struct server_vcpu *vcpu, int64_t deadline_ns)
{
    server_set_due(cpu, vcpu, deadline_ns);
    server_move(cpu, vcpu, deadline_ns);
}

/* A full slice, until the deadline. */
static void sedf_begin_period(struct laxity_instance *instance, struct server_cpu *cpu,
                              struct server_vcpu *vcpu, int64_t deadline_ns)
{
    sedf_set_deadline(cpu, vcpu, deadline_ns);
    /* The VCPU owes the time that an embedder let it use beyond its last slice. */
    vcpu->left_ns = vcpu->vcpu.parameters.budget_ns + (vcpu->left_ns < 0 ? vcpu->left_ns : 0);
    server_trace(instance, vcpu, LAXITY_EVENT_REPLENISH, vcpu->left_ns);
}

static void server_replenish(struct laxity_instance *instance, struct server_cpu *cpu,
                             struct server_vcpu *vcpu, int64_t now)
{
    const struct laxity_parameters *parameters = &vcpu->vcpu.parameters;
    int64_t deadline_ns = vcpu->due.at_ns + parameters->period_ns;

    if (deadline_ns <= now)
        deadline_ns += ((now - deadline_ns) / parameters->period_ns + 1) * parameters->period_ns;
    sedf_begin_period(instance, cpu, vcpu, deadline_ns);
}

#define SEDF_LOW_HALF 0xffffffffu

/* A product of two durations, which needs 84 bits. Not every target has integers of 128. */
struct sedf_product {
    uint64_t high, low;
};

static inline struct sedf_product sedf_multiply(uint64_t a, uint64_t b)
{
    uint64_t low = (a & SEDF_LOW_HALF) * (b & SEDF_LOW_HALF);
    uint64_t middle = (a >> 32) * (b & SEDF_LOW_HALF) + (low >> 32);
    uint64_t other = (a & SEDF_LOW_HALF) * (b >> 32) + (middle & SEDF_LOW_HALF);

    return (struct sedf_product){
        .high = (a >> 32) * (b >> 32) + (middle >> 32) + (other >> 32),
        .low = other << 32 | (low & SEDF_LOW_HALF),
    };
}

/* Whether a * b < than_a * than_b. Only `a` may be below 0. */
static inline bool sedf_is_less(int64_t a, int64_t b, int64_t than_a, int64_t than_b)
{
    struct sedf_product product = sedf_multiply(a > 0 ? (uint64_t)a : 0, (uint64_t)b);
    struct sedf_product than = sedf_multiply((uint64_t)than_a, (uint64_t)than_b);

    return product.high < than.high || (product.high == than.high && product.low < than.low);
}

static void server_unblocked(struct laxity_instance *instance, struct server_cpu *cpu,
                             struct server_vcpu *vcpu, int64_t now)
{
    const struct laxity_parameters *parameters = &vcpu->vcpu.parameters;
    int64_t rest_ns = vcpu->due.at_ns - now;

    if (rest_ns > 0 &&
        sedf_is_less(vcpu->left_ns, parameters->period_ns, rest_ns, parameters->budget_ns))
        return;
    sedf_begin_period(instance, cpu, vcpu, now + parameters->period_ns);
}

static enum laxity_error sedf_add_vcpu(struct laxity_instance *instance, struct laxity_vcpu *base,
                                       const struct laxity_parameters *parameters, int64_t now)
{
    struct server_vcpu *vcpu = server_vcpu_of(base);
    struct server_cpu *cpu = server_cpu_under(instance, base);
    enum laxity_error error = server_check(parameters);

    if (error)
        return error;
    base->parameters = *parameters;
    server_use(instance, cpu, now);
    server_join(cpu, vcpu);
    server_set_due(cpu, vcpu, now); /* the first slice */
    server_review(instance, cpu, now);
    return LAXITY_OK;
}

static enum laxity_error sedf_set_vcpu(struct laxity_instance *instance, struct laxity_vcpu *base,
                                       const struct laxity_parameters *parameters, int64_t now)
{
    struct server_vcpu *vcpu = server_vcpu_of(base);
    struct server_cpu *cpu = server_cpu_under(instance, base);
    int64_t before_ns = base->parameters.period_ns;
    enum laxity_error error = server_check(parameters);
    int64_t deadline_ns;

    if (error)
        return error;
    server_use(instance, cpu, now);
    base->parameters = *parameters;
    if (vcpu->left_ns > parameters->budget_ns) {
        vcpu->left_ns = parameters->budget_ns;
        server_trace(instance, vcpu, LAXITY_EVENT_BUDGET, vcpu->left_ns);
    }
    deadline_ns = vcpu->due.at_ns - before_ns + parameters->period_ns;
    sedf_set_deadline(cpu, vcpu, deadline_ns > now ? deadline_ns : now);
    server_set_extratime(instance, cpu, vcpu);
    server_review(instance, cpu, now);
    return LAXITY_OK;
}

static void sedf_set_phase(struct laxity_instance *instance, struct laxity_vcpu *base,
                           int64_t phase_ns, int64_t now)
{
    struct server_vcpu *vcpu = server_vcpu_of(base);
    struct server_cpu *cpu = server_cpu_under(instance, base);

    server_use(instance, cpu, now);
    sedf_set_deadline(cpu, vcpu,
                      server_in_phase(vcpu->due.at_ns, phase_ns, base->parameters.period_ns));
    server_review(instance, cpu, now);
}

const struct laxity_policy laxity_sedf = {
    SERVER_OPERATIONS,           .add_vcpu = sedf_add_vcpu, .set_vcpu = sedf_set_vcpu,
    .set_phase = sedf_set_phase, .become = server_become,
};
