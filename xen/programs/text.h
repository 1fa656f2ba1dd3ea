/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What people write and read: numbers, times, names that are nearly right, tables, JSON.
 *
 * Text that is made here lives as long as the program, which is short.
 */
#ifndef LAXITY_TEXT_H
#define LAXITY_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

char *text(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A decimal number, and nothing else, of at most `most`. */
bool parse_number(const char *string, int64_t most, int64_t *number);

/*
 * A number with a unit (s, ms, us, ns), or a whole number of nanoseconds. It must come to a whole
 * number of nanoseconds.
 */
bool parse_duration(const char *string, int64_t *ns);

/* Exact, in the longest unit that needs no more than three decimals. INT64_MAX is "never". */
const char *duration_text(int64_t ns);

/* Chooses, over several calls, the name that is nearest to a word, if one is near at all. */
struct nearest {
    const char *word, *name;
    size_t distance;
};

void consider(struct nearest *nearest, const char *name);

/* "; did you mean 'NAME'?", or nothing. */
const char *did_you_mean(const struct nearest *nearest);

/* A string of JSON, with its quotes. */
const char *json_string(const char *string);

#define COLUMNS_MAX 20

/*
 * Rows of as many strings as there are columns. The last column is on the left, and is cut where a
 * line of 80 characters ends; the others are on the right.
 */
struct table {
    size_t columns, rows, cells_in_row;
    const char *(*cells)[COLUMNS_MAX];
};

/* Adds a cell to the last row, or to a new row where that is full. */
void table_cell(struct table *table, const char *cell);
/* Adds as many cells as there are columns. */
void table_row(struct table *table, ...);
void table_print(const struct table *table);

#endif
