/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Nothing is allocated, written or touched for the first time between the start of a run and its
 * end. The main thread sleeps through the run; threads stop by themselves after their last job or
 * when they see `stop`.
 */
#include "run.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* 8 bytes each; the smallest domains have 64 MiB. */
#define JOBS_MAX (1 << 20)

#define STACK_BYTES (64 * 1024)

#define COMPLETIONS_A_LINE 16

#define CLOCK_READINGS 8

struct thread {
    pthread_t pthread;
    const atomic_bool *stop;
    int64_t start_ns;
    int64_t ready_ns; /* when it was ready for its first job, from that job's release */
    int64_t cpu_ns;   /* from the start of the thread to its end */
    unsigned vcpu;
    int priority; /* 0: SCHED_OTHER */

    /* For a task's thread. */
    uint64_t iterations;
    int64_t period_ns;
    int64_t offset_ns;
    int64_t *completion_ns; /* from the start of the run */
    unsigned jobs;
    unsigned completed;
};

struct report {
    FILE *console;
    uint32_t crc;
};

bool become_real_time(void)
{
    struct sched_param parameters = {.sched_priority = sched_get_priority_max(SCHED_FIFO)};
    return !sched_setscheduler(0, SCHED_FIFO, &parameters);
}

static void *run_task(void *argument)
{
    struct thread *task = argument;
    int64_t before_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    int64_t release_ns = task->start_ns + task->offset_ns;
    int64_t now_ns = 0;
    task->ready_ns = clock_ns(CLOCK_REALTIME) - release_ns;
    while (task->completed < task->jobs && job(release_ns, task->iterations, task->stop, &now_ns)) {
        task->completion_ns[task->completed++] = now_ns - task->start_ns;
        release_ns += task->period_ns;
    }
    task->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - before_ns;
    return NULL;
}

static void *run_cpu_bound(void *argument)
{
    struct thread *thread = argument;
    int64_t before_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    thread->ready_ns = clock_ns(CLOCK_REALTIME) - thread->start_ns;
    sleep_until(thread->start_ns);
    work_until(thread->stop);
    thread->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - before_ns;
    return NULL;
}

static bool start_thread(struct thread *thread, void *(*function)(void *), struct failure *failure)
{
    struct sched_param parameters = {.sched_priority = thread->priority};
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(thread->vcpu, &cpus);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(&attributes, thread->priority ? SCHED_FIFO : SCHED_OTHER);
    pthread_attr_setschedparam(&attributes, &parameters);
    pthread_attr_setaffinity_np(&attributes, sizeof cpus, &cpus);
    int error = pthread_create(&thread->pthread, &attributes, function, thread);
    pthread_attr_destroy(&attributes);
    if (error)
        return fail(failure, "run: a thread on VCPU %u with priority %d: %s", thread->vcpu,
                    thread->priority, strerror(error));
    return true;
}

/* How many tasks of the list run before this one: those with shorter periods, and among equals the
 * earlier ones. */
static int tasks_before(const struct task_list *list, unsigned task)
{
    int before = 0;
    for (unsigned i = 0; i < list->count; i++)
        before += list->tasks[i].period_ns < list->tasks[task].period_ns ||
                  (list->tasks[i].period_ns == list->tasks[task].period_ns && i < task);
    return before;
}

/* The tasks' threads, ready to start, with room for all their completions in one array that the
 * caller frees. */
static bool prepare(const struct runner *runner, const struct run_request *request,
                    const struct task_list *list, const atomic_bool *stop, struct thread *threads,
                    int64_t **completions, struct failure *failure)
{
    int64_t jobs = 0;
    for (unsigned i = 0; i < list->count; i++) {
        const struct task_request *task = &list->tasks[i];
        if (task->cost_ns < runner->speed.job_ns)
            return fail(failure,
                        "tasks: cost_ns of task %u is %lld, which must be at least %lld: so long "
                        "does a job without work take here",
                        i, (long long)task->cost_ns, (long long)runner->speed.job_ns);
        int64_t releases = 0;
        if (task->offset_ns < request->duration_ns)
            releases = (request->duration_ns - task->offset_ns - 1) / task->period_ns + 1;
        if (releases > JOBS_MAX - jobs)
            return fail(failure,
                        "run: the tasks have more than %d jobs in %lld ns: make it shorter",
                        JOBS_MAX, (long long)request->duration_ns);
        jobs += releases;
        threads[i] = (struct thread){
            .stop = stop,
            .start_ns = request->start_ns,
            .vcpu = task->vcpu,
            .priority = runner->real_time
                            ? sched_get_priority_max(SCHED_FIFO) - 1 - tasks_before(list, i)
                            : 0,
            .iterations = iterations_of(&runner->speed, task->cost_ns),
            .period_ns = task->period_ns,
            .offset_ns = task->offset_ns,
            .jobs = (unsigned)releases,
        };
    }

    int64_t *free_place = *completions = malloc((size_t)(jobs + 1) * sizeof **completions);
    if (!free_place)
        return fail(failure, "run: there is no memory for %lld jobs", (long long)jobs);
    memset(free_place, 0xff,
           (size_t)(jobs + 1) * sizeof *free_place); /* touched: no page fault later */
    for (unsigned i = 0; i < list->count; i++) {
        threads[i].completion_ns = free_place;
        free_place += threads[i].jobs;
    }
    return true;
}

__attribute__((format(printf, 2, 3))) static void emit(struct report *report, const char *format,
                                                       ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (const char *byte = text; *byte; byte++) {
        report->crc ^= (unsigned char)*byte;
        for (int bit = 0; bit < 8; bit++)
            report->crc = report->crc >> 1 ^ (report->crc & 1 ? 0xedb88320 : 0);
    }
    fputs(text, report->console);
}

