/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Records who runs on the CPUs of a Linux host, from its tracepoints.
 *
 *   laxity-ftrace --until NS --mib MIB [--exits] FILE
 *                            NS of the TSC's clock; buffers of MIB for each CPU; --exits: it also
 *                            records when guests are entered and left, and why
 *
 * It traces in an instance of its own, so that whoever traces beside it is not disturbed, and
 * removes it in the end. A line "recording" tells that it has begun. The file, little-endian:
 *
 *   offset 0   8 bytes  LAXITYLT
 *          8   u32      version of the layout: 1
 *         12   u32      number of CPUs
 *         16   u64      kHz of the TSC
 *         24   u64      cycles of the TSC when tracing began
 *         32   u64      cycles when it ended
 *         40   u32      number of texts; for each, u32 bytes and the text: the format of the
 *                       buffers' pages, then those of the events, as tracefs has them
 *
 * Then, for each CPU: u32 number, u32 bytes of a page, u64 events that were lost, u64 n, and n
 * bytes, its pages, oldest first.
 */
#include "tsc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TRACING "/sys/kernel/tracing/"
#define INSTANCE TRACING "instances/laxity/"

#define VERSION 1
#define TEXT_BYTES 65536
#define PAGE_BYTES_MAX 65536

static const char *const events[] = {"sched/sched_switch", "sched/sched_wakeup", "kvm/kvm_entry",
                                     "kvm/kvm_exit"};
#define EVENTS_ALWAYS 2u
#define EVENTS_WITH_EXITS 4u

static uint64_t khz;

