/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What dom0 asks of laxity-guest: a list of tasks, and runs of them. Pure: from text to numbers, or
 * to a sentence that says what is wrong and what would be right.
 */
#ifndef LAXITY_REQUEST_H
#define LAXITY_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

/* SCHED_FIFO has the priorities 1 to 99. The highest is the main thread's, the lowest is spare. */
#define TASKS_MAX 97

/* 11 days: start + offset + period never overflows. */
#define TIME_NS_MAX INT64_C(1000000000000000)

#define RUN_NAME_BYTES 65

struct failure {
    bool is_late; /* a run could not begin in time; the same run with a later start may */
    char text[512];
};

/* Sets the text, clears `is_late`, and returns false. */
__attribute__((format(printf, 2, 3))) bool fail(struct failure *failure, const char *format, ...);

struct task_request {
    int64_t cost_ns;
    int64_t period_ns;
    int64_t deadline_ns; /* makes no difference to how a guest runs its jobs */
    int64_t offset_ns;
    unsigned vcpu;
};

struct task_list {
    struct task_request tasks[TASKS_MAX];
    unsigned count;
};

struct run_request {
    char name[RUN_NAME_BYTES];
    int64_t start_ns; /* CLOCK_REALTIME */
    int64_t duration_ns;
};

/* "cost_ns,period_ns,deadline_ns,offset_ns,vcpu;...", or "" for no task. */
bool parse_tasks(const char *text, unsigned vcpus, struct task_list *list, struct failure *failure);

/* "NAME START_REALTIME_NS DURATION_NS" */
bool parse_run(const char *text, struct run_request *run, struct failure *failure);

/* "0" or "1" */
bool parse_flag(const char *name, const char *text, bool *flag, struct failure *failure);

#endif
