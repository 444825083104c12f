/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "state/node.h"
#include "state/optimizer.h"

static dcp_status add_name(struct optimizer_source *source, size_t position)
{
    const dcp_parameter *parameter = &source->options->parameters[position];
    uint64_t value = position;
    bool existing;
    if (!parameter->name || !*parameter->name)
        return dcp_error_set(DCP_ERR_ARGUMENT, "parameter %zu has no name", position);
    if (source->options->group_count > 0 && parameter->group >= source->options->group_count)
        return dcp_error_set(DCP_ERR_ARGUMENT, "parameter \"%s\" is in group %zu of %zu",
                             parameter->name, parameter->group, source->options->group_count);
    if (parameter->group >= SIZE_MAX / sizeof(void *))
        return dcp_error_set(DCP_ERR_ARGUMENT, "parameter \"%s\" is in group %zu", parameter->name,
                             parameter->group);
    if (parameter->group >= source->group_count)
        source->group_count = parameter->group + 1;
    RETURN_IF_ERROR(name_table_add(&source->names, parameter->name, strlen(parameter->name), &value,
                                   &existing));
    return existing ? dcp_error_set(DCP_ERR_DUPLICATE, "two parameters have the name \"%s\"",
                                    parameter->name)
                    : DCP_OK;
}

dcp_status optimizer_source_init(struct optimizer_source *source,
                                 const dcp_optimizer_options *options)
{
    size_t count = options->parameter_count;
    *source = (struct optimizer_source){.options = options, .group_count = options->group_count};
    name_table_init(&source->names);
    name_table_init(&source->others);
    arena_init(&source->arena, 0);
    if (count > 0 && !options->parameters)
        return dcp_error_set(DCP_ERR_ARGUMENT, "parameters is NULL, but there are %zu", count);
    source->parts = memory_allocate_zeroed(count, sizeof *source->parts);
    if (!source->parts)
        return error_no_memory(count * sizeof *source->parts, "an optimizer's parameters");
    for (size_t i = 0; i < count; i++)
        RETURN_IF_ERROR(add_name(source, i));
    return DCP_OK;
}

void optimizer_source_free(struct optimizer_source *source)
{
    memory_release(source->parts);
    name_table_free(&source->names);
    name_table_free(&source->others);
    arena_free(&source->arena);
}

bool optimizer_part_has_state(const struct optimizer_part *part)
{
    return part->state_leaves.first || part->state;
}

/* The key of a setting has no dots. */
dcp_status optimizer_learn_name(struct optimizer_source *source, const char *key)
{
    const char *dot = strrchr(key, '.');
    uint64_t value = 0;
    bool existing;
    if (!dot || name_table_find(&source->names, key, (size_t)(dot - key), &value))
        return DCP_OK;
    return name_table_add(&source->others, key, (size_t)(dot - key), &value, &existing);
}

bool optimizer_find_parameter(const struct optimizer_source *source, const char *key,
                              size_t *position, const char **rest)
{
    for (size_t length = strlen(key); length-- > 0;) {
        uint64_t value;
        if (key[length] != '.')
            continue;
        if (name_table_find(&source->others, key, length, &value))
            return false;
        if (!name_table_find(&source->names, key, length, &value))
            continue;
        *position = (size_t)value;
        *rest = key + length + 1;
        return true;
    }
    return false;
}

/* ---- nested ---- */

/* An id as text: of an int, or of a text that is one. NULL: neither. */
static const char *id_text(const dcp_state *node)
{
    if (dcp_state_kind(node) == DCP_KIND_INT)
        return dcp_state_int_digits(node);
    return dcp_state_kind(node) == DCP_KIND_STRING ? node->as.text.bytes : NULL;
}

static const dcp_state *group_params(const dcp_state *group)
{
    const dcp_state *params = group ? dcp_state_find(group, OPTIMIZER_PARAMS) : NULL;
    dcp_kind kind = params ? dcp_state_kind(params) : DCP_KIND_NONE;
    return kind == DCP_KIND_LIST || kind == DCP_KIND_TUPLE ? params : NULL;
}

static bool has_int(const dcp_state *params)
{
    return dcp_state_count(params) > 0 && dcp_state_kind(dcp_state_at(params, 0)) == DCP_KIND_INT;
}

static bool is_by_position(const dcp_state *groups)
{
    for (size_t g = 0; g < dcp_state_count(groups); g++)
        if (has_int(group_params(dcp_state_at(groups, g))))
            return true;
    return false;
}

static dcp_status wrong_groups(size_t group)
{
    return dcp_error_set(DCP_ERR_KIND,
                         OPTIMIZER_GROUPS
                         ": element %zu is not a dict with a list " OPTIMIZER_PARAMS
                         " of names, or of numbers",
                         group);
}

/* Takes one parameter that a group lists. ids: NULL if the group lists names; otherwise the id is
 * added. */
static dcp_status read_listed(struct optimizer_source *source, const dcp_state *group,
                              const dcp_state *listed, size_t *position, struct name_table *ids)
{
    const char *text = id_text(listed);
    uint64_t value = *position;
    bool existing = false;
    if (ids) {
        RETURN_IF_ERROR(name_table_add(ids, text, strlen(text), &value, &existing));
        if (existing)
            return dcp_error_set(DCP_ERR_DUPLICATE, OPTIMIZER_GROUPS " list the parameter %s twice",
                                 text);
        (*position)++;
    } else if (!name_table_find(&source->names, text, strlen(text), &value)) {
        return DCP_OK; /* another optimizer's */
    }
    if (value < source->options->parameter_count)
        source->parts[value].group = group;
    return DCP_OK;
}

