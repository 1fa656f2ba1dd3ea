/* SPDX-License-Identifier: MIT */
/*
 * A model of Linux's SCHED_FIFO: threads of priorities 1 to 99, 99 the highest. The threads of
 * highest priority run until they block. A VCPU is a thread. docs/explanation/policies.md has the
 * rules; linux.h has the order of all CPUs.
 */
#include "linux.h"

static int64_t global_left_ns(const struct global_vcpu *vcpu)
{
    (void)vcpu;
    return 0;
}

static int64_t global_due_ns(const struct global_vcpu *vcpu)
{
    (void)vcpu;
    return LAXITY_NEVER;
}

static int64_t fifo_key(const struct laxity_parameters *parameters)
{
    return -(int64_t)parameters->rt_priority;
}

static enum laxity_error fifo_check(const struct laxity_parameters *parameters)
{
    if (parameters->rt_priority < 1 || parameters->rt_priority > LAXITY_RT_PRIORITY_MAX)
        return LAXITY_ERROR_RT_PRIORITY;
    return LAXITY_OK;
}

static enum laxity_error fifo_init(struct laxity_instance *instance,
                                   const struct laxity_settings *settings)
{
    global_init(instance, settings);
    return LAXITY_OK;
}

static enum laxity_error fifo_set_domain(struct laxity_instance *instance,
                                         struct laxity_domain *domain,
                                         const struct laxity_parameters *parameters, int64_t now)
{
    enum laxity_error error = fifo_check(parameters);

    (void)instance, (void)now;
    if (!error)
        domain->parameters = *parameters;
    return error;
}

static enum laxity_error fifo_add_domain(struct laxity_instance *instance,
                                         struct laxity_domain *domain,
                                         const struct laxity_parameters *parameters)
{
    return fifo_set_domain(instance, domain, parameters, 0);
}

static enum laxity_error fifo_add_vcpu(struct laxity_instance *instance, struct laxity_vcpu *vcpu,
                                       const struct laxity_parameters *parameters, int64_t now)
{
    enum laxity_error error = fifo_check(parameters);

    (void)now;
    if (error)
        return error;
    vcpu->parameters = *parameters;
    list_append(&global_of(instance)->members, &global_vcpu_of(vcpu)->member);
    return LAXITY_OK;
}

static void fifo_remove_vcpu(struct laxity_instance *instance, struct laxity_vcpu *vcpu,
                             int64_t now)
{
    (void)now;
    if (global_is_ready(global_vcpu_of(vcpu)))
        global_leave(instance, global_vcpu_of(vcpu));
    list_remove(&global_vcpu_of(vcpu)->member);
}

static void fifo_wake(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    struct global_vcpu *vcpu = global_vcpu_of(base);

    (void)now;
    if (global_is_ready(vcpu))
        return; /* it was put to sleep and has not been descheduled since */
    global_set_key(instance, vcpu, fifo_key(&base->parameters));
    global_enter(instance, vcpu);
}

static void fifo_sleep(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    (void)now;
    if (global_is_current(instance, global_vcpu_of(base)))
        model_kick(instance, base->cpu);
    else
        global_leave(instance, global_vcpu_of(base));
}

static void fifo_yield(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    (void)now;
    global_change_key(instance, global_vcpu_of(base), fifo_key(&base->parameters));
}

static struct laxity_decision fifo_schedule(struct laxity_instance *instance,
                                            struct laxity_cpu *cpu, int64_t now)
{
    global_cpu_of(cpu)->is_deciding = true;
    return global_decide(instance, global_cpu_of(cpu), now);
}

static void fifo_timer(struct laxity_instance *instance, struct laxity_cpu *cpu, int64_t now)
{
    (void)instance, (void)cpu, (void)now;
}

static enum laxity_error fifo_set_vcpu(struct laxity_instance *instance, struct laxity_vcpu *vcpu,
                                       const struct laxity_parameters *parameters, int64_t now)
{
    enum laxity_error error = fifo_check(parameters);

    (void)now;
    if (error)
        return error;
    vcpu->parameters = *parameters;
    global_change_key(instance, global_vcpu_of(vcpu), fifo_key(parameters));
    return LAXITY_OK;
}

const struct laxity_policy laxity_fifo = {
    .instance_bytes = sizeof(struct global_instance),
    .cpu_bytes = sizeof(struct global_cpu),
    .domain_bytes = sizeof(struct laxity_domain),
    .vcpu_bytes = sizeof(struct global_vcpu),
    .init = fifo_init,
    .add_cpu = global_add_cpu,
    .remove_cpu = global_remove_cpu,
    .add_domain = fifo_add_domain,
    .remove_domain = model_remove_domain,
    .add_vcpu = fifo_add_vcpu,
    .remove_vcpu = fifo_remove_vcpu,
    .move_vcpu = global_move_vcpu,
    .wake = fifo_wake,
    .sleep = fifo_sleep,
    .yield = fifo_yield,
    .schedule = fifo_schedule,
    .timer = fifo_timer,
    .set_settings = model_set_settings,
    .set_domain = fifo_set_domain,
    .set_vcpu = fifo_set_vcpu,
    .become = model_become,
    .dump = global_dump,
};
