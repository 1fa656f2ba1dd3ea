/* SPDX-License-Identifier: GPL-2.0-only */
#include "ftrace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRACING "/sys/kernel/tracing/"
#define INSTANCE TRACING "instances/laxity/"
#define PROBES TRACING "kprobe_events"

#define VERSION 1
#define TEXT_BYTES 65536
#define PAGE_BYTES_MAX 65536

static const struct ftrace *recorded;

static bool write_text(const char *path, int flags, const char *text)
{
    int file = open(path, O_WRONLY | O_CLOEXEC | flags);
    bool good = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
    if (file >= 0)
        close(file);
    return good;
}

static void set(const char *name, const char *value)
{
    char path[256];
    snprintf(path, sizeof path, INSTANCE "%s", name);
    if (!write_text(path, O_TRUNC, value))
        fail(1, "%s cannot be set to %s: %s", path, value, strerror(errno));
}

static size_t read_text(const char *path, char text[TEXT_BYTES])
{
    size_t bytes = 0;
    ssize_t got;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        fail(1, "%s: %s", path, strerror(errno));
    while ((got = read(file, text + bytes, TEXT_BYTES - 1 - bytes)) > 0)
        bytes += (size_t)got;
    if (got < 0)
        fail(1, "%s: %s", path, strerror(errno));
    close(file);
    text[bytes] = '\0';
    return bytes;
}

static void put(FILE *into, const void *bytes, size_t count)
{
    if (fwrite(bytes, 1, count, into) != count)
        fail(1, "the trace cannot be written: %s", strerror(errno));
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

static uint32_t page_bytes(void)
{
    static const char path[] = INSTANCE "buffer_subbuf_size_kb";
    static char text[TEXT_BYTES];
    /* Kernels before 6.8 have pages of the machine's size alone. */
    if (access(path, F_OK))
        return (uint32_t)sysconf(_SC_PAGESIZE);
    read_text(path, text);
    return 1024 * (uint32_t)strtoul(text, NULL, 10);
}

static uint64_t put_cpu(FILE *into, unsigned cpu)
{
    static uint8_t page[PAGE_BYTES_MAX];
    char path[256];
    uint32_t head[2] = {cpu, page_bytes()};
    if (!head[1] || head[1] > sizeof page)
        fail(1, "pages of %" PRIu32 " bytes are not known", head[1]);
    uint64_t lost = statistic(cpu, "overrun: ") + statistic(cpu, "dropped events: "), bytes = 0;
    put(into, head, sizeof head);
    put(into, &lost, sizeof lost);
    long place = ftell(into);
    put(into, &bytes, sizeof bytes);
    snprintf(path, sizeof path, INSTANCE "per_cpu/cpu%u/trace_pipe_raw", cpu);
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
        fail(1, "%s: %s", path, strerror(errno));
    ssize_t got;
    while ((got = read(file, page, head[1])) > 0) {
        memset(page + got, 0, head[1] - (size_t)got);
        put(into, page, head[1]);
        bytes += head[1];
    }
    if (got < 0 && errno != EAGAIN)
        fail(1, "%s: %s", path, strerror(errno));
    close(file);
    fseek(into, place, SEEK_SET);
    put(into, &bytes, sizeof bytes);
    fseek(into, 0, SEEK_END);
    return lost;
}

/* Removes what was made, also by somebody before who could not. */
static void leave(void)
{
    rmdir(INSTANCE);
    if (recorded->probe) {
        char removal[64];
        int name = (int)strcspn(recorded->probe, " ") - 1;
        snprintf(removal, sizeof removal, "-%.*s", name, recorded->probe + 1);
        write_text(PROBES, O_APPEND, removal);
    }
}

void ftrace_start(const struct ftrace *trace)
{
    char text[64];
    if (access(TRACING "instances", F_OK))
        fail(1, "tracefs is not mounted: mount -t tracefs nodev " TRACING);
    recorded = trace;
    leave();
    if (atexit(leave))
        fail(1, "no memory");
    if (trace->probe && !write_text(PROBES, O_APPEND, trace->probe))
        fail(1, "the kernel takes no probe \"%s\": %s", trace->probe, strerror(errno));
    if (mkdir(INSTANCE, 0755))
        fail(1, INSTANCE " cannot be made: %s", strerror(errno));
    snprintf(text, sizeof text, "%" PRIu64, trace->kib);
    set("tracing_on", "0");
    set("trace_clock", "x86-tsc");
    set("buffer_size_kb", text);
    for (unsigned i = 0; i < trace->count; i++) {
        snprintf(text, sizeof text, "events/%s/enable", trace->events[i]);
        set(text, "1");
    }
    set("tracing_on", "1");
}

void ftrace_stop(void)
{
    set("tracing_on", "0");
}

uint64_t ftrace_write(FILE *file, uint64_t khz, uint64_t began, uint64_t ended)
{
    uint32_t cpus = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t head[2] = {VERSION, cpus}, texts = 1 + recorded->count;
    uint64_t lost = 0;
    put(file, "LAXITYLT", 8);
    put(file, head, sizeof head);
    put(file, &khz, sizeof khz);
    put(file, &began, sizeof began);
    put(file, &ended, sizeof ended);
    put(file, &texts, sizeof texts);
    put_text(file, INSTANCE "events/header_page");
    for (unsigned i = 0; i < recorded->count; i++) {
        char format[256];
        snprintf(format, sizeof format, INSTANCE "events/%s/format", recorded->events[i]);
        put_text(file, format);
    }
    for (unsigned cpu = 0; cpu < cpus; cpu++)
        lost += put_cpu(file, cpu);
    return lost;
}
