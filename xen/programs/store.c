/* SPDX-License-Identifier: GPL-2.0-only */
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xen/io/xs_wire.h>

#define DEVICE "/dev/xen/xenbus"

struct message {
    struct xsd_sockmsg header;
    char body[XENSTORE_PAYLOAD_MAX + 1];
};

bool store_open(struct store *store, struct failure *failure)
{
    *store = (struct store){.file = open(DEVICE, O_RDWR)};
    if (store->file < 0)
        return fail(failure, DEVICE " cannot be opened: %s", strerror(errno));
    return true;
}

static bool receive_bytes(struct store *store, void *bytes, size_t count, struct failure *failure)
{
    for (size_t done = 0; done < count;) {
        ssize_t got = read(store->file, (char *)bytes + done, count - done);
        if (got <= 0)
            return fail(failure, DEVICE " cannot be read: %s",
                        got ? strerror(errno) : "it was closed");
        done += (size_t)got;
    }
    return true;
}

/* The next message of xenstore, whose body ends with a 0 that its length does not count. */
static bool receive(struct store *store, struct message *message, struct failure *failure)
{
    if (!receive_bytes(store, &message->header, sizeof message->header, failure))
        return false;
    if (message->header.len > XENSTORE_PAYLOAD_MAX)
        return fail(failure, DEVICE " has a message of %u bytes", message->header.len);
    message->body[message->header.len] = '\0';
    if (message->header.type == XS_WATCH_EVENT)
        store->changed = true;
    return receive_bytes(store, message->body, message->header.len, failure);
}

/* Sends a path, the 0 at its end and a second text, and takes the answer into the same message. */
static bool ask(struct store *store, struct message *message, uint32_t type, const char *path,
                const char *text, size_t text_bytes, struct failure *failure)
{
    size_t path_bytes = strlen(path) + 1, bytes = path_bytes + text_bytes;
    if (bytes > XENSTORE_PAYLOAD_MAX)
        return fail(failure, "xenstore takes %d bytes, and %s would have %zu", XENSTORE_PAYLOAD_MAX,
                    path, bytes);
    message->header = (struct xsd_sockmsg){.type = type, .len = (uint32_t)bytes};
    memcpy(message->body, path, path_bytes);
    memcpy(message->body + path_bytes, text, text_bytes);
    size_t message_bytes = offsetof(struct message, body) + bytes;
    if (write(store->file, message, message_bytes) != (ssize_t)message_bytes)
        return fail(failure, DEVICE " cannot be written: %s", strerror(errno));
    do
        if (!receive(store, message, failure))
            return false;
    while (message->header.type == XS_WATCH_EVENT);
    if (message->header.type == XS_ERROR)
        return fail(failure, "xenstore refuses %s: %s", path, message->body);
    return true;
}

bool store_read(struct store *store, const char *path, char **text, struct failure *failure)
{
    struct message message;
    *text = NULL;
    if (!ask(store, &message, XS_READ, path, "", 0, failure))
        return message.header.type == XS_ERROR && !strcmp(message.body, "ENOENT");
    *text = strdup(message.body);
    return *text || fail(failure, "there is no memory for %s", path);
}

bool store_write(struct store *store, const char *path, const char *text, struct failure *failure)
{
    struct message message;
    return ask(store, &message, XS_WRITE, path, text, strlen(text), failure);
}

bool store_watch(struct store *store, const char *path, struct failure *failure)
{
    static const char token[] = "laxity";
    struct message message;
    return ask(store, &message, XS_WATCH, path, token, sizeof token, failure);
}

bool store_wait(struct store *store, struct failure *failure)
{
    struct message message;
    while (!store->changed)
        if (!receive(store, &message, failure))
            return false;
    store->changed = false;
    return true;
}
