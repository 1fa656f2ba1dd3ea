/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Records Xen's trace buffers into a file.
 *
 * Xen has one buffer a CPU: a ring that whoever traces reads from one end. This program empties the
 * rings, turns tracing on, sleeps until the run is over, turns tracing off, and then copies what
 * is there. It does not run in between: a reader that wakes up would be in its own trace, and in
 * the way of what is measured. The rings must therefore hold the whole run, and a ring that is full
 * at the end is an error.
 *
 * The file, little-endian throughout:
 *
 *   8 bytes "LAXITYXT", u32 version (1), u32 sections
 *   u64 TSC at the start, u64 CLOCK_REALTIME at the start in ns, the same two of the end
 *   a section for each CPU that has a buffer:
 *     u32 CPU, u32 0, u64 bytes, and so many bytes: Xen's records (struct t_rec of
 *     public/trace.h) as they lie in the ring, oldest first
 *
 * With --kernel it also records who runs on dom0's VCPUs and what its kernel does with packets,
 * into a file of its own (guest/ftrace.h). The kernel of a PV dom0 reads the same counter as Xen.
 *
 * The section of a ring that was full ends with a record TRC_LOST_RECORDS whose count is 0, for
 * unknown: Xen itself writes that record only when there is room again.
 */
#include "clock.h"
#include "ftrace.h"
#include "privcmd.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <xen/trace.h>

#define FILE_VERSION 1
#define SECOND_NS INT64_C(1000000000)
#define FOR_NS_MAX (86400 * SECOND_NS)

/* A record with all that it may carry: header, time, seven words. */
#define RECORD_BYTES_MAX (4 + 8 + 4 * TRACE_EXTRA_MAX)

/* Xen drops a record when it does not fit together with the padding at the ring's end. */
#define FULL_BYTES (2 * RECORD_BYTES_MAX)

/* A minute of 5,000 records a second. */
#define RECORDS_DEFAULT 300000
#define PAGES_DEFAULT ((RECORDS_DEFAULT * RECORD_BYTES_MAX + PAGE_BYTES - 1) / PAGE_BYTES)

/*
 * Where a CPU's list of frames begins in Xen's table is a 16-bit number of words. The lists come
 * behind two bytes for every CPU that Xen was built for, which are 4095 at most.
 */
#define TABLE_WORDS_MAX UINT16_MAX
#define TABLE_HEAD_WORDS 2048

/* 8 MiB: 100,000 events. */
#define KIB_DEFAULT 8192
#define KIB_MAX (4u << 20)

/*
 * net_dev_queue says that a packet is put into the queue of a device, as netback's are. netback's
 * thread copies what is in there into the guest's memory, tells the guest and then frees the
 * packet, which is kfree_skb; for when it copied there is no event but by a probe.
 */
static const char *const kernel_events[] = {
    "sched/sched_switch", "sched/sched_wakeup", "net/net_dev_queue",
    "skb/kfree_skb",      "skb/consume_skb",    "laxity/netback_copied",
};
#define KERNEL_PROBE "p:laxity/netback_copied gnttab_batch_copy"

struct ring {
    uint32_t cpu;
    struct t_buf *head;
    const uint8_t *data;
};

struct buffers {
    uint32_t pages; /* of each ring */
    uint32_t ring_bytes;
    uint32_t count;
    struct ring *rings;
};

static const char usage[] =
    "usage: laxity-trace record [--events EVENTS] [--until TIME | --for NS] [--pages N]\n"
    "                           [--kernel FILE [--kib N]] FILE\n"
    "\n"
    "Records Xen's trace buffers into FILE. Runs in dom0. Prints \"recording\", the\n"
    "TSC and CLOCK_REALTIME in ns once tracing is on, and ends at TIME, NS later, or on SIGINT or\n"
    "SIGTERM.\n"
    "\n"
    "  --events EVENTS  what to trace: names with commas between them, or Xen's mask\n"
    "                   as a number (default: sched)\n"
    "                     sched    switches, wakes, blocks; of every scheduler\n"
    "                     laxity   budgets and decisions; a stock scheduler's own\n"
    "                              events when one of these runs\n"
    "                     measure  costs, from a measured build\n"
    "  --until TIME     CLOCK_REALTIME in ns at which tracing ends\n"
    "  --for NS         how long it lasts, however late it begins\n"
    "  --pages N        memory for each CPU's buffer, in pages of 4 KiB, when Xen has\n"
    "                   no buffers yet; they stay until the next boot (default: a\n"
    "                   minute of 5,000 records a second)\n"
    "  --kernel FILE    what dom0's own kernel did meanwhile: who ran on dom0's VCPUs,\n"
    "                   and the packets for guests; needs tracefs\n"
    "  --kib N          memory for that, for each VCPU of dom0, in KiB (default: 8192)\n"
    "\n"
    "Exit codes: 0 recorded; 1 failed, or records were lost; 2 wrong input.\n";

