/* SPDX-License-Identifier: MIT */
/*
 * Credit: Xen's proportional-share scheduler as RT-Xen (EMSOFT 2011, section 3.1) and "Supporting
 * Soft Real-Time Tasks in the Xen Hypervisor" (VEE 2010, section 3) describe that of Xen 3 and 4.0.
 * docs/explanation/policies.md has the rules.
 *
 * Credits are nanoseconds of CPU. Every accounting time the domains get credits by weight; at every
 * tick the running VCPU pays one whole tick. A VCPU with credits is `under`, one without is `over`,
 * and one with credits that wakes is `boost` until the next tick.
 *
 * Queues: three a CPU, one for each class, first in first out, under the CPU's lock. The running
 * VCPU is in none. Work is stolen from another CPU's queues under that CPU's lock, by try_lock.
 * Credits, `active` and domains are written by ticks (under the lock of the VCPU's CPU) and by
 * accounting (under all).
 *
 * Timers: the CPU's timer is its tick, armed while a VCPU runs. The account timer is armed while a
 * VCPU is active. A decision is given an end only when that end can change something: when a VCPU
 * waits that would have its turn, or could be stolen.
 */
#include <laxity/policy.h>

#include "share.h"

enum credit_class {
    CREDIT_BOOST,
    CREDIT_UNDER,
    CREDIT_OVER,
    CREDIT_CLASSES,
    CREDIT_PARKED = CREDIT_CLASSES, /* for the trace: in no queue, its domain's cap is used up */
};

/* How many VCPUs of one class a thief looks at, so that stealing stays bounded. */
#define CREDIT_STEAL_SCAN 16

struct credit_instance {
    struct laxity_instance instance;
    struct list domains;
    uint32_t cpu_count;
    uint32_t active_count;
    bool account_armed;
};

struct credit_vcpu {
    struct laxity_vcpu vcpu;
    struct list member; /* of the domain's `vcpus` */
    struct list queue;  /* of its CPU's queue of its class, while it waits */
    int64_t credits_ns;
    enum credit_class class;
    bool active; /* gets credits; set by the tick that finds it running */
    bool parked;
};

struct credit_cpu {
    struct laxity_cpu cpu;
    struct list queue[CREDIT_CLASSES];
    int64_t chosen_ns; /* when the running VCPU was chosen */
    int64_t until_ns;  /* the end of its turn, as told to the embedder */
    bool ticking;
};

static inline struct credit_instance *credit_instance_of(struct laxity_instance *instance)
{
    return laxity_container(instance, struct credit_instance, instance);
}

static inline struct credit_cpu *credit_cpu_of(struct laxity_cpu *cpu)
{
    return laxity_container(cpu, struct credit_cpu, cpu);
}

static inline struct credit_vcpu *credit_vcpu_of(struct laxity_vcpu *vcpu)
{
    return laxity_container(vcpu, struct credit_vcpu, vcpu);
}

static inline void credit_trace(struct laxity_instance *instance, const struct credit_vcpu *vcpu,
                                enum laxity_event event, int64_t argument)
{
    if (instance->tracing)
        laxity_trace(instance, &vcpu->vcpu, event, argument);
}

/* The best class with a VCPU waiting on this CPU; CREDIT_CLASSES: nobody waits. */
static inline enum credit_class credit_best_waiting(const struct credit_cpu *cpu)
{
    for (int class = CREDIT_BOOST; class < CREDIT_CLASSES; class ++)
        if (!list_is_empty(&cpu->queue[class]))
            return class;
    return CREDIT_CLASSES;
}

static int64_t credit_until(struct laxity_instance *instance, struct credit_cpu *cpu, int64_t now)
{
    enum credit_class class;
    bool could_steal;

    if (!cpu->cpu.current)
        return LAXITY_NEVER;
    class = credit_vcpu_of(cpu->cpu.current)->class;
    could_steal = class == CREDIT_OVER && credit_instance_of(instance)->cpu_count > 1;
    if (credit_best_waiting(cpu) > class && !could_steal)
        return LAXITY_NEVER;
    return share_turn_end(instance, cpu->chosen_ns, now);
}

/* After the queues or the running VCPU's class have changed. */
static void credit_review(struct laxity_instance *instance, struct credit_cpu *cpu, int64_t now)
{
    int64_t until_ns = credit_until(instance, cpu, now);
    if (until_ns == cpu->until_ns)
        return;
    cpu->until_ns = until_ns;
    laxity_extend(instance, cpu->cpu.number, until_ns);
}

