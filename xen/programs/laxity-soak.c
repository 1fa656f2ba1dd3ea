/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The soak, in dom0: for a time it does to guests and CPU pools what an administrator may do, in
 * an order and with values drawn from a seed, and fails when something is not as it must be.
 *
 *   laxity-soak SEED SECONDS SLACK_NS NAME...
 *
 * The guests run laxity-guest;
 * NAME.cfg in $PLAN is how xl makes each. What must be:
 *
 *   A guest goes on. It is given one run of tasks after the other, and says that each is done in
 *   time; while it is paused its time stands still. A run is done when the threads of every VCPU
 *   that has one are, so a VCPU that is lost stops its guest. At the end each VCPU works.
 *
 *   A budget is kept. A VCPU without extratime and lending, from one change of its parameters to
 *   the next, runs in an interval of length L for at most
 *   (ceil((L + quantum) / period) + 1) * budget and the slack, which is for what lies between the
 *   end of a budget and the interrupt that acts on it. (A quantum lets replenishments wait, so that
 *   one more can fall into the interval.) What was overrun is owed, so the slack counts once an
 *   interval and not once a period.
 *
 *   What is set is there afterwards. What is wrong is refused, and nothing changes.
 *
 *   dom0 is never kept waiting. That the hypervisor complains of nothing is for whoever reads its
 *   console to see: python/laxity/lab/soak.py.
 *
 * Guests are given so little that even one CPU has time for all of them and dom0; so whoever waits
 * for long waits for ever.
 */
#include "guests.h"
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The types are here already. */
#define LAXITY_TYPES_HEADER <stddef.h>
#include <laxity/policy.h>

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* Parts in a million of one CPU that all guests may have for sure; dom0 needs the rest. */
#define MILLION 1000000
#define GUESTS_SHARE 600000
#define SHARE_LEAST 20000
#define SHARE_MOST 300000

#define SAY_NS (10 * SECOND_NS) /* between two lines that say how far we are */

#define SECOND_POOL "soak"

static struct laxity_op get_pool(uint32_t pool)
{
    return get(pool, LAXITY_OP_GET_POOL, 0, 0);
}

static bool find_second_pool(struct pool *pool)
{
    return next_pool(1, pool);
}

/* What it complains of goes to the console: standard error is for the one reason of our failure. */
static void run_program(const char *const words[])
{
    extern char **environ;
    posix_spawn_file_actions_t actions;
    int status, error;
    pid_t pid;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    error = posix_spawnp(&pid, words[0], &actions, NULL, (char *const *)words, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error)
        wrong("%s cannot be started: %s", words[0], strerror(error));
    waitpid(pid, &status, 0);
    if (status)
        wrong("%s %s failed, with status 0x%x", words[0], words[1], status);
}

#define program(...) run_program((const char *const[]){__VA_ARGS__, NULL})

/* ---- Parameters ---- */

static int64_t share_of(const struct guest *except)
{
    int64_t share = 0;

    for_each_guest (guest)
        for (uint32_t vcpu = 0; guest != except && vcpu < guest->vcpus; vcpu++)
            share += MILLION * guest->book[vcpu].budget_ns / guest->book[vcpu].period_ns;
    return share;
}

/* For each of that many VCPUs of the guest. */
static void draw_parameters(const struct guest *guest, struct laxity_op *op)
{
    int64_t spare = (GUESTS_SHARE - share_of(guest)) / guest->vcpus;

    if (spare < SHARE_LEAST)
        spare = SHARE_LEAST;
    if (spare > SHARE_MOST)
        spare = SHARE_MOST;
    op->period_ns = draw_within(2000, 100000) * 1000;
    op->budget_ns = op->period_ns / MILLION * draw_within(SHARE_LEAST, spare);
    op->priority = draw_within(2, 5);
    op->weight = draw_within(1, 1024);
    op->cap_percent = one_in(4) ? draw_within(10, 100) : 0;
    op->laxity_ns = one_in(2) ? draw_within(10, 10000) * 1000 : 0;
    op->extratime = !guest->run || one_in(2); /* who boots may do so sooner */
}

