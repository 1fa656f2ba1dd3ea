/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a guest reports of a run: when each job was complete.
 *
 *   laxity-report RUN DURATION_NS TASKS VCPUS
 *   laxity-speed ITERATIONS_PER_MS JOB_NS
 *   laxity-tick PERIOD_NS OFFSET_NS        between two ticks of the kernel; the first, from the
 *                                          start of the run; absent: it does not tick
 *   laxity-note TEXT                       only if there is something to say
 *   laxity-task TASK JOBS COMPLETED        for each task, from 0, in the order of the list
 *   NS NS ...                              up to 16 a line: completion times, the first from the
 *                                          start of the run, each next from the one before
 *   laxity-vcpu VCPU TASKS_NS CPU_BOUND_NS
 *                                          for each VCPU: CPU time of its threads as the guest
 *                                          counts it, with what other domains took meanwhile
 *   laxity-crc CRC                         CRC-32 of all lines above with their \n, 8 hex digits
 *   laxity-report-end RUN
 *
 * JOBS were released before the end, COMPLETED of them were complete by then.
 */
#ifndef LAXITY_REPORT_H
#define LAXITY_REPORT_H

#include <stdint.h>
#include <stdio.h>

struct task_report {
    unsigned jobs;
    unsigned completed; /* those after the end of the run are left out of the report */
    const int64_t *completion_ns;
};

struct vcpu_report {
    int64_t tasks_ns;
    int64_t cpu_bound_ns;
};

struct run_report {
    const char *run;
    int64_t duration_ns;
    uint64_t iterations_per_ms;
    int64_t job_ns;
    int64_t tick_period_ns; /* 0: none */
    int64_t tick_offset_ns;
    const char *note; /* NULL: none */
    const struct task_report *tasks;
    unsigned task_count;
    const struct vcpu_report *vcpus;
    unsigned vcpu_count;
};

void write_report(const struct run_report *report, FILE *console);

#endif
