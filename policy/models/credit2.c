/* SPDX-License-Identifier: MIT */
/*
 * A model of Xen's credit2. VCPUs wait in the order of their credits. Running burns credits,
 * more slowly the greater the weight; when the best one has none left, all get new ones. A VCPU
 * that has run for less than the ratelimit is not preempted. A domain with a cap has a pool of
 * budget, from which its VCPUs take what they run; they are parked while it is empty.
 *
 * CPUs share run queues, as many with consecutive numbers as `run_queue_cpus` says. The VCPUs that
 * wait are in one list: a run queue is what is in it of the VCPUs of its CPUs, in the order of
 * their credits. What else a run queue has stands with the first of its CPUs that is there.
 * Whenever one has given credits, VCPUs go over between it and another one, by the averages of
 * their loads.
 *
 * docs/explanation/policies.md has the rules and what is left out.
 */
#include "model.h"

#define CREDIT2_INITIAL_NS (10 * LAXITY_MILLISECOND)
#define CREDIT2_LEAST_NS (-CREDIT2_INITIAL_NS)
/* The credits of an idle CPU, less than any VCPU has. */
#define CREDIT2_IDLE_NS (CREDIT2_LEAST_NS - 1)
#define CREDIT2_CARRIED_NS LAXITY_NS(500000)
#define CREDIT2_RUN_LEAST_NS LAXITY_NS(500000)
#define CREDIT2_RUN_MOST_NS CREDIT2_INITIAL_NS
#define CREDIT2_RATELIMIT_NS LAXITY_MILLISECOND
#define CREDIT2_TOLERANCE_NS LAXITY_NS(50000)
#define CREDIT2_RESISTANCE_NS LAXITY_NS(500000)
/* The credits that a preferred CPU is worth, or a CPU that the other VCPU does not prefer. */
#define CREDIT2_PREFERENCE_NS CREDIT2_INITIAL_NS
#define CREDIT2_COMPENSATION_NS LAXITY_NS(50000)
/* The lateness of each decision's timer: no timer is early, and equal credits preempt no VCPU. */
#define CREDIT2_LATE_NS LAXITY_NS(1000)
#define CREDIT2_CAP_PERIOD_NS (10 * LAXITY_MILLISECOND)
#define CREDIT2_QUOTA_LEAST_NS LAXITY_NS(500000)
/* Averages of loads are in units of 2^-18, over windows of 2^20 times 1,024 ns. */
#define CREDIT2_LOAD_TIME_SHIFT 10
#define CREDIT2_LOAD_WINDOW_SHIFT 20
#define CREDIT2_LOAD_ONE LAXITY_NS(1 << 18)
#define CREDIT2_LOAD_AT_FIRST (CREDIT2_LOAD_ONE / 2)
/* The least difference of two run queues that are balanced: with spare CPUs, and without. */
#define CREDIT2_DIFFERENCE_SPARE CREDIT2_LOAD_ONE
#define CREDIT2_DIFFERENCE_FULL (CREDIT2_LOAD_ONE / 8)
/* The weight of dom0, which is on every host. */
#define CREDIT2_WEIGHT_OF_DOM0 256

/* Credit's classes, for readers of the trace. */
#define CREDIT2_CLASS_UNDER 1
#define CREDIT2_CLASS_PARKED 3

#define CREDIT2_NOBODY ((uint32_t)-1)

/* The average of a number that changes. */
struct credit2_load {
    int64_t average;
    int64_t at; /* up to when, in units of 2^10 ns */
};

/* The state of a run queue besides its VCPUs. */
struct credit2_queue {
    struct credit2_load load;
    int64_t working; /* VCPUs with work that are not parked */
    uint32_t picked; /* the CPU to which a VCPU came last from another run queue */
};

struct credit2_domain {
    struct laxity_domain domain;
    struct list capped;       /* of the instance, while it has a cap */
    struct list parked;       /* VCPUs that found the pool empty, the last one first */
    int64_t pool_ns, next_ns; /* the rest of the pool, and the time of its next refill */
    uint32_t vcpus;
};

struct credit2_vcpu {
    struct laxity_vcpu vcpu;
    struct list member; /* of all VCPUs */
    struct list queue;  /* RunQ */
    struct list parked; /* of its domain */
    int64_t budget_ns;  /* taken from the pool of its domain, if that has a cap */
    int64_t credit_ns;
    int64_t residual;    /* what is left of the last division by the weight */
    int64_t burnt_to_ns; /* while it runs: up to when it has paid */
    int64_t chosen_ns;   /* while it runs: since when */
    uint32_t called_cpu; /* by its last call, until it runs; CREDIT2_NOBODY: none */
    bool yields;
    struct credit2_load load; /* of 1 while it has work and is not parked */
    bool is_chosen;           /* runs, or is to run, or has not left its CPU yet */
    bool leaves_queue;        /* it runs, and then goes to the run queue of `goes_to` */
    uint32_t goes_to;         /* one of that run queue's CPUs */
};

struct credit2_cpu {
    struct laxity_cpu cpu;
    bool is_called;             /* and has not decided since */
    bool balances;              /* in its decision: it is about to run somebody, and not idle */
    struct credit2_queue queue; /* of the first CPU of each run queue */
};

struct credit2_instance {
    struct laxity_instance instance;
    struct list members, run_queue, capped;
};

static struct credit2_instance *credit2_of(struct laxity_instance *instance)
{
    return laxity_container(instance, struct credit2_instance, instance);
}

static struct credit2_vcpu *credit2_vcpu_of(struct laxity_vcpu *vcpu)
{
    return laxity_container(vcpu, struct credit2_vcpu, vcpu);
}

static struct credit2_cpu *credit2_cpu_of(struct laxity_cpu *cpu)
{
    return laxity_container(cpu, struct credit2_cpu, cpu);
}

static struct credit2_domain *credit2_domain_of(struct laxity_domain *domain)
{
    return laxity_container(domain, struct credit2_domain, domain);
}

static bool credit2_is_capped(const struct credit2_vcpu *vcpu)
{
    return vcpu->vcpu.domain->parameters.cap_percent > 0;
}

