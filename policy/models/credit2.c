/* SPDX-License-Identifier: MIT */
/*
 * A model of Xen's credit2 with one run queue. VCPUs wait in the order of their credits. Running
 * burns credits, the slower the greater the weight; when the best one has none left, all get new
 * ones. A VCPU that has run for less than the ratelimit is not preempted. A domain with a cap has a
 * pool of budget, from which its VCPUs take what they run; they are parked while it is empty.
 * docs/explanation/policies.md has the rules and what is left out.
 */
#include "model.h"

#define CREDIT2_INITIAL_NS (10 * LAXITY_MILLISECOND)
#define CREDIT2_LEAST_NS (-CREDIT2_INITIAL_NS)
/* An idle CPU's, less than any VCPU has. */
#define CREDIT2_IDLE_NS (CREDIT2_LEAST_NS - 1)
#define CREDIT2_CARRIED_NS LAXITY_NS(500000)
#define CREDIT2_RUN_LEAST_NS LAXITY_NS(500000)
#define CREDIT2_RUN_MOST_NS CREDIT2_INITIAL_NS
#define CREDIT2_RATELIMIT_NS LAXITY_MILLISECOND
#define CREDIT2_TOLERANCE_NS LAXITY_NS(50000)
#define CREDIT2_RESISTANCE_NS LAXITY_NS(500000)
#define CREDIT2_COMPENSATION_NS LAXITY_NS(50000)
/* No timer is early, and equal credits preempt nobody: by this much each decision's timer is late.
 */
#define CREDIT2_LATE_NS LAXITY_NS(1000)
#define CREDIT2_CAP_PERIOD_NS (10 * LAXITY_MILLISECOND)
#define CREDIT2_QUOTA_LEAST_NS LAXITY_NS(500000)
/* dom0's, which is on every host. */
#define CREDIT2_WEIGHT_OF_DOM0 256

/* Classes of credit's, for who reads what happened. */
#define CREDIT2_CLASS_UNDER 1
#define CREDIT2_CLASS_PARKED 3

#define CREDIT2_NOBODY ((uint32_t)-1)

struct credit2_domain {
    struct laxity_domain domain;
    struct list capped;       /* of the instance, while it has a cap */
    struct list parked;       /* VCPUs that found the pool empty, the last one first */
    int64_t pool_ns, next_ns; /* what is left, and when it is filled */
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
};

struct credit2_cpu {
    struct laxity_cpu cpu;
    bool is_called; /* and has not decided since */
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
    return vcpu->vcpu.runnable && !list_holds(&vcpu->parked);
}

static struct credit2_vcpu *credit2_first(struct laxity_instance *instance)
{
    struct list *queue = &credit2_of(instance)->run_queue;
    return list_is_empty(queue) ? NULL : laxity_container(queue->next, struct credit2_vcpu, queue);
}

static uint32_t credit2_weight(const struct credit2_vcpu *vcpu)
{
    return vcpu->vcpu.domain->parameters.weight;
}

static bool credit2_is_current(struct laxity_instance *instance, const struct credit2_vcpu *vcpu)
{
    return instance->cpu[vcpu->vcpu.cpu]->current == &vcpu->vcpu;
}

/* The greatest weight of all VCPUs and dom0's. The credits of who has it are nanoseconds. */
static uint32_t credit2_greatest_weight(struct laxity_instance *instance)
{
    struct list *members = &credit2_of(instance)->members;
    uint32_t greatest = CREDIT2_WEIGHT_OF_DOM0;

    for (struct list *node = members->next; node != members; node = node->next) {
        uint32_t weight = credit2_weight(laxity_container(node, struct credit2_vcpu, member));
        greatest = weight > greatest ? weight : greatest;
    }
    return greatest;
}

static void credit2_burn(struct laxity_instance *instance, struct credit2_vcpu *vcpu, int64_t now)
{
    int64_t used_ns = now - vcpu->burnt_to_ns, burnt;

    if (used_ns <= 0)
        return;
    burnt = used_ns * credit2_greatest_weight(instance) + vcpu->residual;
    vcpu->residual = burnt % credit2_weight(vcpu);
    vcpu->credit_ns -= burnt / credit2_weight(vcpu);
    if (vcpu->credit_ns < CREDIT2_LEAST_NS)
        vcpu->credit_ns = CREDIT2_LEAST_NS;
    vcpu->budget_ns -= used_ns;
    vcpu->burnt_to_ns = now;
    model_trace(instance, &vcpu->vcpu, LAXITY_EVENT_BUDGET, vcpu->credit_ns);
}

