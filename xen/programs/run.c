/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Nothing is allocated, written or touched for the first time between the start of a run and its
 * end. The main thread sleeps through the run; threads stop by themselves after their last job or
 * when they see `stop`.
 */
#include "run.h"

#include "report.h"
#include "tell.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* 8 bytes each; the smallest domains have 64 MiB. */
#define JOBS_MAX (1 << 20)

#define STACK_BYTES (64 * 1024)

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
    struct agenda *agenda; /* its VCPU's; NULL: the guest tells nothing */
    int rank;              /* among the tasks, the most urgent is 0 */
    uint64_t iterations;
    int64_t period_ns;
    int64_t deadline_ns; /* from each release */
    int64_t offset_ns;
    int64_t *completion_ns; /* from the start of the run */
    unsigned jobs;
    atomic_uint completed;
};

/*
 * What a VCPU works on, as was told to the hypervisor. Only threads of the VCPU use it, of which a
 * more urgent one may come between any two instructions of another, and then does all that it does.
 */
struct agenda {
    const struct thread *tasks; /* of all VCPUs */
    unsigned count;
    unsigned vcpu;
    bool cpu_bound;
    atomic_uint turns; /* how often something was about to be told */
    const struct thread *told;
    unsigned told_job;
};

bool become_real_time(void)
{
    struct sched_param parameters = {.sched_priority = sched_get_priority_max(SCHED_FIFO)};
    return !sched_setscheduler(0, SCHED_FIFO, &parameters);
}

static int64_t release_of(const struct thread *task, unsigned job)
{
    return task->start_ns + task->offset_ns + job * task->period_ns;
}

/* The task on whose next job the VCPU works: the most urgent one that is due, or else the one for
 * which it will wake. NULL if there is none, or an endless loop does not let it sleep. */
static const struct thread *next_task(const struct agenda *agenda, int64_t now_ns)
{
    const struct thread *next = NULL;
    int64_t next_ns = INT64_MAX;
    for (unsigned i = 0; i < agenda->count; i++) {
        const struct thread *task = &agenda->tasks[i];
        if (task->vcpu != agenda->vcpu || task->completed == task->jobs)
            continue;
        int64_t at_ns = release_of(task, task->completed);
        if (at_ns < now_ns)
            at_ns = now_ns;
        if (!next || at_ns < next_ns || (at_ns == next_ns && task->rank < next->rank)) {
            next = task;
            next_ns = at_ns;
        }
    }
    return agenda->cpu_bound && next_ns > now_ns ? NULL : next;
}

/* Tells what the VCPU works on, if that is something else than before. What another thread told in
 * between was right; what this one then tells may not be, and it tells again. */
static void tell_next(struct agenda *agenda)
{
    unsigned turn;
    bool again = false;
    do {
        turn = ++agenda->turns;
        int64_t now_ns = clock_ns(CLOCK_REALTIME);
        const struct thread *task = next_task(agenda, now_ns);
        unsigned number = task ? task->completed : 0;
        if (!again && task == agenda->told && number == agenda->told_job)
            return;
        agenda->told = task;
        agenda->told_job = number;
        if (task)
            tell_work(release_of(task, number) + task->deadline_ns - now_ns, task->rank);
        else
            tell_work(INT64_MAX, INT64_MAX);
        again = true;
    } while (agenda->turns != turn);
}

/* Waits for a job's release, as job() does; before that the VCPU's next job is told, and then its
 * own. */
static void wait_and_tell(struct agenda *agenda, int64_t release_ns)
{
    tell_next(agenda);
    if (release_ns > clock_ns(CLOCK_REALTIME))
        sleep_until(release_ns);
    tell_next(agenda);
}

