/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the scheduler uses of Linux 7's sched_ext, as far as it does. libbpf finds the fields of
 * structures by name in the running kernel's BTF, and functions by name and type.
 */
#ifndef LAXITY_SCX_KERNEL_H
#define LAXITY_SCX_KERNEL_H

#include <linux/types.h>

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define __arena __attribute__((address_space(1)))

/* enum bpf_map_type, and bits of bpf_timer_start, in kernels newer than the headers here. */
#define MAP_TYPE_ARENA 33
#define TIMER_ABSOLUTE 1
#define CLOCK_MONOTONIC 1

#define SCX_OPS_KEEP_BUILTIN_IDLE (1ull << 0)
#define SCX_OPS_ENQ_LAST (1ull << 1)
#define SCX_OPS_ENQ_EXITING (1ull << 2)
#define SCX_OPS_ENQ_MIGRATION_DISABLED (1ull << 4)
#define SCX_DSQ_LOCAL ((1ull << 63) | 2)
#define SCX_SLICE_INF (~0ull)
#define SCX_KICK_IDLE 1
#define SCX_KICK_PREEMPT 2

#define SCX_ENQ_LAST (1ull << 41) /* nothing else would run on the CPU */
#define SCX_DEQ_SLEEP 1           /* of a thread that blocks by itself */

#define SCX_TASK_QUEUED 1 /* of sched_ext_entity.flags */

#define PF_EXITING 4 /* of task_struct.flags */

#define SCHED_EXT 7

struct cpumask {
    unsigned long bits[1];
} __attribute__((preserve_access_index));

struct sched_ext_entity {
    __u32 flags;
    __u32 weight;
    __u64 dsq_vtime;
} __attribute__((preserve_access_index));

struct task_struct {
    int pid;
    unsigned int flags;
    unsigned int policy;
    unsigned short migration_disabled;
    const struct cpumask *cpus_ptr;
    struct sched_ext_entity scx;
} __attribute__((preserve_access_index));

enum scx_exit_kind { SCX_EXIT_NONE };

struct scx_exit_info {
    enum scx_exit_kind kind;
} __attribute__((preserve_access_index));

struct sched_ext_ops {
    __s32 (*select_cpu)(struct task_struct *p, __s32 prev_cpu, __u64 wake_flags);
    void (*enqueue)(struct task_struct *p, __u64 enq_flags);
    void (*dispatch)(__s32 cpu, struct task_struct *prev);
    void (*running)(struct task_struct *p);
    void (*stopping)(struct task_struct *p, bool runnable);
    void (*quiescent)(struct task_struct *p, __u64 deq_flags);
    __s32 (*yield)(struct task_struct *from, struct task_struct *to);
    void (*set_cpumask)(struct task_struct *p, const struct cpumask *cpumask);
    void (*update_idle)(__s32 cpu, bool idle);
    void (*enable)(struct task_struct *p);
    void (*disable)(struct task_struct *p);
    __s32 (*init)(void);
    void (*exit)(struct scx_exit_info *info);
    __u64 flags;
    __u32 timeout_ms;
    char name[128];
};

/* Weak: a kernel without sched_ext loads the calls of tests all the same. */
extern void scx_bpf_dsq_insert(struct task_struct *p, __u64 dsq_id, __u64 slice,
                               __u64 enq_flags) __ksym __weak;
extern void scx_bpf_dsq_insert_vtime(struct task_struct *p, __u64 dsq_id, __u64 slice, __u64 vtime,
                                     __u64 enq_flags) __ksym __weak;
extern __s32 scx_bpf_create_dsq(__u64 dsq_id, __s32 node) __ksym __weak;
extern bool scx_bpf_dsq_move_to_local(__u64 dsq_id) __ksym __weak;
extern __s32 scx_bpf_dsq_nr_queued(__u64 dsq_id) __ksym __weak;
extern struct task_struct *scx_bpf_dsq_peek(__u64 dsq_id) __ksym __weak;
extern bool scx_bpf_task_set_dsq_vtime(struct task_struct *p, __u64 vtime) __ksym __weak;
extern __s32 scx_bpf_select_cpu_dfl(struct task_struct *p, __s32 prev_cpu, __u64 wake_flags,
                                    bool *is_idle) __ksym __weak;
extern __s32 scx_bpf_pick_idle_cpu(const struct cpumask *allowed, __u64 flags) __ksym __weak;
extern bool scx_bpf_task_set_slice(struct task_struct *p, __u64 slice) __ksym __weak;
extern void scx_bpf_kick_cpu(__s32 cpu, __u64 flags) __ksym __weak;
extern __s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym __weak;
extern void scx_bpf_error_bstr(char *form, unsigned long long *data,
                               __u32 data_bytes) __ksym __weak;
extern bool bpf_cpumask_test_cpu(__u32 cpu, const struct cpumask *cpumask) __ksym;
extern struct task_struct *bpf_task_from_pid(__s32 pid) __ksym;
extern void bpf_task_release(struct task_struct *p) __ksym;
extern void bpf_local_irq_save(unsigned long *flags) __ksym;
extern void bpf_local_irq_restore(unsigned long *flags) __ksym;

#endif