static bool credit2_can_run(const struct credit2_vcpu *vcpu)
{
    return vcpu->vcpu.runnable && !list_holds(&vcpu->parked) && !vcpu->leaves_queue;
}

/* ---- Run queues ---- */

/* The number of CPUs that share a run queue. */
static uint32_t credit2_queue_cpus(const struct laxity_instance *instance)
{
    uint32_t cpus = instance->settings.run_queue_cpus;
    return cpus ? cpus : instance->cpus;
}

static bool credit2_shares_queue(const struct laxity_instance *instance, uint32_t one,
                                 uint32_t other)
{
    uint32_t cpus = credit2_queue_cpus(instance);
    return one / cpus == other / cpus;
}

/* The number of the first CPU that a run queue can have. */
static uint32_t credit2_queue_begin(const struct laxity_instance *instance, uint32_t number)
{
    return number - number % credit2_queue_cpus(instance);
}

/* The number after the last CPU that a run queue can have. */
static uint32_t credit2_queue_end(const struct laxity_instance *instance, uint32_t number)
{
    uint32_t begin = credit2_queue_begin(instance, number), cpus = credit2_queue_cpus(instance);
    return cpus < instance->cpus - begin ? begin + cpus : instance->cpus;
}

/* The first existing CPU of a run queue, except one; NULL: there is none. */
static struct credit2_cpu *credit2_queue_cpu(struct laxity_instance *instance, uint32_t number,
                                             const struct laxity_cpu *besides)
{
    uint32_t end = credit2_queue_end(instance, number);

    for (uint32_t other = credit2_queue_begin(instance, number); other < end; other++)
        if (instance->cpu[other] && instance->cpu[other] != besides)
            return credit2_cpu_of(instance->cpu[other]);
    return NULL;
}

/* The run queue of a CPU. */
static struct credit2_queue *credit2_queue_of(struct laxity_instance *instance, uint32_t number)
{
    return &credit2_queue_cpu(instance, number, NULL)->queue;
}

/* The first VCPU that waits in the run queue of a CPU. */
static struct credit2_vcpu *credit2_first(struct laxity_instance *instance, uint32_t number)
{
    struct list *queue = &credit2_of(instance)->run_queue;

    for (struct list *node = queue->next; node != queue; node = node->next) {
        struct credit2_vcpu *vcpu = laxity_container(node, struct credit2_vcpu, queue);
        if (credit2_shares_queue(instance, vcpu->vcpu.cpu, number))
            return vcpu;
    }
    return NULL;
}

/* Updates an average of a number that has not changed since the last update. */
static void credit2_average(struct credit2_load *load, int64_t number, int64_t now)
{
    int64_t at = now >> CREDIT2_LOAD_TIME_SHIFT, passed = at - load->at;

    if (passed > LAXITY_NS(1) << CREDIT2_LOAD_WINDOW_SHIFT)
        load->average = number * CREDIT2_LOAD_ONE;
    else
        load->average += (passed * number * CREDIT2_LOAD_ONE >> CREDIT2_LOAD_WINDOW_SHIFT) -
                         (passed * load->average >> CREDIT2_LOAD_WINDOW_SHIFT);
    load->at = at;
}

static void credit2_average_queue(struct credit2_queue *queue, int64_t now)
{
    credit2_average(&queue->load, queue->working, now);
}

static void credit2_average_vcpu(struct credit2_vcpu *vcpu, int64_t now)
{
    credit2_average(&vcpu->load, credit2_can_run(vcpu), now);
}

/* One VCPU more of the run queue has work, or one less. */
static void credit2_change_working(struct laxity_instance *instance,
                                   const struct credit2_vcpu *vcpu, int change, int64_t now)
{
    struct credit2_queue *queue = credit2_queue_of(instance, vcpu->vcpu.cpu);

    credit2_average_queue(queue, now);
    queue->working += change;
}

static void credit2_begin_work(struct laxity_instance *instance, struct credit2_vcpu *vcpu,
                               int64_t now)
{
    credit2_change_working(instance, vcpu, 1, now);
    credit2_average(&vcpu->load, 0, now);
}

static void credit2_end_work(struct laxity_instance *instance, struct credit2_vcpu *vcpu,
                             int64_t now)
{
    credit2_change_working(instance, vcpu, -1, now);
    credit2_average(&vcpu->load, 1, now);
}

/* The VCPU, which does not wait, belongs to the run queue of another CPU from now on. */
static void credit2_assign(struct laxity_instance *instance, struct credit2_vcpu *vcpu,
                           uint32_t number)
{
    struct credit2_queue *before = credit2_queue_of(instance, vcpu->vcpu.cpu);
    struct credit2_queue *after = credit2_queue_of(instance, number);

    before->load.average -= vcpu->load.average;
    if (before->load.average < 0)
        before->load.average = 0;
    after->load.average += vcpu->load.average;
    list_remove(&vcpu->member);
    list_append(&credit2_of(instance)->members, &vcpu->member);
    model_migrate(instance, &vcpu->vcpu, number);
}

/* The next CPU of a run queue on which the VCPU may run, behind the one that was picked last. */
static uint32_t credit2_pick(struct laxity_instance *instance, const struct credit2_vcpu *vcpu,
                             uint32_t number)
{
    struct credit2_queue *queue = credit2_queue_of(instance, number);
    uint32_t begin = credit2_queue_begin(instance, number);
    uint32_t cpus = credit2_queue_end(instance, number) - begin;

    for (uint32_t step = 1; step <= cpus; step++) {
        uint32_t next = begin + (queue->picked - begin + step) % cpus;
        if (instance->cpu[next] && model_may_run_on(instance, &vcpu->vcpu, next)) {
            queue->picked = next;
            break;
        }
    }
    return queue->picked;
}

static uint32_t credit2_weight(const struct credit2_vcpu *vcpu)
{
    return vcpu->vcpu.domain->parameters.weight;
}

static bool credit2_is_current(struct laxity_instance *instance, const struct credit2_vcpu *vcpu)
{
    return instance->cpu[vcpu->vcpu.cpu]->current == &vcpu->vcpu;
}

