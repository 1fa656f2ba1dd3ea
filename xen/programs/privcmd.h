/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The hypervisor, as a program in dom0 reaches it through /dev/xen/privcmd: hypercalls, memory that
 * the hypervisor may read and write, and the mapping of its own pages.
 *
 * What runs on real hosts makes sysctls only, so there is one interface version to agree on.
 */
#ifndef LAXITY_PRIVCMD_H
#define LAXITY_PRIVCMD_H

/* Xen's headers give the tools' interfaces only to those who say that they are tools. */
#define __XEN_TOOLS__

#include <stddef.h>
#include <stdint.h>
#include <stdnoreturn.h>
#include <xen/xen.h>

#include <xen/domctl.h>
#include <xen/sysctl.h>

/* Exit codes: the command or its environment failed; its input was wrong, or was refused. */
enum { EXIT_FAILED = 1, EXIT_REFUSED = 2 };

#define PAGE_BYTES 4096u

/* Ends the program with "PROGRAM: MESSAGE" on standard error. */
noreturn void fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Before all else here. Ends the program where no hypervisor, or one that is too different, is. */
void privcmd_open(void);

/* Any hypercall: its answer, or its negative errno. Arguments that it does not have are 0. */
long privcmd_hypercall(uint64_t number, uint64_t first, uint64_t second, uint64_t third);

/*
 * One sysctl; the interface's version is filled in here, and what comes back is in `operation`.
 * 0, or the negative errno of the hypervisor.
 */
int privcmd_sysctl(struct xen_sysctl *operation);

/* The same for one domctl. */
int privcmd_domctl(struct xen_domctl *operation);

/*
 * Zeroed, page-aligned memory for the handles in a sysctl: it stays in memory, as the hypervisor
 * does not wait for pages. It is never given back; ends the program when there is none.
 */
void *privcmd_memory(size_t bytes);

/*
 * Maps `count` of Xen's own pages, given by machine frame, one behind the other. `protection` as
 * for mmap. NULL, with errno, when that fails.
 */
void *privcmd_map(const xen_pfn_t *frames, size_t count, int protection);

#endif
