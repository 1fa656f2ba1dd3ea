/* SPDX-License-Identifier: MIT */
/*
 * Scheduler S of "Supporting Soft Real-Time Tasks in the Xen Hypervisor" (VEE 2010, section 3):
 * credit with exact accounting, in which a domain may say how long its VCPUs can wait, its laxity.
 * A domain with a laxity is real-time. docs/explanation/policies.md has the rules.
 *
 * One implementation serves all policies, each of which switches some parts on (policies.def).
 *
 * Credits are nanoseconds of CPU, charged as they are used: at every decision, tick and accounting.
 * Accounting gives the domains credits by weight and makes the VCPUs of a domain equal.
 *
 * Queues: one a CPU, in three parts, one for each class; the running VCPU is in none. With A a
 * real-time VCPU may stand in a better part than its class's. All is under the CPU's lock; work is
 * stolen from another CPU's queue under that CPU's lock, by try_lock. Credits, `active`, domains
 * and who is `moving` are written under the lock of the VCPU's CPU and by accounting (under all).
 *
 * Timers: the CPU's timer is its tick, armed while a VCPU runs. The account timer is armed while a
 * VCPU is active. A decision is given an end only when that end can change something.
 */
#include <laxity/policy.h>

#include "scheduler_s.h"
#include "share.h"

enum s_class {
    S_BOOST,
    S_UNDER,
    S_OVER,
    S_CLASSES,
    S_PARKED = S_CLASSES, /* for the trace: in no queue, its domain's cap is used up */
};

/* The most VCPUs that a thief checks in one part, and that may stand before a real-time VCPU by its
 * laxity: both stay bounded. */
#define S_SCAN 16

/* L: how much longer another CPU's VCPU must have waited to be stolen from its equals (section
 * 3.3.1: 2 to 5 ms were measured). */
#define S_THRESHOLD_NS (2 * LAXITY_MILLISECOND)

/* LL: how often one real-time VCPU may be moved (section 3.3.2: x). */
#define S_BALANCE_NS (1000 * LAXITY_MILLISECOND)

struct s_instance {
    struct laxity_instance instance;
    struct list claims; /* one a domain */
    uint32_t cpu_count;
    uint32_t active_count;
    uint32_t parts; /* of the policy */
    bool account_armed;
    int64_t balanced; /* LL: the second of the clock that was balanced last */
    /* LL: the VCPU that moves to another CPU as soon as it waits. Set by accounting, cleared by
     * that CPU. */
    struct s_vcpu *moving;
    uint32_t goal;
};

struct s_domain {
    struct laxity_domain domain;
    struct share_claim claim;
    struct list vcpus;
};

struct s_vcpu {
    struct laxity_vcpu vcpu;
    struct list member; /* of the domain's `vcpus` */
    struct list queue;  /* of its CPU's part `part`, while it waits */
    int64_t credits_ns;
    int64_t expected_ns; /* how long its last run was */
    int64_t queued_ns;   /* since when it waits */
    int64_t used_ns;     /* since the last balance */
    enum s_class class;
    enum s_class part;
    bool active; /* was charged, so its domain gets credits */
    bool parked;
};

struct s_cpu {
    struct laxity_cpu cpu;
    struct list queue[S_CLASSES];
    int64_t chosen_ns;    /* when the running VCPU was chosen */
    int64_t charged_ns;   /* up to when it has paid */
    int64_t stolen_ns;    /* how much of cpu.stolen_ns it does not have to pay for */
    int64_t until_ns;     /* the end of its turn, as told to the embedder */
    int64_t real_time_ns; /* scratch of balancing: used by real-time VCPUs */
    bool ticking;
};

static inline struct s_instance *s_instance_of(struct laxity_instance *instance)
{
    return laxity_container(instance, struct s_instance, instance);
}

static inline struct s_cpu *s_cpu_of(struct laxity_cpu *cpu)
{
    return laxity_container(cpu, struct s_cpu, cpu);
}

static inline struct s_vcpu *s_vcpu_of(struct laxity_vcpu *vcpu)
{
    return laxity_container(vcpu, struct s_vcpu, vcpu);
}

static inline struct s_domain *s_domain_of(struct laxity_domain *domain)
{
    return laxity_container(domain, struct s_domain, domain);
}

/* The domain whose claim a node of the instance's `claims` is. */
static inline struct s_domain *s_claimant(struct list *node)
{
    return laxity_container(node, struct s_domain, claim.member);
}

static inline bool s_has(struct laxity_instance *instance, uint32_t part)
{
    return s_instance_of(instance)->parts & part;
}

