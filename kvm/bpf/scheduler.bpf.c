/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Laxity's policies as a scheduler of Linux, through sched_ext: the other half of policy.bpf.c.
 *
 * Threads of VCPUs, which the loader names beforehand (`threads`), are scheduled here as soon as
 * they ask for SCHED_EXT. A thread that is ready is in no queue of the kernel's: the policy's are
 * the only ones. `dispatch` asks the policy who runs, and hands that thread to its CPU for as long
 * as it takes; a timer, or a wake-up, takes it off. All other tasks stay in the kernel's classes.
 *
 * A VCPU is `on_cpu` from the decision for it until its thread waits or sleeps again, and until
 * then no other CPU's decision is for it. One that the kernel keeps on its CPU (migrate_disable)
 * stays so while it waits. The kernel drops what is dispatched if the thread has
 * been taken off its queue meanwhile (to change its affinity, say). Therefore a VCPU that comes to
 * wait while it is its CPU's current, and one that runs where it is not, call for a decision.
 *
 * Locks. One lock guards the policy's instance, with all its CPUs, and what it asked for. Each of
 * the callbacks but the timer's is called by the kernel with interrupts off, most of them with a
 * run queue locked, and `call` turns interrupts off; so the lock is the innermost one, and its
 * holder is not interrupted. The timer touches nothing of the policy's.
 */
#include <stdbool.h>
#include <stdint.h>

#include "kernel.h"
#include "shared.h"

#define NEVER INT64_MAX
#define THREADS_MAX 256
/* The longest that the kernel lets a scheduler leave a thread that is ready. */
#define STARVED_MS 30000
/* Turns of two nested loops that wait for the lock: minutes, in which its holder must have gone on,
 * even if this machine is a virtual one whose CPUs have to wait. */
#define LOCK_TURNS (1 << 23)
#define LOCK_ROUNDS (1 << 10)

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
    __uint(max_entries, SCX_CPUS_MAX);
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
uint64_t policy_saved(uint64_t instance, uint64_t vcpu);
uint64_t policy_runs(uint64_t instance, uint64_t vcpu, uint64_t cpu);
uint64_t policy_waits(uint64_t instance, uint64_t vcpu);
uint64_t policy_take_off(uint64_t instance, uint64_t vcpu, int64_t now);
uint64_t policy_cpu(uint64_t vcpu);
uint64_t policy_set_affinity(uint64_t vcpu, uint64_t affinity);
uint64_t policy_move(uint64_t instance, uint64_t vcpu, int64_t now);
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

/* Whether the kernel keeps the thread on its CPU for the moment. It keeps whoever calls a program
 * there while the program runs. */
static bool is_bound(const struct task_struct *p)
{
    bool calls = (uint32_t)bpf_get_current_pid_tgid() == (uint32_t)p->pid;
    return p->migration_disabled > (calls ? 1 : 0);
}

/* One turn of a wait for the lock; 1: no further turn. The verifier knows no range of a bool that
 * it loads, so what is held is a whole word. */
static long try_lock(uint64_t turn, uint64_t *held)
{
    (void)turn;
    *held = !__sync_lock_test_and_set(&state.lock, 1);
    return *held ? 1 : 0;
}

static long try_often(uint64_t round, uint64_t *held)
{
    (void)round;
    bpf_loop(LOCK_TURNS, try_lock, held, 0);
    return *held ? 1 : 0;
}

/* Whether the caller has the lock now; if not, the kernel takes the scheduler off. */
static bool lock(void)
{
    uint64_t held = 0;
    char complaint[] = "the policy stays locked";
    unsigned long long nothing = 0;

    try_lock(0, &held);
    if (held)
        return true;
    bpf_loop(LOCK_ROUNDS, try_often, &held, 0);
    if (!held && bpf_ksym_exists(scx_bpf_error_bstr))
        scx_bpf_error_bstr(complaint, &nothing, sizeof nothing);
    return held;
}

static void unlock(void)
{
    __sync_lock_test_and_set(&state.lock, 0);
}