/* The greatest weight of dom0 and the VCPUs of a CPU's run queue. Credits of a VCPU with this
 * weight are nanoseconds. */
static uint32_t credit2_greatest_weight(struct laxity_instance *instance, uint32_t number)
{
    struct list *members = &credit2_of(instance)->members;
    uint32_t greatest = CREDIT2_WEIGHT_OF_DOM0;

    for (struct list *node = members->next; node != members; node = node->next) {
        const struct credit2_vcpu *vcpu = laxity_container(node, struct credit2_vcpu, member);
        if (credit2_shares_queue(instance, vcpu->vcpu.cpu, number) &&
            credit2_weight(vcpu) > greatest)
            greatest = credit2_weight(vcpu);
    }
    return greatest;
}

static void credit2_burn(struct laxity_instance *instance, struct credit2_vcpu *vcpu, int64_t now)
{
    int64_t used_ns = now - vcpu->burnt_to_ns, burnt;

    if (used_ns <= 0)
        return;
    burnt = used_ns * credit2_greatest_weight(instance, vcpu->vcpu.cpu) + vcpu->residual;
    vcpu->residual = burnt % credit2_weight(vcpu);
    vcpu->credit_ns -= burnt / credit2_weight(vcpu);
    if (vcpu->credit_ns < CREDIT2_LEAST_NS)
        vcpu->credit_ns = CREDIT2_LEAST_NS;
    vcpu->budget_ns -= used_ns;
    vcpu->burnt_to_ns = now;
    model_trace(instance, &vcpu->vcpu, LAXITY_EVENT_BUDGET, vcpu->credit_ns);
}

/* Puts the VCPU behind all of its run queue with as many credits or more. */
static void credit2_enqueue(struct laxity_instance *instance, struct credit2_vcpu *vcpu)
{
    struct list *queue = &credit2_of(instance)->run_queue, *node = queue->next;

    for (; node != queue; node = node->next) {
        const struct credit2_vcpu *other = laxity_container(node, struct credit2_vcpu, queue);
        if (credit2_shares_queue(instance, other->vcpu.cpu, vcpu->vcpu.cpu) &&
            vcpu->credit_ns > other->credit_ns)
            break;
    }
    list_append(node, &vcpu->queue);
}

/* The credits by which the VCPU exceeds the one that runs on a CPU, plus a bonus for preferences of
 * the two; 0 if that one may not be preempted, or has as many. */
static int64_t credit2_lead(struct laxity_instance *instance, const struct credit2_vcpu *vcpu,
                            struct laxity_cpu *cpu, int64_t now)
{
    struct credit2_vcpu *running = cpu->current ? credit2_vcpu_of(cpu->current) : NULL;
    int64_t lead_ns;

    if (!running || now - running->chosen_ns <= CREDIT2_RATELIMIT_NS - CREDIT2_TOLERANCE_NS)
        return 0;
    credit2_burn(instance, running, now);
    lead_ns = vcpu->credit_ns - running->credit_ns;
    if (vcpu->vcpu.cpu != cpu->number)
        lead_ns -= CREDIT2_RESISTANCE_NS;
    if (lead_ns <= 0)
        return 0;
    if (model_prefers(instance, &vcpu->vcpu, cpu->number))
        lead_ns += CREDIT2_PREFERENCE_NS;
    if (!model_prefers(instance, &running->vcpu, cpu->number))
        lead_ns += CREDIT2_PREFERENCE_NS;
    return lead_ns;
}

static bool credit2_may_be_called(struct laxity_instance *instance, const struct credit2_vcpu *vcpu,
                                  uint32_t number)
{
    struct laxity_cpu *cpu = instance->cpu[number];
    return cpu && credit2_shares_queue(instance, number, vcpu->vcpu.cpu) &&
           !credit2_cpu_of(cpu)->is_called && model_may_run_on(instance, &vcpu->vcpu, number);
}

/* Whether the VCPU prefers some of the CPUs that it may run on, and not all. */
static bool credit2_has_preference(struct laxity_instance *instance,
                                   const struct credit2_vcpu *vcpu)
{
    bool prefers = false, spurns = false;

    for (uint32_t number = 0; number < instance->cpus; number++) {
        if (!instance->cpu[number] || !model_may_run_on(instance, &vcpu->vcpu, number))
            continue;
        if (model_prefers(instance, &vcpu->vcpu, number))
            prefers = true;
        else
            spurns = true;
    }
    return prefers && spurns;
}

/* The first idle CPU that the VCPU may call, and that it prefers if it is to; NULL: none. */
static struct laxity_cpu *credit2_idle(struct laxity_instance *instance,
                                       const struct credit2_vcpu *vcpu, bool preferred)
{
    for (uint32_t step = 0, number = vcpu->vcpu.cpu; step < instance->cpus; step++) {
        struct laxity_cpu *cpu = instance->cpu[number];
        if (credit2_may_be_called(instance, vcpu, number) && !cpu->current &&
            !credit2_cpu_of(cpu)->balances &&
            (!preferred || model_prefers(instance, &vcpu->vcpu, number)))
            return cpu;
        number = number + 1 == instance->cpus ? 0 : number + 1;
    }
    return NULL;
}

/* The CPU that the VCPU calls; NULL: none. */
static struct laxity_cpu *credit2_called(struct laxity_instance *instance,
                                         const struct credit2_vcpu *vcpu, int64_t now)
{
    uint32_t own = vcpu->vcpu.cpu;
    struct laxity_cpu *best = NULL;
    int64_t best_ns = 0;

    if (credit2_has_preference(instance, vcpu))
        best = credit2_idle(instance, vcpu, true);
    if (!best)
        best = credit2_idle(instance, vcpu, false);
    if (best)
        return best;
    if (credit2_may_be_called(instance, vcpu, own)) {
        best_ns = credit2_lead(instance, vcpu, instance->cpu[own], now);
        if (best_ns > 0)
            best = instance->cpu[own];
        if (best && model_prefers(instance, &vcpu->vcpu, own))
            return best;
    }
    for (uint32_t number = 0; number < instance->cpus; number++) {
        int64_t lead_ns;
        if (number == own || !credit2_may_be_called(instance, vcpu, number))
            continue;
        lead_ns = credit2_lead(instance, vcpu, instance->cpu[number], now);
        if (lead_ns > best_ns) {
            best_ns = lead_ns;
            best = instance->cpu[number];
        }
    }
    return best;
}