static inline bool s_is_real_time(const struct s_vcpu *vcpu)
{
    return vcpu->vcpu.domain->parameters.laxity_ns != 0;
}

/* LL: whether no CPU may steal it. */
static inline bool s_is_bound(struct laxity_instance *instance, const struct s_vcpu *vcpu)
{
    return s_has(instance, S_BIND) && s_is_real_time(vcpu);
}

static inline void s_trace(struct laxity_instance *instance, const struct s_vcpu *vcpu,
                           enum laxity_event event, int64_t argument)
{
    if (instance->tracing)
        laxity_trace(instance, &vcpu->vcpu, event, argument);
}

/* The first of a CPU's queue, or NULL. */
static inline struct s_vcpu *s_head(const struct s_cpu *cpu)
{
    for (int part = S_BOOST; part < S_CLASSES; part++)
        if (!list_is_empty(&cpu->queue[part]))
            return laxity_container(cpu->queue[part].next, struct s_vcpu, queue);
    return NULL;
}

static int64_t s_until(struct laxity_instance *instance, struct s_cpu *cpu, int64_t now)
{
    const struct s_vcpu *head = s_head(cpu);
    enum s_class class;
    bool could_steal;

    if (!cpu->cpu.current)
        return LAXITY_NEVER;
    class = s_vcpu_of(cpu->cpu.current)->class;
    could_steal =
        (class == S_OVER || s_has(instance, S_BALANCE)) && s_instance_of(instance)->cpu_count > 1;
    if ((!head || head->part > class) && !could_steal)
        return LAXITY_NEVER;
    return share_turn_end(instance, cpu->chosen_ns, now);
}

/* After the queue or the running VCPU's class have changed. */
static void s_review(struct laxity_instance *instance, struct s_cpu *cpu, int64_t now)
{
    int64_t until_ns = s_until(instance, cpu, now);
    /* A turn that is over gets no other one from what comes before a decision that is late. */
    if (until_ns == cpu->until_ns || cpu->until_ns < now)
        return;
    cpu->until_ns = until_ns;
    laxity_extend(instance, cpu->cpu.number, until_ns);
}

/* A: whether it has a claim to a place by laxity. */
static inline bool s_has_place(struct laxity_instance *instance, const struct s_vcpu *vcpu)
{
    return s_has(instance, S_LAXITY) && s_is_real_time(vcpu) && vcpu->class != S_OVER;
}

/* A: the place before the first VCPU behind which its expected wait would exceed its laxity, if
 * there is one before the end of its class's part. */
static bool s_enqueue_by_laxity(struct s_cpu *cpu, struct s_vcpu *vcpu)
{
    int64_t laxity_ns = vcpu->vcpu.domain->parameters.laxity_ns, wait_ns = 0;
    int seen = 0;

    for (int part = S_BOOST; part <= (int)vcpu->class; part++)
        for (struct list *node = cpu->queue[part].next; node != &cpu->queue[part];
             node = node->next) {
            wait_ns += laxity_container(node, struct s_vcpu, queue)->expected_ns;
            if (wait_ns > laxity_ns || seen++ == S_SCAN) {
                vcpu->part = part;
                list_append(node, &vcpu->queue);
                return true;
            }
        }
    return false;
}

static void s_enqueue(struct laxity_instance *instance, struct s_cpu *cpu, struct s_vcpu *vcpu)
{
    if (s_has_place(instance, vcpu) && s_enqueue_by_laxity(cpu, vcpu))
        return;
    vcpu->part = vcpu->class;
    list_append(&cpu->queue[vcpu->part], &vcpu->queue);
}

static inline void s_dequeue(struct s_vcpu *vcpu)
{
    if (list_holds(&vcpu->queue))
        list_remove(&vcpu->queue);
}

/* The first VCPU in a part of a queue that may be taken to CPU `number`. */
static struct s_vcpu *s_first_for(struct laxity_instance *instance, struct list *part,
                                  uint32_t number)
{
    struct list *node = part->next;
    for (int seen = 0; node != part && seen < S_SCAN; node = node->next, seen++) {
        struct s_vcpu *vcpu = laxity_container(node, struct s_vcpu, queue);
        if (!vcpu->vcpu.on_cpu && !s_is_bound(instance, vcpu) &&
            laxity_may_run_on(instance, &vcpu->vcpu, number))
            return vcpu;
    }
    return NULL;
}

/* A VCPU became ready on a CPU that is busy: the first idle CPU on which it may run is asked to
 * take a VCPU, this one or another that waits. */
