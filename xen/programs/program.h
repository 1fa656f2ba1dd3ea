/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A guest's modules and network, and the program that it runs beside its tasks: a server, which
 * serves until it is interrupted and then says what it did.
 */
#ifndef LAXITY_PROGRAM_H
#define LAXITY_PROGRAM_H

#include "request.h"

#include <sys/types.h>

/* Loads a module of the kernel with these parameters, unless it is there already. */
bool load_module(const char *path, const char *parameters, struct failure *failure);

/* Loads the modules of a directory, in the order of their names, and gives the first interface an
 * IPv4 address: "ADDRESS/PREFIX". */
bool network_up(const char *modules, const char *address, struct failure *failure);

struct program {
    pid_t process;
    int output;
};

/* Starts it: a path and arguments, a line each. Its threads have no priority. */
bool program_start(struct program *program, const char *lines, struct failure *failure);

/* Interrupts it and returns, once it has ended, what it has said, which the caller frees. */
bool program_stop(struct program *program, char **output, struct failure *failure);

/* Ends it whatever it does. */
void program_kill(struct program *program);

#endif
