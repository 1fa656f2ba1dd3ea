/* SPDX-License-Identifier: MIT */
/*
 * SEDF with one order for all CPUs: slices and periods are those of sedf.c, and global_server.h has
 * the rest.
 */
#include "global_server.h"

#define laxity_sedf laxity_global_sedf
#include "sedf.c"
