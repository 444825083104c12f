/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/run_leftovers.h"

#include <stdio.h>
#include <string.h>

/* As the file system's storage names what is about to appear: NAME, a dot, 16 digits, this. */
#define TEMPORARY_SUFFIX ".tmp"
enum { DIGITS = 16, TEMPORARY_SECONDS = 3600 };

/* Without what comes behind it in a temporary name; *is_temporary: it has that. */
static void take_name(const char *note, char name[RUN_NAME_MAX], bool *is_temporary)
{
    size_t length = strlen(note), end = sizeof TEMPORARY_SUFFIX - 1 + DIGITS;
    const char *digits = length > end ? note + length - end : note;
    *is_temporary = length > end + 1 && digits[-1] == '.' &&
                    strspn(digits, "0123456789abcdef") == DIGITS &&
                    strcmp(digits + DIGITS, TEMPORARY_SUFFIX) == 0;
    size_t kept = *is_temporary ? length - end - 1 : length;
    snprintf(name, RUN_NAME_MAX, "%.*s", (int)kept, note);
}

/* Of a temporary file that somebody is about to publish only its age tells. */
static bool is_left(const struct run_place *place, const struct run_own *own,
                    const struct run_names *names, const char *file, const char *prefix,
                    int64_t now)
{
    char name[RUN_NAME_MAX];
    bool is_temporary;
    int64_t step;
    if (strncmp(file, prefix, strlen(prefix)) != 0)
        return false;
    take_name(file + strlen(prefix), name, &is_temporary);
    if (!run_own_step(own, name, &step))
        return false;
    if (!is_temporary)
        return !run_names_has(names, name);
    int64_t since = run_place_time(place, file);
    return since > 0 && now - since > TEMPORARY_SECONDS;
}

dcp_status run_leftovers_remove(const struct run_place *place, const struct run_own *own,
                                const struct run_names *names, int64_t now)
{
    for (size_t i = 0; i < names->count; i++) {
        const char *file = names->names[i];
        if (!is_left(place, own, names, file, RUN_REMOVING, now) &&
            !is_left(place, own, names, file, RUN_FAILED, now))
            continue;
        dcp_status status = run_place_remove(place, "", file);
        if (status != DCP_OK && status != DCP_ERR_NOT_FOUND)
            return status;
    }
    return DCP_OK;
}
