/* SPDX-License-Identifier: MIT */
/*
 * One order for all CPUs: which VCPU has which CPU. Linux's fifo and deadline (models/linux.h) and
 * the global servers (global_server.h) share it. They run in the simulator alone, whose one thread
 * holds every lock: any operation reads and changes every CPU and every VCPU.
 *
 * A VCPU that is ready has a CPU, or waits in the instance's queue. `assigned` is the VCPU that has
 * a CPU, and changes at once with every change of the order; the CPU's `current` follows when it
 * decides. A VCPU that is still another CPU's current keeps that CPU's number until it is
 * descheduled there.
 *
 * A policy that includes this file begins its VCPU, CPU and instance with the structures below, and
 * defines the two hooks.
 */
#ifndef LAXITY_GLOBAL_H
#define LAXITY_GLOBAL_H

#include <laxity/policy.h>

#include "heap.h"
#include "list.h"

struct global_cpu;

/* Hooks. */

/* Whether the VCPU of one place may take the CPU of the VCPU of the other. */
static bool global_comes_before(const struct heap_node *one, const struct heap_node *other);
/* The CPU's VCPU has changed. */
static void global_changed(struct laxity_instance *instance, const struct global_cpu *cpu);

/* How soon a CPU looks again whether the state of its VCPU has been saved. */
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

/* The VCPU belongs to another CPU from now on. */
static inline void global_migrate(struct laxity_instance *instance, struct laxity_vcpu *vcpu,
                                  uint32_t cpu)
{
    if (vcpu->cpu == cpu)
        return;
    vcpu->cpu = cpu;
    if (instance->tracing)
        laxity_trace(instance, vcpu, LAXITY_EVENT_MIGRATE, cpu);
}

/* Whether the VCPU may be assigned the CPU of that number. */
static inline bool global_may_have(struct laxity_instance *instance, const struct global_vcpu *vcpu,
                                   uint32_t number)
{
    struct laxity_cpu *cpu = instance->cpu[number];
    return cpu && !global_cpu_of(cpu)->is_leaving &&
           laxity_may_run_on(instance, &vcpu->vcpu, number);
}

/* The VCPU gets the CPU. Returns the VCPU that had it, which has none now. */
static inline struct global_vcpu *global_occupy(struct laxity_instance *instance,
                                                struct global_cpu *cpu, struct global_vcpu *vcpu)
{
    struct global_vcpu *before = cpu->assigned;

    if (before)
        before->cpu = NULL;
    cpu->assigned = vcpu;
    vcpu->cpu = cpu;
    if (!global_is_current(instance, vcpu))
        global_migrate(instance, &vcpu->vcpu, cpu->cpu.number);
    global_changed(instance, cpu);
    return before;
}

/* The CPU that idles, else the one whose VCPU is the last of all, if it is after this one; among
 * equals the VCPU's own, then the next by number. NULL: there is none. */
static inline struct global_cpu *global_lowest(struct laxity_instance *instance,
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
        if (global_comes_before(&(lowest ? lowest->assigned : vcpu)->place, &cpu->assigned->place))
            lowest = cpu;
    }
    return lowest;
}

/* A VCPU that is not ready gets the CPU, or the lowest if that is NULL, or waits. One that loses
 * its CPU to it looks for another one, and so on. */
static inline void global_take(struct laxity_instance *instance, struct global_vcpu *vcpu,
                               struct global_cpu *cpu)
{
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
static inline struct global_vcpu *global_first_for(struct laxity_instance *instance,
                                                   uint32_t number)
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
static inline void global_refill(struct laxity_instance *instance, struct global_cpu *cpu)
{
    struct global_vcpu *next = global_first_for(instance, cpu->cpu.number);

    global_changed(instance, cpu);
    if (!next)
        return;
    heap_remove(&global_of(instance)->waiting, &next->place);
    next->waits = false;
    global_occupy(instance, cpu, next);
}

/* A ready VCPU is no longer ready. */
static inline void global_leave(struct laxity_instance *instance, struct global_vcpu *vcpu)
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

static inline void global_add_cpu(struct laxity_instance *instance, struct laxity_cpu *cpu,
                                  int64_t now)
{
    (void)now;
    global_refill(instance, global_cpu_of(cpu));
}

static inline void global_remove_cpu(struct laxity_instance *instance, struct laxity_cpu *base,
                                     int64_t now)
{
    struct global_cpu *cpu = global_cpu_of(base);
    struct global_vcpu *assigned = cpu->assigned;

    (void)now;
    cpu->is_leaving = true;
    if (assigned) {
        global_leave(instance, assigned);
        global_take(instance, assigned, NULL);
    }
}

#endif
