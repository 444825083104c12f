/* SPDX-License-Identifier: BSD-3-Clause */
/* Decides whether differences are an error or only logged, and makes the message. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "plan/load/load_differences.h"
#include "plan/names/name_distance.h"

enum { NAMES_SHOWN = 5 };
/* Limits of the search for suggestions. */
enum { CANDIDATES_MAX = 4096, DISTANCE_MIN = 3 };

enum verdict { IGNORED = 0, LOGGED, RAISED };

/* What each strictness makes of each kind of difference. A pattern or rule that applies to no name
 * is probably a typing mistake, so always an error. */
static const struct policy {
    dcp_strictness strictness;
    enum verdict verdicts[DCP_DIFFERENCE_UNUSED + 1];
} policies[] = {
    {DCP_STRICT_MISSING,
     {[DCP_DIFFERENCE_MISMATCHED] = RAISED,
      [DCP_DIFFERENCE_MISSING] = RAISED,
      [DCP_DIFFERENCE_UNUSED] = RAISED}},
    {DCP_STRICT_RAISE_ALL,
     {[DCP_DIFFERENCE_MISMATCHED] = RAISED,
      [DCP_DIFFERENCE_MISSING] = RAISED,
      [DCP_DIFFERENCE_UNEXPECTED] = RAISED,
      [DCP_DIFFERENCE_UNUSED] = RAISED}},
    {DCP_STRICT_LOG_MISSING,
     {[DCP_DIFFERENCE_MISMATCHED] = RAISED,
      [DCP_DIFFERENCE_MISSING] = LOGGED,
      [DCP_DIFFERENCE_UNUSED] = RAISED}},
    {DCP_STRICT_LOG_ALL,
     {[DCP_DIFFERENCE_MISMATCHED] = RAISED,
      [DCP_DIFFERENCE_MISSING] = LOGGED,
      [DCP_DIFFERENCE_UNEXPECTED] = LOGGED,
      [DCP_DIFFERENCE_UNUSED] = RAISED}},
    {DCP_STRICT_PARTIAL, {[DCP_DIFFERENCE_MISMATCHED] = RAISED, [DCP_DIFFERENCE_UNUSED] = RAISED}},
};

/* Kinds of differences in the order of judging. Conversions are allowed by options, so they are no
 * failure. */
static const struct kind {
    dcp_difference difference;
    dcp_status failure; /* DCP_OK: the failure of the first mismatch */
    const char *one, *many;
} kinds[] = {
    {DCP_DIFFERENCE_MISMATCHED, DCP_OK, "name in the checkpoint does not fit",
     "names in the checkpoint do not fit"},
    {DCP_DIFFERENCE_MISSING, DCP_ERR_MISSING_KEY, "name not in the checkpoint",
     "names not in the checkpoint"},
    {DCP_DIFFERENCE_UNEXPECTED, DCP_ERR_UNEXPECTED_KEY, "name in the checkpoint, but not wanted",
     "names in the checkpoint, but not wanted"},
    {DCP_DIFFERENCE_UNUSED, DCP_ERR_ARGUMENT, "pattern or rule applies to no name",
     "patterns and rules apply to no name"},
};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

static const struct policy *find_policy(dcp_strictness strictness)
{
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++)
        if (policies[i].strictness == strictness)
            return &policies[i];
    return NULL;
}

bool strictness_is_known(dcp_strictness strictness)
{
    return find_policy(strictness) != NULL;
}

bool strictness_wants_all(dcp_strictness strictness)
{
    return find_policy(strictness)->verdicts[DCP_DIFFERENCE_MISSING] == RAISED;
}

/* Unused patterns that are allowed are logged only if everything is. */
static enum verdict verdict_of(dcp_strictness strictness, dcp_difference difference,
                               bool allow_unused)
{
    if (difference == DCP_DIFFERENCE_UNUSED && allow_unused)
        return strictness == DCP_STRICT_LOG_ALL ? LOGGED : IGNORED;
    return find_policy(strictness)->verdicts[difference];
}

/* Longer than an error message, so that dcp_error_set() truncates it. */
struct message {
    char text[2 * ERROR_TEXT_MAX];
    size_t length;
};

static void append(struct message *message, const char *format, ...) DCP_PRINTF(2, 3);

static void append(struct message *message, const char *format, ...)
{
    size_t room = sizeof message->text - message->length;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(message->text + message->length, room, format, arguments);
    va_end(arguments);
    if (length > 0)
        message->length += (size_t)length < room ? (size_t)length : room - 1;
}

/* Searches the stored names that are not wanted: a missing name was probably renamed to one of
 * these. */
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

/* The name, with details in parentheses. */
static void append_line(struct message *message, const struct load_differences *merged,
                        const struct metadata *metadata, const struct load_difference *line)
{
    const char *before = " (";
    append(message, "\"%s\"", line->name);
    if (strcmp(line->stored_name, line->name) != 0) {
        append(message, "%slooked for as \"%s\"", before, line->stored_name);
        before = "; ";
    }
    const char *closest = NULL;
    if (line->difference == DCP_DIFFERENCE_MISSING)
        closest = find_closest(merged, metadata, line->stored_name);
    if (line->detail[0] != '\0') {
        append(message, "%s%s", before, line->detail);
        before = "; ";
    }
    if (closest != NULL) {
        append(message, "%sdid you mean \"%s\"?", before, closest);
        before = "; ";
    }
    if (before[0] == ';')
        append(message, ")");
}

/* The number of differences of a kind, and the first few; false: none. */
static bool append_kind(struct message *message, const struct load_differences *merged,
                        const struct metadata *metadata, const struct kind *kind)
{
    size_t count = 0, shown = 0;
    for (size_t i = 0; i < merged->count; i++)
        count += merged->lines[i].difference == kind->difference;
    if (count == 0)
        return false;
    message->length = 0;
    append(message, "%zu %s: ", count, count == 1 ? kind->one : kind->many);
    for (size_t i = 0; i < merged->count && shown < NAMES_SHOWN; i++) {
        if (merged->lines[i].difference != kind->difference)
            continue;
        append(message, "%s", shown++ != 0 ? ", " : "");
        append_line(message, merged, metadata, &merged->lines[i]);
    }
    if (count > shown)
        append(message, ", and %zu more", count - shown);
    return true;
}

dcp_status load_differences_judge(const struct load_differences *merged, dcp_strictness strictness,
                                  bool allow_unused, const struct metadata *metadata)
{
    struct message message;
    for (size_t i = 0; i < KINDS; i++)
        if (verdict_of(strictness, kinds[i].difference, allow_unused) == RAISED &&
            append_kind(&message, merged, metadata, &kinds[i])) {
            dcp_status failure = kinds[i].failure;
            if (kinds[i].difference == DCP_DIFFERENCE_UNUSED)
                append(&message, "; set allow_unused_patterns to allow this");
            return dcp_error_set(failure != DCP_OK ? failure : merged->failure, "%s", message.text);
        }
    return DCP_OK;
}

void load_differences_log(const struct load_differences *merged, dcp_strictness strictness,
                          const struct metadata *metadata, const char *path)
{
    struct message message;
    for (size_t i = 0; i < KINDS; i++) /* logged differences are not failures */
        if (verdict_of(strictness, kinds[i].difference, true) == LOGGED &&
            append_kind(&message, merged, metadata, &kinds[i]))
            log_line(DCP_LOG_WARNING, "load of \"%s\": %s", path, message.text);
}
