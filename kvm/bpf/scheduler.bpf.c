/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Laxity's policies as a scheduler of Linux, through sched_ext: the other half of policy.bpf.c.
 *
 * Threads of VCPUs, which the loader names beforehand (`threads`), are scheduled here as soon as
 * they ask for SCHED_EXT. A thread that is ready is in no queue of the kernel's: the policy's are
 * the only ones. `dispatch` asks the policy who runs, and hands that thread to the CPU for as long
 * as it takes; a timer, or a wake-up, takes it off. All other tasks stay in the kernel's classes.
 *
 * Locks. There is one CPU. The kernel calls all but `call` and the timer with that CPU's run queue
 * locked and interrupts off; `call` turns them off, and the timer touches nothing of the policy's.
 */
#include <stdbool.h>
#include <stdint.h>

#include "kernel.h"
#include "shared.h"

#define CPU 0
#define NEVER INT64_MAX
#define THREADS_MAX 256
/* The longest that the kernel lets a scheduler leave a thread that is ready. */
#define STARVED_MS 30000

char LICENSE[] SEC("license") = "GPL";

struct {
    __uint(type, MAP_TYPE_ARENA);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, SCX_ARENA_PAGES);
} arena SEC(".maps");

/* From threads to VCPUs in the arena. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, THREADS_MAX);
    __type(key, uint32_t);
    __type(value, uint64_t);
} threads SEC(".maps");

struct alarm {
    struct bpf_timer timer;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, uint32_t);
    __type(value, struct alarm);
} alarms SEC(".maps");

struct scx_state state;

uint64_t policy_init(uint64_t instance, uint64_t settings);
uint64_t policy_add_cpu(uint64_t instance, uint64_t cpu, int64_t now);
uint64_t policy_add_domain(uint64_t instance, uint64_t domain, uint64_t parameters);
uint64_t policy_add_vcpu(uint64_t instance, uint64_t vcpu, uint64_t parameters, int64_t now);
uint64_t policy_set_settings(uint64_t instance, uint64_t settings, int64_t now);
uint64_t policy_set_domain(uint64_t instance, uint64_t domain, uint64_t parameters, int64_t now);
uint64_t policy_set_vcpu(uint64_t instance, uint64_t vcpu, uint64_t parameters, int64_t now);
uint64_t policy_set_phase(uint64_t instance, uint64_t vcpu, int64_t phase_ns, int64_t now);
uint64_t policy_remove_vcpu(uint64_t instance, uint64_t vcpu, int64_t now);
uint64_t policy_wake(uint64_t instance, uint64_t vcpu, int64_t now);
uint64_t policy_sleep(uint64_t instance, uint64_t vcpu, int64_t now);
uint64_t policy_block(uint64_t instance, uint64_t vcpu);
uint64_t policy_is_current(uint64_t instance, uint64_t vcpu);
uint64_t policy_yield(uint64_t instance, uint64_t vcpu, int64_t now);
uint64_t policy_event(uint64_t instance, uint64_t vcpu, int64_t now);
uint64_t policy_timer(uint64_t instance, uint64_t cpu, int64_t now);
uint64_t policy_account(uint64_t instance, int64_t now);
uint64_t policy_schedule(uint64_t instance, uint64_t cpu, int64_t now);

/* The verifier lets a program use the arena that it mentions. */
#define USES_ARENA() __asm__ volatile("" : : "r"(&arena))

static struct scx_requests __arena *requests_of_policy(void)
{
    return (struct scx_requests __arena *)state.requests;
}

static uint64_t vcpu_of(const struct task_struct *p)
{
    uint32_t thread = (uint32_t)p->pid;
    uint64_t *vcpu = bpf_map_lookup_elem(&threads, &thread);
    return vcpu ? *vcpu : 0;
}

