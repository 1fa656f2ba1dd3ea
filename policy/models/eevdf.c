/* SPDX-License-Identifier: MIT */
/*
 * A model of Linux's fair class: EEVDF on each CPU, a weight for each domain as for a control
 * group, and cpu.max. A VCPU is a thread. docs/explanation/policies.md has the rules.
 *
 * Each CPU has a list of the VCPUs that take part there, the running one among them: those that
 * have work, and those that blocked with a debt and stay until they are picked. Their mean virtual
 * time decides who is eligible. The model is kept plain: values that depend on the mean are found
 * by going through the list.
 */
#include "model.h"

/* Virtual time is counted in 1 / 2^20 ns of a VCPU of weight 1. */
#define EEVDF_SCALE LAXITY_NS(1 << 20)
/* The weight of a VCPU that has its domain's weight of 1 alone. */
#define EEVDF_WEIGHT_UNIT LAXITY_NS(1024)
/* The base slice for one CPU; it grows with the logarithm of the number of CPUs, up to 8. */
#define EEVDF_BASE_SLICE LAXITY_NS(750000)

/* Products of weights and virtual times. */
__extension__ typedef __int128 eevdf_wide;

struct eevdf_domain {
    struct laxity_domain domain;
    struct list member; /* of the instance's `domains` */
    struct list vcpus;
    int64_t pool_ns;     /* what is left of the quota */
    int64_t refilled_ns; /* the last beginning of a period that has been seen */
    uint32_t runnable;   /* VCPUs with work */
    bool is_throttled;
};

struct eevdf_vcpu {
    struct laxity_vcpu vcpu;
    struct list member; /* of the domain's `vcpus` */
    struct list queue;  /* of its CPU's `queue`, while it takes part */
    bool is_delayed;    /* it has blocked, and takes part until it is picked */
    bool is_counted;    /* in its domain's `runnable` */
    int64_t weight, virtual, deadline;
    int64_t lag; /* while it does not take part: by how much its virtual time was behind the mean */
};

struct eevdf_cpu {
    struct laxity_cpu cpu;
    struct list queue;
    uint32_t count;
    int64_t charged_ns;
    bool is_protected; /* the running VCPU has not had its slice since it came */
    bool is_deciding;
    bool ticks;
};

struct eevdf_instance {
    struct laxity_instance instance;
    struct list domains;
    uint32_t cpu_count;
};

static struct eevdf_instance *eevdf_of(struct laxity_instance *instance)
{
    return laxity_container(instance, struct eevdf_instance, instance);
}

static struct eevdf_domain *eevdf_domain_of(struct laxity_domain *domain)
{
    return laxity_container(domain, struct eevdf_domain, domain);
}

static struct eevdf_vcpu *eevdf_vcpu_of(struct laxity_vcpu *vcpu)
{
    return laxity_container(vcpu, struct eevdf_vcpu, vcpu);
}

static struct eevdf_cpu *eevdf_cpu_of(struct laxity_cpu *cpu)
{
    return laxity_container(cpu, struct eevdf_cpu, cpu);
}

/* Asks the CPU for a decision. A CPU that is deciding already sees the change itself. */
static void eevdf_kick(struct laxity_instance *instance, const struct eevdf_cpu *cpu)
{
    if (!cpu->is_deciding)
        model_kick(instance, cpu->cpu.number);
}

static struct eevdf_cpu *eevdf_cpu_under(struct laxity_instance *instance,
                                         const struct eevdf_vcpu *vcpu)
{
    return eevdf_cpu_of(instance->cpu[vcpu->vcpu.cpu]);
}

static bool eevdf_is_current(struct laxity_instance *instance, const struct eevdf_vcpu *vcpu)
{
    return instance->cpu[vcpu->vcpu.cpu]->current == &vcpu->vcpu;
}

static int64_t eevdf_slice_ns(struct laxity_instance *instance)
{
    int64_t slice_ns = instance->settings.base_slice_ns;

    if (slice_ns)
        return slice_ns;
    slice_ns = EEVDF_BASE_SLICE;
    for (uint32_t cpus = 2; cpus <= 8 && cpus <= eevdf_of(instance)->cpu_count; cpus *= 2)
        slice_ns += EEVDF_BASE_SLICE;
    return slice_ns;
}

