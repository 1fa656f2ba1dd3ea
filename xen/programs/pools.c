/* SPDX-License-Identifier: GPL-2.0-only */
#include "pools.h"

#include "text.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct xs_handle *store(void)
{
    static struct xs_handle *handle;

    if (!handle)
        handle = xs_open(0);
    return handle;
}

int laxity(uint32_t pool, uint32_t command, struct laxity_op *op)
{
    static struct laxity_op *shared;
    struct xen_sysctl sysctl = {.cmd = XEN_SYSCTL_scheduler_op};
    struct xen_sysctl_scheduler_op *operation = &sysctl.u.scheduler_op;
    int error;

    if (!shared)
        shared = privcmd_memory(sizeof(*shared));
    *shared = *op;
    shared->version = LAXITY_OP_VERSION;
    shared->command = command;
    operation->cpupool_id = pool;
    operation->sched_id = XEN_SCHEDULER_LAXITY;
    operation->cmd =
        command >= LAXITY_OP_SET_POLICY ? XEN_SYSCTL_SCHEDOP_putinfo : XEN_SYSCTL_SCHEDOP_getinfo;
    /* Debian's headers have no member for Laxity. Its handle has the place and form of this. */
    set_xen_guest_handle(operation->u.sched_arinc653.schedule,
                         (xen_sysctl_arinc653_schedule_t *)shared);
    error = privcmd_sysctl(&sysctl);
    *op = *shared;
    return error;
}

/*
 * Xen tells toolstacks that a pool of Laxity's has the scheduler null, as they refuse those that
 * they do not know. Only Laxity answers Laxity's request.
 */
static uint32_t true_scheduler(uint32_t pool, uint32_t scheduler)
{
    struct laxity_op op = {0};

    if (scheduler == XEN_SCHEDULER_NULL && laxity(pool, LAXITY_OP_GET_POOL, &op) != -EINVAL)
        return XEN_SCHEDULER_LAXITY;
    return scheduler;
}

/* NULL where there is no name, or no xenstore. */
static const char *name_of(const char *directory, uint32_t id)
{
    return store() ? xs_read(store(), XBT_NULL, text("%s/%u/name", directory, id), NULL) : NULL;
}

const char *scheduler_name(uint32_t scheduler)
{
    switch (scheduler) {
    case XEN_SCHEDULER_LAXITY:
        return "laxity";
    case XEN_SCHEDULER_CREDIT:
        return "credit";
    case XEN_SCHEDULER_CREDIT2:
        return "credit2";
    case XEN_SCHEDULER_ARINC653:
        return "arinc653";
    case XEN_SCHEDULER_RTDS:
        return "rtds";
    case XEN_SCHEDULER_NULL:
        return "null";
    default:
        return text("number %u", scheduler);
    }
}

int cpupool(uint32_t command, struct xen_sysctl_cpupool_op *operation)
{
    struct xen_sysctl sysctl = {.cmd = XEN_SYSCTL_cpupool_op, .u.cpupool_op = *operation};
    int error;

    sysctl.u.cpupool_op.op = command;
    error = privcmd_sysctl(&sysctl);
    *operation = sysctl.u.cpupool_op;
    return error;
}

uint8_t *cpu_map(struct xen_sysctl_cpupool_op *operation)
{
    static uint8_t *map;

    if (!map)
        map = privcmd_memory(CPUS_MAX / CHAR_BIT);
    memset(map, 0, CPUS_MAX / CHAR_BIT);
    set_xen_guest_handle(operation->cpumap.bitmap, map);
    operation->cpumap.nr_bits = CPUS_MAX;
    return map;
}

static uint8_t *copy_of_cpus(const uint8_t *map)
{
    uint8_t *copy = malloc(CPUS_MAX / CHAR_BIT);

    if (!copy)
        fail(EXIT_FAILED, "no memory");
    return memcpy(copy, map, CPUS_MAX / CHAR_BIT);
}

