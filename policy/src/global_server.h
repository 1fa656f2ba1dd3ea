/* SPDX-License-Identifier: MIT */
/*
 * Servers and SEDF with one order for all CPUs, in place of server.h: a file with the rules of
 * budgets (fixed_period.c, sporadic.c, sedf.c) is compiled a second time behind this one. The rules
 * of budgets are therefore the same. docs/explanation/policies.md has the others, under "Servers
 * with one order for all CPUs".
 *
 * What server.h has once a CPU is here once for all: `struct server_cpu` is the instance. global.h
 * says which VCPU has which CPU. The VCPUs that are ready there are those of RunQ and RdyQ: the
 * eligible ones, and the blocked ones whose budget runs down. A CPU that a blocked VCPU has idles.
 *
 * Review. After every change each CPU is asked for a decision if its VCPU is another one than that
 * which runs, so a VCPU that loses its CPU and has it again at once goes on.
 *
 * Extra time. VCPUs that are runnable without budget are in no order. A CPU that no VCPU has, or a
 * blocked one while nobody waits for that CPU, takes one of them when it decides.
 */
#ifndef LAXITY_SERVER_H
#define LAXITY_SERVER_H
#define SERVER_IS_GLOBAL

#include "budget.h"
#include "global.h"
#include "list.h"

struct server_core;

struct server_vcpu {
    union {
        struct laxity_vcpu vcpu;
        struct global_vcpu global; /* its key: the policy's; its order: since when eligible */
    };
    struct server_due due;
    struct list extra; /* in the instance's `extra_queue`, also while it runs on extra time */
    struct server_core *burns_on; /* whose `burning` it is; NULL: its budget does not run down */
    uint32_t left_cpu;            /* the CPU that descheduled it last */
    int64_t left_ns;              /* budget left; below 0 when an embedder was late */
    int64_t run_start_ns;         /* when the run that goes on was chosen */
    int64_t run_used_ns;          /* what it has used */
    /* Sporadic server: a ring of pending replenishments, in order of time. */
    struct server_replenishment pending[SERVER_REPLENISHMENTS_MAX];
    uint32_t pending_first, pending_count;
};

/* What all CPUs share. */
struct server_cpu {
    struct global_instance global;
    struct heap replenishment_queue;
    struct list extra_queue; /* VCPUs that are runnable without budget and may run on idle time */
    int64_t armed_ns;        /* when `account` will be called, as told to the embedder */
    int64_t rounded_ns;      /* the last result of server_replenishment_at */
};

#include "due.h"

/* A CPU. */
struct server_core {
    struct global_cpu global;
    struct server_cpu *all;
    struct server_vcpu *burning;
    struct server_vcpu *awaited; /* whose state was being saved when the CPU decided; NULL: none */
    int64_t used_until_ns;       /* up to when use is accounted */
    int64_t stolen_ns;           /* how much of cpu.stolen_ns is */
};

static inline struct server_vcpu *server_vcpu_of(struct laxity_vcpu *vcpu)
{
    return laxity_container(vcpu, struct server_vcpu, vcpu);
}

static inline struct server_vcpu *server_of(struct global_vcpu *vcpu)
{
    return vcpu ? laxity_container(vcpu, struct server_vcpu, global) : NULL;
}

static inline struct server_core *server_core_of(struct laxity_cpu *cpu)
{
    return laxity_container(global_cpu_of(cpu), struct server_core, global);
}

static inline struct server_cpu *server_cpu_of(struct laxity_cpu *cpu)
{
    return server_core_of(cpu)->all;
}

static inline struct server_cpu *server_all(struct laxity_instance *instance)
{
    return laxity_container(global_of(instance), struct server_cpu, global);
}

static inline struct server_cpu *server_cpu_under(struct laxity_instance *instance,
                                                  const struct laxity_vcpu *vcpu)
{
    (void)vcpu;
    return server_all(instance);
}

static inline struct laxity_instance *server_instance(struct server_cpu *all)
{
    return &all->global.instance;
}

