/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A Xen that listens inside a guest's program, for its tests on any machine: linked with
 * `--wrap=open,--wrap=ioctl`. What it is told, it says on standard error, a line each:
 * "told LEFT_NS ORDER REALTIME_NS". The environment has in FAKE_ERROR the error that it gives back,
 * if any.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <time.h>
#include <xen/xen.h>

#include <xen/sys/privcmd.h>

#include "laxity_op.h"

int __real_open(const char *path, int flags, ...);
int __real_ioctl(int file, unsigned long request, void *argument);
int __wrap_open(const char *path, int flags, ...);
int __wrap_ioctl(int file, unsigned long request, void *argument);

static int machine = -1;

int __wrap_open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    int mode = flags & O_CREAT ? va_arg(arguments, int) : 0;
    va_end(arguments);
    if (strcmp(path, "/dev/xen/privcmd"))
        return __real_open(path, flags, mode);
    return machine = eventfd(0, EFD_CLOEXEC);
}

int __wrap_ioctl(int file, unsigned long request, void *argument)
{
    const privcmd_hypercall_t *call = argument;
    if (file != machine || request != IOCTL_PRIVCMD_HYPERCALL)
        return __real_ioctl(file, request, argument);
    if (call->op != 29 /* sched_op, since Xen 3.1 */ || call->arg[0] != SCHEDOP_laxity) {
        errno = EINVAL;
        return -1;
    }
    const struct laxity_work *work = (const void *)(uintptr_t)call->arg[1];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    dprintf(2, "told %" PRId64 " %" PRId64 " %lld%09ld\n", work->left_ns, work->order,
            (long long)now.tv_sec, now.tv_nsec);
    if (!getenv("FAKE_ERROR"))
        return 0;
    errno = atoi(getenv("FAKE_ERROR"));
    return -1;
}
