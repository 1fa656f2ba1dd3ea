/* SPDX-License-Identifier: MIT */
/*
 * Deferrable, periodic and polling servers: fixed-priority servers whose budget is set to full once
 * a period (RT-Xen, EMSOFT 2011, sections 4.1 and 4.2; docs/explanation/policies.md has the rules).
 *
 * The three differ in the budget of a VCPU that has nothing to do. Under deferrable it is kept
 * until the end of the period, so that the VCPU needs no timer until it wakes. Under periodic it
 * runs down, as if an idle task ran at the VCPU's priority: the VCPU goes over to the RdyQ, in the
 * place that it has. Under polling it is dropped. They are one file because they can be switched
 * into one another while VCPUs run. The one in force is instance->policy.
 *
 * Queues, use of budget, and locking: server.h.
 */
#include "server.h"

static int64_t server_key(const struct server_vcpu *vcpu)
{
    return vcpu->vcpu.parameters.priority;
}

static void fixed_period_drop(struct laxity_instance *instance, struct server_vcpu *vcpu)
{
    if (vcpu->left_ns <= 0)
        return;
    vcpu->left_ns = 0;
    server_trace(instance, vcpu, LAXITY_EVENT_BUDGET, 0);
}

static void server_blocked(struct laxity_instance *instance, struct server_cpu *cpu,
                           struct server_vcpu *vcpu)
{
    if (laxity_policy_of(instance) == &laxity_periodic) {
        server_stay_blocked(cpu, vcpu);
        return;
    }
    server_dequeue(cpu, vcpu);
    if (laxity_policy_of(instance) == &laxity_polling)
        fixed_period_drop(instance, vcpu);
}

static void server_unblocked(struct laxity_instance *instance, struct server_cpu *cpu,
                             struct server_vcpu *vcpu, int64_t now)
{
    server_catch_up(instance, cpu, vcpu, now);
}

static bool server_rests(const struct laxity_instance *instance, const struct server_vcpu *vcpu)
{
    (void)vcpu;
    return laxity_policy_of(instance) == &laxity_deferrable;
}

static void server_stopped(struct laxity_instance *instance, struct server_cpu *cpu,
                           struct server_vcpu *vcpu)
{
    (void)instance;
    (void)cpu;
    (void)vcpu;
}

static void server_replenish(struct laxity_instance *instance, struct server_cpu *cpu,
                             struct server_vcpu *vcpu, int64_t now)
{
    const struct laxity_parameters *parameters = &vcpu->vcpu.parameters;
    int64_t due_ns = vcpu->due.at_ns + parameters->period_ns;

    if (due_ns <= now)
        due_ns += ((now - due_ns) / parameters->period_ns + 1) * parameters->period_ns;
    server_set_due(cpu, vcpu, due_ns);

    /* The VCPU owes the time that an embedder let it use beyond its last budget. */
    vcpu->left_ns = parameters->budget_ns + (vcpu->left_ns < 0 ? vcpu->left_ns : 0);
    if (!server_is_active(cpu, vcpu)) {
        if (laxity_policy_of(instance) == &laxity_polling && vcpu->left_ns > 0)
            vcpu->left_ns = 0;
        else if (laxity_policy_of(instance) == &laxity_periodic && vcpu->left_ns > 0 &&
                 !server_is_queued(vcpu))
            server_enqueue_blocked(cpu, vcpu);
    }
    server_trace(instance, vcpu, LAXITY_EVENT_REPLENISH, vcpu->left_ns);
}

static enum laxity_error fixed_period_add_vcpu(struct laxity_instance *instance,
                                               struct laxity_vcpu *base,
                                               const struct laxity_parameters *parameters,
                                               int64_t now)
{
    struct server_vcpu *vcpu = server_vcpu_of(base);
    struct server_cpu *cpu = server_cpu_under(instance, base);
    enum laxity_error error = server_check(parameters);

    if (error)
        return error;
    base->parameters = *parameters;
    server_use(instance, cpu, now);
    server_join(cpu, vcpu);
    server_set_due(cpu, vcpu, now); /* the first budget */
    server_review(instance, cpu, now);
    return LAXITY_OK;
}