static noreturn void refuse(const char *what, const char *value, const char *right)
{
    fail(EXIT_REFUSED, "%s is wrong: '%s'; right is %s", what, value, right);
}

static bool parse_number(const char *text, uint64_t *number)
{
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    *number = strtoull(text, &end, 0);
    return !errno && !*end;
}

static uint32_t parse_events(const char *text)
{
    static const struct {
        const char *name;
        uint32_t mask;
    } names[] = {
        {"sched", TRC_SCHED_VERBOSE},
        {"laxity", TRC_SCHED_CLASS},
        {"measure", TRC_SCHED_MIN},
    };
    const char *right = "sched, laxity, measure, with commas between them, or a mask such as "
                        "0x2a000 that has a class (bits 16 to 27) and a subclass (bits 12 to 15)";
    uint64_t number;
    uint32_t mask = 0;

    if (parse_number(text, &number)) {
        if (number & ~(uint64_t)TRC_ALL || !(number >> TRC_CLS_SHIFT) ||
            !(number >> TRC_SUBCLS_SHIFT & 0xf))
            refuse("--events", text, right);
        return number;
    }
    for (const char *name = text, *next; name; name = *next ? next + 1 : NULL) {
        uint32_t found = 0;

        next = strchrnul(name, ',');
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
            if (strlen(names[i].name) == (size_t)(next - name) &&
                !strncmp(names[i].name, name, next - name))
                found = names[i].mask;
        if (!found)
            refuse("--events", text, right);
        mask |= found;
    }
    return mask;
}

static int tbuf(uint32_t command, struct xen_sysctl_tbuf_op *operation)
{
    struct xen_sysctl sysctl = {.cmd = XEN_SYSCTL_tbuf_op, .u.tbuf_op = *operation};
    int error;

    sysctl.u.tbuf_op.cmd = command;
    error = privcmd_sysctl(&sysctl);
    *operation = sysctl.u.tbuf_op;
    return error;
}

/* A command that only a program without the right to it is refused. */
static struct xen_sysctl_tbuf_op tbuf_or_fail(uint32_t command, struct xen_sysctl_tbuf_op operation)
{
    int error = tbuf(command, &operation);

    if (error)
        fail(EXIT_FAILED, "Xen refused trace operation %u: %s", command, strerror(-error));
    return operation;
}

static struct xen_sysctl_physinfo host_information(void)
{
    struct xen_sysctl sysctl = {.cmd = XEN_SYSCTL_physinfo};
    int error = privcmd_sysctl(&sysctl);

    if (error)
        fail(EXIT_FAILED, "Xen does not describe the host: %s", strerror(-error));
    return sysctl.u.physinfo;
}

/* Xen makes the buffers once, and would silently make them smaller than asked. 0 is the default. */
static void make_buffers(const struct xen_sysctl_physinfo *host, uint32_t pages)
{
    struct xen_sysctl_tbuf_op operation = {0};
    uint32_t most =
        (TABLE_WORDS_MAX - TABLE_HEAD_WORDS) / (host->max_cpu_id ? host->max_cpu_id : 1);
    uint64_t all;
    int error;

    if (pages > most)
        fail(EXIT_REFUSED,
             "--pages is too large: %u; on a host of up to %u CPUs Xen's table of buffers has room "
             "for %u pages each",
             pages, host->max_cpu_id + 1, most);
    if (!pages)
        pages = PAGES_DEFAULT < most ? PAGES_DEFAULT : most;
    all = (uint64_t)pages * host->nr_cpus;
    if (all > host->free_pages)
        fail(EXIT_REFUSED,
             "buffers of %u pages for each of %u CPUs are %" PRIu64 " MiB, and Xen has %" PRIu64
             " MiB free: give fewer with --pages, or dom0 less memory (dom0_mem= of Xen)",
             pages, host->nr_cpus, all >> 8, host->free_pages >> 8);
    operation.size = pages;
    error = tbuf(XEN_SYSCTL_TBUFOP_set_size, &operation);
    if (error)
        fail(EXIT_FAILED, "Xen cannot make trace buffers of %u pages a CPU: %s", pages,
             strerror(-error));
}