static int64_t eevdf_virtual(int64_t time_ns, int64_t weight)
{
    return (int64_t)((eevdf_wide)time_ns * EEVDF_SCALE / weight);
}

/* The mean of the virtual times that take part, by weight, rounded down; 0 if none does. */
static int64_t eevdf_mean(const struct eevdf_cpu *cpu, int64_t *weight)
{
    eevdf_wide sum = 0, weights = 0;
    int64_t least = INT64_MAX;

    for (struct list *node = cpu->queue.next; node != &cpu->queue; node = node->next) {
        struct eevdf_vcpu *vcpu = laxity_container(node, struct eevdf_vcpu, queue);
        if (vcpu->virtual < least)
            least = vcpu->virtual;
    }
    for (struct list *node = cpu->queue.next; node != &cpu->queue; node = node->next) {
        struct eevdf_vcpu *vcpu = laxity_container(node, struct eevdf_vcpu, queue);
        sum += (eevdf_wide)(vcpu->virtual - least) * vcpu->weight;
        weights += vcpu->weight;
    }
    if (weight)
        *weight = (int64_t)weights;
    return weights ? least + (int64_t)(sum / weights) : 0;
}

/* A virtual time that is not after the mean; the mean, being rounded down, decides as the exact one
 * does. */
static bool eevdf_is_eligible(const struct eevdf_vcpu *vcpu, int64_t mean)
{
    return vcpu->virtual <= mean;
}

/* The weight of the domain, divided among its VCPUs that have work. */
static int64_t eevdf_weight(const struct eevdf_vcpu *vcpu)
{
    const struct eevdf_domain *domain = eevdf_domain_of(vcpu->vcpu.domain);
    int64_t weight = domain->domain.parameters.weight * EEVDF_WEIGHT_UNIT;

    if (domain->runnable > 1)
        weight /= domain->runnable;
    return weight ? weight : 1;
}

/* Brings the domain's quota up to date. */
static void eevdf_refill(struct eevdf_domain *domain, int64_t now)
{
    const struct laxity_parameters *parameters = &domain->domain.parameters;
    int64_t periods = (now - domain->refilled_ns) / parameters->quota_period_ns;
    eevdf_wide pool_ns = (eevdf_wide)domain->pool_ns + (eevdf_wide)periods * parameters->quota_ns;
    int64_t most_ns = parameters->quota_ns + parameters->quota_burst_ns;

    domain->refilled_ns += periods * parameters->quota_period_ns;
    domain->pool_ns = pool_ns > most_ns ? most_ns : (int64_t)pool_ns;
}

/* Asks for the end of the first period at whose end a throttled domain is looked at. */
static void eevdf_arm(struct laxity_instance *instance)
{
    struct list *domains = &eevdf_of(instance)->domains;
    int64_t at_ns = LAXITY_NEVER;

    for (struct list *node = domains->next; node != domains; node = node->next) {
        struct eevdf_domain *domain = laxity_container(node, struct eevdf_domain, member);
        int64_t due_ns = domain->refilled_ns + domain->domain.parameters.quota_period_ns;
        if (domain->is_throttled && !list_is_empty(&domain->vcpus) && due_ns < at_ns)
            at_ns = due_ns;
    }
    laxity_arm_account(instance, at_ns);
}

/* The VCPU no longer takes part. Its lag is kept, within two slices or a jiffy. */
static void eevdf_dequeue(struct laxity_instance *instance, struct eevdf_vcpu *vcpu)
{
    struct eevdf_cpu *cpu = eevdf_cpu_under(instance, vcpu);
    int64_t most_ns = 2 * eevdf_slice_ns(instance), most;

    if (most_ns < instance->settings.jiffy_ns)
        most_ns = instance->settings.jiffy_ns;
    most = eevdf_virtual(most_ns, vcpu->weight);
    vcpu->lag = eevdf_mean(cpu, NULL) - vcpu->virtual;
    if (vcpu->lag > most)
        vcpu->lag = most;
    if (vcpu->lag < -most)
        vcpu->lag = -most;
    vcpu->is_delayed = false;
    list_remove(&vcpu->queue);
    cpu->count--;
}

