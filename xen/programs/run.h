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

struct run_flags {
    bool cpu_bound; /* an endless loop on every VCPU, beside the tasks */
    bool tells;     /* what each VCPU works on, to the hypervisor; tell_open() has been called */
};

/*
 * Runs the tasks, and then writes the report (report.h).
 *
 * A run in which a thread was not ready for its first job has no report: it fails with `is_late`
 * and the text "RUN START_NS LATE_NS".
 */
bool run(const struct runner *runner, const struct run_request *request,
         const struct task_list *list, const struct run_flags *flags, FILE *console,
         struct failure *failure);

#endif
