/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A job: wait for its release, work, note the completion; and how long that takes here.
 */
#ifndef LAXITY_JOB_H
#define LAXITY_JOB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/*
 * A job of n iterations whose release has passed takes  job_ns + n * span_ns / span_iterations  of
 * an undisturbed VCPU's time.
 */
struct speed {
    uint64_t span_iterations;
    int64_t span_ns;
    int64_t job_ns; /* what is not work, such as the reading of the clock */
};

int64_t clock_ns(clockid_t clock);

void sleep_until(int64_t realtime_ns);

/*
 * Waits for CLOCK_REALTIME `release_ns`, unless `*now_ns` is not before it, works, and sets
 * `*now_ns` to the completion. False if `stop` was seen before the work was done.
 *
 * A release that has passed must not even be asked for: Linux on Xen sets no timer closer than 100
 * us.
 */
bool job(int64_t release_ns, uint64_t iterations, const atomic_bool *stop, int64_t *now_ns);

/* Works until `stop`. */
void work_until(const atomic_bool *stop);

struct speed measure_speed(void);

/* How much work makes a job of this cost, rounded down; the cost is at least job_ns. */
uint64_t iterations_of(const struct speed *speed, int64_t cost_ns);

uint64_t iterations_per_ms(const struct speed *speed);

#endif
