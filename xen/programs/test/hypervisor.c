/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A small Xen and xenstore inside a program of dom0, for its tests on any machine: linked with
 * `--wrap=open,--wrap=ioctl`, and in libxenstore's place. What it is asked to change, it says on
 * standard error, a line each.
 *
 * It has two pools. Pool 0 ("Pool-0") has the scheduler laxity, with dom0 ("Domain-0"), domain 3
 * ("control") and domain 4 ("a-name-that-is-far-too-long-for-one-line-of-a-table"). Pool 1
 * ("stock") has credit2, with domain 5 ("other"). It has CPUs 0 and 2 of three. The environment
 * chooses the rest:
 *
 *   FAKE_INTERFACE  version of the sysctl interface
 *   FAKE_PAGES      of the trace buffers that are there at the start; otherwise there are none
 *   FAKE_BYTES      of records that CPU 0 writes while tracing is on
 */
#include "../privcmd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xen/sys/privcmd.h>
#include <xen/trace.h>
#include <xenstore.h>

#define LAXITY_TYPES_HEADER <stddef.h>
#include <laxity/policy.h>

#include "laxity_op.h"

#define FIRST_FRAME 0x1000
#define CPUS 3
#define MACHINE_PAGES 16384

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_ioctl(int file, unsigned long request, void *argument);

static int machine = -1;
static uint8_t *memory; /* of the machine, from FIRST_FRAME on */

static long environment(const char *name, long otherwise)
{
    return getenv(name) ? strtol(getenv(name), NULL, 0) : otherwise;
}

/* ---- Pools and domains ---- */

static struct laxity_op pool_state = {.policy = "deferrable",
                                      .time_slice_ns = 30000000,
                                      .tick_ns = 10000000,
                                      .accounting_ns = 30000000,
                                      .decisions = 7};

static const struct {
    uint32_t id, pool;
} domains[] = {{0, 0}, {3, 0}, {4, 0}, {5, 1}};

static int cpupool_operation(struct xen_sysctl_cpupool_op *operation)
{
    uint32_t id = operation->cpupool_id;

    if (operation->op == XEN_SYSCTL_CPUPOOL_OP_FREEINFO)
        return 0;
    if (operation->op != XEN_SYSCTL_CPUPOOL_OP_INFO) {
        fprintf(stderr, "cpupool %u: pool %u, scheduler %u, domain %u, CPU %u\n", operation->op, id,
                operation->sched_id, operation->domid, operation->cpu);
        if (operation->op == XEN_SYSCTL_CPUPOOL_OP_CREATE)
            operation->cpupool_id = 2;
        return operation->cpu == 9 ? -ENODEV : 0;
    }
    if (id > 1)
        return -ENOENT;
    operation->sched_id = id ? XEN_SCHEDULER_CREDIT2 : XEN_SCHEDULER_NULL;
    operation->n_dom = id ? 1 : 3;
    operation->cpumap.bitmap.p[0] = id ? 4 : 1;
    return 0;
}

static int list_domain(struct xen_sysctl_getdomaininfolist *list)
{
    list->num_domains = 0;
    for (size_t i = 0; i < sizeof(domains) / sizeof(domains[0]); i++) {
        if (domains[i].id < list->first_domain)
            continue;
        list->buffer.p->domain = domains[i].id;
        list->buffer.p->cpupool = domains[i].pool;
        list->num_domains = 1;
        break;
    }
    return 0;
}

