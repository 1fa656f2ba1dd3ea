/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the scheduler in BPF and its loader, laxity-scx, share: memory of the arena, in which the
 * policy's blocks lie too, and the calls of the loader. Pointers into the arena are the same for
 * both.
 */
#ifndef LAXITY_SCX_SHARED_H
#define LAXITY_SCX_SHARED_H

#define SCX_CPUS_MAX 4
#define SCX_ARENA_PAGES 2048

/* What the policy asked of one CPU. */
struct scx_cpu {
    int64_t timer_ns; /* LAXITY_NEVER: not armed */
    int64_t until_ns; /* the end of the decision in force */
    uint64_t kicked;
};

/* What the policy asked for; `owner` of the instance. */
struct scx_requests {
    int64_t account_ns;
    uint64_t events; /* a digest of all that was traced */
    struct scx_cpu cpu[SCX_CPUS_MAX];
};

/* The scheduler's own state, which the loader sets and reads. */
struct scx_state {
    uint64_t instance, requests; /* addresses */
    int64_t armed_ns;            /* when the alarm rings */
    uint64_t decisions;
    uint64_t
        exit_kind; /* why the kernel took the scheduler off, enum scx_exit_kind; 0: it did not */
};

enum scx_operation {
    SCX_INIT,         /* object: the instance; argument: settings */
    SCX_ADD_CPU,      /* object: the CPU's block */
    SCX_ADD_DOMAIN,   /* object: the domain; argument: parameters */
    SCX_ADD_VCPU,     /* object: the VCPU, whose `owner` is its thread; argument: parameters */
    SCX_SET_SETTINGS, /* argument: settings */
    SCX_SET_DOMAIN,   /* as SCX_ADD_DOMAIN */
    SCX_SET_VCPU,     /* as SCX_ADD_VCPU */
    SCX_SET_PHASE,    /* object: the VCPU; argument: ns */
    SCX_LEAVE,        /* object: the VCPU, which is asleep: takes it off, and removes it */
    SCX_WAKE,         /* object: the VCPU; sets `runnable` */
    SCX_BLOCK,        /* object: the VCPU, current or not; clears `runnable` */
    SCX_SLEEP,        /* the same, as when it is paused */
    SCX_YIELD,        /* object: the VCPU */
    SCX_EVENT,        /* object: the VCPU */
    SCX_TIMER,        /* argument: the number of a CPU */
    SCX_ACCOUNT,
    SCX_SCHEDULE, /* argument: the number of a CPU; the result is a thread, 0: idle */
};

/* A call of the program `call`. */
struct scx_call {
    uint64_t operation; /* enum scx_operation */
    uint64_t object;
    uint64_t argument;
    int64_t now;     /* ns; 0: the kernel's clock, CLOCK_MONOTONIC */
    uint64_t result; /* enum laxity_error, or as the operation says */
};

#endif
