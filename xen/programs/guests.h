/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The guests of a soak, and what must be of them and of dom0 at any time: see laxity-soak.c.
 *
 * Whatever is wrong ends the program with one sentence.
 */
#ifndef LAXITY_GUESTS_H
#define LAXITY_GUESTS_H

#include "pools.h"
#include "privcmd.h"

#include <stdbool.h>
#include <stdint.h>

#define SECOND_NS INT64_C(1000000000)
#define MILLISECOND_NS INT64_C(1000000)

#define GUESTS_MAX 8
#define VCPUS_MAX 8

/* How long guests may take, while they are not paused. */
#define BOOT_NS (180 * SECOND_NS)
#define RUN_NS (90 * SECOND_NS)

/* A guest that is late so often in a row, with a lead that doubles, is not there any more. */
#define TIMES_LATE_MOST 6

/* What is asked of one VCPU's budget since the last change. */
struct book {
    bool is_bound; /* it has a budget and no extratime */
    int64_t budget_ns, period_ns, quantum_ns;
    int64_t since_ns;
    uint64_t used_ns; /* its CPU time then */
};

struct guest {
    const char *name;
    bool exists, is_paused, is_unplugged;
    uint32_t id, vcpus;
    struct book book[VCPUS_MAX];
    unsigned run;
    const char *awaited; /* what it is to say next; NULL: nothing, it has no run */
    bool is_late;        /* it was not ready when its last run was to start */
    unsigned times_late; /* one after the other: each doubles the lead of the next run */
    int64_t patience_ns; /* how long that may still take */
};

extern struct guest guests[GUESTS_MAX];
extern unsigned guest_count;

/* Those that are there. */
#define for_each_guest(guest)                                                 \
    for (struct guest *guest = guests; guest < guests + guest_count; guest++) \
        if (guest->exists)

extern struct soak {
    uint64_t chance; /* begins as the seed */
    int64_t start_ns, slack_ns;
    const char *doing;

    unsigned runs_done, runs_late, runs_refused, intervals;
    int64_t largest_overrun_ns;
} soak;

int64_t now_ns(void);

uint64_t draw_below(uint64_t end);
int64_t draw_within(int64_t least, int64_t most);
bool one_in(unsigned count);

/* A line on the console, from which a failure can be understood. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Sends a debug key, as Xen's console would. */
void debug_key(char key);

/* Ends the program, with the state of the schedulers on the console. */
#define wrong(...)                                                                             \
    do {                                                                                       \
        debug_key('r');                                                                        \
        fail(EXIT_FAILED, "at %.3f s, %s: %s", (double)(now_ns() - soak.start_ns) / SECOND_NS, \
             soak.doing, text(__VA_ARGS__));                                                   \
    } while (0)

void pause_or_unpause(struct guest *guest, bool pause);
struct xen_domctl_getvcpuinfo vcpu_state(const struct guest *guest, uint32_t vcpu);
uint32_t pool_of(uint32_t domid);

/* What Laxity's scheduler says, by one of its get commands. */
struct laxity_op get(uint32_t pool, uint32_t command, uint32_t domid, uint32_t vcpu);

/* Whether the policy of a pool keeps any. */
bool has_budgets(const struct laxity_op *pool);

/* After a change of parameters. */
void open_book(struct guest *guest, uint32_t vcpu);
void open_books(struct guest *guest);

/* Budgets were kept up to now; before a change. */
void check_book(struct guest *guest, uint32_t vcpu);
void check_books(struct guest *guest);

/*
 * The run starts when the guest can be ready for it, by what its VCPUs are given: see lead_ns. They
 * may be given less meanwhile, and it may be paused.
 */
void give_run(struct guest *guest, int64_t duration_ns, unsigned tasks, bool cpu_bound);

/*
 * Whether a guest has said what it was to say. It may also say that it was late for a run, or that
 * it could not do it: when it had a task for a VCPU that was unplugged.
 */
bool has_answered(struct guest *guest);

/* Gives guests that have answered something to do, now and then. */
void look(void);

/* All that must be at any time. */
void tick(void);

void rest(int64_t duration_ns);

#endif
