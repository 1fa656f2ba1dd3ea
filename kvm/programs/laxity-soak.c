/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The soak, on a KVM host: carries out what an administrator may do to guests under a policy of
 * Laxity, in the order of a file, and tells when it did what.
 *
 *   laxity-soak OBJECT POLICY OPERATIONS SECONDS MIB DIR
 *
 * The scheduler is laxity-scx with OBJECT and POLICY, the guests are laxity-vmm, and laxity-ftrace
 * records who runs, in buffers of MIB for each CPU. OPERATIONS, a line each:
 *
 *   settings ..., domain ...       as laxity-scx takes them; they come first
 *   go                             the soak begins
 *   rest NS                        nothing is done for so long
 *   create NAME DURATION_NS CPU_BOUND TELLS TASKS CPU...
 *                                  a guest whose run lasts for so long, with a VCPU for each CPU
 *                                  that is named, on which it begins; all else is laxity-vmm's, and
 *                                  TASKS are - if it has none; one of that name whose run is over
 *                                  is waited for until it has gone
 *   destroy NAME                   kills it
 *   pause NAME, resume NAME        stops all its threads, and has them go on
 *   burst NAME TIMES               pauses and resumes it so many times
 *   set NAME[/VCPU] KEY=VALUE...   changes parameters, which must be there afterwards
 *   refuse NAME KEY=VALUE...       the same with values that must be refused, and change nothing
 *   pin NAME VCPU CPU,...          the CPUs of a thread
 *   leave NAME VCPU                the thread becomes an ordinary one,
 *   join NAME VCPU CPU             and the policy's again
 *   hog NAME NICE, unhog NAME      an ordinary task that always has something to do comes, and goes
 *
 * They are carried out until their end, or until SECONDS after `go`. What is to be done to a guest
 * that is not there any more is left out. DIR gets trace.bin of that time, and `done`: first the
 * start, ns of the TSC's clock, then a line "BEFORE_NS AFTER_NS OPERATION" for each operation, and
 * behind what comes the end of its run (0: it has none) and its threads.
 *
 * It fails with one sentence if the kernel takes the scheduler off, an operation is not possible or
 * takes too long, a right value is refused or a wrong one taken, or a guest does not end with its
 * run. That nobody stalls and that budgets are kept is seen in the trace, and what the kernel
 * complains of in its log, by python/laxity/substrates/kvm/soak.py.
 */
#include "tsc.h"
#include "work.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#define SECOND_NS INT64_C(1000000000)
#define SOCKET "/tmp/soak.socket"
#define LINE_BYTES 8192
#define TEXT_BYTES 65536
#define NAME_BYTES 32
#define THINGS_MAX 32
#define THREADS_MAX 8
#define WORDS_MAX 64

/* How long an operation may take, and a guest may go on beyond its run: whoever waits for so long
 * waits for ever. */
#define PATIENCE_NS (120 * SECOND_NS)
/* From the orders of a guest to the start of its run. */
#define LEAD_NS (SECOND_NS / 2)
/* How long an operation on a thread takes at most, and the last in which a guest is left alone. */
#define ENDING_NS (SECOND_NS / 4)
#define LOOK_NS 2000000
#define SAY_NS (10 * SECOND_NS)

#define POLICY_EXT 7
/* The layout that sched_setattr(2) takes, of its first version. */
struct scheduling {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

/* A guest, or an ordinary task. */
struct thing {
    char name[NAME_BYTES];
    pid_t process; /* 0: it is not there */
    bool is_paused;
    unsigned threads;
    pid_t thread[THREADS_MAX];
    int64_t ends_ns; /* the end of its run; that of a time in which it was paused, if it is later */
};

static struct thing things[THINGS_MAX];
static unsigned thing_count;
static pid_t scheduler;
static uint64_t khz;
static int64_t start_ns, said_ns;
static unsigned operations;
static const char *directory;
static FILE *done;
static char doing[LINE_BYTES] = "the beginning";

static int64_t now_ns(void)
{
    return tsc_ns(tsc_cycles(), khz);
}

__attribute__((noreturn, format(printf, 1, 2))) static void wrong(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "at %.3f s, %s: ", (double)(start_ns ? now_ns() - start_ns : 0) / 1e9, doing);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    exit(1);
}