/* The VCPU takes part on its CPU, with its lag, and a deadline `slice` of virtual time away. */
static void eevdf_enqueue(struct laxity_instance *instance, struct eevdf_vcpu *vcpu, int64_t slice)
{
    struct eevdf_cpu *cpu = eevdf_cpu_under(instance, vcpu);
    int64_t weight, mean = eevdf_mean(cpu, &weight);

    /* It moves the mean towards itself by its part of all weights. */
    vcpu->virtual = mean;
    if (weight)
        vcpu->virtual -= (int64_t)((eevdf_wide)vcpu->lag * (weight + vcpu->weight) / weight);
    vcpu->deadline = vcpu->virtual + slice;
    list_append(&cpu->queue, &vcpu->queue);
    cpu->count++;
}

static void eevdf_enqueue_anew(struct laxity_instance *instance, struct eevdf_vcpu *vcpu)
{
    vcpu->weight = eevdf_weight(vcpu);
    eevdf_enqueue(instance, vcpu, eevdf_virtual(eevdf_slice_ns(instance), vcpu->weight));
}

/* The running VCPU's weight follows its domain's; the time that is due to it stays the same. */
static void eevdf_reweigh(struct laxity_instance *instance, struct eevdf_vcpu *vcpu)
{
    int64_t weight = eevdf_weight(vcpu), mean;

    if (weight == vcpu->weight)
        return;
    mean = eevdf_mean(eevdf_cpu_under(instance, vcpu), NULL);
    vcpu->virtual = mean - (int64_t)((eevdf_wide)(mean - vcpu->virtual) * vcpu->weight / weight);
    vcpu->deadline = mean + (int64_t)((eevdf_wide)(vcpu->deadline - mean) * vcpu->weight / weight);
    vcpu->weight = weight;
}

/* The domain has used up its quota: none of its VCPUs takes part. */
static void eevdf_throttle(struct laxity_instance *instance, struct eevdf_domain *domain)
{
    domain->is_throttled = true;
    for (struct list *node = domain->vcpus.next; node != &domain->vcpus; node = node->next) {
        struct eevdf_vcpu *vcpu = laxity_container(node, struct eevdf_vcpu, member);
        if (!list_holds(&vcpu->queue))
            continue;
        eevdf_dequeue(instance, vcpu);
        model_trace(instance, &vcpu->vcpu, LAXITY_EVENT_EXHAUST, 0);
        if (eevdf_is_current(instance, vcpu))
            eevdf_kick(instance, eevdf_cpu_under(instance, vcpu));
    }
    eevdf_arm(instance);
}

/* The running VCPU pays for the time up to now. */
static void eevdf_pay(struct laxity_instance *instance, struct eevdf_cpu *cpu, int64_t now)
{
    int64_t used_ns = now - cpu->charged_ns;
    struct eevdf_domain *domain;
    struct eevdf_vcpu *vcpu;

    cpu->charged_ns = now;
    if (!cpu->cpu.current || used_ns <= 0)
        return;
    vcpu = eevdf_vcpu_of(cpu->cpu.current);
    domain = eevdf_domain_of(vcpu->vcpu.domain);
    if (list_holds(&vcpu->queue)) {
        vcpu->virtual += eevdf_virtual(used_ns, vcpu->weight);
        if (vcpu->virtual >= vcpu->deadline) {
            vcpu->deadline = vcpu->virtual + eevdf_virtual(eevdf_slice_ns(instance), vcpu->weight);
            cpu->is_protected = false;
            if (cpu->count > 1)
                eevdf_kick(instance, cpu);
        }
        eevdf_reweigh(instance, vcpu);
    }
    if (!domain->domain.parameters.quota_ns)
        return;
    eevdf_refill(domain, now);
    domain->pool_ns -= used_ns;
    if (domain->pool_ns <= 0 && !domain->is_throttled)
        eevdf_throttle(instance, domain);
}

