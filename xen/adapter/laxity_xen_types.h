/* SPDX-License-Identifier: GPL-2.0-only */
/* The few types that policies use, from Xen's own headers: see laxity/types.h. */
#ifndef LAXITY_XEN_TYPES_H
#define LAXITY_XEN_TYPES_H

#include <xen/compiler.h>
#include <xen/types.h>

#ifndef INT64_MAX
#define INT64_MAX __INT64_MAX__
#endif

#endif