static int scheduler_operation(struct xen_sysctl_scheduler_op *operation)
{
    struct laxity_op *op = (void *)operation->u.sched_arinc653.schedule.p;
    bool puts = operation->cmd == XEN_SYSCTL_SCHEDOP_putinfo;

    if (operation->cpupool_id != 0 || operation->sched_id != XEN_SCHEDULER_LAXITY ||
        puts != (op->command >= LAXITY_OP_SET_POLICY))
        return -EINVAL;
    op->error = LAXITY_OK;
    switch (op->command) {
    case LAXITY_OP_GET_POOL:
        *op = pool_state;
        return 0;
    case LAXITY_OP_GET_DOMAIN:
    case LAXITY_OP_GET_VCPU:
        if (op->vcpu > 1)
            return -ENOENT;
        op->vcpus = 2;
        op->budget_ns = op->vcpu ? 1234567 : 2000000;
        op->period_ns = 10000000;
        op->priority = 4;
        op->weight = 256;
        op->cpu = op->runnable = op->vcpu;
        return 0;
    case LAXITY_OP_SET_POLICY:
        fprintf(stderr, "policy %s\n", op->policy);
        if (!strcmp(op->policy, "credit"))
            op->error = LAXITY_ERROR_POLICY;
        break;
    case LAXITY_OP_SET_SETTINGS:
        fprintf(stderr, "settings %ld %ld %ld %ld\n", op->quantum_ns, op->time_slice_ns,
                op->tick_ns, op->accounting_ns);
        if (op->tick_ns > op->accounting_ns)
            op->error = LAXITY_ERROR_TICK;
        break;
    case LAXITY_OP_SET_DOMAIN:
    case LAXITY_OP_SET_VCPU:
        fprintf(stderr, "%s %u/%u: %ld %ld %ld %u %u %u %u\n",
                op->command == LAXITY_OP_SET_VCPU ? "VCPU" : "domain", op->domid, op->vcpu,
                op->budget_ns, op->period_ns, op->laxity_ns, op->priority, op->weight,
                op->cap_percent, op->extratime);
        if (op->budget_ns > op->period_ns)
            op->error = LAXITY_ERROR_BUDGET;
        break;
    }
    return op->error ? -EINVAL : 0;
}

/* ---- Trace buffers: the table in the first pages, then rings whose pages lie backwards ---- */

static uint32_t pages, table_pages, events = 0x1234000;

static struct t_info *table(void)
{
    return (struct t_info *)memory;
}

static uint32_t ring_frame(uint32_t ring, uint32_t page)
{
    return FIRST_FRAME + table_pages + ring * pages + (pages - 1 - page);
}

static uint8_t *ring_byte(uint32_t offset)
{
    return memory + (size_t)(ring_frame(0, offset / PAGE_BYTES) - FIRST_FRAME) * PAGE_BYTES +
           offset % PAGE_BYTES;
}

static void make_rings(uint32_t wanted)
{
    uint32_t *words = (uint32_t *)memory;

    pages = wanted;
    table_pages = (64 + CPUS * pages) * sizeof(*words) / PAGE_BYTES + 1;
    table()->tbuf_size = pages;
    for (uint32_t cpu = 0, ring = 0; cpu < CPUS; cpu += 2, ring++) {
        table()->mfn_offset[cpu] = 64 + cpu * pages;
        for (uint32_t page = 0; page < pages; page++)
            words[64 + cpu * pages + page] = ring_frame(ring, page);
    }
    /* What was traced before, not far from the ring's end. */
    ((struct t_buf *)ring_byte(0))->prod = pages * PAGE_BYTES - sizeof(struct t_buf) - 64;
}

/* Records of a header and a number that counts. */
static void write_records(void)
{
    struct t_buf *head = (struct t_buf *)ring_byte(0);
    uint32_t size = pages * PAGE_BYTES - sizeof(*head), bytes = environment("FAKE_BYTES", 0);

    if (head->cons != head->prod)
        fprintf(stderr, "the ring was not emptied\n");
    for (uint32_t i = 0; i < bytes / sizeof(uint32_t); i++) {
        uint32_t word = i % 2 ? i / 2 : 1u << TRACE_EXTRA_SHIFT | TRC_SCHED_VERBOSE;

        memcpy(ring_byte(sizeof(*head) + (head->prod + i * sizeof(word)) % size), &word,
               sizeof(word));
    }
    head->prod = (head->prod + bytes) % (2 * size);
}

static int trace_operation(struct xen_sysctl_tbuf_op *operation)
{
    switch (operation->cmd) {
    case XEN_SYSCTL_TBUFOP_get_info:
        operation->evt_mask = events;
        operation->buffer_mfn = pages ? FIRST_FRAME : 0;
        operation->size = table_pages * PAGE_BYTES;
        return 0;
    case XEN_SYSCTL_TBUFOP_set_size:
        fprintf(stderr, "trace size %u\n", operation->size);
        make_rings(operation->size);
        return 0;
    case XEN_SYSCTL_TBUFOP_set_evt_mask:
        fprintf(stderr, "trace mask %x\n", operation->evt_mask);
        events = operation->evt_mask;
        return 0;
    case XEN_SYSCTL_TBUFOP_set_cpu_mask:
        fprintf(stderr, "trace CPUs %u %x\n", operation->cpu_mask.nr_bits,
                operation->cpu_mask.bitmap.p[0]);
        return 0;
    case XEN_SYSCTL_TBUFOP_enable:
        fprintf(stderr, "trace on\n");
        write_records();
        return 0;
    case XEN_SYSCTL_TBUFOP_disable:
        fprintf(stderr, "trace off\n");
        return 0;
    default:
        return -EINVAL;
    }
}

