/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A guest's xenstore, through the kernel's device; paths are relative to the domain's own
 * directory.
 *
 * libxenstore is not for this: its static build has no threads, and then fails when a watch's event
 * comes before the reply to a request. This has one thread and takes both in any order.
 */
#ifndef LAXITY_STORE_H
#define LAXITY_STORE_H

#include "request.h"

struct store {
    int file;
    bool changed; /* the watch has fired since store_wait */
};

/* All return false with a text if xenstore refuses or fails. */

bool store_open(struct store *store, struct failure *failure);

/* `*text` is NULL if there is no such node; the caller frees it. */
bool store_read(struct store *store, const char *path, char **text, struct failure *failure);

bool store_write(struct store *store, const char *path, const char *text, struct failure *failure);

/* Watches a node; it counts as changed from the start. */
bool store_watch(struct store *store, const char *path, struct failure *failure);

/* Blocks until a watched node has changed since the last wait. */
bool store_wait(struct store *store, struct failure *failure);

#endif
