/* SPDX-License-Identifier: MIT */
/*
 * The common part of the models of Linux's fifo and deadline: one order for all CPUs. The kernel
 * has a queue a CPU, and pushes and pulls VCPUs between them so that the first of all VCPUs run;
 * the model has the outcome, as rules of one queue. docs/explanation/policies.md has the rules,
 * under "Linux: one order for all CPUs".
 *
 * A VCPU that is ready has a CPU, or waits in the instance's queue. `assigned` is the VCPU that has
 * a CPU, and changes at once with every wake, block and exhaustion; the CPU's `current` follows
 * when it decides. A VCPU that is still another CPU's current keeps that CPU's number until it is
 * descheduled there.
 *
 * A model that includes this file begins its VCPU, CPU and instance with the structures below.
 */
#ifndef LAXITY_GLOBAL_H
#define LAXITY_GLOBAL_H

#include "../src/heap.h"
#include "model.h"

struct global_vcpu;

/* Hooks for the lines of a dump. */

/* The rest of its runtime; 0 where there is none. */
static int64_t global_left_ns(const struct global_vcpu *vcpu);
/* The time of its next runtime, or LAXITY_NEVER. */
static int64_t global_due_ns(const struct global_vcpu *vcpu);

/* How soon a CPU looks again whether the state of its VCPU has been saved. The kernel spins. */
#define GLOBAL_LOOK_AGAIN LAXITY_NS(1000)

struct global_vcpu {
    struct laxity_vcpu vcpu;
    struct heap_node
        place; /* in the queue while it waits; smaller keys come first, then smaller orders */
    struct list member;     /* of the instance's `members` */
    struct global_cpu *cpu; /* which it has; NULL: none */
    bool waits;
};

struct global_cpu {
    struct laxity_cpu cpu;
    struct global_vcpu *assigned;
    bool is_deciding;
    bool is_leaving;
};

struct global_instance {
    struct laxity_instance instance;
    struct heap waiting;
    struct list members;
    uint64_t next_order;
};

static inline struct global_instance *global_of(struct laxity_instance *instance)
{
    return laxity_container(instance, struct global_instance, instance);
}

static inline struct global_vcpu *global_vcpu_of(struct laxity_vcpu *vcpu)
{
    return laxity_container(vcpu, struct global_vcpu, vcpu);
}

static inline struct global_cpu *global_cpu_of(struct laxity_cpu *cpu)
{
    return laxity_container(cpu, struct global_cpu, cpu);
}

static inline bool global_is_ready(const struct global_vcpu *vcpu)
{
    return vcpu->cpu || vcpu->waits;
}

static inline bool global_is_current(struct laxity_instance *instance,
                                     const struct global_vcpu *vcpu)
{
    return instance->cpu[vcpu->vcpu.cpu]->current == &vcpu->vcpu;
}

/* Whether the VCPU may be assigned the CPU of that number. */
static inline bool global_may_have(struct laxity_instance *instance, const struct global_vcpu *vcpu,
                                   uint32_t number)
{
    struct laxity_cpu *cpu = instance->cpu[number];
    return cpu && !global_cpu_of(cpu)->is_leaving &&
           model_may_run_on(instance, &vcpu->vcpu, number);
}

/* The CPU's VCPU has changed. A CPU that is deciding sees that itself. */
static inline void global_kick(struct laxity_instance *instance, const struct global_cpu *cpu)
{
    if (!cpu->is_deciding)
        model_kick(instance, cpu->cpu.number);
}

/* The number of CPUs on which the VCPU may run. */
static inline uint32_t global_cpu_count(struct laxity_instance *instance,
                                        const struct global_vcpu *vcpu)
{
    uint32_t count = 0;
    for (uint32_t number = 0; number < instance->cpus; number++)
        count += global_may_have(instance, vcpu, number);
    return count;
}

static bool global_is_pinned(struct laxity_instance *instance, const struct global_vcpu *vcpu)
{
    return global_cpu_count(instance, vcpu) < 2;
}

/* The VCPU gets the CPU. Returns the VCPU that had it, which has none now. */
static struct global_vcpu *global_occupy(struct laxity_instance *instance, struct global_cpu *cpu,
                                         struct global_vcpu *vcpu)
{
    struct global_vcpu *before = cpu->assigned;