static inline void server_trace(struct laxity_instance *instance, const struct server_vcpu *vcpu,
                                enum laxity_event event, int64_t argument)
{
    if (instance->tracing)
        laxity_trace(instance, &vcpu->vcpu, event, argument);
}

static inline struct server_vcpu *server_running(const struct server_core *core)
{
    return core->global.cpu.current ? server_vcpu_of(core->global.cpu.current) : NULL;
}

/* ---- The order of all CPUs ---- */

static bool global_comes_before(const struct heap_node *one, const struct heap_node *other)
{
    return heap_before(one, other);
}

/* Every change ends with a review. */
static void global_changed(struct laxity_instance *instance, const struct global_cpu *cpu)
{
    (void)instance, (void)cpu;
}

static inline bool server_is_active(struct server_cpu *all, const struct server_vcpu *vcpu)
{
    return vcpu->vcpu.runnable || global_is_current(server_instance(all), &vcpu->global);
}

static inline bool server_is_queued(const struct server_vcpu *vcpu)
{
    return global_is_ready(&vcpu->global);
}

static inline void server_dequeue(struct server_cpu *all, struct server_vcpu *vcpu)
{
    if (server_is_queued(vcpu))
        global_leave(server_instance(all), &vcpu->global);
}

static inline void server_leave_extra(struct server_vcpu *vcpu)
{
    if (list_holds(&vcpu->extra))
        list_remove(&vcpu->extra);
}

/* A runnable VCPU without budget goes to the end of the extra queue, if it may run on extra time.
 */
static inline void server_join_extra(struct server_cpu *all, struct server_vcpu *vcpu)
{
    server_leave_extra(vcpu);
    if (vcpu->vcpu.parameters.extratime)
        list_append(&all->extra_queue, &vcpu->extra);
}

/* Puts a VCPU that is in no queue behind its equals. */
static inline void server_enqueue_eligible(struct server_cpu *all, struct server_vcpu *vcpu)
{
    server_leave_extra(vcpu);
    vcpu->global.place.key = server_key(vcpu);
    vcpu->global.place.order = all->global.next_order++;
    global_take(server_instance(all), &vcpu->global, NULL);
}

static inline void server_enqueue_blocked(struct server_cpu *all, struct server_vcpu *vcpu)
{
    server_enqueue_eligible(all, vcpu);
}

static inline void server_stay_blocked(struct server_cpu *all, struct server_vcpu *vcpu)
{
    (void)all, (void)vcpu;
}

/* The VCPU has another place in the order, if it is in a queue. */
static inline void server_place(struct server_cpu *all, struct server_vcpu *vcpu, int64_t key,
                                uint64_t order)
{
    struct laxity_instance *instance = server_instance(all);
    struct global_vcpu *global = &vcpu->global, *first;
    struct global_cpu *cpu = global->cpu;

    if (global->waits) {
        /* It may come before one that has a CPU now. */
        heap_remove(&all->global.waiting, &global->place);
        global->waits = false;
        global->place.key = key;
        global->place.order = order;
        global_take(instance, global, NULL);
        return;
    }
    global->place.key = key;
    global->place.order = order;
    first = cpu ? global_first_for(instance, cpu->cpu.number) : NULL;
    if (!first || !heap_before(&first->place, &global->place))
        return;
    /* It may come behind one that waits for its CPU now. */
    heap_remove(&all->global.waiting, &first->place);
    first->waits = false;
    global_take(instance, first, cpu);
}

static inline void server_move(struct server_cpu *all, struct server_vcpu *vcpu, int64_t key)
{
    server_place(all, vcpu, key, vcpu->global.place.order);
}

static inline void server_requeue(struct server_cpu *all, struct server_vcpu *vcpu)
{
    if (server_is_queued(vcpu))
        server_place(all, vcpu, server_key(vcpu), all->global.next_order++);
}