static dcp_status read_groups(struct optimizer_source *source, const dcp_state *groups,
                              struct name_table *ids)
{
    size_t position = 0;
    for (size_t g = 0; g < dcp_state_count(groups); g++) {
        const dcp_state *group = dcp_state_at(groups, g), *params = group_params(group);
        dcp_kind expected = ids ? DCP_KIND_INT : DCP_KIND_STRING;
        if (!params || !node_is_dict(group))
            return wrong_groups(g);
        for (size_t i = 0; i < dcp_state_count(params); i++) {
            const dcp_state *listed = dcp_state_at(params, i);
            if (dcp_state_kind(listed) != expected)
                return wrong_groups(g);
            if (!id_text(listed))
                return DCP_ERR_NO_MEMORY;
            RETURN_IF_ERROR(read_listed(source, group, listed, &position, ids));
        }
    }
    if (ids && position != source->options->parameter_count)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "the optimizer has %zu parameters, but " OPTIMIZER_GROUPS
                             " list %zu, and they have no names to distinguish them",
                             source->options->parameter_count, position);
    return DCP_OK;
}

static dcp_status read_state(struct optimizer_source *source, const dcp_state *state,
                             const struct name_table *ids)
{
    for (size_t i = 0; i < dcp_state_count(state); i++) {
        const dcp_state *value = dcp_state_at(state, i);
        const char *text = id_text(dcp_state_key_at(state, i));
        uint64_t position;
        if (!text || !node_is_dict(value))
            return dcp_error_set(DCP_ERR_KIND,
                                 OPTIMIZER_STATE ": pair %zu is not a dict under a parameter", i);
        if (name_table_find(ids ? ids : &source->names, text, strlen(text), &position))
            source->parts[position].state = value;
        else if (ids)
            return dcp_error_set(DCP_ERR_ARGUMENT,
                                 OPTIMIZER_STATE " has the parameter %s, which no group lists",
                                 text);
    }
    return DCP_OK;
}

static dcp_status read_nested(struct optimizer_source *source, const dcp_state *state,
                              const dcp_state *groups)
{
    struct name_table ids;
    name_table_init(&ids);
    struct name_table *known = is_by_position(groups) ? &ids : NULL;
    source->groups = groups;
    dcp_status status = read_groups(source, groups, known);
    if (status == DCP_OK && state)
        status = read_state(source, state, known);
    name_table_free(&ids);
    return status;
}

/* ---- flat ---- */

static dcp_status add_leaf(struct optimizer_source *source, struct optimizer_leaves *leaves,
                           const char *key, const dcp_state *node)
{
    struct optimizer_leaf *leaf = arena_allocate(&source->arena, sizeof *leaf);
    if (!leaf)
        return error_no_memory(sizeof *leaf, "an optimizer's state");
    *leaf = (struct optimizer_leaf){key, node, NULL};
    *(leaves->last ? &leaves->last->next : &leaves->first) = leaf;
    leaves->last = leaf;
    return DCP_OK;
}

static const char *after(const char *key, const char *prefix)
{
    size_t length = strlen(prefix);
    return strncmp(key, prefix, length) == 0 ? key + length : NULL;
}

static const char *flat_key(const dcp_state *tree, size_t index)
{
    const dcp_state *key = dcp_state_key_at(tree, index);
    return dcp_state_kind(key) == DCP_KIND_STRING ? key->as.text.bytes : "";
}

static dcp_status read_flat(struct optimizer_source *source, const dcp_state *tree)
{
    for (size_t i = 0; i < dcp_state_count(tree); i++) {
        const char *group = after(flat_key(tree, i), OPTIMIZER_GROUPS ".");
        if (group)
            RETURN_IF_ERROR(optimizer_learn_name(source, group));
    }
    for (size_t i = 0; i < dcp_state_count(tree); i++) {
        const char *text = flat_key(tree, i);
        const char *state = after(text, OPTIMIZER_STATE "."),
                   *group = after(text, OPTIMIZER_GROUPS "."), *rest;
        size_t position;
        if (!state && !group)
            return dcp_error_set(DCP_ERR_KIND,
                                 "an optimizer's state has " OPTIMIZER_STATE
                                 " and " OPTIMIZER_GROUPS
                                 ", or keys that begin with these; not \"%s\"",
                                 text);
        if (!optimizer_find_parameter(source, state ? state : group, &position, &rest))
            continue; /* another optimizer's */
        struct optimizer_part *part = &source->parts[position];
        RETURN_IF_ERROR(add_leaf(source, state ? &part->state_leaves : &part->group_leaves, rest,
                                 dcp_state_at(tree, i)));
    }
    return DCP_OK;
}

dcp_status optimizer_source_read(struct optimizer_source *source, const dcp_state *tree)
{
    if (!tree || !node_is_dict(tree))
        return dcp_error_set(DCP_ERR_ARGUMENT, "an optimizer's state is a dict");
    const dcp_state *state = dcp_state_find(tree, OPTIMIZER_STATE);
    const dcp_state *groups = dcp_state_find(tree, OPTIMIZER_GROUPS);
    if (!state && !groups)
        return read_flat(source, tree);
    if ((state && !node_is_dict(state)) || !groups || dcp_state_kind(groups) != DCP_KIND_LIST)
        return dcp_error_set(DCP_ERR_KIND, "an optimizer's " OPTIMIZER_STATE
                                           " must be a dict and its " OPTIMIZER_GROUPS " a list");
    return read_nested(source, state, groups);
}
