/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Laxity's policies as Xen schedulers: `sched=laxity laxity=POLICY` on Xen's command line.
 *
 * The policies are the files of policy/src, compiled as they are. This file is their embedder: it
 * gives them memory, time, timers and a lock, and tells them what Xen does.
 *
 * Locks. A cpupool has one instance of a policy and one lock, which is the schedule_lock of each
 * of its CPUs. "The lock of that CPU" and "every CPU's lock", which the contract asks for, are thus
 * the same one, and try_lock always has it already. Xen's core holds it, with interrupts off, for
 * do_schedule, sleep, wake, yield, migrate and pick_resource; the rest of the operations take it.
 *
 * Time. NOW() is monotonic on a CPU, and may be a little behind another CPU's. Policies want one
 * clock: laxity_now() never goes back, which the lock makes easy.
 *
 * The running VCPU. A policy's `current` is its last decision. It differs from who is on the CPU
 * between a kick and the decision that follows, and while Xen runs tasklets: then the idle unit is
 * put in the place of the decision, whose VCPU pays for that time. A VCPU that is moved or removed
 * meanwhile is taken off first: see laxity_take_off.
 *
 * Timers. The end of a decision is the sched_resource's own timer, which Xen sets after
 * do_schedule; `extend` sets it later. Every CPU has one timer of the policy's, and an instance one
 * for accounting, which goes to another CPU when its own leaves the pool.
 */
#include <xen/cpu.h>
#include <xen/errno.h>
#include <xen/event.h>
#include <xen/guest_access.h>
#include <xen/init.h>
#include <xen/inttypes.h>
#include <xen/lib.h>
#include <xen/param.h>
#include <xen/sched.h>
#include <xen/softirq.h>
#include <xen/time.h>
#include <xen/timer.h>
#include <xen/trace.h>

#include <public/domctl.h>
#include <public/sysctl.h>

#include "../private.h"

#pragma push_macro("current") /* Xen's macro; for policies it is a name */
#undef current
#include <laxity/policy.h>
static inline struct laxity_vcpu *laxity_decided(const struct laxity_cpu *cpu)
{
    return cpu->current;
}
#pragma pop_macro("current")
#include <laxity_op.h>

#define TRC_LAXITY_DECISION TRC_SCHED_CLASS_EVT(LAXITY, 1)
#define TRC_LAXITY_EVENT TRC_SCHED_CLASS_EVT(LAXITY, 2) /* + enum laxity_event */

static const struct laxity_settings laxity_standard_settings = {
#define LAXITY_SETTING(name_, field_, key_, kind_, least_, most_, standard_, ...) \
    .field_ = standard_,
#include <parameters.def>
};

static const struct laxity_parameters laxity_standard_parameters = {
#define LAXITY_PARAMETER(name_, field_, key_, kind_, least_, most_, standard_, ...) \
    .field_ = standard_,
#include <parameters.def>
};

/*
 * The parameters that a VCPU begins with: enough to boot, behind everybody who was given more. A
 * budget below the period makes VCPUs of equal priority take turns on extra time.
 */
static struct laxity_parameters laxity_first_parameters(void)
{
    struct laxity_parameters parameters = laxity_standard_parameters;

    parameters.budget_ns = LAXITY_MILLISECOND;
    parameters.period_ns = 10 * LAXITY_MILLISECOND;
    parameters.priority = LAXITY_PRIORITY_MAX;
    parameters.extratime = true;
    return parameters;
}

