/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The embedder's side of the policy contract in BPF: LAXITY_EMBEDDER_HEADER. A program with one
 * policy is built, so which it is is a constant; what it asks for is left in the arena, where the
 * scheduler (scheduler.bpf.c) finds it after each operation.
 */
#include "shared.h"

#define SCX_JOIN_(a, b) a##b
#define SCX_JOIN(a, b) SCX_JOIN_(a, b)
#define SCX_POLICY SCX_JOIN(laxity_, POLICY)

#define LAXITY_APART __attribute__((noinline))

/* FNV-1a's, for 64 bits. */
#define SCX_DIGEST_PRIME 0x100000001b3ull

static inline struct scx_requests *scx_requests_of(const struct laxity_instance *instance)
{
    return instance->owner;
}

static inline const struct scx_vcpu *scx_owner_of(const struct laxity_vcpu *vcpu)
{
    return vcpu->owner;
}

static inline void laxity_arm_timer(struct laxity_instance *instance, uint32_t cpu, int64_t at_ns)
{
    scx_requests_of(instance)->cpu[cpu].timer_ns = at_ns;
    scx_requests_of(instance)->changed |= SCX_BIT(cpu);
}

static inline void laxity_arm_account(struct laxity_instance *instance, int64_t at_ns)
{
    scx_requests_of(instance)->account_ns = at_ns;
    scx_requests_of(instance)->changed |= SCX_BIT(0);
}

static inline void laxity_kick(struct laxity_instance *instance, uint32_t cpu)
{
    scx_requests_of(instance)->kicked |= SCX_BIT(cpu);
    scx_requests_of(instance)->changed |= SCX_BIT(cpu);
}

static inline void laxity_extend(struct laxity_instance *instance, uint32_t cpu, int64_t until_ns)
{
    scx_requests_of(instance)->cpu[cpu].until_ns = until_ns;
    scx_requests_of(instance)->changed |= SCX_BIT(cpu);
}

static inline bool laxity_may_run_on(struct laxity_instance *instance,
                                     const struct laxity_vcpu *vcpu, uint32_t cpu)
{
    (void)instance;
    return scx_owner_of(vcpu)->affinity & SCX_BIT(cpu);
}

/* One lock guards the whole instance, and whoever calls the policy holds it. */
static inline bool laxity_try_lock(struct laxity_instance *instance, uint32_t cpu)
{
    (void)instance, (void)cpu;
    return true;
}

static inline void laxity_unlock(struct laxity_instance *instance, uint32_t cpu)
{
    (void)instance, (void)cpu;
}

static inline uint64_t scx_digest(uint64_t digest, uint64_t word)
{
    return (digest ^ word) * SCX_DIGEST_PRIME;
}

/* The verifier looks at it once, and not at each place that traces something. */
LAXITY_APART uint64_t policy_trace(uint64_t instance, uint64_t thread, uint64_t event,
                                   int64_t argument)
{
    struct scx_requests *requests = scx_requests_of((struct laxity_instance *)instance);
    struct scx_event *place;

    requests->events = scx_digest(requests->events, thread);
    requests->events = scx_digest(requests->events, event);
    requests->events = scx_digest(requests->events, (uint64_t)argument);
    if (requests->traced_count >= requests->traced_max) {
        requests->untraced++;
        return 0;
    }
    place = &requests->traced[requests->traced_count++];
    place->time_ns = requests->stolen_ns;
    place->thread = (uint32_t)thread;
    place->event = (uint32_t)event;
    place->argument = argument;
    return 0;
}

static inline void laxity_trace(struct laxity_instance *instance, const struct laxity_vcpu *vcpu,
                                enum laxity_event event, int64_t argument)
{
    policy_trace((uint64_t)instance, scx_owner_of(vcpu)->thread, event, argument);
}

static inline const struct laxity_policy *laxity_policy_of(const struct laxity_instance *instance)
{
    (void)instance;
    return &SCX_POLICY;
}