static void s_call_idle(struct laxity_instance *instance, const struct s_vcpu *vcpu)
{
    uint32_t own = vcpu->vcpu.cpu;

    if (s_instance_of(instance)->cpu_count == 1 || s_is_bound(instance, vcpu))
        return;
    for (uint32_t number = share_next_cpu(instance, own); number != own;
         number = share_next_cpu(instance, number))
        if (instance->cpu[number] && !instance->cpu[number]->current &&
            laxity_may_run_on(instance, &vcpu->vcpu, number)) {
            laxity_kick(instance, number);
            return;
        }
}

/* C: whether a VCPU that waits cuts short the turn of one of its own class. */
static inline bool s_cuts_short(struct laxity_instance *instance, const struct s_vcpu *vcpu,
                                const struct s_vcpu *running)
{
    return s_has(instance, S_CUT) && vcpu->class == running->class && vcpu->class != S_OVER &&
           s_is_real_time(vcpu) && !s_is_real_time(running);
}

/* Asks a CPU for a decision if it idles, or runs a VCPU of a worse class than this one, which
 * waits, or a VCPU whose turn this one cuts short. */
static bool s_call(struct laxity_instance *instance, const struct s_vcpu *vcpu, uint32_t number)
{
    struct laxity_vcpu *current = instance->cpu[number]->current;

    if (current && s_vcpu_of(current)->class <= vcpu->class &&
        !s_cuts_short(instance, vcpu, s_vcpu_of(current)))
        return false;
    laxity_kick(instance, number);
    return true;
}

/* Puts a VCPU into its CPU's queue, and calls the CPU that should run it. */
static void s_ready(struct laxity_instance *instance, struct s_vcpu *vcpu, int64_t now)
{
    struct s_instance *s = s_instance_of(instance);
    struct s_cpu *cpu = s_cpu_of(instance->cpu[vcpu->vcpu.cpu]);

    s_enqueue(instance, cpu, vcpu);
    if (!(vcpu == s->moving && s_call(instance, vcpu, s->goal))) {
        s_call(instance, vcpu, cpu->cpu.number);
        if (cpu->cpu.current)
            s_call_idle(instance, vcpu);
    }
    s_review(instance, cpu, now);
}

static void s_set_active(struct laxity_instance *instance, struct s_vcpu *vcpu, bool active)
{
    if (vcpu->active == active)
        return;
    vcpu->active = active;
    s_domain_of(vcpu->vcpu.domain)->claim.active_count += active ? 1 : -1;
    s_instance_of(instance)->active_count += active ? 1 : -1;
}

/* The running VCPU pays for what it used. */
static void s_charge(struct laxity_instance *instance, struct s_cpu *cpu, int64_t now)
{
    struct s_instance *s = s_instance_of(instance);
    int64_t used_ns = now - cpu->charged_ns - (cpu->cpu.stolen_ns - cpu->stolen_ns);
    struct s_vcpu *vcpu;

    cpu->charged_ns = now;
    cpu->stolen_ns = cpu->cpu.stolen_ns;
    if (!cpu->cpu.current || !used_ns)
        return;
    vcpu = s_vcpu_of(cpu->cpu.current);
    vcpu->credits_ns -= used_ns;
    vcpu->used_ns += used_ns;
    s_trace(instance, vcpu, LAXITY_EVENT_BUDGET, vcpu->credits_ns);
    s_set_active(instance, vcpu, true);
    if (!s->account_armed) {
        int64_t accounting_ns = instance->settings.accounting_ns;
        s->account_armed = true;
        laxity_arm_account(instance, share_next_step(instance, accounting_ns, now - 1));
    }
}

static enum laxity_error s_init(struct laxity_instance *instance,
                                const struct laxity_settings *settings)
{
    struct s_instance *s = s_instance_of(instance);
    enum laxity_error error = share_check_settings(settings);
    if (error)
        return error;
    instance->settings = *settings;
    s->parts = s_parts_of(laxity_policy_of(instance));
    list_init(&s->claims);
    return LAXITY_OK;
}

static void s_add_cpu(struct laxity_instance *instance, struct laxity_cpu *base, int64_t now)
{
    struct s_cpu *cpu = s_cpu_of(base);
    for (int part = S_BOOST; part < S_CLASSES; part++)
        list_init(&cpu->queue[part]);
    cpu->chosen_ns = cpu->charged_ns = now;
    cpu->until_ns = LAXITY_NEVER;
    s_instance_of(instance)->cpu_count++;
}

/* LL: sets the VCPU that moves next; NULL: none. One that still waits for its move stays with its
 * own CPU. */
