/* SPDX-License-Identifier: GPL-2.0-only */
/* Hypercalls and foreign pages by the ioctls of Linux's privcmd driver. */
#include "privcmd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <xen/sys/privcmd.h>
#include <xen/version.h>

#define DEVICE "/dev/xen/privcmd"

/* The releases of Xen whose sysctl interface is the one that this is built for. */
#if XEN_SYSCTL_INTERFACE_VERSION != 0x15
#error "the layouts used here were checked for version 0x15 of the sysctl interface only"
#endif
#define XEN_RELEASES "Xen 4.17 to 4.20"

static int device = -1;

noreturn void fail(int code, const char *format, ...)
{
    va_list arguments;

    fprintf(stderr, "%s: ", program_invocation_short_name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(code);
}

long privcmd_hypercall(uint64_t number, uint64_t first, uint64_t second, uint64_t third)
{
    privcmd_hypercall_t call = {.op = number, .arg = {first, second, third}};
    int result = ioctl(device, IOCTL_PRIVCMD_HYPERCALL, &call);

    return result < 0 ? -errno : result;
}

int privcmd_sysctl(struct xen_sysctl *operation)
{
    static struct xen_sysctl *shared;
    long result;

    if (!shared)
        shared = privcmd_memory(sizeof(*shared));
    *shared = *operation;
    shared->interface_version = XEN_SYSCTL_INTERFACE_VERSION;
    result = privcmd_hypercall(__HYPERVISOR_sysctl, (uintptr_t)shared, 0, 0);
    *operation = *shared;
    return result < 0 ? (int)result : 0;
}

int privcmd_domctl(struct xen_domctl *operation)
{
    static struct xen_domctl *shared;
    long result;

    if (!shared)
        shared = privcmd_memory(sizeof(*shared));
    *shared = *operation;
    shared->interface_version = XEN_DOMCTL_INTERFACE_VERSION;
    result = privcmd_hypercall(__HYPERVISOR_domctl, (uintptr_t)shared, 0, 0);
    *operation = *shared;
    return result < 0 ? (int)result : 0;
}

/* Ends the program if this hypervisor does not take our sysctls at all. */
static void check_interface(void)
{
    struct xen_sysctl sysctl = {.cmd = XEN_SYSCTL_sched_id};
    int error = privcmd_sysctl(&sysctl);
    long release;

    if (error == -EACCES) {
        release = privcmd_hypercall(__HYPERVISOR_xen_version, XENVER_version, 0, 0);
        fail(EXIT_FAILED,
             "this hypervisor, Xen %ld.%ld, has another sysctl interface than 0x%x; this program "
             "is for " XEN_RELEASES,
             release >> 16, release & 0xffff, XEN_SYSCTL_INTERFACE_VERSION);
    }
    if (error)
        fail(EXIT_FAILED, "the hypervisor takes no sysctl from here: %s", strerror(-error));
}

void privcmd_open(void)
{
    device = open(DEVICE, O_RDWR | O_CLOEXEC);
    if (device < 0 && (errno == ENOENT || errno == ENXIO || errno == ENODEV))
        fail(EXIT_FAILED, "no " DEVICE ": this is not a Xen dom0");
    if (device < 0)
        fail(EXIT_FAILED, DEVICE ": %s", strerror(errno));
    check_interface();
}

void *privcmd_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED | MAP_POPULATE, -1, 0);

    if (memory == MAP_FAILED)
        fail(EXIT_FAILED, "no %zu bytes of locked memory: %s", bytes, strerror(errno));
    return memory;
}

void *privcmd_map(const xen_pfn_t *frames, size_t count, int protection)
{
    void *address = mmap(NULL, count * PAGE_BYTES, protection, MAP_SHARED, device, 0);
    int *errors = calloc(count, sizeof(*errors));
    privcmd_mmapbatch_v2_t batch = {
        .num = count, .dom = DOMID_XEN, .addr = (uintptr_t)address, .arr = frames, .err = errors};
    int error = 0;

    if (address == MAP_FAILED || !errors)
        error = ENOMEM;
    else if (ioctl(device, IOCTL_PRIVCMD_MMAPBATCH_V2, &batch))
        error = errno;
    /* The ioctl succeeds also when single frames could not be mapped. */
    for (size_t i = 0; !error && i < count; i++)
        error = -errors[i];
    free(errors);
    if (!error)
        return address;
    if (address != MAP_FAILED)
        munmap(address, count * PAGE_BYTES);
    errno = error;
    return NULL;
}
