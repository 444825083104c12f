/* SPDX-License-Identifier: BSD-3-Clause */
/* How alike two names are, to suggest what may have been meant. */
#ifndef PLAN_NAMES_NAME_DISTANCE_H
#define PLAN_NAMES_NAME_DISTANCE_H

#include <stddef.h>

/* The least number of bytes to insert, remove or replace that makes b of a, if that is at most
 * limit; else more than limit. Parts that names have in common at both ends cost nothing; names
 * that differ in more than a few hundred bytes count as unlike. */
size_t name_distance(const char *a, const char *b, size_t limit);
/* The same of names that are not NUL-terminated. */
size_t name_part_distance(const char *a, size_t a_length, const char *b, size_t b_length,
                          size_t limit);

#endif