static void s_set_moving(struct laxity_instance *instance, struct s_vcpu *vcpu)
{
    struct s_instance *s = s_instance_of(instance);
    struct s_vcpu *before = s->moving;

    s->moving = vcpu;
    if (before && before != vcpu && list_holds(&before->queue))
        s_call(instance, before, before->vcpu.cpu);
}

static void s_remove_cpu(struct laxity_instance *instance, struct laxity_cpu *base, int64_t now)
{
    struct s_instance *s = s_instance_of(instance);
    (void)now;
    if (s->goal == base->number)
        s_set_moving(instance, NULL);
    laxity_arm_timer(instance, base->number, LAXITY_NEVER);
    s->cpu_count--;
}

/* Laxity counts where a VCPU is put into a queue next, weight and cap from the next accounting. */
static enum laxity_error s_set_domain(struct laxity_instance *instance,
                                      struct laxity_domain *domain,
                                      const struct laxity_parameters *parameters, int64_t now)
{
    enum laxity_error error = share_check(parameters);
    const struct s_vcpu *moving = s_instance_of(instance)->moving;
    (void)now;
    if (!error && (parameters->laxity_ns < 0 || parameters->laxity_ns > LAXITY_DURATION_MAX))
        error = LAXITY_ERROR_LAXITY;
    if (error)
        return error;
    domain->parameters = *parameters;
    s_domain_of(domain)->claim.weight = parameters->weight;
    s_domain_of(domain)->claim.cap_percent = parameters->cap_percent;
    if (moving && moving->vcpu.domain == domain && !parameters->laxity_ns)
        s_set_moving(instance, NULL);
    return LAXITY_OK;
}

static enum laxity_error s_add_domain(struct laxity_instance *instance, struct laxity_domain *base,
                                      const struct laxity_parameters *parameters)
{
    struct s_domain *domain = s_domain_of(base);
    enum laxity_error error = s_set_domain(instance, base, parameters, 0);
    if (error)
        return error;
    list_init(&domain->vcpus);
    domain->claim.domain_count = 1;
    list_append(&s_instance_of(instance)->claims, &domain->claim.member);
    return LAXITY_OK;
}

static void s_remove_domain(struct laxity_instance *instance, struct laxity_domain *domain)
{
    (void)instance;
    list_remove(&s_domain_of(domain)->claim.member);
}

static enum laxity_error s_add_vcpu(struct laxity_instance *instance, struct laxity_vcpu *base,
                                    const struct laxity_parameters *parameters, int64_t now)
{
    struct s_vcpu *vcpu = s_vcpu_of(base);
    (void)instance;
    (void)now;
    base->parameters = *parameters;
    vcpu->class = S_UNDER;
    list_append(&s_domain_of(base->domain)->vcpus, &vcpu->member);
    return LAXITY_OK;
}

static void s_remove_vcpu(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    struct s_instance *s = s_instance_of(instance);
    struct s_vcpu *vcpu = s_vcpu_of(base);
    (void)now; /* it is asleep, so in no queue */
    if (s->moving == vcpu)
        s->moving = NULL;
    s_set_active(instance, vcpu, false);
    list_remove(&vcpu->member);
}

/* Asleep, it is in no queue, and its credits are its own. */
static void s_move_vcpu(struct laxity_instance *instance, struct laxity_vcpu *vcpu, uint32_t cpu,
                        int64_t now)
{
    (void)now;
    if (vcpu->cpu == cpu)
        return;
    vcpu->cpu = cpu;
    s_trace(instance, s_vcpu_of(vcpu), LAXITY_EVENT_MIGRATE, cpu);
}

/* Weight, cap and laxity belong to the domain: a VCPU has no parameters. */
static enum laxity_error s_set_vcpu(struct laxity_instance *instance, struct laxity_vcpu *vcpu,
                                    const struct laxity_parameters *parameters, int64_t now)
{
    (void)instance;
    (void)now;
    vcpu->parameters = *parameters;
    return LAXITY_OK;
}

static void s_boost(struct laxity_instance *instance, struct s_vcpu *vcpu)
{
    vcpu->class = S_BOOST;
    s_trace(instance, vcpu, LAXITY_EVENT_CLASS, S_BOOST);
}

static void s_wake(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    struct s_vcpu *vcpu = s_vcpu_of(base);

    if (vcpu->parked || base == instance->cpu[base->cpu]->current)
        return;
    if (vcpu->class == S_UNDER)
        s_boost(instance, vcpu);
    vcpu->queued_ns = now;
    s_ready(instance, vcpu, now);
}

