/* SPDX-License-Identifier: MIT */
/*
 * The contract between a scheduling policy and its embedder: the simulated host or a hypervisor.
 *
 * The embedder owns memory, locks, timers and clocks, and passes the time in. The policy owns its
 * queues and its arithmetic. One policy is one table of operations, `struct laxity_policy`.
 *
 * Objects. One instance of a policy rules a set of CPUs (in Xen: a cpupool). The embedder
 * allocates, zeroed, one block each for the instance, every CPU, every domain and every VCPU, of
 * the sizes that the table states. Each block begins with the common structure declared here, and
 * the policy keeps its own state behind it.
 *
 * Time is int64_t nanoseconds on one clock that never goes back, the same for every CPU.
 *
 * Locks. There is one lock a CPU; it guards the CPU's queues and every VCPU whose `cpu` it is.
 *   - schedule, timer: the lock of that CPU is held.
 *   - wake, event, tell, sleep, yield: the lock of vcpu->cpu is held.
 *   - move_vcpu: the locks of vcpu->cpu and of the CPU that it goes to are held.
 *   - everything else (init, add, remove, set, become, account): every CPU's lock is held.
 * A policy that looks at another CPU's queue from `schedule` takes that lock by try_lock and goes
 * on without when it fails, so that no order of locks has to be kept.
 *
 * VCPU life. add_vcpu; then, when it gets work, the embedder sets `runnable` and calls wake (never
 * for one that has it set), and when it has none left the embedder clears `runnable` and calls
 * schedule on its CPU (it blocked by itself) or sleep (it was taken off: paused, or blocked while
 * it was not running); remove_vcpu at the end. Both `runnable` and `on_cpu` are the embedder's to
 * write, and policies only read them. `on_cpu` stays set until the state of a VCPU that was
 * switched out is saved; a VCPU must not be picked by another CPU before (Xen's context_saved).
 *
 * A VCPU that is put to sleep while it runs stays its CPU's `current`, and uses the CPU, until the
 * schedule that sleep asks for. Meanwhile all parameters may be set; if it wakes, it never slept.
 * move_vcpu and remove_vcpu need a VCPU that is asleep, off every CPU (its state saved) and no
 * CPU's `current`.
 *
 * CPU life. The embedder enters a zeroed block into `cpu` and calls add_cpu; remove_cpu at the
 * end, after which it takes the block out. By then the CPU is idle and the `cpu` of no VCPU, not
 * even of one asleep: its VCPUs have been moved away, while may_run_on already returned false, so
 * that the CPU stole no VCPU.
 *
 * The path through schedule has no allocation, no recursion, and no loop that is not bounded
 * by the logarithm of the number of VCPUs or by the number of CPUs. Integers only.
 */
#ifndef LAXITY_POLICY_H
#define LAXITY_POLICY_H

#include <laxity/types.h>

/* "Never": no timer, no limit on how long the decision holds. */
#define LAXITY_NEVER INT64_MAX

#define LAXITY_MILLISECOND LAXITY_NS(1000000)
#define LAXITY_NS(value) ((int64_t)(value))

/* The C type of a parameter, by its kind in parameters.def. */
#define LAXITY_TYPE_DURATION int64_t
#define LAXITY_TYPE_NUMBER uint32_t
#define LAXITY_TYPE_PERCENT uint32_t
#define LAXITY_TYPE_FLAG bool

/*
 * The reason for a refusal; a refused operation has changed nothing. LAXITY_ERROR_<NAME> refuses
 * the value of a parameter: it is out of its bounds, or contradicts its rule.
 */
enum laxity_error {
    LAXITY_OK = 0,
    LAXITY_ERROR_POLICY, /* these two policies cannot be switched live */
#define LAXITY_PARAMETER(name_, ...) LAXITY_ERROR_##name_,
#define LAXITY_SETTING(name_, ...) LAXITY_ERROR_##name_,
#define LAXITY_MODEL_PARAMETER LAXITY_PARAMETER
#define LAXITY_MODEL_SETTING LAXITY_SETTING
#include <parameters.def>
};

/*
 * Settings of a whole instance. Every policy checks those that it uses and ignores the rest.
 */
