/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/quantization_config.h"

#include <string.h>

#include "base/error.h"
#include "convert/module_pattern.h"
#include "format/json/json_reader.h"

#define CONFIG_NAME "config.json: quantization_config"

typedef dcp_status (*member_reader)(struct json_reader *json, struct json_text key, void *into);

/* Calls the reader for each member of an object; other values are skipped. */
static dcp_status read_object(struct json_reader *json, member_reader reader, void *into)
{
    struct json_text key;
    bool more;
    if (json_peek(json) != JSON_OBJECT)
        return json_skip(json);
    RETURN_IF_ERROR(json_enter_object(json));
    for (;;) {
        RETURN_IF_ERROR(json_next_member(json, &more, &key));
        if (!more)
            return DCP_OK;
        RETURN_IF_ERROR(reader(json, key, into));
    }
}

static dcp_status copy_text(struct json_reader *json, struct json_text text, const char **value)
{
    *value = arena_copy_text(json->arena, text.bytes, text.length);
    return *value ? DCP_OK : error_no_memory(text.length, CONFIG_NAME);
}

/* Null and values of other kinds say nothing. */
static dcp_status read_text(struct json_reader *json, const char **value)
{
    struct json_text text;
    if (json_peek(json) != JSON_STRING)
        return json_skip(json);
    RETURN_IF_ERROR(json_string(json, &text));
    return copy_text(json, text, value);
}

static dcp_status read_number(struct json_reader *json, uint64_t *value)
{
    return json_peek(json) == JSON_NUMBER ? json_u64(json, value) : json_skip(json);
}

/* The height and width of a block. */
static dcp_status read_block(struct json_reader *json, uint64_t block[2])
{
    size_t count = 0;
    uint64_t value;
    bool more;
    if (json_peek(json) != JSON_ARRAY)
        return json_skip(json);
    RETURN_IF_ERROR(json_enter_array(json));
    for (;; count++) {
        RETURN_IF_ERROR(json_next_element(json, &more));
        if (!more)
            break;
        RETURN_IF_ERROR(json_u64(json, &value));
        if (count < 2)
            block[count] = value;
    }
    if (count != 2 || block[0] == 0 || block[1] == 0 || block[0] > INT64_MAX ||
        block[1] > INT64_MAX)
        return dcp_error_set(DCP_ERR_FORMAT, CONFIG_NAME ": a block has not two sides");
    return DCP_OK;
}

static dcp_status read_targets(struct json_reader *json, const struct quantization_target **first)
{
    const struct quantization_target **end = first;
    bool more;
    if (json_peek(json) != JSON_ARRAY)
        return json_skip(json);
    RETURN_IF_ERROR(json_enter_array(json));
    for (;;) {
        RETURN_IF_ERROR(json_next_element(json, &more));
        if (!more)
            return DCP_OK;
        struct quantization_target *target = arena_allocate(json->arena, sizeof *target);
        if (!target)
            return error_no_memory(sizeof *target, CONFIG_NAME);
        *target = (struct quantization_target){.text = ""};
        RETURN_IF_ERROR(read_text(json, &target->text));
        *end = target;
        end = &target->next;
    }
}

static dcp_status read_weights_member(struct json_reader *json, struct json_text key, void *into)
{
    struct quantization_group *group = into;
    if (json_text_is(key, "num_bits"))
        return read_number(json, &group->bits);
    if (json_text_is(key, "type"))
        return read_text(json, &group->type);
    if (json_text_is(key, "strategy"))
        return read_text(json, &group->strategy);
    if (json_text_is(key, "group_size"))
        return read_number(json, &group->group_size);
    if (json_text_is(key, "block_structure"))
        return read_block(json, group->block);
    return json_skip(json);
}

static dcp_status read_group_member(struct json_reader *json, struct json_text key, void *into)
{
    struct quantization_group *group = into;
    if (json_text_is(key, "format"))
        return read_text(json, &group->format);
    if (json_text_is(key, "targets"))
        return read_targets(json, &group->targets);
    if (json_text_is(key, "weights")) {
        group->has_weights = json_peek(json) == JSON_OBJECT;
        return read_object(json, read_weights_member, group);
    }
    return json_skip(json);
}

