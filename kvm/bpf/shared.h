/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the scheduler in BPF and its loader, laxity-scx, share: memory of the arena, in which the
 * policy's blocks lie too, and the calls of the loader. Pointers into the arena are the same for
 * both. Guests share the number of a hypercall with it.
 */
#ifndef LAXITY_SCX_SHARED_H
#define LAXITY_SCX_SHARED_H

/* Sets of CPUs are words, a bit each. */
#define SCX_CPUS_MAX 64
#define SCX_BIT(cpu_) (1ull << (cpu_))
/* Those that nobody writes take no memory. */
#define SCX_ARENA_PAGES 524288

/* The reserve of ordinary tasks: what those that wait get of each CPU in each of its periods, in
 * front of VCPUs if there is no idle time. */
#define SCX_RESERVE_NS 200000
#define SCX_RESERVE_PERIOD_NS 20000000

/* Ordinary tasks on one CPU: those that are no VCPU. Its run queue's lock guards it. */
struct scx_others {
    int64_t waiting_ns; /* since when some wait that have not had their reserve; 0: none wait */
    int64_t had_ns;     /* what they have had since then */
    int64_t running_ns; /* since when one runs whose time is not counted yet; 0: none runs */
    int64_t turn_ns;   /* when their reserve begins, or ends if it goes on; 0: neither is to come */
    uint64_t reserved; /* 1: it goes on, and the VCPU that the policy chose waits */
    int64_t total_ns;  /* all that they have had */
    int64_t taken_ns;  /* what of it was reserve */
};

/* What the policy asked of one CPU. */
struct scx_cpu {
    int64_t timer_ns;   /* LAXITY_NEVER: not armed */
    int64_t until_ns;   /* the end of the decision in force */
    int64_t armed_ns;   /* written by the scheduler: when the CPU's alarm rings */
    uint64_t leaving;   /* written by the scheduler: the VCPU that the last decision took off */
    int64_t decided_ns; /* when that was, or when its budget was found to have ended before */
    int64_t ended_ns;   /* when a wake-up found that the decision in force had ended; 0: none did */
    uint64_t starved;   /* written by the scheduler: a thread that gets a moment; 0: none does */
    struct scx_others others;
};

/* What the policy traced. */
struct scx_event {
    int64_t time_ns; /* when the policy was called */
    uint32_t thread; /* the VCPU's */
    uint32_t event;  /* enum laxity_event */
    int64_t argument;
};

/* What the policy asked for; `owner` of the instance. */
struct scx_requests {
    int64_t account_ns; /* the timer of CPU 0 serves it, too */
    uint64_t events;    /* a digest of all that was traced */
    uint64_t kicked;    /* CPUs that are to decide */
    uint64_t changed;   /* CPUs of which something was asked that the scheduler has not seen */
    uint64_t stolen;    /* CPUs that others have while it is the turn of the policy's VCPU */
    int64_t stolen_ns;  /* up to when that is told to the policy: the time of the last call */
    struct scx_event *traced; /* what was traced, as far as there is room */
    uint64_t traced_count, traced_max;
    uint64_t untraced; /* how much more there was */
    struct scx_cpu cpu[SCX_CPUS_MAX];
};

/* `owner` of a VCPU. */
struct scx_vcpu {
    uint64_t vcpu;     /* its address in the arena */
    uint64_t thread;   /* 0: the VCPU is gone */
    uint64_t joined;   /* 1: the thread has asked for SCHED_EXT since it was named */
    uint64_t affinity; /* the CPUs on which it may run */
    int64_t owed_ns;   /* what it ran beyond the decision that took it off */
    int64_t waits_ns;  /* since when the thread waits; 0: it does not wait */
};

/* A hypercall by which a guest tells what its VCPU works on from now on: this number, the time left
 * to the deadline in ns (LAXITY_NEVER: it has none), and the order among the guest's work. KVM
 * knows no such hypercall, and gives an error back, which means nothing: the guest cannot know who
 * listens. */
#define SCX_HYPERCALL 0x1a717e11

/* After how long a VCPU that waits gets a moment, if nobody says otherwise. The kernel takes a
 * scheduler off that leaves a thread for 30 s. */
#define SCX_PATIENCE_NS 10000000000

/* The scheduler's own state, which the loader sets and reads. */
struct scx_state {
    uint64_t instance, requests; /* addresses */
    uint64_t cpus;
    uint64_t attached; /* 1: calls have the kernel do what the policy asks for */
    uint64_t lock;     /* 1: somebody is in the policy */
    uint64_t decisions;
    int64_t patience_ns;    /* after how long a VCPU that waits gets a moment */
    uint64_t virtual_ns;    /* the virtual time of ordinary tasks */
    int64_t virtual_set_ns; /* when it was set */
    uint64_t exit_kind;     /* enum scx_exit_kind, why the kernel took it off; 0: it did not */
};

enum scx_operation {
    SCX_INIT,         /* object: the instance; argument: settings */
    SCX_ADD_CPU,      /* object: the CPU's block */
    SCX_ADD_DOMAIN,   /* object: the domain; argument: parameters */
    SCX_ADD_VCPU,     /* object: the VCPU, with `owner` and `cpu`; argument: parameters */
    SCX_SET_SETTINGS, /* argument: settings */
    SCX_SET_DOMAIN,   /* as SCX_ADD_DOMAIN */
    SCX_SET_VCPU,     /* as SCX_ADD_VCPU */
    SCX_SET_PHASE,    /* object: the VCPU; argument: ns */
    SCX_SET_AFFINITY, /* object: the VCPU; argument: a set of CPUs; the result is 1 if its own CPU
                         is not among them: it has to sleep, be taken off, and move */
    SCX_MOVE,         /* object: the VCPU; to the first CPU of its affinity */
    SCX_TAKE_OFF,     /* object: the VCPU, which is asleep: it is no CPU's current */
    SCX_LEAVE,        /* object: the VCPU, which was taken off; removes it */
    SCX_WAKE,         /* object: the VCPU; sets `runnable` */
    SCX_BLOCK, /* object: the VCPU; clears `runnable` if it is current, which is the result */
    SCX_SLEEP, /* object: the VCPU; clears `runnable`, as when it is paused */
    SCX_SAVED, /* object: the VCPU, which another CPU may have from now on */
    SCX_YIELD, /* object: the VCPU */
    SCX_EVENT, /* object: the VCPU */
    SCX_TELL,  /* object: the VCPU; argument: a deadline, also its order */
    SCX_TIMER, /* argument: the number of a CPU */
    SCX_ACCOUNT,
    SCX_STEAL,    /* argument: the number of a CPU; object: ns for which others had it in the turn
                     of its VCPU */
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
