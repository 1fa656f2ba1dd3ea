/* SPDX-License-Identifier: MIT */
/* The policies' types, where the tests have them from the C library (LAXITY_TYPES_HEADER). */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
