/* SPDX-License-Identifier: BSD-3-Clause */
/* The options of a load that are about names: all of them together. */
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "plan/load/load_differences.h"
#include "plan/names/name_near.h"

/* Maximum number of names that are compared for a suggestion. */
enum { CONTAINERS_MAX = 8192 };

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

/* Which names a pattern or rule may have been meant for. */
struct unused {
    const char *array;
    size_t index;
    const char *pattern;
    bool is_plain;  /* else with stars, question marks or sets */
    bool is_prefix; /* of names, mostly with a dot at its end */
    bool in_tree;   /* a rule, which is about names of the tree */
};

static void offer_names(const struct load_names *names, const struct metadata *metadata,
                        bool in_tree, struct near_names *near)
{
    for (size_t i = 0; names->flat != NULL && i < names->flat->count; i++)
        near_names_offer(near, names->flat->entries[i].name);
    for (size_t i = 0; !in_tree && i < metadata->count; i++)
        near_names_offer(near, metadata->entries[i].name);
}

/* The nearest names to the plain beginning of a pattern, with the rest behind each: for
 * "optimzer.*" what is called nearly as "optimzer". */
static void append_near(const struct unused *unused, const struct load_names *names,
                        const struct metadata *metadata, struct buffer *text)
{
    struct near_names near;
    size_t length = strlen(unused->pattern), head = length;
    if (!unused->is_plain) {
        head = strcspn(unused->pattern, "*?[");
        while (head > 0 && unused->pattern[head - 1] != '.')
            head--;
    }
    if (head > 0 && unused->pattern[head - 1] == '.' && (!unused->is_plain || unused->is_prefix))
        head--;
    near_names_init(&near, unused->pattern, head);
    if (head > 0)
        offer_names(names, metadata, unused->in_tree, &near);
    /* The container exists, but nothing in it matches the rest of the pattern. */
    if (near.count > 0 && near.found[0].distance == 0)
        near.count = 0;
    near_names_append(&near, unused->pattern + head, text);
}

static const char *name_at(const struct load_names *names, const struct metadata *metadata,
                           size_t index)
{
    size_t count = names->flat != NULL ? names->flat->count : 0;
    return index < count ? names->flat->entries[index].name : metadata->entries[index - count].name;
}

/* What a pattern with wildcards says of containers, it does not say of what is below them. */
static dcp_status append_container(const struct unused *unused, const struct load_names *names,
                                   const struct metadata *metadata, struct buffer *text,
                                   bool *found)
{
    size_t count = (names->flat != NULL ? names->flat->count : 0) + metadata->count;
    struct buffer container;
    dcp_status status = DCP_OK;
    *found = false;
    buffer_init(&container, 0);
    for (size_t i = 0; status == DCP_OK && i < count && i < CONTAINERS_MAX && !*found; i++) {
        const char *name = name_at(names, metadata, i);
        for (const char *dot = strchr(name, '.'); dot != NULL && !*found;
             dot = strchr(dot + 1, '.')) {
            buffer_clear(&container);
            buffer_append(&container, name, (size_t)(dot - name));
            buffer_append_u8(&container, 0);
            status = buffer_status(&container);
            if (status != DCP_OK)
                break;
            *found = glob_match(unused->pattern, (const char *)container.data, NULL);
        }
    }
    if (*found)
        buffer_append_format(text, "; did you mean \"%s.*\", for all below \"%s\"?",
                             unused->pattern, (const char *)container.data);
    buffer_free(&container);
    return status;
}

static dcp_status add_unused(const struct unused *unused, const struct load_names *names,
                             const struct metadata *metadata, struct load_differences *differences)
{
    struct buffer detail;
    buffer_init(&detail, 0);
    buffer_append_format(&detail, "%s[%zu]", unused->array, unused->index);
    bool found = false;
    dcp_status status = DCP_OK;
    if (!unused->is_plain)
        status = append_container(unused, names, metadata, &detail, &found);
    if (!found)
        append_near(unused, names, metadata, &detail);
    if (status == DCP_OK)
        status = buffer_status(&detail);
    if (status == DCP_OK)
        status = differences_add(differences, DCP_DIFFERENCE_UNUSED, unused->pattern,
                                 strlen(unused->pattern), (const char *)detail.data, detail.size);
    buffer_free(&detail);
    return status;
}

static dcp_status add_patterns(const char *array, const char *const *patterns, size_t count,
                               const bool *used, const struct load_names *names,
                               const struct metadata *metadata,
                               struct load_differences *differences)
{
    for (size_t i = 0; i < count; i++) {
        struct unused unused = {array, i, patterns[i], glob_is_plain(patterns[i]), false, false};
        if (!used[i])
            RETURN_IF_ERROR(add_unused(&unused, names, metadata, differences));
    }
    return DCP_OK;
}

dcp_status load_names_add_unused(const struct load_names *names, const struct metadata *metadata,
                                 struct load_differences *differences)
{
    if (names == NULL)
        return DCP_OK;
    const struct name_rules *rules = &names->rules;
    const struct name_filter *filter = &names->filter;
    const bool *used = differences->used;
    for (size_t i = 0; i < rules->count; i++) {
        const dcp_rename *rule = &rules->rules[i];
        bool is_plain = rule->kind != DCP_RENAME_GLOB || glob_is_plain(rule->wanted);
        struct unused unused = {
            "renames", i, rule->wanted, is_plain, rule->kind == DCP_RENAME_PREFIX, true};
        if (!used[i])
            RETURN_IF_ERROR(add_unused(&unused, names, metadata, differences));
    }
    used += rules->count;
    RETURN_IF_ERROR(add_patterns("include", filter->include, filter->include_count, used, names,
                                 metadata, differences));
    return add_patterns("exclude", filter->exclude, filter->exclude_count,
                        used + filter->include_count, names, metadata, differences);
}
