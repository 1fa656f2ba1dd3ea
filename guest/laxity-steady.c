/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Preloaded into QEMU where its time counts instructions (-icount sleep=off), so that a run repeats
 * on a busy computer, too. Two things depend on the computer's speed without it.
 *
 * Halted processors. While all processors halt, QEMU's main loop moves the time on to the next
 * timer. It looks whether they halt whenever something wakes it, which every timer does. A
 * processor that halts says so before its thread has counted the instructions that it has executed
 * since it was last asked. A main loop that looks in between, some microseconds if nothing takes
 * the CPU away from that thread, adds what it should, and the instructions are added on top: the
 * timer is late by them.
 *
 * Here the main loop gets QEMU's big lock only while the thread of the processors waits, which it
 * does with everything counted. Nothing else is for the main loop to do on a machine without disks
 * and networks, until the machine is turned off.
 *
 * Translated addresses. QEMU keeps them in a table, as a processor does in its TLB. At each flush
 * it looks at the clock, and may make the table smaller if few entries were used in the last
 * 100 ms. A guest that changes a translation before it flushes the old one sees which of the two
 * is in use, such as by a page fault that it takes or does not take; this depends on the table's
 * size. Here the clock moves on by the same time whenever a thread looks at it.
 *
 * A third thing is the same on every computer, and yet would be QEMU's and not the machine's.
 *
 * Turns. One thread executes the instructions of all processors. It begins with the first, which
 * may execute all that there is to execute until the next timer; then the timers are served, and it
 * begins with the first again. While that is busy, the others may stand still for any time. If it
 * waits for a lock that one of them holds, this is for ever.
 *
 * Here a processor that is busy beside another has a turn of TURN_NS at most, and the next one goes
 * on where it ended. A timer ends turns. The next processor is asked to leave before it begins, for
 * which the thread serves the timers and then begins with this one.
 *
 * Built for QEMU 7.2, which calls the C library for most of it: the thread waits for a condition
 * with the big lock, the first that the main thread waits with, too; only flushes ask
 * gettimeofday. For turns, functions of QEMU's are called, which it shows to its modules.
 */
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* A machine that is turned off may execute instructions until the main loop ends it. The first is
 * CPU time of all threads: on a busy computer a machine that boots gets little of it in a minute,
 * and does not wait before it is done. The second ends what neither waits nor executes. */
#define PATIENCE_CPU_S 60
#define PATIENCE_S 1200
/* Between flushes of a guest that is busy, so that the table grows and shrinks about as it does by
 * the clock. */
#define LOOK_US 1000
/* Short beside what guests and hosts do in one go, and 25,000 instructions at 500 million a second:
 * much more than QEMU needs from one turn to the next. */
#define TURN_NS 50000
#define PROCESSORS_MAX 64

typedef int wait_function(pthread_cond_t *, pthread_mutex_t *);
typedef int lock_function(pthread_mutex_t *);

static wait_function *next_wait;
static lock_function *next_lock, *next_unlock;

/* QEMU's own, by the names that they have there. */
#define QEMU_CLOCK_VIRTUAL 1
struct processor;
static bool (*cpu_thread_is_idle)(struct processor *);
static void (*cpu_exit)(struct processor *);
static int64_t (*qemu_clock_get_ns)(int);
static void (*timer_mod_ns)(void *, int64_t);

/* The big lock, once it is known. */
static _Atomic(pthread_mutex_t *) big_lock;
/* Whether the thread of the processors waits; the big lock is held by who changes it. */
static atomic_int is_waiting;
/* It has waited once, for the machine to be complete. Before that there is nothing to count. */
static atomic_bool has_begun;

static _Thread_local bool is_main;
/* The processor whose instructions the thread executes, if it is the one that does; QEMU's. */
static _Thread_local struct processor **current_cpu;

static struct processor *processors[PROCESSORS_MAX];
static int count;
/* The processor that was asked to leave and has not begun; 0: none. */
static int asked;
/* More than QEMU's timer takes. */
static uint64_t end_of_turn[32];
static bool ends; /* the timer is set */

__attribute__((constructor)) static void begin(void)
{
    is_main = true;
    /* The older version of the same name has another type of condition. */
    next_wait = (wait_function *)dlvsym(RTLD_NEXT, "pthread_cond_wait", "GLIBC_2.3.2");
    next_lock = (lock_function *)dlsym(RTLD_NEXT, "pthread_mutex_lock");
    next_unlock = (lock_function *)dlsym(RTLD_NEXT, "pthread_mutex_unlock");
}