bool has_cpu(const uint8_t *map, uint32_t cpu)
{
    return map[cpu / CHAR_BIT] >> cpu % CHAR_BIT & 1;
}

const char *cpus_text(const uint8_t *map)
{
    const char *list = "";

    for (uint32_t cpu = 0, first; cpu < CPUS_MAX; cpu++) {
        if (!has_cpu(map, cpu))
            continue;
        first = cpu;
        while (cpu + 1 < CPUS_MAX && has_cpu(map, cpu + 1))
            cpu++;
        list = text(first == cpu ? "%s%s%u" : "%s%s%u-%u", list, *list ? "," : "", first, cpu);
    }
    return *list ? list : "none";
}

bool next_pool(uint32_t from, struct pool *pool)
{
    struct xen_sysctl_cpupool_op operation = {.cpupool_id = from};
    const uint8_t *map = cpu_map(&operation);
    int error = cpupool(XEN_SYSCTL_CPUPOOL_OP_INFO, &operation);

    if (error == -ENOENT)
        return false;
    if (error)
        fail(EXIT_FAILED, "Xen does not list its CPU pools: %s", strerror(-error));
    *pool = (struct pool){.id = operation.cpupool_id,
                          .scheduler = true_scheduler(operation.cpupool_id, operation.sched_id),
                          .domains = operation.n_dom,
                          .cpus = copy_of_cpus(map),
                          .name = name_of("/local/pool", operation.cpupool_id)};
    return true;
}

bool next_domain(uint32_t from, struct domain *domain)
{
    static xen_domctl_getdomaininfo_t *information;
    struct xen_sysctl sysctl = {.cmd = XEN_SYSCTL_getdomaininfolist};
    int error;

    if (from >= DOMID_FIRST_RESERVED)
        return false;
    /* One at a time, with room: newer releases of Xen add to the structure's end. */
    if (!information)
        information = privcmd_memory(PAGE_BYTES);
    sysctl.u.getdomaininfolist.first_domain = from;
    sysctl.u.getdomaininfolist.max_domains = 1;
    set_xen_guest_handle(sysctl.u.getdomaininfolist.buffer, information);
    error = privcmd_sysctl(&sysctl);
    if (error)
        fail(EXIT_FAILED, "Xen does not list its domains: %s", strerror(-error));
    if (!sysctl.u.getdomaininfolist.num_domains)
        return false;
    *domain = (struct domain){.id = information->domain,
                              .pool = information->cpupool,
                              .name = name_of("/local/domain", information->domain)};
    return true;
}

struct pool find_pool(const char *word)
{
    struct nearest nearest = {.word = word};
    struct pool pool;
    int64_t number = -1;

    parse_number(word, UINT32_MAX - 1, &number);
    for (uint32_t from = 0; next_pool(from, &pool); from = pool.id + 1) {
        if (number >= 0 ? pool.id == number : pool.name && !strcmp(pool.name, word))
            return pool;
        if (pool.name && number < 0)
            consider(&nearest, pool.name);
    }
    fail(EXIT_REFUSED, "there is no CPU pool '%s'%s", word, did_you_mean(&nearest));
}

struct domain find_domain(const char *word)
{
    struct nearest nearest = {.word = word};
    struct domain domain;
    int64_t number = -1;

    parse_number(word, DOMID_FIRST_RESERVED - 1, &number);
    for (uint32_t from = 0; next_domain(from, &domain); from = domain.id + 1) {
        if (number >= 0 ? domain.id == number : domain.name && !strcmp(domain.name, word))
            return domain;
        if (domain.name && number < 0)
            consider(&nearest, domain.name);
    }
    if (number < 0 && !store())
        fail(EXIT_FAILED,
             "xenstore is not there, and without it domains have no names; give the "
             "domain's number instead of '%s'",
             word);
    fail(EXIT_REFUSED, "there is no domain '%s'%s", word, did_you_mean(&nearest));
}
