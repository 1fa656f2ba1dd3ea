/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Laxity's policies as a scheduler of Linux, through sched_ext: the other half of policy.bpf.c.
 *
 * Threads of VCPUs, which the loader names beforehand (`threads`), are the policy's as soon as they
 * ask for SCHED_EXT, until they ask for another class or exit. A VCPU's thread that is ready is in
 * no queue of the kernel's: the policy's are the only ones. `dispatch` asks the policy who runs,
 * if its last decision is in force no more, and hands that thread to its CPU for as long as it
 * takes; a timer, or a wake-up, takes it off.
 *
 * All other tasks of the kernel's ordinary classes are here, too, threads of its own among them.
 * They wait in one queue (OTHERS) by a virtual time, which passes for a task that runs in inverse
 * proportion to its weight, and run where the policy has no VCPU to run. If there is no such time,
 * those that wait get a reserve: SCX_RESERVE_NS of each CPU, at the end of each
 * SCX_RESERVE_PERIOD_NS in which they have not had as much. The policy decides meanwhile as ever;
 * the VCPU that it chose waits, and that time is told to the policy (`stolen`), so that no budget
 * pays for it. The same holds while a task of a higher class, such as SCHED_FIFO, has the CPU, and
 * until a VCPU that was chosen runs. What a VCPU runs beyond the decision that takes it off, while
 * its CPU switches, it pays for in its next turn.
 *
 * No ordinary task starves. The virtual time goes on at 1/OTHERS_PACE of the clock's pace at least,
 * and a task that comes to wait is at most OTHERS_LEAD_NS ahead of it. After OTHERS_PACE times
 * OTHERS_LEAD_NS, all that come to wait are therefore behind it, and each that was before it gets
 * one reserve at most.
 *
 * A policy may leave a VCPU that is ready without a CPU for as long as it likes. Since the kernel
 * takes a scheduler off that leaves a thread for STARVED_MS, a VCPU that has waited for
 * `patience_ns` gets a moment: its thread has the CPU until the interrupt that takes it off again,
 * which is already on its way when it begins. No budget pays for it.
 *
 * A VCPU is `on_cpu` from the decision for it until its thread waits or sleeps again, and until
 * then no other CPU's decision is for it. One that the kernel keeps on its CPU (migrate_disable)
 * stays so while it waits. The kernel drops what is dispatched if the thread has
 * been taken off its queue meanwhile (to change its affinity, say). Therefore a VCPU that comes to
 * wait while it is its CPU's current, and one that runs where it is not, call for a decision.
 *
 * Locks. One lock guards the policy's instance, with all its CPUs, and what it asked for. Each of
 * the callbacks but the timers' is called by the kernel with interrupts off, most of them with a
 * run queue locked, and the others turn interrupts off; so the lock is the innermost one, and its
 * holder is not interrupted.
 */
#include <stdbool.h>
#include <stdint.h>

#include "kernel.h"
#include "shared.h"

#define NEVER INT64_MAX
/* The queue of ordinary tasks. */
#define OTHERS 1
/* How long one of them runs before the next one's turn; the kernel's tick ends a turn. */
#define OTHERS_TURN_NS 3000000
/* How far a task that comes to wait is ahead of the virtual time, or behind it, at most. */
#define OTHERS_LEAD_NS 30000000
#define OTHERS_LAG_NS OTHERS_TURN_NS
#define OTHERS_PACE 256
/* The weight of a task of nice 0. */
#define WEIGHT 100
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

/* From threads to the addresses of struct scx_vcpu. */
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
    __uint(max_entries, SCX_CPUS_MAX + 1);
    __type(key, uint32_t);
    __type(value, struct alarm);
} alarms SEC(".maps");

/* The alarm by which the scheduler looks for VCPUs that have waited for too long, so many times
 * while its patience lasts. */
