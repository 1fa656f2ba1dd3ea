/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The one program of a guest: runs the tasks that dom0 asks for and reports every job.
 *
 * It is process 1 of a PV domain and talks with dom0 through xenstore, in its own directory:
 *
 *   data/laxity/tasks      dom0: the tasks, see request.h; where they are long, this is empty or
 *                          absent and tasks/0, tasks/1, ... are the pieces of the text
 *   data/laxity/cpu_bound  dom0: 1 if every VCPU has an endless loop beside the tasks; absent: 0
 *   data/laxity/tells      dom0: 1 if the guest is to tell Xen's scheduler what each VCPU works on;
 *                          absent: 0
 *   data/laxity/clock      dom0: "TSC CLOCK_REALTIME_NS" at one instant there; absent: the clock of
 *                          this domain is right. A guest's is not: until its kernel has its clock
 *                          source, it counts ticks, and those that fall while others run are lost
 *   data/laxity/network    dom0, before the guest is ready: the address of its interface, as
 *                          192.0.2.2/24; absent: it needs none
 *   data/laxity/program    dom0: a program and its arguments, a line each, to run beside the tasks
 *                          until the report is asked for; absent: none
 *   data/laxity/run        dom0, last: the run, see request.h; the guest watches this
 *   data/laxity/report     dom0: the name of the run whose report the guest is to write now
 *   data/laxity/state      the guest: "ready ITERATIONS_PER_MS" once; then for each run "serves
 *                          NAME START_NS DURATION_NS" once its program was started, if it has
 *                          one, "ran NAME START_NS" at its end and "done NAME" after the whole
 *                          report, or "late NAME START_NS LATE_NS" if not all was ready at the
 *                          start, or "error TEXT"
 *
 * A run that was late may be asked for again with a later start. A run that is asked for while the
 * report of the one before is awaited takes its place: nobody wants that report any more.
 *
 * and writes reports (report.h) to its console, after what the program says, if there is one,
 * between lines "laxity-output RUN" and "laxity-output-end RUN". With --stdin it is a plain process
 * instead: lines "tasks TEXT", "cpu_bound TEXT", "tells TEXT" and "run TEXT" come from standard
 * input, reports and lines "state TEXT" go to standard output. A line "speed ITERATIONS NS JOB_NS"
 * takes the place of what was measured (struct speed), so that what is refused does not depend on
 * the machine.
 *
 * Idle means idle: between runs every thread is blocked.
 */
#include "clock.h"
#include "program.h"
#include "run.h"
#include "store.h"
#include "tell.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#define STORE "data/laxity/"
#define CONSOLE "/dev/hvc0"
#define MODULES "/modules"
#define PRIVCMD_MODULE "/xen-privcmd.ko"

static bool mount_at(const char *type, const char *directory, struct failure *failure)
{
    mkdir(directory, 0755);
    if (mount(type, directory, type, 0, NULL) && errno != EBUSY)
        return fail(failure, "%s cannot be mounted: %s", directory, strerror(errno));
    return true;
}

static bool write_setting(const char *path, const char *value, bool optional,
                          struct failure *failure)
{
    int file = open(path, O_WRONLY);
    if (file < 0 && errno == ENOENT && optional)
        return true;
    bool good = file >= 0 && write(file, value, strlen(value)) == (ssize_t)strlen(value);
    if (!good)
        fail(failure, "%s cannot be set to %s: %s", path, value, strerror(errno));
    if (file >= 0)
        close(file);
    return good;
}

/* Half of what fits between a guest and dom0. */
#define CONSOLE_BYTES 1024

static bool take_console(struct failure *failure)
{
    int console = open(CONSOLE, O_RDWR | O_NOCTTY);
    if (console < 0)
        return fail(failure, "%s cannot be opened: %s", CONSOLE, strerror(errno));
    for (int standard = 0; standard <= 2; standard++)
        dup2(console, standard);
    if (console > 2)
        close(console);
    return true;
}

/*
 * What process 1 finds is an empty machine. The kernel shall let the tasks have all of the CPU,
 * not look after those that starve meanwhile, and not write into the reports.
 */