#define PARAMETERS offsetof(struct laxity_op, budget_ns)
#define PARAMETERS_END offsetof(struct laxity_op, quantum_ns)
#define VALUES offsetof(struct laxity_op, policy)
#define VALUES_END offsetof(struct laxity_op, cpu)

static bool is_same(const struct laxity_op *one, const struct laxity_op *other, size_t from,
                    size_t end)
{
    return !memcmp((const char *)one + from, (const char *)other + from, end - from);
}

static void set(uint32_t pool, uint32_t command, struct laxity_op *op)
{
    int error = laxity(pool, command, op);

    if (error)
        wrong("right values were refused: %s, %u", strerror(-error), op->error);
}

static void require_set(uint32_t pool, uint32_t command, uint32_t vcpu, const struct laxity_op *op)
{
    struct laxity_op found = get(pool, command, op->domid, vcpu);

    if (!is_same(op, &found, PARAMETERS, PARAMETERS_END))
        wrong("what was set for domain %u is not there", op->domid);
}

static void set_domain(struct guest *guest)
{
    struct laxity_op op = {.domid = guest->id};
    uint32_t pool = pool_of(guest->id);

    draw_parameters(guest, &op);
    note("set %s budget=%" PRId64 " period=%" PRId64 " priority=%u extratime=%u cap=%u",
         guest->name, op.budget_ns, op.period_ns, op.priority, op.extratime, op.cap_percent);
    check_books(guest);
    set(pool, LAXITY_OP_SET_DOMAIN, &op);
    require_set(pool, LAXITY_OP_GET_DOMAIN, 0, &op);
    for (uint32_t vcpu = 0; vcpu < guest->vcpus; vcpu++)
        require_set(pool, LAXITY_OP_GET_VCPU, vcpu, &op);
    open_books(guest);
}

/* ---- Operations. Each returns false if there is nothing that it could be done to. ---- */

static struct guest *draw_guest(bool exists)
{
    struct guest *fit[GUESTS_MAX];
    unsigned count = 0;

    for (struct guest *guest = guests; guest < guests + guest_count; guest++)
        if (guest->exists == exists)
            fit[count++] = guest;
    return count ? fit[draw_below(count)] : NULL;
}

static uint32_t draw_pool(void)
{
    struct pool second;

    return find_second_pool(&second) && one_in(2) ? second.id : 0;
}

static bool operate_pause(void)
{
    struct guest *guest = draw_guest(true);

    /* Most of the time most of them run. */
    if (!guest || (!guest->is_paused && !one_in(3)))
        return false;
    note("%s %s", guest->is_paused ? "unpause" : "pause", guest->name);
    pause_or_unpause(guest, !guest->is_paused);
    return true;
}

static bool operate_pause_burst(void)
{
    struct guest *guest = draw_guest(true);
    unsigned times = draw_within(2, 50);

    if (!guest || guest->is_paused)
        return false;
    note("pause and unpause %s %u times", guest->name, times);
    for (unsigned i = 0; i < times; i++) {
        pause_or_unpause(guest, true);
        pause_or_unpause(guest, false);
    }
    return true;
}

static bool operate_set_domain(void)
{
    struct guest *guest = draw_guest(true);

    if (!guest)
        return false;
    set_domain(guest);
    return true;
}

static bool operate_set_vcpu(void)
{
    struct guest *guest = draw_guest(true);
    struct laxity_op op = {0};
    uint32_t pool;

    if (!guest)
        return false;
    op.domid = guest->id;
    op.vcpu = draw_below(guest->vcpus);
    pool = pool_of(guest->id);
    draw_parameters(guest, &op);
    note("set %s/%u budget=%" PRId64 " period=%" PRId64 " priority=%u extratime=%u", guest->name,
         op.vcpu, op.budget_ns, op.period_ns, op.priority, op.extratime);
    check_book(guest, op.vcpu);
    set(pool, LAXITY_OP_SET_VCPU, &op);
    require_set(pool, LAXITY_OP_GET_VCPU, op.vcpu, &op);
    open_book(guest, op.vcpu);
    return true;
}

