/* SPDX-License-Identifier: MIT */
/* What the tests share: random numbers from a seed, and an end that names the seed. */
#ifndef LAXITY_TEST_CHECK_H
#define LAXITY_TEST_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The seed of the round that goes on: the program's argument that repeats it. */
static uint64_t check_seed;

static inline void check_failed(const char *what, const char *file, int line)
{
    fprintf(stderr, "%s:%d: %s (seed %llu)\n", file, line, what, (unsigned long long)check_seed);
    abort();
}

#define check(condition, what) ((condition) ? (void)0 : check_failed(what, __FILE__, __LINE__))

/* SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): any state is a good seed. */
struct draw {
    uint64_t state;
};

static inline uint64_t draw_next(struct draw *draw)
{
    uint64_t z = draw->state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static inline uint32_t draw_below(struct draw *draw, uint32_t count)
{
    return (uint32_t)(draw_next(draw) % count);
}

#endif