static inline void server_join(struct server_cpu *all, struct server_vcpu *vcpu)
{
    list_append(&all->global.members, &vcpu->global.member);
    vcpu->due.node.order = all->global.next_order++;
    vcpu->due.at_ns = LAXITY_NEVER;
}

static inline struct list *server_members(struct server_cpu *all)
{
    return &all->global.members;
}

static inline struct server_vcpu *server_member(struct list *node)
{
    return server_of(laxity_container(node, struct global_vcpu, member));
}

/* After `extratime` was set or cleared: joins or leaves the extra queue. */
static inline void server_set_extratime(const struct laxity_instance *instance,
                                        struct server_cpu *all, struct server_vcpu *vcpu)
{
    bool waits = vcpu->vcpu.runnable && !server_is_queued(vcpu);

    (void)instance;
    if (waits && vcpu->vcpu.parameters.extratime && !list_holds(&vcpu->extra))
        server_join_extra(all, vcpu);
    else if (!vcpu->vcpu.parameters.extratime)
        server_leave_extra(vcpu);
}

/* ---- What no global server has: lending ---- */

static inline void server_tell_nothing(struct server_vcpu *vcpu)
{
    (void)vcpu;
}

static inline bool server_has_lead(const struct server_vcpu *vcpu)
{
    (void)vcpu;
    return false;
}

static inline void server_set_urgent(const struct laxity_instance *instance, struct server_cpu *all,
                                     struct server_vcpu *vcpu)
{
    (void)instance, (void)all, (void)vcpu;
}

/* ---- Use of budget ---- */

/* From now on this VCPU's budget runs down on the CPU; NULL: no budget does. */
static inline void server_burn(struct laxity_instance *instance, struct server_core *core,
                               struct server_vcpu *vcpu, int64_t now)
{
    struct server_vcpu *before = core->burning;

    if (vcpu == before)
        return;
    if (vcpu && vcpu->burns_on)
        server_burn(instance, vcpu->burns_on, NULL, now);
    core->burning = vcpu;
    if (before) {
        before->burns_on = NULL;
        if (before->left_ns > 0)
            server_trace(instance, before, LAXITY_EVENT_BUDGET, before->left_ns);
        if (before->run_used_ns > 0)
            server_stopped(instance, core->all, before);
    }
    if (vcpu) {
        vcpu->burns_on = core;
        vcpu->run_start_ns = now;
        vcpu->run_used_ns = 0;
    }
}

/* A VCPU in a queue has no budget left. */
static inline void server_exhaust(struct laxity_instance *instance, struct server_cpu *all,
                                  struct server_vcpu *vcpu, int64_t now)
{
    server_dequeue(all, vcpu);
    server_trace(instance, vcpu, LAXITY_EVENT_EXHAUST, 0);
    if (vcpu->burns_on)
        server_burn(instance, vcpu->burns_on, NULL, now);
    /* The running VCPU may continue on extra time, behind those that wait: see server_schedule. */
    if (vcpu->vcpu.runnable && !global_is_current(instance, &vcpu->global))
        server_join_extra(all, vcpu);
}

static inline void server_use_on(struct laxity_instance *instance, struct server_core *core,
                                 int64_t now)
{
    struct server_vcpu *vcpu = core->burning;
    int64_t from_ns = core->used_until_ns;

    core->global.cpu.repeats_ns = 0;
    /* A repeated decision puts the running VCPU behind its equals, none of which waits
     * (server_repeats). */
    if (core->global.cpu.is_repeated && core->global.cpu.current)
        server_running(core)->global.place.order = core->all->global.next_order++;
    core->global.cpu.is_repeated = false;
    /* A blocked VCPU's budget runs down whichever VCPU has the CPU. */
    if (vcpu == server_running(core))
        from_ns += core->global.cpu.stolen_ns - core->stolen_ns;
    core->stolen_ns = core->global.cpu.stolen_ns;
    core->used_until_ns = now;
    if (!vcpu)
        return;
    vcpu->left_ns -= now - from_ns;
    vcpu->run_used_ns += now - from_ns;
    if (vcpu->left_ns <= 0)
        server_exhaust(instance, core->all, vcpu, now);
}

