/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The work of a job: a loop of which nearly all instructions are nops. An emulator counts each of
 * them and spends next to nothing on it, so that busy guests run faster than real time.
 */
#ifndef LAXITY_WORK_H
#define LAXITY_WORK_H

#include <stdint.h>

/* The two instructions of an iteration that are no nops are the loop's own. */
#define ITERATION_INSTRUCTIONS 64

/*
 * Between two looks at whether to stop: 66 us at 500 million instructions a second, a few us on
 * today's CPUs. A look is a few instructions among 32,768.
 */
#define CHUNK_ITERATIONS 512

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

/* At least one iteration. */
static inline __attribute__((always_inline)) void iterate(uint64_t iterations)
{
    __asm__ volatile(".p2align 7\n"
                     "1:\n"
                     ".rept " TEXT(ITERATION_INSTRUCTIONS) " - 2\n"
                                                           "nop\n"
                                                           ".endr\n"
                                                           "dec %0\n"
                                                           "jnz 1b\n"
                     : "+r"(iterations)
                     :
                     : "cc");
}

#endif