static void credit2_kick(struct laxity_instance *instance, uint32_t cpu)
{
    credit2_cpu_of(instance->cpu[cpu])->is_called = true;
    model_kick(instance, cpu);
}

static void credit2_call(struct laxity_instance *instance, struct credit2_vcpu *vcpu, int64_t now)
{
    struct laxity_cpu *cpu = credit2_called(instance, vcpu, now);

    if (!cpu)
        return;
    vcpu->called_cpu = cpu->number;
    credit2_kick(instance, cpu->number);
}

/* ---- Caps ---- */

static int64_t credit2_filled_ns(const struct credit2_domain *domain)
{
    return CREDIT2_CAP_PERIOD_NS * domain->domain.parameters.cap_percent / 100;
}

/* Takes budget from the domain's pool for a VCPU that has none left, and may have overdrawn it. One
 * that finds none is parked. */
static bool credit2_grab(struct laxity_instance *instance, struct credit2_vcpu *vcpu, int64_t now)
{
    struct credit2_domain *domain = credit2_domain_of(vcpu->vcpu.domain);
    int64_t quota_ns;

    if (!credit2_is_capped(vcpu) || vcpu->budget_ns > 0)
        return true;
    domain->pool_ns += vcpu->budget_ns;
    vcpu->budget_ns = 0;
    if (domain->pool_ns <= 0) {
        if (list_holds(&vcpu->queue)) {
            list_remove(&vcpu->queue);
            credit2_end_work(instance, vcpu, now);
        }
        if (!list_holds(&vcpu->parked))
            list_append(domain->parked.next, &vcpu->parked);
        model_trace(instance, &vcpu->vcpu, LAXITY_EVENT_CLASS, CREDIT2_CLASS_PARKED);
        return false;
    }
    quota_ns = credit2_filled_ns(domain) / (domain->vcpus ? domain->vcpus : 1);
    if (quota_ns < CREDIT2_QUOTA_LEAST_NS)
        quota_ns = CREDIT2_QUOTA_LEAST_NS;
    vcpu->budget_ns = quota_ns < domain->pool_ns ? quota_ns : domain->pool_ns;
    domain->pool_ns -= vcpu->budget_ns;
    return true;
}

/* The parked VCPUs compete again, the one parked last first. */
static void credit2_unpark(struct laxity_instance *instance, struct credit2_domain *domain,
                           int64_t now)
{
    struct list parked;

    list_init(&parked);
    while (!list_is_empty(&domain->parked)) {
        struct list *node = domain->parked.next;
        list_remove(node);
        list_append(&parked, node);
    }
    while (!list_is_empty(&parked)) {
        struct credit2_vcpu *vcpu = laxity_container(parked.next, struct credit2_vcpu, parked);
        list_remove(&vcpu->parked);
        model_trace(instance, &vcpu->vcpu, LAXITY_EVENT_CLASS, CREDIT2_CLASS_UNDER);
        if (credit2_can_run(vcpu) && !credit2_is_current(instance, vcpu)) {
            credit2_begin_work(instance, vcpu, now);
            credit2_enqueue(instance, vcpu);
            credit2_call(instance, vcpu, now);
        }
    }
}

/* A VCPU that leaves its CPU returns the rest of its budget. */
static void credit2_give_back(struct credit2_vcpu *vcpu)
{
    if (!credit2_is_capped(vcpu) || vcpu->budget_ns <= 0)
        return;
    credit2_domain_of(vcpu->vcpu.domain)->pool_ns += vcpu->budget_ns;
    vcpu->budget_ns = 0;
}

/* For the pools of all domains that have VCPUs. */
static void credit2_arm(struct laxity_instance *instance)
{
    struct list *capped = &credit2_of(instance)->capped;
    int64_t next_ns = LAXITY_NEVER;

    for (struct list *node = capped->next; node != capped; node = node->next) {
        const struct credit2_domain *domain = laxity_container(node, struct credit2_domain, capped);
        if (domain->vcpus && domain->next_ns < next_ns)
            next_ns = domain->next_ns;
    }
    laxity_arm_account(instance, next_ns);
}

static void credit2_fill(struct laxity_instance *instance, struct credit2_domain *domain,
                         int64_t now)
{
    int64_t filled_ns = credit2_filled_ns(domain);

    do {
        domain->next_ns += CREDIT2_CAP_PERIOD_NS;
        domain->pool_ns += filled_ns;
    } while (domain->next_ns <= now);
    if (domain->pool_ns <= 0)
        return;
    if (domain->pool_ns > filled_ns)
        domain->pool_ns = filled_ns;
    credit2_unpark(instance, domain, now);
}

static void credit2_account(struct laxity_instance *instance, int64_t now)
{
    struct list *capped = &credit2_of(instance)->capped;

    for (struct list *node = capped->next; node != capped; node = node->next) {
        struct credit2_domain *domain = laxity_container(node, struct credit2_domain, capped);
        if (domain->next_ns <= now)
            credit2_fill(instance, domain, now);
    }
    credit2_arm(instance);
}

/* A cap begins with a full pool, from which no VCPU has taken anything. */
static void credit2_begin_cap(struct laxity_instance *instance, struct credit2_domain *domain,
                              int64_t now)
{
    struct list *members = &credit2_of(instance)->members;

    list_append(&credit2_of(instance)->capped, &domain->capped);
    domain->pool_ns = credit2_filled_ns(domain);
    domain->next_ns = now + CREDIT2_CAP_PERIOD_NS;
    for (struct list *node = members->next; node != members; node = node->next) {
        struct credit2_vcpu *vcpu = laxity_container(node, struct credit2_vcpu, member);
        if (vcpu->vcpu.domain != &domain->domain)
            continue;
        if (credit2_is_current(instance, vcpu)) {
            credit2_burn(instance, vcpu, now);
            credit2_kick(instance, vcpu->vcpu.cpu);
        }
        vcpu->budget_ns = 0;
    }
    credit2_arm(instance);
}