struct laxity_settings {
#define LAXITY_SETTING(name_, field_, key_, kind_, ...) LAXITY_TYPE_##kind_ field_;
#define LAXITY_MODEL_SETTING LAXITY_SETTING
#include <parameters.def>
};

/*
 * Parameters of one VCPU (policies with budgets) or of a domain (policies with weights). Every
 * policy checks those that it uses and ignores the rest, so that one host can be run under each.
 */
struct laxity_parameters {
#define LAXITY_PARAMETER(name_, field_, key_, kind_, ...) LAXITY_TYPE_##kind_ field_;
#define LAXITY_MODEL_PARAMETER LAXITY_PARAMETER
#include <parameters.def>
};

/* Where a policy runs, as bits. */
#define LAXITY_ON_SIM 1
#define LAXITY_ON_XEN 2
#define LAXITY_ON_LINUX 4 /* by the kernel's own means */
#define LAXITY_ON_KVM 32  /* through sched_ext */
/* The hypervisor or kernel whose own scheduler a model is, as bits. */
#define LAXITY_OWN_OF_XEN 8
#define LAXITY_OWN_OF_LINUX 16

struct laxity_instance;
struct laxity_cpu;
struct laxity_domain;
struct laxity_vcpu;

/* Events inside a policy; each has the meaning of its argument beside it. */
enum laxity_event {
    LAXITY_EVENT_REPLENISH, /* budget after it, ns (credit, S: credits after it) */
    LAXITY_EVENT_EXHAUST,   /* 0 */
    LAXITY_EVENT_BUDGET,    /* budget left, ns, where it changed otherwise (use, discard, set) */
    LAXITY_EVENT_MIGRATE,   /* the CPU it goes to */
    LAXITY_EVENT_CLASS,     /* credit, S: 0 boost, 1 under, 2 over, 3 parked */
};

/*
 * The requests of a policy to its embedder. Each takes the instance, whose `embedder` field is the
 * embedder's own.
 */
struct laxity_embedder {
    /* Calls `timer` for that CPU at `at_ns`, once, in place of what was armed before;
     * LAXITY_NEVER disarms. A time in the past means at once. */
    void (*arm_timer)(struct laxity_instance *instance, uint32_t cpu, int64_t at_ns);
    /* The same for `account`, of which there is one an instance. */
    void (*arm_account)(struct laxity_instance *instance, int64_t at_ns);
    /* Calls `schedule` on that CPU soon; several kicks before that are one. */
    void (*kick)(struct laxity_instance *instance, uint32_t cpu);
    /* The decision in force on that CPU now holds until `until_ns` instead. */
    void (*extend)(struct laxity_instance *instance, uint32_t cpu, int64_t until_ns);
    bool (*may_run_on)(struct laxity_instance *instance, const struct laxity_vcpu *vcpu,
                       uint32_t cpu);
    /* Whether the VCPU prefers the CPU (soft affinity); true for all CPUs if it prefers none. Only
     * models ask; NULL: no VCPU prefers any. */
    bool (*prefers)(struct laxity_instance *instance, const struct laxity_vcpu *vcpu, uint32_t cpu);
    bool (*try_lock)(struct laxity_instance *instance, uint32_t cpu);
    void (*unlock)(struct laxity_instance *instance, uint32_t cpu);
    /* Called only while instance->tracing is set. */
    void (*trace)(struct laxity_instance *instance, const struct laxity_vcpu *vcpu,
                  enum laxity_event event, int64_t argument);
};

/* The beginnings of the four blocks. The embedder fills in all fields but those marked. */
struct laxity_instance {
    const struct laxity_policy *policy; /* changed by `become` */
    const struct laxity_embedder *embedder;
    void *owner;
    uint32_t cpus;                 /* CPU numbers are below this */
    struct laxity_cpu *const *cpu; /* by number; NULL where the instance has no such CPU */
    bool tracing;
    struct laxity_settings settings; /* written by the policy, in init and set_settings */
};