static inline void credit_enqueue(struct credit_cpu *cpu, struct credit_vcpu *vcpu)
{
    list_append(&cpu->queue[vcpu->class], &vcpu->queue);
}

static inline void credit_dequeue(struct credit_vcpu *vcpu)
{
    if (list_holds(&vcpu->queue))
        list_remove(&vcpu->queue);
}

/* A VCPU became ready on a CPU that is busy: asks the first idle CPU on which it may run to look
 * for whom to take, be it this one or another who waits. */
static void credit_call_idle(struct laxity_instance *instance, const struct credit_vcpu *vcpu)
{
    uint32_t own = vcpu->vcpu.cpu;
    if (credit_instance_of(instance)->cpu_count == 1)
        return;
    for (uint32_t number = share_next_cpu(instance, own); number != own;
         number = share_next_cpu(instance, number)) {
        if (instance->cpu[number] && !instance->cpu[number]->current &&
            laxity_may_run_on(instance, &vcpu->vcpu, number)) {
            laxity_kick(instance, number);
            return;
        }
    }
}

/* Puts a VCPU that became ready into its queue, and calls whoever should run it. */
static void credit_ready(struct laxity_instance *instance, struct credit_vcpu *vcpu, int64_t now)
{
    struct credit_cpu *cpu = credit_cpu_of(instance->cpu[vcpu->vcpu.cpu]);
    const struct laxity_vcpu *current = cpu->cpu.current;

    credit_enqueue(cpu, vcpu);
    if (!current || vcpu->class < credit_vcpu_of(cpu->cpu.current)->class)
        laxity_kick(instance, cpu->cpu.number);
    if (current)
        credit_call_idle(instance, vcpu);
    credit_review(instance, cpu, now);
}

static void credit_set_active(struct laxity_instance *instance, struct credit_vcpu *vcpu,
                              bool active)
{
    if (vcpu->active == active)
        return;
    vcpu->active = active;
    share_domain_of(vcpu->vcpu.domain)->active_count += active ? 1 : -1;
    credit_instance_of(instance)->active_count += active ? 1 : -1;
}

static enum laxity_error credit_init(struct laxity_instance *instance,
                                     const struct laxity_settings *settings)
{
    enum laxity_error error = share_check_settings(settings);
    if (error)
        return error;
    instance->settings = *settings;
    list_init(&credit_instance_of(instance)->domains);
    return LAXITY_OK;
}

static void credit_add_cpu(struct laxity_instance *instance, struct laxity_cpu *base, int64_t now)
{
    struct credit_cpu *cpu = credit_cpu_of(base);
    for (int class = 0; class < CREDIT_CLASSES; class ++)
        list_init(&cpu->queue[class]);
    cpu->chosen_ns = now;
    cpu->until_ns = LAXITY_NEVER;
    credit_instance_of(instance)->cpu_count++;
}

static void credit_remove_cpu(struct laxity_instance *instance, struct laxity_cpu *base,
                              int64_t now)
{
    (void)now;
    credit_cpu_of(base)->ticking = false;
    laxity_arm_timer(instance, base->number, LAXITY_NEVER);
    credit_instance_of(instance)->cpu_count--;
}

static enum laxity_error credit_set_domain(struct laxity_instance *instance,
                                           struct laxity_domain *domain,
                                           const struct laxity_parameters *parameters, int64_t now)
{
    enum laxity_error error = share_check(parameters);
    (void)instance;
    (void)now; /* weight and cap count from the next accounting */
    if (!error)
        domain->parameters = *parameters;
    return error;
}

static enum laxity_error credit_add_domain(struct laxity_instance *instance,
                                           struct laxity_domain *base,
                                           const struct laxity_parameters *parameters)
{
    struct share_domain *domain = share_domain_of(base);
    enum laxity_error error = credit_set_domain(instance, base, parameters, 0);
    if (error)
        return error;
    list_init(&domain->vcpus);
    list_append(&credit_instance_of(instance)->domains, &domain->member);
    return LAXITY_OK;
}

static void credit_remove_domain(struct laxity_instance *instance, struct laxity_domain *domain)
{
    (void)instance;
    list_remove(&share_domain_of(domain)->member);
}

static enum laxity_error credit_add_vcpu(struct laxity_instance *instance, struct laxity_vcpu *base,
                                         const struct laxity_parameters *parameters, int64_t now)
{
    struct credit_vcpu *vcpu = credit_vcpu_of(base);
    (void)instance;
    (void)now;
    base->parameters = *parameters;
    vcpu->class = CREDIT_UNDER;
    list_append(&share_domain_of(base->domain)->vcpus, &vcpu->member);
    return LAXITY_OK;
}

