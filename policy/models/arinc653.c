/* SPDX-License-Identifier: MIT */
/*
 * A model of Xen's arinc653: windows by the clock. Every VCPU has a window in each of its periods,
 * and runs in it and at no other time. A CPU idles in a window whose VCPU has nothing to do.
 * docs/explanation/policies.md has the rules.
 *
 * No table of windows is kept: the time and the parameters give the place of each window.
 */
#include "model.h"

struct arinc653_vcpu {
    struct laxity_vcpu vcpu;
    struct list member; /* of its CPU's schedule, in the order in which VCPUs came */
};

struct arinc653_cpu {
    struct laxity_cpu cpu;
    struct list members;
    struct arinc653_vcpu *owner; /* of the window, by the last decision; NULL: of none */
};

static struct arinc653_vcpu *arinc653_vcpu_of(struct laxity_vcpu *vcpu)
{
    return laxity_container(vcpu, struct arinc653_vcpu, vcpu);
}

static struct arinc653_cpu *arinc653_cpu_of(struct laxity_cpu *cpu)
{
    return laxity_container(cpu, struct arinc653_cpu, cpu);
}

static struct arinc653_cpu *arinc653_home(struct laxity_instance *instance,
                                          const struct laxity_vcpu *vcpu)
{
    return arinc653_cpu_of(instance->cpu[vcpu->cpu]);
}

/* Whether a window of the VCPU is open, and the time at which it closes, or else the next one
 * opens. */
static bool arinc653_is_open(const struct arinc653_vcpu *vcpu, int64_t now, int64_t *until_ns)
{
    const struct laxity_parameters *parameters = &vcpu->vcpu.parameters;
    int64_t since_ns = (now - parameters->phase_ns) % parameters->period_ns;
    bool is_open;

    if (since_ns < 0)
        since_ns += parameters->period_ns;
    is_open = since_ns < parameters->budget_ns;
    *until_ns = now + (is_open ? parameters->budget_ns : parameters->period_ns) - since_ns;
    return is_open;
}

/* The first VCPU whose window is open, and the time up to which this holds. */
static struct arinc653_vcpu *arinc653_owner(struct arinc653_cpu *cpu, int64_t now,
                                            int64_t *until_ns)
{
    *until_ns = LAXITY_NEVER;
    for (struct list *node = cpu->members.next; node != &cpu->members; node = node->next) {
        struct arinc653_vcpu *vcpu = laxity_container(node, struct arinc653_vcpu, member);
        int64_t change_ns;
        bool is_open = arinc653_is_open(vcpu, now, &change_ns);
        if (change_ns < *until_ns)
            *until_ns = change_ns;
        if (is_open)
            return vcpu;
    }
    return NULL;
}

/* ---- Operations ---- */

static enum laxity_error arinc653_init(struct laxity_instance *instance,
                                       const struct laxity_settings *settings)
{
    instance->settings = *settings;
    return LAXITY_OK;
}

static enum laxity_error arinc653_check(const struct laxity_parameters *parameters)
{
    if (parameters->period_ns < 1 || parameters->period_ns > LAXITY_DURATION_MAX)
        return LAXITY_ERROR_PERIOD;
    if (parameters->budget_ns < 1 || parameters->budget_ns > parameters->period_ns)
        return LAXITY_ERROR_BUDGET;
    if (parameters->phase_ns < 0 || parameters->phase_ns > parameters->period_ns)
        return LAXITY_ERROR_PHASE;
    return LAXITY_OK;
}

static void arinc653_add_cpu(struct laxity_instance *instance, struct laxity_cpu *cpu, int64_t now)
{
    (void)instance, (void)now;
    list_init(&arinc653_cpu_of(cpu)->members);
}

/* The VCPU joins its CPU's schedule, in which none of its windows is open yet. */
static void arinc653_enter(struct laxity_instance *instance, struct arinc653_vcpu *vcpu)
{
    list_append(&arinc653_home(instance, &vcpu->vcpu)->members, &vcpu->member);
    model_trace(instance, &vcpu->vcpu, LAXITY_EVENT_EXHAUST, 0);
    model_kick(instance, vcpu->vcpu.cpu);
}

static void arinc653_leave(struct laxity_instance *instance, struct arinc653_vcpu *vcpu)
{
    struct arinc653_cpu *cpu = arinc653_home(instance, &vcpu->vcpu);

    list_remove(&vcpu->member);
    if (cpu->owner == vcpu)
        cpu->owner = NULL;
    model_kick(instance, vcpu->vcpu.cpu);
}