static void *of_qemu(const char *name)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);
    if (symbol == NULL) {
        fprintf(stderr, "laxity-steady: this QEMU has no %s\n", name);
        abort();
    }
    return symbol;
}

static void set_end_of_turn(void)
{
    int busy = 0;
    for (int i = 0; i < count; i++)
        busy += !cpu_thread_is_idle(processors[i]);
    ends = busy > 1;
    if (ends)
        timer_mod_ns(end_of_turn, qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL) + TURN_NS);
}

static void end_turn(void *nothing)
{
    (void)nothing;
    set_end_of_turn();
}

/* Called by the thread that executes instructions when it has waited. The machine is complete when
 * its processors run. */
static void find_processors(void)
{
    struct processor *(*qemu_get_cpu)(int) = of_qemu("qemu_get_cpu");
    bool (*cpu_is_stopped)(struct processor *) = of_qemu("cpu_is_stopped");
    /* The timer, the group of its list (NULL: the main one), a clock, ns in a unit of its times,
     * attributes, a function, and what that is called with. */
    void (*timer_init_full)(void *, void *, int, int, int, void (*)(void *), void *) =
        of_qemu("timer_init_full");
    if (cpu_is_stopped(qemu_get_cpu(0)))
        return;
    current_cpu = of_qemu("current_cpu");
    cpu_thread_is_idle = of_qemu("cpu_thread_is_idle");
    cpu_exit = of_qemu("cpu_exit");
    qemu_clock_get_ns = of_qemu("qemu_clock_get_ns");
    timer_mod_ns = of_qemu("timer_mod_ns");
    while (count < PROCESSORS_MAX && (processors[count] = qemu_get_cpu(count)) != NULL)
        count++;
    if (count > 1)
        timer_init_full(end_of_turn, NULL, QEMU_CLOCK_VIRTUAL, 1, 0, end_turn, NULL);
}

/* The running processor has done something that others may see, such as wake one, or its turn is
 * over. */
static void give_turns(void)
{
    int running = 0;
    while (running < count && processors[running] != *current_cpu)
        running++;
    if (running == asked)
        asked = 0;
    if (!asked && running + 1 < count) {
        asked = running + 1;
        cpu_exit(processors[asked]);
    }
    if (count > 1 && !ends)
        set_end_of_turn();
}

static void await_waiting(void)
{
    static const struct timespec look = {.tv_sec = 1};
    syscall(SYS_futex, &is_waiting, FUTEX_WAIT_PRIVATE, 0, &look, NULL, 0);
}

static time_t seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec;
}

int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    if (is_main) {
        pthread_mutex_t *unknown = NULL;
        atomic_compare_exchange_strong(&big_lock, &unknown, mutex);
        return next_wait(condition, mutex);
    }
    if (mutex != atomic_load(&big_lock))
        return next_wait(condition, mutex);
    atomic_store(&has_begun, true);
    atomic_store(&is_waiting, 1);
    syscall(SYS_futex, &is_waiting, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    int error = next_wait(condition, mutex);
    atomic_store(&is_waiting, 0);
    if (current_cpu == NULL)
        find_processors();
    return error;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    if (next_unlock == NULL)
        begin();
    if (current_cpu != NULL && mutex == atomic_load(&big_lock))
        give_turns();
    return next_unlock(mutex);
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    if (next_lock == NULL)
        begin();
    if (!is_main || mutex != atomic_load(&big_lock) || !atomic_load(&has_begun))
        return next_lock(mutex);
    time_t start_s = seconds(CLOCK_MONOTONIC), start_cpu_s = seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (;;) {
        int error = next_lock(mutex);
        if (error != 0 || atomic_load(&is_waiting) ||
            seconds(CLOCK_PROCESS_CPUTIME_ID) - start_cpu_s >= PATIENCE_CPU_S ||
            seconds(CLOCK_MONOTONIC) - start_s >= PATIENCE_S)
            return error;
        next_unlock(mutex);
        await_waiting();
    }
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    static _Thread_local struct timeval last;
    static const struct timeval look = {.tv_usec = LOOK_US};
    (void)zone;
    timeradd(&last, &look, &last);
    *now = last;
    return 0;
}
