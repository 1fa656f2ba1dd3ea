/* SPDX-License-Identifier: GPL-2.0-only */
/* The clock of the TSC, by which traces, guests and orders go. */
#ifndef LAXITY_TSC_H
#define LAXITY_TSC_H

#include <fcntl.h>
#include <linux/kvm.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <unistd.h>

static inline uint64_t tsc_cycles(void)
{
    uint32_t low, high;
    __asm__ volatile("lfence; rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

/* The rate of the TSC in kHz, which KVM knows better than the kernel tells otherwise; 0: KVM does
 * not tell it, and errno says why. */
static inline uint64_t tsc_khz(void)
{
    int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    int machine = kvm < 0 ? -1 : ioctl(kvm, KVM_CREATE_VM, 0);
    int rate = machine < 0 ? -1 : ioctl(machine, KVM_GET_TSC_KHZ);
    if (machine >= 0)
        close(machine);
    if (kvm >= 0)
        close(kvm);
    return rate > 0 ? (uint64_t)rate : 0;
}

static inline int64_t tsc_ns(uint64_t cycles, uint64_t khz)
{
    return (int64_t)((unsigned __int128)cycles * 1000000 / khz);
}

#endif
