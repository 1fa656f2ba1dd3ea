/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The cycle counter, which all domains of a host share, beside the clocks of one domain.
 */
#ifndef LAXITY_CLOCK_H
#define LAXITY_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct instant {
    uint64_t tsc;
    uint64_t time_ns;
};

uint64_t time_ns(clockid_t clock);

/* Both at one instant: the reading with the least time between, of a few. */
struct instant instant_now(clockid_t clock);

/*
 * Sets this domain's CLOCK_REALTIME to that of another domain, which showed `theirs`. `since` is an
 * earlier reading of CLOCK_MONOTONIC here, from which the counter's rate is taken. False with errno
 * if the system refuses.
 */
bool set_realtime(struct instant theirs, struct instant since);

#endif