/* B: boost with event. */
static void s_event(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    struct s_vcpu *vcpu = s_vcpu_of(base);

    if (!s_has(instance, S_EVENT) || !s_is_real_time(vcpu) || vcpu->class != S_UNDER ||
        !list_holds(&vcpu->queue))
        return;
    s_dequeue(vcpu);
    s_boost(instance, vcpu);
    s_ready(instance, vcpu, now);
}

static void s_sleep(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    struct s_cpu *cpu = s_cpu_of(instance->cpu[base->cpu]);

    s_dequeue(s_vcpu_of(base));
    if (base == cpu->cpu.current)
        laxity_kick(instance, cpu->cpu.number);
    else
        s_review(instance, cpu, now);
}

static void s_yield(struct laxity_instance *instance, struct laxity_vcpu *vcpu, int64_t now)
{
    (void)now;
    if (vcpu == instance->cpu[vcpu->cpu]->current)
        laxity_kick(instance, vcpu->cpu);
}

/* The VCPU that a CPU takes from a peer's queue, or NULL. Its own queue begins with `own` (NULL: it
 * idles). */
static struct s_vcpu *s_find(struct laxity_instance *instance, struct s_cpu *cpu,
                             struct s_cpu *peer, const struct s_vcpu *own)
{
    uint32_t self = cpu->cpu.number;
    int better = own ? (int)own->part : S_CLASSES;
    struct s_vcpu *vcpu;

    for (int part = S_BOOST; part < better; part++) {
        vcpu = s_first_for(instance, &peer->queue[part], self);
        if (vcpu)
            return vcpu;
    }
    if (!own || !s_has(instance, S_BALANCE) || s_is_real_time(own))
        return NULL;
    vcpu = s_first_for(instance, &peer->queue[own->part], self);
    if (vcpu && (s_is_real_time(vcpu) || vcpu->queued_ns + S_THRESHOLD_NS <= own->queued_ns))
        return vcpu;
    return NULL;
}

/* Takes a VCPU from another CPU's queue, or returns NULL. */
static struct s_vcpu *s_steal(struct laxity_instance *instance, struct s_cpu *cpu,
                              const struct s_vcpu *own, int64_t now)
{
    uint32_t self = cpu->cpu.number;

    for (uint32_t number = share_next_cpu(instance, self); number != self;
         number = share_next_cpu(instance, number)) {
        struct s_vcpu *vcpu;
        struct s_cpu *peer;
        if (!instance->cpu[number] || !laxity_try_lock(instance, number))
            continue;
        peer = s_cpu_of(instance->cpu[number]);
        vcpu = s_find(instance, cpu, peer, own);
        if (vcpu) {
            s_dequeue(vcpu);
            vcpu->vcpu.cpu = self;
            s_review(instance, peer, now);
        }
        laxity_unlock(instance, number);
        if (vcpu) {
            s_trace(instance, vcpu, LAXITY_EVENT_MIGRATE, self);
            return vcpu;
        }
    }
    return NULL;
}

/* Takes the VCPU that should run from the CPU's queue, or from another's. */
static struct s_vcpu *s_take(struct laxity_instance *instance, struct s_cpu *cpu, int64_t now)
{
    struct s_vcpu *own = s_head(cpu), *vcpu = NULL;

    if ((!own || own->part == S_OVER || s_has(instance, S_BALANCE)) &&
        s_instance_of(instance)->cpu_count > 1)
        vcpu = s_steal(instance, cpu, own, now);
    if (!vcpu && own) {
        vcpu = own;
        s_dequeue(vcpu);
    }
    return vcpu;
}

/* Whether a VCPU would be the first of this CPU's queue. */
static bool s_comes_first(struct laxity_instance *instance, const struct s_cpu *cpu,
                          const struct s_vcpu *vcpu)
{
    const struct s_vcpu *head = s_head(cpu);

    if (!head || head->part > vcpu->class)
        return true;
    return s_has_place(instance, vcpu) &&
           head->expected_ns > vcpu->vcpu.domain->parameters.laxity_ns;
}

/* LL: takes the VCPU that is to come here if it waits and comes first, or leaves it to its own CPU
 * and returns NULL. */
static struct s_vcpu *s_fetch(struct laxity_instance *instance, struct s_cpu *cpu, int64_t now)
{
    struct s_instance *s = s_instance_of(instance);
    struct s_vcpu *vcpu = s->moving;
    uint32_t self = cpu->cpu.number, number = vcpu->vcpu.cpu;
    bool comes = false;

