/* SPDX-License-Identifier: MIT */
/*
 * Lending servers: sporadic servers in the background, whose VCPUs lend the turns that they need
 * not have (server.h, "Lending"). The budgets are those of sporadic.c.
 */
#define SERVER_LENDS(instance_) ((void)(instance_), true)
#include "server.h"

#define laxity_sporadic laxity_lending
#include "sporadic.c"
