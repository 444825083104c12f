/* SPDX-License-Identifier: BSD-3-Clause */
/* Rules, one after the other, each over all items as the one before has left them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/name_table.h"
#include "convert/transform.h"
#include "convert/transform_pattern.h"
#include "convert/transform_shape.h"

/* An item, and whether a rule was for it. */
struct row {
    struct convert_item item;
    bool touched;
    bool taken; /* by the rule that is applied: another one stands for it */
};

struct table {
    struct row *rows;
    size_t count, capacity;
};

/* One of a stack. */
struct member {
    const char *to;
    int64_t number;
    size_t row;
};

struct applying {
    struct convert_source *source;
    const struct transform_rule *rule;
    struct table in, out;
    struct name_table names;
    struct member *members;
    size_t member_count;
    size_t applied; /* names that the rule was for */
};

static dcp_status wrong(const struct applying *applying, const char *name, const char *what,
                        const char *other)
{
    return dcp_error_set(DCP_ERR_FORMAT, "rule %zu of the transform, at \"%s\": %s%s%s%s",
                         applying->rule->number, name, what, other ? "\"" : "", other ? other : "",
                         other ? "\"" : "");
}

static dcp_status emit(struct applying *applying, const struct convert_item *item, bool touched)
{
    struct table *table = &applying->out;
    if (table->count == table->capacity) {
        size_t capacity = 2 * table->capacity + 64;
        struct row *rows = memory_allocate_array(capacity, sizeof *rows);
        if (!rows)
            return error_no_memory(capacity * sizeof *rows, "names to transform");
        if (table->count > 0)
            memcpy(rows, table->rows, table->count * sizeof *rows);
        memory_release(table->rows);
        table->rows = rows;
        table->capacity = capacity;
    }
    table->rows[table->count++] = (struct row){.item = *item, .touched = touched};
    return DCP_OK;
}

/* A copy of an item with a name in the arena; NULL: there was no memory for it. */
static dcp_status name_item(struct applying *applying, const struct convert_item *item,
                            const char *name, struct convert_item *named)
{
    dcp_path_part *part = arena_allocate(&applying->source->arena, sizeof *part);
    if (!name || !part)
        return error_no_memory(sizeof *part, "a name");
    *part = (dcp_path_part){.key = name};
    *named = *item;
    named->name = name;
    named->path = part;
    named->path_length = 1;
    return DCP_OK;
}

/* Another item with the name that a pattern stands for. */
static dcp_status rename_item(struct applying *applying, const struct convert_item *item,
                              const char *pattern, const struct transform_match *match,
                              struct convert_item *renamed)
{
    const char *name = transform_pattern_fill(pattern, match, &applying->source->arena);
    return name_item(applying, item, name, renamed);
}

/* The row with the name that a pattern stands for; SIZE_MAX: there is none. */
static dcp_status find_row(struct applying *applying, const char *pattern,
                           const struct transform_match *match, const char **name, size_t *row)
{
    uint64_t index;
    *name = transform_pattern_fill(pattern, match, &applying->source->arena);
    if (!*name)
        return error_no_memory(strlen(pattern), "a name");
    *row =
        name_table_find(&applying->names, *name, strlen(*name), &index) ? (size_t)index : SIZE_MAX;
    return DCP_OK;
}

/* ---- one by one ---- */

static dcp_status divide(struct applying *applying, const struct convert_item *item,
                         struct transform_match *match)
{
    const struct transform_rule *rule = applying->rule;
    struct convert_item part;
    size_t count;
    RETURN_IF_ERROR(transform_divide_count(rule, item, &count));
    for (size_t i = 0; i < count; i++) {
        match->number = (int64_t)i;
        const char *to = rule->kind == TRANSFORM_UNSTACK ? rule->to[0] : rule->to[i];
        RETURN_IF_ERROR(rename_item(applying, item, to, match, &part));
        RETURN_IF_ERROR(transform_divide(rule, &applying->source->arena, item, i, &part));
        RETURN_IF_ERROR(emit(applying, &part, true));
    }
    return DCP_OK;
}

