/* SPDX-License-Identifier: GPL-2.0-only */
#include "report.h"

#include <stdarg.h>
#include <stdbool.h>

#define COMPLETIONS_A_LINE 16

struct output {
    FILE *console;
    uint32_t crc;
};

__attribute__((format(printf, 2, 3))) static void emit(struct output *output, const char *format,
                                                       ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (const char *byte = text; *byte; byte++) {
        output->crc ^= (unsigned char)*byte;
        for (int bit = 0; bit < 8; bit++)
            output->crc = output->crc >> 1 ^ (output->crc & 1 ? 0xedb88320 : 0);
    }
    fputs(text, output->console);
}

static void emit_task(struct output *output, unsigned number, const struct task_report *task,
                      int64_t duration_ns)
{
    unsigned completed = task->completed;
    while (completed && task->completion_ns[completed - 1] > duration_ns)
        completed--;
    emit(output, "laxity-task %u %u %u\n", number, task->jobs, completed);
    int64_t before_ns = 0;
    for (unsigned i = 0; i < completed; i++) {
        bool ends_line = i % COMPLETIONS_A_LINE == COMPLETIONS_A_LINE - 1 || i == completed - 1;
        emit(output, "%lld%c", (long long)(task->completion_ns[i] - before_ns),
             ends_line ? '\n' : ' ');
        before_ns = task->completion_ns[i];
    }
}

void write_report(const struct run_report *report, FILE *console)
{
    struct output output = {.console = console, .crc = UINT32_MAX};
    emit(&output, "laxity-report %s %lld %u %u\n", report->run, (long long)report->duration_ns,
         report->task_count, report->vcpu_count);
    emit(&output, "laxity-speed %llu %lld\n", (unsigned long long)report->iterations_per_ms,
         (long long)report->job_ns);
    if (report->tick_period_ns)
        emit(&output, "laxity-tick %lld %lld\n", (long long)report->tick_period_ns,
             (long long)report->tick_offset_ns);
    if (report->note)
        emit(&output, "laxity-note %s\n", report->note);
    for (unsigned task = 0; task < report->task_count; task++)
        emit_task(&output, task, &report->tasks[task], report->duration_ns);
    for (unsigned vcpu = 0; vcpu < report->vcpu_count; vcpu++)
        emit(&output, "laxity-vcpu %u %lld %lld\n", vcpu, (long long)report->vcpus[vcpu].tasks_ns,
             (long long)report->vcpus[vcpu].cpu_bound_ns);
    emit(&output, "laxity-crc %08x\n", ~output.crc);
    emit(&output, "laxity-report-end %s\n", report->run);
    fflush(console);
}