static void sleep_ns(int64_t ns)
{
    nanosleep(&(struct timespec){ns / SECOND_NS, ns % SECOND_NS}, NULL);
}

static const char *path_of(const char *place, const char *name, const char *kind)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s%s", place, name, kind);
    return path;
}

static const char *text_of(const char *path)
{
    static char text[TEXT_BYTES];
    FILE *file = fopen(path, "r");
    size_t bytes = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[bytes] = '\0';
    return text;
}

/* A program, whose output is in a file; its input is what `input` becomes. */
static pid_t start_program(char *const words[], const char *output, int *input)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        wrong("there is no pipe: %s", strerror(errno));
    FILE *file = fopen(output, "we");
    pid_t process = file ? fork() : -1;
    if (process < 0)
        wrong("%s cannot be started: %s", words[0], strerror(errno));
    if (!process) {
        dup2(ends[0], 0);
        dup2(fileno(file), 1);
        dup2(fileno(file), 2);
        execvp(words[0], words);
        _exit(127);
    }
    fclose(file);
    close(ends[0]);
    *input = ends[1];
    return process;
}

static void give(int file, const char *text)
{
    size_t bytes = strlen(text);
    while (bytes) {
        ssize_t written = write(file, text, bytes);
        if (written < 0)
            wrong("what is read no more was written: %s", strerror(errno));
        text += written;
        bytes -= (size_t)written;
    }
}

/* Waits until a program has said that; what it has said is the result. */
static const char *wait_for(pid_t process, const char *output, const char *awaited)
{
    for (int64_t end_ns = now_ns() + PATIENCE_NS; now_ns() < end_ns; sleep_ns(LOOK_NS)) {
        bool is_over = waitpid(process, NULL, WNOHANG) != 0;
        const char *text = text_of(output), *found = strstr(text, awaited);
        if (found && strchr(found, '\n'))
            return found;
        if (is_over)
            wrong("a program ended, and said: %s", text);
    }
    wrong("nobody has said \"%s\" in %d s", awaited, (int)(PATIENCE_NS / SECOND_NS));
}

/* ---- The scheduler ---- */

/* Gives laxity-scx orders, and returns its answer. */
static const char *ask(const char *orders)
{
    static char answer[TEXT_BYTES];
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = SOCKET};
    struct timeval patience = {.tv_sec = PATIENCE_NS / SECOND_NS};
    int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t bytes = 0;
    ssize_t got;
    if (file < 0 || setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) ||
        connect(file, (struct sockaddr *)&name, sizeof name))
        wrong("laxity-scx is not there: %s; it said: %s", strerror(errno), text_of("/tmp/scx.out"));
    give(file, orders);
    shutdown(file, SHUT_WR);
    while ((got = read(file, answer + bytes, sizeof answer - 1 - bytes)) > 0)
        bytes += (size_t)got;
    answer[bytes] = '\0';
    close(file);
    if (got < 0 || !strstr(answer, "state obeyed"))
        wrong("laxity-scx does not answer, and said: %s%s", answer, text_of("/tmp/scx.out"));
    return answer;
}

static void order(const char *orders)
{
    const char *answer = ask(orders);
    if (strstr(answer, "state error"))
        wrong("laxity-scx refuses \"%s\": %s", orders, answer);
}

/* What there is of VCPUs and parameters, to be compared: without the CPU of each, which the policy
 * may change at any time. */