static void *map_or_fail(const xen_pfn_t *frames, size_t count, int protection)
{
    void *address = privcmd_map(frames, count, protection);

    if (!address)
        fail(EXIT_FAILED, "cannot map Xen's trace buffers: %s", strerror(errno));
    return address;
}

/* Makes the buffers where there are none, and maps every CPU's. */
static struct buffers map_buffers(uint32_t pages)
{
    struct xen_sysctl_physinfo host = host_information();
    struct xen_sysctl_tbuf_op operation =
        tbuf_or_fail(XEN_SYSCTL_TBUFOP_get_info, (struct xen_sysctl_tbuf_op){0});
    struct buffers buffers = {.rings = calloc(host.max_cpu_id + 1, sizeof(struct ring))};
    const struct t_info *table;
    const uint32_t *words;
    xen_pfn_t *frames;

    if (!operation.buffer_mfn) {
        make_buffers(&host, pages);
        operation = tbuf_or_fail(XEN_SYSCTL_TBUFOP_get_info, operation);
    }
    frames = calloc(UINT16_MAX, sizeof(*frames));
    if (!frames || !buffers.rings)
        fail(EXIT_FAILED, "no memory");
    for (uint32_t i = 0; i < operation.size / PAGE_BYTES; i++)
        frames[i] = operation.buffer_mfn + i;
    table = map_or_fail(frames, operation.size / PAGE_BYTES, PROT_READ);
    words = (const uint32_t *)table;

    if (pages > table->tbuf_size)
        fail(EXIT_REFUSED,
             "--pages is too large: %u; Xen's trace buffers have %u pages a CPU, and keep them "
             "until the next boot (tbuf_size= of Xen)",
             pages, table->tbuf_size);
    buffers.pages = table->tbuf_size;
    buffers.ring_bytes = buffers.pages * PAGE_BYTES - sizeof(struct t_buf);
    for (uint32_t cpu = 0; cpu <= host.max_cpu_id; cpu++) {
        uint32_t first = table->mfn_offset[cpu];
        struct ring *ring = &buffers.rings[buffers.count];

        /* A CPU that was off when the buffers were made has none. */
        if (!first)
            continue;
        if ((first + buffers.pages) * sizeof(*words) > operation.size)
            fail(EXIT_FAILED,
                 "Xen's table of trace buffers is not as expected: CPU %u's frames "
                 "are beyond its end",
                 cpu);
        for (uint32_t i = 0; i < buffers.pages; i++)
            frames[i] = words[first + i];
        ring->cpu = cpu;
        ring->head = map_or_fail(frames, buffers.pages, PROT_READ | PROT_WRITE);
        ring->data = (const uint8_t *)(ring->head + 1);
        buffers.count++;
    }
    free(frames);
    return buffers;
}

static bool tracing;

/* The event mask that was set before, for the end. */
static struct xen_sysctl_tbuf_op before;

static void stop_tracing(void)
{
    struct xen_sysctl_tbuf_op operation = before;

    if (!tracing)
        return;
    tracing = false;
    tbuf(XEN_SYSCTL_TBUFOP_disable, &operation);
    operation = before;
    tbuf(XEN_SYSCTL_TBUFOP_set_evt_mask, &operation);
}

static struct instant start_tracing(const struct buffers *buffers, uint32_t events)
{
    struct xen_sysctl_tbuf_op operation = {0};
    uint32_t cpus = buffers->rings[buffers->count - 1].cpu + 1;
    uint8_t *every_cpu = privcmd_memory((cpus + CHAR_BIT - 1) / CHAR_BIT);
    struct instant start;

    before = tbuf_or_fail(XEN_SYSCTL_TBUFOP_get_info, operation);
    if (atexit(stop_tracing))
        fail(EXIT_FAILED, "no memory");
    tracing = true;

    /* Off first: a ring is emptied only while nobody writes to it. */
    tbuf_or_fail(XEN_SYSCTL_TBUFOP_disable, operation);
    for (uint32_t i = 0; i < buffers->count; i++)
        buffers->rings[i].head->cons = buffers->rings[i].head->prod;