    if (number == self) {
        s->moving = NULL; /* the embedder moved it */
        return NULL;
    }
    if (!list_holds(&vcpu->queue))
        return NULL;
    if (laxity_try_lock(instance, number)) {
        comes = vcpu->vcpu.cpu == number && list_holds(&vcpu->queue) && !vcpu->vcpu.on_cpu &&
                laxity_may_run_on(instance, &vcpu->vcpu, self) &&
                s_comes_first(instance, cpu, vcpu);
        if (comes) {
            s_dequeue(vcpu);
            vcpu->vcpu.cpu = self;
            s_review(instance, s_cpu_of(instance->cpu[number]), now);
        }
        laxity_unlock(instance, number);
    }
    if (!comes) {
        s_call(instance, vcpu, number);
        return NULL;
    }
    s->moving = NULL;
    s_trace(instance, vcpu, LAXITY_EVENT_MIGRATE, self);
    return vcpu;
}

static void s_set_ticking(struct laxity_instance *instance, struct s_cpu *cpu, bool ticking,
                          int64_t now)
{
    if (cpu->ticking == ticking)
        return;
    cpu->ticking = ticking;
    laxity_arm_timer(instance, cpu->cpu.number,
                     ticking ? share_next_step(instance, instance->settings.tick_ns, now)
                             : LAXITY_NEVER);
}

static struct laxity_decision s_schedule(struct laxity_instance *instance, struct laxity_cpu *base,
                                         int64_t now)
{
    struct s_instance *s = s_instance_of(instance);
    struct s_cpu *cpu = s_cpu_of(base);
    struct s_vcpu *before = base->current ? s_vcpu_of(base->current) : NULL, *chosen = NULL;

    s_charge(instance, cpu, now);
    if (before && now > cpu->chosen_ns)
        before->expected_ns = now - cpu->chosen_ns;
    if (before && before->vcpu.runnable && !before->parked) {
        before->queued_ns = now;
        s_enqueue(instance, cpu, before);
    }
    if (s->moving && s->goal == base->number)
        chosen = s_fetch(instance, cpu, now);
    if (!chosen)
        chosen = s_take(instance, cpu, now);
    base->current = chosen ? &chosen->vcpu : NULL;
    cpu->chosen_ns = now;
    cpu->until_ns = s_until(instance, cpu, now);
    s_set_ticking(instance, cpu, chosen != NULL, now);
    if (before && before == s->moving && list_holds(&before->queue))
        s_call(instance, before, s->goal);
    return (struct laxity_decision){base->current, cpu->until_ns};
}

/* The tick. */
static void s_timer(struct laxity_instance *instance, struct laxity_cpu *base, int64_t now)
{
    struct s_cpu *cpu = s_cpu_of(base);
    struct s_vcpu *vcpu;
    bool was_armed;

    if (!base->current) {
        cpu->ticking = false;
        return;
    }
    vcpu = s_vcpu_of(base->current);
    was_armed = s_instance_of(instance)->account_armed;
    s_charge(instance, cpu, now);
    if (!was_armed && s_instance_of(instance)->account_armed)
        laxity_arm_account(instance, share_accounting_after_tick(instance, now));
    if (vcpu->class == S_BOOST) {
        vcpu->class = S_UNDER;
        s_trace(instance, vcpu, LAXITY_EVENT_CLASS, S_UNDER);
    }
    laxity_arm_timer(instance, base->number,
                     share_next_step(instance, instance->settings.tick_ns, now));
    s_review(instance, cpu, now);
}

/* Puts a VCPU into the class that its credits give it, and into its place if it waits. */
static void s_classify(struct laxity_instance *instance, struct s_vcpu *vcpu, int64_t now)
{
    struct s_cpu *cpu = s_cpu_of(instance->cpu[vcpu->vcpu.cpu]);
    bool running = &vcpu->vcpu == cpu->cpu.current, negative = vcpu->credits_ns < 0;
    bool parked = negative && vcpu->vcpu.domain->parameters.cap_percent;
    bool over = negative && (parked || !s_has(instance, S_INFINITE) || !s_is_real_time(vcpu));
    enum s_class class = over ? S_OVER : S_UNDER;
    bool changed = class != vcpu->class, was_parked = vcpu->parked;

    vcpu->class = class;
    vcpu->parked = parked;
    if (changed || parked != was_parked)
        s_trace(instance, vcpu, LAXITY_EVENT_CLASS, parked ? S_PARKED : class);
    if (parked) {
        s_dequeue(vcpu);
        if (running)
            laxity_kick(instance, cpu->cpu.number);
    } else if (was_parked && vcpu->vcpu.runnable && !running) {
        vcpu->queued_ns = now;
        s_ready(instance, vcpu, now);
    } else if (changed && list_holds(&vcpu->queue)) {
        s_dequeue(vcpu);
        s_enqueue(instance, cpu, vcpu);
    }
}

