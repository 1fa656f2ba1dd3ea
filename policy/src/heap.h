/* SPDX-License-Identifier: MIT */
/*
 * An intrusive binary heap: the node that comes first in O(1), insertion and removal of any node in
 * O(log n) at worst, no memory beside the nodes.
 *
 * The nodes form a complete binary tree linked by pointers. The binary digits of n below the
 * highest give the path to the n-th place: 0 is left, 1 is right.
 *
 * Nodes are ordered by key, equal keys by `order`: with rising orders, equals are served first
 * come, first served.
 */
#ifndef LAXITY_HEAP_H
#define LAXITY_HEAP_H

#include <laxity/types.h>

struct heap_node {
    struct heap_node *parent, *child[2];
    int64_t key;
    uint64_t order;
};

struct heap {
    struct heap_node *first;
    uint32_t count;
};

static inline bool heap_before(const struct heap_node *a, const struct heap_node *b)
{
    return a->key < b->key || (a->key == b->key && a->order < b->order);
}

/* Whether a node has the same key as the first. */
static inline bool heap_has_equals(const struct heap *heap)
{
    const struct heap_node *first = heap->first;

    return (first->child[0] && first->child[0]->key == first->key) ||
           (first->child[1] && first->child[1]->key == first->key);
}

/* The pointer that leads to the node: its parent's, or the heap's. */
static inline struct heap_node **heap_link(struct heap *heap, const struct heap_node *node)
{
    if (!node->parent)
        return &heap->first;
    return &node->parent->child[node->parent->child[1] == node];
}

/* The pointer that leads to a place, counted from 1; `parent` is set to the node above it. */
static inline struct heap_node **heap_place(struct heap *heap, uint32_t place,
                                            struct heap_node **parent)
{
    struct heap_node **link = &heap->first;
    *parent = NULL;
    for (int bit = 30 - __builtin_clz(place); bit >= 0; bit--) {
        *parent = *link;
        link = &(*link)->child[(place >> bit) & 1];
    }
    return link;
}

/* Replaces `old` by `node`, which is in no heap. */
static inline void heap_substitute(struct heap *heap, struct heap_node *old, struct heap_node *node)
{
    *heap_link(heap, old) = node;
    node->parent = old->parent;
    for (int side = 0; side < 2; side++) {
        node->child[side] = old->child[side];
        if (node->child[side])
            node->child[side]->parent = node;
    }
}

/* Exchanges a node with its parent. */
static inline void heap_lift(struct heap *heap, struct heap_node *node)
{
    struct heap_node *upper = node->parent;
    int side = upper->child[1] == node;
    struct heap_node *sibling = upper->child[!side];

    *heap_link(heap, upper) = node;
    node->parent = upper->parent;
    for (int below = 0; below < 2; below++) {
        upper->child[below] = node->child[below];
        if (upper->child[below])
            upper->child[below]->parent = upper;
    }
    node->child[side] = upper;
    node->child[!side] = sibling;
    if (sibling)
        sibling->parent = node;
    upper->parent = node;
}

static inline void heap_rise(struct heap *heap, struct heap_node *node)
{
    while (node->parent && heap_before(node, node->parent))
        heap_lift(heap, node);
}

/* Brings a node below all that come before it: each of them moves up, and the node moves once. */
static inline void heap_sink(struct heap *heap, struct heap_node *node)
{
    struct heap_node **link = heap_link(heap, node), *parent = node->parent;
    struct heap_node *left = node->child[0], *right = node->child[1];

    for (;;) {
        int side = right && heap_before(right, left);
        struct heap_node *first = side ? right : left, *second = side ? left : right;

        if (!first || !heap_before(first, node))
            break;
        left = first->child[0];
        right = first->child[1];
        first->child[!side] = second;
        if (second)
            second->parent = first;
        first->parent = parent;
        *link = parent = first;
        link = &first->child[side];
    }
    if (parent == node->parent)
        return;
    *link = node;
    node->parent = parent;
    node->child[0] = left;
    node->child[1] = right;
    if (left)
        left->parent = node;
    if (right)
        right->parent = node;
}

static inline void heap_insert(struct heap *heap, struct heap_node *node)
{
    struct heap_node *parent, **link = heap_place(heap, ++heap->count, &parent);
    *link = node;
    node->parent = parent;
    node->child[0] = node->child[1] = NULL;
    heap_rise(heap, node);
}

static inline void heap_remove(struct heap *heap, struct heap_node *node)
{
    struct heap_node *parent, **link = heap_place(heap, heap->count--, &parent);
    struct heap_node *last = *link;
    *link = NULL;
    if (last == node)
        return;
    heap_substitute(heap, node, last);
    heap_rise(heap, last);
    heap_sink(heap, last);
}

/* Restores the heap after the key or the order of a node has changed. */
static inline void heap_update(struct heap *heap, struct heap_node *node)
{
    heap_rise(heap, node);
    heap_sink(heap, node);
}

#endif
