/* SPDX-License-Identifier: MIT */
/*
 * The common part of the models of other projects' schedulers. A model runs in the simulator, whose
 * one thread holds every lock. It therefore reads any CPU and any VCPU from every operation, and
 * its time may grow with their number where that keeps it plain.
 */
#ifndef LAXITY_MODEL_H
#define LAXITY_MODEL_H

#include <laxity/policy.h>

#include "../src/list.h"

static inline void model_trace(struct laxity_instance *instance, const struct laxity_vcpu *vcpu,
                               enum laxity_event event, int64_t argument)
{
    if (instance->tracing)
        laxity_trace(instance, vcpu, event, argument);
}

static inline void model_kick(struct laxity_instance *instance, uint32_t cpu)
{
    laxity_kick(instance, cpu);
}

static inline bool model_may_run_on(struct laxity_instance *instance,
                                    const struct laxity_vcpu *vcpu, uint32_t cpu)
{
    return laxity_may_run_on(instance, vcpu, cpu);
}

static inline bool model_prefers(struct laxity_instance *instance, const struct laxity_vcpu *vcpu,
                                 uint32_t cpu)
{
    const struct laxity_embedder *embedder = instance->embedder;
    return !embedder->prefers || embedder->prefers(instance, vcpu, cpu);
}

/* The VCPU belongs to another CPU from now on. */
static inline void model_migrate(struct laxity_instance *instance, struct laxity_vcpu *vcpu,
                                 uint32_t cpu)
{
    if (vcpu->cpu == cpu)
        return;
    vcpu->cpu = cpu;
    model_trace(instance, vcpu, LAXITY_EVENT_MIGRATE, cpu);
}

/* No other policy can take over a model's state. */
static inline enum laxity_error model_become(struct laxity_instance *instance,
                                             const struct laxity_policy *policy, int64_t now)
{
    (void)now;
    return policy == instance->policy ? LAXITY_OK : LAXITY_ERROR_POLICY;
}

/* The operations in which a model has nothing to do. */

static inline void model_add_cpu(struct laxity_instance *instance, struct laxity_cpu *cpu,
                                 int64_t now)
{
    (void)instance, (void)cpu, (void)now;
}

static inline void model_remove_cpu(struct laxity_instance *instance, struct laxity_cpu *cpu,
                                    int64_t now)
{
    (void)instance, (void)cpu, (void)now;
}

static inline enum laxity_error model_add_domain(struct laxity_instance *instance,
                                                 struct laxity_domain *domain,
                                                 const struct laxity_parameters *parameters)
{
    (void)instance;
    domain->parameters = *parameters;
    return LAXITY_OK;
}

static inline void model_remove_domain(struct laxity_instance *instance,
                                       struct laxity_domain *domain)
{
    (void)instance, (void)domain;
}

static inline enum laxity_error model_set_settings(struct laxity_instance *instance,
                                                   const struct laxity_settings *settings,
                                                   int64_t now)
{
    (void)now;
    instance->settings = *settings;
    return LAXITY_OK;
}

static inline enum laxity_error model_set_domain(struct laxity_instance *instance,
                                                 struct laxity_domain *domain,
                                                 const struct laxity_parameters *parameters,
                                                 int64_t now)
{
    (void)instance, (void)now;
    domain->parameters = *parameters;
    return LAXITY_OK;
}

#endif
