/* SPDX-License-Identifier: MIT */
/*
 * The few types that policies use. A policy is built without any library, not even the compiler's
 * own headers, so the widths come from the compiler's predefined macros. An embedder that has
 * these names already (Xen does) defines LAXITY_TYPES_HEADER to its own header instead.
 */
#ifndef LAXITY_TYPES_H
#define LAXITY_TYPES_H

#ifdef LAXITY_TYPES_HEADER
#include LAXITY_TYPES_HEADER
#else
typedef __INT64_TYPE__ int64_t;
typedef __UINT64_TYPE__ uint64_t;
typedef __INT32_TYPE__ int32_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __SIZE_TYPE__ size_t;
#define bool _Bool
#define true 1
#define false 0
#define NULL ((void *)0)
#define offsetof(type, member) __builtin_offsetof(type, member)
#define INT64_MAX __INT64_MAX__
#endif

/* From a pointer to a member to a pointer to the structure that holds it. */
#define laxity_container(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

#endif
