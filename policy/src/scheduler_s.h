/* SPDX-License-Identifier: MIT */
/* The parts of scheduler S (VEE 2010, section 3; I: section 5.4; C: ours). Each of its policies has
 * some of them. */
#ifndef LAXITY_SCHEDULER_S_H
#define LAXITY_SCHEDULER_S_H

#include <laxity/policy.h>

#define S_NONE 0u
#define S_LAXITY 1u    /* A: a place in the queue by laxity */
#define S_EVENT 2u     /* B: boost with event */
#define S_BALANCE 4u   /* L: load balancing */
#define S_BIND 8u      /* what LL adds to L: real-time VCPUs stay where they are for a second */
#define S_INFINITE 16u /* I: infinite credit */
#define S_CUT 32u      /* C: turns are cut short for real-time VCPUs */

/* Comparisons in place of a table: if the policy is known, the compiler makes this a constant. */
static inline uint32_t s_parts_of(const struct laxity_policy *policy)
{
#define LAXITY_VARIANT(identifier_, parts_) \
    if (policy == &laxity_##identifier_)    \
        return parts_;
#include <policies.def>
    return S_NONE;
}

#endif