/* The eligible VCPU with the earliest virtual deadline; among equals the one that came first, and
 * the running one last. The running one goes on while it is protected and eligible. NULL: none
 * takes part. */
static struct eevdf_vcpu *eevdf_pick(const struct eevdf_cpu *cpu)
{
    struct eevdf_vcpu *current = cpu->cpu.current ? eevdf_vcpu_of(cpu->cpu.current) : NULL;
    struct eevdf_vcpu *best = NULL;
    int64_t mean = eevdf_mean(cpu, NULL);

    if (current &&
        (!list_holds(&current->queue) || current->is_delayed || !eevdf_is_eligible(current, mean)))
        current = NULL;
    if (current && cpu->is_protected)
        return current;
    for (struct list *node = cpu->queue.next; node != &cpu->queue; node = node->next) {
        struct eevdf_vcpu *vcpu = laxity_container(node, struct eevdf_vcpu, queue);
        bool runs = &vcpu->vcpu == cpu->cpu.current && !vcpu->is_delayed;
        if (!runs && eevdf_is_eligible(vcpu, mean) && (!best || vcpu->deadline < best->deadline))
            best = vcpu;
    }
    if (current && (!best || current->deadline < best->deadline))
        best = current;
    return best;
}

/* A VCPU has come to a CPU, which decides if the VCPU should run. */
static void eevdf_preempt(struct laxity_instance *instance, struct eevdf_vcpu *vcpu)
{
    struct eevdf_cpu *cpu = eevdf_cpu_under(instance, vcpu);

    if (!cpu->cpu.current || eevdf_pick(cpu) == vcpu)
        model_kick(instance, cpu->cpu.number);
}

static void eevdf_set_counted(struct eevdf_vcpu *vcpu, bool is_counted)
{
    if (vcpu->is_counted == is_counted)
        return;
    vcpu->is_counted = is_counted;
    eevdf_domain_of(vcpu->vcpu.domain)->runnable += is_counted ? 1 : -1;
}

/* A VCPU has no work left. With a debt it takes part until it is picked. */
static void eevdf_block(struct laxity_instance *instance, struct eevdf_vcpu *vcpu)
{
    struct eevdf_cpu *cpu = eevdf_cpu_under(instance, vcpu);

    eevdf_set_counted(vcpu, false);
    if (!list_holds(&vcpu->queue))
        return;
    if (eevdf_is_eligible(vcpu, eevdf_mean(cpu, NULL)))
        eevdf_dequeue(instance, vcpu);
    else
        vcpu->is_delayed = true;
}

static bool eevdf_is_idle(struct laxity_instance *instance, uint32_t number)
{
    struct laxity_cpu *cpu = instance->cpu[number];
    return cpu && !cpu->current && eevdf_cpu_of(cpu)->count == 0;
}

/* The CPU on which a VCPU wakes: its own, unless that is busy and another one on which it may run
 * is idle. */
static void eevdf_select(struct laxity_instance *instance, struct eevdf_vcpu *vcpu)
{
    uint32_t own = vcpu->vcpu.cpu;

    if (eevdf_is_idle(instance, own) || vcpu->vcpu.on_cpu)
        return;
    for (uint32_t step = 1; step < instance->cpus; step++) {
        uint32_t number = (own + step) % instance->cpus;
        if (eevdf_is_idle(instance, number) && model_may_run_on(instance, &vcpu->vcpu, number)) {
            model_migrate(instance, &vcpu->vcpu, number);
            return;
        }
    }
}

/* The first VCPU that waits on a CPU and may run on another. */
static struct eevdf_vcpu *eevdf_waiting(struct laxity_instance *instance, struct eevdf_cpu *cpu,
                                        uint32_t to)
{
    for (struct list *node = cpu->queue.next; node != &cpu->queue; node = node->next) {
        struct eevdf_vcpu *vcpu = laxity_container(node, struct eevdf_vcpu, queue);
        if (&vcpu->vcpu != cpu->cpu.current && !vcpu->is_delayed && !vcpu->vcpu.on_cpu &&
            model_may_run_on(instance, &vcpu->vcpu, to))
            return vcpu;
    }
    return NULL;
}

