/* SPDX-License-Identifier: BSD-3-Clause */
/* The options of a load that are about names: all of them together. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "plan/load/load_differences.h"

enum { PLACE_MAX = 40 };

dcp_status load_names_init(struct load_names *names, const struct name_filter *filter,
                           const dcp_rename *renames, size_t rename_count)
{
    *names = (struct load_names){.filter = *filter};
    RETURN_IF_ERROR(name_filter_check(&names->filter));
    return name_rules_init(&names->rules, renames, rename_count);
}

void load_names_free(struct load_names *names)
{
    name_rules_free(&names->rules);
    *names = (struct load_names){0};
}

size_t load_names_count(const struct load_names *names)
{
    if (names == NULL)
        return 0;
    return names->rules.count + names->filter.include_count + names->filter.exclude_count;
}

static dcp_status add_unused(struct load_differences *differences, const char *array, size_t index,
                             const char *pattern)
{
    char place[PLACE_MAX];
    snprintf(place, sizeof place, "%s[%zu]", array, index);
    return differences_add(differences, DCP_DIFFERENCE_UNUSED, pattern, strlen(pattern), place,
                           strlen(place));
}

dcp_status load_names_add_unused(const struct load_names *names,
                                 struct load_differences *differences)
{
    if (names == NULL)
        return DCP_OK;
    const struct name_rules *rules = &names->rules;
    const struct name_filter *filter = &names->filter;
    const bool *used = differences->used;
    for (size_t i = 0; i < rules->count; i++)
        if (!*used++)
            RETURN_IF_ERROR(add_unused(differences, "renames", i, rules->rules[i].wanted));
    for (size_t i = 0; i < filter->include_count; i++)
        if (!*used++)
            RETURN_IF_ERROR(add_unused(differences, "include", i, filter->include[i]));
    for (size_t i = 0; i < filter->exclude_count; i++)
        if (!*used++)
            RETURN_IF_ERROR(add_unused(differences, "exclude", i, filter->exclude[i]));
    return DCP_OK;
}
