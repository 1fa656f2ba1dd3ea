/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A policy of policy/src as functions for BPF. -DPOLICY=deferrable says which, and
 * -DSOURCE='"fixed_period.c"' the file that has it.
 *
 * Every pointer of this unit leads into the arena: arena.py makes it so. Therefore the functions
 * that others call take and give numbers alone, which is also what lets the verifier check each of
 * them once, by itself.
 */
#define LAXITY_EMBEDDER_HEADER "embedder.h"
#include <laxity/policy.h>

#include "loops.h"

/* The verifier checks a function of its own unit anew in each that calls it. The heaps' functions,
 * whose loops take it longest, are called with numbers, and are checked once. */
#include "heap.h"

LAXITY_APART uint64_t policy_heap_insert(uint64_t heap, uint64_t node)
{
    heap_insert((struct heap *)heap, (struct heap_node *)node);
    return 0;
}

LAXITY_APART uint64_t policy_heap_remove(uint64_t heap, uint64_t node)
{
    heap_remove((struct heap *)heap, (struct heap_node *)node);
    return 0;
}

LAXITY_APART uint64_t policy_heap_update(uint64_t heap, uint64_t node)
{
    heap_update((struct heap *)heap, (struct heap_node *)node);
    return 0;
}

#define heap_insert(heap_, node_) policy_heap_insert((uint64_t)(heap_), (uint64_t)(node_))
#define heap_remove(heap_, node_) policy_heap_remove((uint64_t)(heap_), (uint64_t)(node_))
#define heap_update(heap_, node_) policy_heap_update((uint64_t)(heap_), (uint64_t)(node_))

#include SOURCE

/* The table is a constant, so the compiler calls what stands in it. */
#define POLICY_DO(operation) (SCX_POLICY.operation)

static inline struct laxity_instance *instance_at(uint64_t address)
{
    return (struct laxity_instance *)address;
}

static inline struct laxity_vcpu *vcpu_at(uint64_t address)
{
    return (struct laxity_vcpu *)address;
}

static inline struct laxity_cpu *cpu_of(uint64_t instance, uint64_t number)
{
    return instance_at(instance)->cpu[number];
}

uint64_t policy_init(uint64_t instance, uint64_t settings)
{
    return POLICY_DO(init)(instance_at(instance), (const struct laxity_settings *)settings);
}

uint64_t policy_add_cpu(uint64_t instance, uint64_t cpu, int64_t now)
{
    POLICY_DO(add_cpu)(instance_at(instance), (struct laxity_cpu *)cpu, now);
    return 0;
}

uint64_t policy_add_domain(uint64_t instance, uint64_t domain, uint64_t parameters)
{
    return POLICY_DO(add_domain)(instance_at(instance), (struct laxity_domain *)domain,
                                 (const struct laxity_parameters *)parameters);
}

uint64_t policy_add_vcpu(uint64_t instance, uint64_t vcpu, uint64_t parameters, int64_t now)
{
    return POLICY_DO(add_vcpu)(instance_at(instance), vcpu_at(vcpu),
                               (const struct laxity_parameters *)parameters, now);
}

uint64_t policy_set_settings(uint64_t instance, uint64_t settings, int64_t now)
{
    return POLICY_DO(set_settings)(instance_at(instance), (const struct laxity_settings *)settings,
                                   now);
}

uint64_t policy_set_domain(uint64_t instance, uint64_t domain, uint64_t parameters, int64_t now)
{
    return POLICY_DO(set_domain)(instance_at(instance), (struct laxity_domain *)domain,
                                 (const struct laxity_parameters *)parameters, now);
}

uint64_t policy_set_vcpu(uint64_t instance, uint64_t vcpu, uint64_t parameters, int64_t now)
{
    return POLICY_DO(set_vcpu)(instance_at(instance), vcpu_at(vcpu),
                               (const struct laxity_parameters *)parameters, now);
}

uint64_t policy_set_phase(uint64_t instance, uint64_t vcpu, int64_t phase_ns, int64_t now)
{
    if (POLICY_DO(set_phase))
        POLICY_DO(set_phase)(instance_at(instance), vcpu_at(vcpu), phase_ns, now);
    return 0;
}

/* A decision of a CPU, for a VCPU or 0. It forgets that the CPU was kicked. It stands by itself,
 * since two others call it. */