/* A CPU that would idle takes a VCPU from the CPU on which most take part; among equals the next by
 * number. */
static void eevdf_pull(struct laxity_instance *instance, struct eevdf_cpu *cpu, int64_t now)
{
    struct eevdf_cpu *busiest = NULL;
    struct eevdf_vcpu *vcpu;
    int64_t slice;

    for (uint32_t step = 1; step < instance->cpus; step++) {
        struct laxity_cpu *base = instance->cpu[(cpu->cpu.number + step) % instance->cpus];
        if (base && eevdf_waiting(instance, eevdf_cpu_of(base), cpu->cpu.number) &&
            (!busiest || eevdf_cpu_of(base)->count > busiest->count))
            busiest = eevdf_cpu_of(base);
    }
    if (!busiest)
        return;
    eevdf_pay(instance, busiest, now);
    vcpu = eevdf_waiting(instance, busiest, cpu->cpu.number);
    if (!vcpu)
        return; /* its domain has just been throttled */
    slice = vcpu->deadline - vcpu->virtual;
    eevdf_dequeue(instance, vcpu);
    model_migrate(instance, &vcpu->vcpu, cpu->cpu.number);
    eevdf_enqueue(instance, vcpu, slice);
}

/* The VCPU that a CPU is to run. Those that are picked without work have paid their debt and go. */
static struct eevdf_vcpu *eevdf_take(struct laxity_instance *instance, struct eevdf_cpu *cpu)
{
    struct eevdf_vcpu *vcpu = eevdf_pick(cpu);

    while (vcpu && vcpu->is_delayed) {
        eevdf_dequeue(instance, vcpu);
        if (vcpu->lag > 0)
            vcpu->lag = 0;
        vcpu = eevdf_pick(cpu);
    }
    return vcpu;
}

static void eevdf_tick_on(struct laxity_instance *instance, struct eevdf_cpu *cpu, bool ticks,
                          int64_t now)
{
    int64_t jiffy_ns = instance->settings.jiffy_ns;

    if (cpu->ticks == ticks)
        return;
    cpu->ticks = ticks;
    laxity_arm_timer(instance, cpu->cpu.number,
                     ticks ? (now / jiffy_ns + 1) * jiffy_ns : LAXITY_NEVER);
}

static struct laxity_decision eevdf_schedule(struct laxity_instance *instance,
                                             struct laxity_cpu *base, int64_t now)
{
    struct eevdf_cpu *cpu = eevdf_cpu_of(base);
    struct eevdf_vcpu *before = base->current ? eevdf_vcpu_of(base->current) : NULL, *next;

    cpu->is_deciding = true;
    eevdf_pay(instance, cpu, now);
    if (before && !before->vcpu.runnable)
        eevdf_block(instance, before);
    next = eevdf_take(instance, cpu);
    if (!next) {
        eevdf_pull(instance, cpu, now);
        next = eevdf_take(instance, cpu);
    }
    if (before && list_holds(&before->queue)) {
        /* Among those of the same deadline it is now the last. */
        list_remove(&before->queue);
        list_append(&cpu->queue, &before->queue);
    }
    if (next != before)
        cpu->is_protected = true;
    cpu->is_deciding = false;
    base->current = next ? &next->vcpu : NULL;
    eevdf_tick_on(instance, cpu, next != NULL, now);
    return (struct laxity_decision){base->current, LAXITY_NEVER};
}

static void eevdf_timer(struct laxity_instance *instance, struct laxity_cpu *base, int64_t now)
{
    struct eevdf_cpu *cpu = eevdf_cpu_of(base);

    cpu->ticks = false;
    if (!base->current)
        return;
    eevdf_pay(instance, cpu, now);
    eevdf_tick_on(instance, cpu, true, now);
}