static void take_shown(char shown[TEXT_BYTES])
{
    char *rest, *end = shown;
    static char answer[TEXT_BYTES];
    strcpy(answer, ask("show\n"));
    *end = '\0';
    for (char *line = strtok_r(answer, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        int name = 0, parameters = 0;
        sscanf(line, "vcpu %*s %*u %*d%n %*u%n", &name, &parameters);
        if (parameters)
            end += sprintf(end, "%.*s%s\n", name, line, line + parameters);
    }
}

/* It says how the kernel let it go. */
static void stop_scheduler(void)
{
    unsigned long long decisions = 0, exit_kind = 0;
    ask("end\n");
    const char *said = wait_for(scheduler, "/tmp/scx.out", "state done ");
    if (sscanf(said, "state done %llu %llu", &decisions, &exit_kind) != 2 || exit_kind)
        wrong("the kernel has taken the scheduler off: %s", said);
    printf("laxity: soak: %u operations, %llu decisions\n", operations, decisions);
}

/* ---- Guests and ordinary tasks ---- */

static struct thing *find(const char *name, bool makes)
{
    for (unsigned i = 0; i < thing_count; i++)
        if (!strcmp(things[i].name, name))
            return &things[i];
    if (!makes)
        wrong("there is no %s", name);
    if (thing_count == THINGS_MAX || strlen(name) >= NAME_BYTES)
        wrong("there is no place for %s", name);
    strcpy(things[thing_count].name, name);
    return &things[thing_count++];
}

/* That a guest has ended as it should, by its last words. */
static void take_leave(struct thing *thing, int status)
{
    const char *said = text_of(path_of("/tmp", thing->name, ".out"));
    thing->process = 0;
    if (status || !(strstr(said, "state ran ") || strstr(said, "state late ")))
        wrong("%s ended with status 0x%x, and said: %.200s", thing->name, status, said);
}

/* Whether it is there; a guest that has ended by itself is not. */
static bool is_there(struct thing *thing)
{
    int status;
    if (thing->process && waitpid(thing->process, &status, WNOHANG) == thing->process)
        take_leave(thing, status);
    return thing->process;
}

/* Whether something can be done to its threads: a guest whose run is about to end has none soon. */
static bool has_threads(struct thing *thing)
{
    return is_there(thing) &&
           (thing->is_paused || !thing->ends_ns || now_ns() < thing->ends_ns - ENDING_NS);
}

static void look(void)
{
    int status;
    if (waitpid(scheduler, &status, WNOHANG))
        wrong("laxity-scx has ended, and said: %s", text_of("/tmp/scx.out"));
    for (unsigned i = 0; i < thing_count; i++)
        if (is_there(&things[i]) && !things[i].is_paused && things[i].ends_ns &&
            now_ns() > things[i].ends_ns + PATIENCE_NS)
            wrong("%s has not ended with its run", things[i].name);
    if (start_ns && now_ns() - said_ns > SAY_NS) {
        said_ns = now_ns();
        printf("laxity: soak: %" PRId64 " s, %u operations\n", (said_ns - start_ns) / SECOND_NS,
               operations);
    }
}

static void kill_now(struct thing *thing)
{
    int status;
    kill(thing->process, SIGKILL);
    for (int64_t end_ns = now_ns() + PATIENCE_NS; now_ns() < end_ns; sleep_ns(LOOK_NS))
        if (waitpid(thing->process, &status, WNOHANG) == thing->process) {
            thing->process = 0;
            return;
        }
    wrong("%s does not die", thing->name);
}

static void be_scheduled(pid_t thread, uint32_t policy)
{
    struct scheduling scheduling = {.size = sizeof scheduling, .policy = policy};
    if (syscall(SYS_sched_setattr, thread, &scheduling, 0))
        wrong("the policy %u of a thread is refused: %s", policy, strerror(errno));
}

static void join(const struct thing *thing, unsigned vcpu, const char *cpu)
{
    char orders[256];
    snprintf(orders, sizeof orders, "vcpu %s %u %d %s\n", thing->name, vcpu, thing->thread[vcpu],
             cpu);
    order(orders);
}

/* NAME DURATION_NS CPU_BOUND TELLS TASKS CPU... */
static void create(char *words[], unsigned count)
{
    struct thing *thing = find(words[0], true);
    char vcpus[16], output[64], orders[LINE_BYTES], line[LINE_BYTES];
    int input;
    /* What is left to do for a guest after its run is an ordinary task's, which has no more than
     * its reserve where VCPUs are always busy. */
    for (int64_t end_ns = now_ns() + PATIENCE_NS; is_there(thing); sleep_ns(LOOK_NS))
        if (now_ns() > end_ns)
            wrong("it is there, and its run is over");
    if (count < 6 || count - 5 > THREADS_MAX)
        wrong("a guest has 1 to %d VCPUs", THREADS_MAX);
    *thing = (struct thing){.threads = count - 5};
    strcpy(thing->name, words[0]);
    snprintf(output, sizeof output, "/tmp/%s.out", words[0]);
    snprintf(vcpus, sizeof vcpus, "%u", thing->threads);
    thing->process = start_program((char *[]){"laxity-vmm", words[0], vcpus, NULL}, output, &input);
    const char *ready = wait_for(thing->process, output, "state ready ");
    strtok(strcpy(line, ready), " ");
    strtok(NULL, " ");
    strtok(NULL, " ");
    snprintf(orders, sizeof orders, "tasks %s\ncpu_bound %s\ntells %s\n",
             strcmp(words[4], "-") ? words[4] : "", words[2], words[3]);
    for (unsigned i = 0; i < thing->threads; i++)
        thing->thread[i] = atoi(strtok(NULL, " \n"));
    for (unsigned i = 0; i < thing->threads; i++) {
        join(thing, i, words[5 + i]);
        snprintf(line, sizeof line, "thread %u 0", i);
        for (long cpu = 1; cpu < sysconf(_SC_NPROCESSORS_ONLN); cpu++)
            snprintf(line + strlen(line), sizeof line - strlen(line), ",%ld", cpu);
        strcat(strcat(orders, line), " ext\n");
    }
    thing->ends_ns = now_ns() + LEAD_NS + atoll(words[1]);
    snprintf(line, sizeof line, "run soak %" PRId64 " %s\n", now_ns() + LEAD_NS, words[1]);
    give(input, strcat(orders, line));
    close(input);
    for (int64_t end_ns = now_ns() + PATIENCE_NS;; sleep_ns(LOOK_NS)) {
        unsigned joined = 0;
        for (unsigned i = 0; i < thing->threads; i++)
            joined += syscall(SYS_sched_getscheduler, thing->thread[i]) == POLICY_EXT;
        if (joined == thing->threads)
            return;
        if (now_ns() > end_ns)
            wrong("threads do not become the policy's");
    }
}

static void hog(const char *name, int nice)
{
    struct thing *thing = find(name, true);
    thing->process = fork();
    if (thing->process < 0)
        wrong("there is no ordinary task: %s", strerror(errno));
    if (!thing->process) {
        setpriority(PRIO_PROCESS, 0, nice);
        for (;;)
            iterate(CHUNK_ITERATIONS);
    }
    thing->threads = 1;
    thing->thread[0] = thing->process;
}

static void pause_or_resume(struct thing *thing, bool pause)
{
    if (kill(thing->process, pause ? SIGSTOP : SIGCONT))
        wrong("%s is not there: %s", thing->name, strerror(errno));
    thing->is_paused = pause;
    if (!pause && thing->ends_ns < now_ns())
        thing->ends_ns = now_ns();
}

/* A thread that sleeps stays the policy's until it wakes, at the end of its run at the latest. */
static void leave(pid_t thread)
{
    static char shown[TEXT_BYTES];
    char number[32];
    snprintf(number, sizeof number, " %d ", thread);
    be_scheduled(thread, SCHED_OTHER);
    for (int64_t end_ns = now_ns() + PATIENCE_NS; now_ns() < end_ns; sleep_ns(LOOK_NS)) {
        take_shown(shown);
        if (!strstr(shown, number))
            return;
    }
    wrong("a thread that has left stays the policy's");
}

/* ---- Parameters ---- */

/* Changes what a guest has, there or not, or a VCPU; false: the VCPU is not there. */
static bool set(const char *name, const char *pairs)
{
    char of[NAME_BYTES];
    snprintf(of, sizeof of, "%s", name);
    if (strchr(of, '/')) {
        *strchr(of, '/') = '\0';
        if (!has_threads(find(of, false)))
            return false;
    }
    char orders[LINE_BYTES], words[LINE_BYTES], wanted[NAME_BYTES + 32];
    snprintf(orders, sizeof orders, "set %s %s\n", name, pairs);
    order(orders);
    snprintf(wanted, sizeof wanted, "vcpu %s ", name);
    if (strchr(wanted, '/'))
        *strchr(wanted, '/') = ' ';
    static char shown[TEXT_BYTES];
    take_shown(shown);
    for (char *line = strtok(shown, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, wanted, strlen(wanted)))
            continue;
        char *rest = words;
        strcpy(words, pairs);
        for (char *pair = strtok_r(words, " ", &rest); pair; pair = strtok_r(NULL, " ", &rest)) {
            char whole[LINE_BYTES], with_ends[LINE_BYTES];
            snprintf(whole, sizeof whole, "%s ", line);
            snprintf(with_ends, sizeof with_ends, " %s ", pair);
            if (!strstr(whole, with_ends))
                wrong("what was set is not there: %s", line);
        }
    }
    return true;
}