    /* The mask of traced CPUs cannot be read; it is set to its value at boot, all CPUs. */
    memset(every_cpu, 0xff, (cpus + CHAR_BIT - 1) / CHAR_BIT);
    set_xen_guest_handle(operation.cpu_mask.bitmap, every_cpu);
    operation.cpu_mask.nr_bits = cpus;
    tbuf_or_fail(XEN_SYSCTL_TBUFOP_set_cpu_mask, operation);
    operation.evt_mask = events;
    tbuf_or_fail(XEN_SYSCTL_TBUFOP_set_evt_mask, operation);
    start = instant_now(CLOCK_REALTIME);
    tbuf_or_fail(XEN_SYSCTL_TBUFOP_enable, operation);
    return start;
}

/* Sleeps once: until that time, or until a signal ends it. 0: only a signal does. */
static void wait_until(uint64_t until_ns, const sigset_t *signals)
{
    struct itimerspec at = {
        .it_value = {.tv_sec = until_ns / SECOND_NS, .tv_nsec = until_ns % SECOND_NS}};
    timer_t timer;

    /* A timer signals SIGALRM unless told otherwise. */
    if (until_ns && (timer_create(CLOCK_REALTIME, NULL, &timer) ||
                     timer_settime(timer, TIMER_ABSTIME, &at, NULL)))
        fail(EXIT_FAILED, "no timer: %s", strerror(errno));
    while (sigwaitinfo(signals, NULL) < 0)
        continue;
}

static void put(FILE *file, const void *data, size_t bytes)
{
    if (fwrite(data, 1, bytes, file) != bytes)
        fail(EXIT_FAILED, "cannot write the trace: %s", strerror(errno));
}

/* What the ring holds, and whether it was full. */
static bool put_ring(FILE *file, const struct buffers *buffers, const struct ring *ring,
                     uint64_t stop_tsc)
{
    /* An extra of four words: count, where it was, time of the first; nothing of it is known. */
    const uint32_t lost[7] = {1u << 31 | 4u << TRACE_EXTRA_SHIFT | TRC_LOST_RECORDS, stop_tsc,
                              stop_tsc >> 32};
    uint32_t size = buffers->ring_bytes, consumed = ring->head->cons, produced = ring->head->prod;
    uint32_t bytes, start, straight;
    struct {
        uint32_t cpu, reserved;
        uint64_t bytes;
    } section;
    bool full;

    /* Both positions run over twice the ring, so that full and empty differ. */
    bytes = (produced + 2 * size - consumed) % (2 * size);
    if (consumed >= 2 * size || produced >= 2 * size || bytes > size)
        fail(EXIT_FAILED, "CPU %u's trace buffer is damaged: %u and %u in a ring of %u bytes",
             ring->cpu, consumed, produced, size);
    start = consumed % size;
    straight = bytes < size - start ? bytes : size - start;
    full = size - bytes < FULL_BYTES;

    section.cpu = ring->cpu;
    section.reserved = 0;
    section.bytes = bytes + (full ? sizeof(lost) : 0);
    put(file, &section, sizeof(section));
    put(file, ring->data + start, straight);
    put(file, ring->data, bytes - straight);
    if (full)
        put(file, lost, sizeof(lost));
    return full;
}

static FILE *open_or_refuse(const char *path)
{
    FILE *file = fopen(path, "we");

    if (!file)
        fail(EXIT_REFUSED, "%s: %s", path, strerror(errno));
    return file;
}

static void close_or_fail(FILE *file, const char *path)
{
    if (fclose(file))
        fail(EXIT_FAILED, "%s: %s", path, strerror(errno));
}

/* What is asked for. At most one of until_ns and for_ns is given; the other is 0. */
struct request {
    const char *path;
    uint32_t events;
    uint64_t until_ns;
    uint64_t for_ns;
    uint32_t pages;
    const char *kernel_path; /* or NULL */
    uint64_t kib;
};