/* dom0 keeps its place before all others, and goes on on extra time. */
static bool operate_set_dom0(void)
{
    struct laxity_op op = {.budget_ns = draw_within(1000, 4000) * 1000,
                           .period_ns = 20 * MILLISECOND_NS,
                           .priority = 1,
                           .weight = 1024,
                           .extratime = 1};

    note("set dom0 budget=%" PRId64, op.budget_ns);
    set(0, LAXITY_OP_SET_DOMAIN, &op);
    return true;
}

/* Gives a wrong value to what was right. */
static void spoil_parameters(const struct laxity_op *pool, struct laxity_op *op)
{
    if (!has_budgets(pool)) {
        switch (draw_below(3)) {
        case 0:
            op->weight = 0;
            break;
        case 1:
            op->weight = LAXITY_WEIGHT_MAX + 1;
            break;
        default:
            op->cap_percent = UINT32_MAX;
        }
        return;
    }
    switch (draw_below(5)) {
    case 0:
        op->budget_ns = 0;
        break;
    case 1:
        op->budget_ns = op->period_ns + 1;
        break;
    case 2:
        op->period_ns = 0;
        break;
    case 3:
        op->period_ns = LAXITY_DURATION_MAX + 1;
        break;
    default:
        op->budget_ns = INT64_MIN;
    }
}

static void spoil_settings(struct laxity_op *op)
{
    if (has_budgets(op)) {
        op->quantum_ns = one_in(2) ? -1 : LAXITY_DURATION_MAX + 1;
        return;
    }
    switch (draw_below(3)) {
    case 0:
        op->tick_ns = 0;
        break;
    case 1:
        op->accounting_ns = op->tick_ns * 2 + 1;
        break;
    default:
        op->time_slice_ns = 0;
    }
}

static void require_refused(uint32_t pool, uint32_t command, struct laxity_op *op, int expected)
{
    int error = laxity(pool, command, op);

    if (error != expected)
        wrong("a wrong value gave %d and not %d", error, expected);
}

static bool operate_set_wrong(void)
{
    struct guest *guest = draw_guest(true);
    struct laxity_op pool, domain, vcpus[VCPUS_MAX], op, found;
    uint32_t pool_id;

    if (!guest)
        return false;
    pool_id = pool_of(guest->id);
    pool = get_pool(pool_id);
    domain = get(pool_id, LAXITY_OP_GET_DOMAIN, guest->id, 0);
    for (uint32_t vcpu = 0; vcpu < guest->vcpus; vcpu++)
        vcpus[vcpu] = get(pool_id, LAXITY_OP_GET_VCPU, guest->id, vcpu);

    switch (draw_below(5)) {
    case 0:
        note("set %s to wrong parameters", guest->name);
        op = domain;
        spoil_parameters(&pool, &op);
        require_refused(pool_id, LAXITY_OP_SET_DOMAIN, &op, -EINVAL);
        break;
    case 1:
        if (!has_budgets(&pool)) /* credit's are the domain's */
            return false;
        op = vcpus[guest->vcpus - 1];
        note("set %s/%u to wrong parameters", guest->name, op.vcpu);
        spoil_parameters(&pool, &op);
        require_refused(pool_id, LAXITY_OP_SET_VCPU, &op, -EINVAL);
        break;
    case 2:
        note("set pool %u to wrong settings", pool_id);
        op = pool;
        spoil_settings(&op);
        require_refused(pool_id, LAXITY_OP_SET_SETTINGS, &op, -EINVAL);
        break;
    case 3:
        note("set pool %u to no policy", pool_id);
        op = pool;
        memset(op.policy, 'x', sizeof(op.policy));
        require_refused(pool_id, LAXITY_OP_SET_POLICY, &op, -EINVAL);
        break;
    default:
        note("set %s/%u, which is not there", guest->name, guest->vcpus);
        op = vcpus[0];
        op.vcpu = guest->vcpus;
        require_refused(pool_id, LAXITY_OP_SET_VCPU, &op, -ENOENT);
    }

    found = get_pool(pool_id);
    if (!is_same(&pool, &found, VALUES, VALUES_END))
        wrong("pool %u has changed", pool_id);
    found = get(pool_id, LAXITY_OP_GET_DOMAIN, guest->id, 0);
    if (!is_same(&domain, &found, VALUES, VALUES_END))
        wrong("%s has changed", guest->name);
    for (uint32_t vcpu = 0; vcpu < guest->vcpus; vcpu++) {
        found = get(pool_id, LAXITY_OP_GET_VCPU, guest->id, vcpu);
        if (!is_same(&vcpus[vcpu], &found, VALUES, VALUES_END))
            wrong("%s/%u has changed", guest->name, vcpu);
    }
    return true;
}