/* Leaves an item out that equals the one it is tied with; others stay. */
static dcp_status tie(struct applying *applying, const struct convert_item *item,
                      const struct transform_match *match)
{
    const char *name;
    bool equal = false;
    size_t row;
    RETURN_IF_ERROR(find_row(applying, applying->rule->to[0], match, &name, &row));
    if (row != SIZE_MAX)
        RETURN_IF_ERROR(
            convert_equal(applying->source, item, &applying->in.rows[row].item, &equal));
    return equal ? DCP_OK : emit(applying, item, true);
}

/* Adds the one that was tied with this one, unless it is there. */
static dcp_status untie(struct applying *applying, const struct convert_item *item, bool touched,
                        const struct transform_match *match)
{
    struct convert_item tied;
    const char *name;
    size_t row;
    RETURN_IF_ERROR(emit(applying, item, touched));
    RETURN_IF_ERROR(find_row(applying, applying->rule->from[0], match, &name, &row));
    if (row != SIZE_MAX)
        return DCP_OK;
    RETURN_IF_ERROR(rename_item(applying, item, applying->rule->from[0], match, &tied));
    return emit(applying, &tied, true);
}

static dcp_status apply_to(struct applying *applying, const struct convert_item *item,
                           struct transform_match *match)
{
    const struct transform_rule *rule = applying->rule;
    struct convert_item other = *item;
    bool names = rule->kind == TRANSFORM_RENAME || rule->kind == TRANSFORM_DROP;
    if (!names && !item->is_tensor)
        return wrong(applying, item->name, "it is an object", NULL);
    switch (rule->kind) {
    case TRANSFORM_DROP:
        applying->source->left_out++;
        return DCP_OK;
    case TRANSFORM_RENAME:
        RETURN_IF_ERROR(rename_item(applying, item, rule->to[0], match, &other));
        break;
    case TRANSFORM_SPLIT:
    case TRANSFORM_UNSTACK:
        return divide(applying, item, match);
    case TRANSFORM_TIE:
        return tie(applying, item, match);
    default:
        RETURN_IF_ERROR(transform_turn(rule, &applying->source->arena, item, &other));
    }
    return emit(applying, &other, true);
}

static dcp_status apply_each(struct applying *applying)
{
    const struct transform_rule *rule = applying->rule;
    bool untied = rule->kind == TRANSFORM_UNTIE;
    const char *pattern = untied ? rule->to[0] : rule->from[0];
    for (size_t i = 0; i < applying->in.count; i++) {
        const struct row *row = &applying->in.rows[i];
        struct transform_match match;
        if (!transform_pattern_matches(pattern, row->item.name, &match)) {
            RETURN_IF_ERROR(emit(applying, &row->item, row->touched));
            continue;
        }
        applying->applied++;
        RETURN_IF_ERROR(untied ? untie(applying, &row->item, row->touched, &match)
                               : apply_to(applying, &row->item, &match));
    }
    return DCP_OK;
}

/* ---- several at once ---- */

/* Marks what goes with the first of joined ones; inputs: all of them. */
static dcp_status take_partners(struct applying *applying, size_t leader,
                                const struct transform_match *match, struct convert_item *inputs)
{
    const struct transform_rule *rule = applying->rule;
    inputs[0] = applying->in.rows[leader].item;
    for (size_t k = 0; k < rule->from_count; k++) {
        const char *name;
        size_t row = leader;
        if (k > 0)
            RETURN_IF_ERROR(find_row(applying, rule->from[k], match, &name, &row));
        if (row == SIZE_MAX)
            return wrong(applying, inputs[0].name, "there is no ", name);
        if (applying->in.rows[row].taken || !applying->in.rows[row].item.is_tensor)
            return wrong(applying, applying->in.rows[row].item.name,
                         "it is an object, or belongs to several", NULL);
        applying->in.rows[row].taken = true;
        inputs[k] = applying->in.rows[row].item;
    }
    return DCP_OK;
}

