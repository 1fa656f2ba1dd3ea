/* SPDX-License-Identifier: MIT */
/*
 * The common part of all policies with budgets: queues, choice, use of budget, extra time.
 *
 * Queues, one set a CPU, under the CPU's lock:
 *   RunQ   VCPUs that are runnable and have budget, first the one that should run. The running VCPU
 *          stays in it until a decision deschedules it: the choice is the VCPU at the top.
 *   RdyQ   blocked VCPUs whose budget runs down as if an idle task ran (periodic server only).
 *   RepQ   VCPUs with a pending replenishment that do not rest, by the time of their next one.
 *   extra  VCPUs that are runnable without budget and may run on idle time, in turns.
 *   urgent VCPUs that are runnable, by the deadlines that their guests tell (lending only).
 * RT-Xen (section 4.2) keeps VCPUs without budget in its RunQ and RdyQ too and skips them on the
 * way; here they are in neither, so that no step looks at more than one path of a heap.
 *
 * Use. `burning` is the VCPU whose budget runs down: the running one, or a blocked one of the RdyQ
 * while the CPU idles on its account. `server_use` brings it up to date and is the first step of
 * every operation.
 *
 * Lending. A policy that defines SERVER_LENDS(instance) has servers that lend. The lead of a VCPU
 * is the CPU time that it got and that its server has not served yet, by the order of the work for
 * which it was. A server has work while its VCPU is runnable or has a lead, and it serves in the
 * order of that work, as its VCPU does. While the server that comes first serves a lead, its budget
 * and the lead run down, and the most urgent VCPU runs. All work is therefore done at the time at
 * which the server alone would have done it, or before; docs/explanation/policies.md has the proof.
 *
 * Time. The end of the running VCPU's budget is the end of the decision. The CPU's timer
 * handles all other times (replenishments, the end of a blocked VCPU's budget), and asks for a
 * decision only if the decision would change.
 *
 * A policy that includes this file defines the hooks of budget.h, and its table.
 */
#ifndef LAXITY_SERVER_H
#define LAXITY_SERVER_H

#include "budget.h"
#include "list.h"

/* Whether the servers of an instance lend, and what guests tell makes a difference. */
#ifdef SERVER_LENDS
#define SERVER_TELL server_tell
#else
#define SERVER_LENDS(instance_) ((void)(instance_), false)
#define SERVER_TELL NULL
#endif

/* The number of orders that a lead distinguishes, and its greatest size in budgets. */
#define SERVER_LEADS_MAX 8
#define SERVER_LEAD_BUDGETS_MAX 16

/* Lending: CPU time that a VCPU got for work of an order, and that its server has not served. */
struct server_lead {
    int64_t order, ns;
};

struct server_vcpu {
    struct laxity_vcpu vcpu;
    struct heap *queue;     /* which of RunQ and RdyQ holds `place`; NULL: neither */
    struct heap_node place; /* key: the policy's; order: since when eligible */
    struct server_due due;
    struct list extra;
    struct list member;   /* of the CPU's `members` */
    int64_t left_ns;      /* budget left; below 0 when an embedder was late */
    int64_t run_start_ns; /* when the run that goes on was chosen */
    int64_t run_used_ns;  /* what it has used */
    /* Sporadic server: a ring of pending replenishments, in order of time. */
    struct server_replenishment pending[SERVER_REPLENISHMENTS_MAX];
    uint32_t pending_first, pending_count;
    /* Lending. */
    bool is_urgent;      /* in the queue: was runnable, up to when use is accounted */
    uint32_t lead_count; /* entries of `lead`; 0: no lead */
    int64_t told_ns;     /* the deadline that the guest told; LAXITY_NEVER: none */
    int64_t deadline_ns; /* the same; LAXITY_NEVER also if it had passed when it was told first */
    int64_t order;       /* as the guest told */
    struct heap_node urgent; /* key: the deadline; order: since when on this CPU */
    struct server_lead lead[SERVER_LEADS_MAX + 1]; /* the most urgent first; each has some ns */
};

struct server_cpu {
    struct laxity_cpu cpu;
    struct heap run_queue, ready_queue, replenishment_queue, urgent_queue;
    struct list extra_queue, members;
    struct server_vcpu *burning;
    int64_t used_until_ns; /* up to when use is accounted */
    int64_t stolen_ns;     /* how much of cpu.stolen_ns is */
    int64_t armed_ns;      /* when the timer will fire, as told to the embedder */
    int64_t rounded_ns;    /* the last result of server_replenishment_at */
    uint64_t next_order;
};

#include "due.h"

static inline struct server_vcpu *server_vcpu_of(struct laxity_vcpu *vcpu)
{
    return laxity_container(vcpu, struct server_vcpu, vcpu);
}

