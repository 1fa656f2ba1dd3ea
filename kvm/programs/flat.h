/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What laxity-vmm and the flat guest share: the memory of a virtual machine, and a VCPU's orders.
 *
 * Guest-physical memory is mapped one to one. The VMM writes page tables, descriptors and orders,
 * and reads what the guest left there. Times are cycles of the TSC, which is the host's own in the
 * guest.
 */
#ifndef LAXITY_FLAT_H
#define LAXITY_FLAT_H

#include <stdint.h>

#define FLAT_TASKS_MAX 97

/* Where things are, in bytes from the beginning of the guest's memory. */
#define FLAT_TABLES 0x1000   /* page tables: three levels, one page each */
#define FLAT_SEGMENTS 0x4000 /* the descriptors of code and data */
#define FLAT_CODE 0x10000
#define FLAT_VCPUS 0x40000

/* Pages of 2 MiB that the tables map. */
#define FLAT_LARGE_PAGES 32
#define FLAT_LARGE_PAGE_BYTES 0x200000
#define FLAT_BYTES (FLAT_LARGE_PAGES * FLAT_LARGE_PAGE_BYTES)

#define FLAT_STACK_BYTES 0x8000

/* What a guest tells the VMM: a byte on a port. */
#define FLAT_PORT 0x10
#define FLAT_MEASURED 1
#define FLAT_DONE 2
#define FLAT_FAULT 3

struct flat_task {
    uint64_t first_ns; /* of the first release, from the start */
    uint64_t period_ns;
    uint64_t deadline_ns; /* from each release */
    uint64_t iterations;
    uint32_t jobs;
    uint32_t completed;
    uint64_t completions; /* the address of an array of cycles from the start, one for each job */
};

/* A VCPU, at FLAT_VCPUS and behind. */
struct flat_vcpu {
    struct flat_vcpu *self; /* first: the guest finds it by the GS segment */
    uint64_t khz;           /* of the TSC */
    uint64_t start;
    uint64_t end;
    uint32_t count;
    uint32_t cpu_bound;
    uint32_t tells; /* whether it tells the host on what it works, by hypercalls */
    struct flat_task tasks[FLAT_TASKS_MAX]; /* by priority, the highest first */

    /* What the guest writes. */
    uint64_t late; /* cycles by which it was ready after the start, or 0 */
    uint64_t span_iterations, span_cycles, job_cycles; /* struct speed of job.h, in cycles */
    uint64_t fault;                                    /* the number of an exception */

    /* The guest's own. */
    uint64_t next[FLAT_TASKS_MAX]; /* the next release of each task */
    uint64_t armed;
    uint32_t level;               /* the running task, or `count` */
    uint32_t told_task, told_job; /* on what it works as it told last; `count`: nothing */
    uint8_t stack[FLAT_STACK_BYTES] __attribute__((aligned(16)));
};

#endif