/* Joined tensors come first, in the places of their first ones; then it is known what is left. */
static dcp_status join_all(struct applying *applying, struct convert_item *inputs,
                           struct convert_item *joined)
{
    const struct transform_rule *rule = applying->rule;
    for (size_t i = 0; i < applying->in.count; i++) {
        struct transform_match match;
        joined[i].name = NULL;
        if (!transform_pattern_matches(rule->from[0], applying->in.rows[i].item.name, &match))
            continue;
        RETURN_IF_ERROR(take_partners(applying, i, &match, inputs));
        RETURN_IF_ERROR(rename_item(applying, inputs, rule->to[0], &match, &joined[i]));
        RETURN_IF_ERROR(
            transform_unite(rule, &applying->source->arena, inputs, rule->from_count, &joined[i]));
        applying->applied++;
    }
    return DCP_OK;
}

static int compare_members(const void *a, const void *b)
{
    const struct member *left = a, *right = b;
    int order = strcmp(left->to, right->to);
    return order != 0 ? order : (left->number > right->number) - (left->number < right->number);
}

static dcp_status find_members(struct applying *applying)
{
    const struct transform_rule *rule = applying->rule;
    for (size_t i = 0; i < applying->in.count; i++) {
        struct row *row = &applying->in.rows[i];
        struct transform_match match;
        if (!transform_pattern_matches(rule->from[0], row->item.name, &match))
            continue;
        if (!row->item.is_tensor)
            return wrong(applying, row->item.name, "it is an object", NULL);
        const char *to = transform_pattern_fill(rule->to[0], &match, &applying->source->arena);
        if (!to)
            return error_no_memory(1, "a name");
        row->taken = true;
        applying->members[applying->member_count++] = (struct member){to, match.number, i};
    }
    applying->applied = applying->member_count;
    if (applying->member_count > 1)
        qsort(applying->members, applying->member_count, sizeof *applying->members,
              compare_members);
    return DCP_OK;
}

/* The row of those that comes last. */
static size_t last_row(const struct member *members, size_t count)
{
    size_t row = members->row;
    for (size_t i = 1; i < count; i++)
        row = members[i].row > row ? members[i].row : row;
    return row;
}

/* Stacks stand where the last of their parts stood, as GGUF's converter has them. */
static dcp_status stack_all(struct applying *applying, struct convert_item *inputs,
                            struct convert_item *joined)
{
    for (size_t i = 0; i < applying->in.count; i++)
        joined[i].name = NULL;
    RETURN_IF_ERROR(find_members(applying));
    for (size_t begin = 0, end; begin < applying->member_count; begin = end) {
        const struct member *members = &applying->members[begin];
        for (end = begin;
             end < applying->member_count && strcmp(applying->members[end].to, members->to) == 0;
             end++) {
            const struct convert_item *item = &applying->in.rows[applying->members[end].row].item;
            if (applying->members[end].number != (int64_t)(end - begin))
                return wrong(applying, item->name, "a number before it is missing", NULL);
            inputs[end - begin] = *item;
        }
        struct convert_item *result = &joined[last_row(members, end - begin)];
        RETURN_IF_ERROR(name_item(applying, inputs, members->to, result));
        RETURN_IF_ERROR(
            transform_unite(applying->rule, &applying->source->arena, inputs, end - begin, result));
    }
    return DCP_OK;
}

static dcp_status emit_united(struct applying *applying, const struct convert_item *joined)
{
    const struct transform_rule *rule = applying->rule;
    for (size_t i = 0; i < applying->in.count; i++) {
        const struct row *row = &applying->in.rows[i];
        struct transform_match match;
        if (joined[i].name)
            RETURN_IF_ERROR(emit(applying, &joined[i], true));
        else if (!row->taken)
            RETURN_IF_ERROR(emit(applying, &row->item, row->touched));
        for (size_t k = 1; k < rule->from_count && !row->taken; k++)
            if (transform_pattern_matches(rule->from[k], row->item.name, &match))
                return wrong(applying, row->item.name, "nothing is there that it is joined with",
                             NULL);
    }
    return DCP_OK;
}

