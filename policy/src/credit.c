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
 * Accounting pays claims, not VCPUs: domains of the same weight, cap and number of active VCPUs get
 * the same, and are one claim. A claim knows what each of its VCPUs has got, and a VCPU's credits
 * are what it has beside that. Accounting looks only at VCPUs for which something may change:
 * those that a tick charged or that were boosted since the last accounting (`touched`), those whose
 * domain claims something else than before, and those whose credits become enough for another class
 * or for no more (the claim's `due`). It looks at them in the order of the host file, since that is
 * the order of queues.
 *
 * Timers: the CPU's timer is its tick, armed while a VCPU runs. The account timer is armed while a
 * VCPU is active. A decision is given an end only when that end can change something: when a VCPU
 * waits that would have its turn, or could be stolen.
 */
#include <laxity/policy.h>

#include "heap.h"
#include "share.h"

enum credit_class {
    CREDIT_BOOST,
    CREDIT_UNDER,
    CREDIT_OVER,
    CREDIT_CLASSES,
    CREDIT_PARKED = CREDIT_CLASSES, /* for the trace: in no queue, its domain's cap is used up */
};

/* The most VCPUs of one class that a thief checks: stealing stays bounded. */
#define CREDIT_STEAL_SCAN 16

/* The number of claims that several domains can share. A domain without a shared claim has its own,
 * which costs accounting more time and changes nothing else. */
#define CREDIT_CLAIMS 16

struct credit_claim {
    struct share_claim share;
    int64_t paid_ns; /* all that each VCPU was paid */
    struct heap due; /* active VCPUs, by what is paid when they must be looked at */
};

struct credit_instance {
    struct laxity_instance instance;
    struct list domains;
    struct list claims;  /* of domains with active VCPUs */
    struct list changed; /* domains that have to change their claim */
    struct list turns;   /* scratch of accounting: VCPUs to check, in the order of the file */
    struct credit_claim claim[CREDIT_CLAIMS];
    uint32_t claim_count; /* CREDIT_CLAIMS, as a number that the verifier of BPF does not unroll */
    uint64_t next_number;
    uint32_t cpu_count;
    uint32_t active_count;
    bool account_armed;
};

struct credit_domain {
    struct laxity_domain domain;
    struct list member;  /* of the instance's domains */
    struct list changed; /* of the instance's `changed` */
    struct list vcpus;
    struct credit_claim own;
    struct credit_claim *claim; /* its own, or one of the instance's */
    uint32_t active_count;
    uint64_t number; /* rises in the order of the file */
};

struct credit_vcpu {
    struct laxity_vcpu vcpu;
    struct list member;   /* of the domain's `vcpus` */
    struct list queue;    /* of its CPU's queue of its class, while it waits */
    struct list touched;  /* of the list of the CPU where it was touched */
    struct heap_node due; /* of the claim's `due`; its key is LAXITY_NEVER while it is not there */
    struct list turn;     /* of the instance's `turns` */
    uint64_t number;      /* rises in the order of the file, within the domain */
    bool has_turn;
    int64_t credits_ns; /* beside what the claim has paid, while it is active; see credit_balance */
    enum credit_class class;
    bool active; /* gets credits; set by the tick that finds it running */
    bool parked;
};

struct credit_cpu {
    struct laxity_cpu cpu;
    struct list queue[CREDIT_CLASSES];
    struct list touched;
    int64_t chosen_ns; /* when the running VCPU was chosen */
    int64_t until_ns;  /* the end of its turn, as told to the embedder */
    int64_t tick_ns;   /* when its next tick is due, if it is ticking */
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

static inline struct credit_domain *credit_domain_of(struct laxity_domain *domain)
{
    return laxity_container(domain, struct credit_domain, domain);
}

/* A VCPU's credits. One that is not active has none, and no debt. */
static inline int64_t credit_balance(const struct credit_vcpu *vcpu)
{
    if (!vcpu->active)
        return 0;
    return vcpu->credits_ns + credit_domain_of(vcpu->vcpu.domain)->claim->paid_ns;
}

/* The next accounting looks at the VCPU. The lock of its CPU is held. */
static inline void credit_touch(struct laxity_instance *instance, struct credit_vcpu *vcpu)
{
    if (!list_holds(&vcpu->touched))
        list_append(&credit_cpu_of(instance->cpu[vcpu->vcpu.cpu])->touched, &vcpu->touched);
}

static inline void credit_trace(struct laxity_instance *instance, const struct credit_vcpu *vcpu,
                                enum laxity_event event, int64_t argument)
{
    if (instance->tracing)
        laxity_trace(instance, &vcpu->vcpu, event, argument);
}

/* The best class with a VCPU waiting on this CPU; CREDIT_CLASSES: no VCPU waits. */
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

/* Is called after the queues or the running VCPU's class have changed. */
static void credit_review(struct laxity_instance *instance, struct credit_cpu *cpu, int64_t now)
{
    int64_t until_ns = credit_until(instance, cpu, now);
    /* A turn that is over gets no other one from what comes before a decision that is late. */
    if (until_ns == cpu->until_ns || cpu->until_ns < now)
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

/* A VCPU became ready on a CPU that is busy: the first idle CPU on which it may run is asked to
 * take a VCPU, this one or another that waits. */
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

/* Puts a VCPU that became ready into its queue, and calls the CPU that should run it. */
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

/* The domain gets another claim at the next accounting, which looks at all of its VCPUs. Every lock
 * is held. */
static void credit_change(struct laxity_instance *instance, struct credit_domain *domain)
{
    if (!list_holds(&domain->changed))
        list_append(&credit_instance_of(instance)->changed, &domain->changed);
}

static void credit_set_active(struct laxity_instance *instance, struct credit_vcpu *vcpu,
                              bool active)
{
    if (vcpu->active == active)
        return;
    vcpu->active = active;
    credit_domain_of(vcpu->vcpu.domain)->active_count += active ? 1 : -1;
    credit_instance_of(instance)->active_count += active ? 1 : -1;
}

/* Takes a VCPU out of the claim's `due`, if it is there. */
LAXITY_APART static void credit_forget_due(struct credit_claim *claim, struct credit_vcpu *vcpu)
{
    if (vcpu->due.key == LAXITY_NEVER)
        return;
    heap_remove(&claim->due, &vcpu->due);
    vcpu->due.key = LAXITY_NEVER;
}

/* The total payment at which an active VCPU has enough credits for another class, or to get no
 * more.
 */
static inline int64_t credit_due(const struct laxity_instance *instance,
                                 const struct credit_vcpu *vcpu)
{
    int64_t accounting_ns = instance->settings.accounting_ns;
    int64_t balance_ns = credit_balance(vcpu);

    return (balance_ns < 0 ? 0 : accounting_ns + 1) - vcpu->credits_ns;
}

static enum laxity_error credit_init(struct laxity_instance *instance,
                                     const struct laxity_settings *settings)
{
    enum laxity_error error = share_check_settings(settings);
    if (error)
        return error;
    instance->settings = *settings;
    list_init(&credit_instance_of(instance)->domains);
    list_init(&credit_instance_of(instance)->claims);
    list_init(&credit_instance_of(instance)->changed);
    list_init(&credit_instance_of(instance)->turns);
    credit_instance_of(instance)->claim_count = CREDIT_CLAIMS;
    return LAXITY_OK;
}

static void credit_add_cpu(struct laxity_instance *instance, struct laxity_cpu *base, int64_t now)
{
    struct credit_cpu *cpu = credit_cpu_of(base);
    for (int class = 0; class < CREDIT_CLASSES; class ++)
        list_init(&cpu->queue[class]);
    list_init(&cpu->touched);
    cpu->chosen_ns = now;
    cpu->until_ns = LAXITY_NEVER;
    credit_instance_of(instance)->cpu_count++;
}

static void credit_remove_cpu(struct laxity_instance *instance, struct laxity_cpu *base,
                              int64_t now)
{
    struct credit_cpu *cpu = credit_cpu_of(base);

    (void)now;
    cpu->ticking = false;
    laxity_arm_timer(instance, base->number, LAXITY_NEVER);
    while (!list_is_empty(&cpu->touched)) {
        struct credit_vcpu *vcpu = laxity_container(cpu->touched.next, struct credit_vcpu, touched);
        list_remove(&vcpu->touched);
        credit_touch(instance, vcpu); /* on the CPU to which it has been moved */
    }
    credit_instance_of(instance)->cpu_count--;
}

static enum laxity_error credit_set_domain(struct laxity_instance *instance,
                                           struct laxity_domain *domain,
                                           const struct laxity_parameters *parameters, int64_t now)
{
    enum laxity_error error = share_check(parameters);
    (void)now; /* weight and cap count from the next accounting */
    if (error)
        return error;
    domain->parameters = *parameters;
    credit_change(instance, credit_domain_of(domain));
    return LAXITY_OK;
}

static enum laxity_error credit_add_domain(struct laxity_instance *instance,
                                           struct laxity_domain *base,
                                           const struct laxity_parameters *parameters)
{
    struct credit_instance *credit = credit_instance_of(instance);
    struct credit_domain *domain = credit_domain_of(base);
    enum laxity_error error = share_check(parameters);
    if (error)
        return error;
    base->parameters = *parameters;
    list_init(&domain->vcpus);
    domain->claim = &domain->own;
    domain->number = credit->next_number++;
    list_append(&credit->domains, &domain->member);
    return LAXITY_OK;
}

/* The domain leaves its claim, which is free if the domain was the last. */
static void credit_leave_claim(struct credit_domain *domain)
{
    struct credit_claim *claim = domain->claim;

    domain->claim = &domain->own;
    if (claim->share.domain_count && --claim->share.domain_count == 0)
        list_remove(&claim->share.member);
}

/* Its VCPUs have been removed. */
static void credit_remove_domain(struct laxity_instance *instance, struct laxity_domain *base)
{
    struct credit_domain *domain = credit_domain_of(base);

    (void)instance;
    credit_leave_claim(domain);
    if (list_holds(&domain->changed))
        list_remove(&domain->changed);
    list_remove(&domain->member);
}

static enum laxity_error credit_add_vcpu(struct laxity_instance *instance, struct laxity_vcpu *base,
                                         const struct laxity_parameters *parameters, int64_t now)
{
    struct credit_vcpu *vcpu = credit_vcpu_of(base);
    struct credit_domain *domain = credit_domain_of(base->domain);
    (void)now;
    base->parameters = *parameters;
    vcpu->class = CREDIT_UNDER;
    vcpu->due.key = LAXITY_NEVER;
    vcpu->number = credit_instance_of(instance)->next_number++;
    vcpu->due.order = vcpu->number;
    list_append(&domain->vcpus, &vcpu->member);
    return LAXITY_OK;
}

static void credit_remove_vcpu(struct laxity_instance *instance, struct laxity_vcpu *base,
                               int64_t now)
{
    struct credit_vcpu *vcpu = credit_vcpu_of(base);
    credit_dequeue(vcpu);
    credit_forget_due(credit_domain_of(base->domain)->claim, vcpu);
    if (list_holds(&vcpu->touched))
        list_remove(&vcpu->touched);
    credit_set_active(instance, vcpu, false);
    credit_change(instance, credit_domain_of(base->domain));
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

/* Weight and cap belong to the domain: a VCPU has no parameters. */
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
        credit_touch(instance, vcpu);
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

static void credit_arm_tick(struct laxity_instance *instance, struct credit_cpu *cpu, int64_t now)
{
    cpu->tick_ns = share_next_step(instance, instance->settings.tick_ns, now);
    laxity_arm_timer(instance, cpu->cpu.number, cpu->tick_ns);
}

static void credit_set_ticking(struct laxity_instance *instance, struct credit_cpu *cpu,
                               bool ticking, int64_t now)
{
    if (cpu->ticking == ticking)
        return;
    cpu->ticking = ticking;
    if (ticking)
        credit_arm_tick(instance, cpu, now);
    else
        laxity_arm_timer(instance, cpu->cpu.number, LAXITY_NEVER);
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

LAXITY_APART static void credit_tick(struct laxity_instance *instance, struct credit_cpu *cpu,
                                     int64_t now)
{
    struct credit_vcpu *vcpu;
    struct credit_instance *credit = credit_instance_of(instance);
    int64_t balance_ns;

    if (!cpu->cpu.current) {
        cpu->ticking = false;
        return;
    }
    vcpu = credit_vcpu_of(cpu->cpu.current);
    if (vcpu->class == CREDIT_BOOST) {
        vcpu->class = CREDIT_UNDER;
        credit_trace(instance, vcpu, LAXITY_EVENT_CLASS, CREDIT_UNDER);
    }
    balance_ns = credit_balance(vcpu) - instance->settings.tick_ns;
    vcpu->credits_ns = balance_ns - credit_domain_of(vcpu->vcpu.domain)->claim->paid_ns;
    credit_trace(instance, vcpu, LAXITY_EVENT_BUDGET, balance_ns);
    credit_set_active(instance, vcpu, true);
    credit_touch(instance, vcpu);
    if (!credit->account_armed) {
        credit->account_armed = true;
        laxity_arm_account(instance, share_accounting_after_tick(instance, now));
    }
    credit_arm_tick(instance, cpu, now);
    credit_review(instance, cpu, now);
}

static void credit_timer(struct laxity_instance *instance, struct laxity_cpu *base, int64_t now)
{
    struct credit_cpu *cpu = credit_cpu_of(base);

    /* The tick of that time came with the accounting. */
    if (now < cpu->tick_ns)
        laxity_arm_timer(instance, base->number, cpu->tick_ns);
    else
        credit_tick(instance, cpu, now);
}

/* Puts a VCPU into the class that its credits give it, and into that class's queue if it waits. */
LAXITY_APART static void credit_classify(struct laxity_instance *instance, struct credit_vcpu *vcpu,
                                         enum credit_class class, bool capped, int64_t now)
{
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

/* Whether a VCPU comes before another one in the file. */
static inline bool credit_is_before(const struct credit_vcpu *a, const struct credit_vcpu *b)
{
    uint64_t of_a = credit_domain_of(a->vcpu.domain)->number;
    uint64_t of_b = credit_domain_of(b->vcpu.domain)->number;
    return of_a < of_b || (of_a == of_b && a->number < b->number);
}

/* Puts a VCPU among the turns of this accounting. There are few, and most come in their order. */
LAXITY_APART static void credit_seat(struct laxity_instance *instance, struct credit_vcpu *vcpu)
{
    struct list *turns = &credit_instance_of(instance)->turns;
    struct list *node = turns->previous;

    while (node != turns &&
           credit_is_before(vcpu, laxity_container(node, struct credit_vcpu, turn)))
        node = node->previous;
    list_append(node->next, &vcpu->turn);
}

/* This accounting looks at the VCPU. */
static void credit_give_turn(struct laxity_instance *instance, struct credit_vcpu *vcpu)
{
    if (vcpu->has_turn)
        return;
    vcpu->has_turn = true;
    credit_seat(instance, vcpu);
}

/* Those that were touched have their turns. */
LAXITY_APART static void credit_take_touched(struct laxity_instance *instance, struct list *touched)
{
    while (!list_is_empty(touched)) {
        struct credit_vcpu *vcpu = laxity_container(touched->next, struct credit_vcpu, touched);
        struct credit_domain *domain = credit_domain_of(vcpu->vcpu.domain);
        list_remove(&vcpu->touched);
        if (!vcpu->active)
            continue;
        credit_give_turn(instance, vcpu);
        if (domain->active_count != domain->claim->share.active_count)
            credit_change(instance, domain);
    }
}

/* The claim that a domain should have: one of its weight, cap and number of active VCPUs, or a free
 * one, or its own. */
LAXITY_APART static struct credit_claim *credit_claim_for(struct laxity_instance *instance,
                                                          struct credit_domain *domain)
{
    struct credit_instance *credit = credit_instance_of(instance);
    struct credit_claim *free = &domain->own;

    if (!domain->active_count)
        return free;
    for (uint32_t left = credit->claim_count; left; left--) {
        struct share_claim *share = &credit->claim[left - 1].share;
        if (!share->domain_count)
            free = &credit->claim[left - 1];
        else if (share->weight == domain->domain.parameters.weight &&
                 share->cap_percent == domain->domain.parameters.cap_percent &&
                 share->active_count == domain->active_count)
            return &credit->claim[left - 1];
    }
    return free;
}

/* Gives a domain the claim that it should have. Its VCPUs keep their credits. */
LAXITY_APART static void credit_place(struct laxity_instance *instance,
                                      struct credit_domain *domain)
{
    struct credit_claim *from = domain->claim, *to;
    int64_t difference_ns;

    /* A claim of this domain alone is free now, and may be found again. */
    credit_leave_claim(domain);
    to = credit_claim_for(instance, domain);
    difference_ns = to->paid_ns - from->paid_ns;
    for (struct list *node = domain->vcpus.next; node != &domain->vcpus; node = node->next) {
        struct credit_vcpu *vcpu = laxity_container(node, struct credit_vcpu, member);
        if (!vcpu->active)
            continue;
        credit_forget_due(from, vcpu);
        vcpu->credits_ns -= difference_ns;
        credit_give_turn(instance, vcpu);
    }
    domain->claim = to;
    to->share.weight = domain->domain.parameters.weight;
    to->share.cap_percent = domain->domain.parameters.cap_percent;
    to->share.active_count = domain->active_count;
    if (domain->active_count && to->share.domain_count++ == 0)
        list_append(&credit_instance_of(instance)->claims, &to->share.member);
}

/* Pays a claim. VCPUs whose credits reach a threshold have their turns. */
LAXITY_APART static void credit_pay(struct laxity_instance *instance, struct credit_claim *claim,
                                    int64_t share_ns)
{
    if (claim->share.active_count > 1)
        share_ns /= claim->share.active_count;
    claim->paid_ns += share_ns;
    while (claim->due.first && claim->due.first->key <= claim->paid_ns) {
        struct credit_vcpu *vcpu = laxity_container(claim->due.first, struct credit_vcpu, due);
        credit_forget_due(claim, vcpu);
        credit_give_turn(instance, vcpu);
    }
}

/* The turn of a VCPU: applies its credits to its class and activity. */
LAXITY_APART static void credit_take_turn(struct laxity_instance *instance,
                                          struct credit_vcpu *vcpu, int64_t now)
{
    int64_t accounting_ns = instance->settings.accounting_ns;
    int64_t balance_ns = credit_balance(vcpu);
    struct credit_domain *domain = credit_domain_of(vcpu->vcpu.domain);
    int64_t due_ns;

    vcpu->has_turn = false;
    if (balance_ns < -accounting_ns)
        balance_ns = -accounting_ns;
    if (balance_ns > accounting_ns) {
        balance_ns = 0;
        credit_set_active(instance, vcpu, false);
        credit_change(instance, domain);
    }
    vcpu->credits_ns = balance_ns - domain->claim->paid_ns;
    due_ns = vcpu->active ? credit_due(instance, vcpu) : LAXITY_NEVER;
    /* A turn too early changes nothing, and costs less than a place further back in the heap. */
    if (!vcpu->active || due_ns < vcpu->due.key)
        credit_forget_due(domain->claim, vcpu);
    if (due_ns < vcpu->due.key) {
        vcpu->due.key = due_ns;
        heap_insert(&domain->claim->due, &vcpu->due);
    }
    credit_trace(instance, vcpu, LAXITY_EVENT_REPLENISH, balance_ns);
    credit_classify(instance, vcpu, balance_ns < 0 ? CREDIT_OVER : CREDIT_UNDER,
                    domain->domain.parameters.cap_percent != 0, now);
}

/* A trace tells the credits of each active VCPU. Those that have no turn stand among those that
 * have one. */
LAXITY_APART static void credit_seat_all(struct laxity_instance *instance,
                                         struct credit_domain *domain)
{
    for (struct list *node = domain->vcpus.next; node != &domain->vcpus; node = node->next) {
        struct credit_vcpu *vcpu = laxity_container(node, struct credit_vcpu, member);
        if (vcpu->active && !vcpu->has_turn)
            credit_seat(instance, vcpu);
    }
}

/* All turns, in their order. */
static void credit_take_turns(struct laxity_instance *instance, int64_t now)
{
    struct credit_instance *credit = credit_instance_of(instance);
    struct list *domains = &credit->domains;

    if (instance->tracing) {
        for (struct list *node = domains->next; node != domains; node = node->next)
            credit_seat_all(instance, laxity_container(node, struct credit_domain, member));
    }
    while (!list_is_empty(&credit->turns)) {
        struct credit_vcpu *vcpu = laxity_container(credit->turns.next, struct credit_vcpu, turn);
        list_remove(&vcpu->turn);
        if (vcpu->has_turn)
            credit_take_turn(instance, vcpu, now);
        else
            credit_trace(instance, vcpu, LAXITY_EVENT_REPLENISH, credit_balance(vcpu));
    }
}

static void credit_account(struct laxity_instance *instance, int64_t now)
{
    struct credit_instance *credit = credit_instance_of(instance);
    struct share_rest rest;

    for (uint32_t number = 0; number < instance->cpus; number++) {
        struct credit_cpu *cpu;
        if (!instance->cpu[number])
            continue;
        cpu = credit_cpu_of(instance->cpu[number]);
        /* A tick of the same time comes first, whichever timer the embedder serves first. */
        if (cpu->ticking && cpu->tick_ns <= now)
            credit_tick(instance, cpu, now);
        credit_take_touched(instance, &cpu->touched);
    }
    while (!list_is_empty(&credit->changed)) {
        struct credit_domain *domain =
            laxity_container(credit->changed.next, struct credit_domain, changed);
        list_remove(&domain->changed);
        credit_place(instance, domain);
    }
    rest = share_saturate(instance, &credit->claims, credit->cpu_count);
    for (struct list *node = credit->claims.next; node != &credit->claims; node = node->next) {
        struct credit_claim *claim = laxity_container(node, struct credit_claim, share.member);
        credit_pay(instance, claim, share_of(instance, &rest, &claim->share));
    }
    credit_take_turns(instance, now);
    for (uint32_t number = 0; number < instance->cpus; number++)
        if (instance->cpu[number])
            credit_review(instance, credit_cpu_of(instance->cpu[number]), now);

    credit->account_armed = credit->active_count > 0;
    if (credit->account_armed)
        laxity_arm_account(instance,
                           share_next_step(instance, instance->settings.accounting_ns, now));
}

static enum laxity_error credit_set_settings(struct laxity_instance *instance,
                                             const struct laxity_settings *settings, int64_t now)
{
    struct list *domains = &credit_instance_of(instance)->domains;
    enum laxity_error error = share_check_settings(settings);
    if (error)
        return error;
    instance->settings = *settings;
    for (struct list *node = domains->next; node != domains; node = node->next)
        credit_change(instance, laxity_container(node, struct credit_domain, member));
    for (uint32_t number = 0; number < instance->cpus; number++) {
        struct credit_cpu *cpu;
        if (!instance->cpu[number])
            continue;
        cpu = credit_cpu_of(instance->cpu[number]);
        if (cpu->ticking)
            credit_arm_tick(instance, cpu, now);
        credit_review(instance, cpu, now);
    }
    if (credit_instance_of(instance)->account_armed)
        laxity_arm_account(instance, share_next_step(instance, settings->accounting_ns, now));
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
        dump->line(dump, base->current, "runs", credit_balance(credit_vcpu_of(base->current)),
                   cpu->until_ns);
    for (int class = 0; class < CREDIT_CLASSES; class ++)
        for (struct list *node = cpu->queue[class].next; node != &cpu->queue[class];
             node = node->next) {
            struct credit_vcpu *vcpu = laxity_container(node, struct credit_vcpu, queue);
            dump->line(dump, &vcpu->vcpu, names[class], credit_balance(vcpu), LAXITY_NEVER);
        }
}

const struct laxity_policy laxity_credit = {
    .instance_bytes = sizeof(struct credit_instance),
    .cpu_bytes = sizeof(struct credit_cpu),
    .domain_bytes = sizeof(struct credit_domain),
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
