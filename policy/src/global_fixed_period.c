/* SPDX-License-Identifier: MIT */
/*
 * Deferrable, periodic and polling servers with one order for all CPUs: the budgets are those of
 * fixed_period.c, and global_server.h has the rest.
 */
#include "global_server.h"

#define laxity_deferrable laxity_global_deferrable
#define laxity_periodic laxity_global_periodic
#define laxity_polling laxity_global_polling
#include "fixed_period.c"