struct laxity_cpu {
    uint32_t number;
    bool is_repeated;            /* see repeats_ns */
    struct laxity_vcpu *current; /* written by the policy: its last decision; NULL is idle */
    /* Written by policies whose decisions can repeat: when the decision in force was made, and its
     * end. */
    int64_t decided_ns, until_ns;
    /* The same policies: from until_ns to before this time, `schedule` would only repeat the
     * decision in force for another quantum, if no other operation comes first and `current` stays
     * runnable. An embedder may leave out such a call, if it sets is_repeated and writes the time
     * of the repetition and its end, a quantum later, into the two fields above. */
    int64_t repeats_ns;
    /* Written by the embedder, if it can tell: the time up to which the CPU is busy with its last
     * decision and does no work of `current`. */
    int64_t switched_ns;
    /* Written by the embedder, if it can tell, before it calls any operation: the total time for
     * which something other than `current` had the CPU in a VCPU's turn, less the time that VCPUs
     * had before or after their turns. No budget pays for that time. The embedder moves the end of
     * the decision in force by as much. */
    int64_t stolen_ns;
};

struct laxity_domain {
    uint32_t id;
    struct laxity_parameters parameters; /* written by the policy, in add_domain and set_domain */
};

struct laxity_vcpu {
    struct laxity_domain *domain;
    void *owner;
    uint32_t id;  /* within its domain */
    uint32_t cpu; /* whose queue it is in; written by the policy when it steals and in move_vcpu */
    bool runnable;
    bool on_cpu;
    struct laxity_parameters parameters; /* written by the policy, in add_vcpu and set_vcpu */
};

struct laxity_decision {
    struct laxity_vcpu *vcpu; /* NULL: idle */
    int64_t until_ns; /* schedule again then at the latest; LAXITY_NEVER: only when kicked */
};

/* Where `dump` writes: one call a line, without its end. */
struct laxity_dump {
    void (*line)(struct laxity_dump *dump, const struct laxity_vcpu *vcpu, const char *state,
                 int64_t left_ns, int64_t next_ns);
};

struct laxity_policy {
    size_t instance_bytes, cpu_bytes, domain_bytes, vcpu_bytes;
    /* CPUs take VCPUs from each other. An embedder whose VCPUs stay on_cpu for a while may kick an
     * idle CPU when a VCPU that it could take is no longer on_cpu, so that the VCPU does not wait
     * for the next wake. */
    bool steals;

    enum laxity_error (*init)(struct laxity_instance *instance,
                              const struct laxity_settings *settings);
    void (*add_cpu)(struct laxity_instance *instance, struct laxity_cpu *cpu, int64_t now);
    void (*remove_cpu)(struct laxity_instance *instance, struct laxity_cpu *cpu, int64_t now);
    enum laxity_error (*add_domain)(struct laxity_instance *instance, struct laxity_domain *domain,
                                    const struct laxity_parameters *parameters);
    void (*remove_domain)(struct laxity_instance *instance, struct laxity_domain *domain);
    enum laxity_error (*add_vcpu)(struct laxity_instance *instance, struct laxity_vcpu *vcpu,
                                  const struct laxity_parameters *parameters, int64_t now);
    void (*remove_vcpu)(struct laxity_instance *instance, struct laxity_vcpu *vcpu, int64_t now);
    /* Moves a VCPU to the queues of another CPU, with its remaining budget and its pending
     * replenishments. Nothing happens if it is there already. */
    void (*move_vcpu)(struct laxity_instance *instance, struct laxity_vcpu *vcpu, uint32_t cpu,
                      int64_t now);

    void (*wake)(struct laxity_instance *instance, struct laxity_vcpu *vcpu, int64_t now);
    /* An event arrived for a VCPU that is runnable already, for which wake is not called: B of
     * scheduler S boosts such a VCPU if it waits. NULL where it makes no difference. */
    void (*event)(struct laxity_instance *instance, struct laxity_vcpu *vcpu, int64_t now);
    /* The guest announces the work that the VCPU does from now on: its deadline (LAXITY_NEVER:
     * none) and its place in the order of the guest's work, above INT64_MIN, smaller first (a rank,
     * or a deadline). The announcement holds until the next one, whether the VCPU blocks or not,
     * and is made before the wake that it belongs to. NULL where it makes no difference. */
    void (*tell)(struct laxity_instance *instance, struct laxity_vcpu *vcpu, int64_t deadline_ns,
                 int64_t order, int64_t now);
    void (*sleep)(struct laxity_instance *instance, struct laxity_vcpu *vcpu, int64_t now);
    void (*yield)(struct laxity_instance *instance, struct laxity_vcpu *vcpu, int64_t now);
    struct laxity_decision (*schedule)(struct laxity_instance *instance, struct laxity_cpu *cpu,
                                       int64_t now);
    void (*timer)(struct laxity_instance *instance, struct laxity_cpu *cpu, int64_t now);
    void (*account)(struct laxity_instance *instance, int64_t now); /* NULL where there is none */

