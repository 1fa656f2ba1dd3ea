/* SPDX-License-Identifier: MIT */
/*
 * What policies with budgets have in common whether their VCPUs are ordered on each CPU (server.h)
 * or over all of them (global_server.h): checks, the queue of replenishments, and the hooks that
 * the rules of budgets (fixed_period.c, sporadic.c, sedf.c) define.
 *
 * Both files define `struct server_vcpu` and `struct server_cpu`, which holds the queues that the
 * VCPU is ordered in.
 */
#ifndef LAXITY_BUDGET_H
#define LAXITY_BUDGET_H

#include <laxity/policy.h>

#include "heap.h"

struct server_vcpu;
struct server_cpu;

/* How long a VCPU runs on extra time when others wait for extra time too. */
#define SERVER_EXTRA_TURN LAXITY_MILLISECOND

/* The most replenishments of one VCPU that can be pending (sporadic server). */
#define SERVER_REPLENISHMENTS_MAX 32

struct server_replenishment {
    int64_t at_ns, amount_ns;
    int64_t first_ns; /* when its first part would have come without merging */
};

/* Hooks that a policy defines. */

/* The key by which VCPUs are ordered; smaller comes first. */
static int64_t server_key(const struct server_vcpu *vcpu);
/* The VCPU blocked, or was put to sleep: changes its budget and its place in its queue. */
static void server_blocked(struct laxity_instance *instance, struct server_cpu *cpu,
                           struct server_vcpu *vcpu);
/* A blocked VCPU wakes: gives it what came due while it rested, before its budget is checked. */
static void server_unblocked(struct laxity_instance *instance, struct server_cpu *cpu,
                             struct server_vcpu *vcpu, int64_t now);
/* A run on budget ends, in which the VCPU used vcpu->run_used_ns since vcpu->run_start_ns. */
static void server_stopped(struct laxity_instance *instance, struct server_cpu *cpu,
                           struct server_vcpu *vcpu);
/* Whether a VCPU that blocks rests: until it wakes, time changes nothing of it that matters. */
static bool server_rests(const struct laxity_instance *instance, const struct server_vcpu *vcpu);
/* The VCPU's replenishment is due: sets left_ns and the next due time. */
static void server_replenish(struct laxity_instance *instance, struct server_cpu *cpu,
                             struct server_vcpu *vcpu, int64_t now);

static enum laxity_error server_check(const struct laxity_parameters *parameters)
{
    if (parameters->period_ns < 1 || parameters->period_ns > LAXITY_DURATION_MAX)
        return LAXITY_ERROR_PERIOD;
    if (parameters->budget_ns < 1 || parameters->budget_ns > parameters->period_ns)
        return LAXITY_ERROR_BUDGET;
    if (parameters->priority < 1 || parameters->priority > LAXITY_PRIORITY_MAX)
        return LAXITY_ERROR_PRIORITY;
    return LAXITY_OK;
}

static enum laxity_error server_check_settings(const struct laxity_settings *settings)
{
    if (settings->quantum_ns < 0 || settings->quantum_ns > LAXITY_DURATION_MAX)
        return LAXITY_ERROR_QUANTUM;
    return LAXITY_OK;
}

/* The first multiple of the quantum that is not before the time. */
static inline int64_t server_on_quantum(const struct laxity_instance *instance, int64_t time_ns)
{
    int64_t quantum_ns = instance->settings.quantum_ns;
    if (!quantum_ns)
        return time_ns;
    return (time_ns + quantum_ns - 1) / quantum_ns * quantum_ns;
}

/* Budgets belong to VCPUs: a domain keeps only the parameters of its next VCPU. */
static enum laxity_error server_add_domain(struct laxity_instance *instance,
                                           struct laxity_domain *domain,
                                           const struct laxity_parameters *parameters)
{
    enum laxity_error error = server_check(parameters);
    (void)instance;
    if (!error)
        domain->parameters = *parameters;
    return error;
}

static void server_remove_domain(struct laxity_instance *instance, struct laxity_domain *domain)
{
    (void)instance;
    (void)domain;
}

static enum laxity_error server_set_domain(struct laxity_instance *instance,
                                           struct laxity_domain *domain,
                                           const struct laxity_parameters *parameters, int64_t now)
{
    (void)now;
    return server_add_domain(instance, domain, parameters);
}

/* The next replenishment of a VCPU. It is in the queue of replenishments (RepQ), and a timer serves
 * it, unless the VCPU rests: then all that has come due is served when it wakes. */
struct server_due {
    struct heap_node node; /* in RepQ; key: at_ns */
    int64_t at_ns;         /* LAXITY_NEVER: none is due */
    bool is_queued;
    bool rests;
};

/* The first time that is not before due_ns and whole periods from phase_ns. */
static inline int64_t server_in_phase(int64_t due_ns, int64_t phase_ns, int64_t period_ns)
{
    int64_t beyond_ns = (due_ns - phase_ns) % period_ns;
    if (beyond_ns < 0)
        beyond_ns += period_ns;
    return beyond_ns ? due_ns + period_ns - beyond_ns : due_ns;
}

/* For policies whose VCPUs no other policy can take over. */
static inline enum laxity_error server_become(struct laxity_instance *instance,
                                              const struct laxity_policy *policy, int64_t now)
{
    (void)now;
    return policy == instance->policy ? LAXITY_OK : LAXITY_ERROR_POLICY;
}

#endif
