/* SPDX-License-Identifier: GPL-2.0-only */
/* A scheduler in BPF (kvm/bpf), loaded: its memory, and its calls. */
#ifndef LAXITY_SCX_H
#define LAXITY_SCX_H

#include <laxity/policy.h>

#include "../bpf/shared.h"

/* Prints a line that begins with "state error", and ends the program. */
void quit(const char *form, ...) __attribute__((format(printf, 1, 2), noreturn));

/* The program that follows guests' hypercalls, loaded for policies that make something of them. */
#define SCX_ON_HYPERCALL "on_hypercall"

struct scx {
    struct bpf_object *object;
    const struct laxity_policy *policy; /* as it is built for this processor: sizes of blocks */
    struct scx_state *state;
    char *free_place, *end;
    int call_file, threads_file;
};

/* Loads OBJECT, which has the policy of that name; `only_calls`: to be called by scx_call, and not
 * to schedule. Ends the program if the kernel refuses it. */
void scx_load(struct scx *scx, const char *object, const char *policy, bool only_calls);

/* Zeroed memory of the arena. */
void *scx_allocate(struct scx *scx, size_t bytes);

/* An instance of so many CPUs, in the arena, with these settings. */
struct laxity_instance *scx_start(struct scx *scx, uint32_t cpus,
                                  const struct laxity_settings *settings, int64_t now);

/* The block of a VCPU in the arena, zeroed but for its `owner`, a struct scx_vcpu that is zeroed.
 */
struct laxity_vcpu *scx_allocate_vcpu(struct scx *scx);

/* The same of a block that the policy knows no more. */
void scx_clear_vcpu(const struct scx *scx, struct laxity_vcpu *vcpu);

/* Returns what `struct scx_call` says. */
uint64_t scx_call(const struct scx *scx, enum scx_operation operation, const void *object,
                  uint64_t argument, int64_t now);

/* The same for a pointer. */
uint64_t scx_call_with(const struct scx *scx, enum scx_operation operation, const void *object,
                       const void *argument, int64_t now);

const struct laxity_policy *scx_find_policy(const char *name);

#endif