static void credit_remove_vcpu(struct laxity_instance *instance, struct laxity_vcpu *base,
                               int64_t now)
{
    struct credit_vcpu *vcpu = credit_vcpu_of(base);
    credit_dequeue(vcpu);
    credit_set_active(instance, vcpu, false);
    list_remove(&vcpu->member);
    credit_review(instance, credit_cpu_of(instance->cpu[base->cpu]), now);
}

/* Asleep, it is in no queue, and its credits are its own. */
static void credit_move_vcpu(struct laxity_instance *instance, struct laxity_vcpu *vcpu,
                             uint32_t cpu, int64_t now)
{
    (void)now;
    if (vcpu->cpu == cpu)
        return;
    vcpu->cpu = cpu;
    credit_trace(instance, credit_vcpu_of(vcpu), LAXITY_EVENT_MIGRATE, cpu);
}

/* Weight and cap are the domain's: a VCPU has nothing of its own. */
static enum laxity_error credit_set_vcpu(struct laxity_instance *instance, struct laxity_vcpu *vcpu,
                                         const struct laxity_parameters *parameters, int64_t now)
{
    (void)instance;
    (void)now;
    vcpu->parameters = *parameters;
    return LAXITY_OK;
}

static void credit_wake(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    struct credit_vcpu *vcpu = credit_vcpu_of(base);

    if (vcpu->parked || list_holds(&vcpu->queue) || base == instance->cpu[base->cpu]->current)
        return;
    if (vcpu->class == CREDIT_UNDER) {
        vcpu->class = CREDIT_BOOST;
        credit_trace(instance, vcpu, LAXITY_EVENT_CLASS, CREDIT_BOOST);
    }
    credit_ready(instance, vcpu, now);
}

static void credit_sleep(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    struct credit_cpu *cpu = credit_cpu_of(instance->cpu[base->cpu]);

    credit_dequeue(credit_vcpu_of(base));
    if (base == cpu->cpu.current)
        laxity_kick(instance, cpu->cpu.number);
    else
        credit_review(instance, cpu, now);
}

static void credit_yield(struct laxity_instance *instance, struct laxity_vcpu *vcpu, int64_t now)
{
    (void)now;
    if (vcpu == instance->cpu[vcpu->cpu]->current)
        laxity_kick(instance, vcpu->cpu);
}

/* The first VCPU in a queue that may run on `cpu`. */
static struct credit_vcpu *credit_first_for(struct laxity_instance *instance, struct list *queue,
                                            const struct credit_cpu *cpu)
{
    struct list *node = queue->next;
    for (int seen = 0; node != queue && seen < CREDIT_STEAL_SCAN; node = node->next, seen++) {
        struct credit_vcpu *vcpu = laxity_container(node, struct credit_vcpu, queue);
        if (!vcpu->vcpu.on_cpu && laxity_may_run_on(instance, &vcpu->vcpu, cpu->cpu.number))
            return vcpu;
    }
    return NULL;
}

/* Takes a VCPU of a class better than `own` from another CPU, or returns NULL. */
static struct credit_vcpu *credit_steal(struct laxity_instance *instance, struct credit_cpu *cpu,
                                        enum credit_class own, int64_t now)
{
    uint32_t self = cpu->cpu.number;

    for (uint32_t number = share_next_cpu(instance, self); number != self;
         number = share_next_cpu(instance, number)) {
        struct credit_vcpu *vcpu = NULL;
        struct credit_cpu *peer;
        if (!instance->cpu[number] || !laxity_try_lock(instance, number))
            continue;
        peer = credit_cpu_of(instance->cpu[number]);
        for (int class = CREDIT_BOOST; !vcpu && class < (int)own; class ++)
            vcpu = credit_first_for(instance, &peer->queue[class], cpu);
        if (vcpu) {
            credit_dequeue(vcpu);
            vcpu->vcpu.cpu = self;
            credit_review(instance, peer, now);
        }
        laxity_unlock(instance, number);
        if (vcpu) {
            credit_trace(instance, vcpu, LAXITY_EVENT_MIGRATE, self);
            return vcpu;
        }
    }
    return NULL;
}

/* Takes the VCPU that should run from the CPU's queues, or from another CPU's. */
static struct credit_vcpu *credit_take(struct laxity_instance *instance, struct credit_cpu *cpu,
                                       int64_t now)
{
    enum credit_class best = credit_best_waiting(cpu);
    struct credit_vcpu *vcpu = NULL;

    if (best >= CREDIT_OVER && credit_instance_of(instance)->cpu_count > 1)
        vcpu = credit_steal(instance, cpu, best, now);
    if (!vcpu && best < CREDIT_CLASSES) {
        vcpu = laxity_container(cpu->queue[best].next, struct credit_vcpu, queue);
        credit_dequeue(vcpu);
    }
    return vcpu;
}