LAXITY_APART uint64_t policy_decide(uint64_t instance, uint64_t cpu, int64_t now)
{
    struct scx_requests *requests = scx_requests_of(instance_at(instance));
    struct laxity_decision decision;

    requests->kicked &= ~SCX_BIT(cpu);
    decision = POLICY_DO(schedule)(instance_at(instance), cpu_of(instance, cpu), now);
    requests->cpu[cpu].until_ns = decision.until_ns;
    requests->changed |= SCX_BIT(cpu);
    return (uint64_t)decision.vcpu;
}

static inline bool is_current(uint64_t instance, uint64_t vcpu)
{
    return cpu_of(instance, vcpu_at(vcpu)->cpu)->current == vcpu_at(vcpu);
}

uint64_t policy_remove_vcpu(uint64_t instance, uint64_t vcpu, int64_t now)
{
    POLICY_DO(remove_vcpu)(instance_at(instance), vcpu_at(vcpu), now);
    /* The loader may use the block again. */
    ((struct scx_vcpu *)vcpu_at(vcpu)->owner)->thread = 0;
    return 0;
}

uint64_t policy_wake(uint64_t instance, uint64_t vcpu, int64_t now)
{
    if (vcpu_at(vcpu)->runnable)
        return 0;
    vcpu_at(vcpu)->runnable = true;
    POLICY_DO(wake)(instance_at(instance), vcpu_at(vcpu), now);
    return 0;
}

uint64_t policy_sleep(uint64_t instance, uint64_t vcpu, int64_t now)
{
    if (!vcpu_at(vcpu)->runnable)
        return 0;
    vcpu_at(vcpu)->runnable = false;
    POLICY_DO(sleep)(instance_at(instance), vcpu_at(vcpu), now);
    return 0;
}

/* Whether the CPU is to decide, since its running VCPU blocked by itself; else it was put to sleep.
 */
uint64_t policy_block(uint64_t instance, uint64_t vcpu)
{
    if (!is_current(instance, vcpu))
        return 0;
    vcpu_at(vcpu)->runnable = false;
    return 1;
}

/* The thread waits, or sleeps, and no CPU has it any more. One that looked for work while it was
 * still on its way off another had to leave it, and is asked again. */
uint64_t policy_saved(uint64_t instance, uint64_t vcpu)
{
    vcpu_at(vcpu)->on_cpu = false;
    if (!SCX_POLICY.steals || !vcpu_at(vcpu)->runnable || is_current(instance, vcpu))
        return 0;
    for (uint32_t left = instance_at(instance)->cpus; left; left--) {
        const struct laxity_cpu *cpu = instance_at(instance)->cpu[left - 1];
        if (!cpu->current && laxity_may_run_on(instance_at(instance), vcpu_at(vcpu), left - 1)) {
            laxity_kick(instance_at(instance), left - 1);
            return 0;
        }
    }
    return 0;
}

/* The thread runs on that CPU. Returns whether the policy wants it so. */
uint64_t policy_runs(uint64_t instance, uint64_t vcpu, uint64_t cpu)
{
    vcpu_at(vcpu)->on_cpu = true;
    return cpu_of(instance, cpu)->current == vcpu_at(vcpu);
}

/* Whether it is the VCPU's turn on that CPU. */
uint64_t policy_has_turn(uint64_t instance, uint64_t vcpu, uint64_t cpu)
{
    return cpu_of(instance, cpu)->current == vcpu_at(vcpu);
}

/* The VCPU whose turn it is on that CPU; 0: nobody's. */
uint64_t policy_current(uint64_t instance, uint64_t cpu)
{
    return (uint64_t)cpu_of(instance, cpu)->current;
}

/* The VCPU ran on for so long after the decision that took it off, and pays for it in its next
 * turn. */
uint64_t policy_owe(uint64_t vcpu, int64_t for_ns)
{
    ((struct scx_vcpu *)vcpu_at(vcpu)->owner)->owed_ns = for_ns;
    return 0;
}

/* What the VCPU owes, which it does no more. */
uint64_t policy_owed(uint64_t vcpu)
{
    int64_t owed_ns = scx_owner_of(vcpu_at(vcpu))->owed_ns;

    policy_owe(vcpu, 0);
    return (uint64_t)owed_ns;
}

/* Something else had the CPU in the turn of its VCPU, and the end of that turn moves. Below 0: its
 * VCPU had as much before its turn. */