static int record(const struct request *request)
{
    struct {
        char magic[8];
        uint32_t version, sections;
        struct instant start, stop;
    } header = {.magic = "LAXITYXT", .version = FILE_VERSION};
    const struct ftrace kernel = {
        .events = kernel_events,
        .count = sizeof(kernel_events) / sizeof(kernel_events[0]),
        .probe = KERNEL_PROBE,
        .kib = request->kib,
    };
    struct buffers buffers;
    sigset_t signals;
    FILE *file, *kernel_file = NULL;
    int code = EXIT_SUCCESS;

    privcmd_open();
    if (request->until_ns && request->until_ns <= time_ns(CLOCK_REALTIME))
        fail(EXIT_REFUSED, "--until is in the past: it is %" PRIu64 " now",
             time_ns(CLOCK_REALTIME));
    buffers = map_buffers(request->pages);
    if (!buffers.count)
        fail(EXIT_FAILED, "Xen has no trace buffer for any CPU");
    file = open_or_refuse(request->path);
    if (request->kernel_path)
        kernel_file = open_or_refuse(request->kernel_path);

    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGALRM);
    sigprocmask(SIG_BLOCK, &signals, NULL);

    header.sections = buffers.count;
    /* The kernel's events begin before those of Xen, and end after them. */
    if (kernel_file)
        ftrace_start(&kernel);
    header.start = start_tracing(&buffers, request->events);
    printf("recording %" PRIu64 " %" PRIu64 "\n", header.start.tsc, header.start.time_ns);
    fflush(stdout);
    wait_until(request->for_ns ? header.start.time_ns + request->for_ns : request->until_ns,
               &signals);
    stop_tracing();
    header.stop = instant_now(CLOCK_REALTIME);
    if (kernel_file)
        ftrace_stop();

    put(file, &header, sizeof(header));
    for (uint32_t i = 0; i < buffers.count; i++) {
        if (!put_ring(file, &buffers, &buffers.rings[i], header.stop.tsc))
            continue;
        fprintf(stderr,
                "laxity-trace: CPU %u's buffer of %u pages was full, and records are lost: trace "
                "fewer events, or a shorter time, or boot Xen with a larger tbuf_size=\n",
                buffers.rings[i].cpu, buffers.pages);
        code = EXIT_FAILED;
    }
    close_or_fail(file, request->path);
    if (kernel_file) {
        uint64_t lost = ftrace_write(kernel_file, 0, header.start.tsc, header.stop.tsc);

        if (lost) {
            fprintf(stderr,
                    "laxity-trace: the buffers of dom0's kernel of %" PRIu64
                    " KiB a VCPU were full, and %" PRIu64
                    " events are lost: trace a shorter time, or give more with --kib\n",
                    request->kib, lost);
            code = EXIT_FAILED;
        }
        close_or_fail(kernel_file, request->kernel_path);
    }
    return code;
}

int main(int count, char **words)
{
    static const struct option options[] = {
        {"events", required_argument, NULL, 'e'}, {"until", required_argument, NULL, 'u'},
        {"for", required_argument, NULL, 'f'},    {"pages", required_argument, NULL, 'p'},
        {"kernel", required_argument, NULL, 'k'}, {"kib", required_argument, NULL, 'b'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0}};
    struct request request = {.events = TRC_SCHED_VERBOSE};
    uint64_t pages = 0;
    int option;

    while ((option = getopt_long(count, words, "", options, NULL)) != -1) {
        switch (option) {
        case 'e':
            request.events = parse_events(optarg);
            break;
        case 'u':
            if (!parse_number(optarg, &request.until_ns) || !request.until_ns ||
                request.until_ns > INT64_MAX)
                refuse("--until", optarg, "nanoseconds since 1970");
            break;
        case 'f':
            if (!parse_number(optarg, &request.for_ns) || !request.for_ns ||
                request.for_ns > (uint64_t)FOR_NS_MAX)
                refuse("--for", optarg, "1 ns to a day");
            break;
        case 'p':
            if (!parse_number(optarg, &pages) || !pages || pages > UINT16_MAX)
                refuse("--pages", optarg, "1 to 65535");
            break;
        case 'k':
            request.kernel_path = optarg;
            break;
        case 'b':
            if (!parse_number(optarg, &request.kib) || !request.kib || request.kib > KIB_MAX)
                refuse("--kib", optarg, "1 to 4194304");
            break;
        case 'h':
            fputs(usage, stdout);
            return EXIT_SUCCESS;
        default: /* getopt_long has said what is wrong */
            fputs(usage, stderr);
            return EXIT_REFUSED;
        }
    }
    if (count - optind != 2 || strcmp(words[optind], "record") ||
        (request.until_ns && request.for_ns) || (request.kib && !request.kernel_path)) {
        fputs(usage, stderr);
        return EXIT_REFUSED;
    }
    if (!request.kib)
        request.kib = KIB_DEFAULT;
    request.pages = pages;
    request.path = words[optind + 1];
    return record(&request);
}
