/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Keeps dom0 still until a time: its VCPU sleeps in the hypervisor, and no timer of its kernel
 * wakes it. An idle kernel wakes every 4.3 s at the latest, for the longest time that its timer on
 * Xen can be set for, and each such wake ends somebody's turn in what is measured.
 *
 * Events end the sleep, as when a guest asks xenstored. Whoever they are for comes first, and then
 * dom0 is still again. Its kernel finds all its timers late in the end; so this is for a dom0 that
 * has one VCPU and nothing else to do.
 */
#include "clock.h"
#include "privcmd.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xen/sched.h>
#include <xen/vcpu.h>

#define SECOND_NS UINT64_C(1000000000)

/* How long at a time: the kernel's clock goes by a counter that it must read every few minutes. */
#define STILL_NS_MAX (30 * SECOND_NS)

/* The kernel serves the timers that are late in this time. */
#define CATCH_UP_NS 20000000

/* What a call on this VCPU, dom0's only one, answers. */
static long vcpu_call(uint64_t command, void *argument)
{
    return privcmd_hypercall(__HYPERVISOR_vcpu_op, command, 0, (uintptr_t)argument);
}

static void call_or_fail(const char *what, long error)
{
    if (error < 0)
        fail(EXIT_FAILED, "Xen refused %s: %s", what, strerror((int)-error));
}

/*
 * Xen's time, or a little less: when this VCPU last got its CPU, which it has not had for longer
 * than it took to come from a sleep to here.
 */
static uint64_t xen_now_ns(struct vcpu_runstate_info *runs)
{
    nanosleep(&(struct timespec){.tv_nsec = 1}, NULL);
    call_or_fail("to tell when this VCPU runs", vcpu_call(VCPUOP_get_runstate_info, runs));
    return runs->state_entry_time;
}

int main(int argc, char **argv)
{
    struct vcpu_set_singleshot_timer *at_once;
    struct vcpu_runstate_info *runs;
    struct sched_poll *sleeping;
    char *end = NULL;
    uint64_t until_ns = argc == 2 ? strtoull(argv[1], &end, 10) : 0;

    if (argc != 2 || !until_ns || *end)
        fail(EXIT_REFUSED, "usage: laxity-still TIME, a CLOCK_REALTIME in ns");
    privcmd_open();
    at_once = privcmd_memory(sizeof(*at_once));
    runs = privcmd_memory(sizeof(*runs));
    sleeping = privcmd_memory(sizeof(*sleeping));
    /* Whoever an event is for runs first. */
    if (sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){0}))
        fail(EXIT_FAILED, "SCHED_IDLE is refused");
    for (uint64_t now_ns; (now_ns = time_ns(CLOCK_REALTIME)) < until_ns;) {
        uint64_t left_ns = until_ns - now_ns;

        sleeping->timeout = xen_now_ns(runs) + (left_ns < STILL_NS_MAX ? left_ns : STILL_NS_MAX);
        call_or_fail("to stop the timer", vcpu_call(VCPUOP_stop_singleshot_timer, NULL));
        call_or_fail("to sleep", privcmd_hypercall(__HYPERVISOR_sched_op, SCHEDOP_poll,
                                                   (uintptr_t)sleeping, 0));
        call_or_fail("to set the timer", vcpu_call(VCPUOP_set_singleshot_timer, at_once));
        nanosleep(&(struct timespec){.tv_nsec = CATCH_UP_NS}, NULL);
    }
    return EXIT_SUCCESS;
}