/* Has done what the policy asked of one CPU: sets its alarm, and has it decide. */
static void settle_cpu(uint32_t cpu)
{
    struct scx_requests __arena *requests = requests_of_policy();
    int64_t at_ns = requests->cpu[cpu].until_ns;
    struct alarm *alarm;
    uint32_t key = cpu;

    if (requests->kicked & SCX_BIT(cpu))
        scx_bpf_kick_cpu((int32_t)cpu, SCX_KICK_PREEMPT);
    if (at_ns > requests->cpu[cpu].timer_ns)
        at_ns = requests->cpu[cpu].timer_ns;
    if (cpu == 0 && at_ns > requests->account_ns)
        at_ns = requests->account_ns;
    /* An alarm that is no longer asked for rings all the same: bpf_timer_cancel would forget what
     * to call. */
    if (at_ns == requests->cpu[cpu].armed_ns || at_ns == NEVER)
        return;
    alarm = bpf_map_lookup_elem(&alarms, &key);
    if (!alarm)
        return;
    requests->cpu[cpu].armed_ns = at_ns;
    bpf_timer_start(&alarm->timer, (uint64_t)at_ns, TIMER_ABSOLUTE);
}

/* The same for all CPUs of which something was asked. The verifier looks at it once, by itself. */
__attribute__((noinline)) uint64_t settle(void)
{
    struct scx_requests __arena *requests = requests_of_policy();
    uint64_t changed = requests->changed;

    USES_ARENA();
    requests->changed = 0;
    for (uint32_t cpu = 0; cpu < SCX_CPUS_MAX && cpu < state.cpus; cpu++)
        if (changed & SCX_BIT(cpu))
            settle_cpu(cpu);
    return 0;
}

/* The CPU decides: that serves whatever is due. */
static int ring(void *map, uint32_t *key, struct alarm *alarm)
{
    uint32_t cpu = *key;

    (void)map, (void)alarm;
    requests_of_policy()->cpu[cpu].armed_ns = NEVER;
    scx_bpf_kick_cpu((int32_t)cpu, SCX_KICK_PREEMPT);
    return 0;
}

/* Without one of one's own, the kernel hands a thread that wakes to an idle CPU, past the policy.
 */
SEC("struct_ops/on_select_cpu")
int32_t BPF_PROG(on_select_cpu, struct task_struct *p, int32_t previous, uint64_t flags)
{
    uint64_t vcpu = vcpu_of(p);
    USES_ARENA();
    return vcpu ? (int32_t)policy_cpu(vcpu) : previous;
}

/* The thread waits to be dispatched: it woke, or the policy's decision has taken it off its CPU. */
SEC("struct_ops/on_enqueue")
void BPF_PROG(on_enqueue, struct task_struct *p, uint64_t flags)
{
    uint64_t vcpu = vcpu_of(p);
    USES_ARENA();
    if (!vcpu) {
        /* A thread that asked for SCHED_EXT without having been named runs as in a class of its
         * own, in turns. */
        scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, 1000000, flags);
        return;
    }
    if (!lock())
        return;
    if (!is_bound(p))
        policy_saved(state.instance, vcpu);
    policy_wake(state.instance, vcpu, (int64_t)bpf_ktime_get_ns());
    policy_waits(state.instance, vcpu);
    settle();
    unlock();
}

SEC("struct_ops/on_quiescent")
void BPF_PROG(on_quiescent, struct task_struct *p, uint64_t flags)
{
    uint64_t vcpu = vcpu_of(p);
    USES_ARENA();
    if (!vcpu || !lock())
        return;
    /* The kernel dispatches next if the running one blocks. */
    if (!(flags & SCX_DEQ_SLEEP) || !policy_block(state.instance, vcpu))
        policy_sleep(state.instance, vcpu, (int64_t)bpf_ktime_get_ns());
    policy_saved(state.instance, vcpu);
    settle();
    unlock();
}

SEC("struct_ops/on_dispatch")
void BPF_PROG(on_dispatch, int32_t number, struct task_struct *previous)
{
    struct scx_requests __arena *requests = requests_of_policy();
    uint32_t cpu = (uint32_t)number;
    struct task_struct *p;
    int64_t now;
    int thread;

    USES_ARENA();
    if (cpu >= SCX_CPUS_MAX || cpu >= state.cpus || !lock())
        return;
    /* Read under the lock, time never goes back for the policy. */
    now = (int64_t)bpf_ktime_get_ns();
    if (requests->account_ns <= now)
        policy_account(state.instance, now);
    if (requests->cpu[cpu].timer_ns <= now)
        policy_timer(state.instance, cpu, now);
    thread = (int)policy_schedule(state.instance, cpu, now);
    state.decisions++;
    settle();
    unlock();
    p = thread ? bpf_task_from_pid(thread) : NULL;
    if (!p)
        return;
    if (previous && previous->pid == thread)
        scx_bpf_task_set_slice(p, SCX_SLICE_INF);
    else
        scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_INF, 0);
    bpf_task_release(p);
}