static const struct {
    const char *name;
    const struct laxity_policy *policy;
    unsigned int substrates;
} laxity_policies[] = {
#define LAXITY_POLICY(identifier_, name_, family_, switch_group_, substrates_, ...) \
    {name_, &laxity_##identifier_, substrates_},
#include <policies.def>
};

/* Blocks have the size of the largest policy's, so that an empty pool can go over to any. */
static size_t __read_mostly laxity_instance_bytes, __read_mostly laxity_cpu_bytes,
    __read_mostly laxity_domain_bytes, __read_mostly laxity_vcpu_bytes;

static const struct laxity_policy *__read_mostly laxity_boot_policy = &laxity_deferrable;

/* One a cpupool. */
struct laxity_pool {
    spinlock_t lock;
    s_time_t last_now;
    struct timer account;
    unsigned int cpus, domains;
    uint64_t decisions, switches, timers, wakes;
    struct laxity_instance *instance;
    struct laxity_cpu *cpu[]; /* by number, of all that Xen may have */
};

/* One a CPU of a pool. */
struct laxity_pcpu {
    struct timer timer;
    struct laxity_pool *pool;
    unsigned int vcpus;      /* of which it is the `cpu` */
    struct laxity_cpu block; /* the policy's own state follows */
};

static const struct laxity_policy *laxity_find_policy(const char *name)
{
    for (unsigned int i = 0; i < ARRAY_SIZE(laxity_policies); i++)
        if (laxity_policies[i].substrates & LAXITY_ON_XEN && !strcmp(name, laxity_policies[i].name))
            return laxity_policies[i].policy;
    return NULL;
}

static const char *laxity_policy_name(const struct laxity_policy *policy)
{
    unsigned int i = 0;

    while (laxity_policies[i].policy != policy)
        i++;
    return laxity_policies[i].name;
}

static int __init cf_check laxity_parse_option(const char *name)
{
    const struct laxity_policy *policy = laxity_find_policy(name);
    if (!policy)
        return -EINVAL; /* Xen says so on its console */
    laxity_boot_policy = policy;
    return 0;
}
custom_param("laxity", laxity_parse_option);

static inline struct laxity_pool *laxity_pool_of(const struct scheduler *scheduler)
{
    return scheduler->sched_data;
}

static inline struct laxity_vcpu *laxity_vcpu_of(const struct sched_unit *unit)
{
    return unit->priv;
}

static inline struct laxity_pcpu *laxity_pcpu_of(const struct laxity_pool *pool, unsigned int cpu)
{
    return container_of(pool->cpu[cpu], struct laxity_pcpu, block);
}

/* Whether the policy knows the unit: not yet, or no more, while its domain is made or ends. */
static inline bool laxity_is_inserted(const struct sched_unit *unit)
{
    return unit->priv && laxity_vcpu_of(unit)->owner;
}

static inline struct laxity_pool *laxity_owner(const struct laxity_instance *instance)
{
    return instance->owner;
}

/* The beginning of every operation, under the lock: the time, on the pool's one clock. */
static inline int64_t laxity_at(struct laxity_pool *pool, s_time_t now)
{
    if (unlikely(now < pool->last_now))
        now = pool->last_now;
    pool->last_now = now;
    pool->instance->tracing = tb_init_done && trace_will_trace_event(TRC_LAXITY_EVENT);
    return now;
}

static inline int64_t laxity_now(struct laxity_pool *pool)
{
    return laxity_at(pool, NOW());
}

/* What policies ask for. */

static void cf_check embedder_arm_timer(struct laxity_instance *instance, uint32_t cpu,
                                        int64_t at_ns)
{
    struct timer *timer = &laxity_pcpu_of(laxity_owner(instance), cpu)->timer;
    if (at_ns == LAXITY_NEVER)
        stop_timer(timer);
    else
        set_timer(timer, at_ns);
}

static void cf_check embedder_arm_account(struct laxity_instance *instance, int64_t at_ns)
{
    struct timer *timer = &laxity_owner(instance)->account;
    if (at_ns == LAXITY_NEVER)
        stop_timer(timer);
    else
        set_timer(timer, at_ns);
}

static void cf_check embedder_kick(struct laxity_instance *instance, uint32_t cpu)
{
    (void)instance;
    cpu_raise_softirq(cpu, SCHEDULE_SOFTIRQ);
}

static void cf_check embedder_extend(struct laxity_instance *instance, uint32_t cpu,
                                     int64_t until_ns)
{
    struct timer *timer = &get_sched_res(cpu)->s_timer;
    (void)instance;
    if (until_ns == LAXITY_NEVER)
        stop_timer(timer);
    else
        set_timer(timer, until_ns);
}

static bool cf_check embedder_may_run_on(struct laxity_instance *instance,
                                         const struct laxity_vcpu *vcpu, uint32_t cpu)
{
    const struct sched_unit *unit = vcpu->owner;
    (void)instance;
    /* The second says no to a CPU that is about to leave the pool. */
    return cpumask_test_cpu(cpu, unit->cpu_hard_affinity) &&
           cpumask_test_cpu(cpu, cpupool_domain_master_cpumask(unit->domain));
}

static bool cf_check embedder_try_lock(struct laxity_instance *instance, uint32_t cpu)
{
    (void)instance;
    (void)cpu;
    return true;
}

static void cf_check embedder_unlock(struct laxity_instance *instance, uint32_t cpu)
{
    (void)instance;
    (void)cpu;
}

static inline uint32_t laxity_trace_name(const struct laxity_vcpu *vcpu)
{
    return vcpu ? vcpu->domain->id << 16 | vcpu->id : ~0u;
}

static void cf_check embedder_trace(struct laxity_instance *instance,
                                    const struct laxity_vcpu *vcpu, enum laxity_event event,
                                    int64_t argument)
{
    (void)instance;
    TRACE_3D(TRC_LAXITY_EVENT + event, laxity_trace_name(vcpu), argument, argument >> 32);
}

static const struct laxity_embedder laxity_embedder = {
    .arm_timer = embedder_arm_timer,
    .arm_account = embedder_arm_account,
    .kick = embedder_kick,
    .extend = embedder_extend,
    .may_run_on = embedder_may_run_on,
    .try_lock = embedder_try_lock,
    .unlock = embedder_unlock,
    .trace = embedder_trace,
};

/* Timers. Both run as softirqs, without the lock. */

static void cf_check laxity_timer(void *data)
{
    struct laxity_pcpu *pcpu = data;
    struct laxity_pool *pool = pcpu->pool;

    spin_lock_irq(&pool->lock);
    /* The CPU may have left the pool since the timer went off. */
    if (pool->cpu[pcpu->block.number]) {
        int64_t now = laxity_now(pool);
        pool->timers++;
        pool->instance->policy->timer(pool->instance, &pcpu->block, now);
    }
    spin_unlock_irq(&pool->lock);
}

static void cf_check laxity_account(void *data)
{
    struct laxity_pool *pool = data;

    spin_lock_irq(&pool->lock);
    if (pool->instance->policy->account) {
        int64_t now = laxity_now(pool);
        pool->timers++;
        pool->instance->policy->account(pool->instance, now);
    }
    spin_unlock_irq(&pool->lock);
}

/* VCPUs. */

/* The policy's decision for that CPU is this VCPU, which is asleep and not on the CPU: lets the
 * policy decide again, and Xen follow. */
static void laxity_take_off(struct laxity_pool *pool, struct laxity_vcpu *vcpu, int64_t now)
{
    struct laxity_cpu *cpu = pool->cpu[vcpu->cpu];

    if (!cpu || laxity_decided(cpu) != vcpu)
        return;
    pool->instance->policy->schedule(pool->instance, cpu, now);
    cpu_raise_softirq(cpu->number, SCHEDULE_SOFTIRQ);
}

static void laxity_put_to_sleep(struct laxity_pool *pool, struct laxity_vcpu *vcpu, int64_t now)
{
    if (!vcpu->runnable)
        return;
    vcpu->runnable = false;
    pool->instance->policy->sleep(pool->instance, vcpu, now);
}

/* The CPU with the fewest VCPUs of those on which the unit may run. */
static struct sched_resource *laxity_place(const struct laxity_pool *pool,
                                           const struct sched_unit *unit)
{
    unsigned int cpu, best = nr_cpu_ids;

    for_each_cpu (cpu, cpupool_domain_master_cpumask(unit->domain))
        if (cpumask_test_cpu(cpu, unit->cpu_hard_affinity) &&
            (best == nr_cpu_ids ||
             laxity_pcpu_of(pool, cpu)->vcpus < laxity_pcpu_of(pool, best)->vcpus))
            best = cpu;
    ASSERT(best < nr_cpu_ids);
    return get_sched_res(best);
}

/* A unit stays where it is if it may. */
static struct sched_resource *cf_check laxity_pick_resource(const struct scheduler *scheduler,
                                                            const struct sched_unit *unit)
{
    struct laxity_pool *pool = laxity_pool_of(scheduler);
    if (embedder_may_run_on(pool->instance, laxity_vcpu_of(unit), sched_unit_master(unit)))
        return unit->res;
    return laxity_place(pool, unit);
}

static void *cf_check laxity_alloc_udata(const struct scheduler *scheduler, struct sched_unit *unit,
                                         void *domain)
{
    struct laxity_vcpu *vcpu = xzalloc_bytes(laxity_vcpu_bytes);

    (void)scheduler;
    if (!vcpu)
        return NULL;
    vcpu->domain = domain; /* NULL for the idle domain, whose units no policy sees */
    vcpu->id = unit->unit_id;
    return vcpu;
}

static void cf_check laxity_free_udata(const struct scheduler *scheduler, void *vcpu)
{
    (void)scheduler;
    xfree(vcpu);
}

static void cf_check laxity_insert_unit(const struct scheduler *scheduler, struct sched_unit *unit)
{
    struct laxity_pool *pool = laxity_pool_of(scheduler);
    struct laxity_vcpu *vcpu = laxity_vcpu_of(unit);
    const struct laxity_policy *policy = pool->instance->policy;
    enum laxity_error error;
    unsigned long flags;
    int64_t now;

    spin_lock_irqsave(&pool->lock, flags);
    now = laxity_now(pool);
    vcpu->owner = unit;
    sched_set_res(unit, laxity_place(pool, unit));
    vcpu->cpu = sched_unit_master(unit);
    laxity_pcpu_of(pool, vcpu->cpu)->vcpus++;
    error = policy->add_vcpu(pool->instance, vcpu, &vcpu->domain->parameters, now);
    BUG_ON(error != LAXITY_OK); /* the domain has them because they were accepted */
    if (unit_runnable(unit)) {
        vcpu->runnable = true;
        policy->wake(pool->instance, vcpu, now);
    }
    spin_unlock_irqrestore(&pool->lock, flags);
}

static void cf_check laxity_remove_unit(const struct scheduler *scheduler, struct sched_unit *unit)
{
    struct laxity_pool *pool = laxity_pool_of(scheduler);
    struct laxity_vcpu *vcpu = laxity_vcpu_of(unit);
    unsigned long flags;
    int64_t now;

    /* Its domain is paused, but a CPU that it was switched out of may not have come to
     * context_saved yet, and what is removed is soon freed. */
    while (ACCESS_ONCE(vcpu->on_cpu))
        cpu_relax();
    spin_lock_irqsave(&pool->lock, flags);
    now = laxity_now(pool);
    laxity_put_to_sleep(pool, vcpu, now);
    laxity_take_off(pool, vcpu, now);
    pool->instance->policy->remove_vcpu(pool->instance, vcpu, now);
    laxity_pcpu_of(pool, vcpu->cpu)->vcpus--;
    vcpu->owner = NULL;
    spin_unlock_irqrestore(&pool->lock, flags);
}

static void cf_check laxity_sleep(const struct scheduler *scheduler, struct sched_unit *unit)
{
    struct laxity_pool *pool = laxity_pool_of(scheduler);
    laxity_put_to_sleep(pool, laxity_vcpu_of(unit), laxity_now(pool));
}

static void cf_check laxity_wake(const struct scheduler *scheduler, struct sched_unit *unit)
{
    struct laxity_pool *pool = laxity_pool_of(scheduler);
    struct laxity_vcpu *vcpu = laxity_vcpu_of(unit);

    if (vcpu->runnable)
        return;
    vcpu->runnable = true;
    pool->wakes++;
    pool->instance->policy->wake(pool->instance, vcpu, laxity_now(pool));
}

static void cf_check laxity_yield(const struct scheduler *scheduler, struct sched_unit *unit)
{
    struct laxity_pool *pool = laxity_pool_of(scheduler);
    pool->instance->policy->yield(pool->instance, laxity_vcpu_of(unit), laxity_now(pool));
}

/* What the guest says of its work, which is not trusted: it gains nothing that others own. */
static long cf_check laxity_tell_work(const struct scheduler *scheduler, struct sched_unit *unit,
                                      XEN_GUEST_HANDLE_PARAM(void) call)
{
    struct laxity_pool *pool = laxity_pool_of(scheduler);
    const struct laxity_policy *policy;
    struct laxity_work work;
    unsigned long flags;
    int64_t now, deadline_ns = LAXITY_NEVER;
    long result = -EOPNOTSUPP;

    if (copy_from_guest(&work, call, 1))
        return -EFAULT;
    spin_lock_irqsave(&pool->lock, flags);
    policy = pool->instance->policy;
    if (policy->tell) {
        now = laxity_now(pool);
        if (work.left_ns < LAXITY_NEVER - now)
            deadline_ns = now + work.left_ns;
        /* Nothing comes before the least that a policy takes. */
        if (work.order < -INT64_MAX)
            work.order = -INT64_MAX;
        policy->tell(pool->instance, laxity_vcpu_of(unit), deadline_ns, work.order, now);
        result = 0;
    }
    spin_unlock_irqrestore(&pool->lock, flags);
    return result;
}

/* Asks an idle CPU on which the VCPU may run to look for work. */
static void laxity_call_idle(const struct laxity_pool *pool, const struct laxity_vcpu *vcpu)
{
    for (unsigned int cpu = 0; cpu < nr_cpu_ids; cpu++)
        if (pool->cpu[cpu] && !laxity_decided(pool->cpu[cpu]) &&
            embedder_may_run_on(pool->instance, vcpu, cpu)) {
            cpu_raise_softirq(cpu, SCHEDULE_SOFTIRQ);
            return;
        }
}

/* The state of a unit that was switched out is saved: another CPU may have it. */
static void cf_check laxity_context_saved(const struct scheduler *scheduler,
                                          struct sched_unit *unit)
{
    struct laxity_pool *pool = laxity_pool_of(scheduler);
    struct laxity_vcpu *vcpu = laxity_vcpu_of(unit);
    spinlock_t *lock;

    if (is_idle_unit(unit))
        return;
    if (!pool->instance->policy->steals || pool->cpus == 1) {
        smp_wmb();
        ACCESS_ONCE(vcpu->on_cpu) =
            false; /* the last that is done with it: see laxity_remove_unit */
        return;
    }
    lock = unit_schedule_lock_irq(unit);
    vcpu->on_cpu = false;
    /* A CPU that looked for work meanwhile had to leave it. */
    if (vcpu->runnable && laxity_decided(pool->cpu[vcpu->cpu]) != vcpu)
        laxity_call_idle(pool, vcpu);
    unit_schedule_unlock_irq(lock, unit);
}

/* The unit is asleep and off every CPU. */
static void cf_check laxity_migrate(const struct scheduler *scheduler, struct sched_unit *unit,
                                    unsigned int cpu)
{
    struct laxity_pool *pool = laxity_pool_of(scheduler);
    struct laxity_vcpu *vcpu = laxity_vcpu_of(unit);

    if (cpu != vcpu->cpu) {
        int64_t now = laxity_now(pool);
        laxity_put_to_sleep(pool, vcpu, now);
        laxity_take_off(pool, vcpu, now);
        laxity_pcpu_of(pool, vcpu->cpu)->vcpus--;
        pool->instance->policy->move_vcpu(pool->instance, vcpu, cpu, now);
        laxity_pcpu_of(pool, cpu)->vcpus++;
    }
    sched_set_res(unit, get_sched_res(cpu));
}

static void cf_check laxity_do_schedule(const struct scheduler *scheduler, struct sched_unit *unit,
                                        s_time_t xen_now, bool tasklet_work_scheduled)
{
    const unsigned int cpu = sched_get_resource_cpu(smp_processor_id());
    struct laxity_pool *pool = laxity_pool_of(scheduler);
    const struct laxity_policy *policy = pool->instance->policy;
    struct sched_unit *next = sched_idle_unit(cpu);
    struct laxity_decision decision;
    int64_t now = laxity_at(pool, xen_now);

    if (!is_idle_unit(unit) && !unit_runnable(unit))
        laxity_vcpu_of(unit)->runnable = false;
    for (;;) {
        decision = policy->schedule(pool->instance, pool->cpu[cpu], now);
        if (!decision.vcpu || unit_runnable_state(decision.vcpu->owner))
            break;
        /* It was paused a moment ago; Xen's sleep, which tells so, waits for the lock. */
        decision.vcpu->runnable = false;
    }
    pool->decisions++;
    if (unlikely(pool->instance->tracing)) {
        int64_t until_ns =
            decision.until_ns == LAXITY_NEVER ? LAXITY_NEVER : decision.until_ns - now;
        TRACE_3D(TRC_LAXITY_DECISION, laxity_trace_name(decision.vcpu), until_ns, until_ns >> 32);
    }

    unit->next_time = -1;
    if (decision.until_ns != LAXITY_NEVER)
        unit->next_time = decision.until_ns > xen_now ? decision.until_ns - xen_now : 0;
    if (decision.vcpu && !tasklet_work_scheduled) {
        next = decision.vcpu->owner;
        next->migrated = sched_unit_master(next) != cpu;
        if (next->migrated) {
            laxity_pcpu_of(pool, sched_unit_master(next))->vcpus--;
            laxity_pcpu_of(pool, cpu)->vcpus++;
            sched_set_res(next, get_sched_res(cpu));
        }
        decision.vcpu->on_cpu = true;
    }
    pool->switches += next != unit;
    unit->next_task = next;
}

/* Domains, CPUs, pools. */

static void *cf_check laxity_alloc_domdata(const struct scheduler *scheduler, struct domain *xen)
{
    struct laxity_pool *pool = laxity_pool_of(scheduler);
    struct laxity_domain *domain = xzalloc_bytes(laxity_domain_bytes);
    const struct laxity_parameters parameters = laxity_first_parameters();
    enum laxity_error error;
    unsigned long flags;

    if (!domain)
        return ERR_PTR(-ENOMEM);
    domain->id = xen->domain_id;
    spin_lock_irqsave(&pool->lock, flags);
    laxity_now(pool);
    error = pool->instance->policy->add_domain(pool->instance, domain, &parameters);
    pool->domains++;
    spin_unlock_irqrestore(&pool->lock, flags);
    BUG_ON(error != LAXITY_OK);
    return domain;
}

static void cf_check laxity_free_domdata(const struct scheduler *scheduler, void *domain)
{
    struct laxity_pool *pool = laxity_pool_of(scheduler);
    unsigned long flags;

    if (!domain)
        return;
    spin_lock_irqsave(&pool->lock, flags);
    pool->instance->policy->remove_domain(pool->instance, domain);
    pool->domains--;
    spin_unlock_irqrestore(&pool->lock, flags);
    xfree(domain);
}

static void *cf_check laxity_alloc_pdata(const struct scheduler *scheduler, int cpu)
{
    struct laxity_pcpu *pcpu =
        xzalloc_bytes(offsetof(struct laxity_pcpu, block) + laxity_cpu_bytes);

    if (!pcpu)
        return ERR_PTR(-ENOMEM);
    pcpu->pool = laxity_pool_of(scheduler);
    pcpu->block.number = cpu;
    return pcpu;
}

static void cf_check laxity_free_pdata(const struct scheduler *scheduler, void *pcpu, int cpu)
{
    (void)scheduler;
    (void)cpu;
    xfree(pcpu);
}

/*
 * The CPU comes to this pool. Xen holds the lock that the CPU had before; the operations of its new
 * pool need the new one, which nobody who holds it waits for the old one for.
 */
static spinlock_t *cf_check laxity_switch_sched(struct scheduler *scheduler, unsigned int cpu,
                                                void *data, void *idle)
{
    struct laxity_pool *pool = laxity_pool_of(scheduler);
    struct laxity_pcpu *pcpu = data;

    ASSERT(get_sched_res(cpu)->schedule_lock != &pool->lock);
    init_timer(&pcpu->timer, laxity_timer, pcpu, cpu);

    spin_lock(&pool->lock);
    if (!pool->cpus++)
        init_timer(&pool->account, laxity_account, pool, cpu);
    pool->cpu[cpu] = &pcpu->block;
    pool->instance->policy->add_cpu(pool->instance, &pcpu->block, laxity_now(pool));
    spin_unlock(&pool->lock);

    sched_idle_unit(cpu)->priv = idle;
    return &pool->lock;
}

/* Sees that the timer of accounting is on a CPU of the pool. */
static void laxity_move_account(struct laxity_pool *pool, unsigned int leaving)
{
    if (pool->account.cpu != leaving)
        return;
    for (unsigned int cpu = 0; cpu < nr_cpu_ids; cpu++)
        if (cpu != leaving && pool->cpu[cpu]) {
            migrate_timer(&pool->account, cpu);
            return;
        }
}

/* The CPU has left; no VCPU is in its queues. */
static void cf_check laxity_deinit_pdata(const struct scheduler *scheduler, void *data, int cpu)
{
    struct laxity_pool *pool = laxity_pool_of(scheduler);
    struct laxity_pcpu *pcpu = data;
    unsigned long flags;
    bool was_last;

    spin_lock_irqsave(&pool->lock, flags);
    ASSERT(!pcpu->vcpus && !laxity_decided(&pcpu->block));
    pool->instance->policy->remove_cpu(pool->instance, &pcpu->block, laxity_now(pool));
    pool->cpu[cpu] = NULL;
    was_last = !--pool->cpus;
    if (!was_last)
        laxity_move_account(pool, cpu);
    spin_unlock_irqrestore(&pool->lock, flags);

    /* Not under the lock: they wait for a handler that may wait for it. */
    kill_timer(&pcpu->timer);
    if (was_last)
        kill_timer(&pool->account);
}

static void cf_check laxity_move_timers(const struct scheduler *scheduler,
                                        struct sched_resource *resource)
{
    struct laxity_pool *pool = laxity_pool_of(scheduler);
    unsigned long flags;

    spin_lock_irqsave(&pool->lock, flags);
    if (!cpumask_test_cpu(resource->master_cpu, resource->cpupool->res_valid))
        laxity_move_account(pool, resource->master_cpu);
    spin_unlock_irqrestore(&pool->lock, flags);
}

static enum laxity_error laxity_begin(struct laxity_pool *pool, const struct laxity_policy *policy,
                                      const struct laxity_settings *settings)
{
    struct laxity_instance *instance = pool->instance;

    memset(instance, 0, laxity_instance_bytes);
    instance->policy = policy;
    instance->embedder = &laxity_embedder;
    instance->owner = pool;
    instance->cpus = nr_cpu_ids;
    instance->cpu = pool->cpu;
    return policy->init(instance, settings);
}

static int cf_check laxity_init(struct scheduler *scheduler)
{
    struct laxity_pool *pool = xzalloc_flex_struct(struct laxity_pool, cpu, nr_cpu_ids);

    if (!pool)
        return -ENOMEM;
    pool->instance = xzalloc_bytes(laxity_instance_bytes);
    if (!pool->instance || laxity_begin(pool, laxity_boot_policy, &laxity_standard_settings)) {
        xfree(pool->instance);
        xfree(pool);
        return -ENOMEM;
    }
    spin_lock_init(&pool->lock);
    scheduler->sched_data = pool;
    printk("Laxity: policy %s\n", laxity_policy_name(laxity_boot_policy));
    return 0;
}

static void cf_check laxity_deinit(struct scheduler *scheduler)
{
    struct laxity_pool *pool = laxity_pool_of(scheduler);

    ASSERT(!pool->cpus && !pool->domains);
    scheduler->sched_data = NULL;
    xfree(pool->instance);
    xfree(pool);
}

static int __init cf_check laxity_global_init(void)
{
    for (unsigned int i = 0; i < ARRAY_SIZE(laxity_policies); i++) {
        const struct laxity_policy *policy = laxity_policies[i].policy;
        laxity_instance_bytes = max(laxity_instance_bytes, policy->instance_bytes);
        laxity_cpu_bytes = max(laxity_cpu_bytes, policy->cpu_bytes);
        laxity_domain_bytes = max(laxity_domain_bytes, policy->domain_bytes);
        laxity_vcpu_bytes = max(laxity_vcpu_bytes, policy->vcpu_bytes);
    }
    return 0;
}

/* Parameters by hypercall: laxity_op.h. All under the lock. */

static void laxity_op_put_parameters(struct laxity_op *op,
                                     const struct laxity_parameters *parameters)
{
#define LAXITY_PARAMETER(name_, field_, ...) op->field_ = parameters->field_;
#include <parameters.def>
}

static struct laxity_parameters laxity_op_parameters(const struct laxity_op *op)
{
    return (struct laxity_parameters){
#define LAXITY_PARAMETER(name_, field_, ...) .field_ = op->field_,
#include <parameters.def>
    };
}

static void laxity_op_get_pool(const struct laxity_pool *pool, struct laxity_op *op)
{
    const struct laxity_settings *settings = &pool->instance->settings;

    safe_strcpy(op->policy, laxity_policy_name(pool->instance->policy));
#define LAXITY_SETTING(name_, field_, ...) op->field_ = settings->field_;
#include <parameters.def>
    op->now_ns = pool->last_now;
    op->decisions = pool->decisions;
    op->switches = pool->switches;
    op->timers = pool->timers;
    op->wakes = pool->wakes;
}

static enum laxity_error laxity_op_set_settings(struct laxity_pool *pool,
                                                const struct laxity_op *op, int64_t now)
{
    const struct laxity_settings settings = {
#define LAXITY_SETTING(name_, field_, ...) .field_ = op->field_,
#include <parameters.def>
    };
    return pool->instance->policy->set_settings(pool->instance, &settings, now);
}

/*
 * Another policy: at once where the two can take each other's VCPUs over, otherwise only while the
 * pool has no domain.
 */
static enum laxity_error laxity_op_set_policy(struct laxity_pool *pool, struct laxity_op *op,
                                              int64_t now)
{
    struct laxity_instance *instance = pool->instance;
    const struct laxity_policy *policy, *before = instance->policy;
    const struct laxity_settings settings = instance->settings;
    enum laxity_error error;

    op->policy[sizeof(op->policy) - 1] = 0;
    policy = laxity_find_policy(op->policy);
    if (!policy)
        return LAXITY_ERROR_POLICY;
    if (pool->domains)
        return before->become(instance, policy, now);

    for (unsigned int cpu = 0; cpu < nr_cpu_ids; cpu++)
        if (pool->cpu[cpu])
            before->remove_cpu(instance, pool->cpu[cpu], now);
    error = laxity_begin(pool, policy, &settings);
    /* Settings that it refuses: the one before had accepted them. */
    if (error && laxity_begin(pool, before, &settings))
        BUG();
    for (unsigned int cpu = 0; cpu < nr_cpu_ids; cpu++)
        if (pool->cpu[cpu]) {
            memset(pool->cpu[cpu], 0, laxity_cpu_bytes);
            pool->cpu[cpu]->number = cpu;
            instance->policy->add_cpu(instance, pool->cpu[cpu], now);
            cpu_raise_softirq(cpu, SCHEDULE_SOFTIRQ);
        }
    return error;
}

/* The rhythm of every budget of the pool. */
static void laxity_op_set_phase(struct laxity_pool *pool, const struct cpupool *cpupool,
                                int64_t phase_ns, int64_t now)
{
    const struct laxity_policy *policy = pool->instance->policy;
    const struct sched_unit *unit;
    struct domain *domain;

    if (!policy->set_phase)
        return;
    rcu_read_lock(&domlist_read_lock);
    for_each_domain_in_cpupool (domain, cpupool)
        for_each_sched_unit (domain, unit)
            if (laxity_is_inserted(unit))
                policy->set_phase(pool->instance, laxity_vcpu_of(unit), phase_ns, now);
    rcu_read_unlock(&domlist_read_lock);
}

static void laxity_op_get_vcpu(const struct laxity_vcpu *vcpu, struct laxity_op *op)
{
    laxity_op_put_parameters(op, &vcpu->parameters);
    op->cpu = vcpu->cpu;
    op->runnable = vcpu->runnable;
}

/* The domain's parameters and those of each VCPU that it has: all of them, or none. */
static enum laxity_error laxity_op_set_domain(struct laxity_pool *pool, struct domain *xen,
                                              const struct laxity_op *op, int64_t now)
{
    const struct laxity_policy *policy = pool->instance->policy;
    struct laxity_domain *domain = xen->sched_priv;
    const struct laxity_parameters before = domain->parameters,
                                   parameters = laxity_op_parameters(op);
    enum laxity_error error = policy->set_domain(pool->instance, domain, &parameters, now);
    const struct sched_unit *unit;

    for_each_sched_unit (xen, unit) {
        if (error)
            break;
        if (laxity_is_inserted(unit))
            error = policy->set_vcpu(pool->instance, laxity_vcpu_of(unit), &parameters, now);
        /* What one of them refuses, the first refuses, before anything has changed. */
        if (error)
            policy->set_domain(pool->instance, domain, &before, now);
    }
    return error;
}

static int laxity_op_on_domain(struct laxity_pool *pool, struct domain *xen, struct laxity_op *op)
{
    struct laxity_domain *domain = xen->sched_priv;
    const struct vcpu *of_domain;
    struct laxity_vcpu *vcpu = NULL;
    struct laxity_parameters parameters;
    int64_t now = laxity_now(pool);

    if (op->command == LAXITY_OP_GET_VCPU || op->command == LAXITY_OP_SET_VCPU) {
        of_domain = domain_vcpu(xen, op->vcpu);
        if (!of_domain || !laxity_is_inserted(of_domain->sched_unit))
            return -ENOENT;
        vcpu = laxity_vcpu_of(of_domain->sched_unit);
    }
    op->vcpus = 0;
    for_each_vcpu (xen, of_domain)
        op->vcpus++;
    switch (op->command) {
    case LAXITY_OP_GET_DOMAIN:
        laxity_op_put_parameters(op, &domain->parameters);
        break;
    case LAXITY_OP_GET_VCPU:
        laxity_op_get_vcpu(vcpu, op);
        break;
    case LAXITY_OP_SET_DOMAIN:
        op->error = laxity_op_set_domain(pool, xen, op, now);
        break;
    case LAXITY_OP_SET_VCPU:
        parameters = laxity_op_parameters(op);
        op->error = pool->instance->policy->set_vcpu(pool->instance, vcpu, &parameters, now);
        break;
    }
    return op->error ? -EINVAL : 0;
}

static int laxity_op_carry_out(const struct scheduler *scheduler, struct laxity_op *op)
{
    struct laxity_pool *pool = laxity_pool_of(scheduler);
    struct domain *domain = NULL;
    unsigned long flags;
    int result = 0;

    op->error = LAXITY_OK;
    if (op->version != LAXITY_OP_VERSION)
        return -EACCES;
    switch (op->command) {
    case LAXITY_OP_GET_POOL:
    case LAXITY_OP_SET_POLICY:
    case LAXITY_OP_SET_SETTINGS:
    case LAXITY_OP_SET_PHASE:
        break;
    case LAXITY_OP_GET_DOMAIN:
    case LAXITY_OP_GET_VCPU:
    case LAXITY_OP_SET_DOMAIN:
    case LAXITY_OP_SET_VCPU:
        domain = rcu_lock_domain_by_id(op->domid);
        if (!domain)
            return -ESRCH;
        /* Domains change pools by sysctl, one of which is at work: this one. */
        if (!domain->cpupool || domain->cpupool->sched != scheduler) {
            rcu_unlock_domain(domain);
            return -ESRCH;
        }
        break;
    default:
        return -EOPNOTSUPP;
    }

    spin_lock_irqsave(&pool->lock, flags);
    laxity_now(pool);
    if (domain)
        result = laxity_op_on_domain(pool, domain, op);
    else if (op->command == LAXITY_OP_SET_POLICY)
        op->error = laxity_op_set_policy(pool, op, laxity_now(pool));
    else if (op->command == LAXITY_OP_SET_SETTINGS)
        op->error = laxity_op_set_settings(pool, op, laxity_now(pool));
    else if (op->command == LAXITY_OP_SET_PHASE)
        laxity_op_set_phase(pool, scheduler->cpupool, op->phase_ns, laxity_now(pool));
    if (!domain && !op->error)
        laxity_op_get_pool(pool, op);
    spin_unlock_irqrestore(&pool->lock, flags);

    if (domain)
        rcu_unlock_domain(domain);
    return op->error ? -EINVAL : result;
}

static int cf_check laxity_adjust_global(const struct scheduler *scheduler,
                                         struct xen_sysctl_scheduler_op *call)
{
    struct laxity_op op;
    bool sets;
    int result;

    if (copy_from_guest((uint8_t *)&op, call->u.sched_laxity.op, sizeof(op)))
        return -EFAULT;
    sets = op.command >= LAXITY_OP_SET_POLICY;
    if (sets != (call->cmd == XEN_SYSCTL_SCHEDOP_putinfo))
        return -EINVAL;
    result = laxity_op_carry_out(scheduler, &op);
    if (copy_to_guest(call->u.sched_laxity.op, (uint8_t *)&op, sizeof(op)))
        return -EFAULT;
    return result;
}

/* What debug key r shows. */

static void cf_check laxity_dump_line(struct laxity_dump *dump, const struct laxity_vcpu *vcpu,
                                      const char *state, int64_t left_ns, int64_t next_ns)
{
    (void)dump;
    printk("  %pv %-9s left %" PRId64 " ns", ((const struct sched_unit *)vcpu->owner)->vcpu_list,
           state, left_ns);
    if (next_ns == LAXITY_NEVER)
        printk("\n");
    else
        printk(", next at %" PRId64 " ns\n", next_ns);
}

static void cf_check laxity_dump_settings(const struct scheduler *scheduler)
{
    struct laxity_pool *pool = laxity_pool_of(scheduler);
    struct laxity_dump dump = {.line = laxity_dump_line};
    unsigned long flags;

    spin_lock_irqsave(&pool->lock, flags);
    printk("Laxity: policy %s, %" PRIu64 " decisions, %" PRIu64 " switches, %" PRIu64
           " timers, %" PRIu64 " wakes\n",
           laxity_policy_name(pool->instance->policy), pool->decisions, pool->switches,
           pool->timers, pool->wakes);
    for (unsigned int cpu = 0; cpu < nr_cpu_ids; cpu++)
        if (pool->cpu[cpu]) {
            printk(" CPU %u\n", cpu);
            pool->instance->policy->dump(pool->instance, pool->cpu[cpu], &dump);
        }
    spin_unlock_irqrestore(&pool->lock, flags);
}

/*
 * Newer versions of Xen keep the operations in a structure of their own, which `struct scheduler`
 * points to; there LAXITY_SCHED_OPS is defined.
 */
#define LAXITY_OPERATIONS                                                                        \
    .global_init = laxity_global_init, .init = laxity_init, .deinit = laxity_deinit,             \
    .alloc_udata = laxity_alloc_udata, .free_udata = laxity_free_udata,                          \
    .alloc_pdata = laxity_alloc_pdata, .free_pdata = laxity_free_pdata,                          \
    .deinit_pdata = laxity_deinit_pdata, .alloc_domdata = laxity_alloc_domdata,                  \
    .free_domdata = laxity_free_domdata, .switch_sched = laxity_switch_sched,                    \
    .insert_unit = laxity_insert_unit, .remove_unit = laxity_remove_unit, .sleep = laxity_sleep, \
    .wake = laxity_wake, .yield = laxity_yield, .tell_work = laxity_tell_work,                   \
    .context_saved = laxity_context_saved, .do_schedule = laxity_do_schedule,                    \
    .pick_resource = laxity_pick_resource, .migrate = laxity_migrate,                            \
    .adjust_global = laxity_adjust_global, .dump_settings = laxity_dump_settings,                \
    .move_timers = laxity_move_timers

#ifdef LAXITY_SCHED_OPS
static const struct sched_ops laxity_ops = {LAXITY_OPERATIONS};
#define LAXITY_OPERATIONS_OF_SCHEDULER .ops = &laxity_ops
#else
#define LAXITY_OPERATIONS_OF_SCHEDULER LAXITY_OPERATIONS
#endif

static const struct scheduler laxity_scheduler = {
    .name = "Laxity",
    .opt_name = "laxity",
    .sched_id = XEN_SCHEDULER_LAXITY,
    LAXITY_OPERATIONS_OF_SCHEDULER,
};

REGISTER_SCHEDULER(laxity_scheduler);
