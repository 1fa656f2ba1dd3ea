/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Records who runs on the CPUs of a Linux host, from its tracepoints.
 *
 *   laxity-ftrace --until NS --mib MIB [--exits] FILE
 *                            NS of the TSC's clock; buffers of MIB for each CPU; --exits: it also
 *                            records when guests are entered and left, and why
 *
 * A line "recording" tells that it has begun. FILE is laid out as guest/ftrace.h says.
 */
#include "ftrace.h"
#include "tsc.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const events[] = {"sched/sched_switch", "sched/sched_wakeup", "kvm/kvm_entry",
                                     "kvm/kvm_exit"};
#define EVENTS_ALWAYS 2u
#define EVENTS_WITH_EXITS 4u

static uint64_t khz;

void fail(int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("laxity-ftrace: error: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(code);
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

int main(int count, char **words)
{
    bool exits = count == 7 && !strcmp(words[5], "--exits");
    if (count != 6 + exits || strcmp(words[1], "--until") || strcmp(words[3], "--mib")) {
        fprintf(stderr, "use: laxity-ftrace --until NS --mib MIB [--exits] FILE\n");
        return 2;
    }
    uint64_t until_ns = strtoull(words[2], NULL, 10);
    const char *path = words[count - 1];
    const struct ftrace trace = {.events = events,
                                 .count = exits ? EVENTS_WITH_EXITS : EVENTS_ALWAYS,
                                 .kib = 1024 * strtoull(words[4], NULL, 10)};
    FILE *file = fopen(path, "wb");
    if (!file)
        fail(2, "%s: %s", path, strerror(errno));
    khz = tsc_khz();
    if (!khz)
        fail(1, "/dev/kvm does not tell the rate of the TSC: %s", strerror(errno));
    uint64_t began = tsc_cycles();
    ftrace_start(&trace);
    printf("recording\n");
    fflush(stdout);
    sleep_until(until_ns);
    ftrace_stop();
    /* Lost events are a number in the file. */
    ftrace_write(file, khz, began, tsc_cycles());
    if (fclose(file))
        fail(1, "%s: %s", path, strerror(errno));
    return 0;
}
