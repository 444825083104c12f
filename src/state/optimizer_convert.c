/* SPDX-License-Identifier: BSD-3-Clause */
/* Writing an optimizer's state in one of its forms. */
#include <inttypes.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "state/node.h"
#include "state/node_equal.h"
#include "state/optimizer.h"

/* Dicts inside of a parameter's state; no optimizer nests as deep. */
#define NESTING_MAX 64

struct conversion {
    struct optimizer_source source;
    dcp_optimizer_form form;
    dcp_state *into;
};

/* ---- flat ---- */

/* Adds a copy under PREFIX.NAME.KEY. */
static dcp_status put_flat(struct conversion *conversion, const char *prefix, const char *name,
                           const char *key, const dcp_state *node)
{
    struct buffer text;
    buffer_init(&text, 0);
    buffer_append_format(&text, "%s.%s.%s", prefix, name, key);
    buffer_append_u8(&text, 0);
    dcp_status status = buffer_status(&text);
    if (status == DCP_OK) {
        dcp_state_copy(conversion->into, (const char *)text.data, node);
        status = dcp_state_status(conversion->into);
    }
    buffer_free(&text);
    return status;
}

struct level {
    const dcp_state *dict;
    size_t next;
    size_t length; /* of the key up to this dict */
};

static dcp_status append_key(struct buffer *key, size_t length, const dcp_state *part)
{
    const char *text = NULL;
    if (dcp_state_kind(part) == DCP_KIND_STRING)
        text = part->as.text.bytes;
    else if (dcp_state_kind(part) == DCP_KIND_INT)
        text = dcp_state_int_digits(part);
    if (!text)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "a key of an optimizer's state is of kind %s, which has no flat form",
                             node_kind_name(dcp_state_kind(part)));
    key->size = length;
    buffer_append_format(key, length > 0 ? ".%s" : "%s", text);
    buffer_append_u8(key, 0);
    key->size -= key->size > 0;
    return buffer_status(key);
}

/* The leaves below a parameter's dict, each under its way joined by dots. */
static dcp_status put_flat_state(struct conversion *conversion, const char *name,
                                 const dcp_state *dict)
{
    struct level levels[NESTING_MAX] = {{.dict = dict}};
    struct buffer key;
    size_t depth = 1;
    dcp_status status = DCP_OK;
    buffer_init(&key, 0);
    while (depth > 0 && status == DCP_OK) {
        struct level *level = &levels[depth - 1];
        if (level->next == dcp_state_count(level->dict)) {
            depth--;
            continue;
        }
        const dcp_state *value = dcp_state_at(level->dict, level->next);
        status = append_key(&key, level->length, dcp_state_key_at(level->dict, level->next++));
        if (status != DCP_OK)
            break;
        if (!node_is_dict(value))
            status = put_flat(conversion, OPTIMIZER_STATE, name, (const char *)key.data, value);
        else if (depth == NESTING_MAX)
            status = dcp_error_set(DCP_ERR_UNSUPPORTED, "%s: dicts nest deeper than %d", name,
                                   NESTING_MAX);
        else
            levels[depth++] = (struct level){value, 0, key.size};
    }
    buffer_free(&key);
    return status;
}

static dcp_status write_flat(struct conversion *conversion, size_t position)
{
    const dcp_parameter *parameter = &conversion->source.options->parameters[position];
    const struct optimizer_part *part = &conversion->source.parts[position];
    const struct optimizer_leaf *leaf = part->state_leaves.first;
    for (; leaf && !parameter->frozen; leaf = leaf->next)
        RETURN_IF_ERROR(
            put_flat(conversion, OPTIMIZER_STATE, parameter->name, leaf->key, leaf->node));
    if (part->state && !parameter->frozen)
        RETURN_IF_ERROR(put_flat_state(conversion, parameter->name, part->state));
    for (leaf = part->group_leaves.first; leaf; leaf = leaf->next)
        RETURN_IF_ERROR(
            put_flat(conversion, OPTIMIZER_GROUPS, parameter->name, leaf->key, leaf->node));
    for (size_t i = 0; part->group && i < dcp_state_count(part->group); i++) {
        const dcp_state *key = dcp_state_key_at(part->group, i);
        if (dcp_state_kind(key) == DCP_KIND_STRING &&
            strcmp(key->as.text.bytes, OPTIMIZER_PARAMS) != 0)
            RETURN_IF_ERROR(put_flat(conversion, OPTIMIZER_GROUPS, parameter->name,
                                     key->as.text.bytes, dcp_state_at(part->group, i)));
    }
    return DCP_OK;
}

/* ---- nested ---- */

/* The dict under a key, made if it is not there. */
static dcp_state *dict_under(dcp_state *parent, const char *key)
{
    dcp_state *known = dcp_state_find(parent, key);
    return known && node_is_dict(known) ? known : dcp_state_dict(parent, key);
}

