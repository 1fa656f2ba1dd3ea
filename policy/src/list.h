/* SPDX-License-Identifier: MIT */
/* A doubly linked ring through nodes of its members; the list itself is the ring's fixed point. */
#ifndef LAXITY_LIST_H
#define LAXITY_LIST_H

#include <laxity/types.h>

struct list {
    struct list *next, *previous;
};

static inline void list_init(struct list *list)
{
    list->next = list->previous = list;
}

static inline bool list_is_empty(const struct list *list)
{
    return list->next == list;
}

/* A node that list_remove took out, or that is still all zero, is in no list. */
static inline bool list_holds(const struct list *node)
{
    return node->next != NULL;
}

static inline void list_append(struct list *list, struct list *node)
{
    node->next = list;
    node->previous = list->previous;
    list->previous->next = node;
    list->previous = node;
}

static inline void list_remove(struct list *node)
{
    node->next->previous = node->previous;
    node->previous->next = node->next;
    node->next = node->previous = NULL;
}

#endif
