/* SPDX-License-Identifier: GPL-2.0-only */

/* Xen's headers give those who do not say what they know the calls of its first version. */
#define __XEN_INTERFACE_VERSION__ __XEN_LATEST_INTERFACE_VERSION__

#include "tell.h"

#include "program.h"

#include "laxity_op.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <xen/xen.h>

#include <xen/sys/privcmd.h>

#define DEVICE "/dev/xen/privcmd"

static int device = -1;

static int call(struct laxity_work *work)
{
    privcmd_hypercall_t hypercall = {.op = __HYPERVISOR_sched_op,
                                     .arg = {SCHEDOP_laxity, (uintptr_t)work}};
    return ioctl(device, IOCTL_PRIVCMD_HYPERCALL, &hypercall);
}

bool tell_open(const char *module, struct failure *failure)
{
    if (device >= 0)
        return true;
    if (!access(module, F_OK) && !load_module(module, "unrestricted=1", failure))
        return false;
    device = open(DEVICE, O_RDWR | O_CLOEXEC);
    if (device < 0)
        return fail(failure, "tells: " DEVICE " cannot be opened: %s", strerror(errno));
    /* A policy that makes nothing of it is no fault: it can be changed while the guest runs. */
    struct laxity_work none = {.left_ns = INT64_MAX, .order = INT64_MAX};
    if (!call(&none) || errno == EOPNOTSUPP)
        return true;
    fail(failure, "tells: the hypervisor takes no deadlines from here: %s", strerror(errno));
    close(device);
    device = -1;
    return false;
}

void tell_work(int64_t left_ns, int64_t order)
{
    struct laxity_work work = {.left_ns = left_ns, .order = order};
    call(&work);
}