/* Gives a domain its share, and each of its VCPUs the same part of all that it has. */
static void s_pay(struct laxity_instance *instance, struct s_domain *domain, int64_t share_ns,
                  int64_t now)
{
    int64_t accounting_ns = instance->settings.accounting_ns, sum_ns = share_ns, each_ns, count = 0;
    bool full;

    for (struct list *node = domain->vcpus.next; node != &domain->vcpus; node = node->next) {
        sum_ns += laxity_container(node, struct s_vcpu, member)->credits_ns;
        count++;
    }
    each_ns = sum_ns / count;
    full = each_ns > accounting_ns;
    if (full)
        each_ns = 0;
    if (each_ns < -accounting_ns)
        each_ns = -accounting_ns;
    for (struct list *node = domain->vcpus.next; node != &domain->vcpus; node = node->next) {
        struct s_vcpu *vcpu = laxity_container(node, struct s_vcpu, member);
        vcpu->credits_ns = each_ns;
        s_trace(instance, vcpu, LAXITY_EVENT_REPLENISH, each_ns);
        if (full)
            s_set_active(instance, vcpu, false);
        s_classify(instance, vcpu, now);
    }
}

/* The CPU that real-time VCPUs used most, or least; of equals the first. */
static struct s_cpu *s_extreme(struct laxity_instance *instance, bool most)
{
    struct s_cpu *extreme = NULL;
    for (uint32_t number = 0; number < instance->cpus; number++) {
        struct s_cpu *cpu;
        if (!instance->cpu[number])
            continue;
        cpu = s_cpu_of(instance->cpu[number]);
        if (!extreme || (most ? cpu->real_time_ns > extreme->real_time_ns
                              : cpu->real_time_ns < extreme->real_time_ns))
            extreme = cpu;
    }
    return extreme;
}

/* LL: moves the real-time VCPU from the most to the least used CPU that balances the two best, if
 * one does. */
static void s_balance(struct laxity_instance *instance)
{
    struct s_instance *s = s_instance_of(instance);
    struct s_cpu *most, *least;
    struct s_vcpu *best = NULL;
    int64_t difference_ns;

    for (uint32_t number = 0; number < instance->cpus; number++)
        if (instance->cpu[number])
            s_cpu_of(instance->cpu[number])->real_time_ns = 0;
    for (struct list *of = s->claims.next; of != &s->claims; of = of->next) {
        struct s_domain *domain = s_claimant(of);
        for (struct list *node = domain->vcpus.next; node != &domain->vcpus; node = node->next) {
            struct s_vcpu *vcpu = laxity_container(node, struct s_vcpu, member);
            if (s_is_real_time(vcpu))
                s_cpu_of(instance->cpu[vcpu->vcpu.cpu])->real_time_ns += vcpu->used_ns;
        }
    }
    most = s_extreme(instance, true);
    least = s_extreme(instance, false);
    difference_ns = most->real_time_ns - least->real_time_ns;
    s->goal = least->cpu.number;
    for (struct list *of = s->claims.next; of != &s->claims; of = of->next) {
        struct s_domain *domain = s_claimant(of);
        for (struct list *node = domain->vcpus.next; node != &domain->vcpus; node = node->next) {
            struct s_vcpu *vcpu = laxity_container(node, struct s_vcpu, member);
            int64_t rest_ns = most->real_time_ns - least->real_time_ns - 2 * vcpu->used_ns;
            vcpu->used_ns = 0;
            if (rest_ns < 0)
                rest_ns = -rest_ns;
            if (rest_ns >= difference_ns || !s_is_real_time(vcpu) ||
                vcpu->vcpu.cpu != most->cpu.number ||
                !laxity_may_run_on(instance, &vcpu->vcpu, s->goal))
                continue;
            difference_ns = rest_ns;
            best = vcpu;
        }
    }
    s_set_moving(instance, best);
}

static void s_pay_all(struct laxity_instance *instance, int64_t now)
{
    struct s_instance *s = s_instance_of(instance);
    struct share_rest rest = share_saturate(instance, &s->claims, s->cpu_count);

    for (struct list *node = s->claims.next; node != &s->claims; node = node->next) {
        struct s_domain *domain = s_claimant(node);
        if (domain->claim.active_count)
            s_pay(instance, domain, share_of(instance, &rest, &domain->claim), now);
    }
}

