/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Records tracepoints of the kernel that this program runs on, by the cycles of the TSC.
 *
 * Recording has an instance of its own in tracefs, so that whoever traces beside it is not
 * disturbed. The file, little-endian:
 *
 *   offset 0   8 bytes  LAXITYLT
 *          8   u32      version of the layout: 1
 *         12   u32      number of CPUs
 *         16   u64      kHz of the TSC; 0 if it is not known
 *         24   u64      cycles of the TSC when tracing began
 *         32   u64      cycles when it ended
 *         40   u32      number of texts; for each, u32 bytes and the text: the format of the
 *                       buffers' pages, then those of the events, as tracefs has them
 *
 * Then, for each CPU: u32 number, u32 bytes of a page, u64 events that were lost, u64 n, and n
 * bytes, its pages, oldest first.
 */
#ifndef LAXITY_FTRACE_H
#define LAXITY_FTRACE_H

#include <stdint.h>
#include <stdio.h>

/* What the program itself has: says on one line why it ends, and ends with that code. */
__attribute__((noreturn, format(printf, 2, 3))) void fail(int code, const char *format, ...);

struct ftrace {
    const char *const *events; /* as "sched/sched_switch" */
    unsigned count;
    /* A probe that one of the events is of, in the words of kprobetrace.rst ("p:GROUP/EVENT
     * FUNCTION"), or NULL. All of the machine sees it, until the end. */
    const char *probe;
    uint64_t kib; /* of each CPU's buffer */
};

/* Begins to record. What it makes is removed when the program ends. */
void ftrace_start(const struct ftrace *trace);

void ftrace_stop(void);

/* Writes the file, and returns the number of events that were lost. */
uint64_t ftrace_write(FILE *file, uint64_t khz, uint64_t began, uint64_t ended);

#endif
