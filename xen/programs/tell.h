/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Telling Laxity's scheduler what a VCPU of this guest works on.
 *
 * A process makes the hypercall by Linux's privcmd driver. In a guest that driver refuses it unless
 * it was loaded with the parameter unrestricted=1, for which the guest's root has to decide:
 * whoever may open /dev/xen/privcmd may then make every hypercall that the guest's kernel may make.
 */
#ifndef LAXITY_TELL_H
#define LAXITY_TELL_H

#include "request.h"

/* Loads the driver from this file if it is there, and opens its device; once for all. */
bool tell_open(const char *module, struct failure *failure);

/* From now on the calling thread's VCPU works on something whose deadline is `left_ns` away
 * (INT64_MAX: on something without one), and which has this place in the order of the guest's work,
 * smaller first. Whether anybody makes something of it, the guest need not know. */
void tell_work(int64_t left_ns, int64_t order);

#endif