/* Has done what the policy asked for: sets the alarm, and has the CPU decide. */
static void settle(void)
{
    struct scx_requests __arena *requests = requests_of_policy();
    int64_t at_ns = requests->cpu[CPU].until_ns;
    struct alarm *alarm;
    uint32_t key = CPU;

    if (requests->cpu[CPU].kicked)
        scx_bpf_kick_cpu(CPU, SCX_KICK_PREEMPT);
    if (at_ns > requests->cpu[CPU].timer_ns)
        at_ns = requests->cpu[CPU].timer_ns;
    if (at_ns > requests->account_ns)
        at_ns = requests->account_ns;
    /* An alarm that is no longer asked for rings all the same: bpf_timer_cancel would forget what
     * to call. */
    if (at_ns == state.armed_ns || at_ns == NEVER)
        return;
    alarm = bpf_map_lookup_elem(&alarms, &key);
    if (!alarm)
        return;
    state.armed_ns = at_ns;
    bpf_timer_start(&alarm->timer, (uint64_t)at_ns, TIMER_ABSOLUTE);
}

/* The CPU decides: that serves whatever is due. */
static int ring(void *map, uint32_t *key, struct alarm *alarm)
{
    (void)map, (void)key, (void)alarm;
    state.armed_ns = NEVER;
    scx_bpf_kick_cpu(CPU, SCX_KICK_PREEMPT);
    return 0;
}

/* Without one of one's own, the kernel hands a thread that wakes to an idle CPU, past the policy.
 */
SEC("struct_ops/on_select_cpu")
int32_t BPF_PROG(on_select_cpu, struct task_struct *p, int32_t previous, uint64_t flags)
{
    return previous;
}

SEC("struct_ops/on_enqueue")
void BPF_PROG(on_enqueue, struct task_struct *p, uint64_t flags)
{
    /* A thread that asked for SCHED_EXT without having been named runs as in a class of its own,
     * in turns. */
    if (!vcpu_of(p))
        scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, 1000000, flags);
}

SEC("struct_ops/on_runnable")
void BPF_PROG(on_runnable, struct task_struct *p, uint64_t flags)
{
    uint64_t vcpu = vcpu_of(p);
    USES_ARENA();
    if (!vcpu)
        return;
    policy_wake(state.instance, vcpu, (int64_t)bpf_ktime_get_ns());
    settle();
}

SEC("struct_ops/on_quiescent")
void BPF_PROG(on_quiescent, struct task_struct *p, uint64_t flags)
{
    uint64_t vcpu = vcpu_of(p);
    USES_ARENA();
    if (!vcpu)
        return;
    /* The kernel dispatches next if the running one blocks. */
    if (!policy_block(state.instance, vcpu))
        policy_sleep(state.instance, vcpu, (int64_t)bpf_ktime_get_ns());
    settle();
}

SEC("struct_ops/on_dispatch")
void BPF_PROG(on_dispatch, int32_t cpu, struct task_struct *previous)
{
    struct scx_requests __arena *requests = requests_of_policy();
    int64_t now = (int64_t)bpf_ktime_get_ns();
    struct task_struct *p;
    int thread;

    USES_ARENA();
    if (requests->account_ns <= now)
        policy_account(state.instance, now);
    if (requests->cpu[CPU].timer_ns <= now)
        policy_timer(state.instance, CPU, now);
    thread = (int)policy_schedule(state.instance, CPU, now);
    state.decisions++;
    p = thread ? bpf_task_from_pid(thread) : NULL;
    if (p) {
        if (previous && previous->pid == thread)
            scx_bpf_task_set_slice(p, SCX_SLICE_INF);
        else
            scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_INF, 0);
        bpf_task_release(p);
    }
    settle();
}

/* The thread is a VCPU's no more: the policy forgets it. */
static void leave(const struct task_struct *p, uint64_t vcpu)
{
    uint32_t thread = (uint32_t)p->pid;
    int64_t now = (int64_t)bpf_ktime_get_ns();

    policy_sleep(state.instance, vcpu, now);
    if (policy_is_current(state.instance, vcpu))
        policy_schedule(state.instance, CPU, now);
    policy_remove_vcpu(state.instance, vcpu, now);
    bpf_map_delete_elem(&threads, &thread);
    scx_bpf_kick_cpu(CPU, SCX_KICK_PREEMPT);
    settle();
}

