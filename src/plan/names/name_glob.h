/* SPDX-License-Identifier: BSD-3-Clause */
/* Patterns over names, as in a shell: * matches any run of characters, ? one character, [abc] and
 * [a-z] one of a set, [!abc] one that is not in the set; [*] is a literal star. A dot is an
 * ordinary character. Characters are UTF-8. */
#ifndef PLAN_NAMES_NAME_GLOB_H
#define PLAN_NAMES_NAME_GLOB_H

#include <stdbool.h>
#include <stddef.h>

/* What a star stands for, inside the name that matched. */
struct glob_capture {
    const char *text;
    size_t length;
};

/* What is wrong with a pattern, in words; NULL: nothing. */
const char *glob_fault(const char *pattern);
size_t glob_star_count(const char *pattern);
/* Whether a faultless pattern matches the whole name. captures: NULL, or room for one per star,
 * filled on success; each star takes as little as it can, the leftmost first. The time is bounded
 * by the product of both lengths. */
bool glob_match(const char *pattern, const char *name, struct glob_capture *captures);
/* Whether a pattern is a plain name, without stars, question marks and sets. */
bool glob_is_plain(const char *pattern);

#endif