/* Behind all with as many credits or more. */
static void credit2_enqueue(struct laxity_instance *instance, struct credit2_vcpu *vcpu)
{
    struct list *queue = &credit2_of(instance)->run_queue, *node = queue->next;

    while (node != queue &&
           vcpu->credit_ns <= laxity_container(node, struct credit2_vcpu, queue)->credit_ns)
        node = node->next;
    list_append(node, &vcpu->queue);
}

/* By how much the VCPU is better than what runs on a CPU; 0 where that may not be preempted, or is
 * no worse. */
static int64_t credit2_lead(struct laxity_instance *instance, const struct credit2_vcpu *vcpu,
                            struct laxity_cpu *cpu, int64_t now)
{
    struct credit2_vcpu *running = credit2_vcpu_of(cpu->current);
    int64_t lead_ns;

    if (now - running->chosen_ns <= CREDIT2_RATELIMIT_NS - CREDIT2_TOLERANCE_NS)
        return 0;
    credit2_burn(instance, running, now);
    lead_ns = vcpu->credit_ns - running->credit_ns;
    if (vcpu->vcpu.cpu != cpu->number)
        lead_ns -= CREDIT2_RESISTANCE_NS;
    return lead_ns > 0 ? lead_ns : 0;
}

static bool credit2_may_be_called(struct laxity_instance *instance, const struct credit2_vcpu *vcpu,
                                  uint32_t number)
{
    struct laxity_cpu *cpu = instance->cpu[number];
    return cpu && !credit2_cpu_of(cpu)->is_called &&
           model_may_run_on(instance, &vcpu->vcpu, number);
}

