/* SPDX-License-Identifier: GPL-2.0-only */
#include "request.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELDS 5

/* A piece of a text, without a copy. */
struct slice {
    const char *start;
    int length;
};

bool fail(struct failure *failure, const char *format, ...)
{
    va_list arguments;
    failure->is_late = false;
    va_start(arguments, format);
    vsnprintf(failure->text, sizeof failure->text, format, arguments);
    va_end(arguments);
    return false;
}

/* What stands before the next separator; `*text` goes past the separator, or becomes NULL. */
static struct slice next_slice(const char **text, char separator)
{
    struct slice slice = {.start = *text, .length = (int)strcspn(*text, (char[]){separator, '\0'})};
    const char *end = slice.start + slice.length;
    *text = *end ? end + 1 : NULL;
    return slice;
}

/* Digits only: strtoll alone would take signs, spaces and what follows. */
static bool parse_number(struct slice slice, int64_t minimum, int64_t maximum, int64_t *number)
{
    for (int i = 0; i < slice.length; i++)
        if (!isdigit((unsigned char)slice.start[i]))
            return false;
    if (!slice.length)
        return false;
    errno = 0;
    *number = strtoll(slice.start, NULL, 10);
    return !errno && *number >= minimum && *number <= maximum;
}

static bool parse_task(struct slice text, unsigned number, unsigned vcpus,
                       struct task_request *task, struct failure *failure)
{
    static const struct {
        const char *name;
        int64_t minimum;
    } fields[FIELDS] = {
        {"cost_ns", 1}, {"period_ns", 1}, {"deadline_ns", 1}, {"offset_ns", 0}, {"vcpu", 0},
    };
    int64_t values[FIELDS];
    int count = 1;
    for (int i = 0; i < text.length; i++)
        count += text.start[i] == ',';
    if (count != FIELDS)
        return fail(failure,
                    "tasks: task %u is \"%.*s\", which must be "
                    "cost_ns,period_ns,deadline_ns,offset_ns,vcpu",
                    number, text.length, text.start);

    const char *rest = text.start;
    for (int i = 0; i < FIELDS; i++) {
        struct slice field = {.start = rest};
        field.length = (int)strcspn(rest, ",;");
        rest += field.length + 1;
        int64_t maximum = i == FIELDS - 1 ? vcpus - 1 : TIME_NS_MAX;
        if (!parse_number(field, fields[i].minimum, maximum, &values[i]))
            return fail(failure,
                        "tasks: %s of task %u is \"%.*s\", which must be a whole number from %lld "
                        "to %lld",
                        fields[i].name, number, field.length, field.start,
                        (long long)fields[i].minimum, (long long)maximum);
    }
    *task = (struct task_request){
        .cost_ns = values[0],
        .period_ns = values[1],
        .deadline_ns = values[2],
        .offset_ns = values[3],
        .vcpu = (unsigned)values[4],
    };
    return true;
}

bool parse_tasks(const char *text, unsigned vcpus, struct task_list *list, struct failure *failure)
{
    list->count = 0;
    for (const char *rest = *text ? text : NULL; rest;) {
        struct slice task = next_slice(&rest, ';');
        if (list->count == TASKS_MAX)
            return fail(failure,
                        "tasks: there are more than %d tasks, which is what the priorities "
                        "of one domain are enough for",
                        TASKS_MAX);
        if (!parse_task(task, list->count, vcpus, &list->tasks[list->count], failure))
            return false;
        list->count++;
    }
    return true;
}

bool parse_run(const char *text, struct run_request *run, struct failure *failure)
{
    const char *rest = text;
    struct slice name = next_slice(&rest, ' ');
    struct slice start = rest ? next_slice(&rest, ' ') : (struct slice){0};
    struct slice duration = rest ? next_slice(&rest, ' ') : (struct slice){0};
    if (!duration.length || rest)
        return fail(failure, "run: \"%s\" must be NAME START_REALTIME_NS DURATION_NS", text);
    for (int i = 0; i < name.length; i++)
        if (!isalnum((unsigned char)name.start[i]) && !strchr("_.-", name.start[i]))
            name.length = 0;
    if (!name.length || name.length >= RUN_NAME_BYTES)
        return fail(
            failure,
            "run: the name in \"%s\" must have 1 to %d letters, digits, \"_\", \".\" or \"-\"",
            text, RUN_NAME_BYTES - 1);
    if (!parse_number(start, 0, INT64_MAX - 3 * TIME_NS_MAX, &run->start_ns))
        return fail(failure,
                    "run: the start in \"%s\" must be a whole number, CLOCK_REALTIME in ns", text);
    if (!parse_number(duration, 1, TIME_NS_MAX, &run->duration_ns))
        return fail(failure,
                    "run: the duration in \"%s\" must be a whole number from 1 to %lld, in ns",
                    text, (long long)TIME_NS_MAX);
    snprintf(run->name, sizeof run->name, "%.*s", name.length, name.start);
    return true;
}

bool parse_flag(const char *name, const char *text, bool *flag, struct failure *failure)
{
    if (strcmp(text, "0") && strcmp(text, "1"))
        return fail(failure, "%s: \"%s\" must be 0 or 1", name, text);
    *flag = *text == '1';
    return true;
}
