/* SPDX-License-Identifier: GPL-2.0-only */
#include "program.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define INTERFACE "eth0"
#define ARGUMENTS_MAX 32
#define OUTPUT_BYTES_MAX (64 * 1024)

/* From when the module is loaded to when dom0 has given the guest its interface. */
#define INTERFACE_S 20
#define LOOK_NS (50 * 1000 * 1000)

bool load_module(const char *path, const char *parameters, struct failure *failure)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    bool good = file >= 0 && (!syscall(SYS_finit_module, file, parameters, 0) || errno == EEXIST);
    if (!good)
        fail(failure, "the module %s cannot be loaded: %s", path, strerror(errno));
    if (file >= 0)
        close(file);
    return good;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static bool load_modules(const char *directory, struct failure *failure)
{
    struct dirent **entries;
    int count = scandir(directory, &entries, is_visible, alphasort);
    if (count < 0)
        return fail(failure, "network: %s cannot be read: %s", directory, strerror(errno));
    bool good = true;
    for (int i = 0; i < count; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name);
        good = good && load_module(path, "", failure);
        free(entries[i]);
    }
    free(entries);
    return good;
}

static bool wait_for_interface(int any_socket, struct ifreq *request)
{
    struct timespec pause = {.tv_nsec = LOOK_NS};
    for (int looks = INTERFACE_S * (1000000000 / LOOK_NS); looks; looks--) {
        if (!ioctl(any_socket, SIOCGIFFLAGS, request))
            return true;
        nanosleep(&pause, NULL);
    }
    return false;
}

static bool set_address(const char *address, struct failure *failure)
{
    struct in_addr ip;
    char text[INET_ADDRSTRLEN];
    unsigned prefix;
    int length = 0;
    if (sscanf(address, "%15[0-9.]/%2u%n", text, &prefix, &length) != 2 || address[length] ||
        prefix < 1 || prefix > 32 || inet_pton(AF_INET, text, &ip) != 1)
        return fail(failure, "network: \"%s\" must be ADDRESS/PREFIX, as 192.0.2.2/24", address);

    int any_socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (any_socket < 0)
        return fail(failure, "network: no socket can be made: %s", strerror(errno));
    struct ifreq request = {.ifr_name = INTERFACE};
    struct sockaddr_in *in = (struct sockaddr_in *)&request.ifr_addr;
    bool good = wait_for_interface(any_socket, &request) ||
                fail(failure, "network: there is no " INTERFACE " after %d s", INTERFACE_S);
    if (good) {
        short flags = request.ifr_flags;
        *in = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = ip};
        good = !ioctl(any_socket, SIOCSIFADDR, &request);
        in->sin_addr.s_addr = htonl(UINT32_MAX << (32 - prefix));
        good = good && !ioctl(any_socket, SIOCSIFNETMASK, &request);
        request.ifr_flags = flags | IFF_UP;
        good = good && !ioctl(any_socket, SIOCSIFFLAGS, &request);
        if (!good)
            fail(failure, "network: " INTERFACE " cannot be %s: %s", address, strerror(errno));
    }
    close(any_socket);
    return good;
}

bool network_up(const char *modules, const char *address, struct failure *failure)
{
    return load_modules(modules, failure) && set_address(address, failure);
}

bool program_start(struct program *program, const char *lines, struct failure *failure)
{
    char *text = strdup(lines), *rest = text, *arguments[ARGUMENTS_MAX + 1];
    int count = 0, ends[2];
    while (count < ARGUMENTS_MAX && (arguments[count] = strsep(&rest, "\n")))
        count++;
    arguments[count] = NULL;
    if (rest || !count || !*arguments[0] || pipe2(ends, O_CLOEXEC)) {
        free(text);
        return fail(failure, "program: it must be a path and at most %d arguments, a line each",
                    ARGUMENTS_MAX - 1);
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    posix_spawnattr_t attributes;
    struct sched_param none = {0};
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSCHEDULER);
    posix_spawnattr_setschedpolicy(&attributes, SCHED_OTHER);
    posix_spawnattr_setschedparam(&attributes, &none);
    char *environment[] = {NULL};
    int error =
        posix_spawn(&program->process, arguments[0], &actions, &attributes, arguments, environment);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    close(ends[1]);
    program->output = ends[0];
    if (error) {
        close(ends[0]);
        fail(failure, "program: %s cannot be started: %s", arguments[0], strerror(error));
    }
    free(text);
    return !error;
}

bool program_stop(struct program *program, char **output, struct failure *failure)
{
    size_t bytes = 0;
    ssize_t got = -1;
    int status = 0;
    char *text = *output = malloc(OUTPUT_BYTES_MAX + 1);
    kill(program->process, SIGINT);
    while (text && bytes < OUTPUT_BYTES_MAX &&
           (got = read(program->output, text + bytes, OUTPUT_BYTES_MAX - bytes)) > 0)
        bytes += (size_t)got;
    /* A program that says more than there is room for would wait until it is read. */
    close(program->output);
    waitpid(program->process, &status, 0);
    if (!text)
        return fail(failure, "program: there is no memory for what it says");
    text[bytes] = '\0';
    if (got)
        return fail(failure, "program: it says more than %d bytes", OUTPUT_BYTES_MAX);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        return fail(failure, "program: it ended with status %#x: %.300s", (unsigned)status, text);
    return true;
}

void program_kill(struct program *program)
{
    kill(program->process, SIGKILL);
    waitpid(program->process, NULL, 0);
    close(program->output);
}