static inline struct server_cpu *server_cpu_of(struct laxity_cpu *cpu)
{
    return laxity_container(cpu, struct server_cpu, cpu);
}

static inline struct server_cpu *server_cpu_under(struct laxity_instance *instance,
                                                  const struct laxity_vcpu *vcpu)
{
    return server_cpu_of(instance->cpu[vcpu->cpu]);
}

static inline struct server_vcpu *server_first(const struct heap *heap)
{
    return heap->first ? laxity_container(heap->first, struct server_vcpu, place) : NULL;
}

static inline struct server_vcpu *server_first_extra(const struct server_cpu *cpu)
{
    return list_is_empty(&cpu->extra_queue)
               ? NULL
               : laxity_container(cpu->extra_queue.next, struct server_vcpu, extra);
}

static inline void server_trace(struct laxity_instance *instance, const struct server_vcpu *vcpu,
                                enum laxity_event event, int64_t argument)
{
    if (instance->tracing)
        laxity_trace(instance, &vcpu->vcpu, event, argument);
}

static inline struct server_vcpu *server_most_urgent(const struct server_cpu *cpu)
{
    const struct heap_node *first = cpu->urgent_queue.first;
    return first ? laxity_container(first, struct server_vcpu, urgent) : NULL;
}

static inline struct server_vcpu *server_running(const struct server_cpu *cpu)
{
    return cpu->cpu.current ? server_vcpu_of(cpu->cpu.current) : NULL;
}

/* Whether the VCPU can use budget. One that was put to sleep while it ran uses budget until the
 * decision that deschedules it, and so does one with a lead. */
static inline bool server_is_active(const struct server_cpu *cpu, const struct server_vcpu *vcpu)
{
    return vcpu->vcpu.runnable || &vcpu->vcpu == cpu->cpu.current || vcpu->lead_count > 0;
}

/* Takes a VCPU from RunQ or RdyQ, if it is in one. */
static inline void server_dequeue(struct server_cpu *cpu, struct server_vcpu *vcpu)
{
    (void)cpu;
    if (vcpu->queue)
        heap_remove(vcpu->queue, &vcpu->place);
    vcpu->queue = NULL;
}

/* Puts a VCPU into RunQ or RdyQ at the place it has. */
static inline void server_enqueue_in_place(struct heap *queue, struct server_vcpu *vcpu)
{
    vcpu->queue = queue;
    heap_insert(queue, &vcpu->place);
}

/* Puts a VCPU into RunQ or RdyQ behind its equals. */
static inline void server_enqueue(struct server_cpu *cpu, struct heap *queue,
                                  struct server_vcpu *vcpu)
{
    vcpu->place.key = server_key(vcpu);
    vcpu->place.order = cpu->next_order++;
    server_enqueue_in_place(queue, vcpu);
}

/* Puts a VCPU behind its equals, in the queue where it is, after its key may have changed. */
static inline void server_requeue(struct server_cpu *cpu, struct server_vcpu *vcpu)
{
    if (!vcpu->queue)
        return;
    vcpu->place.key = server_key(vcpu);
    vcpu->place.order = cpu->next_order++;
    heap_update(vcpu->queue, &vcpu->place);
}

/* Whether the VCPU is in RunQ or RdyQ. */
static inline bool server_is_queued(const struct server_vcpu *vcpu)
{
    return vcpu->queue != NULL;
}

/* A VCPU with budget that is in no queue becomes eligible. */
static inline void server_enqueue_eligible(struct server_cpu *cpu, struct server_vcpu *vcpu)
{
    server_enqueue(cpu, &cpu->run_queue, vcpu);
}

/* The budget of a blocked VCPU that is in no queue runs down from now on, when its turn comes. */
static inline void server_enqueue_blocked(struct server_cpu *cpu, struct server_vcpu *vcpu)
{
    server_enqueue(cpu, &cpu->ready_queue, vcpu);
}

/* A VCPU blocks, and its budget runs down in its place from now on, if it has any. */
static inline void server_stay_blocked(struct server_cpu *cpu, struct server_vcpu *vcpu)
{
    if (vcpu->queue != &cpu->run_queue)
        return;
    server_dequeue(cpu, vcpu);
    server_enqueue_in_place(&cpu->ready_queue, vcpu);
}

/* The VCPU moves in its queue by a new key, but does not go behind its equals. */
static inline void server_move(struct server_cpu *cpu, struct server_vcpu *vcpu, int64_t key)
{
    (void)cpu;
    vcpu->place.key = key;
    if (vcpu->queue)
        heap_update(vcpu->queue, &vcpu->place);
}

/* A VCPU is added. Replenishments that are due together are served in the order of this. */
static inline void server_join(struct server_cpu *cpu, struct server_vcpu *vcpu)
{
    list_append(&cpu->members, &vcpu->member);
    vcpu->due.node.order = cpu->next_order++;
    vcpu->due.at_ns = LAXITY_NEVER;
}