/* Accounts the use of budget on all CPUs up to now. */
static inline void server_use(struct laxity_instance *instance, struct server_cpu *all, int64_t now)
{
    (void)all;
    for (uint32_t number = 0; number < instance->cpus; number++)
        if (instance->cpu[number])
            server_use_on(instance, server_core_of(instance->cpu[number]), now);
}

/* The VCPU that the CPU should run (NULL: none), and the one whose budget should run down there. */
struct server_choice {
    struct server_vcpu *run, *burn;
};

/* Whether the CPU's VCPU runs elsewhere until that CPU decides. */
static inline bool server_is_elsewhere(struct laxity_instance *instance,
                                       const struct server_core *core,
                                       const struct server_vcpu *vcpu)
{
    return vcpu->vcpu.cpu != core->global.cpu.number && global_is_current(instance, &vcpu->global);
}

/* Whether the CPU could take the VCPU of the extra queue: it may run there, and no other CPU runs
 * or awaits it. */
static inline bool server_could_take(struct laxity_instance *instance,
                                     const struct server_core *core, struct server_vcpu *vcpu)
{
    if (!global_may_have(instance, &vcpu->global, core->global.cpu.number) ||
        server_is_elsewhere(instance, core, vcpu))
        return false;
    for (uint32_t number = 0; number < instance->cpus; number++) {
        struct laxity_cpu *cpu = instance->cpu[number];
        if (cpu && server_core_of(cpu) != core && server_core_of(cpu)->awaited == vcpu)
            return false;
    }
    return true;
}

/* The first VCPU of the extra queue that the CPU could take, other than that one; NULL: none. */
static inline struct server_vcpu *server_first_extra(struct laxity_instance *instance,
                                                     const struct server_core *core,
                                                     const struct server_vcpu *other)
{
    struct list *queue = &server_all(instance)->extra_queue;

    for (struct list *node = queue->next; node != queue; node = node->next) {
        struct server_vcpu *vcpu = laxity_container(node, struct server_vcpu, extra);
        if (vcpu != other && server_could_take(instance, core, vcpu))
            return vcpu;
    }
    return NULL;
}

/* Whether an eligible VCPU waits that may run on the CPU. */
static inline bool server_is_wanted(struct laxity_instance *instance,
                                    const struct server_core *core)
{
    struct server_cpu *all = server_all(instance);
    struct list *members = server_members(all);

    for (struct list *node = members->next; node != members; node = node->next) {
        const struct server_vcpu *vcpu = server_member(node);
        if (vcpu->global.waits && server_is_active(all, vcpu) &&
            global_may_have(instance, &vcpu->global, core->global.cpu.number))
            return true;
    }
    return false;
}

/* The VCPU that the CPU runs on extra time, if it is free for that. The one that runs goes on if
 * its turn does. */
static inline struct server_vcpu *server_extra_for(struct laxity_instance *instance,
                                                   const struct server_core *core, bool goes_on)
{
    struct server_vcpu *current = server_running(core);

    if (core->global.assigned && server_is_wanted(instance, core))
        return NULL;
    if (goes_on && current && list_holds(&current->extra) &&
        server_could_take(instance, core, current))
        return current;
    return server_first_extra(instance, core, NULL);
}

/* The VCPU may have to be awaited: only a decision knows whether its state is saved. */
static inline struct server_choice server_choose(struct laxity_instance *instance,
                                                 const struct server_core *core, bool goes_on)
{
    struct server_vcpu *vcpu = server_of(core->global.assigned);
    bool is_current = vcpu && &vcpu->vcpu == core->global.cpu.current;

    if (vcpu && server_is_elsewhere(instance, core, vcpu))
        return (struct server_choice){NULL, NULL};
    if (vcpu && (vcpu->vcpu.runnable || is_current))
        return (struct server_choice){vcpu, vcpu};
    return (struct server_choice){server_extra_for(instance, core, goes_on), vcpu};
}

