/* SPDX-License-Identifier: MIT */
/*
 * A model of Xen's null: every CPU belongs to one VCPU, and runs it whenever it has work.
 * A VCPU that finds no CPU of its affinity free waits, first come, first served, until one becomes
 * free; it does not run before. docs/explanation/policies.md has the rules.
 */
#include "model.h"

struct null_vcpu {
    struct laxity_vcpu vcpu;
    struct list waiting; /* in the instance's queue, without a CPU of its own */
};

struct null_cpu {
    struct laxity_cpu cpu;
    struct null_vcpu *owner; /* NULL: free */
};

struct null_instance {
    struct laxity_instance instance;
    struct list waiting;
};

static struct null_instance *null_of(struct laxity_instance *instance)
{
    return laxity_container(instance, struct null_instance, instance);
}

static struct null_vcpu *null_vcpu_of(struct laxity_vcpu *vcpu)
{
    return laxity_container(vcpu, struct null_vcpu, vcpu);
}

static struct null_cpu *null_cpu_of(struct laxity_cpu *cpu)
{
    return laxity_container(cpu, struct null_cpu, cpu);
}

static bool null_is_free(struct laxity_instance *instance, const struct null_vcpu *vcpu,
                         uint32_t number)
{
    struct laxity_cpu *cpu = instance->cpu[number];
    return cpu && !null_cpu_of(cpu)->owner && model_may_run_on(instance, &vcpu->vcpu, number);
}

static void null_assign(struct laxity_instance *instance, struct null_vcpu *vcpu, uint32_t cpu)
{
    null_cpu_of(instance->cpu[cpu])->owner = vcpu;
    model_migrate(instance, &vcpu->vcpu, cpu);
    if (vcpu->vcpu.runnable)
        model_kick(instance, cpu);
}

/* The VCPU gets its present CPU if that is free, else the first free one; else it waits. */
static void null_place(struct laxity_instance *instance, struct null_vcpu *vcpu)
{
    if (null_is_free(instance, vcpu, vcpu->vcpu.cpu)) {
        null_assign(instance, vcpu, vcpu->vcpu.cpu);
        return;
    }
    for (uint32_t cpu = 0; cpu < instance->cpus; cpu++) {
        if (null_is_free(instance, vcpu, cpu)) {
            null_assign(instance, vcpu, cpu);
            return;
        }
    }
    list_append(&null_of(instance)->waiting, &vcpu->waiting);
}

/* A free CPU goes to the VCPU that has waited longest among those that may run there. */
static void null_offer(struct laxity_instance *instance, uint32_t cpu)
{
    struct list *waiting = &null_of(instance)->waiting;

    for (struct list *node = waiting->next; node != waiting; node = node->next) {
        struct null_vcpu *vcpu = laxity_container(node, struct null_vcpu, waiting);
        if (null_is_free(instance, vcpu, cpu)) {
            list_remove(node);
            null_assign(instance, vcpu, cpu);
            return;
        }
    }
}

/* The VCPU gives back its CPU, or its place among those that wait. */
static void null_leave(struct laxity_instance *instance, struct null_vcpu *vcpu)
{
    if (list_holds(&vcpu->waiting)) {
        list_remove(&vcpu->waiting);
        return;
    }
    null_cpu_of(instance->cpu[vcpu->vcpu.cpu])->owner = NULL;
    null_offer(instance, vcpu->vcpu.cpu);
}

static enum laxity_error null_init(struct laxity_instance *instance,
                                   const struct laxity_settings *settings)
{
    instance->settings = *settings;
    list_init(&null_of(instance)->waiting);
    return LAXITY_OK;
}

static void null_add_cpu(struct laxity_instance *instance, struct laxity_cpu *cpu, int64_t now)
{
    (void)now;
    null_offer(instance, cpu->number);
}

static enum laxity_error null_add_vcpu(struct laxity_instance *instance, struct laxity_vcpu *vcpu,
                                       const struct laxity_parameters *parameters, int64_t now)
{
    (void)now;
    vcpu->parameters = *parameters;
    null_place(instance, null_vcpu_of(vcpu));
    return LAXITY_OK;
}