/* The VCPUs that were added, and the VCPU of a node of that list. */
static inline struct list *server_members(struct server_cpu *cpu)
{
    return &cpu->members;
}

static inline struct server_vcpu *server_member(struct list *node)
{
    return laxity_container(node, struct server_vcpu, member);
}

/* The VCPU's guest has told nothing yet. */
static inline void server_tell_nothing(struct server_vcpu *vcpu)
{
    vcpu->told_ns = vcpu->deadline_ns = LAXITY_NEVER;
}

/* Whether the server has something to serve while its VCPU is blocked. */
static inline bool server_has_lead(const struct server_vcpu *vcpu)
{
    return vcpu->lead_count > 0;
}

static inline void server_leave_extra(struct server_vcpu *vcpu)
{
    if (list_holds(&vcpu->extra))
        list_remove(&vcpu->extra);
}

/* A runnable VCPU without budget goes to the end of the extra queue, if it may run on extra time.
 */
static inline void server_join_extra(const struct laxity_instance *instance, struct server_cpu *cpu,
                                     struct server_vcpu *vcpu)
{
    server_leave_extra(vcpu);
    if (vcpu->vcpu.parameters.extratime && !SERVER_LENDS(instance))
        list_append(&cpu->extra_queue, &vcpu->extra);
}

/* VCPUs without a deadline come after all VCPUs that have one, by their priorities. */
static inline int64_t server_urgency(const struct server_vcpu *vcpu)
{
    if (vcpu->deadline_ns != LAXITY_NEVER)
        return vcpu->deadline_ns;
    return LAXITY_NEVER - LAXITY_PRIORITY_MAX + vcpu->vcpu.parameters.priority;
}

/* The VCPU became runnable, or its deadline or its priority changed. */
static inline void server_set_urgent(const struct laxity_instance *instance, struct server_cpu *cpu,
                                     struct server_vcpu *vcpu)
{
    if (!SERVER_LENDS(instance) || !vcpu->vcpu.runnable)
        return;
    vcpu->urgent.key = server_urgency(vcpu);
    vcpu->urgent.order = vcpu->due.node.order;
    if (vcpu->is_urgent)
        heap_update(&cpu->urgent_queue, &vcpu->urgent);
    else
        heap_insert(&cpu->urgent_queue, &vcpu->urgent);
    vcpu->is_urgent = true;
}

/* The VCPU is no longer runnable. */
static inline void server_leave_urgent(struct server_cpu *cpu, struct server_vcpu *vcpu)
{
    if (vcpu->is_urgent)
        heap_remove(&cpu->urgent_queue, &vcpu->urgent);
    vcpu->is_urgent = false;
}

/* From now on this VCPU's budget runs down; NULL: no budget does. */
static inline void server_burn(struct laxity_instance *instance, struct server_cpu *cpu,
                               struct server_vcpu *vcpu, int64_t now)
{
    struct server_vcpu *before = cpu->burning;

    if (vcpu == before)
        return;
    cpu->burning = vcpu;
    if (before) {
        if (before->left_ns > 0)
            server_trace(instance, before, LAXITY_EVENT_BUDGET, before->left_ns);
        if (before->run_used_ns > 0)
            server_stopped(instance, cpu, before);
    }
    if (vcpu) {
        vcpu->run_start_ns = now;
        vcpu->run_used_ns = 0;
    }
}

/* A VCPU in a queue has no budget left. */
static inline void server_exhaust(struct laxity_instance *instance, struct server_cpu *cpu,
                                  struct server_vcpu *vcpu, int64_t now)
{
    server_dequeue(cpu, vcpu);
    server_trace(instance, vcpu, LAXITY_EVENT_EXHAUST, 0);
    if (vcpu == cpu->burning)
        server_burn(instance, cpu, NULL, now);
    /* The running VCPU may continue on extra time, behind those that wait: see server_schedule. */
    if (vcpu->vcpu.runnable && &vcpu->vcpu != cpu->cpu.current)
        server_join_extra(instance, cpu, vcpu);
}

/* Whether the server, when it serves, serves a lead: one for work that is at least as urgent as
 * what its VCPU does now, if that does anything. */
static inline bool server_serves_lead(const struct server_vcpu *vcpu)
{
    return vcpu->lead_count > 0 && (!vcpu->is_urgent || vcpu->lead[0].order <= vcpu->order);
}

/* The lead that the server serves before its VCPU has to run. */
static inline int64_t server_lead_to_serve(const struct server_vcpu *vcpu)
{
    int64_t sum_ns = 0;

    for (uint32_t left = vcpu->lead_count; left; left--)
        if (!vcpu->is_urgent || vcpu->lead[left - 1].order <= vcpu->order)
            sum_ns += vcpu->lead[left - 1].ns;
    return sum_ns;
}

