/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/transform_pattern.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

enum { NUMBER_DIGITS = 9, NUMBER_TEXT = 24 };

static bool is_any(const char *pattern)
{
    return pattern[0] == '*' && pattern[1] == '*';
}

dcp_status transform_pattern_count(const char *pattern, size_t *stars, size_t *numbers)
{
    size_t any = 0;
    *stars = *numbers = 0;
    for (const char *at = pattern; *at; at++) {
        any += is_any(at);
        *numbers += *at == '#';
        *stars += *at == '*';
        at += is_any(at);
    }
    if (*stars > TRANSFORM_STARS_MAX || any > 1 || *numbers > 1)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "\"%s\" has more than %d stars, one \"**\" or one \"#\"", pattern,
                             (int)TRANSFORM_STARS_MAX);
    return DCP_OK;
}

/* A number as it is written without zeros before it. */
static size_t take_number(const char *name, int64_t *number)
{
    size_t length = 0;
    *number = 0;
    for (; length < NUMBER_DIGITS && name[length] >= '0' && name[length] <= '9'; length++)
        *number = *number * 10 + (name[length] - '0');
    return length > 1 && *name == '0' ? 0 : length;
}

/* Of each star, where it began last without a match, and the end of what it could hold: what
 * follows it was tried everywhere between. Stars begin ever further to the left, so that this
 * suffices to try nothing twice, however many stars there are. */
struct matching {
    const char *begin[TRANSFORM_STARS_MAX];
    const char *end[TRANSFORM_STARS_MAX];
    struct transform_match *match;
};

static bool match_rest(struct matching *matching, const char *pattern, const char *name,
                       size_t star)
{
    struct transform_match *match = matching->match;
    while (*pattern && *pattern != '*' && *pattern != '#' && *pattern == *name)
        pattern++, name++;
    if (*pattern == '#') {
        size_t length = take_number(name, &match->number);
        return length > 0 && match_rest(matching, pattern + 1, name + length, star);
    }
    if (*pattern != '*')
        return *pattern == *name; /* both at the end */
    bool any = is_any(pattern);
    const char *end = name + (any ? strlen(name) : strcspn(name, ".")), *rest = end;
    if (matching->end[star] == end && matching->begin[star] < end)
        rest = matching->begin[star];
    for (; rest > name; rest--)
        if (match_rest(matching, pattern + 1 + any, rest, star + 1)) {
            match->begin[star] = name;
            match->length[star] = (size_t)(rest - name);
            return true;
        }
    matching->begin[star] = name;
    matching->end[star] = end;
    return false;
}

bool transform_pattern_matches(const char *pattern, const char *name, struct transform_match *match)
{
    struct matching matching = {.match = match};
    return match_rest(&matching, pattern, name, 0);
}

char *transform_pattern_fill(const char *pattern, const struct transform_match *match,
                             struct arena *arena)
{
    size_t size = strlen(pattern) + NUMBER_TEXT, star = 0;
    for (const char *at = pattern; *at; at++)
        if (*at == '*') {
            size += match->length[star++];
            at += is_any(at);
        }
    char *name = arena_allocate(arena, size), *end = name;
    star = 0;
    for (const char *at = pattern; *at && name; at++) {
        if (*at == '*') {
            memcpy(end, match->begin[star], match->length[star]);
            end += match->length[star++];
            at += is_any(at);
        } else if (*at == '#') {
            end += snprintf(end, NUMBER_TEXT, "%" PRId64, match->number);
        } else {
            *end++ = *at;
        }
    }
    if (name)
        *end = '\0';
    return name;
}