#define WATCH SCX_CPUS_MAX
#define LOOKS 4

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
uint64_t policy_has_turn(uint64_t instance, uint64_t vcpu, uint64_t cpu);
uint64_t policy_current(uint64_t instance, uint64_t cpu);
uint64_t policy_owe(uint64_t vcpu, int64_t for_ns);
uint64_t policy_owed(uint64_t vcpu);
uint64_t policy_steal(uint64_t instance, uint64_t cpu, int64_t for_ns);
uint64_t policy_waits(uint64_t instance, uint64_t vcpu);
uint64_t policy_take_off(uint64_t instance, uint64_t vcpu, int64_t now);
uint64_t policy_cpu(uint64_t vcpu);
uint64_t policy_set_affinity(uint64_t vcpu, uint64_t affinity);
uint64_t policy_move(uint64_t instance, uint64_t vcpu, int64_t now);
uint64_t policy_yield(uint64_t instance, uint64_t vcpu, int64_t now);
uint64_t policy_event(uint64_t instance, uint64_t vcpu, int64_t now);
uint64_t policy_tell(uint64_t instance, uint64_t vcpu, int64_t deadline_ns, int64_t order,
                     int64_t now);
uint64_t policy_timer(uint64_t instance, uint64_t cpu, int64_t now);
uint64_t policy_account(uint64_t instance, int64_t now);
uint64_t policy_schedule(uint64_t instance, uint64_t cpu, int64_t now);
uint64_t policy_goes_on(uint64_t instance, uint64_t cpu, int64_t now);

/* The verifier lets a program use the arena that it mentions. */
#define USES_ARENA() __asm__ volatile("" : : "r"(&arena))

static struct scx_requests __arena *requests_of_policy(void)
{
    return (struct scx_requests __arena *)state.requests;
}

static struct scx_others __arena *others_of(uint32_t cpu)
{
    return &requests_of_policy()->cpu[cpu].others;
}

static inline struct scx_vcpu __arena *owner_at(uint64_t address)
{
    return (struct scx_vcpu __arena *)address;
}

/* The virtual time of a VCPU's thread, which has no use for one, tells where its struct scx_vcpu
 * is, since a search of `threads` takes longer than most of what is done when a thread wakes or
 * stops. Another task's virtual time that looks like one leads to no struct with that thread. */
#define MARK (1ull << 63)

/* The address of its struct scx_vcpu; 0: nobody has named the thread. */
static inline uint64_t find_owner(const struct task_struct *p)
{
    uint64_t mark = p->scx.dsq_vtime, *named;
    uint32_t thread = (uint32_t)p->pid;

    if (mark & MARK && owner_at(mark & ~MARK)->thread == thread)
        return mark & ~MARK;
    named = bpf_map_lookup_elem(&threads, &thread);
    return named ? *named : 0;
}

/* What a thread is to the policy. */
struct identity {
    uint64_t owner;  /* the address of its struct scx_vcpu; 0: nobody has named it */
    uint64_t vcpu;   /* 0: it is an ordinary task */
    uint64_t former; /* the VCPU that it was until it asked for another class or exited */
};

static inline struct identity identify(struct task_struct *p)
{
    struct identity found = {.owner = find_owner(p)};

    if (!found.owner)
        return found;
    if (p->policy != SCHED_EXT || p->flags & PF_EXITING) {
        found.former = owner_at(found.owner)->joined ? owner_at(found.owner)->vcpu : 0;
        return found;
    }
    found.vcpu = owner_at(found.owner)->vcpu;
    if (p->scx.dsq_vtime != (MARK | found.owner)) {
        owner_at(found.owner)->joined = 1;
        scx_bpf_task_set_dsq_vtime(p, MARK | found.owner);
    }
    return found;
}