/* The server serves lead, the most urgent first, for as long, and none of an order beyond. Returns
 * how long it served. */
static inline int64_t server_serve_lead(struct server_vcpu *vcpu, int64_t order_max, int64_t for_ns)
{
    struct server_lead *lead = vcpu->lead, *to = lead;
    int64_t rest_ns = for_ns;
    uint32_t left = vcpu->lead_count;

    while (rest_ns > 0 && left && lead->order <= order_max) {
        int64_t ns = lead->ns < rest_ns ? lead->ns : rest_ns;

        lead->ns -= ns;
        rest_ns -= ns;
        if (lead->ns)
            break;
        lead++;
        left--;
    }
    if (left != vcpu->lead_count) {
        vcpu->lead_count = left;
        for (; left; left--)
            *to++ = *lead++;
    }
    return for_ns - rest_ns;
}

/* Joins the two least urgent orders of a full list into the less urgent one. Its lead is served
 * later, which delays no other VCPU. */
static inline void server_merge_leads(struct server_vcpu *vcpu)
{
    struct server_lead *last = &vcpu->lead[--vcpu->lead_count];

    last[-1].order = last->order;
    last[-1].ns += last->ns;
}

/* Forgives the lead beyond its limit, the least urgent first. */
static inline void server_forgive_lead(struct server_vcpu *vcpu)
{
    int64_t beyond_ns = -SERVER_LEAD_BUDGETS_MAX * vcpu->vcpu.parameters.budget_ns;

    for (uint32_t left = vcpu->lead_count; left; left--)
        beyond_ns += vcpu->lead[left - 1].ns;
    while (beyond_ns > 0) {
        struct server_lead *last = &vcpu->lead[vcpu->lead_count - 1];
        int64_t ns = last->ns < beyond_ns ? last->ns : beyond_ns;

        last->ns -= ns;
        beyond_ns -= ns;
        if (!last->ns)
            vcpu->lead_count--;
    }
}

/* The VCPU did work that its server has not served. Work without a deadline makes no lead. */
static inline void server_gain_lead(struct server_vcpu *vcpu, int64_t ns)
{
    uint32_t place = vcpu->lead_count;

    if (vcpu->told_ns == LAXITY_NEVER || ns <= 0)
        return;
    while (place && vcpu->lead[place - 1].order >= vcpu->order)
        place--;
    if (place == vcpu->lead_count || vcpu->lead[place].order != vcpu->order) {
        for (uint32_t behind = vcpu->lead_count++; behind > place; behind--)
            vcpu->lead[behind] = vcpu->lead[behind - 1];
        vcpu->lead[place] = (struct server_lead){vcpu->order, 0};
    }
    vcpu->lead[place].ns += ns;
    if (vcpu->lead_count > SERVER_LEADS_MAX)
        server_merge_leads(vcpu);
    server_forgive_lead(vcpu);
}

/* Leads grow and are served from then to now. Returns what is used of the budget that runs down: if
 * its VCPU does not run, no more than the lead, should an embedder be late. */
static inline int64_t server_lend(struct server_cpu *cpu, int64_t from_ns, int64_t now)
{
    struct server_vcpu *running = server_running(cpu), *serving = cpu->burning;
    int64_t used_ns = now - from_ns, done_ns = now - cpu->cpu.switched_ns;

    /* A CPU that switches to a VCPU does none of its work. */
    done_ns = done_ns < 0 ? 0 : done_ns < used_ns ? done_ns : used_ns;
    if (running && running == serving) {
        /* The server serves lead that comes before the work of its VCPU. That work becomes a lead,
         * which makes up for the served lead if the order is the same. */
        bool gains = running->told_ns != LAXITY_NEVER;
        server_serve_lead(running, running->order, used_ns - done_ns);
        server_gain_lead(running,
                         server_serve_lead(running, running->order - (gains ? 1 : 0), done_ns));
        return used_ns;
    }
    if (running)
        server_gain_lead(running, done_ns);
    if (!serving)
        return 0;
    return server_serve_lead(serving, serving->is_urgent ? serving->order : LAXITY_NEVER, used_ns);
}