/* The time for which the choice holds, from now. */
static inline int64_t server_until(struct laxity_instance *instance, const struct server_core *core,
                                   struct server_choice choice, int64_t now)
{
    int64_t until_ns = LAXITY_NEVER, quantum_ns = instance->settings.quantum_ns;

    if (core->awaited) {
        const struct laxity_cpu *saves = instance->cpu[core->awaited->left_cpu];
        return saves && saves->switched_ns > now ? saves->switched_ns : now + GLOBAL_LOOK_AGAIN;
    }
    if (choice.run && choice.run == choice.burn) {
        until_ns = now + choice.run->left_ns;
    } else if (choice.run && server_first_extra(instance, core, choice.run)) {
        until_ns = core->global.cpu.decided_ns + SERVER_EXTRA_TURN;
        if (until_ns < now)
            until_ns = now;
    }
    if (quantum_ns && until_ns > core->global.cpu.decided_ns + quantum_ns)
        until_ns = core->global.cpu.decided_ns + quantum_ns;
    return until_ns;
}

/* Sets the account timer to the earlier of a replenishment and the end of the budget of a blocked
 * VCPU. */
static inline void server_arm(struct laxity_instance *instance, struct server_cpu *all, int64_t now)
{
    int64_t at_ns = server_replenishment_at(instance, all);

    for (uint32_t number = 0; number < instance->cpus; number++) {
        const struct server_vcpu *vcpu =
            instance->cpu[number] ? server_core_of(instance->cpu[number])->burning : NULL;
        if (vcpu && !vcpu->vcpu.runnable && at_ns > now + vcpu->left_ns)
            at_ns = now + vcpu->left_ns;
    }
    if (at_ns == all->armed_ns)
        return;
    all->armed_ns = at_ns;
    laxity_arm_account(instance, at_ns);
}

/* The time before which the decision in force would only be repeated when it ends, on the only CPU:
 * the VCPU has no equals to go behind, its budget lasts for another quantum, and the timer does not
 * fire. */
static inline int64_t server_repeats(struct laxity_instance *instance,
                                     const struct server_core *core, int64_t now)
{
    const struct server_cpu *all = core->all;
    const struct heap_node *waiting = all->global.waiting.first;
    int64_t quantum_ns = instance->settings.quantum_ns, lasts_ns;
    const struct server_vcpu *run;
    struct server_choice choice;

    /* Several CPUs put their VCPUs behind each other's. */
    if (!quantum_ns || instance->cpus != 1 || core->awaited)
        return 0;
    choice = server_choose(instance, core, true);
    run = choice.run;
    if (run != server_running(core))
        return 0;
    if (!run)
        return all->armed_ns;
    if (!run->vcpu.runnable)
        return 0;
    if (run != choice.burn)
        return server_first_extra(instance, core, run) ? 0 : all->armed_ns;
    if (waiting && waiting->key == run->global.place.key)
        return 0;
    lasts_ns = now + run->left_ns - quantum_ns + 1;
    return lasts_ns < all->armed_ns ? lasts_ns : all->armed_ns;
}

static inline void server_review_on(struct laxity_instance *instance, struct server_core *core,
                                    int64_t now)
{
    struct server_choice choice = server_choose(instance, core, true);
    int64_t until_ns;

    /* The CPU looks again by itself. */
    if (core->awaited && core->awaited == choice.run)
        return;
    core->awaited = NULL;
    if (choice.run != server_running(core)) {
        laxity_kick(instance, core->global.cpu.number);
        return;
    }
    server_burn(instance, core, choice.burn, now);
    until_ns = server_until(instance, core, choice, now);
    if (until_ns <= now) {
        /* Its turn on extra time is over now that another one waits. */
        laxity_kick(instance, core->global.cpu.number);
    } else if (until_ns != core->global.cpu.until_ns) {
        core->global.cpu.until_ns = until_ns;
        laxity_extend(instance, core->global.cpu.number, until_ns);
    }
}