    enum laxity_error (*set_settings)(struct laxity_instance *instance,
                                      const struct laxity_settings *settings, int64_t now);
    enum laxity_error (*set_domain)(struct laxity_instance *instance, struct laxity_domain *domain,
                                    const struct laxity_parameters *parameters, int64_t now);
    enum laxity_error (*set_vcpu)(struct laxity_instance *instance, struct laxity_vcpu *vcpu,
                                  const struct laxity_parameters *parameters, int64_t now);
    /* From now on the VCPU's budget is replenished at phase_ns, which may lie in the future, and at
     * whole periods from it. This delays the next replenishment by less than a period, and never
     * advances it. NULL where budgets have no such phase. */
    void (*set_phase)(struct laxity_instance *instance, struct laxity_vcpu *vcpu, int64_t phase_ns,
                      int64_t now);
    /* Switches to another policy of the same file; every VCPU keeps its place. */
    enum laxity_error (*become)(struct laxity_instance *instance,
                                const struct laxity_policy *policy, int64_t now);
    void (*dump)(struct laxity_instance *instance, struct laxity_cpu *cpu,
                 struct laxity_dump *dump);
};

#define LAXITY_POLICY(identifier_, ...) extern const struct laxity_policy laxity_##identifier_;
#define LAXITY_MODEL(identifier_, ...) extern const struct laxity_policy laxity_##identifier_;
#include <policies.def>

/*
 * How a policy asks its embedder, and which policy of its file it is. An embedder that is built
 * together with one policy, and may call nothing through a pointer (BPF), defines
 * LAXITY_EMBEDDER_HEADER to a header with these functions of its own instead.
 */
#ifdef LAXITY_EMBEDDER_HEADER
#include LAXITY_EMBEDDER_HEADER
#else
static inline void laxity_arm_timer(struct laxity_instance *instance, uint32_t cpu, int64_t at_ns)
{
    instance->embedder->arm_timer(instance, cpu, at_ns);
}

static inline void laxity_arm_account(struct laxity_instance *instance, int64_t at_ns)
{
    instance->embedder->arm_account(instance, at_ns);
}

static inline void laxity_kick(struct laxity_instance *instance, uint32_t cpu)
{
    instance->embedder->kick(instance, cpu);
}

static inline void laxity_extend(struct laxity_instance *instance, uint32_t cpu, int64_t until_ns)
{
    instance->embedder->extend(instance, cpu, until_ns);
}

static inline bool laxity_may_run_on(struct laxity_instance *instance,
                                     const struct laxity_vcpu *vcpu, uint32_t cpu)
{
    return instance->embedder->may_run_on(instance, vcpu, cpu);
}

static inline bool laxity_try_lock(struct laxity_instance *instance, uint32_t cpu)
{
    return instance->embedder->try_lock(instance, cpu);
}

static inline void laxity_unlock(struct laxity_instance *instance, uint32_t cpu)
{
    instance->embedder->unlock(instance, cpu);
}

static inline void laxity_trace(struct laxity_instance *instance, const struct laxity_vcpu *vcpu,
                                enum laxity_event event, int64_t argument)
{
    instance->embedder->trace(instance, vcpu, event, argument);
}

static inline const struct laxity_policy *laxity_policy_of(const struct laxity_instance *instance)
{
    return instance->policy;
}

/* Marks a function that the verifier checks by itself, because it would multiply the paths of its
 * callers. */
#define LAXITY_APART
#endif

#endif
