/* SPDX-License-Identifier: MIT */
/*
 * Proportional shares, the common part of credit and scheduler S: times of ticks and turns, checks
 * of parameters, and the division of the time of all CPUs among the domains by weight.
 */
#ifndef LAXITY_SHARE_H
#define LAXITY_SHARE_H

#include <laxity/policy.h>

#include "list.h"

/* A domain's claim to credits at an accounting; several domains with equal claims may share one.
 */
struct share_claim {
    struct list member; /* of the instance's claims */
    uint32_t domain_count;
    uint32_t weight, cap_percent; /* of each domain */
    uint32_t active_count;        /* VCPUs of each domain that get credits */
    bool saturated;               /* scratch of accounting: gets all that it can take */
};

/* The first time after now that is whole steps from the phase of accounting. A step is a tick, or
 * the time between two accountings. */
static inline int64_t share_next_step(const struct laxity_instance *instance, int64_t step_ns,
                                      int64_t now)
{
    const struct laxity_settings *settings = &instance->settings;
    /* Whole steps before the phase, so that what is divided is not below 0. */
    int64_t from_ns = settings->accounting_phase_ns - settings->accounting_ns;
    return from_ns + ((now - from_ns) / step_ns + 1) * step_ns;
}

/* The accounting that follows a tick at this time, where none is armed. A tick and an accounting of
 * one time come in that order, and a timer that is late belongs to its time. */
static inline int64_t share_accounting_after_tick(const struct laxity_instance *instance,
                                                  int64_t now)
{
    const struct laxity_settings *settings = &instance->settings;
    int64_t tick_ns = share_next_step(instance, settings->tick_ns, now) - settings->tick_ns;
    return share_next_step(instance, settings->accounting_ns, tick_ns - 1);
}

/* When a turn ends: at a whole number of slices since the VCPU was chosen, the first that is not
 * before now, and at least one. */
static inline int64_t share_turn_end(const struct laxity_instance *instance, int64_t chosen_ns,
                                     int64_t now)
{
    int64_t slice_ns = instance->settings.time_slice_ns;
    int64_t slices = (now - chosen_ns + slice_ns - 1) / slice_ns;
    return chosen_ns + (slices > 1 ? slices : 1) * slice_ns;
}

/* The next CPU number after a CPU's own, cyclically. */
static inline uint32_t share_next_cpu(const struct laxity_instance *instance, uint32_t number)
{
    return number + 1 == instance->cpus ? 0 : number + 1;
}

static inline enum laxity_error share_check_settings(const struct laxity_settings *settings)
{
    if (settings->time_slice_ns < 1 || settings->time_slice_ns > LAXITY_DURATION_MAX)
        return LAXITY_ERROR_TIME_SLICE;
    if (settings->accounting_ns < 1 || settings->accounting_ns > LAXITY_ACCOUNTING_MAX)
        return LAXITY_ERROR_ACCOUNTING;
    if (settings->tick_ns < 1 || settings->tick_ns > settings->accounting_ns)
        return LAXITY_ERROR_TICK;
    if (settings->accounting_ns % settings->tick_ns)
        return LAXITY_ERROR_ACCOUNTING;
    if (settings->accounting_phase_ns < 0 ||
        settings->accounting_phase_ns >= settings->accounting_ns)
        return LAXITY_ERROR_ACCOUNTING_PHASE;
    return LAXITY_OK;
}

static inline enum laxity_error share_check(const struct laxity_parameters *parameters)
{
    if (parameters->weight < 1 || parameters->weight > LAXITY_WEIGHT_MAX)
        return LAXITY_ERROR_WEIGHT;
    if (parameters->cap_percent > LAXITY_CAP_MAX)
        return LAXITY_ERROR_CAP;
    return LAXITY_OK;
}

/* The most that a domain can take at one accounting. */
static inline int64_t share_most(const struct laxity_instance *instance,
                                 const struct share_claim *claim)
{
    int64_t accounting_ns = instance->settings.accounting_ns;
    uint32_t cap_percent = claim->cap_percent;
    int64_t most_ns = accounting_ns * claim->active_count;
    int64_t cap_ns = accounting_ns * cap_percent / 100;

    return cap_percent && cap_ns < most_ns ? cap_ns : most_ns;
}

/* What is still to be given to the domains that are not saturated, and the sum of their weights. */
struct share_rest {
    int64_t credits_ns;
    int64_t weight;
    /* The last answer of share_by_weight: most claims have the weight of the claim before them, and
     * divisions are most of the cost of an accounting with many claims. */
    int64_t share_ns;
    uint32_t share_of_weight;
};

static inline int64_t share_by_weight(struct share_rest *rest, const struct share_claim *claim)
{
    uint32_t weight = claim->weight;
    if (weight != rest->share_of_weight) {
        rest->share_of_weight = weight;
        rest->share_ns = rest->credits_ns * weight / rest->weight;
    }
    return rest->share_ns;
}

/* Marks the claims of domains that get all they can take; what is left then is shared by weight.
 * Every round but the last saturates a claim. */
static inline struct share_rest share_saturate(const struct laxity_instance *instance,
                                               const struct list *claims, uint32_t cpu_count)
{
    struct share_rest rest;
    bool again = true;

    /* Field by field: for a structure that is mostly zero, clang -O0 calls memset. */
    rest.credits_ns = instance->settings.accounting_ns * cpu_count;
    rest.weight = rest.share_ns = 0;
    rest.share_of_weight = 0;
    for (struct list *node = claims->next; node != claims; node = node->next) {
        struct share_claim *claim = laxity_container(node, struct share_claim, member);
        claim->saturated = claim->active_count == 0;
        if (!claim->saturated)
            rest.weight += (int64_t)claim->weight * claim->domain_count;
    }
    while (again) {
        struct share_rest round = {.credits_ns = rest.credits_ns, .weight = rest.weight};
        again = false;
        for (struct list *node = claims->next; node != claims; node = node->next) {
            struct share_claim *claim = laxity_container(node, struct share_claim, member);
            int64_t most_ns = share_most(instance, claim);
            if (claim->saturated || share_by_weight(&round, claim) <= most_ns)
                continue;
            claim->saturated = true;
            rest.credits_ns -= most_ns * claim->domain_count;
            rest.weight -= (int64_t)claim->weight * claim->domain_count;
            again = true;
        }
    }
    return rest;
}

/* The credits that a domain of the claim gets at this accounting, from those that share_saturate
 * left. */
static inline int64_t share_of(const struct laxity_instance *instance, struct share_rest *rest,
                               const struct share_claim *claim)
{
    return claim->saturated ? share_most(instance, claim) : share_by_weight(rest, claim);
}

#endif