/* Accounts the use of budget up to now, and takes a VCPU whose budget it ended from its queue. */
static inline void server_use(struct laxity_instance *instance, struct server_cpu *cpu, int64_t now)
{
    struct server_vcpu *vcpu = cpu->burning;
    int64_t from_ns = cpu->used_until_ns, passed_ns, used_ns;

    cpu->cpu.repeats_ns = 0;
    /* A repeated decision puts the running VCPU behind its equals. RunQ has none at that time
     * (server_repeats), so the VCPU keeps its place there. */
    if (cpu->cpu.is_repeated && cpu->cpu.current)
        server_running(cpu)->place.order = cpu->next_order++;
    cpu->cpu.is_repeated = false;
    /* A blocked VCPU's budget runs down whichever VCPU has the CPU. */
    if (SERVER_LENDS(instance) || vcpu == server_running(cpu))
        from_ns += cpu->cpu.stolen_ns - cpu->stolen_ns;
    cpu->stolen_ns = cpu->cpu.stolen_ns;
    used_ns = passed_ns = now - from_ns;
    if (SERVER_LENDS(instance))
        used_ns = server_lend(cpu, from_ns, now);
    cpu->used_until_ns = now;
    if (!vcpu)
        return;
    vcpu->left_ns -= used_ns;
    vcpu->run_used_ns += used_ns;
    if (vcpu->left_ns <= 0) {
        server_exhaust(instance, cpu, vcpu, now);
    } else if (SERVER_LENDS(instance)) {
        bool has_work = vcpu->lead_count || vcpu->is_urgent || vcpu == server_running(cpu);
        if (!has_work)
            server_block(instance, cpu, vcpu);
        if (!has_work || used_ns < passed_ns) /* it waits for an embedder that is late */
            server_burn(instance, cpu, NULL, now);
    }
}

/* The VCPU that should run (NULL: none), and the one whose budget should run down (NULL: none). */
struct server_choice {
    struct server_vcpu *run, *burn;
};

static inline struct server_choice server_choose(const struct laxity_instance *instance,
                                                 const struct server_cpu *cpu)
{
    struct server_vcpu *runnable = server_first(&cpu->run_queue);
    struct server_vcpu *blocked = server_first(&cpu->ready_queue);

    if (SERVER_LENDS(instance)) {
        bool lends = !runnable || server_serves_lead(runnable);
        return (struct server_choice){lends ? server_most_urgent(cpu) : runnable, runnable};
    }
    if (blocked && (!runnable || heap_before(&blocked->place, &runnable->place)))
        return (struct server_choice){runnable ? NULL : server_first_extra(cpu), blocked};
    if (runnable)
        return (struct server_choice){runnable, runnable};
    return (struct server_choice){server_first_extra(cpu), NULL};
}

/* The time for which the choice holds, from now. */
static inline int64_t server_until(const struct laxity_instance *instance, struct server_cpu *cpu,
                                   struct server_choice choice, int64_t now)
{
    int64_t quantum_ns = instance->settings.quantum_ns, until_ns = LAXITY_NEVER;

    if (choice.run && choice.run == choice.burn) {
        until_ns = now + choice.burn->left_ns;
    } else if (choice.run && list_holds(&choice.run->extra) &&
               choice.run->extra.next != &cpu->extra_queue) {
        until_ns = cpu->cpu.decided_ns + SERVER_EXTRA_TURN;
        if (until_ns < now)
            until_ns = now;
    }
    if (quantum_ns && until_ns > cpu->cpu.decided_ns + quantum_ns)
        until_ns = cpu->cpu.decided_ns + quantum_ns;
    return until_ns;
}

/* The time at which the budget or the lead of a VCPU ends that does not run, if its budget runs
 * down. */
static inline int64_t server_served_at(const struct server_cpu *cpu, int64_t now)
{
    const struct server_vcpu *serving = cpu->burning;
    int64_t rest_ns;

    if (!serving || serving == server_running(cpu))
        return LAXITY_NEVER;
    rest_ns = server_lead_to_serve(serving);
    rest_ns = rest_ns < serving->left_ns ? rest_ns : serving->left_ns;
    return rest_ns > 0 ? now + rest_ns : LAXITY_NEVER;
}

/* Sets the timer to the earlier of a replenishment and the end of the budget or the lead of a VCPU
 * that does not run. */
static inline void server_arm(struct laxity_instance *instance, struct server_cpu *cpu, int64_t now)
{
    int64_t at_ns = server_replenishment_at(instance, cpu);

    if (SERVER_LENDS(instance)) {
        int64_t served_ns = server_served_at(cpu, now);
        at_ns = served_ns < at_ns ? served_ns : at_ns;
    } else if (cpu->burning && !cpu->burning->vcpu.runnable &&
               at_ns > now + cpu->burning->left_ns) {
        at_ns = now + cpu->burning->left_ns;
    }
    if (at_ns == cpu->armed_ns)
        return;
    cpu->armed_ns = at_ns;
    laxity_arm_timer(instance, cpu->cpu.number, at_ns);
}

/* The time before which the decision in force would only be repeated when it ends: the VCPU has no
 * equals to go behind, its budget lasts for another quantum, and the timer does not fire. */
