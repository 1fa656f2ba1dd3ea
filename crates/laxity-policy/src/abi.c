/* SPDX-License-Identifier: MIT */
/* What the C compiler makes of the contract, for the test that compares it with ffi.rs. */
#include <laxity/policy.h>

extern const size_t laxity_abi[];

const size_t laxity_abi[] = {
    sizeof(struct laxity_settings),
    sizeof(struct laxity_parameters),
    offsetof(struct laxity_parameters, laxity_ns),
    offsetof(struct laxity_parameters, priority),
    offsetof(struct laxity_parameters, extratime),
    sizeof(struct laxity_embedder),
    sizeof(struct laxity_instance),
    offsetof(struct laxity_instance, cpus),
    offsetof(struct laxity_instance, tracing),
    offsetof(struct laxity_instance, settings),
    sizeof(struct laxity_cpu),
    offsetof(struct laxity_cpu, current),
    sizeof(struct laxity_domain),
    offsetof(struct laxity_domain, parameters),
    sizeof(struct laxity_vcpu),
    offsetof(struct laxity_vcpu, cpu),
    offsetof(struct laxity_vcpu, runnable),
    offsetof(struct laxity_vcpu, on_cpu),
    offsetof(struct laxity_vcpu, parameters),
    sizeof(struct laxity_decision),
    sizeof(struct laxity_policy),
    offsetof(struct laxity_policy, schedule),
    offsetof(struct laxity_policy, dump),
};