/* The thread is a VCPU's no more: the policy forgets it. */
static void leave(const struct task_struct *p, uint64_t vcpu)
{
    uint32_t thread = (uint32_t)p->pid;
    int64_t now;

    if (!lock())
        return;
    now = (int64_t)bpf_ktime_get_ns();
    policy_sleep(state.instance, vcpu, now);
    policy_take_off(state.instance, vcpu, now);
    policy_saved(state.instance, vcpu);
    policy_remove_vcpu(state.instance, vcpu, now);
    bpf_map_delete_elem(&threads, &thread);
    settle();
    unlock();
}

SEC("struct_ops/on_running")
void BPF_PROG(on_running, struct task_struct *p)
{
    uint64_t vcpu = vcpu_of(p);
    uint32_t cpu = (uint32_t)scx_bpf_task_cpu(p);
    USES_ARENA();
    if (!vcpu || cpu >= SCX_CPUS_MAX || cpu >= state.cpus)
        return;
    if (p->flags & PF_EXITING) {
        /* The kernel itself gives the CPU to threads that exit, without asking, since they cannot
         * be found by number any more. */
        leave(p, vcpu);
        return;
    }
    if (!lock())
        return;
    if (policy_runs(state.instance, vcpu, cpu))
        /* An alarm or a kick while a task of a higher class ran had no effect: here is another. */
        settle_cpu(cpu);
    else
        scx_bpf_kick_cpu((int32_t)cpu, SCX_KICK_PREEMPT);
    unlock();
}

/* Called when the thread comes, too. The kernel has taken it off its queue. */
SEC("struct_ops/on_set_cpumask")
void BPF_PROG(on_set_cpumask, struct task_struct *p, const struct cpumask *allowed)
{
    uint64_t vcpu = vcpu_of(p), affinity = 0;
    int64_t now;

    USES_ARENA();
    for (uint32_t cpu = 0; cpu < SCX_CPUS_MAX && cpu < state.cpus; cpu++)
        affinity |= (uint64_t)bpf_cpumask_test_cpu(cpu, allowed) << cpu;
    if (!vcpu || !lock())
        return;
    if (policy_set_affinity(vcpu, affinity)) {
        now = (int64_t)bpf_ktime_get_ns();
        policy_sleep(state.instance, vcpu, now);
        policy_take_off(state.instance, vcpu, now);
        policy_move(state.instance, vcpu, now);
        settle();
    }
    unlock();
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
    USES_ARENA();
    for (uint32_t cpu = 0; cpu < SCX_CPUS_MAX && cpu < state.cpus; cpu++) {
        uint32_t key = cpu;
        struct alarm *alarm = bpf_map_lookup_elem(&alarms, &key);
        if (!alarm || bpf_timer_init(&alarm->timer, &alarms, CLOCK_MONOTONIC) ||
            bpf_timer_set_callback(&alarm->timer, ring))
            return -1;
    }
    return 0;
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
    .running = (void *)on_running,
    .quiescent = (void *)on_quiescent,
    .set_cpumask = (void *)on_set_cpumask,
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
    case SCX_SET_AFFINITY:
        return policy_set_affinity(object, argument);
    case SCX_MOVE:
        return policy_move(state.instance, object, now);
    case SCX_TAKE_OFF:
        return policy_take_off(state.instance, object, now);
    case SCX_LEAVE:
        return policy_remove_vcpu(state.instance, object, now);
    case SCX_WAKE:
        return policy_wake(state.instance, object, now);
    case SCX_BLOCK:
        return policy_block(state.instance, object);
    case SCX_SLEEP:
        return policy_sleep(state.instance, object, now);
    case SCX_SAVED:
        return policy_saved(state.instance, object);
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
    int failed = 0;

    USES_ARENA();
    bpf_local_irq_save(&flags);
    if (lock()) {
        if (!now)
            now = (int64_t)bpf_ktime_get_ns();
        call->result = serve(operation, object, argument, now);
        if (state.attached && bpf_ksym_exists(scx_bpf_kick_cpu))
            settle();
        unlock();
    } else {
        failed = 1;
    }
    bpf_local_irq_restore(&flags);
    return failed;
}