static enum laxity_error arinc653_add_vcpu(struct laxity_instance *instance,
                                           struct laxity_vcpu *base,
                                           const struct laxity_parameters *parameters, int64_t now)
{
    enum laxity_error error = arinc653_check(parameters);

    (void)now;
    if (error)
        return error;
    base->parameters = *parameters;
    arinc653_enter(instance, arinc653_vcpu_of(base));
    return LAXITY_OK;
}

static void arinc653_remove_vcpu(struct laxity_instance *instance, struct laxity_vcpu *vcpu,
                                 int64_t now)
{
    (void)now;
    arinc653_leave(instance, arinc653_vcpu_of(vcpu));
}

static void arinc653_move_vcpu(struct laxity_instance *instance, struct laxity_vcpu *base,
                               uint32_t cpu, int64_t now)
{
    (void)now;
    if (base->cpu == cpu)
        return;
    arinc653_leave(instance, arinc653_vcpu_of(base));
    model_migrate(instance, base, cpu);
    arinc653_enter(instance, arinc653_vcpu_of(base));
}

static void arinc653_wake(struct laxity_instance *instance, struct laxity_vcpu *vcpu, int64_t now)
{
    (void)now;
    model_kick(instance, vcpu->cpu);
}

static void arinc653_leave_cpu(struct laxity_instance *instance, struct laxity_vcpu *vcpu,
                               int64_t now)
{
    (void)now;
    if (instance->cpu[vcpu->cpu]->current == vcpu)
        model_kick(instance, vcpu->cpu);
}

static struct laxity_decision arinc653_schedule(struct laxity_instance *instance,
                                                struct laxity_cpu *base, int64_t now)
{
    struct arinc653_cpu *cpu = arinc653_cpu_of(base);
    int64_t until_ns;
    struct arinc653_vcpu *owner = arinc653_owner(cpu, now, &until_ns);

    if (owner != cpu->owner) {
        if (cpu->owner)
            model_trace(instance, &cpu->owner->vcpu, LAXITY_EVENT_EXHAUST, 0);
        if (owner)
            model_trace(instance, &owner->vcpu, LAXITY_EVENT_REPLENISH, until_ns - now);
        cpu->owner = owner;
    }
    base->current = owner && owner->vcpu.runnable ? &owner->vcpu : NULL;
    return (struct laxity_decision){base->current, until_ns};
}

static void arinc653_timer(struct laxity_instance *instance, struct laxity_cpu *cpu, int64_t now)
{
    (void)instance, (void)cpu, (void)now;
}

static enum laxity_error arinc653_set_vcpu(struct laxity_instance *instance,
                                           struct laxity_vcpu *vcpu,
                                           const struct laxity_parameters *parameters, int64_t now)
{
    enum laxity_error error = arinc653_check(parameters);

    (void)now;
    if (error)
        return error;
    vcpu->parameters = *parameters;
    model_kick(instance, vcpu->cpu);
    return LAXITY_OK;
}

static void arinc653_dump(struct laxity_instance *instance, struct laxity_cpu *base,
                          struct laxity_dump *dump)
{
    struct arinc653_cpu *cpu = arinc653_cpu_of(base);

    (void)instance;
    for (struct list *node = cpu->members.next; node != &cpu->members; node = node->next) {
        struct arinc653_vcpu *vcpu = laxity_container(node, struct arinc653_vcpu, member);
        if (base->current == &vcpu->vcpu)
            dump->line(dump, base->current, "runs", vcpu->vcpu.parameters.budget_ns, LAXITY_NEVER);
        else if (vcpu->vcpu.runnable)
            dump->line(dump, &vcpu->vcpu, cpu->owner == vcpu ? "ready" : "waits",
                       vcpu->vcpu.parameters.budget_ns, LAXITY_NEVER);
    }
}

const struct laxity_policy laxity_arinc653 = {
    .instance_bytes = sizeof(struct laxity_instance),
    .cpu_bytes = sizeof(struct arinc653_cpu),
    .domain_bytes = sizeof(struct laxity_domain),
    .vcpu_bytes = sizeof(struct arinc653_vcpu),
    .init = arinc653_init,
    .add_cpu = arinc653_add_cpu,
    .remove_cpu = model_remove_cpu,
    .add_domain = model_add_domain,
    .remove_domain = model_remove_domain,
    .add_vcpu = arinc653_add_vcpu,
    .remove_vcpu = arinc653_remove_vcpu,
    .move_vcpu = arinc653_move_vcpu,
    .wake = arinc653_wake,
    .sleep = arinc653_leave_cpu,
    .yield = arinc653_leave_cpu,
    .schedule = arinc653_schedule,
    .timer = arinc653_timer,
    .set_settings = model_set_settings,
    .set_domain = model_set_domain,
    .set_vcpu = arinc653_set_vcpu,
    .become = model_become,
    .dump = arinc653_dump,
};