/* All VCPUs of a CPU's run queue get credits, and more if the next one to run had the least
 * possible.
 */
static void credit2_reset(struct laxity_instance *instance, uint32_t number,
                          const struct credit2_vcpu *next, int64_t now)
{
    struct list *members = &credit2_of(instance)->members;
    int64_t given_ns = CREDIT2_INITIAL_NS, most_ns = CREDIT2_INITIAL_NS + CREDIT2_CARRIED_NS;

    if (next->credit_ns == CREDIT2_LEAST_NS)
        given_ns += CREDIT2_INITIAL_NS;
    for (struct list *node = members->next; node != members; node = node->next) {
        struct credit2_vcpu *vcpu = laxity_container(node, struct credit2_vcpu, member);
        if (!credit2_shares_queue(instance, vcpu->vcpu.cpu, number))
            continue;
        if (credit2_is_current(instance, vcpu)) {
            credit2_burn(instance, vcpu, now);
            if (credit2_is_capped(vcpu) && vcpu->budget_ns <= 0)
                credit2_kick(instance, vcpu->vcpu.cpu);
        }
        vcpu->credit_ns += given_ns;
        if (vcpu->credit_ns > most_ns)
            vcpu->credit_ns = most_ns;
        vcpu->burnt_to_ns = now;
        model_trace(instance, &vcpu->vcpu, LAXITY_EVENT_REPLENISH, vcpu->credit_ns);
    }
}

/* ---- Balancing ---- */

/* Two run queues, by a CPU of each, and the best VCPUs to move between them. */
struct credit2_balance {
    uint32_t here, there;
    int64_t difference;
    struct credit2_vcpu *pushed, *pulled;
};

static int64_t credit2_distance(int64_t one, int64_t other)
{
    return one < other ? other - one : one - other;
}

/* Finds the run queue whose average is farthest from that of `here`. False: none is far enough. */
static bool credit2_find_queue(struct laxity_instance *instance, struct credit2_balance *balance,
                               int64_t now)
{
    const struct credit2_queue *here = credit2_queue_of(instance, balance->here);
    int64_t most = here->load.average, cpus = 0, cpus_of_last = 0;

    balance->difference = 0;
    for (uint32_t number = 0, end; number < instance->cpus; number = end) {
        struct credit2_cpu *first = credit2_queue_cpu(instance, number, NULL);
        int64_t count = 0, difference;
        end = credit2_queue_end(instance, number);
        if (!first)
            continue;
        for (uint32_t cpu = number; cpu < end; cpu++)
            count += instance->cpu[cpu] != NULL;
        /* The last run queue counts beside `here`, as in Xen, and not the one that is
         * chosen. */
        cpus_of_last = count;
        if (credit2_shares_queue(instance, number, balance->here)) {
            cpus = count;
            most = here->load.average;
            continue;
        }
        credit2_average_queue(&first->queue, now);
        most = here->load.average > first->queue.load.average ? here->load.average
                                                              : first->queue.load.average;
        difference = credit2_distance(here->load.average, first->queue.load.average);
        if (difference > balance->difference) {
            balance->difference = difference;
            balance->there = number;
        }
    }
    if (cpus < cpus_of_last)
        cpus = cpus_of_last;
    return balance->difference >=
           (most < cpus * CREDIT2_LOAD_ONE ? CREDIT2_DIFFERENCE_SPARE : CREDIT2_DIFFERENCE_FULL);
}

static bool credit2_may_go(struct laxity_instance *instance, const struct credit2_vcpu *vcpu,
                           uint32_t number)
{
    uint32_t end = credit2_queue_end(instance, number);

    if (vcpu->leaves_queue)
        return false;
    for (uint32_t cpu = credit2_queue_begin(instance, number); cpu < end; cpu++)
        if (instance->cpu[cpu] && model_may_run_on(instance, &vcpu->vcpu, cpu))
            return true;
    return false;
}

/* Remembers the VCPUs to move, either of which may be NULL, if they bring the averages closest. */
static void credit2_consider(struct laxity_instance *instance, struct credit2_balance *balance,
                             struct credit2_vcpu *pushed, struct credit2_vcpu *pulled)
{
    int64_t moved = (pushed ? pushed->load.average : 0) - (pulled ? pulled->load.average : 0);
    int64_t difference =
        credit2_distance(credit2_queue_of(instance, balance->here)->load.average - moved,
                         credit2_queue_of(instance, balance->there)->load.average + moved);

    if (difference < balance->difference) {
        balance->difference = difference;
        balance->pushed = pushed;
        balance->pulled = pulled;
    }
}

/* A VCPU that runs leaves its CPU first. */
static void credit2_go_over(struct laxity_instance *instance, struct credit2_vcpu *vcpu,
                            uint32_t number, int64_t now)
{
    bool waits = list_holds(&vcpu->queue);

    if (vcpu->is_chosen) {
        vcpu->leaves_queue = true;
        vcpu->goes_to = number;
        credit2_kick(instance, vcpu->vcpu.cpu);
        return;
    }
    if (waits) {
        list_remove(&vcpu->queue);
        credit2_change_working(instance, vcpu, -1, now);
    }
    credit2_assign(instance, vcpu, credit2_pick(instance, vcpu, number));
    if (waits) {
        credit2_change_working(instance, vcpu, 1, now);
        credit2_enqueue(instance, vcpu);
        credit2_call(instance, vcpu, now);
    }
}

/* The VCPU of a run queue after a member; NULL: there is none. */
static struct credit2_vcpu *credit2_next_member(struct laxity_instance *instance, uint32_t number,
                                                const struct list *node)
{
    const struct list *members = &credit2_of(instance)->members;

    for (node = node->next; node != members; node = node->next) {
        struct credit2_vcpu *vcpu = laxity_container(node, struct credit2_vcpu, member);
        if (credit2_shares_queue(instance, vcpu->vcpu.cpu, number))
            return vcpu;
    }
    return NULL;
}

