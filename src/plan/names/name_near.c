/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/names/name_near.h"

#include <stdbool.h>
#include <string.h>

#include "plan/names/name_distance.h"

/* Suggestions are worth no more than this. */
enum { CANDIDATES_MAX = 8192, PART_MIN = 3, LIMIT_MIN = 2 };

void near_names_init(struct near_names *near, const char *wanted, size_t wanted_length)
{
    size_t limit = wanted_length / 3 > LIMIT_MIN ? wanted_length / 3 : LIMIT_MIN;
    *near = (struct near_names){.wanted = wanted,
                                .wanted_length = wanted_length,
                                .limit = limit <= wanted_length / 2 ? limit : wanted_length / 2,
                                .left = CANDIDATES_MAX};
}

/* One is the beginning of the other, inside of the last part: "optim" and "optimizer". */
static bool begins_alike(const struct near_names *near, const char *name, size_t length)
{
    size_t less = length < near->wanted_length ? length : near->wanted_length;
    if (less < PART_MIN || memcmp(name, near->wanted, less) != 0)
        return false;
    const char *longer = length > less ? name : near->wanted;
    size_t longer_length = length > less ? length : near->wanted_length;
    return memchr(longer + less, '.', longer_length - less) == NULL;
}

/* The last part is what is wanted: "layers" for "model.layers". */
static bool ends_with_wanted(const struct near_names *near, const char *name, size_t length)
{
    return length > near->wanted_length && name[length - near->wanted_length - 1] == '.' &&
           memcmp(name + length - near->wanted_length, near->wanted, near->wanted_length) == 0;
}

static bool is_found(const struct near_names *near, const char *name, size_t length)
{
    for (size_t i = 0; i < near->count; i++)
        if (near->found[i].length == length && memcmp(near->found[i].text, name, length) == 0)
            return true;
    return false;
}

static void compare(struct near_names *near, const char *name, size_t length)
{
    if (near->left == 0 || length == 0)
        return;
    near->left--;
    size_t distance =
        name_part_distance(near->wanted, near->wanted_length, name, length, near->limit);
    if (distance > near->limit &&
        (begins_alike(near, name, length) || ends_with_wanted(near, name, length)))
        distance = near->limit;
    if (distance > near->limit || is_found(near, name, length))
        return;
    size_t place = near->count;
    while (place > 0 && near->found[place - 1].distance > distance)
        place--;
    if (place == NEAR_NAMES_MAX)
        return;
    if (near->count < NEAR_NAMES_MAX)
        near->count++;
    memmove(&near->found[place + 1], &near->found[place],
            (near->count - place - 1) * sizeof *near->found);
    near->found[place] = (struct near_name){name, length, distance};
}

void near_names_offer(struct near_names *near, const char *name)
{
    size_t common = 0; /* with the previous name, whose containers have been compared */
    if (near->last != NULL)
        while (name[common] != '\0' && name[common] == near->last[common])
            common++;
    near->last = name;
    for (const char *dot = strchr(name, '.'); dot != NULL; dot = strchr(dot + 1, '.'))
        if ((size_t)(dot - name) >= common)
            compare(near, name, (size_t)(dot - name));
    compare(near, name, strlen(name));
}

void near_names_append(const struct near_names *near, const char *ending, struct buffer *text)
{
    for (size_t i = 0; i < near->count; i++) {
        const char *before = i == 0                 ? "; did you mean \""
                             : i + 1 == near->count ? "\" or \""
                                                    : "\", \"";
        buffer_append(text, before, strlen(before));
        buffer_append(text, near->found[i].text, near->found[i].length);
        buffer_append(text, ending, strlen(ending));
    }
    if (near->count > 0)
        buffer_append(text, "\"?", 2);
}