static dcp_status put_dotted(dcp_state *dict, const char *key, const dcp_state *node)
{
    for (const char *dot; (dot = strchr(key, '.')) != NULL; key = dot + 1) {
        const char *part = dcp_state_intern(dict, key, (size_t)(dot - key));
        dict = part ? dict_under(dict, part) : NULL;
        if (!dict)
            return DCP_OK; /* the tree keeps the failure */
    }
    dcp_state_copy(dict, key, node);
    return DCP_OK;
}

/* A key that is a position. */
static dcp_state *dict_at(dcp_state *parent, size_t position)
{
    struct state_pool *pool = parent->content ? parent->content : parent->pool;
    dcp_state *key = node_int(pool, (int64_t)position);
    dcp_state *dict = key ? node_new(pool, DCP_KIND_DICT) : NULL;
    return dict && node_append(pool, parent, key, dict) == DCP_OK ? dict : NULL;
}

static dcp_status write_state(struct conversion *conversion, dcp_state *states, size_t position)
{
    const dcp_parameter *parameter = &conversion->source.options->parameters[position];
    const struct optimizer_part *part = &conversion->source.parts[position];
    if (parameter->frozen || !optimizer_part_has_state(part))
        return DCP_OK;
    dcp_state *dict = conversion->form == DCP_OPTIMIZER_BY_NAME
                          ? dcp_state_dict(states, parameter->name)
                          : dict_at(states, position);
    if (!dict)
        return dcp_state_status(states) != DCP_OK ? dcp_state_status(states) : DCP_ERR_NO_MEMORY;
    for (size_t i = 0; part->state && i < dcp_state_count(part->state); i++) {
        struct state_pool *pool = dict->content ? dict->content : dict->pool;
        dcp_state *key, *value;
        RETURN_IF_ERROR(node_copy(pool, dcp_state_key_at(part->state, i), &key));
        RETURN_IF_ERROR(node_copy(pool, dcp_state_at(part->state, i), &value));
        RETURN_IF_ERROR(node_append(pool, dict, key, value));
    }
    for (const struct optimizer_leaf *leaf = part->state_leaves.first; leaf; leaf = leaf->next)
        RETURN_IF_ERROR(put_dotted(dict, leaf->key, leaf->node));
    return dcp_state_status(dict);
}

static dcp_status put_settings(dcp_state *group, const struct optimizer_part *part)
{
    for (const struct optimizer_leaf *leaf = part->group_leaves.first; leaf; leaf = leaf->next)
        dcp_state_copy(group, leaf->key, leaf->node);
    for (size_t i = 0; part->group && i < dcp_state_count(part->group); i++) {
        const dcp_state *key = dcp_state_key_at(part->group, i);
        if (dcp_state_kind(key) == DCP_KIND_STRING &&
            strcmp(key->as.text.bytes, OPTIMIZER_PARAMS) != 0)
            dcp_state_copy(group, key->as.text.bytes, dcp_state_at(part->group, i));
    }
    return dcp_state_status(group);
}

static const dcp_state *find_setting(const struct optimizer_part *part, const char *key)
{
    const struct optimizer_leaf *leaf = part->group_leaves.first;
    while (leaf && strcmp(leaf->key, key) != 0)
        leaf = leaf->next;
    if (leaf)
        return leaf->node;
    return part->group ? dcp_state_find(part->group, key) : NULL;
}

/* Every setting of the group made so far must be the parameter's, and the other way round. */
static dcp_status check_settings(const dcp_state *group, const struct optimizer_part *part,
                                 const char *name)
{
    size_t count = part->group ? dcp_state_count(part->group) - 1 : 0;
    for (const struct optimizer_leaf *leaf = part->group_leaves.first; leaf; leaf = leaf->next)
        count++;
    bool equal = count == dcp_state_count(group);
    const char *key = "";
    for (size_t i = 0; i < dcp_state_count(group) && equal; i++) {
        key = dcp_state_key_at(group, i)->as.text.bytes;
        const dcp_state *setting = find_setting(part, key);
        equal = setting != NULL;
        if (setting)
            RETURN_IF_ERROR(node_equal(dcp_state_at(group, i), setting, &equal));
    }
    return equal ? DCP_OK
                 : dcp_error_set(DCP_ERR_DUPLICATE,
                                 "the parameters of one group were saved with different settings: "
                                 "\"%s\" of \"%s\"",
                                 key, name);
}

/* Of a group without parameters: the source's that has none either. */
static dcp_status put_empty_group(const struct optimizer_source *source, dcp_state *group)
{
    const dcp_state *found = NULL;
    for (size_t g = 0; source->groups && g < dcp_state_count(source->groups); g++) {
        const dcp_state *candidate = dcp_state_at(source->groups, g);
        if (dcp_state_count(dcp_state_find(candidate, OPTIMIZER_PARAMS)) > 0)
            continue;
        if (found)
            return dcp_error_set(DCP_ERR_DUPLICATE,
                                 "a group without parameters matches several saved groups");
        found = candidate;
    }
    struct optimizer_part part = {.group = found};
    return found ? put_settings(group, &part) : DCP_OK;
}