    if (before)
        before->cpu = NULL;
    cpu->assigned = vcpu;
    vcpu->cpu = cpu;
    if (!global_is_current(instance, vcpu))
        model_migrate(instance, &vcpu->vcpu, cpu->cpu.number);
    global_kick(instance, cpu);
    return before;
}

/* The CPU that idles, else the one whose VCPU is the last of all, if it is after this one; among
 * equals the VCPU's own, then the next by number. NULL: there is none. */
static struct global_cpu *global_lowest(struct laxity_instance *instance,
                                        const struct global_vcpu *vcpu)
{
    struct global_cpu *lowest = NULL;

    for (uint32_t step = 0; step < instance->cpus; step++) {
        uint32_t number = (vcpu->vcpu.cpu + step) % instance->cpus;
        struct global_cpu *cpu;
        if (!global_may_have(instance, vcpu, number))
            continue;
        cpu = global_cpu_of(instance->cpu[number]);
        if (!cpu->assigned)
            return cpu;
        if (cpu->assigned->place.key > (lowest ? lowest->assigned : vcpu)->place.key)
            lowest = cpu;
    }
    return lowest;
}

/* The CPU for a VCPU that becomes ready: its own if that is idle, or if its VCPU comes after this
 * one and can go elsewhere. */
static struct global_cpu *global_home(struct laxity_instance *instance,
                                      const struct global_vcpu *vcpu)
{
    uint32_t number = vcpu->vcpu.cpu;
    struct global_cpu *own = global_cpu_of(instance->cpu[number]);

    if (!global_may_have(instance, vcpu, number))
        return NULL;
    if (!own->assigned)
        return own;
    if (own->assigned->place.key > vcpu->place.key && !global_is_pinned(instance, own->assigned))
        return own;
    return NULL;
}

/* A VCPU that is not ready becomes so. One that loses its CPU to it looks for another one, and so
 * on. */
static void global_enter(struct laxity_instance *instance, struct global_vcpu *vcpu)
{
    struct global_cpu *cpu = global_home(instance, vcpu);

    while (vcpu) {
        if (!cpu)
            cpu = global_lowest(instance, vcpu);
        if (!cpu) {
            vcpu->waits = true;
            heap_insert(&global_of(instance)->waiting, &vcpu->place);
            return;
        }
        vcpu = global_occupy(instance, cpu, vcpu);
        cpu = NULL;
    }
}

/* The first VCPU that waits and may have the CPU: the part of the heap is searched that is not
 * behind one that may. */
static struct global_vcpu *global_first_for(struct laxity_instance *instance, uint32_t number)
{
    struct heap_node *node = global_of(instance)->waiting.first;
    struct global_vcpu *first = NULL;

    while (node) {
        struct global_vcpu *vcpu = laxity_container(node, struct global_vcpu, place);
        bool is_behind = first && !heap_before(node, &first->place);
        bool is_found = !is_behind && global_may_have(instance, vcpu, number);
        if (is_found)
            first = vcpu;
        if (!is_behind && !is_found && node->child[0]) {
            node = node->child[0];
            continue;
        }
        while (node->parent && (node == node->parent->child[1] || !node->parent->child[1]))
            node = node->parent;
        node = node->parent ? node->parent->child[1] : NULL;
    }
    return first;
}

/* A CPU has lost its VCPU. */
static void global_refill(struct laxity_instance *instance, struct global_cpu *cpu)
{
    struct global_vcpu *next = global_first_for(instance, cpu->cpu.number);

    global_kick(instance, cpu);
    if (!next)
        return;
    heap_remove(&global_of(instance)->waiting, &next->place);
    next->waits = false;
    global_occupy(instance, cpu, next);
}

/* A ready VCPU is no longer ready. */
static void global_leave(struct laxity_instance *instance, struct global_vcpu *vcpu)
{
    struct global_cpu *cpu = vcpu->cpu;

    if (vcpu->waits)
        heap_remove(&global_of(instance)->waiting, &vcpu->place);
    vcpu->waits = false;
    vcpu->cpu = NULL;
    if (!cpu)
        return;
    cpu->assigned = NULL;
    global_refill(instance, cpu);
}