static void *run_task(void *argument)
{
    struct thread *task = argument;
    int64_t before_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    int64_t now_ns = 0;
    task->ready_ns = clock_ns(CLOCK_REALTIME) - release_of(task, 0);
    while (task->completed < task->jobs) {
        int64_t release_ns = release_of(task, task->completed);
        if (task->agenda) {
            wait_and_tell(task->agenda, release_ns);
            now_ns = release_ns; /* the job does not wait once more */
        }
        if (!job(release_ns, task->iterations, task->stop, &now_ns))
            break;
        task->completion_ns[task->completed] = now_ns - task->start_ns;
        task->completed++;
    }
    if (task->agenda)
        tell_next(task->agenda);
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
                    struct agenda *agendas, int64_t **completions, struct failure *failure)
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
        int rank = tasks_before(list, i);
        threads[i] = (struct thread){
            .stop = stop,
            .start_ns = request->start_ns,
            .vcpu = task->vcpu,
            .priority = runner->real_time ? sched_get_priority_max(SCHED_FIFO) - 1 - rank : 0,
            .agenda = agendas ? &agendas[task->vcpu] : NULL,
            .rank = rank,
            .iterations = iterations_of(&runner->speed, task->cost_ns),
            .period_ns = task->period_ns,
            .deadline_ns = task->deadline_ns,
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

/* False if there is no memory for it. */
static bool report_run(const struct runner *runner, const struct run_request *request,
                       const struct thread *threads, unsigned count, const struct thread *bound,
                       FILE *console)
{
    struct task_report *tasks = calloc(count + 1, sizeof *tasks);
    struct vcpu_report *vcpus = calloc(runner->vcpus, sizeof *vcpus);
    bool good = tasks && vcpus;
    for (unsigned i = 0; good && i < count; i++) {
        tasks[i] = (struct task_report){.jobs = threads[i].jobs,
                                        .completed = threads[i].completed,
                                        .completion_ns = threads[i].completion_ns};
        vcpus[threads[i].vcpu].tasks_ns += threads[i].cpu_ns;
    }
    for (unsigned vcpu = 0; good && vcpu < runner->vcpus; vcpu++)
        vcpus[vcpu].cpu_bound_ns = bound[vcpu].cpu_ns;
    struct run_report report = {
        .run = request->name,
        .duration_ns = request->duration_ns,
        .iterations_per_ms = iterations_per_ms(&runner->speed),
        .job_ns = runner->speed.job_ns,
        .note = runner->real_time ? NULL : "SCHED_FIFO was refused: the tasks had no priorities",
        .tasks = tasks,
        .task_count = count,
        .vcpus = vcpus,
        .vcpu_count = runner->vcpus,
    };
    find_tick(request->start_ns, &report.tick_period_ns, &report.tick_offset_ns);
    if (good)
        write_report(&report, console);
    free(tasks);
    free(vcpus);
    return good;
}

static bool fail_late(struct failure *failure, const struct run_request *request, int64_t late_ns)
{
    fail(failure, "%s %lld %lld", request->name, (long long)request->start_ns, (long long)late_ns);
    failure->is_late = true;
    return false;
}

bool run(const struct runner *runner, const struct run_request *request,
         const struct task_list *list, const struct run_flags *flags, FILE *console,
         struct failure *failure)
{
    atomic_bool stop = false;
    unsigned count = list->count, bound_count = flags->cpu_bound ? runner->vcpus : 0;
    struct thread *threads = calloc(count + runner->vcpus, sizeof *threads);
    struct thread *bound = threads + count;
    struct agenda *agendas = calloc(runner->vcpus, sizeof *agendas);
    int64_t *completions = NULL;
    bool good = (threads && agendas) || fail(failure, "run: there is no memory for its threads");
    for (unsigned vcpu = 0; good && vcpu < runner->vcpus; vcpu++)
        agendas[vcpu] = (struct agenda){
            .tasks = threads, .count = count, .vcpu = vcpu, .cpu_bound = flags->cpu_bound};
    good = good && prepare(runner, request, list, &stop, threads, flags->tells ? agendas : NULL,
                           &completions, failure);
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

    if (good && !report_run(runner, request, threads, count, bound, console))
        good = fail(failure, "run: there is no memory for its report");
    free(completions);
    free(agendas);
    free(threads);
    return good;
}
