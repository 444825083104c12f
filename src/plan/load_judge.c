/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether differences are an error, and the story of it. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "plan/load_differences.h"
#include "plan/name_distance.h"

enum { NAMES_SHOWN = 5 };
/* Suggestions are worth no more than this. */
enum { CANDIDATES_MAX = 4096, DISTANCE_MIN = 3 };

/* Longer than what an error keeps, so that dcp_error_set() does the cutting. */
struct story {
    char text[2 * ERROR_TEXT_MAX];
    size_t length;
};

static void tell(struct story *story, const char *format, ...) DCP_PRINTF(2, 3);

static void tell(struct story *story, const char *format, ...)
{
    size_t room = sizeof story->text - story->length;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(story->text + story->length, room, format, arguments);
    va_end(arguments);
    if (length > 0)
        story->length += (size_t)length < room ? (size_t)length : room - 1;
}

/* Among what is stored and not wanted: the name was probably changed into one of these. */
static const char *find_closest(const struct load_differences *merged,
                                const struct metadata *metadata, const char *name)
{
    size_t length = strlen(name);
    size_t limit = length / 3 > DISTANCE_MIN ? length / 3 : DISTANCE_MIN;
    size_t candidates = 0;
    const char *closest = NULL;
    for (size_t i = 0; i < metadata->count && candidates < CANDIDATES_MAX; i++) {
        const char *stored = metadata->entries[i].name;
        size_t stored_length = strlen(stored);
        if (differences_is_wanted(merged, i) || stored_length > length + limit ||
            length > stored_length + limit)
            continue;
        candidates++;
        size_t distance = name_distance(name, stored, limit);
        if (distance > limit)
            continue;
        closest = stored;
        if (distance <= 1)
            break;
        limit = distance - 1;
    }
    return closest;
}

static void tell_line(struct story *story, const struct load_differences *merged,
                      const struct metadata *metadata, const struct load_difference *line)
{
    tell(story, "\"%s\"", line->name);
    if (line->detail[0] != '\0')
        tell(story, " (%s)", line->detail);
    if (line->difference != DCP_DIFFERENCE_MISSING || line->detail[0] != '\0')
        return;
    const char *closest = find_closest(merged, metadata, line->name);
    if (closest != NULL)
        tell(story, " (did you mean \"%s\"?)", closest);
}

static dcp_status judge_kind(const struct load_differences *merged, dcp_difference difference,
                             const struct metadata *metadata, dcp_status failure,
                             const char *what_one, const char *what_many)
{
    size_t count = 0;
    for (size_t i = 0; i < merged->count; i++)
        count += merged->lines[i].difference == difference;
    if (count == 0)
        return DCP_OK;
    struct story story = {.length = 0};
    tell(&story, "%zu %s: ", count, count == 1 ? what_one : what_many);
    size_t told = 0;
    for (size_t i = 0; i < merged->count && told < NAMES_SHOWN; i++) {
        if (merged->lines[i].difference != difference)
            continue;
        tell(&story, "%s", told++ != 0 ? ", " : "");
        tell_line(&story, merged, metadata, &merged->lines[i]);
    }
    if (count > told)
        tell(&story, ", and %zu more", count - told);
    return dcp_error_set(failure, "%s", story.text);
}

dcp_status load_differences_judge(const struct load_differences *merged, dcp_strictness strictness,
                                  const struct metadata *metadata)
{
    RETURN_IF_ERROR(judge_kind(merged, DCP_DIFFERENCE_MISMATCHED, metadata, merged->failure,
                               "name in the checkpoint does not fit",
                               "names in the checkpoint do not fit"));
    if (strictness != DCP_STRICT_PARTIAL)
        RETURN_IF_ERROR(judge_kind(merged, DCP_DIFFERENCE_MISSING, metadata, DCP_ERR_MISSING_KEY,
                                   "name not in the checkpoint", "names not in the checkpoint"));
    if (strictness == DCP_STRICT_RAISE_ALL)
        RETURN_IF_ERROR(judge_kind(merged, DCP_DIFFERENCE_UNEXPECTED, metadata,
                                   DCP_ERR_UNEXPECTED_KEY, "name in the checkpoint, but not wanted",
                                   "names in the checkpoint, but not wanted"));
    return DCP_OK;
}
