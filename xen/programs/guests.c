/* SPDX-License-Identifier: GPL-2.0-only */
#include "guests.h"

#include "clock.h"
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long dom0 may take for one operation: creation is the longest. */
#define OPERATION_NS (60 * SECOND_NS)

#define LOOK_NS SECOND_NS        /* between two looks at what guests say */
#define BOOK_NS (10 * SECOND_NS) /* a new interval for budgets begins at the latest */

/*
 * What a guest needs before a run can start (python/laxity/substrates/xen/plan.py has the same of a
 * host file's guests): how often it waits, for xenstore or for one of its other VCPUs, and how long
 * it works, on the emulated machine. Under a polling server each wait lasts to the next period.
 */
#define WAITS 12
#define WAITS_A_THREAD 4
#define WORK_A_THREAD_NS (10 * MILLISECOND_NS)
#define LEAD_LEAST_NS SECOND_NS /* for xenstored and dom0's other work */

struct guest guests[GUESTS_MAX];
unsigned guest_count;
struct soak soak = {.doing = "the beginning"};

int64_t now_ns(void)
{
    return time_ns(CLOCK_MONOTONIC);
}

/* ---- Chance ---- */

/* splitmix64 */
static uint64_t draw(void)
{
    uint64_t value = soak.chance += UINT64_C(0x9e3779b97f4a7c15);

    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

uint64_t draw_below(uint64_t end)
{
    return draw() % end;
}

int64_t draw_within(int64_t least, int64_t most)
{
    return least + (int64_t)draw_below(most - least + 1);
}

bool one_in(unsigned count)
{
    return !draw_below(count);
}

/* ---- What is said ---- */

void note(const char *format, ...)
{
    int64_t at_ns = now_ns() - soak.start_ns;
    va_list arguments;

    printf("soak %4" PRId64 ".%03" PRId64 " ", at_ns / SECOND_NS,
           at_ns % SECOND_NS / MILLISECOND_NS);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
}

void debug_key(char key)
{
    static char *shared;
    struct xen_sysctl sysctl = {.cmd = XEN_SYSCTL_debug_keys, .u.debug_keys.nr_keys = 1};

    if (!shared)
        shared = privcmd_memory(1);
    *shared = key;
    set_xen_guest_handle(sysctl.u.debug_keys.keys, shared);
    privcmd_sysctl(&sysctl);
}

/* ---- Hypercalls ---- */

void pause_or_unpause(struct guest *guest, bool pause)
{
    struct xen_domctl domctl = {.cmd = pause ? XEN_DOMCTL_pausedomain : XEN_DOMCTL_unpausedomain,
                                .domain = guest->id};
    int error = privcmd_domctl(&domctl);

    if (error)
        wrong("%s cannot be %s: %s", guest->name, pause ? "paused" : "unpaused", strerror(-error));
    guest->is_paused = pause;
}

struct xen_domctl_getvcpuinfo vcpu_state(const struct guest *guest, uint32_t vcpu)
{
    struct xen_domctl domctl = {
        .cmd = XEN_DOMCTL_getvcpuinfo, .domain = guest->id, .u.getvcpuinfo.vcpu = vcpu};
    int error = privcmd_domctl(&domctl);

    if (error)
        wrong("%s has no VCPU %u: %s", guest->name, vcpu, strerror(-error));
    return domctl.u.getvcpuinfo;
}

uint32_t pool_of(uint32_t domid)
{
    struct domain domain;

    if (!next_domain(domid, &domain) || domain.id != domid)
        wrong("domain %u is gone", domid);
    return domain.pool;
}

struct laxity_op get(uint32_t pool, uint32_t command, uint32_t domid, uint32_t vcpu)
{
    struct laxity_op op = {.domid = domid, .vcpu = vcpu};
    int error = laxity(pool, command, &op);

    if (error)
        wrong("pool %u, domain %u, VCPU %u: parameters cannot be read: %s", pool, domid, vcpu,
              strerror(-error));
    return op;
}

/* ---- Budgets ---- */

bool has_budgets(const struct laxity_op *pool)
{
    static const struct {
        const char *policy, *parameters;
    } all[] = {
#define LAXITY_POLICY(identifier_, name_, family_, switch_group_, substrates_, parameters_, ...) \
    {name_, parameters_},
#include <policies.def>
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (!strcmp(all[i].policy, pool->policy))
            return strstr(all[i].parameters, "budget");
    return false;
}

/* Whether VCPUs of a pool run beyond their budgets while nobody else needs the CPU, whatever their
 * `extratime` is. */
static bool lends(const struct laxity_op *pool)
{
    return !strcmp(pool->policy, "lending");
}

void open_book(struct guest *guest, uint32_t vcpu)
{
    struct book *book = &guest->book[vcpu];
    uint32_t pool_id = pool_of(guest->id);
    struct laxity_op pool = get(pool_id, LAXITY_OP_GET_POOL, 0, 0),
                     op = get(pool_id, LAXITY_OP_GET_VCPU, guest->id, vcpu);

    soak.intervals += book->is_bound;
    *book = (struct book){
        .is_bound = has_budgets(&pool) && !lends(&pool) && !op.extratime,
        .budget_ns = op.budget_ns,
        .period_ns = op.period_ns,
        .quantum_ns = pool.quantum_ns,
        .since_ns = now_ns(),
    };
    book->used_ns = vcpu_state(guest, vcpu).cpu_time;
}

void open_books(struct guest *guest)
{
    for (uint32_t vcpu = 0; vcpu < guest->vcpus; vcpu++)
        open_book(guest, vcpu);
}

/* Up to now; an interval that is long enough is the last with its beginning. */
void check_book(struct guest *guest, uint32_t vcpu)
{
    struct book *book = &guest->book[vcpu];
    uint64_t used_ns = vcpu_state(guest, vcpu).cpu_time;
    int64_t at_ns = now_ns(), length_ns = at_ns - book->since_ns,
            periods = (length_ns + book->quantum_ns + book->period_ns - 1) / book->period_ns,
            overrun_ns = (int64_t)(used_ns - book->used_ns) - (periods + 1) * book->budget_ns;

    if (!book->is_bound)
        return;
    if (overrun_ns > soak.largest_overrun_ns)
        soak.largest_overrun_ns = overrun_ns;
    if (overrun_ns > soak.slack_ns)
        wrong("VCPU %u of %s ran for %" PRIu64 " ns in %" PRId64 " ns with a budget of %" PRId64
              " ns each %" PRId64 " ns, quantum %" PRId64 ": %" PRId64 " ns too long",
              vcpu, guest->name, used_ns - book->used_ns, length_ns, book->budget_ns,
              book->period_ns, book->quantum_ns, overrun_ns);
    if (length_ns >= BOOK_NS) {
        soak.intervals++;
        book->since_ns = at_ns;
        book->used_ns = used_ns;
    }
}

void check_books(struct guest *guest)
{
    for (uint32_t vcpu = 0; vcpu < guest->vcpus; vcpu++)
        check_book(guest, vcpu);
}

/* ---- Guests at work ---- */

static char *node(const struct guest *guest, const char *name)
{
    return text("/local/domain/%u/data/laxity/%s", guest->id, name);
}

static void write_node(const struct guest *guest, const char *name, const char *value)
{
    if (!xs_write(store(), XBT_NULL, node(guest, name), value, strlen(value)))
        wrong("xenstore: %s: %s", node(guest, name), strerror(errno));
}

/* From the giving of a run with so many threads to its start. */
static int64_t lead_ns(const struct guest *guest, unsigned threads)
{
    int64_t longest_ns = 0;

    for (uint32_t vcpu = 0; vcpu < guest->vcpus; vcpu++) {
        const struct book *book = &guest->book[vcpu];
        int64_t periods = WAITS + WAITS_A_THREAD * threads +
                          WORK_A_THREAD_NS * (1 + threads) / book->budget_ns + 1;

        if (periods * book->period_ns > longest_ns)
            longest_ns = periods * book->period_ns;
    }
    return (LEAD_LEAST_NS + longest_ns) << guest->times_late;
}

void give_run(struct guest *guest, int64_t duration_ns, unsigned tasks, bool cpu_bound)
{
    struct instant clock = instant_now(CLOCK_REALTIME);
    int64_t ahead_ns = lead_ns(guest, tasks + (cpu_bound ? guest->vcpus : 0));
    const char *list = "";

    for (unsigned i = 0; i < tasks; i++) {
        int64_t period_ns = draw_within(10, 100) * MILLISECOND_NS;

        list = text("%s%s%" PRId64 ",%" PRId64 ",%" PRId64 ",0,%" PRIu64, list, i ? ";" : "",
                    draw_within(500, 3000) * 1000, period_ns, period_ns,
                    guest->is_unplugged ? 0 : draw_below(guest->vcpus));
    }
    guest->run++;
    guest->awaited = text("done run-%u", guest->run);
    guest->patience_ns = ahead_ns + duration_ns + RUN_NS;
    write_node(guest, "clock", text("%" PRIu64 " %" PRIu64, clock.tsc, clock.time_ns));
    write_node(guest, "tasks", list);
    write_node(guest, "cpu_bound", cpu_bound ? "1" : "0");
    write_node(guest, "tells", "1");
    /* Whether they all report at once is nothing to a soak. */
    write_node(guest, "report", text("run-%u", guest->run));
    write_node(
        guest, "run",
        text("run-%u %" PRIu64 " %" PRId64, guest->run, clock.time_ns + ahead_ns, duration_ns));
}

static bool says(const char *state, const char *awaited)
{
    return state && !strncmp(state, awaited, strlen(awaited));
}

bool has_answered(struct guest *guest)
{
    char *state = xs_read(store(), XBT_NULL, node(guest, "state"), NULL);
    bool is_done = says(state, guest->awaited), is_refused = says(state, "error run: "),
         is_late = says(state, "late ");

    if (says(state, "error ") && !is_refused)
        wrong("%s says: %s", guest->name, state);
    soak.runs_done += is_done;
    soak.runs_refused += is_refused;
    soak.runs_late += is_late;
    if (is_refused || is_late) {
        note("%s says: %s", guest->name, state);
        write_node(guest, "state", "");
    }
    if (is_done || is_refused || is_late) {
        guest->awaited = NULL;
        guest->is_late = is_late;
        if (!is_late)
            guest->times_late = 0;
        else if (guest->times_late < TIMES_LATE_MOST)
            guest->times_late++;
    }
    free(state);
    return !guest->awaited;
}

static void look_at(struct guest *guest)
{
    if (!guest->awaited || has_answered(guest))
        give_run(guest, draw_within(1000, 5000) * MILLISECOND_NS, draw_within(1, 4),
                 !guest->is_unplugged && one_in(3));
}

void tick(void)
{
    static int64_t last_tick_ns;
    int64_t at_ns = now_ns(), passed_ns = last_tick_ns ? at_ns - last_tick_ns : 0;

    if (passed_ns > OPERATION_NS)
        wrong("this took dom0 %" PRId64 " ms", passed_ns / MILLISECOND_NS);
    last_tick_ns = at_ns;
    for_each_guest (guest) {
        check_books(guest);
        if (!guest->is_paused)
            guest->patience_ns -= passed_ns;
        if (guest->awaited && guest->patience_ns < 0)
            wrong("%s is silent: it has not said \"%s\"", guest->name, guest->awaited);
    }
}

void look(void)
{
    static int64_t last_look_ns;
    int64_t at_ns = now_ns();

    if (at_ns - last_look_ns < LOOK_NS)
        return;
    last_look_ns = at_ns;
    for_each_guest (guest)
        look_at(guest);
}

void rest(int64_t duration_ns)
{
    nanosleep(&(struct timespec){duration_ns / SECOND_NS, duration_ns % SECOND_NS}, NULL);
    tick();
}