/* Is called after every change: asks each CPU for a decision whose decision would change. */
static inline void server_review(struct laxity_instance *instance, struct server_cpu *all,
                                 int64_t now)
{
    for (uint32_t number = 0; number < instance->cpus; number++) {
        struct server_core *core = NULL;
        if (instance->cpu[number])
            core = server_core_of(instance->cpu[number]);
        if (core && !core->global.is_deciding)
            server_review_on(instance, core, now);
    }
    server_arm(instance, all, now);
    for (uint32_t number = 0; number < instance->cpus; number++)
        if (instance->cpu[number])
            instance->cpu[number]->repeats_ns =
                server_repeats(instance, server_core_of(instance->cpu[number]), now);
}

/* ---- Operations ---- */

static enum laxity_error server_init(struct laxity_instance *instance,
                                     const struct laxity_settings *settings)
{
    enum laxity_error error = server_check_settings(settings);

    if (error)
        return error;
    instance->settings = *settings;
    list_init(&global_of(instance)->members);
    list_init(&server_all(instance)->extra_queue);
    server_all(instance)->armed_ns = LAXITY_NEVER;
    return LAXITY_OK;
}

static void server_add_cpu(struct laxity_instance *instance, struct laxity_cpu *cpu, int64_t now)
{
    struct server_core *core = server_core_of(cpu);

    core->all = server_all(instance);
    core->used_until_ns = core->global.cpu.decided_ns = now;
    core->global.cpu.until_ns = LAXITY_NEVER;
    server_use(instance, core->all, now);
    global_add_cpu(instance, cpu, now);
    server_review(instance, core->all, now);
}

static void server_remove_cpu(struct laxity_instance *instance, struct laxity_cpu *cpu, int64_t now)
{
    struct server_core *core = server_core_of(cpu);

    server_use(instance, core->all, now);
    server_burn(instance, core, NULL, now);
    global_remove_cpu(instance, cpu, now);
    server_review(instance, core->all, now);
}

static void server_remove_vcpu(struct laxity_instance *instance, struct laxity_vcpu *base,
                               int64_t now)
{
    struct server_vcpu *vcpu = server_vcpu_of(base);
    struct server_cpu *all = server_all(instance);

    server_use(instance, all, now);
    server_dequeue(all, vcpu);
    server_leave_extra(vcpu);
    server_set_due(all, vcpu, LAXITY_NEVER);
    list_remove(&vcpu->global.member);
    if (vcpu->burns_on)
        vcpu->burns_on->burning = NULL;
    server_review(instance, all, now);
}

/* The CPU's VCPU may not run there any more. */
static inline void server_expel(struct laxity_instance *instance, struct server_core *core)
{
    struct global_vcpu *vcpu = core->global.assigned;

    if (!vcpu || global_may_have(instance, vcpu, core->global.cpu.number))
        return;
    global_leave(instance, vcpu);
    global_take(instance, vcpu, NULL);
}

/* Asleep, it has a CPU only if its budget runs down there, which goes on. */
static void server_move_vcpu(struct laxity_instance *instance, struct laxity_vcpu *base,
                             uint32_t number, int64_t now)
{
    struct server_cpu *all = server_all(instance);
    struct global_cpu *cpu = server_vcpu_of(base)->global.cpu;

    server_use(instance, all, now);
    if (cpu)
        server_expel(instance, laxity_container(cpu, struct server_core, global));
    global_migrate(instance, base, number);
    server_review(instance, all, now);
}

/* Serves the first replenishment of RepQ. */
static inline void server_replenish_first(struct laxity_instance *instance, struct server_cpu *all,
                                          int64_t now)
{
    struct server_vcpu *vcpu =
        laxity_container(all->replenishment_queue.first, struct server_vcpu, due.node);

    server_replenish(instance, all, vcpu, now);
    if (!server_is_active(all, vcpu))
        server_set_rest(all, vcpu, server_rests(instance, vcpu));
    else if (vcpu->left_ns > 0 && !server_is_queued(vcpu))
        server_enqueue_eligible(all, vcpu);
}

