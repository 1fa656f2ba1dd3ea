// Lets the kernel note which pages of a guest's memory were written. QEMU is started with this library preloaded
// (LD_PRELOAD) and stays as it is: where it maps the file that is the guest's memory, the mapping is registered
// with userfaultfd for asynchronous write protection (Linux 6.7). From then on the PAGEMAP_SCAN ioctl says, from
// outside and in one step, which pages were written since it was asked last. See userfaultfd(2) and the kernel's
// Documentation/admin-guide/mm/pagemap.rst.
//
// LAXITY_GUEST_MEMORY names the file. What fails is said on standard error and nothing else: the daemon sees that
// nothing is noted, and compares memory instead.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// Linux 6.7; Debian 12's headers are older.
#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

static int is_guest_memory(int file)
{
    const char *path = getenv("LAXITY_GUEST_MEMORY");
    struct stat named, mapped;

    return path && stat(path, &named) == 0 && fstat(file, &mapped) == 0 && named.st_dev == mapped.st_dev &&
           named.st_ino == mapped.st_ino;
}

// The descriptor stays open as long as QEMU lives: closing it would end the registration.
static void track(void *address, size_t length)
{
    struct uffdio_api api = {
        .api = UFFD_API,
        .features = UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED | UFFD_FEATURE_WP_HUGETLBFS_SHMEM,
    };
    struct uffdio_register registration = {
        .range = {.start = (unsigned long)address, .len = length},
        .mode = UFFDIO_REGISTER_MODE_WP,
    };
    int faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);

    if (faults < 0 || ioctl(faults, UFFDIO_API, &api) < 0 || ioctl(faults, UFFDIO_REGISTER, &registration) < 0)
        fprintf(stderr, "laxity: writes to the guest's memory cannot be tracked: %s\n", strerror(errno));
}

void *mmap(void *address, size_t length, int protection, int flags, int file, off_t offset)
{
    void *mapped = (void *)syscall(SYS_mmap, address, length, protection, flags, file, offset);

    if (mapped != MAP_FAILED && file >= 0 && (protection & PROT_WRITE) && (flags & MAP_SHARED) &&
        is_guest_memory(file)) {
        int error = errno;
        track(mapped, length);
        errno = error;
    }
    return mapped;
}

void *mmap64(void *address, size_t length, int protection, int flags, int file, off_t offset)
    __attribute__((alias("mmap")));