static inline int64_t server_repeats(const struct laxity_instance *instance,
                                     const struct server_cpu *cpu, struct server_choice choice,
                                     int64_t now)
{
    const struct server_vcpu *run = choice.run;
    const struct heap_node *blocked = cpu->ready_queue.first;
    int64_t quantum_ns = instance->settings.quantum_ns, lasts_ns;

    if (!quantum_ns)
        return 0;
    if (!run)
        return cpu->armed_ns;
    /* The growth of a lead depends on what each decision costs. */
    if (!run->vcpu.runnable || (SERVER_LENDS(instance) && (run != choice.burn || run->lead_count)))
        return 0;
    if (run != choice.burn)
        return run->extra.next == &cpu->extra_queue ? cpu->armed_ns : 0;
    if (heap_has_equals(&cpu->run_queue) || (blocked && blocked->key == run->place.key))
        return 0;
    lasts_ns = now + run->left_ns - quantum_ns + 1;
    return lasts_ns < cpu->armed_ns ? lasts_ns : cpu->armed_ns;
}

/* Is called after every change: asks for a decision if the decision would change. */
static inline void server_review(struct laxity_instance *instance, struct server_cpu *cpu,
                                 int64_t now)
{
    struct server_choice choice = server_choose(instance, cpu);

    if (choice.run != server_running(cpu)) {
        laxity_kick(instance, cpu->cpu.number);
    } else {
        /* The same VCPU continues, but its budget was replenished, or it runs on budget from now
         * on, or another blocked VCPU's budget now runs down. */
        int64_t until_ns;
        server_burn(instance, cpu, choice.burn, now);
        until_ns = server_until(instance, cpu, choice, now);
        if (until_ns != cpu->cpu.until_ns) {
            cpu->cpu.until_ns = until_ns;
            laxity_extend(instance, cpu->cpu.number, until_ns);
        }
    }
    server_arm(instance, cpu, now);
    if (choice.run == server_running(cpu))
        cpu->cpu.repeats_ns = server_repeats(instance, cpu, choice, now);
}

/* Operations: the same for every policy with budgets. */

static enum laxity_error server_init(struct laxity_instance *instance,
                                     const struct laxity_settings *settings)
{
    enum laxity_error error = server_check_settings(settings);
    if (!error)
        instance->settings = *settings;
    return error;
}

static void server_add_cpu(struct laxity_instance *instance, struct laxity_cpu *base, int64_t now)
{
    struct server_cpu *cpu = server_cpu_of(base);
    (void)instance;
    list_init(&cpu->extra_queue);
    list_init(&cpu->members);
    cpu->used_until_ns = cpu->cpu.decided_ns = now;
    cpu->cpu.until_ns = cpu->armed_ns = LAXITY_NEVER;
}

static void server_remove_cpu(struct laxity_instance *instance, struct laxity_cpu *cpu, int64_t now)
{
    (void)now;
    laxity_arm_timer(instance, cpu->number, LAXITY_NEVER);
}

static void server_remove_vcpu(struct laxity_instance *instance, struct laxity_vcpu *base,
                               int64_t now)
{
    struct server_vcpu *vcpu = server_vcpu_of(base);
    struct server_cpu *cpu = server_cpu_under(instance, base);

    server_use(instance, cpu, now);
    server_dequeue(cpu, vcpu);
    server_leave_extra(vcpu);
    server_leave_urgent(cpu, vcpu);
    server_set_due(cpu, vcpu, LAXITY_NEVER);
    list_remove(&vcpu->member);
    if (cpu->burning == vcpu)
        cpu->burning = NULL;
    server_review(instance, cpu, now);
}

static void server_move_vcpu(struct laxity_instance *instance, struct laxity_vcpu *base,
                             uint32_t number, int64_t now)
{
    struct server_vcpu *vcpu = server_vcpu_of(base);
    struct server_cpu *from = server_cpu_under(instance, base);
    struct server_cpu *to = server_cpu_of(instance->cpu[number]);
    int64_t due_ns;
    struct heap *runs_down;

    if (from == to)
        return;
    server_use(instance, from, now);
    server_use(instance, to, now);
    if (from->burning == vcpu)
        server_burn(instance, from, NULL, now);
    due_ns = vcpu->due.at_ns;
    /* It is asleep: its budget runs down (RdyQ), or its server has more to serve (RunQ). */
    runs_down = !vcpu->queue                      ? NULL
                : vcpu->queue == &from->run_queue ? &to->run_queue
                                                  : &to->ready_queue;
    server_dequeue(from, vcpu);
    server_set_due(from, vcpu, LAXITY_NEVER);
    list_remove(&vcpu->member);

    base->cpu = number;
    list_append(&to->members, &vcpu->member);
    vcpu->due.node.order = to->next_order++; /* places are counted on each CPU */
    server_set_due(to, vcpu, due_ns);
    if (runs_down)
        server_enqueue(to, runs_down, vcpu);
    server_trace(instance, vcpu, LAXITY_EVENT_MIGRATE, number);
    server_review(instance, from, now);
    server_review(instance, to, now);
}

