/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/storage_choose.h"

#include <string.h>

#include "base/error.h"

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* RFC 3986: a letter, then letters, digits, "+", "-" and ".". */
static bool has_scheme(const char *id)
{
    const char *end = id;
    while (is_letter(*end) ||
           (end > id && ((*end >= '0' && *end <= '9') || (*end && strchr("+-.", *end)))))
        end++;
    return end > id && strncmp(end, "://", 3) == 0;
}

dcp_status storage_choose(const struct storage_choices *choices, const char *id, const void **table,
                          uint64_t *number)
{
    *table = choices->passed;
    *number = STORAGE_PASSED;
    if (choices->passed)
        return DCP_OK;
    for (size_t i = 0; i < choices->count; i++) {
        bool takes = false;
        RETURN_IF_ERROR(choices->takes(choices->several[i], id, &takes));
        if (!takes)
            continue;
        *table = choices->several[i];
        *number = 2 + (uint64_t)i;
        return DCP_OK;
    }
    *number = STORAGE_FILES;
    if (!*id)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the coordinator was given no path");
    if (has_scheme(id))
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "no storage takes \"%s\": %zu were asked, and the file system takes "
                             "no \"scheme://\"",
                             id, choices->count);
    return DCP_OK;
}