/* The VCPUs of a domain take part again. */
static void eevdf_unthrottle(struct laxity_instance *instance, struct eevdf_domain *domain,
                             int64_t now)
{
    domain->is_throttled = false;
    for (struct list *node = domain->vcpus.next; node != &domain->vcpus; node = node->next) {
        struct eevdf_vcpu *vcpu = laxity_container(node, struct eevdf_vcpu, member);
        if (!vcpu->vcpu.runnable || list_holds(&vcpu->queue))
            continue;
        eevdf_pay(instance, eevdf_cpu_under(instance, vcpu), now);
        if (domain->is_throttled)
            return; /* a VCPU of the domain ran on and has used up the quota */
        eevdf_enqueue_anew(instance, vcpu);
        model_trace(instance, &vcpu->vcpu, LAXITY_EVENT_REPLENISH, domain->pool_ns);
        eevdf_preempt(instance, vcpu);
    }
}

/* A period is over. */
static void eevdf_account(struct laxity_instance *instance, int64_t now)
{
    struct list *domains = &eevdf_of(instance)->domains;

    for (struct list *node = domains->next; node != domains; node = node->next) {
        struct eevdf_domain *domain = laxity_container(node, struct eevdf_domain, member);
        if (!domain->is_throttled)
            continue;
        eevdf_refill(domain, now);
        if (domain->pool_ns > 0)
            eevdf_unthrottle(instance, domain, now);
    }
    eevdf_arm(instance);
}

static void eevdf_wake(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    struct eevdf_vcpu *vcpu = eevdf_vcpu_of(base);

    eevdf_set_counted(vcpu, true);
    if (eevdf_domain_of(base->domain)->is_throttled)
        return;
    if (list_holds(&vcpu->queue)) {
        if (!vcpu->is_delayed)
            return; /* it was put to sleep and has not been descheduled since */
        eevdf_pay(instance, eevdf_cpu_under(instance, vcpu), now);
        if (eevdf_domain_of(base->domain)->is_throttled)
            return;
        vcpu->is_delayed = false;
        if (eevdf_is_eligible(vcpu, eevdf_mean(eevdf_cpu_under(instance, vcpu), NULL))) {
            eevdf_dequeue(instance, vcpu);
            vcpu->lag = 0;
            eevdf_enqueue_anew(instance, vcpu);
        }
        eevdf_preempt(instance, vcpu);
        return;
    }
    if (!eevdf_is_current(instance, vcpu))
        eevdf_select(instance, vcpu);
    eevdf_pay(instance, eevdf_cpu_under(instance, vcpu), now);
    if (eevdf_domain_of(base->domain)->is_throttled)
        return;
    eevdf_enqueue_anew(instance, vcpu);
    eevdf_preempt(instance, vcpu);
}

static void eevdf_sleep(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    struct eevdf_vcpu *vcpu = eevdf_vcpu_of(base);

    if (eevdf_is_current(instance, vcpu)) {
        model_kick(instance, base->cpu);
        return;
    }
    eevdf_pay(instance, eevdf_cpu_under(instance, vcpu), now);
    eevdf_block(instance, vcpu);
}

/* The running VCPU gives away a slice. */
static void eevdf_yield(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    struct eevdf_vcpu *vcpu = eevdf_vcpu_of(base);
    struct eevdf_cpu *cpu = eevdf_cpu_under(instance, vcpu);

    if (!eevdf_is_current(instance, vcpu))
        return;
    eevdf_pay(instance, cpu, now);
    if (!list_holds(&vcpu->queue))
        return;
    vcpu->deadline += eevdf_virtual(eevdf_slice_ns(instance), vcpu->weight);
    cpu->is_protected = false;
    model_kick(instance, base->cpu);
}

static enum laxity_error eevdf_check(const struct laxity_parameters *parameters)
{
    if (parameters->weight < 1 || parameters->weight > LAXITY_WEIGHT_MAX)
        return LAXITY_ERROR_WEIGHT;
    if (parameters->quota_ns < 0 || parameters->quota_ns > LAXITY_DURATION_MAX)
        return LAXITY_ERROR_QUOTA;
    if (parameters->quota_period_ns < 1 || parameters->quota_period_ns > LAXITY_DURATION_MAX)
        return LAXITY_ERROR_QUOTA_PERIOD;
    if (parameters->quota_burst_ns < 0 || parameters->quota_burst_ns > parameters->quota_ns)
        return LAXITY_ERROR_QUOTA_BURST;
    return LAXITY_OK;
}

