/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/names/name_distance.h"

#include <string.h>

enum { DIFFERING_MAX = 256 };

static size_t smallest(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Levenshtein's table, row by row; it ends when a whole row is beyond the limit. */
static size_t table_distance(const char *a, size_t a_length, const char *b, size_t b_length,
                             size_t limit)
{
    size_t row[DIFFERING_MAX + 1];
    for (size_t k = 0; k <= b_length; k++)
        row[k] = k;
    for (size_t i = 0; i < a_length; i++) {
        size_t diagonal = row[0];
        size_t least = row[0] = i + 1;
        for (size_t k = 0; k < b_length; k++) {
            size_t replaced = diagonal + (a[i] != b[k]);
            diagonal = row[k + 1];
            row[k + 1] = smallest(replaced, row[k] + 1, diagonal + 1);
            least = row[k + 1] < least ? row[k + 1] : least;
        }
        if (least > limit)
            return limit + 1;
    }
    return row[b_length];
}

size_t name_part_distance(const char *a, size_t a_length, const char *b, size_t b_length,
                          size_t limit)
{
    while (a_length > 0 && b_length > 0 && *a == *b) {
        a++, a_length--;
        b++, b_length--;
    }
    while (a_length > 0 && b_length > 0 && a[a_length - 1] == b[b_length - 1]) {
        a_length--;
        b_length--;
    }
    size_t difference = a_length > b_length ? a_length - b_length : b_length - a_length;
    if (difference > limit)
        return limit + 1;
    if (a_length == 0 || b_length == 0)
        return difference;
    if (a_length > DIFFERING_MAX || b_length > DIFFERING_MAX)
        return limit + 1;
    return table_distance(a, a_length, b, b_length, limit);
}

size_t name_distance(const char *a, const char *b, size_t limit)
{
    return name_part_distance(a, strlen(a), b, strlen(b), limit);
}