static uint64_t vcpu_of(struct task_struct *p)
{
    return identify(p).vcpu;
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

/* How many CPUs a loop takes: the verifier goes through a loop of C as often as it turns, and
 * through the function of bpf_loop once or twice. */
static uint32_t cpus_of_loop(void)
{
    return state.cpus < SCX_CPUS_MAX ? (uint32_t)state.cpus : SCX_CPUS_MAX;
}

/* What others had of the CPUs of a set. */
struct stolen {
    uint64_t cpus;
    int64_t for_ns;
};

static long tell_if_stolen(uint64_t cpu, struct stolen *stolen)
{
    if (stolen->cpus & SCX_BIT(cpu))
        policy_steal(state.instance, cpu, stolen->for_ns);
    return 0;
}

/* Tells the policy for how long others have had CPUs in the turns of VCPUs. The verifier looks at
 * it once, by itself. */
__attribute__((noinline)) uint64_t tell_stolen(int64_t now)
{
    struct scx_requests __arena *requests = requests_of_policy();
    struct stolen stolen = {requests->stolen, now - requests->stolen_ns};

    USES_ARENA();
    requests->stolen_ns = now;
    if (stolen.cpus)
        bpf_loop(cpus_of_loop(), tell_if_stolen, &stolen, 0);
    return 0;
}

/* The time at which the policy is called, under the lock: time never goes back for it. */
static int64_t now_of_policy(void)
{
    int64_t now = (int64_t)bpf_ktime_get_ns();
    tell_stolen(now);
    return now;
}

/* When a CPU is to decide by itself next, which also serves what the policy wants to do at a time;
 * NEVER: it need not. */
static int64_t decides_ns(uint32_t cpu)
{
    struct scx_requests __arena *requests = requests_of_policy();
    struct scx_others __arena *others = others_of(cpu);
    int64_t at_ns = others->reserved ? NEVER : requests->cpu[cpu].until_ns;

    if (at_ns > requests->cpu[cpu].timer_ns)
        at_ns = requests->cpu[cpu].timer_ns;
    if (cpu == 0 && at_ns > requests->account_ns)
        at_ns = requests->account_ns;
    if (others->turn_ns && at_ns > others->turn_ns)
        at_ns = others->turn_ns;
    return at_ns;
}

/* Has done what the policy asked of one CPU: sets its alarm, and has it decide. */
static void settle_cpu(uint32_t cpu)
{
    struct scx_requests __arena *requests = requests_of_policy();
    int64_t at_ns = decides_ns(cpu);
    struct alarm *alarm;
    uint32_t key = cpu;

    if (requests->kicked & SCX_BIT(cpu))
        scx_bpf_kick_cpu((int32_t)cpu, SCX_KICK_PREEMPT);
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

static long settle_if_changed(uint64_t cpu, uint64_t *changed)
{
    if (*changed & SCX_BIT(cpu))
        settle_cpu((uint32_t)cpu);
    return 0;
}

/* The same for all CPUs of which something was asked. The verifier looks at it once, by itself. */
__attribute__((noinline)) uint64_t settle(void)
{
    struct scx_requests __arena *requests = requests_of_policy();
    uint64_t changed = requests->changed;

    USES_ARENA();
    requests->changed = 0;
    if (changed)
        bpf_loop(cpus_of_loop(), settle_if_changed, &changed, 0);
    return 0;
}

/* A VCPU that has waited for too long gets a moment on its CPU. */
static long look_at(void *map, uint32_t *number, const uint64_t *owner, int64_t *now)
{
    int64_t waits_ns = owner_at(*owner)->waits_ns;
    uint32_t cpu;

    (void)map;
    if (!waits_ns || *now - waits_ns < state.patience_ns)
        return 0;
    cpu = (uint32_t)policy_cpu(owner_at(*owner)->vcpu);
    if (cpu >= SCX_CPUS_MAX || cpu >= state.cpus)
        return 0;
    requests_of_policy()->cpu[cpu].starved = *number;
    scx_bpf_kick_cpu((int32_t)cpu, SCX_KICK_PREEMPT);
    return 0;
}

static int watch(void *map, uint32_t *key, struct alarm *alarm)
{
    int64_t now = (int64_t)bpf_ktime_get_ns();

    (void)map, (void)key;
    bpf_for_each_map_elem(&threads, look_at, &now, 0);
    bpf_timer_start(&alarm->timer, (uint64_t)state.patience_ns / LOOKS, 0);
    return 0;
}

/* The CPU decides, if that was not put off since the alarm was set. */
static int ring(void *map, uint32_t *key, struct alarm *alarm)
{
    uint32_t cpu = *key;
    unsigned long flags;

    (void)map, (void)alarm;
    if (cpu >= SCX_CPUS_MAX)
        return 0;
    bpf_local_irq_save(&flags);
    if (lock()) {
        requests_of_policy()->cpu[cpu].armed_ns = NEVER;
        if (decides_ns(cpu) <= (int64_t)bpf_ktime_get_ns())
            scx_bpf_kick_cpu((int32_t)cpu, SCX_KICK_PREEMPT);
        else
            settle_cpu(cpu);
        unlock();
    }
    bpf_local_irq_restore(&flags);
    return 0;
}

/* The thread is a VCPU's no more: the policy forgets it. */
static void leave(struct task_struct *p, uint64_t vcpu)
{
    uint32_t thread = (uint32_t)p->pid;
    int64_t now;

    if (!lock())
        return;
    now = now_of_policy();
    policy_sleep(state.instance, vcpu, now);
    policy_take_off(state.instance, vcpu, now);
    policy_saved(state.instance, vcpu);
    policy_remove_vcpu(state.instance, vcpu, now);
    bpf_map_delete_elem(&threads, &thread);
    scx_bpf_task_set_dsq_vtime(p, state.virtual_ns);
    settle();
    unlock();
}

/* The virtual time of ordinary tasks, which a task that runs may take on. CPUs that set it at once
 * may lose a bit of it, and nothing else. */
static uint64_t virtual_time(uint64_t of_task_ns, int64_t now)
{
    uint64_t virtual_ns = state.virtual_ns;

    if (now > state.virtual_set_ns)
        virtual_ns += (uint64_t)(now - state.virtual_set_ns) / OTHERS_PACE;
    if ((int64_t)(of_task_ns - virtual_ns) > 0)
        virtual_ns = of_task_ns;
    state.virtual_ns = virtual_ns;
    state.virtual_set_ns = now;
    return virtual_ns;
}

/* Counts what an ordinary task has had of the CPU on which it runs. */
static void count_others(uint32_t cpu, struct task_struct *p, int64_t now)
{
    struct scx_others __arena *others = others_of(cpu);
    uint32_t weight = p->scx.weight;
    int64_t had_ns = now - others->running_ns;

    if (!others->running_ns)
        return;
    others->running_ns = now;
    others->had_ns += had_ns;
    others->total_ns += had_ns;
    if (others->reserved)
        others->taken_ns += had_ns;
    if (weight)
        scx_bpf_task_set_dsq_vtime(p, p->scx.dsq_vtime + (uint64_t)had_ns * WEIGHT / weight);
}

/* Without one of one's own, the kernel hands a thread that wakes to an idle CPU, past the policy.
 */
SEC("struct_ops/on_select_cpu")
int32_t BPF_PROG(on_select_cpu, struct task_struct *p, int32_t previous, uint64_t flags)
{
    uint64_t vcpu = vcpu_of(p);
    bool is_idle;
    USES_ARENA();
    return vcpu ? (int32_t)policy_cpu(vcpu) : scx_bpf_select_cpu_dfl(p, previous, flags, &is_idle);
}

/* An ordinary task waits: its CPU, if a VCPU has it, owes it a reserve. */
static void enqueue_other(struct task_struct *p, uint64_t flags)
{
    uint32_t cpu = (uint32_t)scx_bpf_task_cpu(p);
    int64_t now = (int64_t)bpf_ktime_get_ns();
    uint64_t virtual_ns = virtual_time(state.virtual_ns, now), at_ns = p->scx.dsq_vtime;
    struct scx_others __arena *others;
    int32_t idle;

    if ((int64_t)(at_ns - virtual_ns) > OTHERS_LEAD_NS)
        at_ns = virtual_ns + OTHERS_LEAD_NS;
    if ((int64_t)(virtual_ns - at_ns) > OTHERS_LAG_NS)
        at_ns = virtual_ns - OTHERS_LAG_NS;
    scx_bpf_dsq_insert_vtime(p, OTHERS, OTHERS_TURN_NS, at_ns, flags);
    idle = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
    if (idle >= 0)
        scx_bpf_kick_cpu(idle, SCX_KICK_IDLE);
    else if (flags & SCX_ENQ_LAST)
        scx_bpf_kick_cpu((int32_t)cpu, 0);
    if (cpu >= SCX_CPUS_MAX || cpu >= state.cpus)
        return;
    others = others_of(cpu);
    if (others->waiting_ns || !lock())
        return;
    if (policy_current(state.instance, cpu)) {
        others->waiting_ns = now;
        others->had_ns = 0;
        others->turn_ns = now + SCX_RESERVE_PERIOD_NS - SCX_RESERVE_NS;
        settle_cpu(cpu);
    }
    unlock();
}

/* The thread waits to be dispatched: it woke, or a decision has taken it off its CPU. */
SEC("struct_ops/on_enqueue")
void BPF_PROG(on_enqueue, struct task_struct *p, uint64_t flags)
{
    struct identity is = identify(p);
    uint64_t vcpu = is.vcpu, cpu;
    int64_t now;
    USES_ARENA();
    if (is.former)
        leave(p, is.former);
    if (!vcpu) {
        enqueue_other(p, flags);
        return;
    }
    if (!lock())
        return;
    if (!is_bound(p))
        policy_saved(state.instance, vcpu);
    now = now_of_policy();
    if (!owner_at(is.owner)->waits_ns)
        owner_at(is.owner)->waits_ns = now;
    cpu = policy_cpu(vcpu);
    if (cpu < SCX_CPUS_MAX && !requests_of_policy()->cpu[cpu].ended_ns &&
        requests_of_policy()->cpu[cpu].until_ns <= now)
        requests_of_policy()->cpu[cpu].ended_ns = now;
    policy_wake(state.instance, vcpu, now);
    if (cpu < SCX_CPUS_MAX && !others_of((uint32_t)cpu)->reserved)
        policy_waits(state.instance, vcpu);
    settle();
    unlock();
}

SEC("struct_ops/on_quiescent")
void BPF_PROG(on_quiescent, struct task_struct *p, uint64_t flags)
{
    struct identity is = identify(p);
    uint64_t vcpu = is.vcpu;
    USES_ARENA();
    if (is.former)
        leave(p, is.former);
    if (!vcpu)
        return;
    owner_at(is.owner)->waits_ns = 0;
    if (!lock())
        return;
    /* The kernel dispatches next if the running one blocks. */
    if (!(flags & SCX_DEQ_SLEEP) || !policy_block(state.instance, vcpu))
        policy_sleep(state.instance, vcpu, now_of_policy());
    policy_saved(state.instance, vcpu);
    settle();
    unlock();
}

/* Whether the reserve of ordinary tasks goes before the VCPU that the policy chose. `some_wait`:
 * there are ordinary tasks that could run. */
static bool take_reserve(uint32_t cpu, bool some_wait, int64_t now)
{
    struct scx_others __arena *others = others_of(cpu);
    bool goes_on = others->reserved && now < others->turn_ns, ends = others->reserved && !goes_on;

    if (some_wait && goes_on)
        return true;
    others->reserved = 0;
    others->turn_ns = 0;
    if (!some_wait) {
        others->waiting_ns = 0;
        return false;
    }
    if (!others->waiting_ns || ends || others->had_ns >= SCX_RESERVE_NS) {
        others->waiting_ns = now;
        others->had_ns = 0;
    }
    others->turn_ns =
        others->waiting_ns + SCX_RESERVE_PERIOD_NS - (SCX_RESERVE_NS - others->had_ns);
    if (others->turn_ns > now)
        return false;
    others->reserved = 1;
    others->turn_ns = now + (SCX_RESERVE_NS - others->had_ns);
    return true;
}

/* Hands the CPU to the ordinary task whose turn it is; false: there is none. `stays`: the previous
 * one could run on. */
static bool run_other(struct task_struct *previous, bool stays)
{
    struct task_struct *first = stays ? scx_bpf_dsq_peek(OTHERS) : NULL;
    bool is_before =
        stays && (!first || (int64_t)(previous->scx.dsq_vtime - first->scx.dsq_vtime) <= 0);

    if (!is_before && scx_bpf_dsq_move_to_local(OTHERS))
        return true;
    if (stays)
        scx_bpf_task_set_slice(previous, OTHERS_TURN_NS);
    return stays;
}

/* Nobody could use what was to be stolen from the VCPU in turn: who waits may not run here. */
static void give_back(uint32_t cpu)
{
    if (!lock())
        return;
    now_of_policy();
    requests_of_policy()->stolen &= ~SCX_BIT(cpu);
    others_of(cpu)->reserved = 0;
    others_of(cpu)->turn_ns = 0;
    others_of(cpu)->waiting_ns = 0;
    settle_cpu(cpu);
    unlock();
}

/* Hands the CPU to a thread of a VCPU that starves, until on_running has it taken off. */
static bool give_moment(int thread)
{
    struct task_struct *p = bpf_task_from_pid(thread);
    bool may = false;

    if (!p)
        return false;
    may = vcpu_of(p) && !is_bound(p);
    if (may)
        scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, 1, 0);
    bpf_task_release(p);
    return may;
}

SEC("struct_ops/on_dispatch")
void BPF_PROG(on_dispatch, int32_t number, struct task_struct *previous)
{
    struct scx_requests __arena *requests = requests_of_policy();
    uint32_t cpu = (uint32_t)number;
    struct task_struct *p;
    struct identity was = {};
    uint64_t before, chosen;
    bool stays, is_chosen, is_reserved = false;
    int64_t now;
    int thread, starved;

    USES_ARENA();
    if (previous)
        was = identify(previous);
    stays = previous && previous->scx.flags & SCX_TASK_QUEUED && !was.vcpu;
    if (was.former)
        leave(previous, was.former);
    if (cpu >= SCX_CPUS_MAX || cpu >= state.cpus) {
        run_other(previous, stays);
        return;
    }
    if (!lock())
        return;
    now = now_of_policy();
    if (stays)
        count_others(cpu, previous, now);
    if (requests->account_ns <= now)
        policy_account(state.instance, now);
    if (requests->cpu[cpu].timer_ns <= now)
        policy_timer(state.instance, cpu, now);
    before = policy_current(state.instance, cpu);
    thread = (int)policy_goes_on(state.instance, cpu, now);
    if (!thread) {
        thread = (int)policy_schedule(state.instance, cpu, now);
        state.decisions++;
    }
    chosen = policy_current(state.instance, cpu);
    requests->cpu[cpu].leaving = before != chosen ? before : 0;
    requests->cpu[cpu].decided_ns = requests->cpu[cpu].ended_ns ? requests->cpu[cpu].ended_ns : now;
    requests->cpu[cpu].ended_ns = 0;
    if (thread) {
        is_reserved = take_reserve(cpu, stays || scx_bpf_dsq_nr_queued(OTHERS), now);
    } else {
        /* Others have the CPU without one. */
        requests->cpu[cpu].others.reserved = 0;
        requests->cpu[cpu].others.turn_ns = 0;
    }
    is_chosen = previous && previous->pid == thread;
    starved = (int)requests->cpu[cpu].starved;
    requests->cpu[cpu].starved = 0;
    if (starved == thread)
        starved = 0;
    /* Until the chosen VCPU runs, it does not pay. */
    if (thread && (is_reserved || starved || before != chosen))
        requests->stolen |= SCX_BIT(cpu);
    else
        requests->stolen &= ~SCX_BIT(cpu);
    /* on_running sets the alarm of a turn that begins. Other CPUs may wait for what CPU 0 accounts.
     */
    if (thread && !is_chosen && !is_reserved && !starved && before != chosen &&
        (cpu || requests->cpu[cpu].armed_ns <= requests->account_ns))
        requests->changed &= ~SCX_BIT(cpu);
    settle();
    unlock();
    if (starved && give_moment(starved))
        return;
    if ((is_reserved || !thread) && run_other(previous, stays))
        return;
    if (is_reserved || starved)
        give_back(cpu);
    p = thread ? bpf_task_from_pid(thread) : NULL;
    if (!p)
        return;
    if (is_chosen)
        scx_bpf_task_set_slice(p, SCX_SLICE_INF);
    else
        scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_INF, 0);
    bpf_task_release(p);
}