SEC("struct_ops/on_running")
void BPF_PROG(on_running, struct task_struct *p)
{
    uint64_t vcpu = vcpu_of(p);
    USES_ARENA();
    if (!vcpu)
        return;
    /* The kernel itself gives the CPU to threads that exit, without asking, since they cannot be
     * found by number any more. */
    if (p->flags & PF_EXITING)
        leave(p, vcpu);
    else
        /* An alarm or a kick while a task of a higher class ran had no effect: here is another. */
        settle();
}

SEC("struct_ops/on_disable")
void BPF_PROG(on_disable, struct task_struct *p)
{
    uint64_t vcpu = vcpu_of(p);
    USES_ARENA();
    if (vcpu)
        leave(p, vcpu);
}

SEC("struct_ops.s/on_init")
int32_t BPF_PROG(on_init)
{
    uint32_t key = CPU;
    struct alarm *alarm = bpf_map_lookup_elem(&alarms, &key);

    if (!alarm || bpf_timer_init(&alarm->timer, &alarms, CLOCK_MONOTONIC))
        return -1;
    return bpf_timer_set_callback(&alarm->timer, ring) ? -1 : 0;
}

SEC("struct_ops/on_exit")
void BPF_PROG(on_exit, struct scx_exit_info *info)
{
    state.exit_kind = (uint64_t)info->kind;
}

SEC(".struct_ops.link")
struct sched_ext_ops scheduler = {
    .select_cpu = (void *)on_select_cpu,
    .enqueue = (void *)on_enqueue,
    .dispatch = (void *)on_dispatch,
    .runnable = (void *)on_runnable,
    .running = (void *)on_running,
    .quiescent = (void *)on_quiescent,
    .disable = (void *)on_disable,
    .init = (void *)on_init,
    .exit = (void *)on_exit,
    .flags = SCX_OPS_SWITCH_PARTIAL | SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_MIGRATION_DISABLED,
    .timeout_ms = STARVED_MS,
    .name = "laxity",
};

static uint64_t serve(uint64_t operation, uint64_t object, uint64_t argument, int64_t now)
{
    switch (operation) {
    case SCX_INIT:
        return policy_init(object, argument);
    case SCX_ADD_CPU:
        return policy_add_cpu(state.instance, object, now);
    case SCX_ADD_DOMAIN:
        return policy_add_domain(state.instance, object, argument);
    case SCX_ADD_VCPU:
        return policy_add_vcpu(state.instance, object, argument, now);
    case SCX_SET_SETTINGS:
        return policy_set_settings(state.instance, argument, now);
    case SCX_SET_DOMAIN:
        return policy_set_domain(state.instance, object, argument, now);
    case SCX_SET_VCPU:
        return policy_set_vcpu(state.instance, object, argument, now);
    case SCX_SET_PHASE:
        return policy_set_phase(state.instance, object, (int64_t)argument, now);
    case SCX_LEAVE:
        return policy_remove_vcpu(state.instance, object, now);
    case SCX_WAKE:
        return policy_wake(state.instance, object, now);
    case SCX_BLOCK:
        return policy_block(state.instance, object);
    case SCX_SLEEP:
        return policy_sleep(state.instance, object, now);
    case SCX_YIELD:
        return policy_yield(state.instance, object, now);
    case SCX_EVENT:
        return policy_event(state.instance, object, now);
    case SCX_TIMER:
        return policy_timer(state.instance, argument, now);
    case SCX_ACCOUNT:
        return policy_account(state.instance, now);
    case SCX_SCHEDULE:
        return policy_schedule(state.instance, argument, now);
    default:
        return ~0ull;
    }
}

/* The loader's calls, and those of tests, which attach nothing. */
SEC("syscall")
int call(struct scx_call *call)
{
    uint64_t operation = call->operation, object = call->object, argument = call->argument;
    int64_t now = call->now;
    unsigned long flags;

    USES_ARENA();
    bpf_local_irq_save(&flags);
    if (!now)
        now = (int64_t)bpf_ktime_get_ns();
    call->result = serve(operation, object, argument, now);
    bpf_local_irq_restore(&flags);
    return 0;
}
