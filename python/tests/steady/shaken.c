/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Preloaded into QEMU, makes the least likely of a busy computer happen each time: the thread of
 * the processors loses its CPU when it leaves what it executes, as it does where a processor halts,
 * and the main loop is woken and runs meanwhile.
 */
#include <dlfcn.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WATCHED_MAX 16
/* For a main loop that is kept from running. */
#define PATIENCE_NS 20000000

/* What the main loop waits for: its own events among them. */
static int watched[WATCHED_MAX];
static atomic_int watched_count;
static atomic_long polls;

int ppoll(struct pollfd *files, nfds_t count, const struct timespec *limit, const sigset_t *signals)
{
    typedef int poll_function(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);
    if (syscall(SYS_gettid) == getpid()) {
        nfds_t kept = count < WATCHED_MAX ? count : WATCHED_MAX;
        for (nfds_t i = 0; i < kept; i++)
            watched[i] = files[i].fd;
        watched_count = (int)kept;
        polls++;
    }
    return ((poll_function *)dlsym(RTLD_NEXT, "ppoll"))(files, count, limit, signals);
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* Debian builds QEMU with checks, which call siglongjmp so. */
void __longjmp_chk(struct __jmp_buf_tag to[1], int value)
{
    typedef void jump_function(struct __jmp_buf_tag *, int);
    long before = polls;
    uint64_t one = 1;
    for (int i = 0; i < watched_count; i++) {
        /* What is no event refuses it. */
        ssize_t written = write(watched[i], &one, sizeof(one));
        (void)written;
    }
    for (int64_t begin_ns = now_ns(); polls == before && now_ns() - begin_ns < PATIENCE_NS;)
        ;
    ((jump_function *)dlsym(RTLD_NEXT, "__longjmp_chk"))(to, value);
    __builtin_unreachable();
}