static bool set_up_machine(struct failure *failure)
{
    return mount_at("devtmpfs", "/dev", failure) && take_console(failure) &&
           mount_at("proc", "/proc", failure) && mount_at("sysfs", "/sys", failure) &&
           write_setting("/proc/sys/kernel/printk", "1", false, failure) &&
           write_setting("/proc/sys/kernel/sched_rt_runtime_us", "-1", false, failure) &&
           write_setting("/proc/sys/kernel/watchdog", "0", true, failure) &&
           write_setting("/sys/module/rcupdate/parameters/rcu_cpu_stall_suppress", "1", true,
                         failure);
}

/* What dom0 asks for, beside the run. */
struct texts {
    char *tasks, *cpu_bound, *tells;
};

static void free_texts(struct texts *texts)
{
    free(texts->tasks);
    free(texts->cpu_bound);
    free(texts->tells);
}

/* One try at what dom0 asks for. */
static bool run_texts(const struct runner *runner, const struct texts *texts, const char *run_text,
                      struct run_request *request, FILE *console, struct failure *failure)
{
    struct task_list list;
    struct run_flags flags;
    return parse_tasks(texts->tasks, runner->vcpus, &list, failure) &&
           parse_flag("cpu_bound", texts->cpu_bound, &flags.cpu_bound, failure) &&
           parse_flag("tells", texts->tells, &flags.tells, failure) &&
           parse_run(run_text, request, failure) &&
           (!flags.tells || tell_open(PRIVCMD_MODULE, failure)) &&
           run(runner, request, &list, &flags, console, failure);
}

static struct runner new_runner(bool real_time)
{
    return (struct runner){
        .speed = measure_speed(),
        .vcpus = (unsigned)sysconf(_SC_NPROCESSORS_ONLN),
        .real_time = real_time,
    };
}

/* The tasks' text, in one piece, which the caller frees. */
static bool read_tasks(struct store *store, char **text, struct failure *failure)
{
    if (!store_read(store, STORE "tasks", text, failure))
        return false;
    bool whole = *text && **text;
    for (unsigned number = 0;; number++) {
        char path[64], *piece, *longer;
        snprintf(path, sizeof path, STORE "tasks/%u", number);
        if (!store_read(store, path, &piece, failure))
            return false;
        if (!piece)
            return *text || fail(failure, "tasks: there is no " STORE "tasks");
        if (whole) {
            free(piece);
            return fail(failure, "tasks: both " STORE "tasks and %s are given: remove one", path);
        }
        int length = asprintf(&longer, "%s%s", *text ? *text : "", piece);
        free(piece);
        if (length < 0)
            return fail(failure, "tasks: there is no memory for them");
        free(*text);
        *text = longer;
    }
}

/* The text of a flag, which the caller frees: "0" where the node is absent. */
static bool read_flag(struct store *store, const char *path, char **text, struct failure *failure)
{
    if (!store_read(store, path, text, failure))
        return false;
    if (!*text)
        *text = strdup("0");
    return *text || fail(failure, "%s: there is no memory for it", path);
}

static bool set_clock(const char *text, struct instant since, struct failure *failure)
{
    struct instant theirs;
    int length = 0;
    if (sscanf(text, "%" SCNu64 " %" SCNu64 "%n", &theirs.tsc, &theirs.time_ns, &length) != 2 ||
        text[length])
        return fail(failure, "clock: \"%s\" must be the TSC and nanoseconds", text);
    return set_realtime(theirs, since) ||
           fail(failure, "the clock cannot be set: %s", strerror(errno));
}

/* Linux leaves it to others to use a VCPU that was plugged in again. Nothing is to be done where
 * there is none, or none that can be unplugged. */
static void use_all_vcpus(unsigned vcpus)
{
    for (unsigned vcpu = 0; vcpu < vcpus; vcpu++) {
        char path[64];
        struct failure ignored;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/online", vcpu);
        write_setting(path, "1", true, &ignored);
    }
}

/* What the nodes say; false with the reason in `failure`. */
static bool run_nodes(struct store *store, const struct runner *runner, struct instant since,
                      const char *run_text, struct run_request *request, FILE *console,
                      struct failure *failure)
{
    struct texts texts = {0};
    char *clock = NULL;
    use_all_vcpus(runner->vcpus);
    bool good = store_read(store, STORE "clock", &clock, failure) &&
                (!clock || set_clock(clock, since, failure)) &&
                read_tasks(store, &texts.tasks, failure) &&
                read_flag(store, STORE "cpu_bound", &texts.cpu_bound, failure) &&
                read_flag(store, STORE "tells", &texts.tells, failure) &&
                run_texts(runner, &texts, run_text, request, console, failure);
    free_texts(&texts);
    free(clock);
    return good;
}