/* The VCPU that the last decision took off a CPU has had it until now. */
static void pay_later(uint32_t cpu, int64_t now)
{
    struct scx_cpu __arena *asked = &requests_of_policy()->cpu[cpu];

    if (asked->leaving)
        policy_owe(asked->leaving, now - asked->decided_ns);
    asked->leaving = 0;
}

SEC("struct_ops/on_update_idle")
void BPF_PROG(on_update_idle, int32_t number, bool idle)
{
    uint32_t cpu = (uint32_t)number;
    USES_ARENA();
    if (idle && cpu < SCX_CPUS_MAX && cpu < state.cpus)
        pay_later(cpu, (int64_t)bpf_ktime_get_ns());
}

SEC("struct_ops/on_running")
void BPF_PROG(on_running, struct task_struct *p)
{
    struct identity is = identify(p);
    uint64_t vcpu = is.vcpu;
    uint32_t cpu = (uint32_t)scx_bpf_task_cpu(p);
    int64_t now;
    USES_ARENA();
    if (is.former)
        leave(p, is.former);
    if (cpu >= SCX_CPUS_MAX || cpu >= state.cpus)
        return;
    if (!vcpu) {
        now = (int64_t)bpf_ktime_get_ns();
        pay_later(cpu, now);
        others_of(cpu)->running_ns = now;
        virtual_time(p->scx.dsq_vtime, now);
        return;
    }
    owner_at(is.owner)->waits_ns = 0;
    if (!lock())
        return;
    now = now_of_policy();
    pay_later(cpu, now);
    if (policy_runs(state.instance, vcpu, cpu)) {
        policy_steal(state.instance, cpu, -(int64_t)policy_owed(vcpu));
        requests_of_policy()->stolen &= ~SCX_BIT(cpu);
        /* An alarm or a kick while a task of a higher class ran had no effect: here is another. */
        settle_cpu(cpu);
    } else {
        scx_bpf_kick_cpu((int32_t)cpu, SCX_KICK_PREEMPT);
    }
    unlock();
}