static void credit_set_ticking(struct laxity_instance *instance, struct credit_cpu *cpu,
                               bool ticking, int64_t now)
{
    if (cpu->ticking == ticking)
        return;
    cpu->ticking = ticking;
    laxity_arm_timer(instance, cpu->cpu.number,
                     ticking ? share_next_multiple(instance->settings.tick_ns, now) : LAXITY_NEVER);
}

static struct laxity_decision credit_schedule(struct laxity_instance *instance,
                                              struct laxity_cpu *base, int64_t now)
{
    struct credit_cpu *cpu = credit_cpu_of(base);
    struct credit_vcpu *before = base->current ? credit_vcpu_of(base->current) : NULL;
    struct credit_vcpu *chosen;

    if (before && before->vcpu.runnable && !before->parked)
        credit_enqueue(cpu, before);
    chosen = credit_take(instance, cpu, now);
    base->current = chosen ? &chosen->vcpu : NULL;
    cpu->chosen_ns = now;
    cpu->until_ns = credit_until(instance, cpu, now);
    credit_set_ticking(instance, cpu, chosen != NULL, now);
    return (struct laxity_decision){base->current, cpu->until_ns};
}

/* The tick. */
static void credit_timer(struct laxity_instance *instance, struct laxity_cpu *base, int64_t now)
{
    struct credit_cpu *cpu = credit_cpu_of(base);
    struct credit_vcpu *vcpu;
    struct credit_instance *credit = credit_instance_of(instance);

    if (!base->current) {
        cpu->ticking = false;
        return;
    }
    vcpu = credit_vcpu_of(base->current);
    if (vcpu->class == CREDIT_BOOST) {
        vcpu->class = CREDIT_UNDER;
        credit_trace(instance, vcpu, LAXITY_EVENT_CLASS, CREDIT_UNDER);
    }
    vcpu->credits_ns -= instance->settings.tick_ns;
    credit_trace(instance, vcpu, LAXITY_EVENT_BUDGET, vcpu->credits_ns);
    credit_set_active(instance, vcpu, true);
    if (!credit->account_armed) {
        int64_t accounting_ns = instance->settings.accounting_ns;
        credit->account_armed = true;
        laxity_arm_account(instance, share_next_multiple(accounting_ns, now - 1));
    }
    laxity_arm_timer(instance, base->number, share_next_multiple(instance->settings.tick_ns, now));
    credit_review(instance, cpu, now);
}

/* Puts a VCPU into the class that its credits give it, and into that class's queue if it waits. */
LAXITY_APART static void credit_classify(struct laxity_instance *instance, struct credit_vcpu *vcpu,
                                         bool capped, int64_t now)
{
    enum credit_class class = vcpu->credits_ns < 0 ? CREDIT_OVER : CREDIT_UNDER;
    struct credit_cpu *cpu = credit_cpu_of(instance->cpu[vcpu->vcpu.cpu]);
    bool running = &vcpu->vcpu == cpu->cpu.current;
    bool changed = class != vcpu->class;

    vcpu->class = class;
    if (capped && class == CREDIT_OVER) {
        if (!vcpu->parked)
            credit_trace(instance, vcpu, LAXITY_EVENT_CLASS, CREDIT_PARKED);
        vcpu->parked = true;
        credit_dequeue(vcpu);
        if (running)
            laxity_kick(instance, cpu->cpu.number);
        return;
    }
    if (changed || vcpu->parked)
        credit_trace(instance, vcpu, LAXITY_EVENT_CLASS, class);
    if (vcpu->parked) {
        vcpu->parked = false;
        if (vcpu->vcpu.runnable && !running)
            credit_ready(instance, vcpu, now);
    } else if (changed && list_holds(&vcpu->queue)) {
        credit_dequeue(vcpu);
        credit_enqueue(cpu, vcpu);
    }
}