__attribute__((noreturn, format(printf, 2, 3))) static void quit(int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("laxity-ftrace: error: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    rmdir(INSTANCE);
    exit(code);
}

static void find_rate(void)
{
    khz = tsc_khz();
    if (!khz)
        quit(1, "/dev/kvm does not tell the rate of the TSC: %s", strerror(errno));
}

static void set(const char *name, const char *value)
{
    char path[256];
    snprintf(path, sizeof path, INSTANCE "%s", name);
    int file = open(path, O_WRONLY | O_TRUNC);
    if (file < 0 || write(file, value, strlen(value)) != (ssize_t)strlen(value))
        quit(1, "%s cannot be set to %s: %s", path, value, strerror(errno));
    close(file);
}

static size_t read_text(const char *path, char text[TEXT_BYTES])
{
    size_t bytes = 0;
    ssize_t got;
    int file = open(path, O_RDONLY);
    if (file < 0)
        quit(1, "%s: %s", path, strerror(errno));
    while ((got = read(file, text + bytes, TEXT_BYTES - 1 - bytes)) > 0)
        bytes += (size_t)got;
    if (got < 0)
        quit(1, "%s: %s", path, strerror(errno));
    close(file);
    text[bytes] = '\0';
    return bytes;
}

static void put(FILE *into, const void *bytes, size_t count)
{
    if (fwrite(bytes, 1, count, into) != count)
        quit(1, "the trace cannot be written: %s", strerror(errno));
}

static void put_text(FILE *into, const char *path)
{
    static char text[TEXT_BYTES];
    uint32_t bytes = (uint32_t)read_text(path, text);
    put(into, &bytes, sizeof bytes);
    put(into, text, bytes);
}

/* A number behind its name, in what the kernel says of a CPU's buffer. */
static uint64_t statistic(unsigned cpu, const char *name)
{
    static char text[TEXT_BYTES];
    char path[256];
    snprintf(path, sizeof path, INSTANCE "per_cpu/cpu%u/stats", cpu);
    read_text(path, text);
    const char *found = strstr(text, name);
    return found ? strtoull(found + strlen(name), NULL, 10) : 0;
}

static void put_cpu(FILE *into, unsigned cpu)
{
    static uint8_t page[PAGE_BYTES_MAX];
    static char text[TEXT_BYTES];
    char path[256];
    read_text(INSTANCE "buffer_subbuf_size_kb", text);
    uint32_t page_bytes = 1024 * (uint32_t)strtoul(text, NULL, 10);
    if (!page_bytes || page_bytes > sizeof page)
        quit(1, "pages of %u bytes are not known", page_bytes);
    uint64_t lost = statistic(cpu, "overrun: ") + statistic(cpu, "dropped events: "), bytes = 0;
    uint32_t head[2] = {cpu, page_bytes};
    put(into, head, sizeof head);
    put(into, &lost, sizeof lost);
    long place = ftell(into);
    put(into, &bytes, sizeof bytes);
    snprintf(path, sizeof path, INSTANCE "per_cpu/cpu%u/trace_pipe_raw", cpu);
    int file = open(path, O_RDONLY | O_NONBLOCK);
    if (file < 0)
        quit(1, "%s: %s", path, strerror(errno));
    ssize_t got;
    while ((got = read(file, page, page_bytes)) > 0) {
        memset(page + got, 0, page_bytes - (size_t)got);
        put(into, page, page_bytes);
        bytes += page_bytes;
    }
    if (got < 0 && errno != EAGAIN)
        quit(1, "%s: %s", path, strerror(errno));
    close(file);
    fseek(into, place, SEEK_SET);
    put(into, &bytes, sizeof bytes);
    fseek(into, 0, SEEK_END);
}

static void sleep_until(uint64_t until_ns)
{
    uint64_t until = (uint64_t)((unsigned __int128)until_ns * khz / 1000000), now;
    while ((now = tsc_cycles()) < until) {
        uint64_t ns = (uint64_t)((unsigned __int128)(until - now) * 1000000 / khz) + 1;
        struct timespec time = {.tv_sec = (time_t)(ns / 1000000000),
                                .tv_nsec = (long)(ns % 1000000000)};
        nanosleep(&time, NULL);
    }
}

static void start(const char *mib, unsigned count)
{
    char text[64];
    rmdir(INSTANCE);
    if (mkdir(INSTANCE, 0755))
        quit(1, INSTANCE " cannot be made: %s", strerror(errno));
    snprintf(text, sizeof text, "%lu", 1024 * strtoul(mib, NULL, 10));
    set("tracing_on", "0");
    set("trace_clock", "x86-tsc");
    set("buffer_size_kb", text);
    for (unsigned i = 0; i < count; i++) {
        snprintf(text, sizeof text, "events/%s/enable", events[i]);
        set(text, "1");
    }
    set("tracing_on", "1");
}

int main(int count, char **words)
{
    bool exits = count == 7 && !strcmp(words[5], "--exits");
    if (count != 6 + exits || strcmp(words[1], "--until") || strcmp(words[3], "--mib")) {
        fprintf(stderr, "use: laxity-ftrace --until NS --mib MIB [--exits] FILE\n");
        return 2;
    }
    uint64_t until_ns = strtoull(words[2], NULL, 10);
    const char *path = words[count - 1];
    uint32_t recorded = exits ? EVENTS_WITH_EXITS : EVENTS_ALWAYS;
    FILE *file = fopen(path, "wb");
    if (!file)
        quit(2, "%s: %s", path, strerror(errno));
    find_rate();
    uint64_t began = tsc_cycles();
    start(words[4], recorded);
    printf("recording\n");
    fflush(stdout);
    sleep_until(until_ns);
    set("tracing_on", "0");
    uint64_t ended = tsc_cycles();

    uint32_t cpus = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t head[2] = {VERSION, cpus}, texts = 1 + recorded;
    put(file, "LAXITYLT", 8);
    put(file, head, sizeof head);
    put(file, &khz, sizeof khz);
    put(file, &began, sizeof began);
    put(file, &ended, sizeof ended);
    put(file, &texts, sizeof texts);
    put_text(file, INSTANCE "events/header_page");
    for (unsigned i = 0; i < recorded; i++) {
        char format[256];
        snprintf(format, sizeof format, INSTANCE "events/%s/format", events[i]);
        put_text(file, format);
    }
    for (unsigned cpu = 0; cpu < cpus; cpu++)
        put_cpu(file, cpu);
    if (fclose(file))
        quit(1, "%s: %s", path, strerror(errno));
    rmdir(INSTANCE);
    return 0;
}