/* One of config_groups; into: where the next one goes. */
static dcp_status read_group(struct json_reader *json, struct json_text key, void *into)
{
    struct quantization_group ***end = into;
    struct quantization_group *group = arena_allocate(json->arena, sizeof *group);
    if (!group)
        return error_no_memory(sizeof *group, CONFIG_NAME);
    *group = (struct quantization_group){0};
    RETURN_IF_ERROR(copy_text(json, key, &group->name));
    RETURN_IF_ERROR(read_object(json, read_group_member, group));
    **end = group;
    *end = &group->next;
    return DCP_OK;
}

static dcp_status read_quantization_member(struct json_reader *json, struct json_text key,
                                           void *into)
{
    struct quantization_config *config = into;
    struct quantization_group **end = &config->groups;
    if (json_text_is(key, "quant_method"))
        return read_text(json, &config->method);
    if (json_text_is(key, "format"))
        return read_text(json, &config->format);
    if (json_text_is(key, "version") && json_peek(json) == JSON_STRING)
        return read_text(json, &config->version);
    if (json_text_is(key, "weight_block_size"))
        return read_block(json, config->block);
    if (json_text_is(key, "config_groups"))
        return read_object(json, read_group, &end);
    return json_skip(json);
}

static dcp_status read_text_member(struct json_reader *json, struct json_text key, void *into)
{
    if (json_text_is(key, "quantization_config"))
        return read_object(json, read_quantization_member, into);
    return json_skip(json);
}

static dcp_status read_member(struct json_reader *json, struct json_text key, void *into)
{
    if (json_text_is(key, "text_config"))
        return read_object(json, read_text_member, into);
    return read_text_member(json, key, into);
}

dcp_status quantization_config_read(const char *text, size_t size, struct arena *arena,
                                    struct quantization_config *config)
{
    struct json_reader json;
    *config = (struct quantization_config){0};
    json_init(&json, CONFIG_NAME, text, size, arena);
    json.python = true;
    RETURN_IF_ERROR(read_object(&json, read_member, config));
    return json_end(&json);
}

/* The target of a group that fits a module best; *match: how. */
static dcp_status find_target(const struct quantization_group *group, const char *module,
                              const char **text, enum module_match *match)
{
    *match = MODULE_NO_MATCH;
    for (const struct quantization_target *target = group->targets; target; target = target->next) {
        enum module_match found;
        RETURN_IF_ERROR(module_pattern_match(target->text, module, &found));
        if (found < *match ||
            (found == *match && found != MODULE_NO_MATCH && strcmp(target->text, *text) < 0)) {
            *match = found;
            *text = target->text;
        }
    }
    return DCP_OK;
}

/* Of equal targets the last one counts. */
static dcp_status find_best(const struct quantization_config *config, const char *module,
                            const struct quantization_group **group)
{
    enum module_match best = MODULE_NO_MATCH, match;
    const char *best_text = "", *text = "";
    *group = NULL;
    for (const struct quantization_group *each = config->groups; each; each = each->next) {
        if (!each->has_weights)
            continue;
        RETURN_IF_ERROR(find_target(each, module, &text, &match));
        if (match == MODULE_NO_MATCH || match > best ||
            (match == best && strcmp(text, best_text) > 0))
            continue;
        *group = each;
        best = match;
        best_text = text;
    }
    return DCP_OK;
}

dcp_status quantization_config_find(const struct quantization_config *config, const char *module,
                                    const struct quantization_group **group)
{
    size_t count = 0;
    *group = config->groups;
    for (const struct quantization_group *each = config->groups; each; each = each->next)
        if (each->has_weights && count++ == 0)
            *group = each;
    if (*group && count <= 1)
        return DCP_OK;
    RETURN_IF_ERROR(find_best(config, module, group));
    return *group ? DCP_OK
                  : dcp_error_set(DCP_ERR_FORMAT,
                                  CONFIG_NAME ": none of config_groups is for \"%s\"", module);
}