/* The CPU goes to another task, which need not be of sched_ext. */
SEC("struct_ops/on_stopping")
void BPF_PROG(on_stopping, struct task_struct *p, bool runnable)
{
    uint64_t vcpu = vcpu_of(p);
    uint32_t cpu = (uint32_t)scx_bpf_task_cpu(p);
    USES_ARENA();
    if (cpu >= SCX_CPUS_MAX || cpu >= state.cpus)
        return;
    if (!vcpu) {
        count_others(cpu, p, (int64_t)bpf_ktime_get_ns());
        others_of(cpu)->running_ns = 0;
        return;
    }
    if (!runnable || !lock())
        return;
    if (policy_has_turn(state.instance, vcpu, cpu)) {
        now_of_policy();
        requests_of_policy()->stolen |= SCX_BIT(cpu);
    }
    unlock();
}

/* Called when the thread comes, too, and for one that was named and has not asked for SCHED_EXT
 * yet. The kernel has taken it off its queue. */
SEC("struct_ops/on_set_cpumask")
void BPF_PROG(on_set_cpumask, struct task_struct *p, const struct cpumask *allowed)
{
    uint64_t owner = find_owner(p), vcpu = owner ? owner_at(owner)->vcpu : 0, affinity = 0;
    int64_t now;

    USES_ARENA();
    for (uint32_t cpu = 0; cpu < SCX_CPUS_MAX && cpu < state.cpus; cpu++)
        affinity |= (uint64_t)bpf_cpumask_test_cpu(cpu, allowed) << cpu;
    if (!vcpu || !lock())
        return;
    if (policy_set_affinity(vcpu, affinity)) {
        now = now_of_policy();
        policy_sleep(state.instance, vcpu, now);
        policy_take_off(state.instance, vcpu, now);
        policy_move(state.instance, vcpu, now);
        settle();
    }
    unlock();
}