static enum laxity_error eevdf_check_settings(const struct laxity_settings *settings)
{
    if (settings->jiffy_ns < 1 || settings->jiffy_ns > LAXITY_ACCOUNTING_MAX)
        return LAXITY_ERROR_JIFFY;
    if (settings->base_slice_ns < 0 || settings->base_slice_ns > LAXITY_ACCOUNTING_MAX)
        return LAXITY_ERROR_BASE_SLICE;
    return LAXITY_OK;
}

static enum laxity_error eevdf_init(struct laxity_instance *instance,
                                    const struct laxity_settings *settings)
{
    enum laxity_error error = eevdf_check_settings(settings);

    if (error)
        return error;
    instance->settings = *settings;
    list_init(&eevdf_of(instance)->domains);
    return LAXITY_OK;
}

static void eevdf_add_cpu(struct laxity_instance *instance, struct laxity_cpu *base, int64_t now)
{
    struct eevdf_cpu *cpu = eevdf_cpu_of(base);

    list_init(&cpu->queue);
    cpu->charged_ns = now;
    eevdf_of(instance)->cpu_count++;
}

static void eevdf_remove_cpu(struct laxity_instance *instance, struct laxity_cpu *cpu, int64_t now)
{
    eevdf_tick_on(instance, eevdf_cpu_of(cpu), false, now);
    eevdf_of(instance)->cpu_count--;
}

/* A domain begins with a full quota, also after its quota is set. */
static void eevdf_set_quota(struct eevdf_domain *domain, int64_t now)
{
    domain->pool_ns = domain->domain.parameters.quota_ns;
    domain->refilled_ns = now - now % domain->domain.parameters.quota_period_ns;
}

static enum laxity_error eevdf_add_domain(struct laxity_instance *instance,
                                          struct laxity_domain *base,
                                          const struct laxity_parameters *parameters)
{
    struct eevdf_domain *domain = eevdf_domain_of(base);
    enum laxity_error error = eevdf_check(parameters);

    if (error)
        return error;
    base->parameters = *parameters;
    list_init(&domain->vcpus);
    list_append(&eevdf_of(instance)->domains, &domain->member);
    eevdf_set_quota(domain, 0);
    return LAXITY_OK;
}

static void eevdf_remove_domain(struct laxity_instance *instance, struct laxity_domain *domain)
{
    list_remove(&eevdf_domain_of(domain)->member);
    eevdf_arm(instance);
}

static enum laxity_error eevdf_add_vcpu(struct laxity_instance *instance, struct laxity_vcpu *base,
                                        const struct laxity_parameters *parameters, int64_t now)
{
    struct eevdf_vcpu *vcpu = eevdf_vcpu_of(base);

    (void)now;
    base->parameters = *parameters;
    list_append(&eevdf_domain_of(base->domain)->vcpus, &vcpu->member);
    eevdf_arm(instance);
    return LAXITY_OK;
}

static void eevdf_remove_vcpu(struct laxity_instance *instance, struct laxity_vcpu *base,
                              int64_t now)
{
    struct eevdf_vcpu *vcpu = eevdf_vcpu_of(base);

    eevdf_pay(instance, eevdf_cpu_under(instance, vcpu), now);
    if (list_holds(&vcpu->queue))
        eevdf_dequeue(instance, vcpu);
    eevdf_set_counted(vcpu, false);
    list_remove(&vcpu->member);
    eevdf_arm(instance);
}

static void eevdf_move_vcpu(struct laxity_instance *instance, struct laxity_vcpu *base,
                            uint32_t number, int64_t now)
{
    struct eevdf_vcpu *vcpu = eevdf_vcpu_of(base);

    eevdf_pay(instance, eevdf_cpu_under(instance, vcpu), now);
    if (list_holds(&vcpu->queue))
        eevdf_dequeue(instance, vcpu);
    model_migrate(instance, base, number);
}

