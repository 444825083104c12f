/* SPDX-License-Identifier: BSD-3-Clause */
/* Patterns of names, and the numbers in them.
 *
 *     #      digits: the step. Several in a row: at least so many digits
 *     @      digits: the epoch
 *     ~      digits: the version
 *     !      digits: of an evaluation
 *     %      digits that say nothing
 *     ^      a decimal number, with sign, fraction and exponent or not
 *     *      any characters, as few as will do
 *     [...]  may be there or not; not nested
 *
 * All else stands for itself, and the pattern for the whole name. A number is decimal, with zeros
 * in front or not, and fits in 63 bits. */
#ifndef RUN_RUN_NAME_H
#define RUN_RUN_NAME_H

#include <stdbool.h>
#include <stdint.h>

struct run_numbers {
    bool has_step;
    bool evaluated;
    int64_t step;
    int64_t epoch;
    int64_t version;
    const char *digits; /* of the step, in the name */
    int digit_count;
};

bool run_name_match(const char *pattern, const char *name, struct run_numbers *numbers);
/* Whether one of several patterns, with a space between any two, is the name's. */
bool run_name_match_any(const char *patterns, const char *name);

#endif