static dcp_status write_group(struct conversion *conversion, dcp_state *groups, size_t number)
{
    const struct optimizer_source *source = &conversion->source;
    const dcp_optimizer_options *options = source->options;
    const struct optimizer_part *first = NULL;
    dcp_state *group = dcp_state_dict(groups, NULL);
    bool empty = true;
    for (size_t p = 0; p < options->parameter_count && group; p++) {
        const struct optimizer_part *part = &source->parts[p];
        if (options->parameters[p].group != number)
            continue;
        empty = false;
        if (!part->group && !part->group_leaves.first)
            continue; /* checked to be allowed */
        if (!first) {
            first = part;
            RETURN_IF_ERROR(put_settings(group, part));
        } else if (!part->group || part->group != first->group) {
            RETURN_IF_ERROR(check_settings(group, part, options->parameters[p].name));
        }
    }
    if (empty && group)
        RETURN_IF_ERROR(put_empty_group(source, group));
    dcp_state *params = group ? dcp_state_list(group, OPTIMIZER_PARAMS) : NULL;
    for (size_t p = 0; p < options->parameter_count && params; p++) {
        if (options->parameters[p].group != number)
            continue;
        if (conversion->form == DCP_OPTIMIZER_BY_NAME)
            dcp_state_string(params, NULL, options->parameters[p].name);
        else
            dcp_state_int(params, NULL, (int64_t)p);
    }
    return dcp_state_status(groups);
}

static dcp_status write_nested(struct conversion *conversion)
{
    dcp_state *into = conversion->into;
    bool named = conversion->form == DCP_OPTIMIZER_BY_NAME;
    dcp_state *states =
        named ? dict_under(into, OPTIMIZER_STATE) : dcp_state_dict(into, OPTIMIZER_STATE);
    dcp_state *groups = named ? dcp_state_find(into, OPTIMIZER_GROUPS) : NULL;
    if (!groups)
        groups = dcp_state_list(into, OPTIMIZER_GROUPS);
    if (!states || !groups)
        return dcp_state_status(into);
    for (size_t p = 0; p < conversion->source.options->parameter_count; p++)
        RETURN_IF_ERROR(write_state(conversion, states, p));
    for (size_t g = 0; g < conversion->source.group_count; g++)
        RETURN_IF_ERROR(write_group(conversion, groups, g));
    return DCP_OK;
}

/* ---- what must be there ---- */

/* All of an optimizer without state (plain SGD) may be; one parameter of many may not. */
static dcp_status check_complete(const struct conversion *conversion)
{
    const struct optimizer_source *source = &conversion->source;
    const dcp_optimizer_options *options = source->options;
    bool some = false;
    for (size_t p = 0; p < options->parameter_count; p++)
        some = some || optimizer_part_has_state(&source->parts[p]);
    for (size_t p = 0; p < options->parameter_count && !options->partial; p++) {
        const dcp_parameter *parameter = &options->parameters[p];
        const struct optimizer_part *part = &source->parts[p];
        if (!part->group && !part->group_leaves.first)
            return dcp_error_set(DCP_ERR_MISSING_KEY,
                                 "the parameter \"%s\" is in no group of the optimizer's state",
                                 parameter->name);
        if (conversion->form == DCP_OPTIMIZER_BY_POSITION && some && !parameter->frozen &&
            !optimizer_part_has_state(part))
            return dcp_error_set(DCP_ERR_MISSING_KEY,
                                 "the optimizer's state has no entry for the parameter \"%s\"",
                                 parameter->name);
    }
    return DCP_OK;
}

static dcp_status convert(struct conversion *conversion, const dcp_state *tree)
{
    RETURN_IF_ERROR(optimizer_source_read(&conversion->source, tree));
    RETURN_IF_ERROR(check_complete(conversion));
    if (conversion->form != DCP_OPTIMIZER_FLAT)
        return write_nested(conversion);
    for (size_t p = 0; p < conversion->source.options->parameter_count; p++)
        RETURN_IF_ERROR(write_flat(conversion, p));
    return DCP_OK;
}

dcp_status dcp_optimizer_convert_sized(const dcp_state *source,
                                       const dcp_optimizer_options *optimizer, size_t options_size,
                                       dcp_optimizer_form form, dcp_state *into)
{
    dcp_optimizer_options options;
    RETURN_IF_ERROR(
        sized_read(&options, sizeof options, optimizer, options_size, "dcp_optimizer_options"));
    if ((unsigned)form > DCP_OPTIMIZER_FLAT)
        return dcp_error_set(DCP_ERR_ARGUMENT, "form is %d, which is not a defined value",
                             (int)form);
    if (!into || !node_is_dict(into) || (source && into->root == source->root))
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "an optimizer's state is converted into a dict of another tree");
    RETURN_IF_ERROR(dcp_state_status(into));
    struct conversion conversion = {.form = form, .into = into};
    dcp_status status = optimizer_source_init(&conversion.source, &options);
    if (status == DCP_OK)
        status = convert(&conversion, source);
    optimizer_source_free(&conversion.source);
    return status;
}
