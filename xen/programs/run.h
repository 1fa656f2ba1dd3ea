/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A run: a thread a task, from one instant on for one duration, and the report of all jobs.
 */
#ifndef LAXITY_RUN_H
#define LAXITY_RUN_H

#include "job.h"
#include "request.h"

#include <stdio.h>

/*
 * Makes the calling thread a SCHED_FIFO thread of the highest priority; false with errno if the
 * system refuses.
 */
bool become_real_time(void);

struct runner {
    struct speed speed;
    unsigned vcpus;
    bool real_time; /* false: threads have no priorities, which the report says */
};

/*
 * Runs the tasks, and then writes the report:
 *
 *   laxity-report RUN DURATION_NS TASKS VCPUS
 *   laxity-speed ITERATIONS_PER_MS JOB_NS
 *   laxity-tick PERIOD_NS OFFSET_NS        between two ticks of the kernel; the first, from the
 *                                          start of the run
 *   laxity-note TEXT                       only if there is something to say
 *   laxity-task TASK JOBS COMPLETED        for each task, from 0, in the order of the list
 *   NS NS ...                              up to 16 a line: completion times, the first from the
 *                                          start of the run, each next from the one before
 *   laxity-vcpu VCPU TASKS_NS CPU_BOUND_NS for each VCPU: CPU time of its threads as Linux counts
 *                                          it, which is with what other domains took meanwhile
 *   laxity-crc CRC                         CRC-32 of all lines above with their \n, 8 hex digits
 *   laxity-report-end RUN
 *
 * JOBS were released before the end, COMPLETED of them were complete by then.
 *
 * A run in which a thread was not ready for its first job has no report: it fails with `is_late`
 * and the text "RUN START_NS LATE_NS".
 */
bool run(const struct runner *runner, const struct run_request *request,
         const struct task_list *list, bool cpu_bound, FILE *console, struct failure *failure);

#endif
