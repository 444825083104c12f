/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/names/name_filter.h"

#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "plan/names/name_glob.h"

static dcp_status check_patterns(const char *what, const char *const *patterns, size_t count)
{
    if (count != 0 && patterns == NULL)
        return dcp_error_set(DCP_ERR_ARGUMENT, "%s is NULL, expected %zu patterns", what, count);
    for (size_t i = 0; i < count; i++) {
        const char *pattern = patterns[i];
        if (pattern == NULL)
            return dcp_error_set(DCP_ERR_ARGUMENT, "%s[%zu] is NULL", what, i);
        if (!utf8_is_valid(pattern, strlen(pattern)))
            return dcp_error_set(DCP_ERR_ARGUMENT, "%s[%zu] is not UTF-8", what, i);
        const char *fault = glob_fault(pattern);
        if (fault != NULL)
            return dcp_error_set(DCP_ERR_ARGUMENT, "%s[%zu], \"%s\", has %s", what, i, pattern,
                                 fault);
    }
    return DCP_OK;
}

dcp_status name_filter_check(const struct name_filter *filter)
{
    RETURN_IF_ERROR(check_patterns("include", filter->include, filter->include_count));
    return check_patterns("exclude", filter->exclude, filter->exclude_count);
}

/* The whole name, or what a container is called that the name is below. */
static bool matches(const char *pattern, const char *name)
{
    if (glob_match(pattern, name, NULL))
        return true;
    size_t length = strlen(pattern);
    return strncmp(name, pattern, length) == 0 && name[length] == '.' && glob_is_plain(pattern);
}

/* Asks all patterns, so that each that could have decided counts as used. */
static bool any_matches(const char *const *patterns, size_t count, const char *name, bool *used)
{
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        if (any && used[i])
            continue;
        bool found = matches(patterns[i], name);
        used[i] = used[i] || found;
        any = any || found;
    }
    return any;
}

bool name_filter_passes(const struct name_filter *filter, const char *name, bool *used)
{
    bool included = any_matches(filter->include, filter->include_count, name, used);
    bool excluded =
        any_matches(filter->exclude, filter->exclude_count, name, used + filter->include_count);
    return (included || filter->include_count == 0) && !excluded;
}