/* Gives the VCPU a key, behind its equals. It is not ready. */
static inline void global_set_key(struct laxity_instance *instance, struct global_vcpu *vcpu,
                                  int64_t key)
{
    vcpu->place.key = key;
    vcpu->place.order = global_of(instance)->next_order++;
}

/* The same for a VCPU that may be ready. */
static void global_change_key(struct laxity_instance *instance, struct global_vcpu *vcpu,
                              int64_t key)
{
    bool was_ready = global_is_ready(vcpu);

    if (was_ready)
        global_leave(instance, vcpu);
    global_set_key(instance, vcpu, key);
    if (was_ready)
        global_enter(instance, vcpu);
}

/* The CPU decides. Its current VCPU has paid. */
static struct laxity_decision global_decide(struct laxity_instance *instance,
                                            struct global_cpu *cpu, int64_t now)
{
    struct laxity_vcpu *before = cpu->cpu.current;
    struct laxity_decision decision = {NULL, LAXITY_NEVER};
    struct global_vcpu *next;

    if (before && !before->runnable && global_is_ready(global_vcpu_of(before)))
        global_leave(instance, global_vcpu_of(before));
    next = cpu->assigned;
    /* Its affinity may have changed. */
    if (next && !global_may_have(instance, next, cpu->cpu.number)) {
        global_leave(instance, next);
        global_enter(instance, next);
        next = cpu->assigned;
    }
    if (next && next->vcpu.cpu != cpu->cpu.number) {
        /* It is another CPU's current; that CPU calls this one when it has descheduled it. */
    } else if (next && next->vcpu.on_cpu && &next->vcpu != before) {
        decision.until_ns = now + GLOBAL_LOOK_AGAIN;
    } else if (next) {
        decision.vcpu = &next->vcpu;
    }
    cpu->cpu.current = decision.vcpu;
    if (before && before != decision.vcpu) {
        struct global_cpu *to = global_vcpu_of(before)->cpu;
        if (to) {
            model_migrate(instance, before, to->cpu.number);
            global_kick(instance, to);
        }
    }
    cpu->is_deciding = false;
    return decision;
}

static void global_init(struct laxity_instance *instance, const struct laxity_settings *settings)
{
    instance->settings = *settings;
    list_init(&global_of(instance)->members);
}

static void global_add_cpu(struct laxity_instance *instance, struct laxity_cpu *cpu, int64_t now)
{
    (void)now;
    global_refill(instance, global_cpu_of(cpu));
}

static void global_remove_cpu(struct laxity_instance *instance, struct laxity_cpu *base,
                              int64_t now)
{
    struct global_cpu *cpu = global_cpu_of(base);
    struct global_vcpu *assigned = cpu->assigned;

    (void)now;
    cpu->is_leaving = true;
    if (assigned) {
        global_leave(instance, assigned);
        global_enter(instance, assigned);
    }
}

/* Asleep, the VCPU has no CPU, unless it has just been put to sleep. */
static void global_move_vcpu(struct laxity_instance *instance, struct laxity_vcpu *vcpu,
                             uint32_t cpu, int64_t now)
{
    (void)now;
    model_migrate(instance, vcpu, cpu);
}

/* A line for each VCPU of the CPU that runs, or could if it had the CPU. */
static void global_dump(struct laxity_instance *instance, struct laxity_cpu *base,
                        struct laxity_dump *dump)
{
    struct list *members = &global_of(instance)->members;

    for (struct list *node = members->next; node != members; node = node->next) {
        struct global_vcpu *vcpu = laxity_container(node, struct global_vcpu, member);
        const char *state = "waits";
        if (vcpu->vcpu.cpu != base->number)
            continue;
        if (global_is_current(instance, vcpu))
            state = "runs";
        else if (!vcpu->vcpu.runnable)
            continue;
        else if (!global_is_ready(vcpu))
            state = "throttled";
        else if (vcpu->cpu)
            state = vcpu->vcpu.on_cpu ? "being saved" : "next";
        dump->line(dump, &vcpu->vcpu, state, global_left_ns(vcpu), global_due_ns(vcpu));
    }
}

#endif