/* The run queue of a CPU gives VCPUs to the one that differs most, takes some, or exchanges two. */
static void credit2_balance(struct laxity_instance *instance, uint32_t here, int64_t now)
{
    const struct list *members = &credit2_of(instance)->members;
    struct credit2_balance balance;
    struct credit2_vcpu *push, *pull;
    bool averaged = false;

    /* Field by field: clang clears a structure by memset, which freestanding code lacks. */
    balance.here = balance.there = here;
    balance.difference = 0;
    balance.pushed = balance.pulled = NULL;
    credit2_average_queue(credit2_queue_of(instance, here), now);
    if (!credit2_find_queue(instance, &balance, now))
        return;
    for (push = credit2_next_member(instance, here, members); push;
         push = credit2_next_member(instance, here, &push->member)) {
        credit2_average_vcpu(push, now);
        if (!credit2_may_go(instance, push, balance.there))
            continue;
        for (pull = credit2_next_member(instance, balance.there, members); pull;
             pull = credit2_next_member(instance, balance.there, &pull->member)) {
            if (!averaged)
                credit2_average_vcpu(pull, now);
            if (credit2_may_go(instance, pull, here))
                credit2_consider(instance, &balance, push, pull);
        }
        averaged = true;
        credit2_consider(instance, &balance, push, NULL);
    }
    for (pull = credit2_next_member(instance, balance.there, members); pull;
         pull = credit2_next_member(instance, balance.there, &pull->member))
        if (credit2_may_go(instance, pull, here))
            credit2_consider(instance, &balance, NULL, pull);
    if (balance.pushed)
        credit2_go_over(instance, balance.pushed, balance.there, now);
    if (balance.pulled)
        credit2_go_over(instance, balance.pulled, here, now);
}

/* ---- Operations ---- */

static enum laxity_error credit2_init(struct laxity_instance *instance,
                                      const struct laxity_settings *settings)
{
    if (settings->run_queue_cpus > LAXITY_RUN_QUEUE_MAX)
        return LAXITY_ERROR_RUN_QUEUE_CPUS;
    instance->settings = *settings;
    list_init(&credit2_of(instance)->members);
    list_init(&credit2_of(instance)->run_queue);
    list_init(&credit2_of(instance)->capped);
    return LAXITY_OK;
}

/* The first CPU of a run queue holds the state of the run queue. */
static void credit2_add_cpu(struct laxity_instance *instance, struct laxity_cpu *base, int64_t now)
{
    struct credit2_cpu *first = credit2_queue_cpu(instance, base->number, base);

    (void)now;
    credit2_cpu_of(base)->queue.picked = base->number;
    if (first && base->number < first->cpu.number)
        credit2_cpu_of(base)->queue = first->queue;
}

static void credit2_remove_cpu(struct laxity_instance *instance, struct laxity_cpu *base,
                               int64_t now)
{
    struct credit2_cpu *next = credit2_queue_cpu(instance, base->number, base);

    (void)now;
    if (next && base->number < next->cpu.number)
        next->queue = credit2_cpu_of(base)->queue;
}

/* Run queues are made when Xen boots: a change of their size holds from the next boot on. */
static enum laxity_error credit2_set_settings(struct laxity_instance *instance,
                                              const struct laxity_settings *settings, int64_t now)
{
    uint32_t cpus = instance->settings.run_queue_cpus;

    (void)now;
    if (settings->run_queue_cpus > LAXITY_RUN_QUEUE_MAX)
        return LAXITY_ERROR_RUN_QUEUE_CPUS;
    instance->settings = *settings;
    instance->settings.run_queue_cpus = cpus;
    return LAXITY_OK;
}

static enum laxity_error credit2_check(const struct laxity_parameters *parameters)
{
    if (parameters->weight < 1 || parameters->weight > LAXITY_WEIGHT_MAX)
        return LAXITY_ERROR_WEIGHT;
    if (parameters->cap_percent > LAXITY_CAP_MAX)
        return LAXITY_ERROR_CAP;
    if (parameters->credit_ns < 0 || parameters->credit_ns > LAXITY_CREDIT_MAX)
        return LAXITY_ERROR_CREDIT;
    return LAXITY_OK;
}

static enum laxity_error credit2_add_domain(struct laxity_instance *instance,
                                            struct laxity_domain *base,
                                            const struct laxity_parameters *parameters)
{
    struct credit2_domain *domain = credit2_domain_of(base);
    enum laxity_error error = credit2_check(parameters);

    (void)instance;
    if (error)
        return error;
    base->parameters = *parameters;
    list_init(&domain->parked);
    return LAXITY_OK;
}

static void credit2_remove_domain(struct laxity_instance *instance, struct laxity_domain *base)
{
    struct credit2_domain *domain = credit2_domain_of(base);

    if (list_holds(&domain->capped)) {
        list_remove(&domain->capped);
        credit2_arm(instance);
    }
}

static enum laxity_error credit2_set_domain(struct laxity_instance *instance,
                                            struct laxity_domain *base,
                                            const struct laxity_parameters *parameters, int64_t now)
{
    struct credit2_domain *domain = credit2_domain_of(base);
    enum laxity_error error = credit2_check(parameters);
    bool was_capped = list_holds(&domain->capped);

    if (error)
        return error;
    base->parameters = *parameters;
    if (parameters->cap_percent && !was_capped)
        credit2_begin_cap(instance, domain, now);
    if (!parameters->cap_percent && was_capped) {
        list_remove(&domain->capped);
        credit2_arm(instance);
        credit2_unpark(instance, domain, now);
    }
    return LAXITY_OK;
}

static enum laxity_error credit2_add_vcpu(struct laxity_instance *instance,
                                          struct laxity_vcpu *base,
                                          const struct laxity_parameters *parameters, int64_t now)
{
    struct credit2_vcpu *vcpu = credit2_vcpu_of(base);
    struct credit2_domain *domain = credit2_domain_of(base->domain);

    base->parameters = *parameters;
    vcpu->credit_ns = base->domain->parameters.credit_ns;
    vcpu->burnt_to_ns = now;
    vcpu->called_cpu = CREDIT2_NOBODY;
    vcpu->load = (struct credit2_load){CREDIT2_LOAD_AT_FIRST, now >> CREDIT2_LOAD_TIME_SHIFT};
    credit2_queue_of(instance, base->cpu)->load.average += CREDIT2_LOAD_AT_FIRST;
    list_append(&credit2_of(instance)->members, &vcpu->member);
    domain->vcpus++;
    if (list_holds(&domain->capped))
        credit2_arm(instance);
    else if (credit2_is_capped(vcpu))
        credit2_begin_cap(instance, domain, now);
    return LAXITY_OK;
}

