/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Loops that the kernel's verifier accepts: it proves no end of a walk along pointers, so each turn
 * asks it whether to go on (may_goto), and it says no after more turns than any policy takes.
 *
 * Included behind all headers, right before the source of a policy.
 */
#define may_go_on()                                              \
    ({                                                           \
        __label__ stop, done;                                    \
        bool may = true;                                         \
        __asm__ volatile goto("may_goto %l[stop]" : : : : stop); \
        goto done;                                               \
    stop:                                                        \
        may = false;                                             \
    done:;                                                       \
        may;                                                     \
    })

/* A space before the parenthesis would make these macros without arguments. */
/* clang-format off */
#define while(...)        \
    while (__VA_ARGS__)   \
        if (!may_go_on()) \
            break;        \
        else
#define for(...)          \
    for (__VA_ARGS__)     \
        if (!may_go_on()) \
            break;        \
        else