/* Serves all due replenishments. */
static inline void server_replenish_due(struct laxity_instance *instance, struct server_cpu *all,
                                        int64_t now)
{
    while (all->replenishment_queue.first && server_replenishment_at(instance, all) <= now)
        server_replenish_first(instance, all, now);
}

static void server_wake(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    struct server_vcpu *vcpu = server_vcpu_of(base);
    struct server_cpu *all = server_all(instance);
    bool is_late = server_replenishment_at(instance, all) < now;

    server_use(instance, all, now);
    /* The timer would overtake a decision that this wake calls for without it. */
    if (is_late)
        server_replenish_due(instance, all, now);
    /* A VCPU that was put to sleep and has not been descheduled since never blocked. */
    if (!global_is_current(instance, &vcpu->global)) {
        /* It was moved while its budget ran down on the CPU that it has. */
        if (vcpu->global.cpu)
            global_migrate(instance, base, vcpu->global.cpu->cpu.number);
        server_unblocked(instance, all, vcpu, now);
        server_set_rest(all, vcpu, false);
    }
    if (!server_is_queued(vcpu) && vcpu->left_ns > 0)
        server_enqueue_eligible(all, vcpu);
    else if (!server_is_queued(vcpu))
        server_join_extra(all, vcpu);
    server_review(instance, all, now);
}

static void server_sleep(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    struct server_vcpu *vcpu = server_vcpu_of(base);
    struct server_cpu *all = server_all(instance);

    server_use(instance, all, now);
    server_leave_extra(vcpu);
    /* The decision that deschedules it also completes its account. */
    if (global_is_current(instance, &vcpu->global))
        laxity_kick(instance, base->cpu);
    else
        server_block(instance, all, vcpu);
    server_review(instance, all, now);
}

static void server_yield(struct laxity_instance *instance, struct laxity_vcpu *base, int64_t now)
{
    struct server_cpu *all = server_all(instance);

    server_use(instance, all, now);
    server_requeue(all, server_vcpu_of(base));
    server_review(instance, all, now);
}

/* A VCPU is descheduled. If it has another CPU, it belongs there now. */
static inline void server_deschedule(struct laxity_instance *instance, struct server_core *core,
                                     struct server_vcpu *vcpu)
{
    struct global_cpu *to = vcpu->global.cpu;

    vcpu->left_cpu = core->global.cpu.number;
    if (to)
        global_migrate(instance, &vcpu->vcpu, to->cpu.number);
}

static struct laxity_decision server_schedule(struct laxity_instance *instance,
                                              struct laxity_cpu *base, int64_t now)
{
    struct server_core *core = server_core_of(base);
    struct server_cpu *all = core->all;
    struct server_vcpu *current = server_running(core);
    struct server_choice choice;

    core->global.is_deciding = true;
    server_use(instance, all, now);
    /* The end of a budget can make a replenishment due. The timer serves all others. */
    server_replenish_due(instance, all, now);
    server_expel(instance, core);
    core->awaited = NULL;
    choice = server_choose(instance, core, true);
    if (choice.run == current && (!current || current->vcpu.runnable) &&
        server_until(instance, core, choice, now) > now) {
        /* The reason for this decision is obsolete: the decision in force continues. */
        server_burn(instance, core, choice.burn, now);
        core->global.cpu.until_ns = server_until(instance, core, choice, now);
        server_review(instance, all, now);
        core->global.is_deciding = false;
        return (struct laxity_decision){base->current, core->global.cpu.until_ns};
    }
    if (current && !current->vcpu.runnable) {
        server_leave_extra(current);
        server_block(instance, all, current);
        base->current = NULL;
    } else if (current && !server_is_queued(current)) {
        server_join_extra(all, current);
    } else if (current && instance->settings.quantum_ns &&
               (!current->global.cpu || current->global.cpu == &core->global)) {
        server_requeue(all, current);
    }

