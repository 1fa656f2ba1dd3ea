/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The flat guest: runs the jobs of a host file's tasks on the bare virtual machine.
 *
 * It has no operating system whose own work would stand between the host's scheduler and the tasks.
 * A VCPU serves its tasks by fixed priorities, preemptively: the timer's interrupt runs the jobs of
 * more urgent tasks on the stack of the one that it interrupts, which goes on when they are
 * complete. While nothing is due the VCPU halts, so that its thread on the host blocks.
 *
 * A job is a count of iterations.
 */
#include "flat.h"

#include "work.h"

#include "../bpf/shared.h"

#include <stdbool.h>

/* The speed is the least of some measurements of two lengths: what disturbs only adds. */
#define MEASUREMENTS 40
#define FEW_ITERATIONS CHUNK_ITERATIONS
#define LONGER 8

#define TIMER_VECTOR 0x20
#define VECTORS (TIMER_VECTOR + 1)

#define MSR_APIC_BASE 0x1b
#define APIC_ENABLED 0x800
#define APIC_X2 0x400
#define MSR_TSC_DEADLINE 0x6e0
#define MSR_APIC_END_OF_INTERRUPT 0x80b
#define MSR_APIC_SPURIOUS 0x80f
#define APIC_SOFTWARE_ENABLED 0x100
#define SPURIOUS_VECTOR 0xff
#define MSR_APIC_TIMER 0x832
#define APIC_TIMER_BY_TSC (2 << 17)

#define NEVER UINT64_MAX

/* An entry of the interrupt descriptor table, for 64 bits. */
struct gate {
    uint16_t low, segment, flags, middle;
    uint32_t high, reserved;
};

static struct gate gates[VECTORS] __attribute__((aligned(16)));

static struct flat_vcpu *this_vcpu(void)
{
    struct flat_vcpu *vcpu;
    __asm__("mov %%gs:0, %0" : "=r"(vcpu));
    return vcpu;
}