/* A policy goes over to another of its group at any time. Some are not in Xen. */
static const struct policy {
    const char *name, *switch_group;
    unsigned substrates;
} policies[] = {
#define LAXITY_POLICY(identifier_, name_, family_, switch_group_, substrates_, ...) \
    {name_, #switch_group_, substrates_},
#include <policies.def>
};

static const struct policy *policy_of(const char *name)
{
    size_t number = 0;

    while (strcmp(policies[number].name, name))
        number++;
    return &policies[number];
}

static bool is_one_group(const char *one, const char *other)
{
    return !strcmp(policy_of(one)->switch_group, policy_of(other)->switch_group);
}

static void set_policy(uint32_t pool, const char *policy)
{
    struct laxity_op op = {0}, before = get_pool(pool), after;
    struct pool description;
    bool may;

    next_pool(pool, &description);
    may = policy_of(policy)->substrates & LAXITY_ON_XEN &&
          (!description.domains || is_one_group(policy, before.policy));
    strcpy(op.policy, policy);
    note("policy of pool %u from %s to %s%s", pool, before.policy, policy,
         may ? "" : ", which must be refused");
    if (may)
        set(pool, LAXITY_OP_SET_POLICY, &op);
    else
        require_refused(pool, LAXITY_OP_SET_POLICY, &op, -EINVAL);
    after = get_pool(pool);
    if (strcmp(after.policy, may ? policy : before.policy))
        wrong("pool %u has the policy %s", pool, after.policy);
}

/* Most of the time one that the pool can go over to, if there is another. */
static bool operate_policy(void)
{
    uint32_t pool = draw_pool();
    struct laxity_op op = get_pool(pool);
    const char *to;

    do
        to = policies[draw_below(LENGTH(policies))].name;
    while (!one_in(5) && !is_one_group(to, op.policy));
    set_policy(pool, to);
    return true;
}

static bool operate_settings(void)
{
    static const int64_t quanta_us[] = {0, 0, 0, 500, 1000, 1700, 10000, 70000};
    uint32_t pool = draw_pool();
    struct laxity_op op = {
        .quantum_ns = quanta_us[draw_below(LENGTH(quanta_us))] * 1000,
        .time_slice_ns = draw_within(1, 50) * MILLISECOND_NS,
        .tick_ns = draw_within(1, 20) * MILLISECOND_NS,
    };

    op.accounting_ns = op.tick_ns * draw_within(1, 5);
    op.accounting_phase_ns = draw_below(2) ? draw_below(op.accounting_ns) : 0;
    note("settings of pool %u quantum=%" PRId64 " time-slice=%" PRId64 " tick=%" PRId64
         " accounting=%" PRId64,
         pool, op.quantum_ns, op.time_slice_ns, op.tick_ns, op.accounting_ns);
    set(pool, LAXITY_OP_SET_SETTINGS, &op);
    for_each_guest (guest)
        if (pool_of(guest->id) == pool)
            open_books(guest);
    return true;
}

static bool operate_create(void)
{
    struct guest *guest = draw_guest(false);

    if (!guest)
        return false;
    note("create %s", guest->name);
    program("xl", "create", "-e", "-p", "-q", text("%s/%s.cfg", getenv("PLAN"), guest->name));
    guest->id = find_domain(guest->name).id;
    guest->vcpus = get(pool_of(guest->id), LAXITY_OP_GET_DOMAIN, guest->id, 0).vcpus;
    guest->is_unplugged = false;
    guest->run = 0;
    guest->times_late = 0;
    guest->awaited = "ready ";
    guest->patience_ns = BOOT_NS;
    open_books(guest);
    guest->exists = true;
    set_domain(guest);
    pause_or_unpause(guest, false);
    return true;
}

static bool operate_destroy(void)
{
    struct guest *guest = draw_guest(true);

    if (!guest)
        return false;
    note("destroy %s%s", guest->name, guest->is_paused ? ", paused" : "");
    check_books(guest);
    program("xl", "destroy", text("%u", guest->id));
    guest->exists = false;
    return true;
}

static bool operate_pin(void)
{
    struct guest *guest = draw_guest(true);
    const char *list = "";
    struct pool pool;
    uint32_t vcpu;

    if (!guest)
        return false;
    next_pool(pool_of(guest->id), &pool);
    for (uint32_t cpu = 0; cpu < CPUS_MAX; cpu++)
        if (has_cpu(pool.cpus, cpu) && one_in(2))
            list = text("%s%s%u", list, *list ? "," : "", cpu);
    if (!*list)
        list = "all";
    vcpu = draw_below(guest->vcpus);
    note("pin %s/%u to %s", guest->name, vcpu, list);
    program("xl", "vcpu-pin", text("%u", guest->id), text("%u", vcpu), list);
    return true;
}

static bool operate_plug(void)
{
    struct guest *guest = draw_guest(true);
    uint32_t vcpus;

    if (!guest || guest->vcpus < 2 || !guest->run)
        return false;
    vcpus = guest->is_unplugged ? guest->vcpus : draw_within(1, guest->vcpus - 1);
    note("plug %u VCPUs of %s", vcpus, guest->name);
    program("xl", "vcpu-set", "--ignore-host", text("%u", guest->id), text("%u", vcpus));
    guest->is_unplugged = vcpus < guest->vcpus;
    return true;
}

static bool operate_dump(void)
{
    note("debug key r");
    debug_key('r');
    return true;
}

/* ---- CPU pools: Xen's first, and another that comes and goes ---- */

/* Xen keeps CPU 0 where it is. */
#define FIRST_CPU_THAT_MOVES 1

static unsigned cpus_that_move(const struct pool *pool)
{
    unsigned count = 0;

    for (uint32_t cpu = FIRST_CPU_THAT_MOVES; cpu < CPUS_MAX; cpu++)
        count += has_cpu(pool->cpus, cpu);
    return count;
}

static uint32_t draw_cpu(const struct pool *pool)
{
    unsigned left = draw_below(cpus_that_move(pool));
    uint32_t cpu = FIRST_CPU_THAT_MOVES;

    while (!has_cpu(pool->cpus, cpu) || left--)
        cpu++;
    return cpu;
}

/* It is in no pool for a moment. */
static void move_cpu(uint32_t cpu, uint32_t from, uint32_t to)
{
    note("CPU %u from pool %u to pool %u", cpu, from, to);
    program("laxity-sched", "pool", "remove-cpu", text("%u", from), text("%u", cpu));
    rest(draw_within(0, 50) * MILLISECOND_NS);
    program("laxity-sched", "pool", "add-cpu", text("%u", to), text("%u", cpu));
}

static void move_guest(struct guest *guest, uint32_t pool)
{
    note("move %s to pool %u", guest->name, pool);
    check_books(guest);
    program("laxity-sched", "pool", "move", text("%u", guest->id), text("%u", pool));
    open_books(guest); /* it has begun there with what is nobody's choice */
    set_domain(guest);
}

static void create_pool(const struct pool *first)
{
    struct pool second;

    note("create a pool");
    program("laxity-sched", "pool", "create", SECOND_POOL);
    if (!find_second_pool(&second))
        wrong("the new pool is not there");
    if (one_in(2))
        set_policy(second.id, policies[draw_below(LENGTH(policies))].name);
    move_cpu(draw_cpu(first), 0, second.id);
    /* Whether or not the pool has a CPU. */
    set_policy(second.id, policies[draw_below(LENGTH(policies))].name);
}

static void destroy_pool(const struct pool *second)
{
    for_each_guest (guest)
        if (pool_of(guest->id) == second->id)
            move_guest(guest, 0);
    note("destroy pool %u", second->id);
    program("laxity-sched", "pool", "destroy", text("%u", second->id));
    for (uint32_t cpu = 0; cpu < CPUS_MAX; cpu++)
        if (has_cpu(second->cpus, cpu))
            program("laxity-sched", "pool", "add-cpu", "0", text("%u", cpu));
}

static bool operate_pools(void)
{
    struct guest *guest = draw_guest(true);
    struct pool first, second;

    next_pool(0, &first);
    if (!find_second_pool(&second)) {
        create_pool(&first);
        return true;
    }
    switch (draw_below(8)) {
    case 0:
        destroy_pool(&second);
        return true;
    case 1:
        if (!cpus_that_move(&first))
            return false;
        move_cpu(draw_cpu(&first), 0, second.id);
        return true;
    case 2:
        if (cpus_that_move(&second) == 1)
            return false;
        move_cpu(draw_cpu(&second), second.id, 0);
        return true;
    default:
        if (!guest)
            return false;
        move_guest(guest, pool_of(guest->id) ? 0 : second.id);
        return true;
    }
}

struct operation {
    const char *name;
    bool (*operate)(void);
    unsigned weight;
    unsigned count;
};

static struct operation operations[] = {
    {"pauses and unpauses", operate_pause, 24, 0},
    {"bursts of pauses", operate_pause_burst, 6, 0},
    {"parameters of a domain", operate_set_domain, 10, 0},
    {"parameters of a VCPU", operate_set_vcpu, 12, 0},
    {"parameters of dom0", operate_set_dom0, 2, 0},
    {"wrong values, refused", operate_set_wrong, 10, 0},
    {"policy switches", operate_policy, 12, 0},
    {"settings", operate_settings, 5, 0},
    {"pins of VCPUs", operate_pin, 4, 0},
    {"VCPUs unplugged or plugged", operate_plug, 3, 0},
    {"moves of CPUs and domains between pools", operate_pools, 7, 0},
    {"domains created", operate_create, 3, 0},
    {"domains destroyed", operate_destroy, 1, 0},
    {"debug key r", operate_dump, 1, 0},
};

static void operate(void)
{
    unsigned total = 0, drawn;
    struct operation *operation = operations;

    for (size_t i = 0; i < LENGTH(operations); i++)
        total += operations[i].weight;
    drawn = draw_below(total);
    while (drawn >= operation->weight)
        drawn -= operation++->weight;
    soak.doing = operation->name;
    operation->count += operation->operate();
    tick();
}

/* ---- From beginning to end ---- */

static unsigned operation_count(void)
{
    unsigned count = 0;

    for (size_t i = 0; i < LENGTH(operations); i++)
        count += operations[i].count;
    return count;
}

static void say(void)
{
    static int64_t last_said_ns;
    int64_t at_ns = now_ns();

    if (at_ns - last_said_ns < SAY_NS)
        return;
    last_said_ns = at_ns;
    printf("laxity: soak: %" PRId64 " s, %u operations, %u runs of guests\n",
           (at_ns - soak.start_ns) / SECOND_NS, operation_count(), soak.runs_done);
}

static void wait_for_answers(void)
{
    for (bool all = false; !all; rest(SECOND_NS)) {
        all = true;
        say();
        for_each_guest (guest)
            all &= !guest->awaited || has_answered(guest);
    }
}

static bool is_plugged(const struct guest *guest)
{
    for (uint32_t vcpu = 0; vcpu < guest->vcpus; vcpu++)
        if (!vcpu_state(guest, vcpu).online)
            return false;
    return true;
}

/* Makes all as it was at the beginning, with no run in any guest. */
static void clear_up(void)
{
    struct pool second;

    if (find_second_pool(&second))
        destroy_pool(&second);
    for_each_guest (guest)
        if (guest->is_paused)
            pause_or_unpause(guest, false);
    wait_for_answers();
    for_each_guest (guest) {
        program("xl", "vcpu-set", "--ignore-host", text("%u", guest->id), text("%u", guest->vcpus));
        /* A guest takes them up when it is given a run. */
        guest->is_unplugged = true;
        for (int64_t end_ns = now_ns() + BOOT_NS; !is_plugged(guest);) {
            if (now_ns() > end_ns)
                wrong("%s does not use the VCPUs that it was given", guest->name);
            give_run(guest, SECOND_NS, 1, false);
            wait_for_answers();
        }
        guest->is_unplugged = false;
    }
}

/* One run of each guest with work for all of its VCPUs, again where a guest was late. */
static void run_on_all_vcpus(void)
{
    unsigned refused = soak.runs_refused;
    bool some_late;

    for_each_guest (guest)
        guest->is_late = true;
    do {
        for_each_guest (guest)
            if (guest->is_late)
                give_run(guest, 5 * SECOND_NS, 1, true);
        wait_for_answers();
        if (soak.runs_refused > refused)
            wrong("a guest could not do its last run");
        some_late = false;
        for_each_guest (guest) {
            if (guest->is_late && guest->times_late == TIMES_LATE_MOST)
                wrong("%s was never ready for its last run", guest->name);
            some_late |= guest->is_late;
        }
    } while (some_late);
}

/* Each VCPU of each guest has something to do, and does it. */
static void require_all_vcpus(void)
{
    uint64_t used_ns[GUESTS_MAX][VCPUS_MAX];

    for (unsigned i = 0; i < guest_count; i++)
        for (uint32_t vcpu = 0; guests[i].exists && vcpu < guests[i].vcpus; vcpu++)
            used_ns[i][vcpu] = vcpu_state(&guests[i], vcpu).cpu_time;
    run_on_all_vcpus();
    for (unsigned i = 0; i < guest_count; i++)
        for (uint32_t vcpu = 0; guests[i].exists && vcpu < guests[i].vcpus; vcpu++)
            if (vcpu_state(&guests[i], vcpu).cpu_time - used_ns[i][vcpu] < MILLISECOND_NS)
                wrong("VCPU %u of %s is lost", vcpu, guests[i].name);
}

static void summarize(void)
{
    for (size_t i = 0; i < LENGTH(operations); i++)
        printf("laxity: soak: %6u %s\n", operations[i].count, operations[i].name);
    printf("laxity: soak: %6u runs of guests done, %u given again as a guest was late, %u not "
           "possible\n",
           soak.runs_done, soak.runs_late, soak.runs_refused);
    printf("laxity: soak: %6u intervals in which a budget was kept; the most that one was "
           "overrun: %" PRId64 " us, of %" PRId64 " us\n",
           soak.intervals, soak.largest_overrun_ns / 1000, soak.slack_ns / 1000);
}

static int64_t number_or_fail(const char *word, int64_t most)
{
    int64_t number;

    if (!parse_number(word, most, &number))
        fail(EXIT_REFUSED, "'%s' is not a number up to %" PRId64, word, most);
    return number;
}

int main(int count, char **words)
{
    int64_t end_ns;

    if (count < 5 || count - 4 > GUESTS_MAX || !getenv("PLAN"))
        fail(EXIT_REFUSED, "usage: PLAN=DIR laxity-soak SEED SECONDS SLACK_NS NAME... (up to %d)",
             GUESTS_MAX);
    soak.chance = number_or_fail(words[1], INT64_MAX);
    end_ns = number_or_fail(words[2], 1000000) * SECOND_NS;
    soak.slack_ns = number_or_fail(words[3], SECOND_NS);
    for (int i = 4; i < count; i++)
        guests[guest_count++].name = words[i];
    setvbuf(stdout, NULL, _IOLBF, 0);
    privcmd_open();
    soak.start_ns = now_ns();

    while (operate_create()) {
        tick();
        say();
    }
    wait_for_answers();
    end_ns += now_ns();
    while (now_ns() < end_ns) {
        operate();
        rest(draw_within(1, 400) * MILLISECOND_NS);
        look();
        say();
    }
    soak.doing = "the end";
    note("the end");
    clear_up();
    require_all_vcpus();
    summarize();
    return EXIT_SUCCESS;
}
