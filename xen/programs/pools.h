/* SPDX-License-Identifier: GPL-2.0-only */
/* The CPU pools and domains of the host, from the hypervisor; their names, from xenstore. */
#ifndef LAXITY_POOLS_H
#define LAXITY_POOLS_H

#include "privcmd.h"

#include <stdbool.h>
#include <stdint.h>
#include <xenstore.h>

#include "laxity_op.h"

/* More CPUs than Xen can be built for. */
#define CPUS_MAX 4096

struct pool {
    uint32_t id, scheduler, domains;
    uint8_t *cpus;    /* a bit each of CPUS_MAX */
    const char *name; /* NULL: unknown */
};

struct domain {
    uint32_t id, pool;
    const char *name; /* NULL: unknown */
};

/*
 * A request to the Laxity scheduler of a pool: 0, or a negative errno. -EINVAL with op->error set
 * says which value was refused; -EINVAL without it, that the pool has another scheduler.
 */
int laxity(uint32_t pool, uint32_t command, struct laxity_op *op);

/* NULL where there is no xenstore. */
struct xs_handle *store(void);

const char *scheduler_name(uint32_t scheduler);

/* One operation on CPU pools: 0, or a negative errno (Xen's public/sysctl.h says which). */
int cpupool(uint32_t command, struct xen_sysctl_cpupool_op *operation);

/* Empty, for the CPUs that an operation gives back; there is one. */
uint8_t *cpu_map(struct xen_sysctl_cpupool_op *operation);
bool has_cpu(const uint8_t *map, uint32_t cpu);

/* "0-3,8", or "none". */
const char *cpus_text(const uint8_t *map);

/* The first one from that number on; false when there is none. */
bool next_pool(uint32_t from, struct pool *pool);
bool next_domain(uint32_t from, struct domain *domain);

/* By number or name; ends the program when there is none. */
struct pool find_pool(const char *word);
struct domain find_domain(const char *word);

#endif
