/* SPDX-License-Identifier: GPL-2.0-only */
#include "text.h"

#include "privcmd.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

#define LINE_WIDTH 80
#define GAP 2 /* between columns */

char *text(const char *format, ...)
{
    va_list arguments;
    char *made;
    int length;

    va_start(arguments, format);
    length = vasprintf(&made, format, arguments);
    va_end(arguments);
    if (length < 0)
        fail(EXIT_FAILED, "no memory");
    return made;
}

static const struct {
    const char *name;
    int64_t ns;
} units[] = {{"s", 1000000000}, {"ms", 1000000}, {"us", 1000}, {"ns", 1}};

const char *duration_text(int64_t ns)
{
    size_t i = 0;
    int64_t unit, thousandths;
    char *number;

    if (ns == INT64_MAX)
        return "never";
    if (!ns)
        return "0";
    while (llabs(ns) < units[i].ns || (units[i].ns > 1 && ns % (units[i].ns / 1000)))
        i++;
    unit = units[i].ns;
    thousandths = unit > 1 ? llabs(ns % unit) / (unit / 1000) : 0;
    number =
        text("%s%" PRId64 ".%03d", ns < 0 ? "-" : "", (int64_t)llabs(ns / unit), (int)thousandths);
    for (char *end = number + strlen(number) - 1; *end == '0' || *end == '.'; end--) {
        bool point = *end == '.';

        *end = 0;
        if (point)
            break;
    }
    return text("%s %s", number, units[i].name);
}

static bool is_digit(char character)
{
    return character >= '0' && character <= '9';
}

bool parse_number(const char *string, int64_t most, int64_t *number)
{
    int64_t value = 0;

    if (!*string)
        return false;
    for (; *string; string++) {
        int64_t digit = *string - '0';

        if (!is_digit(*string) || digit > most || value > (most - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *number = value;
    return true;
}

bool parse_duration(const char *string, int64_t *ns)
{
    const char *point, *unit = string + strspn(string, "0123456789.");
    int64_t unit_ns = 0, value = 0, place;
    char *number;

    if (parse_number(string, INT64_MAX, ns))
        return true;
    number = text("%.*s", (int)(unit - string), string);
    unit += strspn(unit, " ");
    for (size_t i = 0; i < LENGTH(units); i++)
        if (!strcmp(unit, units[i].name))
            unit_ns = units[i].ns;
    point = strchr(number, '.');
    if (!unit_ns || (point && (point == number || !point[1])))
        return false;
    if (point)
        number[point - number] = 0;
    if (!parse_number(number, INT64_MAX / unit_ns, &value))
        return false;
    value *= unit_ns;
    place = unit_ns;
    for (const char *digit = point ? point + 1 : ""; *digit; digit++) {
        if (!is_digit(*digit) || (*digit != '0' && place < 10))
            return false;
        place /= 10;
        if (__builtin_add_overflow(value, place * (*digit - '0'), &value))
            return false;
    }
    *ns = value;
    return true;
}

/* How many characters have to be put in, left out or replaced to come from one to the other. */
static size_t distance(const char *from, const char *to)
{
    size_t width = strlen(to), *row = calloc(width + 1, sizeof(*row)), result;

    if (!row)
        fail(EXIT_FAILED, "no memory");
    for (size_t j = 0; j <= width; j++)
        row[j] = j;
    for (size_t i = 0; from[i]; i++) {
        size_t diagonal = row[0];

        row[0] = i + 1;
        for (size_t j = 0; j < width; j++) {
            size_t best = diagonal + (from[i] != to[j]);

            diagonal = row[j + 1];
            if (best > diagonal + 1)
                best = diagonal + 1;
            if (best > row[j] + 1)
                best = row[j] + 1;
            row[j + 1] = best;
        }
    }
    result = row[width];
    free(row);
    return result;
}

void consider(struct nearest *nearest, const char *name)
{
    size_t away = distance(nearest->word, name);

    if (away <= (strlen(name) + 1) / 2 && (!nearest->name || away < nearest->distance)) {
        nearest->name = name;
        nearest->distance = away;
    }
}

const char *did_you_mean(const struct nearest *nearest)
{
    return nearest->name ? text("; did you mean '%s'?", nearest->name) : "";
}

const char *json_string(const char *string)
{
    char *json = text("%s", "\"");

    for (; *string; string++) {
        unsigned char character = *string;

        if (character == '"' || character == '\\')
            json = text("%s\\%c", json, character);
        else if (character < ' ')
            json = text("%s\\u%04x", json, character);
        else
            json = text("%s%c", json, character);
    }
    return text("%s\"", json);
}

void table_cell(struct table *table, const char *cell)
{
    if (!table->rows || table->cells_in_row == table->columns) {
        table->cells = reallocarray(table->cells, table->rows + 1, sizeof(*table->cells));
        if (!table->cells)
            fail(EXIT_FAILED, "no memory");
        table->rows++;
        table->cells_in_row = 0;
    }
    table->cells[table->rows - 1][table->cells_in_row++] = cell;
}

void table_row(struct table *table, ...)
{
    va_list arguments;

    va_start(arguments, table);
    for (size_t i = 0; i < table->columns; i++)
        table_cell(table, va_arg(arguments, const char *));
    va_end(arguments);
}

void table_print(const struct table *table)
{
    size_t last = table->columns - 1, widths[COLUMNS_MAX] = {0}, used = 0, room;

    for (size_t i = 0; i < last; i++) {
        for (size_t row = 0; row < table->rows; row++)
            if (strlen(table->cells[row][i]) > widths[i])
                widths[i] = strlen(table->cells[row][i]);
        used += widths[i] + GAP;
    }
    room = used < LINE_WIDTH ? LINE_WIDTH - used : 1;
    for (size_t row = 0; row < table->rows; row++) {
        const char *end = table->cells[row][last];

        for (size_t i = 0; i < last; i++)
            printf("%*s%*s", (int)widths[i], table->cells[row][i], GAP, "");
        if (strlen(end) <= room)
            printf("%s\n", end);
        else
            printf("%.*s~\n", (int)room - 1, end);
    }
}