/*
 * Waits until dom0 asks for the report: guests that all wrote at once would leave it no time. False
 * if dom0 asks for another run instead: some guest was late for this one.
 */
static bool wait_for_dom0(struct store *store, const struct run_request *request,
                          const char *run_text, struct failure *failure)
{
    char state[RUN_NAME_BYTES + 64];
    snprintf(state, sizeof state, "ran %s %lld", request->name, (long long)request->start_ns);
    if (!store_write(store, STORE "state", state, failure))
        return false;
    for (;;) {
        char *asked = NULL, *run = NULL;
        bool good = store_read(store, STORE "report", &asked, failure) &&
                    store_read(store, STORE "run", &run, failure);
        bool is_asked = asked && !strcmp(asked, request->name);
        bool is_over = run && strcmp(run, run_text);
        free(asked);
        free(run);
        if (!good)
            return false;
        if (is_over) {
            fail(failure, "%s %lld 0", request->name, (long long)request->start_ns);
            failure->is_late = true;
            return false;
        }
        if (is_asked)
            return true;
        if (!store_wait(store, failure))
            return false;
    }
}

/* Bit by bit, so that dom0 keeps up. Otherwise Linux, which never sleeps while it writes to its
 * console, takes the time that dom0 needs to read it. */
static bool write_slowly(const char *report, size_t bytes)
{
    static const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    bool good = true;
    while (good && bytes) {
        size_t some = bytes < CONSOLE_BYTES ? bytes : CONSOLE_BYTES;
        good = fwrite(report, 1, some, stdout) == some && !fflush(stdout);
        report += some;
        bytes -= some;
        nanosleep(&pause, NULL);
    }
    return good;
}

/* Starts the program that dom0 asks for, if it does, and tells dom0: `is_running` says so. */
static bool start_program(struct store *store, struct program *program, const char *run_text,
                          bool *is_running, struct failure *failure)
{
    char *lines;
    if (!store_read(store, STORE "program", &lines, failure))
        return false;
    *is_running = lines && program_start(program, lines, failure);
    bool good = !lines || *is_running;
    free(lines);
    if (*is_running) {
        char state[RUN_NAME_BYTES + 64];
        snprintf(state, sizeof state, "serves %s", run_text);
        good = store_write(store, STORE "state", state, failure);
    }
    return good;
}

/* Ends the program, and writes what it says, as of a run. */
static bool end_program(struct program *program, const char *run, struct failure *failure)
{
    char *said, *section = NULL;
    int bytes = 0;
    bool good = program_stop(program, &said, failure);
    if (good)
        bytes = asprintf(&section, "laxity-output %s\n%s\nlaxity-output-end %s\n", run, said, run);
    if (bytes < 0)
        good = fail(failure, "program: there is no memory for what it says");
    good = good && write_slowly(section, (size_t)bytes);
    free(said);
    free(section);
    return good;
}

/* One run, and its report. */
static bool run_and_report(struct store *store, const struct runner *runner, struct instant since,
                           const char *run_text, struct run_request *request,
                           struct failure *failure)
{
    char *report = NULL;
    size_t bytes;
    FILE *console = open_memstream(&report, &bytes);
    if (!console)
        return fail(failure, "there is no memory for a report");
    struct program program;
    bool has_program = false;
    bool good = start_program(store, &program, run_text, &has_program, failure) &&
                run_nodes(store, runner, since, run_text, request, console, failure);
    good = !fclose(console) && good && wait_for_dom0(store, request, run_text, failure);
    if (has_program && good)
        good = end_program(&program, request->name, failure);
    else if (has_program)
        program_kill(&program);
    good = good && write_slowly(report, bytes);
    tcdrain(STDOUT_FILENO); /* the whole report is with dom0 before it is said to be done */
    free(report);
    return good;
}

/* Brings up the network, if dom0 has given this guest one. */
static bool connect_network(struct store *store, struct failure *failure)
{
    char *address;
    if (!store_read(store, STORE "network", &address, failure))
        return false;
    bool good = !address || network_up(MODULES, address, failure);
    free(address);
    return good;
}

static void write_outcome(char *state, size_t bytes, bool good, const struct run_request *request,
                          const struct failure *failure)
{
    snprintf(state, bytes, "%s %s",
             good               ? "done"
             : failure->is_late ? "late"
                                : "error",
             good ? request->name : failure->text);
}

