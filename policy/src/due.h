/* SPDX-License-Identifier: MIT */
/*
 * RepQ, the queue of replenishments, for server.h and global_server.h, which include this once they
 * have defined their structures.
 */
#ifndef LAXITY_DUE_H
#define LAXITY_DUE_H

/* Puts it where it belongs, after it was changed. */
static inline void server_queue_due(struct heap *queue, struct server_due *due)
{
    bool belongs = !due->rests && due->at_ns != LAXITY_NEVER;

    if (due->is_queued && belongs && due->node.key == due->at_ns)
        return;
    due->node.key = due->at_ns;
    if (due->is_queued && !belongs)
        heap_remove(queue, &due->node);
    else if (due->is_queued)
        heap_update(queue, &due->node);
    else if (belongs)
        heap_insert(queue, &due->node);
    due->is_queued = belongs;
}

/* The time at which the first replenishment of RepQ is served. The last result is that of a whole
 * quantum, and is kept: every decision needs it, and a division is the largest part of its cost. */
static inline int64_t server_replenishment_at(const struct laxity_instance *instance,
                                              struct server_cpu *cpu)
{
    const struct heap_node *due = cpu->replenishment_queue.first;

    if (!due)
        return LAXITY_NEVER;
    if (due->key > cpu->rounded_ns || due->key <= cpu->rounded_ns - instance->settings.quantum_ns)
        cpu->rounded_ns = server_on_quantum(instance, due->key);
    return cpu->rounded_ns;
}

/* The last time before now at which replenishments were served, had any been due. */
static inline int64_t server_served_before(const struct laxity_instance *instance, int64_t now)
{
    int64_t quantum_ns = instance->settings.quantum_ns;
    return quantum_ns ? server_on_quantum(instance, now) - quantum_ns : now - 1;
}

/* Sets when the VCPU's next replenishment is due; LAXITY_NEVER: none is. */
static inline void server_set_due(struct server_cpu *cpu, struct server_vcpu *vcpu, int64_t due_ns)
{
    if (vcpu->due.at_ns == due_ns)
        return;
    vcpu->due.at_ns = due_ns;
    server_queue_due(&cpu->replenishment_queue, &vcpu->due);
}

static inline void server_set_rest(struct server_cpu *cpu, struct server_vcpu *vcpu, bool rests)
{
    vcpu->due.rests = rests;
    server_queue_due(&cpu->replenishment_queue, &vcpu->due);
}

/* The VCPU gets what came due while it rested. */
static inline void server_catch_up(struct laxity_instance *instance, struct server_cpu *cpu,
                                   struct server_vcpu *vcpu, int64_t now)
{
    int64_t served_ns = server_served_before(instance, now);

    if (vcpu->due.rests && vcpu->due.at_ns <= served_ns)
        server_replenish(instance, cpu, vcpu, served_ns);
}

/* The VCPU has nothing more to do: it is descheduled, or was put to sleep while it did not run, or
 * its server has served its lead. */
static inline void server_block(struct laxity_instance *instance, struct server_cpu *cpu,
                                struct server_vcpu *vcpu)
{
    server_blocked(instance, cpu, vcpu);
    if (server_rests(instance, vcpu))
        server_set_rest(cpu, vcpu, true);
}

#endif
