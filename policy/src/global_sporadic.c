/* SPDX-License-Identifier: MIT */
/*
 * Sporadic servers with one order for all CPUs: the budgets are those of sporadic.c, and
 * global_server.h has the rest.
 */
#include "global_server.h"

#define laxity_sporadic laxity_global_sporadic
#include "sporadic.c"
