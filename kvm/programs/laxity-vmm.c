/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A virtual machine under KVM that runs the tasks of a domain: a thread for each VCPU, the flat
 * guest (flat.c) in it, and nothing else.
 *
 *   laxity-vmm NAME VCPUS    a machine; orders come on standard input, a line each
 *   laxity-vmm --now         prints the time: ns of the TSC, by which all orders go
 *
 *   tasks TEXT               what runs, see request.h; none without
 *   cpu_bound 0|1            whether every VCPU has an endless loop below the tasks; 0 without
 *   tells 0|1                whether VCPUs tell the host's policy on what they work; 0 without
 *   thread VCPU CPU,... other NICE
 *   thread VCPU CPU,... fifo PRIORITY
 *   thread VCPU CPU,... deadline BUDGET_NS DEADLINE_NS PERIOD_NS RECLAIM
 *                            where the thread of a VCPU may run, and by which rules
 *   run NAME START_NS DURATION_NS
 *                            last: the run; then the report (report.h) follows
 *
 * It answers, on standard output:
 *
 *   state ready ITERATIONS_PER_MS TID...   once the guest knows how fast it is
 *   state ran NAME START_NS                at the end of a run
 *   state late NAME START_NS LATE_NS       if a VCPU was not ready at the start
 *   state error TEXT                       and ends with code 1
 *
 * A machine runs once, and ends with its report.
 */
#include "flat.h"
#include "report.h"
#include "request.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define VCPUS_MAX 64
#define JOBS_MAX (1 << 20)

#define POLICY_DEADLINE 6
#define POLICY_EXT 7
#define FLAG_RESET_ON_FORK 1
#define FLAG_RECLAIM 2

#define CPUID_ENTRIES 128
#define FEATURES_LEAF 1
#define FEATURE_TSC_DEADLINE (1u << 24)

#define PAGE_PRESENT 1
#define PAGE_WRITABLE 2
#define PAGE_LARGE 0x80

#define NAME_BYTES 16

/* The layout that sched_setattr(2) takes, of its first version. */
struct scheduling {
    uint32_t size;
    uint32_t policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns;
    uint64_t deadline_ns;
    uint64_t period_ns;
};

struct vcpu {
    pthread_t pthread;
    unsigned number;
    int file;
    pid_t tid;
    struct kvm_run *run;
    struct flat_vcpu *guest;
    struct scheduling scheduling;
    cpu_set_t cpus;
    const char *error; /* what failed in its thread, with `error_number`; NULL: nothing */
    int error_number;
    int64_t cpu_ns;
};

struct machine {
    const char *name;
    unsigned count;
    int kvm, file;
    uint8_t *memory;
    uint64_t khz;
    struct vcpu vcpus[VCPUS_MAX];
    pthread_barrier_t measured; /* all VCPUs know how fast they are */
    pthread_barrier_t ordered;  /* their orders are written */
};

/* The program of the guest, from flat.bin. */
__asm__(".section .rodata\n"
        ".globl flat_begin\n.globl flat_end\n"
        "flat_begin:\n.incbin \"flat.bin\"\nflat_end:\n"
        ".previous\n");
extern const uint8_t flat_begin[], flat_end[];

static struct machine machine;

__attribute__((noreturn, format(printf, 1, 2))) static void quit(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("state error ");
    vprintf(format, arguments);
    printf("\n");
    fflush(stdout);
    _exit(1);
}