static enum laxity_error eevdf_set_settings(struct laxity_instance *instance,
                                            const struct laxity_settings *settings, int64_t now)
{
    enum laxity_error error = eevdf_check_settings(settings);

    if (error)
        return error;
    instance->settings = *settings;
    for (uint32_t number = 0; number < instance->cpus; number++) {
        struct eevdf_cpu *cpu;
        if (!instance->cpu[number])
            continue;
        cpu = eevdf_cpu_of(instance->cpu[number]);
        eevdf_tick_on(instance, cpu, false, now);
        eevdf_tick_on(instance, cpu, cpu->cpu.current != NULL, now);
    }
    return LAXITY_OK;
}

static enum laxity_error eevdf_set_domain(struct laxity_instance *instance,
                                          struct laxity_domain *base,
                                          const struct laxity_parameters *parameters, int64_t now)
{
    struct eevdf_domain *domain = eevdf_domain_of(base);
    enum laxity_error error = eevdf_check(parameters);

    if (error)
        return error;
    for (uint32_t number = 0; number < instance->cpus; number++)
        if (instance->cpu[number])
            eevdf_pay(instance, eevdf_cpu_of(instance->cpu[number]), now);
    base->parameters = *parameters;
    eevdf_set_quota(domain, now);
    if (domain->is_throttled)
        eevdf_unthrottle(instance, domain, now);
    eevdf_arm(instance);
    return LAXITY_OK;
}

/* Weight and quota belong to the domain: a VCPU has no parameters. */
static enum laxity_error eevdf_set_vcpu(struct laxity_instance *instance, struct laxity_vcpu *vcpu,
                                        const struct laxity_parameters *parameters, int64_t now)
{
    (void)instance, (void)now;
    vcpu->parameters = *parameters;
    return LAXITY_OK;
}

static void eevdf_dump(struct laxity_instance *instance, struct laxity_cpu *base,
                       struct laxity_dump *dump)
{
    struct list *domains = &eevdf_of(instance)->domains;

    for (struct list *one = domains->next; one != domains; one = one->next) {
        struct eevdf_domain *domain = laxity_container(one, struct eevdf_domain, member);
        for (struct list *node = domain->vcpus.next; node != &domain->vcpus; node = node->next) {
            struct eevdf_vcpu *vcpu = laxity_container(node, struct eevdf_vcpu, member);
            const char *state = "throttled";
            if (vcpu->vcpu.cpu != base->number)
                continue;
            if (base->current == &vcpu->vcpu)
                state = "runs";
            else if (!vcpu->vcpu.runnable)
                continue;
            else if (list_holds(&vcpu->queue))
                state = "ready";
            dump->line(dump, &vcpu->vcpu, state, domain->pool_ns, LAXITY_NEVER);
        }
    }
}

const struct laxity_policy laxity_eevdf = {
    .instance_bytes = sizeof(struct eevdf_instance),
    .cpu_bytes = sizeof(struct eevdf_cpu),
    .domain_bytes = sizeof(struct eevdf_domain),
    .vcpu_bytes = sizeof(struct eevdf_vcpu),
    .steals = true,
    .init = eevdf_init,
    .add_cpu = eevdf_add_cpu,
    .remove_cpu = eevdf_remove_cpu,
    .add_domain = eevdf_add_domain,
    .remove_domain = eevdf_remove_domain,
    .add_vcpu = eevdf_add_vcpu,
    .remove_vcpu = eevdf_remove_vcpu,
    .move_vcpu = eevdf_move_vcpu,
    .wake = eevdf_wake,
    .sleep = eevdf_sleep,
    .yield = eevdf_yield,
    .schedule = eevdf_schedule,
    .timer = eevdf_timer,
    .account = eevdf_account,
    .set_settings = eevdf_set_settings,
    .set_domain = eevdf_set_domain,
    .set_vcpu = eevdf_set_vcpu,
    .become = model_become,
    .dump = eevdf_dump,
};
