/* SPDX-License-Identifier: GPL-2.0-only */
/* The policies' types, which a program for this processor has from the C library. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
