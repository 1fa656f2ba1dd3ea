/* SPDX-License-Identifier: GPL-2.0-only */
#include "clock.h"

#include <sys/timex.h>
#include <x86intrin.h>

#define SECOND_NS UINT64_C(1000000000)
#define READINGS 8

uint64_t time_ns(clockid_t clock)
{
    struct timespec time;

    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * SECOND_NS + (uint64_t)time.tv_nsec;
}

struct instant instant_now(clockid_t clock)
{
    struct instant best = {0};
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < READINGS; i++) {
        uint64_t before = __rdtsc(), now_ns = time_ns(clock), after = __rdtsc();

        if (after - before < least) {
            least = after - before;
            best = (struct instant){before + least / 2, now_ns};
        }
    }
    return best;
}

bool set_realtime(struct instant theirs, struct instant since)
{
    struct instant monotonic = instant_now(CLOCK_MONOTONIC), ours = instant_now(CLOCK_REALTIME);
    __int128 cycles = monotonic.tsc - since.tsc;
    __int128 passed_ns = monotonic.time_ns - since.time_ns;
    __int128 since_theirs = (int64_t)(ours.tsc - theirs.tsc);
    int64_t ahead_ns =
        (int64_t)(theirs.time_ns - ours.time_ns) + (int64_t)(since_theirs * passed_ns / cycles);
    int64_t seconds = ahead_ns / (int64_t)SECOND_NS, rest_ns = ahead_ns % (int64_t)SECOND_NS;

    if (rest_ns < 0) {
        seconds--;
        rest_ns += SECOND_NS;
    }
    /* ADJ_NANO: tv_usec is ns. */
    struct timex offset = {.modes = ADJ_SETOFFSET | ADJ_NANO,
                           .time = {.tv_sec = seconds, .tv_usec = rest_ns}};
    return clock_adjtime(CLOCK_REALTIME, &offset) >= 0;
}