static uint64_t cycles(void)
{
    uint32_t low, high;
    __asm__ volatile("lfence; rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

static uint64_t read_register(uint32_t number)
{
    uint32_t low, high;
    __asm__ volatile("rdmsr" : "=a"(low), "=d"(high) : "c"(number));
    return (uint64_t)high << 32 | low;
}

static void write_register(uint32_t number, uint64_t value)
{
    __asm__ volatile("wrmsr"
                     :
                     : "c"(number), "a"((uint32_t)value), "d"((uint32_t)(value >> 32))
                     : "memory");
}

static void tell(uint8_t what)
{
    __asm__ volatile("outb %0, %1" : : "a"(what), "N"(FLAT_PORT) : "memory");
}

/* False if the end came before the work was done. */
__attribute__((noinline)) static bool work(uint64_t iterations, uint64_t end)
{
    while (iterations) {
        uint64_t chunk = iterations < CHUNK_ITERATIONS ? iterations : CHUNK_ITERATIONS;
        if (cycles() >= end)
            return false;
        iterations -= chunk;
        iterate(chunk);
    }
    return true;
}

/* The product must be less than `over` times 2 to the power of 64. */
static uint64_t scaled(uint64_t value, uint64_t times, uint64_t over)
{
    uint64_t low = value, high;
    __asm__("mulq %3\n"
            "divq %4"
            : "+a"(low), "=&d"(high)
            : "0"(low), "r"(times), "r"(over)
            : "cc");
    return low;
}

static uint64_t in_cycles(const struct flat_vcpu *vcpu, uint64_t ns)
{
    return scaled(ns, vcpu->khz, 1000000);
}

static int64_t in_ns(const struct flat_vcpu *vcpu, int64_t count)
{
    int64_t ns = (int64_t)scaled((uint64_t)(count < 0 ? -count : count), 1000000, vcpu->khz);
    return count < 0 ? -ns : ns;
}

static uint64_t release(const struct flat_vcpu *vcpu, const struct flat_task *task)
{
    if (task->completed == task->jobs)
        return NEVER;
    return vcpu->start + in_cycles(vcpu, task->first_ns + task->completed * task->period_ns);
}

/* Tells the host on what the VCPU works from now on, if that is something else: the running job, or
 * the one for which it will wake. */
static void tell_work(struct flat_vcpu *vcpu)
{
    uint32_t next = vcpu->level, job = 0;
    int64_t left_ns = INT64_MAX, order = INT64_MAX;
    uint64_t error;
    if (!vcpu->tells)
        return;
    if (next == vcpu->count && !vcpu->cpu_bound)
        for (uint32_t i = vcpu->count; i-- > 0;)
            if (vcpu->next[i] != NEVER &&
                (next == vcpu->count || vcpu->next[i] <= vcpu->next[next]))
                next = i;
    if (next < vcpu->count)
        job = vcpu->tasks[next].completed;
    if (next == vcpu->told_task && job == vcpu->told_job)
        return;
    vcpu->told_task = next;
    vcpu->told_job = job;
    if (next < vcpu->count) {
        const struct flat_task *task = &vcpu->tasks[next];
        uint64_t deadline_ns = task->first_ns + job * task->period_ns + task->deadline_ns;
        order = next;
        left_ns = (int64_t)deadline_ns - in_ns(vcpu, (int64_t)(cycles() - vcpu->start));
    }
    __asm__ volatile("vmmcall"
                     : "=a"(error)
                     : "a"(SCX_HYPERCALL), "b"(left_ns), "c"(order)
                     : "memory");
}

/* The timer, for the next release that is more urgent than what runs, or the end. */
static void arm(struct flat_vcpu *vcpu)
{
    uint64_t next = vcpu->level == vcpu->count ? vcpu->end : NEVER;
    for (uint32_t i = 0; i < vcpu->level; i++)
        if (vcpu->next[i] < next)
            next = vcpu->next[i];
    /* Setting it leaves the virtual machine, which takes time. */
    if (next != vcpu->armed)
        write_register(MSR_TSC_DEADLINE, next == NEVER ? 0 : next);
    vcpu->armed = next;
}

/* Runs the jobs that are due of tasks more urgent than what runs. With interrupts off, except while
 * a job works. */
static void serve(struct flat_vcpu *vcpu)
{
    uint32_t interrupted = vcpu->level;
    for (;;) {
        uint64_t now = cycles();
        uint32_t due = 0;
        while (due < interrupted && vcpu->next[due] > now)
            due++;
        if (due == interrupted || now >= vcpu->end)
            break;
        struct flat_task *task = &vcpu->tasks[due];
        vcpu->level = due;
        arm(vcpu);
        tell_work(vcpu);
        __asm__ volatile("sti" ::: "memory");
        bool is_complete = work(task->iterations, vcpu->end);
        __asm__ volatile("cli" ::: "memory");
        vcpu->level = interrupted;
        if (!is_complete)
            break;
        ((uint64_t *)task->completions)[task->completed++] = cycles() - vcpu->start;
        vcpu->next[due] = release(vcpu, task);
    }
}

void timer_interrupt(void)
{
    struct flat_vcpu *vcpu = this_vcpu();
    write_register(MSR_APIC_END_OF_INTERRUPT, 0);
    vcpu->armed = NEVER;
    serve(vcpu);
    /* At the end nothing is armed: a time that has passed would interrupt for ever. */
    if (cycles() < vcpu->end) {
        tell_work(vcpu);
        arm(vcpu);
    }
}

void fault(uint64_t number)
{
    this_vcpu()->fault = number;
    tell(FLAT_FAULT);
    for (;;)
        __asm__ volatile("hlt");
}

/* The entries of interrupts: the timer's saves what a C function may change. Each exception has 16
 * bytes, which push its number. */
__asm__(".globl timer_entry\n"
        "timer_entry:\n"
        "push %rax\npush %rcx\npush %rdx\npush %rsi\npush %rdi\n"
        "push %r8\npush %r9\npush %r10\npush %r11\n"
        "cld\n"
        /* An interrupt aligns the stack, and pushes 40 bytes; nine registers are 72. */
        "call timer_interrupt\n"
        "pop %r11\npop %r10\npop %r9\npop %r8\n"
        "pop %rdi\npop %rsi\npop %rdx\npop %rcx\npop %rax\n"
        "iretq\n"
        ".globl fault_entries\n"
        ".p2align 4\n"
        "fault_entries:\n"
        ".set number, 0\n"
        ".rept " TEXT(TIMER_VECTOR) "\n"
                                    "mov $number, %edi\n"
                                    "and $-16, %rsp\n"
                                    "call fault\n"
                                    ".p2align 4\n"
                                    ".set number, number + 1\n"
                                    ".endr\n");

extern const uint8_t timer_entry[], fault_entries[];

static void set_gate(uint32_t vector, const uint8_t *entry)
{
    uint64_t address = (uint64_t)entry;
    gates[vector] = (struct gate){
        .low = (uint16_t)address,
        .segment = 8,
        .flags = 0x8e00, /* present, an interrupt's */
        .middle = (uint16_t)(address >> 16),
        .high = (uint32_t)(address >> 32),
    };
}

/* Every VCPU writes the same. */
static void set_interrupts(void)
{
    for (uint32_t vector = 0; vector < TIMER_VECTOR; vector++)
        set_gate(vector, fault_entries + 16 * vector);
    set_gate(TIMER_VECTOR, timer_entry);
    struct {
        uint16_t limit;
        uint64_t base;
    } __attribute__((packed)) table = {sizeof gates - 1, (uint64_t)gates};
    __asm__ volatile("lidt %0" : : "m"(table));
    write_register(MSR_APIC_BASE, read_register(MSR_APIC_BASE) | APIC_ENABLED | APIC_X2);
    write_register(MSR_APIC_SPURIOUS, APIC_SOFTWARE_ENABLED | SPURIOUS_VECTOR);
    write_register(MSR_APIC_TIMER, APIC_TIMER_BY_TSC | TIMER_VECTOR);
}

/* The least time of many from one completion to the next. */
static uint64_t shortest(uint64_t iterations)
{
    uint64_t least = NEVER, before = cycles();
    for (int i = 0; i < MEASUREMENTS; i++) {
        work(iterations, NEVER);
        uint64_t now = cycles();
        if (now - before < least)
            least = now - before;
        before = now;
    }
    return least;
}

static void measure_speed(struct flat_vcpu *vcpu)
{
    uint64_t few = shortest(FEW_ITERATIONS);
    vcpu->span_iterations = (LONGER - 1) * FEW_ITERATIONS;
    vcpu->span_cycles = shortest(LONGER * FEW_ITERATIONS) - few;
    uint64_t worked = vcpu->span_cycles / (LONGER - 1);
    vcpu->job_cycles = few > worked ? few - worked : 0;
}

/* The entry: the VMM has set the stack and GS. It writes the orders between the two tells. */
__attribute__((section(".text.first"), used)) void run_vcpu(void)
{
    struct flat_vcpu *vcpu = this_vcpu();
    set_interrupts();
    measure_speed(vcpu);
    tell(FLAT_MEASURED);

    for (uint32_t i = 0; i < vcpu->count; i++)
        vcpu->next[i] = release(vcpu, &vcpu->tasks[i]);
    vcpu->level = vcpu->told_task = vcpu->count;
    tell_work(vcpu);
    vcpu->armed = NEVER;
    uint64_t ready = cycles();
    vcpu->late = ready > vcpu->start ? ready - vcpu->start : 0;
    /* Others wake for their first job, and use up no budget at the start. */
    if (vcpu->cpu_bound)
        write_register(MSR_TSC_DEADLINE, vcpu->start);
    while (vcpu->cpu_bound && cycles() < vcpu->start)
        __asm__ volatile("sti; hlt; cli" ::: "memory");
    for (;;) {
        serve(vcpu);
        if (cycles() >= vcpu->end)
            break;
        tell_work(vcpu);
        arm(vcpu);
        if (vcpu->cpu_bound) {
            __asm__ volatile("sti" ::: "memory");
            work(NEVER, vcpu->end);
            __asm__ volatile("cli" ::: "memory");
        } else {
            /* An interrupt that is due comes after hlt has begun. */
            __asm__ volatile("sti; hlt; cli" ::: "memory");
        }
    }
    tell(FLAT_DONE);
    for (;;)
        __asm__ volatile("hlt");
}