static uint64_t cycles(void)
{
    uint32_t low, high;
    __asm__ volatile("lfence; rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

static int64_t in_ns(uint64_t count)
{
    return (int64_t)((unsigned __int128)count * 1000000 / machine.khz);
}

static uint64_t in_cycles(int64_t ns)
{
    return (uint64_t)((unsigned __int128)ns * machine.khz / 1000000);
}

static void open_kvm(void)
{
    machine.kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    if (machine.kvm < 0)
        quit("/dev/kvm cannot be opened: %s", strerror(errno));
    machine.file = ioctl(machine.kvm, KVM_CREATE_VM, 0);
    if (machine.file < 0)
        quit("KVM makes no machine: %s", strerror(errno));
    int khz = ioctl(machine.file, KVM_GET_TSC_KHZ);
    if (khz <= 0)
        quit("KVM does not know the rate of the TSC");
    machine.khz = (uint64_t)khz;
}

static void make_memory(void)
{
    machine.memory = mmap(NULL, FLAT_BYTES, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (machine.memory == MAP_FAILED)
        quit("there is no memory for a guest: %s", strerror(errno));
    struct kvm_userspace_memory_region region = {.memory_size = FLAT_BYTES,
                                                 .userspace_addr = (uint64_t)machine.memory};
    if (ioctl(machine.file, KVM_SET_USER_MEMORY_REGION, &region) < 0)
        quit("KVM refuses the memory: %s", strerror(errno));

    uint64_t *tables = (uint64_t *)(machine.memory + FLAT_TABLES);
    tables[0] = (FLAT_TABLES + 0x1000) | PAGE_WRITABLE | PAGE_PRESENT;
    tables[512] = (FLAT_TABLES + 0x2000) | PAGE_WRITABLE | PAGE_PRESENT;
    for (uint64_t i = 0; i < FLAT_LARGE_PAGES; i++)
        tables[1024 + i] = i * FLAT_LARGE_PAGE_BYTES | PAGE_LARGE | PAGE_WRITABLE | PAGE_PRESENT;
    uint64_t *segments = (uint64_t *)(machine.memory + FLAT_SEGMENTS);
    segments[1] = 0x00af9b000000ffff; /* code of 64 bits */
    segments[2] = 0x00cf93000000ffff; /* data */
    memcpy(machine.memory + FLAT_CODE, flat_begin, (size_t)(flat_end - flat_begin));
}

/* The registers of a VCPU that is in 64-bit mode, before the guest's first instruction. */
static bool set_registers(struct vcpu *vcpu, uint64_t address)
{
    struct kvm_sregs special;
    if (ioctl(vcpu->file, KVM_GET_SREGS, &special) < 0)
        return false;
    struct kvm_segment code = {
        .limit = UINT32_MAX, .selector = 8, .present = 1, .type = 11, .s = 1, .l = 1, .g = 1};
    struct kvm_segment data = code;
    data.selector = 16;
    data.type = 3;
    data.l = 0;
    data.db = 1;
    special.cs = code;
    special.ds = special.es = special.fs = special.ss = data;
    special.gs = data;
    special.gs.base = address;
    special.gdt.base = FLAT_SEGMENTS;
    special.gdt.limit = 23;
    special.cr3 = FLAT_TABLES;
    special.cr4 = 0x20;       /* PAE */
    special.cr0 = 0x80050033; /* PG, AM, WP, NE, ET, MP, PE */
    special.efer = 0x500;     /* LMA, LME */
    struct kvm_regs general = {
        .rip = FLAT_CODE,
        .rflags = 2,
        /* The stack looks as it does after a call. */
        .rsp = address + offsetof(struct flat_vcpu, stack) + FLAT_STACK_BYTES - 8,
    };
    return ioctl(vcpu->file, KVM_SET_SREGS, &special) >= 0 &&
           ioctl(vcpu->file, KVM_SET_REGS, &general) >= 0;
}

/* The guest sees the host's TSC as it is. */
static bool set_clock(const struct vcpu *vcpu)
{
    uint64_t offset = 0;
    struct kvm_device_attr attribute = {
        .group = KVM_VCPU_TSC_CTRL, .attr = KVM_VCPU_TSC_OFFSET, .addr = (uint64_t)&offset};
    return ioctl(vcpu->file, KVM_SET_DEVICE_ATTR, &attribute) >= 0;
}

static bool set_features(const struct vcpu *vcpu)
{
    struct {
        struct kvm_cpuid2 head;
        struct kvm_cpuid_entry2 entries[CPUID_ENTRIES];
    } features = {.head.nent = CPUID_ENTRIES};
    if (ioctl(machine.kvm, KVM_GET_SUPPORTED_CPUID, &features) < 0)
        return false;
    for (unsigned i = 0; i < features.head.nent; i++)
        if (features.entries[i].function == FEATURES_LEAF)
            features.entries[i].ecx |= FEATURE_TSC_DEADLINE;
    return ioctl(vcpu->file, KVM_SET_CPUID2, &features) >= 0;
}

/* Beside an interrupt controller of KVM's, all VCPUs but the first wait for another one to start
 * them, as processors do. Nobody would here. */
static bool set_started(const struct vcpu *vcpu)
{
    struct kvm_mp_state state = {.mp_state = KVM_MP_STATE_RUNNABLE};
    return ioctl(vcpu->file, KVM_SET_MP_STATE, &state) >= 0;
}

static uint64_t address_of(unsigned number)
{
    return FLAT_VCPUS + number * sizeof(struct flat_vcpu);
}

/* What goes on in the thread of a VCPU before orders come: KVM makes threads of its own at the
 * first KVM_RUN, which a thread under SCHED_DEADLINE may not. */
static const char *make_vcpu(struct vcpu *vcpu)
{
    vcpu->file = ioctl(machine.file, KVM_CREATE_VCPU, vcpu->number);
    if (vcpu->file < 0)
        return "KVM makes no VCPU";
    size_t bytes = (size_t)ioctl(machine.kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
    vcpu->run = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu->file, 0);
    if (vcpu->run == MAP_FAILED)
        return "the state of a VCPU cannot be mapped";
    if (!set_features(vcpu))
        return "KVM refuses the features of a VCPU";
    if (!set_clock(vcpu))
        return "KVM refuses the clock of a VCPU";
    if (!set_registers(vcpu, address_of(vcpu->number)))
        return "KVM refuses the registers of a VCPU";
    if (!set_started(vcpu))
        return "KVM does not start a VCPU";
    return NULL;
}

/* Runs the guest until it tells `what`. */
static const char *run_until(struct vcpu *vcpu, uint8_t what)
{
    for (;;) {
        if (ioctl(vcpu->file, KVM_RUN, 0) < 0) {
            if (errno == EINTR)
                continue;
            return "KVM does not run the guest";
        }
        if (vcpu->run->exit_reason != KVM_EXIT_IO || vcpu->run->io.port != FLAT_PORT) {
            errno = (int)vcpu->run->exit_reason;
            return "the guest left with an exit that it should not have";
        }
        uint8_t told = *((uint8_t *)vcpu->run + vcpu->run->io.data_offset);
        if (told == what)
            return NULL;
        errno = (int)vcpu->guest->fault;
        return "the guest failed with an exception";
    }
}

static int64_t thread_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static const char *be_scheduled(struct vcpu *vcpu)
{
    if (sched_setaffinity(0, sizeof vcpu->cpus, &vcpu->cpus) < 0)
        return "the CPUs of a thread are refused";
    if (syscall(SYS_sched_setattr, 0, &vcpu->scheduling, 0) < 0)
        return "the scheduling of a thread is refused";
    return NULL;
}

static void *run_thread(void *argument)
{
    struct vcpu *vcpu = argument;
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%.10s/%u", machine.name, vcpu->number);
    prctl(PR_SET_NAME, name);
    vcpu->tid = (pid_t)syscall(SYS_gettid);
    /* Turns of the fair class are shorter than a measurement: others would be measured with it. The
     * thread that KVM makes meanwhile stays an ordinary one: it may be the last to have the guest's
     * memory, and would free it before all others. */
    struct sched_param measuring = {.sched_priority = 1};
    int measures = SCHED_FIFO | SCHED_RESET_ON_FORK;
    vcpu->error = sched_setscheduler(0, measures, &measuring) ? "SCHED_FIFO is refused" : NULL;
    if (!vcpu->error)
        vcpu->error = make_vcpu(vcpu);
    if (!vcpu->error)
        vcpu->error = run_until(vcpu, FLAT_MEASURED);
    vcpu->error_number = errno;
    pthread_barrier_wait(&machine.measured);
    pthread_barrier_wait(&machine.ordered);
    if (vcpu->error)
        return NULL;
    int64_t before_ns = thread_ns();
    vcpu->error = be_scheduled(vcpu);
    if (!vcpu->error)
        vcpu->error = run_until(vcpu, FLAT_DONE);
    vcpu->error_number = errno;
    vcpu->cpu_ns = thread_ns() - before_ns;
    return NULL;
}

static void refuse_errors(void)
{
    for (unsigned i = 0; i < machine.count; i++)
        if (machine.vcpus[i].error)
            quit("VCPU %u: %s: %s (%d)", i, machine.vcpus[i].error,
                 strerror(machine.vcpus[i].error_number), machine.vcpus[i].error_number);
}

static void start_machine(const char *name, unsigned count)
{
    machine.name = name;
    machine.count = count;
    open_kvm();
    if (ioctl(machine.file, KVM_CREATE_IRQCHIP, 0) < 0)
        quit("KVM makes no interrupt controller: %s", strerror(errno));
    make_memory();
    pthread_barrier_init(&machine.measured, NULL, count + 1);
    pthread_barrier_init(&machine.ordered, NULL, count + 1);
    for (unsigned i = 0; i < count; i++) {
        struct vcpu *vcpu = &machine.vcpus[i];
        uint64_t address = address_of(i);
        vcpu->number = i;
        vcpu->guest = (struct flat_vcpu *)(machine.memory + address);
        vcpu->guest->self = (struct flat_vcpu *)address;
        vcpu->guest->khz = machine.khz;
        vcpu->scheduling.size = sizeof vcpu->scheduling;
        sched_getaffinity(0, sizeof vcpu->cpus, &vcpu->cpus);
        int error = pthread_create(&vcpu->pthread, NULL, run_thread, vcpu);
        if (error)
            quit("a thread cannot be made: %s", strerror(error));
    }
    pthread_barrier_wait(&machine.measured);
    refuse_errors();
    const struct flat_vcpu *first = machine.vcpus[0].guest;
    printf("state ready %" PRIu64, first->span_iterations * machine.khz / first->span_cycles);
    for (unsigned i = 0; i < count; i++)
        printf(" %d", machine.vcpus[i].tid);
    printf("\n");
    fflush(stdout);
}

static bool parse_cpus(const char *text, cpu_set_t *cpus)
{
    CPU_ZERO(cpus);
    for (char *end; *text; text = *end == ',' ? end + 1 : end) {
        unsigned long cpu = strtoul(text, &end, 10);
        if (end == text || cpu >= CPU_SETSIZE || (*end && *end != ','))
            return false;
        CPU_SET(cpu, cpus);
    }
    return CPU_COUNT(cpus);
}

static void parse_thread(const char *text)
{
    unsigned number;
    char cpus[256], policy[16];
    int at = 0;
    if (sscanf(text, "%u %255s %15s%n", &number, cpus, policy, &at) != 3 || number >= machine.count)
        quit("thread: \"%s\" must begin with a VCPU of %u, its CPUs and a policy", text,
             machine.count);
    struct vcpu *vcpu = &machine.vcpus[number];
    struct scheduling *rules = &vcpu->scheduling;
    unsigned reclaim = 0;
    int read = 0;
    bool good = false;
    text += at;
    if (!strcmp(policy, "other")) {
        rules->policy = SCHED_OTHER;
        good = sscanf(text, "%" SCNd32 "%n", &rules->nice, &read) == 1;
    } else if (!strcmp(policy, "fifo")) {
        rules->policy = SCHED_FIFO;
        good = sscanf(text, "%" SCNu32 "%n", &rules->priority, &read) == 1;
    } else if (!strcmp(policy, "ext")) {
        rules->policy = POLICY_EXT;
        good = true;
    } else if (!strcmp(policy, "deadline")) {
        rules->policy = POLICY_DEADLINE;
        good = sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %u%n", &rules->runtime_ns,
                      &rules->deadline_ns, &rules->period_ns, &reclaim, &read) == 4;
        rules->flags = FLAG_RESET_ON_FORK | (reclaim ? FLAG_RECLAIM : 0);
    }
    if (!good || text[read])
        quit("thread: \"%s\" must be other NICE, fifo PRIORITY, ext or deadline BUDGET_NS "
             "DEADLINE_NS PERIOD_NS RECLAIM",
             text);
    if (!parse_cpus(cpus, &vcpu->cpus))
        quit("thread: \"%s\" must be CPUs, as 0,1", cpus);
}

struct orders {
    struct task_list list;
    bool cpu_bound, tells;
    struct run_request run;
};

static void read_orders(struct orders *orders)
{
    static char line[1 << 16];
    struct failure failure;
    bool has_run = false;
    while (!has_run && fgets(line, sizeof line, stdin)) {
        size_t length = strlen(line);
        if (!length || line[length - 1] != '\n')
            quit("a line of orders must end, and be shorter than %zu bytes", sizeof line);
        line[length - 1] = '\0';
        char *text = strchr(line, ' ');
        text = text ? text + 1 : line + length - 1;
        bool good = true;
        if (!strncmp(line, "tasks", 5))
            good = parse_tasks(text, machine.count, &orders->list, &failure);
        else if (!strncmp(line, "cpu_bound ", 10))
            good = parse_flag("cpu_bound", text, &orders->cpu_bound, &failure);
        else if (!strncmp(line, "tells ", 6))
            good = parse_flag("tells", text, &orders->tells, &failure);
        else if (!strncmp(line, "thread ", 7))
            parse_thread(text);
        else if (!strncmp(line, "run ", 4))
            good = has_run = parse_run(text, &orders->run, &failure);
        else
            quit("\"%s\" must begin with tasks, cpu_bound, tells, thread or run", line);
        if (!good)
            quit("%s", failure.text);
    }
    if (!has_run)
        quit("the orders end without a run");
}

/* Whether a task runs before another: the shorter period, and among equals the earlier one. */
static bool is_before(const struct task_list *list, unsigned task, unsigned other)
{
    int64_t period_ns = list->tasks[task].period_ns, other_ns = list->tasks[other].period_ns;
    return period_ns < other_ns || (period_ns == other_ns && task < other);
}

/* A task in its VCPU: by its place in the list. */
static struct flat_task *places[FLAT_TASKS_MAX];

/* Writes the guest's orders; completions go behind the VCPUs, in memory that is mapped already. */
static void write_orders(const struct orders *orders)
{
    const struct task_list *list = &orders->list;
    uint64_t free_place = (address_of(machine.count) + 7) & ~UINT64_C(7);
    uint64_t start = in_cycles(orders->run.start_ns);
    for (unsigned i = 0; i < machine.count; i++) {
        struct flat_vcpu *guest = machine.vcpus[i].guest;
        guest->start = start;
        guest->end = start + in_cycles(orders->run.duration_ns);
        guest->cpu_bound = orders->cpu_bound;
        guest->tells = orders->tells;
    }
    for (unsigned i = 0; i < list->count; i++) {
        const struct task_request *task = &list->tasks[i];
        struct flat_vcpu *guest = machine.vcpus[task->vcpu].guest;
        unsigned place = 0;
        for (unsigned other = 0; other < list->count; other++)
            place += list->tasks[other].vcpu == task->vcpu && is_before(list, other, i);
        int64_t job_ns = in_ns(guest->job_cycles);
        if (task->cost_ns < job_ns)
            quit("tasks: cost_ns of task %u is %lld, which must be at least %lld: so long does a "
                 "job without work take here",
                 i, (long long)task->cost_ns, (long long)job_ns);
        int64_t jobs = 0;
        if (task->offset_ns < orders->run.duration_ns)
            jobs = (orders->run.duration_ns - task->offset_ns - 1) / task->period_ns + 1;
        if (jobs > JOBS_MAX || free_place + 8 * (uint64_t)jobs > FLAT_BYTES)
            quit("run: the tasks have more jobs in %lld ns than a guest can remember: make it "
                 "shorter",
                 (long long)orders->run.duration_ns);
        places[i] = &guest->tasks[place];
        *places[i] = (struct flat_task){
            .first_ns = (uint64_t)task->offset_ns,
            .period_ns = (uint64_t)task->period_ns,
            .deadline_ns = (uint64_t)task->deadline_ns,
            .iterations = (uint64_t)((unsigned __int128)in_cycles(task->cost_ns - job_ns) *
                                     guest->span_iterations / guest->span_cycles),
            .jobs = (uint32_t)jobs,
            .completions = free_place,
        };
        guest->count++;
        free_place += 8 * (uint64_t)jobs;
    }
}

static void report(const struct orders *orders)
{
    struct task_report tasks[FLAT_TASKS_MAX] = {0};
    struct vcpu_report vcpus[VCPUS_MAX] = {0};
    for (unsigned i = 0; i < orders->list.count; i++) {
        int64_t *completion_ns = (int64_t *)(machine.memory + places[i]->completions);
        for (uint32_t job = 0; job < places[i]->completed; job++)
            completion_ns[job] = in_ns((uint64_t)completion_ns[job]);
        tasks[i] = (struct task_report){places[i]->jobs, places[i]->completed, completion_ns};
    }
    /* A VCPU's thread does both: what it did for which is not told apart. */
    for (unsigned i = 0; i < machine.count; i++)
        vcpus[i].tasks_ns = machine.vcpus[i].cpu_ns;
    const struct flat_vcpu *first = machine.vcpus[0].guest;
    write_report(
        &(struct run_report){
            .run = orders->run.name,
            .duration_ns = orders->run.duration_ns,
            .iterations_per_ms = first->span_iterations * machine.khz / first->span_cycles,
            .job_ns = in_ns(first->job_cycles),
            .tasks = tasks,
            .task_count = orders->list.count,
            .vcpus = vcpus,
            .vcpu_count = machine.count,
        },
        stdout);
}

int main(int count, char **words)
{
    if (count == 2 && !strcmp(words[1], "--now")) {
        open_kvm();
        printf("%lld %llu\n", (long long)in_ns(cycles()), (unsigned long long)machine.khz);
        return 0;
    }
    char *end = NULL;
    unsigned long vcpus = count == 3 ? strtoul(words[2], &end, 10) : 0;
    if (count != 3 || *end || !vcpus || vcpus > VCPUS_MAX) {
        fprintf(stderr, "use: laxity-vmm NAME VCPUS, or laxity-vmm --now\n");
        return 2;
    }
    start_machine(words[1], (unsigned)vcpus);
    static struct orders orders;
    read_orders(&orders);
    write_orders(&orders);
    pthread_barrier_wait(&machine.ordered);
    for (unsigned i = 0; i < machine.count; i++)
        pthread_join(machine.vcpus[i].pthread, NULL);
    refuse_errors();
    for (unsigned i = 0; i < machine.count; i++)
        if (machine.vcpus[i].guest->late) {
            printf("state late %s %lld %lld\n", orders.run.name, (long long)orders.run.start_ns,
                   (long long)in_ns(machine.vcpus[i].guest->late));
            return 0;
        }
    printf("state ran %s %lld\n", orders.run.name, (long long)orders.run.start_ns);
    report(&orders);
    return 0;
}