static void credit_pay(struct laxity_instance *instance, struct share_domain *domain,
                       int64_t share_ns, int64_t now)
{
    int64_t accounting_ns = instance->settings.accounting_ns;

    for (struct list *node = domain->vcpus.next; node != &domain->vcpus; node = node->next) {
        struct credit_vcpu *vcpu = laxity_container(node, struct credit_vcpu, member);
        if (!vcpu->active)
            continue;
        vcpu->credits_ns += share_ns;
        if (vcpu->credits_ns < -accounting_ns)
            vcpu->credits_ns = -accounting_ns;
        if (vcpu->credits_ns > accounting_ns) {
            vcpu->credits_ns = 0;
            credit_set_active(instance, vcpu, false);
        }
        credit_trace(instance, vcpu, LAXITY_EVENT_REPLENISH, vcpu->credits_ns);
        credit_classify(instance, vcpu, domain->domain.parameters.cap_percent != 0, now);
    }
}

static void credit_account(struct laxity_instance *instance, int64_t now)
{
    struct credit_instance *credit = credit_instance_of(instance);
    struct share_rest rest = share_saturate(instance, &credit->domains, credit->cpu_count);

    for (struct list *node = credit->domains.next; node != &credit->domains; node = node->next) {
        struct share_domain *domain = laxity_container(node, struct share_domain, member);
        int64_t share_ns;
        if (!domain->active_count)
            continue;
        share_ns = share_of(instance, &rest, domain);
        if (domain->active_count > 1)
            share_ns /= domain->active_count;
        credit_pay(instance, domain, share_ns, now);
    }
    for (uint32_t number = 0; number < instance->cpus; number++)
        if (instance->cpu[number])
            credit_review(instance, credit_cpu_of(instance->cpu[number]), now);

    credit->account_armed = credit->active_count > 0;
    if (credit->account_armed)
        laxity_arm_account(instance, share_next_multiple(instance->settings.accounting_ns, now));
}

static enum laxity_error credit_set_settings(struct laxity_instance *instance,
                                             const struct laxity_settings *settings, int64_t now)
{
    enum laxity_error error = share_check_settings(settings);
    if (error)
        return error;
    instance->settings = *settings;
    for (uint32_t number = 0; number < instance->cpus; number++) {
        struct credit_cpu *cpu;
        if (!instance->cpu[number])
            continue;
        cpu = credit_cpu_of(instance->cpu[number]);
        if (cpu->ticking)
            laxity_arm_timer(instance, number, share_next_multiple(settings->tick_ns, now));
        credit_review(instance, cpu, now);
    }
    if (credit_instance_of(instance)->account_armed)
        laxity_arm_account(instance, share_next_multiple(settings->accounting_ns, now));
    return LAXITY_OK;
}

/* No other policy can take over a VCPU's credits. */
static enum laxity_error credit_become(struct laxity_instance *instance,
                                       const struct laxity_policy *policy, int64_t now)
{
    (void)now;
    return policy == instance->policy ? LAXITY_OK : LAXITY_ERROR_POLICY;
}

static void credit_dump(struct laxity_instance *instance, struct laxity_cpu *base,
                        struct laxity_dump *dump)
{
    static const char *const names[CREDIT_CLASSES] = {"boost", "under", "over"};
    struct credit_cpu *cpu = credit_cpu_of(base);

    (void)instance;
    if (base->current)
        dump->line(dump, base->current, "runs", credit_vcpu_of(base->current)->credits_ns,
                   cpu->until_ns);
    for (int class = 0; class < CREDIT_CLASSES; class ++)
        for (struct list *node = cpu->queue[class].next; node != &cpu->queue[class];
             node = node->next) {
            struct credit_vcpu *vcpu = laxity_container(node, struct credit_vcpu, queue);
            dump->line(dump, &vcpu->vcpu, names[class], vcpu->credits_ns, LAXITY_NEVER);
        }
}

const struct laxity_policy laxity_credit = {
    .instance_bytes = sizeof(struct credit_instance),
    .cpu_bytes = sizeof(struct credit_cpu),
    .domain_bytes = sizeof(struct share_domain),
    .vcpu_bytes = sizeof(struct credit_vcpu),
    .steals = true,
    .init = credit_init,
    .add_cpu = credit_add_cpu,
    .remove_cpu = credit_remove_cpu,
    .add_domain = credit_add_domain,
    .remove_domain = credit_remove_domain,
    .add_vcpu = credit_add_vcpu,
    .remove_vcpu = credit_remove_vcpu,
    .move_vcpu = credit_move_vcpu,
    .wake = credit_wake,
    .sleep = credit_sleep,
    .yield = credit_yield,
    .schedule = credit_schedule,
    .timer = credit_timer,
    .account = credit_account,
    .set_settings = credit_set_settings,
    .set_domain = credit_set_domain,
    .set_vcpu = credit_set_vcpu,
    .become = credit_become,
    .dump = credit_dump,
};