static void refuse(const char *name, const char *pairs)
{
    static char before[TEXT_BYTES], after[TEXT_BYTES];
    char orders[LINE_BYTES];
    snprintf(orders, sizeof orders, "set %s %s\n", name, pairs);
    take_shown(before);
    if (!strstr(ask(orders), "state error"))
        wrong("wrong values are taken");
    take_shown(after);
    /* A guest may end meanwhile, and its VCPUs with it: each line that is left was there. */
    for (char *rest, *line = strtok_r(after, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (!strstr(before, line))
            wrong("what was refused has changed something: %s", line);
}

static void pin(pid_t thread, const char *list)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    for (char *end; *list; list = *end ? end + 1 : end)
        CPU_SET(strtoul(list, &end, 10), &cpus);
    if (sched_setaffinity(thread, sizeof cpus, &cpus))
        wrong("the CPUs of a thread are refused: %s", strerror(errno));
}

/* ---- Operations ---- */

/* What is to be done to a guest, or an ordinary task; false: it is not there. */
static bool do_to(const char *operation, char *words[], unsigned count)
{
    struct thing *thing = find(words[0], false);
    unsigned vcpu = count > 1 ? (unsigned)atoi(words[1]) % THREADS_MAX : 0;
    bool is_for_all = !strcmp(operation, "destroy") || !strcmp(operation, "resume");
    if (is_for_all ? !is_there(thing) : !has_threads(thing))
        return false;
    pid_t thread = thing->thread[vcpu];
    if (!strcmp(operation, "destroy") || !strcmp(operation, "unhog"))
        kill_now(thing);
    else if (!strcmp(operation, "pause") || !strcmp(operation, "resume"))
        pause_or_resume(thing, !strcmp(operation, "pause"));
    else if (!strcmp(operation, "burst") && count > 1)
        for (int i = 2 * atoi(words[1]); i > 0; i--)
            pause_or_resume(thing, i % 2 == 0);
    else if (!strcmp(operation, "pin") && count > 2)
        pin(thread, words[2]);
    else if (!strcmp(operation, "leave") && count > 1)
        leave(thread);
    else if (!strcmp(operation, "join") && count > 2) {
        join(thing, vcpu, words[2]);
        be_scheduled(thread, POLICY_EXT);
    } else {
        wrong("it is no operation");
    }
    return true;
}

static bool operate(const char *operation, char *words[], unsigned count, const char *line)
{
    const char *pairs = strchr(line + strlen(operation) + 1, ' ');
    if (!strcmp(operation, "create"))
        create(words, count);
    else if (!strcmp(operation, "hog") && count > 1)
        hog(words[0], atoi(words[1]));
    else if (!strcmp(operation, "set") && pairs)
        return set(words[0], pairs + 1);
    else if (!strcmp(operation, "refuse") && pairs)
        refuse(words[0], pairs + 1);
    else
        return do_to(operation, words, count);
    return true;
}

/* Carries out a line of operations, and tells of it. */
static void obey(const char *line)
{
    char copy[LINE_BYTES], *words[WORDS_MAX], *rest;
    unsigned count = 0;
    strcpy(copy, line);
    char *operation = strtok_r(copy, " ", &rest);
    while (count < WORDS_MAX && (words[count] = strtok_r(NULL, " ", &rest)))
        count++;
    if (!operation || !count)
        wrong("it is no operation");
    strcpy(doing, line);
    look();
    int64_t before_ns = now_ns();
    if (!strcmp(operation, "rest")) {
        sleep_ns(atoll(words[0]));
        return;
    }
    if (!operate(operation, words, count, line))
        return;
    operations++;
    fprintf(done, "%" PRId64 " %" PRId64 " %s", before_ns, now_ns(), line);
    if (!strcmp(operation, "create") || !strcmp(operation, "hog")) {
        const struct thing *thing = find(words[0], false);
        fprintf(done, " %" PRId64, thing->ends_ns);
        for (unsigned i = 0; i < thing->threads; i++)
            fprintf(done, " %d", thing->thread[i]);
    }
    fprintf(done, "\n");
}

/* Starts laxity-scx, with what it is told first. */
static void start_scheduler(char *object, char *policy, const char *orders)
{
    int input;
    scheduler =
        start_program((char *[]){"laxity-scx", object, policy, NULL}, "/tmp/scx.out", &input);
    give(input, orders);
    give(input, "schedule\nserve " SOCKET "\n");
    wait_for(scheduler, "/tmp/scx.out", "state serving");
}

/* Starts laxity-ftrace, which records until some time after the end. */
static pid_t start_recording(int64_t seconds, char *mib)
{
    char until[32], file[512];
    int input;
    snprintf(until, sizeof until, "%" PRId64, now_ns() + (seconds + 2) * SECOND_NS);
    strcpy(file, path_of(directory, "trace", ".bin"));
    pid_t recorder =
        start_program((char *[]){"laxity-ftrace", "--until", until, "--mib", mib, file, NULL},
                      "/tmp/ftrace.out", &input);
    wait_for(recorder, "/tmp/ftrace.out", "recording");
    return recorder;
}

int main(int count, char **words)
{
    static char line[LINE_BYTES], orders[TEXT_BYTES];
    int64_t end_ns = INT64_MAX;
    pid_t recorder = 0;
    int status;
    if (count != 7) {
        fprintf(stderr, "use: laxity-soak OBJECT POLICY OPERATIONS SECONDS MIB DIR\n");
        return 2;
    }
    int64_t seconds = atoll(words[4]);
    FILE *file = fopen(words[3], "r");
    directory = words[6];
    done = fopen(path_of(directory, "done", ""), "w");
    khz = tsc_khz();
    if (!file || !done || !khz)
        wrong("the files and the clock are not there: %s", strerror(errno));
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    /* Guests and ordinary tasks do not hold it up; what it starts is ordinary again. */
    sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK,
                       &(struct sched_param){.sched_priority = 50});
    while (now_ns() < end_ns && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (!strcmp(line, "go")) {
            start_scheduler(words[1], words[2], orders);
            recorder = start_recording(seconds, words[5]);
            start_ns = said_ns = now_ns();
            end_ns = start_ns + seconds * SECOND_NS;
            fprintf(done, "%" PRId64 "\n", start_ns);
        } else if (!start_ns) {
            strcat(strcat(orders, line), "\n");
        } else {
            obey(line);
        }
    }
    strcpy(doing, "the end");
    while (now_ns() < end_ns)
        sleep_ns(LOOK_NS);
    look();
    for (unsigned i = 0; i < thing_count; i++)
        if (is_there(&things[i]))
            kill_now(&things[i]);
    stop_scheduler();
    if (waitpid(recorder, &status, 0) != recorder || status)
        wrong("laxity-ftrace says: %s", text_of("/tmp/ftrace.out"));
    return fclose(done) ? 1 : 0;
}
