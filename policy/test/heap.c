/* SPDX-License-Identifier: MIT */
/* The heap and the list against arrays that are searched from end to end. */
#include "check.h"

#include "../src/heap.h"
#include "../src/list.h"

#define NODES 200
#define ROUNDS 200
#define STEPS 150

static void check_tree(const struct heap_node *node, const struct heap_node *parent, uint32_t place,
                       uint32_t count, uint32_t *seen)
{
    /* The depth is the logarithm of the place: this recursion is shallow. */
    if (!node)
        return;
    check(place <= count, "a node outside the complete tree");
    check(node->parent == parent, "a node that does not know its parent");
    check(!parent || !heap_before(node, parent), "a node before its parent");
    (*seen)++;
    check_tree(node->child[0], node, 2 * place, count, seen);
    check_tree(node->child[1], node, 2 * place + 1, count, seen);
}

static void check_heap(const struct heap *heap, const struct heap_node *nodes, const bool *inside)
{
    const struct heap_node *first = NULL;
    uint32_t count = 0, seen = 0;

    for (int i = 0; i < NODES; i++) {
        if (!inside[i])
            continue;
        count++;
        if (!first || heap_before(&nodes[i], first))
            first = &nodes[i];
    }
    check(heap->count == count, "the heap has lost count");
    check(heap->first == first, "the heap's first is not the first");
    check_tree(heap->first, NULL, 1, count, &seen);
    check(seen == count, "a node is lost");
}

static void heap_round(struct draw *draw)
{
    static struct heap_node nodes[NODES];
    bool inside[NODES] = {false};
    struct heap heap = {NULL, 0};
    uint32_t nodes_used = 1 + draw_below(draw, NODES);
    int64_t keys = 1 + draw_below(draw, 50);
    uint64_t order = 0;

    for (int step = 0; step < STEPS; step++) {
        uint32_t i = draw_below(draw, nodes_used);
        if (!inside[i]) {
            nodes[i].key = draw_below(draw, (uint32_t)keys);
            nodes[i].order = order++;
            heap_insert(&heap, &nodes[i]);
            inside[i] = true;
        } else if (draw_below(draw, 2)) {
            heap_remove(&heap, &nodes[i]);
            inside[i] = false;
        } else {
            nodes[i].key = draw_below(draw, (uint32_t)keys);
            if (draw_below(draw, 2))
                nodes[i].order = order++;
            heap_update(&heap, &nodes[i]);
        }
        check_heap(&heap, nodes, inside);
    }
}

static void list_round(struct draw *draw)
{
    struct list list, nodes[NODES] = {{NULL, NULL}};
    uint32_t queue[NODES], count = 0;

    list_init(&list);
    for (int step = 0; step < STEPS; step++) {
        uint32_t i = draw_below(draw, NODES), place = 0;
        const struct list *node;
        if (list_holds(&nodes[i])) {
            list_remove(&nodes[i]);
            while (queue[place] != i)
                place++;
            for (count--; place < count; place++)
                queue[place] = queue[place + 1];
        } else {
            list_append(&list, &nodes[i]);
            queue[count++] = i;
        }
        check(list_is_empty(&list) == (count == 0), "the list does not know whether it is empty");
        node = list.next;
        for (place = 0; place < count; place++, node = node->next)
            check(node == &nodes[queue[place]] && node->next->previous == node, "a broken ring");
        check(node == &list, "a list that is too long");
    }
}

int main(int count, char **arguments)
{
    uint64_t first = count > 1 ? strtoull(arguments[1], NULL, 10) : 0;
    for (uint64_t seed = first; seed < first + ROUNDS; seed++) {
        struct draw draw = {.state = seed};
        check_seed = seed;
        heap_round(&draw);
        list_round(&draw);
    }
    printf("heap and list: %d rounds from seed %llu\n", ROUNDS, (unsigned long long)first);
    return 0;
}
