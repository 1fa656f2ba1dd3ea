/* SPDX-License-Identifier: MIT */
/*
 * The common part of the models of Linux's fifo and deadline: one order for all CPUs. The kernel
 * has a queue a CPU, and pushes and pulls VCPUs between them so that the first of all VCPUs run;
 * the model has the outcome, as rules of one queue. docs/explanation/policies.md has the rules,
 * under "Linux: one order for all CPUs", and global.h says which VCPU has which CPU.
 *
 * A model that includes this file begins its VCPU, CPU and instance with those of global.h.
 */
#ifndef LAXITY_LINUX_H
#define LAXITY_LINUX_H

#include "../src/global.h"
#include "model.h"

/* Hooks for the lines of a dump. */

/* The rest of its runtime; 0 where there is none. */
static int64_t global_left_ns(const struct global_vcpu *vcpu);
/* The time of its next runtime, or LAXITY_NEVER. */
static int64_t global_due_ns(const struct global_vcpu *vcpu);

static bool global_comes_before(const struct heap_node *one, const struct heap_node *other)
{
    return one->key < other->key;
}

/* A CPU that is deciding sees itself that its VCPU has changed. */
static void global_changed(struct laxity_instance *instance, const struct global_cpu *cpu)
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

/* A VCPU that is not ready becomes so. */
static void global_enter(struct laxity_instance *instance, struct global_vcpu *vcpu)
{
    global_take(instance, vcpu, global_home(instance, vcpu));
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
            global_changed(instance, to);
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
