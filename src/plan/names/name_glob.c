/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/names/name_glob.h"

#include <stdint.h>
#include <string.h>

/* The bytes of one character as a number: they are ordered as the characters are. There must be
 * one. */
static uint32_t next_character(const char **text)
{
    const unsigned char *bytes = (const unsigned char *)*text;
    uint32_t character = *bytes++;
    while ((*bytes & 0xc0) == 0x80)
        character = character << 8 | *bytes++;
    *text = (const char *)bytes;
    return character;
}

/* One character of a set, or a range; pattern stands behind it afterwards. */
static void next_range(const char **pattern, uint32_t *low, uint32_t *high)
{
    *low = *high = next_character(pattern);
    if ((*pattern)[0] == '-' && (*pattern)[1] != ']' && (*pattern)[1] != '\0') {
        ++*pattern;
        *high = next_character(pattern);
    }
}

static bool skip_negation(const char **set)
{
    bool negated = **set == '!' || **set == '^';
    *set += negated;
    return negated;
}

const char *glob_fault(const char *pattern)
{
    while (*pattern != '\0') {
        if (next_character(&pattern) != '[')
            continue;
        skip_negation(&pattern);
        do { /* a "]" that comes first is one of the set */
            uint32_t low, high;
            if (*pattern == '\0')
                return "a \"[\" without its \"]\"";
            next_range(&pattern, &low, &high);
            if (low > high)
                return "a range that runs backwards";
        } while (*pattern != ']');
        pattern++;
    }
    return NULL;
}

static bool set_has(const char **set, uint32_t character)
{
    bool negated = skip_negation(set), found = false;
    do {
        uint32_t low, high;
        next_range(set, &low, &high);
        found = found || (low <= character && character <= high);
    } while (**set != ']');
    ++*set;
    return found != negated;
}

/* Matches one character with what is no star; moves both on if it does. */
static bool step(const char **pattern, const char **name)
{
    if (**name == '\0' || **pattern == '\0')
        return false;
    const char *pattern_next = *pattern, *name_next = *name;
    uint32_t expected = next_character(&pattern_next);
    uint32_t character = next_character(&name_next);
    bool fits = expected == '?' || expected == character;
    if (expected == '[')
        fits = set_has(&pattern_next, character);
    if (fits) {
        *pattern = pattern_next;
        *name = name_next;
    }
    return fits;
}

size_t glob_star_count(const char *pattern)
{
    size_t count = 0;
    while (*pattern != '\0') {
        uint32_t character = next_character(&pattern);
        count += character == '*';
        if (character == '[')
            set_has(&pattern, 0);
    }
    return count;
}

/* Only the last star is ever given more: what stands before it has matched as early as it can, so
 * giving an earlier one more would leave less to match the rest with. */
bool glob_match(const char *pattern, const char *name, struct glob_capture *captures)
{
    const char *after_star = NULL, *star_start = NULL, *star_end = NULL;
    size_t stars = 0;
    while (*pattern != '\0' || *name != '\0') {
        if (*pattern == '*') {
            after_star = ++pattern;
            star_start = star_end = name;
            stars++;
        } else if (!step(&pattern, &name)) {
            if (after_star == NULL || *star_end == '\0')
                return false;
            next_character(&star_end);
            pattern = after_star;
            name = star_end;
        }
        if (captures != NULL && stars > 0)
            captures[stars - 1] =
                (struct glob_capture){star_start, (size_t)(star_end - star_start)};
    }
    return true;
}

bool glob_is_plain(const char *pattern)
{
    return pattern[strcspn(pattern, "*?[")] == '\0';
}