static void null_remove_vcpu(struct laxity_instance *instance, struct laxity_vcpu *vcpu,
                             int64_t now)
{
    (void)now;
    null_leave(instance, null_vcpu_of(vcpu));
}

/* The VCPU waits if the other CPU belongs to another VCPU. */
static void null_move_vcpu(struct laxity_instance *instance, struct laxity_vcpu *base, uint32_t cpu,
                           int64_t now)
{
    struct null_vcpu *vcpu = null_vcpu_of(base);

    (void)now;
    if (base->cpu == cpu)
        return;
    null_leave(instance, vcpu);
    model_migrate(instance, base, cpu);
    if (null_is_free(instance, vcpu, cpu))
        null_assign(instance, vcpu, cpu);
    else
        list_append(&null_of(instance)->waiting, &vcpu->waiting);
}

static void null_call(struct laxity_instance *instance, struct laxity_vcpu *vcpu, int64_t now)
{
    (void)now;
    if (!list_holds(&null_vcpu_of(vcpu)->waiting))
        model_kick(instance, vcpu->cpu);
}

static void null_yield(struct laxity_instance *instance, struct laxity_vcpu *vcpu, int64_t now)
{
    (void)instance, (void)vcpu, (void)now;
}

static struct laxity_decision null_schedule(struct laxity_instance *instance,
                                            struct laxity_cpu *cpu, int64_t now)
{
    struct null_vcpu *owner = null_cpu_of(cpu)->owner;

    (void)instance, (void)now;
    cpu->current = owner && owner->vcpu.runnable ? &owner->vcpu : NULL;
    return (struct laxity_decision){cpu->current, LAXITY_NEVER};
}

static void null_timer(struct laxity_instance *instance, struct laxity_cpu *cpu, int64_t now)
{
    (void)instance, (void)cpu, (void)now;
}

static enum laxity_error null_set_vcpu(struct laxity_instance *instance, struct laxity_vcpu *vcpu,
                                       const struct laxity_parameters *parameters, int64_t now)
{
    (void)instance, (void)now;
    vcpu->parameters = *parameters;
    return LAXITY_OK;
}

static void null_dump(struct laxity_instance *instance, struct laxity_cpu *cpu,
                      struct laxity_dump *dump)
{
    struct list *waiting = &null_of(instance)->waiting;
    struct null_vcpu *owner = null_cpu_of(cpu)->owner;

    if (cpu->current)
        dump->line(dump, cpu->current, "runs", 0, LAXITY_NEVER);
    else if (owner && owner->vcpu.runnable)
        dump->line(dump, &owner->vcpu, "ready", 0, LAXITY_NEVER);
    for (struct list *node = waiting->next; node != waiting; node = node->next) {
        struct null_vcpu *vcpu = laxity_container(node, struct null_vcpu, waiting);
        if (vcpu->vcpu.cpu == cpu->number && vcpu->vcpu.runnable)
            dump->line(dump, &vcpu->vcpu, "without a CPU", 0, LAXITY_NEVER);
    }
}

const struct laxity_policy laxity_null = {
    .instance_bytes = sizeof(struct null_instance),
    .cpu_bytes = sizeof(struct null_cpu),
    .domain_bytes = sizeof(struct laxity_domain),
    .vcpu_bytes = sizeof(struct null_vcpu),
    .init = null_init,
    .add_cpu = null_add_cpu,
    .remove_cpu = model_remove_cpu,
    .add_domain = model_add_domain,
    .remove_domain = model_remove_domain,
    .add_vcpu = null_add_vcpu,
    .remove_vcpu = null_remove_vcpu,
    .move_vcpu = null_move_vcpu,
    .wake = null_call,
    .sleep = null_call,
    .yield = null_yield,
    .schedule = null_schedule,
    .timer = null_timer,
    .set_settings = model_set_settings,
    .set_domain = model_set_domain,
    .set_vcpu = null_set_vcpu,
    .become = model_become,
    .dump = null_dump,
};