/* Serves the first replenishment of RepQ. */
static inline void server_replenish_first(struct laxity_instance *instance, struct server_cpu *cpu,
                                          int64_t now)
{
    struct server_vcpu *vcpu =
        laxity_container(cpu->replenishment_queue.first, struct server_vcpu, due.node);

    server_replenish(instance, cpu, vcpu, now);
    if (!server_is_active(cpu, vcpu)) {
        server_set_rest(cpu, vcpu, server_rests(instance, vcpu));
    } else if (vcpu->left_ns > 0 && !vcpu->queue) {
        server_leave_extra(vcpu);
        server_enqueue(cpu, &cpu->run_queue, vcpu);
    }
}

/* Serves all due replenishments. */
static inline void server_replenish_due(struct laxity_instance *instance, struct server_cpu *cpu,
                                        int64_t now)
{
    while (cpu->replenishment_queue.first && server_replenishment_at(instance, cpu) <= now)
        server_replenish_first(instance, cpu, now);
}

static void server_wake(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    struct server_vcpu *vcpu = server_vcpu_of(base);
    struct server_cpu *cpu = server_cpu_under(instance, base);
    bool is_late = server_replenishment_at(instance, cpu) < now;

    server_use(instance, cpu, now);
    /* The timer would overtake a decision that this wake calls for without it. */
    if (is_late)
        server_replenish_due(instance, cpu, now);
    /* A VCPU that was put to sleep and has not been descheduled since never blocked. */
    if (base != cpu->cpu.current)
        server_unblocked(instance, cpu, vcpu, now);
    server_set_rest(cpu, vcpu, false);
    if (vcpu->queue == &cpu->ready_queue) {
        server_dequeue(cpu, vcpu);
        server_enqueue_in_place(&cpu->run_queue, vcpu);
    } else if (!vcpu->queue && vcpu->left_ns > 0) {
        server_enqueue(cpu, &cpu->run_queue, vcpu);
    } else if (!vcpu->queue) {
        server_join_extra(instance, cpu, vcpu);
    }
    server_set_urgent(instance, cpu, vcpu);
    server_review(instance, cpu, now);
}

/* The guest works on something else. A deadline that has passed counts as none. */
static inline void server_tell(struct laxity_instance *instance, struct laxity_vcpu *base,
                               int64_t deadline_ns, int64_t order, int64_t now)
{
    struct server_vcpu *vcpu = server_vcpu_of(base);
    struct server_cpu *cpu = server_cpu_under(instance, base);

    server_use(instance, cpu, now);
    if (deadline_ns != vcpu->told_ns)
        vcpu->deadline_ns = deadline_ns > now ? deadline_ns : LAXITY_NEVER;
    vcpu->told_ns = deadline_ns;
    vcpu->order = order;
    server_set_urgent(instance, cpu, vcpu);
    server_review(instance, cpu, now);
}

static void server_sleep(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    struct server_vcpu *vcpu = server_vcpu_of(base);
    struct server_cpu *cpu = server_cpu_under(instance, base);

    server_use(instance, cpu, now);
    server_leave_extra(vcpu);
    server_leave_urgent(cpu, vcpu);
    /* The decision that deschedules it also completes its account. */
    if (base == cpu->cpu.current)
        laxity_kick(instance, cpu->cpu.number);
    else
        server_block(instance, cpu, vcpu);
    server_review(instance, cpu, now);
}

static void server_yield(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    struct server_cpu *cpu = server_cpu_under(instance, base);
    server_use(instance, cpu, now);
    server_requeue(cpu, server_vcpu_of(base));
    server_review(instance, cpu, now);
}

static struct laxity_decision server_schedule(struct laxity_instance *instance,
                                              struct laxity_cpu *base, int64_t now)
{
    struct server_cpu *cpu = server_cpu_of(base);
    struct server_vcpu *current = base->current ? server_vcpu_of(base->current) : NULL;
    struct server_choice choice;

