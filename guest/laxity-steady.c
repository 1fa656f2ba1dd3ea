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
 * Built for QEMU 7.2, which calls the C library for all of it: the thread waits for a condition
 * with the big lock, the first that the main thread waits with, too; only flushes ask
 * gettimeofday.
 */
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
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

typedef int wait_function(pthread_cond_t *, pthread_mutex_t *);
typedef int lock_function(pthread_mutex_t *);

static wait_function *next_wait;
static lock_function *next_lock, *next_unlock;

/* The big lock, once it is known. */
static _Atomic(pthread_mutex_t *) big_lock;
/* Whether the thread of the processors waits; the big lock is held by who changes it. */
static atomic_int is_waiting;
/* It has waited once, for the machine to be complete. Before that there is nothing to count. */
static atomic_bool has_begun;

static _Thread_local bool is_main;

__attribute__((constructor)) static void begin(void)
{
    is_main = true;
    /* The older version of the same name has another type of condition. */
    next_wait = (wait_function *)dlvsym(RTLD_NEXT, "pthread_cond_wait", "GLIBC_2.3.2");
    next_lock = (lock_function *)dlsym(RTLD_NEXT, "pthread_mutex_lock");
    next_unlock = (lock_function *)dlsym(RTLD_NEXT, "pthread_mutex_unlock");
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
    return error;
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