/*
 * Linux ticks at the multiples of a jiffy of CLOCK_MONOTONIC, and its coarse clock is as fine as a
 * jiffy. The clocks are read several times: in between another domain may run.
 */
static void find_tick(int64_t start_realtime_ns, int64_t *period_ns, int64_t *offset_ns)
{
    struct timespec jiffy = {0};
    clock_getres(CLOCK_MONOTONIC_COARSE, &jiffy);
    *period_ns = (int64_t)jiffy.tv_sec * 1000000000 + jiffy.tv_nsec;
    int64_t ahead_ns = 0, least_ns = INT64_MAX;
    for (int i = 0; i < CLOCK_READINGS; i++) {
        int64_t before_ns = clock_ns(CLOCK_MONOTONIC), realtime_ns = clock_ns(CLOCK_REALTIME);
        int64_t took_ns = clock_ns(CLOCK_MONOTONIC) - before_ns;
        if (took_ns < least_ns) {
            least_ns = took_ns;
            ahead_ns = before_ns + took_ns / 2 - realtime_ns;
        }
    }
    int64_t since_ns = (start_realtime_ns + ahead_ns) % *period_ns;
    *offset_ns = (*period_ns - since_ns) % *period_ns;
}

static void write_report(const struct runner *runner, const struct run_request *request,
                         const struct thread *tasks, unsigned task_count,
                         const struct thread *cpu_bound, FILE *console)
{
    struct report report = {.console = console, .crc = UINT32_MAX};
    emit(&report, "laxity-report %s %lld %u %u\n", request->name, (long long)request->duration_ns,
         task_count, runner->vcpus);
    emit(&report, "laxity-speed %llu %lld\n", (unsigned long long)iterations_per_ms(&runner->speed),
         (long long)runner->speed.job_ns);
    int64_t period_ns, offset_ns;
    find_tick(request->start_ns, &period_ns, &offset_ns);
    emit(&report, "laxity-tick %lld %lld\n", (long long)period_ns, (long long)offset_ns);
    if (!runner->real_time)
        emit(&report, "laxity-note SCHED_FIFO was refused: the tasks had no priorities\n");
    for (const struct thread *task = tasks; task < tasks + task_count; task++) {
        /* A thread may complete a job between the end of the run and the setting of `stop`. */
        unsigned completed = task->completed;
        while (completed && task->completion_ns[completed - 1] > request->duration_ns)
            completed--;
        emit(&report, "laxity-task %u %u %u\n", (unsigned)(task - tasks), task->jobs, completed);
        int64_t before_ns = 0;
        for (unsigned i = 0; i < completed; i++) {
            bool ends_line = i % COMPLETIONS_A_LINE == COMPLETIONS_A_LINE - 1 || i == completed - 1;
            emit(&report, "%lld%c", (long long)(task->completion_ns[i] - before_ns),
                 ends_line ? '\n' : ' ');
            before_ns = task->completion_ns[i];
        }
    }
    for (unsigned vcpu = 0; vcpu < runner->vcpus; vcpu++) {
        int64_t tasks_ns = 0;
        for (unsigned i = 0; i < task_count; i++)
            tasks_ns += tasks[i].vcpu == vcpu ? tasks[i].cpu_ns : 0;
        emit(&report, "laxity-vcpu %u %lld %lld\n", vcpu, (long long)tasks_ns,
             (long long)cpu_bound[vcpu].cpu_ns);
    }
    emit(&report, "laxity-crc %08x\n", ~report.crc);
    emit(&report, "laxity-report-end %s\n", request->name);
    fflush(console);
}

static bool fail_late(struct failure *failure, const struct run_request *request, int64_t late_ns)
{
    fail(failure, "%s %lld %lld", request->name, (long long)request->start_ns, (long long)late_ns);
    failure->is_late = true;
    return false;
}

bool run(const struct runner *runner, const struct run_request *request,
         const struct task_list *list, bool cpu_bound, FILE *console, struct failure *failure)
{
    atomic_bool stop = false;
    unsigned count = list->count, bound_count = cpu_bound ? runner->vcpus : 0;
    struct thread *threads = calloc(count + runner->vcpus, sizeof *threads);
    struct thread *bound = threads + count;
    int64_t *completions = NULL;
    bool good = threads || fail(failure, "run: there is no memory for its threads");
    good = good && prepare(runner, request, list, &stop, threads, &completions, failure);
    for (unsigned vcpu = 0; good && vcpu < bound_count; vcpu++)
        bound[vcpu] = (struct thread){.stop = &stop, .start_ns = request->start_ns, .vcpu = vcpu};

    unsigned started = 0;
    for (; good && started < count + bound_count; started++)
        if (!start_thread(&threads[started], started < count ? run_task : run_cpu_bound, failure)) {
            good = false;
            break;
        }
    int64_t late_ns = clock_ns(CLOCK_REALTIME) - request->start_ns;
    if (good && late_ns >= 0)
        good = fail_late(failure, request, late_ns);
    if (good)
        sleep_until(request->start_ns + request->duration_ns);
    stop = true;
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i].pthread, NULL);
    /* A thread on another VCPU may get there later than the one that creates it. */
    for (unsigned i = 0; good && i < started; i++)
        if (threads[i].ready_ns >= 0)
            good = fail_late(failure, request, threads[i].ready_ns);

    if (good)
        write_report(runner, request, threads, count, bound, console);
    free(completions);
    free(threads);
    return good;
}