/* ---- The doors ---- */

static int carry_out(struct xen_sysctl *sysctl)
{
    if (sysctl->interface_version != environment("FAKE_INTERFACE", XEN_SYSCTL_INTERFACE_VERSION))
        return -EACCES;
    switch (sysctl->cmd) {
    case XEN_SYSCTL_sched_id:
        return 0;
    case XEN_SYSCTL_physinfo:
        sysctl->u.physinfo = (struct xen_sysctl_physinfo){
            .nr_cpus = 2, .max_cpu_id = CPUS - 1, .free_pages = MACHINE_PAGES};
        return 0;
    case XEN_SYSCTL_tbuf_op:
        return trace_operation(&sysctl->u.tbuf_op);
    case XEN_SYSCTL_getdomaininfolist:
        return list_domain(&sysctl->u.getdomaininfolist);
    case XEN_SYSCTL_cpupool_op:
        return cpupool_operation(&sysctl->u.cpupool_op);
    case XEN_SYSCTL_scheduler_op:
        return scheduler_operation(&sysctl->u.scheduler_op);
    default:
        return -ENOSYS;
    }
}

static int map_frames(const privcmd_mmapbatch_v2_t *batch)
{
    for (size_t i = 0; i < batch->num; i++) {
        void *wanted = (void *)(uintptr_t)(batch->addr + i * PAGE_BYTES);
        off_t offset = (off_t)(batch->arr[i] - FIRST_FRAME) * PAGE_BYTES;

        batch->err[i] = batch->arr[i] < FIRST_FRAME ||
                                mmap(wanted, PAGE_BYTES, PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_FIXED, machine, offset) == MAP_FAILED
                            ? -EINVAL
                            : 0;
    }
    return 0;
}

int __wrap_open(const char *path, int flags, ...)
{
    if (strcmp(path, "/dev/xen/privcmd"))
        return __real_open(path, flags);
    machine = memfd_create("machine", 0);
    if (machine < 0 || ftruncate(machine, MACHINE_PAGES * (off_t)PAGE_BYTES))
        return -1;
    memory = mmap(NULL, MACHINE_PAGES * (size_t)PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
                  machine, 0);
    if (environment("FAKE_PAGES", 0))
        make_rings(environment("FAKE_PAGES", 0));
    return machine;
}

int __wrap_ioctl(int file, unsigned long request, void *argument)
{
    const privcmd_hypercall_t *call = argument;
    int result = -EINVAL;

    (void)file;
    if (request == IOCTL_PRIVCMD_MMAPBATCH_V2)
        result = map_frames(argument);
    else if (request == IOCTL_PRIVCMD_HYPERCALL && call->op == __HYPERVISOR_sysctl)
        result = carry_out((struct xen_sysctl *)(uintptr_t)call->arg[0]);
    else if (request == IOCTL_PRIVCMD_HYPERCALL && call->op == __HYPERVISOR_xen_version)
        result = 4 << 16 | 11;
    if (result >= 0)
        return result;
    errno = -result;
    return -1;
}

struct xs_handle *xs_open(unsigned long flags)
{
    (void)flags;
    return (struct xs_handle *)&machine;
}

void *xs_read(struct xs_handle *handle, xs_transaction_t transaction, const char *path,
              unsigned int *length)
{
    static const char *const names[][2] = {
        {"/local/pool/0/name", "Pool-0"},
        {"/local/pool/1/name", "stock"},
        {"/local/domain/0/name", "Domain-0"},
        {"/local/domain/3/name", "control"},
        {"/local/domain/4/name", "a-name-that-is-far-too-long-for-one-line-of-a-table"},
        {"/local/domain/5/name", "oth\"er"},
    };

    (void)handle, (void)transaction, (void)length;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!strcmp(names[i][0], path))
            return strdup(names[i][1]);
    return NULL;
}

bool xs_write(struct xs_handle *handle, xs_transaction_t transaction, const char *path,
              const void *data, unsigned int length)
{
    (void)handle, (void)transaction;
    fprintf(stderr, "xenstore %s = %.*s\n", path, (int)length, (const char *)data);
    return true;
}

bool xs_rm(struct xs_handle *handle, xs_transaction_t transaction, const char *path)
{
    (void)handle, (void)transaction;
    fprintf(stderr, "xenstore rm %s\n", path);
    return true;
}