static void credit2_remove_vcpu(struct laxity_instance *instance, struct laxity_vcpu *base,
                                int64_t now)
{
    struct credit2_vcpu *vcpu = credit2_vcpu_of(base);
    struct credit2_load *load = &credit2_queue_of(instance, base->cpu)->load;

    (void)now;
    load->average -= vcpu->load.average;
    if (load->average < 0)
        load->average = 0;
    list_remove(&vcpu->member);
    if (list_holds(&vcpu->parked))
        list_remove(&vcpu->parked);
    credit2_domain_of(base->domain)->vcpus--;
    credit2_arm(instance);
}

static void credit2_move_vcpu(struct laxity_instance *instance, struct laxity_vcpu *vcpu,
                              uint32_t cpu, int64_t now)
{
    (void)now;
    if (credit2_shares_queue(instance, vcpu->cpu, cpu))
        model_migrate(instance, vcpu, cpu);
    else
        credit2_assign(instance, credit2_vcpu_of(vcpu), cpu);
}

static void credit2_wake(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    struct credit2_vcpu *vcpu = credit2_vcpu_of(base);

    if (credit2_is_current(instance, vcpu) || list_holds(&vcpu->parked))
        return;
    credit2_begin_work(instance, vcpu, now);
    credit2_enqueue(instance, vcpu);
    credit2_call(instance, vcpu, now);
}

static void credit2_sleep(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    struct credit2_vcpu *vcpu = credit2_vcpu_of(base);

    if (credit2_is_current(instance, vcpu)) {
        credit2_kick(instance, base->cpu);
    } else if (list_holds(&vcpu->queue)) {
        credit2_end_work(instance, vcpu, now);
        list_remove(&vcpu->queue);
    }
}

static void credit2_yield(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    (void)now;
    if (!credit2_is_current(instance, credit2_vcpu_of(base)))
        return;
    credit2_vcpu_of(base)->yields = true;
    model_kick(instance, base->cpu);
}

static bool credit2_awaits_another(struct laxity_instance *instance,
                                   const struct credit2_vcpu *vcpu, uint32_t cpu)
{
    struct laxity_cpu *other;

    if (vcpu->called_cpu == CREDIT2_NOBODY || vcpu->called_cpu == cpu ||
        !credit2_shares_queue(instance, vcpu->called_cpu, cpu))
        return false;
    other = instance->cpu[vcpu->called_cpu];
    return other && credit2_cpu_of(other)->is_called;
}

/* Whether a CPU is idle that the VCPU prefers to its own. */
static bool credit2_is_better_elsewhere(struct laxity_instance *instance,
                                        const struct credit2_vcpu *vcpu)
{
    return credit2_has_preference(instance, vcpu) &&
           !model_prefers(instance, &vcpu->vcpu, vcpu->vcpu.cpu) &&
           credit2_idle(instance, vcpu, true);
}

/* The VCPU that the CPU runs next. */
static struct credit2_vcpu *credit2_candidate(struct laxity_instance *instance, uint32_t cpu,
                                              struct credit2_vcpu *before, int64_t now)
{
    struct list *queue = &credit2_of(instance)->run_queue;
    struct credit2_vcpu *stays = before && credit2_can_run(before) ? before : NULL;
    int64_t credit_ns = stays ? stays->credit_ns : CREDIT2_IDLE_NS;
    bool yields = before && before->yields;

    if (before)
        before->yields = false;
    if (stays && !yields && now - stays->chosen_ns < CREDIT2_RATELIMIT_NS)
        return stays;
    if (stays && credit2_is_better_elsewhere(instance, stays)) {
        stays = NULL;
        credit_ns = CREDIT2_IDLE_NS;
    }
    for (struct list *node = queue->next, *next; node != queue; node = next) {
        struct credit2_vcpu *vcpu = laxity_container(node, struct credit2_vcpu, queue);
        next = node->next;
        if (!credit2_shares_queue(instance, vcpu->vcpu.cpu, cpu))
            continue;
        if (!yields && vcpu->credit_ns <= credit_ns)
            break;
        if (vcpu->vcpu.on_cpu || !model_may_run_on(instance, &vcpu->vcpu, cpu) ||
            credit2_awaits_another(instance, vcpu, cpu))
            continue;
        if (vcpu->vcpu.cpu != cpu && credit_ns + CREDIT2_RESISTANCE_NS > vcpu->credit_ns)
            continue;
        if (credit2_grab(instance, vcpu, now))
            return vcpu;
    }
    return stays;
}

/* The longest time for which the VCPU runs: until it has as many credits as the first that waits,
 * or none, or has used up its budget. */
static int64_t credit2_run_ns(struct laxity_instance *instance, const struct credit2_vcpu *vcpu,
                              int64_t now)
{
    const struct credit2_vcpu *first = credit2_first(instance, vcpu->vcpu.cpu);
    int64_t least_ns = vcpu->chosen_ns + CREDIT2_RATELIMIT_NS - now;
    int64_t lead_ns = vcpu->credit_ns, run_ns = 0;

    if (least_ns < CREDIT2_RUN_LEAST_NS)
        least_ns = CREDIT2_RUN_LEAST_NS;
    if (first && first->credit_ns > 0)
        lead_ns -= first->credit_ns;
    if (lead_ns > 0)
        run_ns = lead_ns * credit2_weight(vcpu) / credit2_greatest_weight(instance, vcpu->vcpu.cpu);
    if (credit2_is_capped(vcpu) && vcpu->budget_ns < run_ns)
        run_ns = vcpu->budget_ns;
    if (run_ns < least_ns)
        return least_ns;
    return run_ns < CREDIT2_RUN_MOST_NS ? run_ns : CREDIT2_RUN_MOST_NS;
}