/* A task comes: it has neither a lead nor a lag. */
SEC("struct_ops/on_enable")
void BPF_PROG(on_enable, struct task_struct *p)
{
    scx_bpf_task_set_dsq_vtime(p, state.virtual_ns);
}

/* The thread exits, or goes to another class, SCHED_FIFO say. */
SEC("struct_ops/on_disable")
void BPF_PROG(on_disable, struct task_struct *p)
{
    uint64_t owner = find_owner(p);
    USES_ARENA();
    if (owner && owner_at(owner)->joined)
        leave(p, owner_at(owner)->vcpu);
}

SEC("struct_ops.s/on_init")
int32_t BPF_PROG(on_init)
{
    uint32_t last = WATCH;
    struct alarm *looks = bpf_map_lookup_elem(&alarms, &last);
    USES_ARENA();
    for (uint32_t cpu = 0; cpu < SCX_CPUS_MAX && cpu < state.cpus; cpu++) {
        uint32_t key = cpu;
        struct alarm *alarm = bpf_map_lookup_elem(&alarms, &key);
        if (!alarm || bpf_timer_init(&alarm->timer, &alarms, CLOCK_MONOTONIC) ||
            bpf_timer_set_callback(&alarm->timer, ring))
            return -1;
    }
    if (!looks || bpf_timer_init(&looks->timer, &alarms, CLOCK_MONOTONIC) ||
        bpf_timer_set_callback(&looks->timer, watch) ||
        bpf_timer_start(&looks->timer, (uint64_t)state.patience_ns / LOOKS, 0))
        return -1;
    return scx_bpf_create_dsq(OTHERS, -1);
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
    .stopping = (void *)on_stopping,
    .quiescent = (void *)on_quiescent,
    .set_cpumask = (void *)on_set_cpumask,
    .update_idle = (void *)on_update_idle,
    .enable = (void *)on_enable,
    .disable = (void *)on_disable,
    .init = (void *)on_init,
    .exit = (void *)on_exit,
    .flags = SCX_OPS_KEEP_BUILTIN_IDLE | SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING |
             SCX_OPS_ENQ_MIGRATION_DISABLED,
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
    case SCX_TELL:
        return policy_tell(state.instance, object, (int64_t)argument, (int64_t)argument, now);
    case SCX_TIMER:
        return policy_timer(state.instance, argument, now);
    case SCX_ACCOUNT:
        return policy_account(state.instance, now);
    case SCX_STEAL:
        return policy_steal(state.instance, argument, (int64_t)object);
    case SCX_SCHEDULE:
        return policy_schedule(state.instance, argument, now);
    default:
        return ~0ull;
    }
}

/* A guest tells what its VCPU works on. It is loaded only for policies that go by it. */
SEC("tp_btf/kvm_hypercall")
int BPF_PROG(on_hypercall, unsigned long number, unsigned long left_ns, unsigned long order)
{
    uint64_t owner;
    unsigned long flags;
    int64_t now, deadline_ns = (int64_t)left_ns;

    USES_ARENA();
    if (number != SCX_HYPERCALL)
        return 0;
    bpf_local_irq_save(&flags);
    owner = find_owner(bpf_get_current_task_btf());
    if (owner && owner_at(owner)->joined && lock()) {
        now = now_of_policy();
        deadline_ns = deadline_ns < NEVER - now ? deadline_ns + now : NEVER;
        if (order == 1ul << 63)
            order++; /* nothing comes before the least that a policy takes */
        policy_tell(state.instance, owner_at(owner)->vcpu, deadline_ns, (int64_t)order, now);
        settle();
        unlock();
    }
    bpf_local_irq_restore(&flags);
    return 0;
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
            now = now_of_policy();
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
