/* SPDX-License-Identifier: GPL-2.0-only */
#include "job.h"

#include "work.h"

#include <errno.h>

#define TRIES 8
#define MEASUREMENTS 100

/*
 * The shorter of the two jobs that are compared takes at least this long, and the longer one so
 * many times that: long enough that the clock's resolution does not count, and short enough that
 * most go by undisturbed between the ticks and within a budget.
 */
#define MEASURED_NS 50000
#define LONGER 8

/* What is not work must seem to be less than this part of the shorter one. */
#define NO_WORK_PARTS 4

int64_t clock_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

void sleep_until(int64_t realtime_ns)
{
    struct timespec time = {.tv_sec = realtime_ns / 1000000000,
                            .tv_nsec = realtime_ns % 1000000000};
    while (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &time, NULL) == EINTR)
        continue;
}

/* Never inlined: what is measured must be the very code that the jobs run. */
__attribute__((noinline)) static bool work(uint64_t iterations, const atomic_bool *stop)
{
    while (iterations) {
        uint64_t chunk = iterations < CHUNK_ITERATIONS ? iterations : CHUNK_ITERATIONS;
        if (atomic_load_explicit(stop, memory_order_relaxed))
            return false;
        iterations -= chunk;
        iterate(chunk);
    }
    return true;
}

__attribute__((noinline)) bool job(int64_t release_ns, uint64_t iterations, const atomic_bool *stop,
                                   int64_t *now_ns)
{
    if (release_ns > *now_ns)
        sleep_until(release_ns);
    if (!work(iterations, stop))
        return false;
    *now_ns = clock_ns(CLOCK_REALTIME);
    return true;
}

void work_until(const atomic_bool *stop)
{
    while (work(UINT64_MAX, stop))
        continue;
}

/*
 * The least of many times from one completion to the next of jobs whose release has passed. The
 * least: whatever disturbs (a tick, another domain) only adds.
 */
static int64_t shortest_job_ns(uint64_t iterations)
{
    static const atomic_bool never;
    int64_t shortest_ns = INT64_MAX;
    int64_t now_ns = clock_ns(CLOCK_REALTIME);
    for (int i = 0; i < MEASUREMENTS; i++) {
        int64_t before_ns = now_ns;
        job(0, iterations, &never, &now_ns);
        if (now_ns - before_ns < shortest_ns)
            shortest_ns = now_ns - before_ns;
    }
    return shortest_ns;
}

struct speed measure_speed(void)
{
    /* Whole chunks, so that the line through two points has the looks at `stop` in its slope. */
    uint64_t few = CHUNK_ITERATIONS;
    int64_t few_ns;
    while ((few_ns = shortest_job_ns(few)) < MEASURED_NS)
        few *= 2;
    struct speed speed = {.span_iterations = (LONGER - 1) * few};
    /* Again where the CPU's speed changed meanwhile, or what is not work seems to be much of it. If
     * it always does, as where several emulated CPUs take turns, that is taken to cost nothing. */
    for (int i = 0; i < TRIES || speed.span_ns <= 0; i++) {
        few_ns = shortest_job_ns(few);
        speed.span_ns = shortest_job_ns(LONGER * few) - few_ns;
        speed.job_ns = few_ns - speed.span_ns / (LONGER - 1);
        if (speed.span_ns > 0 && speed.job_ns >= 0 && speed.job_ns < few_ns / NO_WORK_PARTS)
            return speed;
    }
    speed.job_ns = 0;
    return speed;
}

uint64_t iterations_of(const struct speed *speed, int64_t cost_ns)
{
    return (uint64_t)((unsigned __int128)(cost_ns - speed->job_ns) * speed->span_iterations /
                      (uint64_t)speed->span_ns);
}

uint64_t iterations_per_ms(const struct speed *speed)
{
    return speed->span_iterations * 1000000 / (uint64_t)speed->span_ns;
}
