/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/names/name_rules.h"

#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

static size_t count_of(const char *text, char character)
{
    size_t count = 0;
    for (; *text != '\0'; text++)
        count += *text == character;
    return count;
}

static dcp_status check_glob(const dcp_rename *rule, size_t index)
{
    const char *fault = glob_fault(rule->wanted);
    if (fault != NULL)
        return dcp_error_set(DCP_ERR_ARGUMENT, "renames[%zu].wanted, \"%s\", has %s", index,
                             rule->wanted, fault);
    size_t captured = glob_star_count(rule->wanted), placed = count_of(rule->stored, '*');
    if (placed > captured)
        return dcp_error_set(
            DCP_ERR_ARGUMENT,
            "renames[%zu].stored, \"%s\", has %zu stars, but \"%s\" captures only %zu", index,
            rule->stored, placed, rule->wanted, captured);
    return DCP_OK;
}

static dcp_status check_rule(const dcp_rename *rule, size_t index)
{
    if (rule->wanted == NULL || rule->stored == NULL)
        return dcp_error_set(DCP_ERR_ARGUMENT, "renames[%zu].%s is NULL", index,
                             rule->wanted == NULL ? "wanted" : "stored");
    if (!utf8_is_valid(rule->wanted, strlen(rule->wanted)) ||
        !utf8_is_valid(rule->stored, strlen(rule->stored)))
        return dcp_error_set(DCP_ERR_ARGUMENT, "renames[%zu] is not UTF-8", index);
    switch (rule->kind) {
    case DCP_RENAME_EXACT:
    case DCP_RENAME_PREFIX:
        return DCP_OK;
    case DCP_RENAME_GLOB:
        return check_glob(rule, index);
    }
    return dcp_error_set(DCP_ERR_ARGUMENT, "renames[%zu].kind is %d, which is not a defined value",
                         index, (int)rule->kind);
}

/* Files a rule where it will be found. */
static dcp_status add_rule(struct name_rules *rules, size_t index, size_t *most_stars)
{
    const dcp_rename *rule = &rules->rules[index];
    RETURN_IF_ERROR(check_rule(rule, index));
    if (rule->kind == DCP_RENAME_EXACT) {
        uint64_t value = index;
        bool existing;
        return name_table_add(&rules->exact, rule->wanted, strlen(rule->wanted), &value, &existing);
    }
    rules->others[rules->other_count++] = index;
    size_t stars = rule->kind == DCP_RENAME_GLOB ? glob_star_count(rule->wanted) : 0;
    *most_stars = stars > *most_stars ? stars : *most_stars;
    return DCP_OK;
}

dcp_status name_rules_init(struct name_rules *rules, const dcp_rename *given, size_t count)
{
    size_t most_stars = 0;
    *rules = (struct name_rules){.rules = given, .count = count};
    name_table_init(&rules->exact);
    buffer_init(&rules->stored, 0);
    if (count == 0)
        return DCP_OK;
    if (given == NULL)
        return dcp_error_set(DCP_ERR_ARGUMENT, "renames is NULL, expected %zu rules", count);
    rules->others = memory_allocate_array(count, sizeof *rules->others);
    if (rules->others == NULL)
        return error_no_memory(count * sizeof *rules->others, "renaming rules");
    for (size_t i = 0; i < count; i++)
        RETURN_IF_ERROR(add_rule(rules, i, &most_stars));
    rules->captures = memory_allocate_array(most_stars, sizeof *rules->captures);
    if (rules->captures == NULL)
        return error_no_memory(most_stars * sizeof *rules->captures, "renaming rules");
    return DCP_OK;
}

void name_rules_free(struct name_rules *rules)
{
    name_table_free(&rules->exact);
    memory_release(rules->others);
    memory_release(rules->captures);
    buffer_free(&rules->stored);
    *rules = (struct name_rules){0};
}

static bool rule_matches(struct name_rules *rules, const dcp_rename *rule, const char *name)
{
    if (rule->kind == DCP_RENAME_PREFIX)
        return strncmp(name, rule->wanted, strlen(rule->wanted)) == 0;
    return glob_match(rule->wanted, name, rules->captures);
}

/* The exact rule for a name; else the first one for a container that the name is below; count:
 * none. They are looked up, so that a table of thousands costs no more than one rule. */
static uint64_t find_exact(const struct name_rules *rules, const char *name)
{
    uint64_t first = rules->count, found;
    if (rules->other_count == rules->count)
        return first;
    if (name_table_find(&rules->exact, name, strlen(name), &found))
        return found;
    for (const char *dot = strchr(name, '.'); dot != NULL; dot = strchr(dot + 1, '.'))
        if (name_table_find(&rules->exact, name, (size_t)(dot - name), &found) && found < first)
            first = found;
    return first;
}

/* The first rule that matches; count: none. */
static size_t find_rule(struct name_rules *rules, const char *name)
{
    uint64_t exact = find_exact(rules, name);
    for (size_t i = 0; i < rules->other_count && rules->others[i] < exact; i++)
        if (rule_matches(rules, &rules->rules[rules->others[i]], name))
            return rules->others[i];
    return (size_t)exact;
}

/* Puts what the n-th star of the tree's side stands for in place of the n-th star. */
static void fill_stars(struct name_rules *rules, const char *stored)
{
    const struct glob_capture *capture = rules->captures;
    for (;;) {
        size_t length = strcspn(stored, "*");
        buffer_append(&rules->stored, stored, length);
        if (stored[length] == '\0')
            return;
        buffer_append(&rules->stored, capture->text, capture->length);
        capture++;
        stored += length + 1;
    }
}

dcp_status name_rules_apply(struct name_rules *rules, const char *name, const char **stored,
                            size_t *rule)
{
    *stored = name;
    *rule = rules->count != 0 ? find_rule(rules, name) : 0;
    if (*rule == rules->count)
        return DCP_OK;
    const dcp_rename *found = &rules->rules[*rule];
    buffer_clear(&rules->stored);
    if (found->kind == DCP_RENAME_GLOB) {
        fill_stars(rules, found->stored);
    } else {
        buffer_append(&rules->stored, found->stored, strlen(found->stored));
        const char *rest = name + strlen(found->wanted); /* exact: what is below a container */
        buffer_append(&rules->stored, rest, strlen(rest));
    }
    buffer_append_u8(&rules->stored, 0);
    RETURN_IF_ERROR(buffer_status(&rules->stored));
    *stored = (const char *)rules->stored.data;
    return DCP_OK;
}