/* The VCPU was descheduled, or has blocked or been parked, or moves to another run queue. */
static void credit2_leave(struct laxity_instance *instance, struct credit2_vcpu *vcpu, int64_t now)
{
    struct credit2_domain *domain = credit2_domain_of(vcpu->vcpu.domain);

    vcpu->is_chosen = false;
    credit2_give_back(vcpu);
    if (credit2_can_run(vcpu)) {
        credit2_enqueue(instance, vcpu);
        credit2_call(instance, vcpu, now);
    } else {
        credit2_end_work(instance, vcpu, now);
    }
    if (credit2_is_capped(vcpu) && domain->pool_ns > 0)
        credit2_unpark(instance, domain, now);
    if (!vcpu->leaves_queue)
        return;
    vcpu->leaves_queue = false;
    /* Its CPUs may have changed. Xen picks twice: when it finds the CPU to go to, and when it goes.
     */
    if (credit2_may_go(instance, vcpu, vcpu->goes_to)) {
        credit2_pick(instance, vcpu, vcpu->goes_to);
        credit2_assign(instance, vcpu, credit2_pick(instance, vcpu, vcpu->goes_to));
    }
    if (credit2_can_run(vcpu)) {
        credit2_begin_work(instance, vcpu, now);
        credit2_enqueue(instance, vcpu);
        credit2_call(instance, vcpu, now);
    }
}

/* The run queue has used up its credits: all its VCPUs get new ones, and run queues are balanced.
 */
static void credit2_begin_anew(struct laxity_instance *instance, struct laxity_cpu *cpu,
                               const struct credit2_vcpu *next, int64_t now)
{
    credit2_reset(instance, cpu->number, next, now);
    credit2_cpu_of(cpu)->balances = true;
    credit2_balance(instance, cpu->number, now);
    credit2_cpu_of(cpu)->balances = false;
}

static struct laxity_decision credit2_schedule(struct laxity_instance *instance,
                                               struct laxity_cpu *cpu, int64_t now)
{
    struct credit2_vcpu *before = cpu->current ? credit2_vcpu_of(cpu->current) : NULL, *next;
    struct laxity_decision decision = {NULL, LAXITY_NEVER};

    credit2_cpu_of(cpu)->is_called = false;
    if (before) {
        credit2_burn(instance, before, now);
        credit2_grab(instance, before, now);
    }
    next = credit2_candidate(instance, cpu->number, before, now);
    if (next) {
        const struct credit2_vcpu *first;
        if (next == before) {
            credit2_average_queue(credit2_queue_of(instance, cpu->number), now);
            credit2_average_vcpu(next, now);
        } else {
            list_remove(&next->queue);
            next->is_chosen = true;
        }
        first = credit2_first(instance, cpu->number);
        if (next->credit_ns <= 0 && (!first || first->credit_ns <= 0))
            credit2_begin_anew(instance, cpu, next, now);
        next->burnt_to_ns = now;
        next->called_cpu = CREDIT2_NOBODY;
        if (next != before)
            next->chosen_ns = now;
        if (next->vcpu.cpu != cpu->number)
            next->credit_ns += CREDIT2_COMPENSATION_NS;
        model_migrate(instance, &next->vcpu, cpu->number);
        decision.vcpu = &next->vcpu;
        decision.until_ns = now + credit2_run_ns(instance, next, now) + CREDIT2_LATE_NS;
    } else {
        credit2_average_queue(credit2_queue_of(instance, cpu->number), now);
    }
    cpu->current = decision.vcpu;
    if (before && before != next)
        credit2_leave(instance, before, now);
    return decision;
}

static void credit2_timer(struct laxity_instance *instance, struct laxity_cpu *cpu, int64_t now)
{
    (void)instance, (void)cpu, (void)now;
}

static enum laxity_error credit2_set_vcpu(struct laxity_instance *instance,
                                          struct laxity_vcpu *vcpu,
                                          const struct laxity_parameters *parameters, int64_t now)
{
    (void)instance, (void)now;
    vcpu->parameters = *parameters;
    return LAXITY_OK;
}

static void credit2_dump(struct laxity_instance *instance, struct laxity_cpu *cpu,
                         struct laxity_dump *dump)
{
    struct list *queue = &credit2_of(instance)->run_queue;

    if (cpu->current)
        dump->line(dump, cpu->current, "runs", credit2_vcpu_of(cpu->current)->credit_ns,
                   LAXITY_NEVER);
    for (struct list *node = queue->next; node != queue; node = node->next) {
        struct credit2_vcpu *vcpu = laxity_container(node, struct credit2_vcpu, queue);
        if (vcpu->vcpu.cpu == cpu->number)
            dump->line(dump, &vcpu->vcpu,
                       credit2_awaits_another(instance, vcpu, cpu->number) ? "called another CPU"
                                                                           : "RunQ",
                       vcpu->credit_ns, LAXITY_NEVER);
    }
}

const struct laxity_policy laxity_credit2 = {
    .instance_bytes = sizeof(struct credit2_instance),
    .cpu_bytes = sizeof(struct credit2_cpu),
    .domain_bytes = sizeof(struct credit2_domain),
    .vcpu_bytes = sizeof(struct credit2_vcpu),
    .steals = true,
    .init = credit2_init,
    .add_cpu = credit2_add_cpu,
    .remove_cpu = credit2_remove_cpu,
    .add_domain = credit2_add_domain,
    .remove_domain = credit2_remove_domain,
    .add_vcpu = credit2_add_vcpu,
    .remove_vcpu = credit2_remove_vcpu,
    .move_vcpu = credit2_move_vcpu,
    .wake = credit2_wake,
    .sleep = credit2_sleep,
    .yield = credit2_yield,
    .schedule = credit2_schedule,
    .timer = credit2_timer,
    .account = credit2_account,
    .set_settings = credit2_set_settings,
    .set_domain = credit2_set_domain,
    .set_vcpu = credit2_set_vcpu,
    .become = model_become,
    .dump = credit2_dump,
};
