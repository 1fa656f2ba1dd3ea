/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What dom0 asks of Laxity's scheduler, in one hypercall: XEN_SYSCTL_scheduler_op with the id
 * XEN_SCHEDULER_LAXITY, whose `laxity` is a guest handle of one struct laxity_op. And what guests
 * tell it, in another: HYPERVISOR_sched_op(SCHEDOP_laxity, struct laxity_work *). The adapter, the
 * programs of dom0 and those of guests are built from this file.
 *
 * The sizes are the same for 32 and 64 bits: every field is aligned to its size, as long as numbers
 * in parameters.def come in pairs before a time.
 */
#ifndef LAXITY_OP_H
#define LAXITY_OP_H

/* The scheduler's number in Xen's interface, beside those of public/domctl.h. */
#ifndef XEN_SCHEDULER_LAXITY
#define XEN_SCHEDULER_LAXITY 76
#endif

/* The call by which a guest tells what its VCPU works on, beside those of public/sched.h. */
#ifndef SCHEDOP_laxity
#define SCHEDOP_laxity 76
#endif

#define LAXITY_OP_VERSION 3

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

/* The type of a parameter here, by its kind in parameters.def. */
#define LAXITY_OP_TYPE_DURATION int64_t
#define LAXITY_OP_TYPE_NUMBER uint32_t
#define LAXITY_OP_TYPE_PERCENT uint32_t
#define LAXITY_OP_TYPE_FLAG uint32_t

struct laxity_op {
    uint32_t version;
    uint32_t command;
    uint32_t domid;
    uint32_t vcpu;
    uint32_t error;                    /* out: enum laxity_error, why parameters were refused */
    uint32_t vcpus;                    /* out: of the domain */
    char policy[LAXITY_OP_NAME_BYTES]; /* ends with a 0 */

    /* struct laxity_parameters and struct laxity_settings */
#define LAXITY_PARAMETER(name_, field_, key_, kind_, ...) LAXITY_OP_TYPE_##kind_ field_;
#define LAXITY_SETTING(name_, field_, key_, kind_, ...) LAXITY_OP_TYPE_##kind_ field_;
#include <parameters.def>

    /* The state of a VCPU, out. */
    uint32_t cpu;
    uint32_t runnable;

    int64_t phase_ns; /* Xen's time at which budgets become full, and whole periods from it */
    int64_t now_ns;   /* out, of a pool: Xen's time */

    /* Counts of a pool since it was made, out. */
    uint64_t decisions;
    uint64_t switches;
    uint64_t timers;
    uint64_t wakes;
};

/* What the calling VCPU works on from now on: `tell` of laxity/policy.h. The call gives back
 * -EOPNOTSUPP if the policy makes nothing of it. */
struct laxity_work {
    int64_t left_ns; /* to its deadline; LAXITY_NEVER: it has none */
    int64_t order;   /* among the guest's work, smaller first */
};

#endif