    server_use(instance, cpu, now);
    /* The end of a budget can make a replenishment due. The timer serves all others. */
    if (current && cpu->replenishment_queue.first == &current->due.node &&
        server_replenishment_at(instance, cpu) <= now)
        server_replenish_first(instance, cpu, now);
    choice = server_choose(instance, cpu);
    if (choice.run == current && (!current || current->vcpu.runnable) &&
        server_until(instance, cpu, choice, now) > now) {
        /* The reason for this decision is obsolete: the decision in force continues. */
        server_burn(instance, cpu, choice.burn, now);
        cpu->cpu.until_ns = server_until(instance, cpu, choice, now);
        server_arm(instance, cpu, now);
        cpu->cpu.repeats_ns = server_repeats(instance, cpu, choice, now);
        return (struct laxity_decision){base->current, cpu->cpu.until_ns};
    }
    if (current && !current->vcpu.runnable) {
        server_leave_extra(current);
        server_leave_urgent(cpu, current);
        server_block(instance, cpu, current);
    } else if (current && !current->queue) {
        server_join_extra(instance, cpu, current);
    } else if (current && instance->settings.quantum_ns) {
        server_requeue(cpu, current);
    }

    choice = server_choose(instance, cpu);
    server_burn(instance, cpu, choice.burn, now);
    base->current = choice.run ? &choice.run->vcpu : NULL;
    cpu->cpu.decided_ns = now;
    cpu->cpu.until_ns = server_until(instance, cpu, choice, now);
    server_arm(instance, cpu, now);
    cpu->cpu.repeats_ns = server_repeats(instance, cpu, choice, now);
    return (struct laxity_decision){base->current, cpu->cpu.until_ns};
}

static void server_timer(struct laxity_instance *instance, struct laxity_cpu *base, int64_t now)
{
    struct server_cpu *cpu = server_cpu_of(base);

    cpu->armed_ns = LAXITY_NEVER;
    server_use(instance, cpu, now);
    server_replenish_due(instance, cpu, now);
    server_review(instance, cpu, now);
}

static enum laxity_error server_set_settings(struct laxity_instance *instance,
                                             const struct laxity_settings *settings, int64_t now)
{
    enum laxity_error error = server_check_settings(settings);
    if (error)
        return error;
    instance->settings = *settings;
    for (uint32_t number = 0; number < instance->cpus; number++) {
        struct server_cpu *cpu;
        if (!instance->cpu[number])
            continue;
        cpu = server_cpu_of(instance->cpu[number]);
        cpu->rounded_ns = 0;
        server_use(instance, cpu, now);
        server_review(instance, cpu, now);
        laxity_kick(instance, number);
    }
    return LAXITY_OK;
}

static const char *server_state(const struct server_cpu *cpu, const struct server_vcpu *vcpu)
{
    if (&vcpu->vcpu == cpu->cpu.current)
        return "runs";
    if (vcpu->queue == &cpu->run_queue)
        return "RunQ";
    if (vcpu->queue == &cpu->ready_queue)
        return "RdyQ";
    if (list_holds(&vcpu->extra))
        return "extra";
    return vcpu->vcpu.runnable ? "no budget" : "blocked";
}

static void server_dump(struct laxity_instance *instance, struct laxity_cpu *base,
                        struct laxity_dump *dump)
{
    struct server_cpu *cpu = server_cpu_of(base);
    (void)instance;
    for (struct list *node = cpu->members.next; node != &cpu->members; node = node->next) {
        struct server_vcpu *vcpu = laxity_container(node, struct server_vcpu, member);
        dump->line(dump, &vcpu->vcpu, server_state(cpu, vcpu), vcpu->left_ns,
                   vcpu->due.is_queued ? vcpu->due.at_ns : LAXITY_NEVER);
    }
}

/* After `extratime` was set or cleared: joins or leaves the extra queue. */
static inline void server_set_extratime(const struct laxity_instance *instance,
                                        struct server_cpu *cpu, struct server_vcpu *vcpu)
{
    bool waits = vcpu->vcpu.runnable && !vcpu->queue;
    if (waits && vcpu->vcpu.parameters.extratime && !list_holds(&vcpu->extra))
        server_join_extra(instance, cpu, vcpu);
    else if (!vcpu->vcpu.parameters.extratime)
        server_leave_extra(vcpu);
}

/* The operations that are the same for all; a table adds name, add_vcpu, set_vcpu and become. */
#define SERVER_OPERATIONS                                                                        \
    .instance_bytes = sizeof(struct laxity_instance), .cpu_bytes = sizeof(struct server_cpu),    \
    .domain_bytes = sizeof(struct laxity_domain), .vcpu_bytes = sizeof(struct server_vcpu),      \
    .init = server_init, .add_cpu = server_add_cpu, .remove_cpu = server_remove_cpu,             \
    .add_domain = server_add_domain, .remove_domain = server_remove_domain,                      \
    .remove_vcpu = server_remove_vcpu, .move_vcpu = server_move_vcpu, .wake = server_wake,       \
    .sleep = server_sleep, .yield = server_yield, .schedule = server_schedule,                   \
    .timer = server_timer, .set_settings = server_set_settings, .set_domain = server_set_domain, \
    .tell = SERVER_TELL, .dump = server_dump

#endif