static enum laxity_error fixed_period_set_vcpu(struct laxity_instance *instance,
                                               struct laxity_vcpu *base,
                                               const struct laxity_parameters *parameters,
                                               int64_t now)
{
    struct server_vcpu *vcpu = server_vcpu_of(base);
    struct server_cpu *cpu = server_cpu_under(instance, base);
    struct laxity_parameters before = base->parameters;
    enum laxity_error error = server_check(parameters);
    int64_t due_ns;

    if (error)
        return error;
    server_use(instance, cpu, now);
    server_catch_up(instance, cpu, vcpu, now);
    base->parameters = *parameters;
    if (vcpu->left_ns > parameters->budget_ns) {
        vcpu->left_ns = parameters->budget_ns;
        server_trace(instance, vcpu, LAXITY_EVENT_BUDGET, vcpu->left_ns);
    }
    due_ns = vcpu->due.at_ns - before.period_ns + parameters->period_ns;
    server_set_due(cpu, vcpu, due_ns > now ? due_ns : now);
    if (parameters->priority != before.priority)
        server_requeue(cpu, vcpu);
    server_set_extratime(instance, cpu, vcpu);
    server_review(instance, cpu, now);
    return LAXITY_OK;
}

static void fixed_period_set_phase(struct laxity_instance *instance, struct laxity_vcpu *base,
                                   int64_t phase_ns, int64_t now)
{
    struct server_vcpu *vcpu = server_vcpu_of(base);
    struct server_cpu *cpu = server_cpu_under(instance, base);

    server_use(instance, cpu, now);
    server_set_due(cpu, vcpu,
                   server_in_phase(vcpu->due.at_ns, phase_ns, base->parameters.period_ns));
    server_review(instance, cpu, now);
}

static void fixed_period_become_on(struct laxity_instance *instance, struct server_cpu *cpu,
                                   int64_t now)
{
    struct list *members = server_members(cpu);

    server_use(instance, cpu, now);
    for (struct list *node = members->next; node != members; node = node->next) {
        struct server_vcpu *vcpu = server_member(node);
        if (server_is_active(cpu, vcpu))
            continue; /* what it keeps or loses is decided when it blocks */
        server_catch_up(instance, cpu, vcpu, now);
        server_set_rest(cpu, vcpu, server_rests(instance, vcpu));
        server_dequeue(cpu, vcpu);
        if (laxity_policy_of(instance) == &laxity_polling)
            fixed_period_drop(instance, vcpu);
        else if (laxity_policy_of(instance) == &laxity_periodic && vcpu->left_ns > 0)
            server_enqueue_blocked(cpu, vcpu);
    }
    server_review(instance, cpu, now);
}

static enum laxity_error fixed_period_become(struct laxity_instance *instance,
                                             const struct laxity_policy *policy, int64_t now)
{
    if (policy->become != fixed_period_become)
        return LAXITY_ERROR_POLICY;
    if (policy == instance->policy)
        return LAXITY_OK;
    instance->policy = policy;
    for (uint32_t number = 0; number < instance->cpus; number++)
        if (instance->cpu[number])
            fixed_period_become_on(instance, server_cpu_of(instance->cpu[number]), now);
    return LAXITY_OK;
}

#define FIXED_PERIOD_OPERATIONS                                                              \
    SERVER_OPERATIONS, .add_vcpu = fixed_period_add_vcpu, .set_vcpu = fixed_period_set_vcpu, \
                       .set_phase = fixed_period_set_phase, .become = fixed_period_become

const struct laxity_policy laxity_deferrable = {FIXED_PERIOD_OPERATIONS};
const struct laxity_policy laxity_periodic = {FIXED_PERIOD_OPERATIONS};
const struct laxity_policy laxity_polling = {FIXED_PERIOD_OPERATIONS};