uint64_t policy_steal(uint64_t instance, uint64_t number, int64_t for_ns)
{
    struct laxity_cpu *cpu = cpu_of(instance, number);
    struct scx_cpu *asked = &scx_requests_of(instance_at(instance))->cpu[number];

    cpu->stolen_ns += for_ns;
    if (cpu->current && asked->until_ns != LAXITY_NEVER)
        asked->until_ns += for_ns;
    return 0;
}

/* A VCPU that the policy chose has to wait again, or never came: its CPU decides anew. */
uint64_t policy_waits(uint64_t instance, uint64_t vcpu)
{
    if (is_current(instance, vcpu))
        laxity_kick(instance_at(instance), vcpu_at(vcpu)->cpu);
    return 0;
}

uint64_t policy_take_off(uint64_t instance, uint64_t vcpu, int64_t now)
{
    uint32_t cpu = vcpu_at(vcpu)->cpu;

    if (!is_current(instance, vcpu))
        return 0;
    policy_decide(instance, cpu, now);
    laxity_kick(instance_at(instance), cpu);
    return 0;
}

uint64_t policy_cpu(uint64_t vcpu)
{
    return vcpu_at(vcpu)->cpu;
}

uint64_t policy_set_affinity(uint64_t vcpu, uint64_t affinity)
{
    ((struct scx_vcpu *)vcpu_at(vcpu)->owner)->affinity = affinity;
    return !(affinity & SCX_BIT(vcpu_at(vcpu)->cpu));
}

uint64_t policy_move(uint64_t instance, uint64_t vcpu, int64_t now)
{
    uint32_t first = instance_at(instance)->cpus;

    for (uint32_t left = instance_at(instance)->cpus; left; left--)
        if (laxity_may_run_on(instance_at(instance), vcpu_at(vcpu), left - 1))
            first = left - 1;
    if (first < instance_at(instance)->cpus)
        POLICY_DO(move_vcpu)(instance_at(instance), vcpu_at(vcpu), first, now);
    return 0;
}

uint64_t policy_yield(uint64_t instance, uint64_t vcpu, int64_t now)
{
    POLICY_DO(yield)(instance_at(instance), vcpu_at(vcpu), now);
    return 0;
}

uint64_t policy_event(uint64_t instance, uint64_t vcpu, int64_t now)
{
    if (POLICY_DO(event))
        POLICY_DO(event)(instance_at(instance), vcpu_at(vcpu), now);
    return 0;
}

uint64_t policy_tell(uint64_t instance, uint64_t vcpu, int64_t deadline_ns, int64_t order,
                     int64_t now)
{
    if (POLICY_DO(tell))
        POLICY_DO(tell)(instance_at(instance), vcpu_at(vcpu), deadline_ns, order, now);
    return 0;
}

uint64_t policy_timer(uint64_t instance, uint64_t cpu, int64_t now)
{
    laxity_arm_timer(instance_at(instance), (uint32_t)cpu, LAXITY_NEVER);
    POLICY_DO(timer)(instance_at(instance), cpu_of(instance, cpu), now);
    return 0;
}

uint64_t policy_account(uint64_t instance, int64_t now)
{
    laxity_arm_account(instance_at(instance), LAXITY_NEVER);
    if (POLICY_DO(account))
        POLICY_DO(account)(instance_at(instance), now);
    return 0;
}

/* No other CPU may have the VCPU until it is saved. Returns its thread. */
static inline uint64_t take(struct laxity_vcpu *vcpu)
{
    vcpu->on_cpu = true;
    return scx_owner_of(vcpu)->thread;
}

/* The thread that should run; 0: none. */
uint64_t policy_schedule(uint64_t instance, uint64_t cpu, int64_t now)
{
    uint64_t vcpu = policy_decide(instance, cpu, now);

    return vcpu ? take(vcpu_at(vcpu)) : 0;
}

/* The thread of the VCPU that a decision is in force for; 0: the CPU is to decide. A policy may
 * decide otherwise if it is asked before it asked to be. */
uint64_t policy_goes_on(uint64_t instance, uint64_t cpu, int64_t now)
{
    struct scx_requests *requests = scx_requests_of(instance_at(instance));
    struct laxity_vcpu *current = cpu_of(instance, cpu)->current;

    if (!current || !current->runnable || requests->kicked & SCX_BIT(cpu) ||
        requests->cpu[cpu].until_ns <= now)
        return 0;
    requests->changed |= SCX_BIT(cpu);
    return take(current);
}