static dcp_status apply_united(struct applying *applying)
{
    size_t count = applying->in.count,
           most = count > applying->rule->from_count ? count : applying->rule->from_count;
    struct convert_item *inputs = memory_allocate_array(most, sizeof *inputs);
    struct convert_item *joined = memory_allocate_array(count, sizeof *joined);
    applying->members = memory_allocate_array(count, sizeof *applying->members);
    applying->member_count = 0;
    dcp_status status = inputs && joined && applying->members
                            ? DCP_OK
                            : error_no_memory(count * sizeof *joined, "tensors to join");
    if (status == DCP_OK)
        status = applying->rule->kind == TRANSFORM_JOIN ? join_all(applying, inputs, joined)
                                                        : stack_all(applying, inputs, joined);
    if (status == DCP_OK)
        status = emit_united(applying, joined);
    memory_release(inputs);
    memory_release(joined);
    memory_release(applying->members);
    return status;
}

/* ---- all rules ---- */

static dcp_status list_names(struct applying *applying)
{
    name_table_free(&applying->names);
    name_table_init(&applying->names);
    for (size_t i = 0; i < applying->in.count; i++) {
        const char *name = applying->in.rows[i].item.name;
        uint64_t index = i;
        bool existing;
        RETURN_IF_ERROR(name_table_add(&applying->names, name, strlen(name), &index, &existing));
        if (existing)
            return dcp_error_set(DCP_ERR_DUPLICATE,
                                 "rule %zu of the transform makes \"%s\" a second time",
                                 applying->rule ? applying->rule->number : 0, name);
    }
    return DCP_OK;
}

static dcp_status apply_rule(struct applying *applying, const struct transform_rule *rule)
{
    struct table finished;
    applying->rule = rule;
    applying->out.count = 0;
    applying->applied = 0;
    bool unites = rule->kind == TRANSFORM_JOIN || rule->kind == TRANSFORM_STACK;
    RETURN_IF_ERROR(unites ? apply_united(applying) : apply_each(applying));
    if (applying->applied == 0 && !rule->optional)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "rule %zu of the transform is for no name (\"%s\"); \"optional\" "
                             "allows that",
                             rule->number,
                             rule->kind == TRANSFORM_UNTIE ? rule->to[0] : rule->from[0]);
    finished = applying->in;
    applying->in = applying->out;
    applying->out = finished;
    return list_names(applying);
}

/* Puts the rows in the place of the source's items. */
static dcp_status finish(struct applying *applying, enum transform_others others)
{
    struct convert_source *source = applying->source;
    size_t count = applying->in.count;
    source->items = arena_allocate_array(&source->arena, count, sizeof *source->items);
    source->count = 0;
    if (!source->items)
        return error_no_memory(count * sizeof *source->items, "names to convert");
    for (size_t i = 0; i < count; i++) {
        const struct row *row = &applying->in.rows[i];
        if (!row->touched && others == TRANSFORM_REFUSE)
            return dcp_error_set(DCP_ERR_FORMAT, "no rule of the transform is for \"%s\"",
                                 row->item.name);
        if (row->touched || others == TRANSFORM_KEEP)
            source->items[source->count++] = row->item;
        else
            source->left_out++;
    }
    return DCP_OK;
}

dcp_status transform_apply(const struct transform *transform, struct convert_source *source)
{
    struct applying applying = {.source = source};
    dcp_status status = DCP_OK;
    name_table_init(&applying.names);
    for (size_t i = 0; i < source->count && status == DCP_OK; i++)
        status = emit(&applying, &source->items[i], false);
    applying.in = applying.out;
    applying.out = (struct table){0};
    if (status == DCP_OK)
        status = list_names(&applying);
    for (size_t i = 0; i < transform->count && status == DCP_OK; i++)
        if (!transform->rules[i].inverse_only)
            status = apply_rule(&applying, &transform->rules[i]);
    if (status == DCP_OK)
        status = finish(&applying, transform->others);
    name_table_free(&applying.names);
    memory_release(applying.in.rows);
    memory_release(applying.out.rows);
    return status;
}