    choice = server_choose(instance, core, false);
    if (choice.run && choice.run != current && choice.run->vcpu.on_cpu) {
        core->awaited = choice.run;
        choice.run = NULL;
        choice.burn = choice.burn == core->awaited ? NULL : choice.burn;
    }
    server_burn(instance, core, choice.burn, now);
    if (choice.run)
        global_migrate(instance, &choice.run->vcpu, base->number);
    base->current = choice.run ? &choice.run->vcpu : NULL;
    core->global.cpu.decided_ns = now;
    core->global.cpu.until_ns = server_until(instance, core, choice, now);
    if (current && current != choice.run)
        server_deschedule(instance, core, current);
    server_review(instance, all, now);
    core->global.is_deciding = false;
    return (struct laxity_decision){base->current, core->global.cpu.until_ns};
}

static void server_timer(struct laxity_instance *instance, struct laxity_cpu *cpu, int64_t now)
{
    (void)instance, (void)cpu, (void)now;
}

static void server_account(struct laxity_instance *instance, int64_t now)
{
    struct server_cpu *all = server_all(instance);

    all->armed_ns = LAXITY_NEVER;
    server_use(instance, all, now);
    server_replenish_due(instance, all, now);
    server_review(instance, all, now);
}

static enum laxity_error server_set_settings(struct laxity_instance *instance,
                                             const struct laxity_settings *settings, int64_t now)
{
    struct server_cpu *all = server_all(instance);
    enum laxity_error error = server_check_settings(settings);

    if (error)
        return error;
    instance->settings = *settings;
    all->rounded_ns = 0;
    server_use(instance, all, now);
    server_review(instance, all, now);
    for (uint32_t number = 0; number < instance->cpus; number++)
        if (instance->cpu[number])
            laxity_kick(instance, number);
    return LAXITY_OK;
}

static const char *server_state(struct server_cpu *all, const struct server_vcpu *vcpu)
{
    if (global_is_current(server_instance(all), &vcpu->global))
        return "runs";
    if (!vcpu->vcpu.runnable)
        return server_is_queued(vcpu) ? "RdyQ" : "blocked";
    if (list_holds(&vcpu->extra))
        return "extra";
    if (!server_is_queued(vcpu))
        return "no budget";
    if (!vcpu->global.cpu)
        return "waits";
    if (vcpu->vcpu.on_cpu || server_core_of(&vcpu->global.cpu->cpu)->awaited == vcpu)
        return "being saved";
    return "next";
}

static void server_dump(struct laxity_instance *instance, struct laxity_cpu *base,
                        struct laxity_dump *dump)
{
    struct server_cpu *all = server_all(instance);
    struct list *members = server_members(all);

    for (struct list *node = members->next; node != members; node = node->next) {
        struct server_vcpu *vcpu = server_member(node);
        if (vcpu->vcpu.cpu == base->number)
            dump->line(dump, &vcpu->vcpu, server_state(all, vcpu), vcpu->left_ns,
                       vcpu->due.is_queued ? vcpu->due.at_ns : LAXITY_NEVER);
    }
}

/* The operations that are the same for all; a table adds add_vcpu, set_vcpu and become. */
#define SERVER_OPERATIONS                                                                   \
    .instance_bytes = sizeof(struct server_cpu), .cpu_bytes = sizeof(struct server_core),   \
    .domain_bytes = sizeof(struct laxity_domain), .vcpu_bytes = sizeof(struct server_vcpu), \
    .init = server_init, .add_cpu = server_add_cpu, .remove_cpu = server_remove_cpu,        \
    .add_domain = server_add_domain, .remove_domain = server_remove_domain,                 \
    .remove_vcpu = server_remove_vcpu, .move_vcpu = server_move_vcpu, .wake = server_wake,  \
    .sleep = server_sleep, .yield = server_yield, .schedule = server_schedule,              \
    .timer = server_timer, .account = server_account, .set_settings = server_set_settings,  \
    .set_domain = server_set_domain, .dump = server_dump

#endif