/* The CPU that the VCPU calls; NULL: none. */
static struct laxity_cpu *credit2_called(struct laxity_instance *instance,
                                         const struct credit2_vcpu *vcpu, int64_t now)
{
    uint32_t own = vcpu->vcpu.cpu;
    struct laxity_cpu *best = NULL;
    int64_t best_ns = 0;

    for (uint32_t step = 0, number = own; step < instance->cpus; step++) {
        if (credit2_may_be_called(instance, vcpu, number) && !instance->cpu[number]->current)
            return instance->cpu[number];
        number = number + 1 == instance->cpus ? 0 : number + 1;
    }
    if (credit2_may_be_called(instance, vcpu, own) &&
        credit2_lead(instance, vcpu, instance->cpu[own], now) > 0)
        return instance->cpu[own];
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
static bool credit2_grab(struct laxity_instance *instance, struct credit2_vcpu *vcpu)
{
    struct credit2_domain *domain = credit2_domain_of(vcpu->vcpu.domain);
    int64_t quota_ns;

    if (!credit2_is_capped(vcpu) || vcpu->budget_ns > 0)
        return true;
    domain->pool_ns += vcpu->budget_ns;
    vcpu->budget_ns = 0;
    if (domain->pool_ns <= 0) {
        if (list_holds(&vcpu->queue))
            list_remove(&vcpu->queue);
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

/* Those who were parked compete again, the last that was parked first. */
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
        if (vcpu->vcpu.runnable && !credit2_is_current(instance, vcpu)) {
            credit2_enqueue(instance, vcpu);
            credit2_call(instance, vcpu, now);
        }
    }
}

/* A VCPU that leaves its CPU gives back what it has left. */
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

/* A cap begins with a full pool, of which nobody has taken anything. */
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

/* All VCPUs get credits, more of them where the next one to run was at the least. */
static void credit2_reset(struct laxity_instance *instance, const struct credit2_vcpu *next,
                          int64_t now)
{
    struct list *members = &credit2_of(instance)->members;
    int64_t given_ns = CREDIT2_INITIAL_NS, most_ns = CREDIT2_INITIAL_NS + CREDIT2_CARRIED_NS;

    if (next->credit_ns == CREDIT2_LEAST_NS)
        given_ns += CREDIT2_INITIAL_NS;
    for (struct list *node = members->next; node != members; node = node->next) {
        struct credit2_vcpu *vcpu = laxity_container(node, struct credit2_vcpu, member);
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

/* ---- Operations ---- */

static enum laxity_error credit2_init(struct laxity_instance *instance,
                                      const struct laxity_settings *settings)
{
    instance->settings = *settings;
    list_init(&credit2_of(instance)->members);
    list_init(&credit2_of(instance)->run_queue);
    list_init(&credit2_of(instance)->capped);
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

    (void)now;
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
    model_migrate(instance, vcpu, cpu);
}

static void credit2_wake(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    struct credit2_vcpu *vcpu = credit2_vcpu_of(base);

    if (credit2_is_current(instance, vcpu) || list_holds(&vcpu->parked))
        return;
    credit2_enqueue(instance, vcpu);
    credit2_call(instance, vcpu, now);
}

static void credit2_sleep(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    struct credit2_vcpu *vcpu = credit2_vcpu_of(base);

    (void)now;
    if (credit2_is_current(instance, vcpu))
        credit2_kick(instance, base->cpu);
    else if (list_holds(&vcpu->queue))
        list_remove(&vcpu->queue);
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

    if (vcpu->called_cpu == CREDIT2_NOBODY || vcpu->called_cpu == cpu)
        return false;
    other = instance->cpu[vcpu->called_cpu];
    return other && credit2_cpu_of(other)->is_called;
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
    for (struct list *node = queue->next, *next; node != queue; node = next) {
        struct credit2_vcpu *vcpu = laxity_container(node, struct credit2_vcpu, queue);
        next = node->next;
        if (!yields && vcpu->credit_ns <= credit_ns)
            break;
        if (vcpu->vcpu.on_cpu || !model_may_run_on(instance, &vcpu->vcpu, cpu) ||
            credit2_awaits_another(instance, vcpu, cpu))
            continue;
        if (vcpu->vcpu.cpu != cpu && credit_ns + CREDIT2_RESISTANCE_NS > vcpu->credit_ns)
            continue;
        if (credit2_grab(instance, vcpu))
            return vcpu;
    }
    return stays;
}

/* How long the VCPU runs at most: until it has as many credits as the first that waits, or none, or
 * has used up its budget. */
static int64_t credit2_run_ns(struct laxity_instance *instance, const struct credit2_vcpu *vcpu,
                              int64_t now)
{
    const struct credit2_vcpu *first = credit2_first(instance);
    int64_t least_ns = vcpu->chosen_ns + CREDIT2_RATELIMIT_NS - now;
    int64_t lead_ns = vcpu->credit_ns, run_ns = 0;

    if (least_ns < CREDIT2_RUN_LEAST_NS)
        least_ns = CREDIT2_RUN_LEAST_NS;
    if (first && first->credit_ns > 0)
        lead_ns -= first->credit_ns;
    if (lead_ns > 0)
        run_ns = lead_ns * credit2_weight(vcpu) / credit2_greatest_weight(instance);
    if (credit2_is_capped(vcpu) && vcpu->budget_ns < run_ns)
        run_ns = vcpu->budget_ns;
    if (run_ns < least_ns)
        return least_ns;
    return run_ns < CREDIT2_RUN_MOST_NS ? run_ns : CREDIT2_RUN_MOST_NS;
}

/* The VCPU was taken off its CPU, or has blocked or been parked. */
static void credit2_leave(struct laxity_instance *instance, struct credit2_vcpu *vcpu, int64_t now)
{
    struct credit2_domain *domain = credit2_domain_of(vcpu->vcpu.domain);

    credit2_give_back(vcpu);
    if (credit2_can_run(vcpu)) {
        credit2_enqueue(instance, vcpu);
        credit2_call(instance, vcpu, now);
    }
    if (credit2_is_capped(vcpu) && domain->pool_ns > 0)
        credit2_unpark(instance, domain, now);
}

static struct laxity_decision credit2_schedule(struct laxity_instance *instance,
                                               struct laxity_cpu *cpu, int64_t now)
{
    struct credit2_vcpu *before = cpu->current ? credit2_vcpu_of(cpu->current) : NULL, *next;
    struct laxity_decision decision = {NULL, LAXITY_NEVER};

    credit2_cpu_of(cpu)->is_called = false;
    if (before) {
        credit2_burn(instance, before, now);
        credit2_grab(instance, before);
    }
    next = credit2_candidate(instance, cpu->number, before, now);
    if (next) {
        const struct credit2_vcpu *first;
        if (next != before)
            list_remove(&next->queue);
        first = credit2_first(instance);
        if (next->credit_ns <= 0 && (!first || first->credit_ns <= 0))
            credit2_reset(instance, next, now);
        next->burnt_to_ns = now;
        next->called_cpu = CREDIT2_NOBODY;
        if (next != before)
            next->chosen_ns = now;
        if (next->vcpu.cpu != cpu->number)
            next->credit_ns += CREDIT2_COMPENSATION_NS;
        model_migrate(instance, &next->vcpu, cpu->number);
        decision.vcpu = &next->vcpu;
        decision.until_ns = now + credit2_run_ns(instance, next, now) + CREDIT2_LATE_NS;
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
    .add_cpu = model_add_cpu,
    .remove_cpu = model_remove_cpu,
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
    .set_settings = model_set_settings,
    .set_domain = credit2_set_domain,
    .set_vcpu = credit2_set_vcpu,
    .become = model_become,
    .dump = credit2_dump,
};
