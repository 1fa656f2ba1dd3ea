/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A policy of policy/src as functions for BPF. -DPOLICY=deferrable says which, and
 * -DSOURCE='"fixed_period.c"' the file that has it.
 *
 * Every pointer of this unit leads into the arena: arena.py makes it so. Therefore the functions
 * that others call take and give numbers alone, which is also what lets the verifier check each of
 * them once, by itself.
 */
#define LAXITY_EMBEDDER_HEADER "embedder.h"
#include <laxity/policy.h>

/* Guests have no way to tell anything here, so that no servers lend. */
#define SERVER_LENDS(instance_) ((void)(instance_), false)

#include "loops.h"
#include SOURCE

/* The table is a constant, so the compiler calls what stands in it. */
#define POLICY_DO(operation) (SCX_POLICY.operation)

static inline struct laxity_instance *instance_at(uint64_t address)
{
    return (struct laxity_instance *)address;
}

static inline struct laxity_vcpu *vcpu_at(uint64_t address)
{
    return (struct laxity_vcpu *)address;
}

static inline struct laxity_cpu *cpu_of(uint64_t instance, uint64_t number)
{
    return instance_at(instance)->cpu[number];
}

uint64_t policy_init(uint64_t instance, uint64_t settings)
{
    return POLICY_DO(init)(instance_at(instance), (const struct laxity_settings *)settings);
}

uint64_t policy_add_cpu(uint64_t instance, uint64_t cpu, int64_t now)
{
    POLICY_DO(add_cpu)(instance_at(instance), (struct laxity_cpu *)cpu, now);
    return 0;
}

uint64_t policy_add_domain(uint64_t instance, uint64_t domain, uint64_t parameters)
{
    return POLICY_DO(add_domain)(instance_at(instance), (struct laxity_domain *)domain,
                                 (const struct laxity_parameters *)parameters);
}

uint64_t policy_add_vcpu(uint64_t instance, uint64_t vcpu, uint64_t parameters, int64_t now)
{
    return POLICY_DO(add_vcpu)(instance_at(instance), vcpu_at(vcpu),
                               (const struct laxity_parameters *)parameters, now);
}

uint64_t policy_set_settings(uint64_t instance, uint64_t settings, int64_t now)
{
    return POLICY_DO(set_settings)(instance_at(instance), (const struct laxity_settings *)settings,
                                   now);
}

uint64_t policy_set_domain(uint64_t instance, uint64_t domain, uint64_t parameters, int64_t now)
{
    return POLICY_DO(set_domain)(instance_at(instance), (struct laxity_domain *)domain,
                                 (const struct laxity_parameters *)parameters, now);
}

uint64_t policy_set_vcpu(uint64_t instance, uint64_t vcpu, uint64_t parameters, int64_t now)
{
    return POLICY_DO(set_vcpu)(instance_at(instance), vcpu_at(vcpu),
                               (const struct laxity_parameters *)parameters, now);
}

uint64_t policy_set_phase(uint64_t instance, uint64_t vcpu, int64_t phase_ns, int64_t now)
{
    if (POLICY_DO(set_phase))
        POLICY_DO(set_phase)(instance_at(instance), vcpu_at(vcpu), phase_ns, now);
    return 0;
}

uint64_t policy_remove_vcpu(uint64_t instance, uint64_t vcpu, int64_t now)
{
    POLICY_DO(remove_vcpu)(instance_at(instance), vcpu_at(vcpu), now);
    return 0;
}

uint64_t policy_wake(uint64_t instance, uint64_t vcpu, int64_t now)
{
    if (vcpu_at(vcpu)->runnable)
        return 0;
    vcpu_at(vcpu)->runnable = true;
    POLICY_DO(wake)(instance_at(instance), vcpu_at(vcpu), now);
    return 0;
}

uint64_t policy_sleep(uint64_t instance, uint64_t vcpu, int64_t now)
{
    if (!vcpu_at(vcpu)->runnable)
        return 0;
    vcpu_at(vcpu)->runnable = false;
    POLICY_DO(sleep)(instance_at(instance), vcpu_at(vcpu), now);
    return 0;
}

/* Whether the CPU is to decide, since its running VCPU blocked by itself; else it was put to sleep.
 */
uint64_t policy_block(uint64_t instance, uint64_t vcpu)
{
    if (cpu_of(instance, vcpu_at(vcpu)->cpu)->current != vcpu_at(vcpu))
        return 0;
    vcpu_at(vcpu)->runnable = false;
    return 1;
}

uint64_t policy_is_current(uint64_t instance, uint64_t vcpu)
{
    return cpu_of(instance, vcpu_at(vcpu)->cpu)->current == vcpu_at(vcpu);
}

uint64_t policy_yield(uint64_t instance, uint64_t vcpu, int64_t now)
{
    POLICY_DO(yield)(instance_at(instance), vcpu_at(vcpu), now);
    return 0;
}

uint64_t policy_event(uint64_t instance, uint64_t vcpu, int64_t now)
{
    if (POLICY_DO(event))
        POLICY_DO(event)(instance_at(instance), vcpu_at(vcpu), now);
    return 0;
}

uint64_t policy_timer(uint64_t instance, uint64_t cpu, int64_t now)
{
    scx_requests_of(instance_at(instance))->cpu[cpu].timer_ns = LAXITY_NEVER;
    POLICY_DO(timer)(instance_at(instance), cpu_of(instance, cpu), now);
    return 0;
}

uint64_t policy_account(uint64_t instance, int64_t now)
{
    scx_requests_of(instance_at(instance))->account_ns = LAXITY_NEVER;
    if (POLICY_DO(account))
        POLICY_DO(account)(instance_at(instance), now);
    return 0;
}

/* The thread that should run; 0: none. */
uint64_t policy_schedule(uint64_t instance, uint64_t cpu, int64_t now)
{
    struct scx_cpu *requests = &scx_requests_of(instance_at(instance))->cpu[cpu];
    struct laxity_decision decision;

    requests->kicked = 0;
    decision = POLICY_DO(schedule)(instance_at(instance), cpu_of(instance, cpu), now);
    requests->until_ns = decision.until_ns;
    return decision.vcpu ? (uint64_t)decision.vcpu->owner : 0;
}