/* Serves dom0 for good; returns only if that fails. */
static bool serve_store(struct failure *failure)
{
    struct store store;
    if (!store_open(&store, failure) || !connect_network(&store, failure) ||
        !store_watch(&store, STORE "run", failure) || !store_watch(&store, STORE "report", failure))
        return false;
    if (!become_real_time())
        return fail(failure, "SCHED_FIFO is refused: %s", strerror(errno));
    struct instant since = instant_now(CLOCK_MONOTONIC);
    struct runner runner = new_runner(true);

    char state[sizeof(struct failure) + 64];
    snprintf(state, sizeof state, "ready %llu",
             (unsigned long long)iterations_per_ms(&runner.speed));
    char *last = NULL;
    while (store_write(&store, STORE "state", state, failure)) {
        /* An event may find what was run already; the event of another run may be gone already. */
        char *text;
        for (;;) {
            if (!store_read(&store, STORE "run", &text, failure))
                return false;
            if (text && (!last || strcmp(text, last)))
                break;
            free(text);
            if (!store_wait(&store, failure))
                return false;
        }
        free(last);
        last = text;

        struct run_request request;
        struct failure refusal;
        bool good = run_and_report(&store, &runner, since, text, &request, &refusal);
        write_outcome(state, sizeof state, good, &request, &refusal);
    }
    return false;
}

/* Replaces `*value` by what follows `key` and a space, if the line is that. */
static bool take_value(const char *line, const char *key, char **value)
{
    size_t length = strlen(key);
    if (strncmp(line, key, length) || line[length] != ' ')
        return false;
    free(*value);
    *value = strdup(line + length + 1);
    return *value;
}

static bool parse_speed(const char *line, struct speed *speed)
{
    struct speed given;
    int length = 0;
    if (sscanf(line, "speed %" SCNu64 " %" SCNd64 " %" SCNd64 "%n", &given.span_iterations,
               &given.span_ns, &given.job_ns, &length) != 3 ||
        line[length] || given.span_ns <= 0 || given.job_ns < 0)
        return false;
    *speed = given;
    return true;
}

/* Serves standard input until its end; returns the exit code. */
static int serve_stdin(void)
{
    struct runner runner = new_runner(become_real_time());
    struct texts texts = {strdup(""), strdup("0"), strdup("0")};
    char *run_text = NULL, *line = NULL;
    size_t size = 0;
    char state[sizeof(struct failure) + 64];
    int code = 0;
    printf("state ready %llu\n", (unsigned long long)iterations_per_ms(&runner.speed));
    fflush(stdout);
    for (ssize_t length; !code && (length = getline(&line, &size, stdin)) > 0;) {
        struct run_request request;
        struct failure failure;
        if (line[length - 1] == '\n')
            line[length - 1] = '\0';
        if (take_value(line, "tasks", &texts.tasks) ||
            take_value(line, "cpu_bound", &texts.cpu_bound) ||
            take_value(line, "tells", &texts.tells) || parse_speed(line, &runner.speed))
            continue;
        bool good =
            take_value(line, "run", &run_text)
                ? run_texts(&runner, &texts, run_text, &request, stdout, &failure)
                : fail(&failure,
                       "standard input: \"%s\" must begin with tasks, cpu_bound, tells, speed or "
                       "run",
                       line);
        write_outcome(state, sizeof state, good, &request, &failure);
        printf("state %s\n", state);
        fflush(stdout);
        code = good || failure.is_late ? 0 : 2;
    }
    free_texts(&texts);
    free(run_text);
    free(line);
    return code;
}

int main(int count, char **arguments)
{
    if (count == 2 && !strcmp(arguments[1], "--stdin"))
        return serve_stdin();
    if (getpid() != 1) {
        fprintf(stderr, "laxity-guest: error: this is process 1 of a guest; `laxity-guest --stdin` "
                        "is a plain process\n");
        return 2;
    }

    struct failure failure;
    if (set_up_machine(&failure)) {
        if (mlockall(MCL_CURRENT | MCL_FUTURE))
            fail(&failure, "memory cannot be locked: %s", strerror(errno));
        else
            serve_store(&failure);
    }
    /* The domain ends, which dom0 notices, and the console has the reason. */
    fprintf(stderr, "laxity-guest: error: %s\n", failure.text);
    tcdrain(STDERR_FILENO);
    reboot(RB_POWER_OFF);
    return 1;
}
