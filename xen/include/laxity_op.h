/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What dom0 asks of Laxity's scheduler, in one hypercall: XEN_SYSCTL_scheduler_op with the id
 * XEN_SCHEDULER_LAXITY, whose `laxity` is a guest handle of one struct laxity_op. The adapter and
 * laxity-sched are both built from this file.
 *
 * The sizes are the same for 32 and 64 bits: every field has its natural place.
 */
#ifndef LAXITY_OP_H
#define LAXITY_OP_H

/* The scheduler's number in Xen's interface, beside those of public/domctl.h. */
#ifndef XEN_SCHEDULER_LAXITY
#define XEN_SCHEDULER_LAXITY 76
#endif

#define LAXITY_OP_VERSION 2

/* op.command. The get commands are XEN_SYSCTL_SCHEDOP_getinfo, the set commands putinfo. */
#define LAXITY_OP_GET_POOL 1     /* out: policy, settings, counts */
#define LAXITY_OP_GET_DOMAIN 2   /* in: domid; out: parameters, vcpus */
#define LAXITY_OP_GET_VCPU 3     /* in: domid, vcpu; out: parameters, cpu, runnable */
#define LAXITY_OP_SET_POLICY 4   /* in: policy */
#define LAXITY_OP_SET_SETTINGS 5 /* in: settings */
#define LAXITY_OP_SET_DOMAIN 6   /* in: domid, parameters: the domain's and every VCPU's */
#define LAXITY_OP_SET_VCPU 7     /* in: domid, vcpu, parameters */
#define LAXITY_OP_SET_PHASE 8    /* in: phase: of every VCPU of the pool */

#define LAXITY_OP_NAME_BYTES 16

struct laxity_op {
    uint32_t version;
    uint32_t command;
    uint32_t domid;
    uint32_t vcpu;
    uint32_t error;                    /* out: enum laxity_error, why parameters were refused */
    uint32_t vcpus;                    /* out: of the domain */
    char policy[LAXITY_OP_NAME_BYTES]; /* ends with a 0 */

    /* struct laxity_parameters */
    int64_t budget_ns;
    int64_t period_ns;
    int64_t laxity_ns;
    uint32_t priority;
    uint32_t weight;
    uint32_t cap_percent;
    uint32_t extratime;

    /* struct laxity_settings */
    int64_t quantum_ns;
    int64_t time_slice_ns;
    int64_t tick_ns;
    int64_t accounting_ns;

    /* State of a VCPU, out. */
    uint32_t cpu;
    uint32_t runnable;

    int64_t phase_ns; /* Xen's time at which budgets become full, and whole periods from it */
    int64_t now_ns;   /* out, of a pool: Xen's time */

    /* Of a pool since it was made, out. */
    uint64_t decisions;
    uint64_t switches;
    uint64_t timers;
    uint64_t wakes;
};

#endif