static void s_account(struct laxity_instance *instance, int64_t now)
{
    struct s_instance *s = s_instance_of(instance);

    for (uint32_t number = 0; number < instance->cpus; number++)
        if (instance->cpu[number])
            s_charge(instance, s_cpu_of(instance->cpu[number]), now);
    s_pay_all(instance, now);
    if (s_has(instance, S_BIND) && now / S_BALANCE_NS != s->balanced) {
        s->balanced = now / S_BALANCE_NS;
        s_balance(instance);
    }
    if (s->moving && list_holds(&s->moving->queue))
        s_call(instance, s->moving, s->goal);
    for (uint32_t number = 0; number < instance->cpus; number++)
        if (instance->cpu[number])
            s_review(instance, s_cpu_of(instance->cpu[number]), now);

    s->account_armed = s->active_count > 0;
    if (s->account_armed)
        laxity_arm_account(instance,
                           share_next_step(instance, instance->settings.accounting_ns, now));
}

static enum laxity_error s_set_settings(struct laxity_instance *instance,
                                        const struct laxity_settings *settings, int64_t now)
{
    enum laxity_error error = share_check_settings(settings);
    if (error)
        return error;
    instance->settings = *settings;
    for (uint32_t number = 0; number < instance->cpus; number++) {
        struct s_cpu *cpu;
        if (!instance->cpu[number])
            continue;
        cpu = s_cpu_of(instance->cpu[number]);
        if (cpu->ticking)
            laxity_arm_timer(instance, number, share_next_step(instance, settings->tick_ns, now));
        s_review(instance, cpu, now);
    }
    if (s_instance_of(instance)->account_armed)
        laxity_arm_account(instance, share_next_step(instance, settings->accounting_ns, now));
    return LAXITY_OK;
}

/* The parts of the scheduler are switched; credits, classes and places stay. */
static enum laxity_error s_become(struct laxity_instance *instance,
                                  const struct laxity_policy *policy, int64_t now)
{
    struct s_instance *s = s_instance_of(instance);

    if (policy->schedule != s_schedule)
        return LAXITY_ERROR_POLICY;
    instance->policy = policy;
    s->parts = s_parts_of(policy);
    if (!(s->parts & S_BIND))
        s_set_moving(instance, NULL);
    for (uint32_t number = 0; number < instance->cpus; number++)
        if (instance->cpu[number])
            s_review(instance, s_cpu_of(instance->cpu[number]), now);
    return LAXITY_OK;
}

static void s_dump(struct laxity_instance *instance, struct laxity_cpu *base,
                   struct laxity_dump *dump)
{
    static const char *const names[S_CLASSES] = {"boost", "under", "over"};
    struct s_cpu *cpu = s_cpu_of(base);

    (void)instance;
    if (base->current)
        dump->line(dump, base->current, "runs", s_vcpu_of(base->current)->credits_ns,
                   cpu->until_ns);
    for (int part = S_BOOST; part < S_CLASSES; part++)
        for (struct list *node = cpu->queue[part].next; node != &cpu->queue[part];
             node = node->next) {
            struct s_vcpu *vcpu = laxity_container(node, struct s_vcpu, queue);
            dump->line(dump, &vcpu->vcpu, names[part], vcpu->credits_ns, LAXITY_NEVER);
        }
}

#define S_POLICY                                                                                  \
    {                                                                                             \
        .instance_bytes = sizeof(struct s_instance), .cpu_bytes = sizeof(struct s_cpu),           \
        .domain_bytes = sizeof(struct s_domain), .vcpu_bytes = sizeof(struct s_vcpu),             \
        .steals = true, .init = s_init, .add_cpu = s_add_cpu, .remove_cpu = s_remove_cpu,         \
        .add_domain = s_add_domain, .remove_domain = s_remove_domain, .add_vcpu = s_add_vcpu,     \
        .remove_vcpu = s_remove_vcpu, .move_vcpu = s_move_vcpu, .wake = s_wake, .event = s_event, \
        .sleep = s_sleep, .yield = s_yield, .schedule = s_schedule, .timer = s_timer,             \
        .account = s_account, .set_settings = s_set_settings, .set_domain = s_set_domain,         \
        .set_vcpu = s_set_vcpu, .become = s_become, .dump = s_dump,                               \
    }

#define LAXITY_VARIANT(identifier_, ...) const struct laxity_policy laxity_##identifier_ = S_POLICY;
#include <policies.def>
