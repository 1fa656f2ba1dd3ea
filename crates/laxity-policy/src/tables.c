/* SPDX-License-Identifier: MIT */
/* The policies' tables, and what the C compiler makes of the contract: a test compares it with
 * ffi.rs. */
#include <laxity/policy.h>

extern const struct laxity_policy *const laxity_tables[];

const struct laxity_policy *const laxity_tables[] = {
#define LAXITY_POLICY(identifier_, ...) &laxity_##identifier_,
#define LAXITY_MODEL(identifier_, ...) &laxity_##identifier_,
#include <policies.def>
};

extern const size_t laxity_offsets[];

const size_t laxity_offsets[] = {
#define LAXITY_PARAMETER(name_, field_, ...) offsetof(struct laxity_parameters, field_),
#define LAXITY_SETTING(name_, field_, ...) offsetof(struct laxity_settings, field_),
#define LAXITY_MODEL_PARAMETER LAXITY_PARAMETER
#define LAXITY_MODEL_SETTING LAXITY_SETTING
#include <parameters.def>
};

extern const size_t laxity_abi[];

const size_t laxity_abi[] = {
    sizeof(struct laxity_settings),
    sizeof(struct laxity_parameters),
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
