/* SPDX-License-Identifier: BSD-3-Clause */
/* A transform file's JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "convert/transform.h"
#include "convert/transform_pattern.h"
#include "format/json/json_reader.h"

enum { RULES_MAX = 4096, TEXTS_MAX = 64, VALUES_DEPTH = 8 };

/* A value of the file or of config.json: a number, or another name. */
struct value {
    const char *name;
    const char *same_as; /* NULL: a number */
    uint64_t number;
    const struct value *next;
};

struct reading {
    struct json_reader json;
    const struct value *values; /* config.json's come first */
    const struct value **end;
    struct transform *transform;
    struct transform_rule *rule; /* that is read */
    bool has_operation;
};

/* What the members of a rule say which operation it is. */
static const struct {
    const char *name;
    enum transform_kind kind;
} operations[] = {
    {"rename", TRANSFORM_RENAME},   {"join", TRANSFORM_JOIN},
    {"split", TRANSFORM_SPLIT},     {"stack", TRANSFORM_STACK},
    {"unstack", TRANSFORM_UNSTACK}, {"transpose", TRANSFORM_TRANSPOSE},
    {"cast", TRANSFORM_CAST},       {"permute_heads", TRANSFORM_PERMUTE},
    {"pad", TRANSFORM_PAD},         {"unpermute_heads", TRANSFORM_UNPERMUTE},
    {"cut", TRANSFORM_CUT},         {"drop", TRANSFORM_DROP},
    {"tie", TRANSFORM_TIE},         {"untie", TRANSFORM_UNTIE},
};

static dcp_status wrong(const struct reading *reading, const char *what)
{
    return dcp_error_set(DCP_ERR_ARGUMENT, "%s: rule %zu: %s", reading->json.what,
                         reading->rule ? reading->rule->number : 0, what);
}

static dcp_status unknown_member(const struct reading *reading, struct json_text key)
{
    return dcp_error_set(DCP_ERR_ARGUMENT, "%s: rule %zu: an unknown member \"%.*s\"",
                         reading->json.what, reading->rule->number,
                         (int)(key.length < 64 ? key.length : 64), key.bytes);
}

static dcp_status read_text(struct reading *reading, const char **value)
{
    struct json_text text;
    RETURN_IF_ERROR(json_string(&reading->json, &text));
    *value = arena_copy_text(reading->json.arena, text.bytes, text.length);
    return *value ? DCP_OK : error_no_memory(text.length, "a transform file");
}

/* A text, or a list of them. */
static dcp_status read_texts(struct reading *reading, const char ***texts, size_t *count)
{
    bool more;
    *texts = arena_allocate_array(reading->json.arena, TEXTS_MAX, sizeof **texts);
    *count = 0;
    if (!*texts)
        return error_no_memory(TEXTS_MAX * sizeof **texts, "a transform file");
    if (json_peek(&reading->json) == JSON_STRING)
        return read_text(reading, &(*texts)[(*count)++]);
    RETURN_IF_ERROR(json_enter_array(&reading->json));
    for (;;) {
        RETURN_IF_ERROR(json_next_element(&reading->json, &more));
        if (!more)
            return *count > 0 ? DCP_OK : wrong(reading, "an empty list of names");
        if (*count == TEXTS_MAX)
            return wrong(reading, "too many names");
        RETURN_IF_ERROR(read_text(reading, &(*texts)[(*count)++]));
    }
}

/* ---- numbers ---- */

static dcp_status find_value(const struct reading *reading, const char *name, uint64_t *number)
{
    const char *wanted = name;
    for (int depth = 0; depth < VALUES_DEPTH && wanted; depth++) {
        const struct value *value = reading->values;
        while (value && strcmp(value->name, wanted) != 0)
            value = value->next;
        if (value && !value->same_as) {
            *number = value->number;
            return DCP_OK;
        }
        wanted = value ? value->same_as : NULL;
    }
    return dcp_error_set(DCP_ERR_ARGUMENT,
                         "%s: rule %zu: config.json says nothing of \"%s\": give the one of the "
                         "model",
                         reading->json.what, reading->rule->number, name);
}

/* A number, or the name of one. */
static dcp_status read_number(struct reading *reading, uint64_t *number)
{
    const char *name;
    if (json_peek(&reading->json) != JSON_STRING) {
        RETURN_IF_ERROR(json_u64(&reading->json, number));
    } else {
        RETURN_IF_ERROR(read_text(reading, &name));
        RETURN_IF_ERROR(find_value(reading, name, number));
    }
    return *number <= INT32_MAX ? DCP_OK : wrong(reading, "a number of more than 2^31");
}

/* At most `most` of them; 0: a list that ends there is made. */
static dcp_status read_numbers(struct reading *reading, uint64_t *numbers, size_t most,
                               size_t *count)
{
    bool more;
    *count = 0;
    RETURN_IF_ERROR(json_enter_array(&reading->json));
    for (;;) {
        RETURN_IF_ERROR(json_next_element(&reading->json, &more));
        if (!more)
            return DCP_OK;
        if (*count == most)
            return wrong(reading, "too many numbers");
        RETURN_IF_ERROR(read_number(reading, &numbers[(*count)++]));
    }
}

static dcp_status add_value(struct reading *reading, struct arena *arena, const struct value *given)
{
    struct value *value = arena_allocate(arena, sizeof *value);
    if (!value)
        return error_no_memory(sizeof *value, "a transform file");
    *value = *given;
    *reading->end = value;
    reading->end = &value->next;
    return DCP_OK;
}

/* Members of an object that are whole numbers or, if named, names of others; of text_config too. */
static dcp_status read_values(struct reading *reading, struct json_reader *json, bool named,
                              bool nested)
{
    struct json_text key, text;
    bool more, whole;
    RETURN_IF_ERROR(json_enter_object(json));
    for (;;) {
        struct value value = {0};
        RETURN_IF_ERROR(json_next_member(json, &more, &key));
        if (!more)
            return DCP_OK;
        struct json_reader ahead = *json;
        enum json_kind kind = json_peek(json);
        value.name = arena_copy_text(json->arena, key.bytes, key.length);
        if (!value.name)
            return error_no_memory(key.length, "a transform file");
        bool taken = kind == JSON_NUMBER && json_number(&ahead, &text, &whole) == DCP_OK && whole &&
                     *text.bytes != '-';
        if (taken) {
            RETURN_IF_ERROR(json_u64(json, &value.number));
        } else if (kind == JSON_STRING && named) {
            RETURN_IF_ERROR(json_string(json, &text));
            value.same_as = arena_copy_text(json->arena, text.bytes, text.length);
            taken = value.same_as != NULL;
        } else if (kind == JSON_OBJECT && !named && !nested && json_text_is(key, "text_config")) {
            RETURN_IF_ERROR(read_values(reading, json, false, true));
        } else {
            RETURN_IF_ERROR(json_skip(json));
        }
        if (taken)
            RETURN_IF_ERROR(add_value(reading, json->arena, &value));
    }
}

/* ---- rules ---- */

static dcp_status read_operation(struct reading *reading, enum transform_kind kind)
{
    if (reading->has_operation)
        return wrong(reading, "two operations");
    reading->has_operation = true;
    reading->rule->kind = kind;
    return read_texts(reading, &reading->rule->from, &reading->rule->from_count);
}

static dcp_status read_dtype(struct reading *reading, dcp_dtype *dtype)
{
    const char *name;
    RETURN_IF_ERROR(read_text(reading, &name));
    *dtype = dcp_dtype_from_name(name);
    return *dtype != DCP_DTYPE_NONE ? DCP_OK : wrong(reading, "an unknown dtype");
}

static dcp_status read_direction(struct reading *reading)
{
    const char *text;
    RETURN_IF_ERROR(read_text(reading, &text));
    reading->rule->forward_only = strcmp(text, "forward") == 0;
    reading->rule->inverse_only = strcmp(text, "inverse") == 0;
    return reading->rule->forward_only || reading->rule->inverse_only
               ? DCP_OK
               : wrong(reading, "\"only\" is \"forward\" or \"inverse\"");
}

static dcp_status read_parts(struct reading *reading)
{
    size_t count;
    reading->rule->parts =
        arena_allocate_array(reading->json.arena, TEXTS_MAX, sizeof *reading->rule->parts);
    if (!reading->rule->parts)
        return error_no_memory(TEXTS_MAX * sizeof(uint64_t), "a transform file");
    memset(reading->rule->parts, 0, TEXTS_MAX * sizeof *reading->rule->parts);
    return read_numbers(reading, reading->rule->parts, TEXTS_MAX, &count);
}

static dcp_status read_flag(struct reading *reading, bool *flag)
{
    *flag = json_peek(&reading->json) == JSON_TRUE;
    return json_skip(&reading->json);
}

static dcp_status read_rule_member(struct reading *reading, struct json_text key)
{
    struct transform_rule *rule = reading->rule;
    size_t count;
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (json_text_is(key, operations[i].name))
            return read_operation(reading, operations[i].kind);
    if (json_text_is(key, "to") || json_text_is(key, "with"))
        return read_texts(reading, &rule->to, &rule->to_count);
    if (json_text_is(key, "dim"))
        return read_number(reading, &rule->dims[0]);
    if (json_text_is(key, "dims"))
        return read_numbers(reading, rule->dims, 2, &count);
    if (json_text_is(key, "parts"))
        return read_parts(reading);
    if (json_text_is(key, "groups"))
        return read_number(reading, &rule->groups);
    if (json_text_is(key, "heads"))
        return read_number(reading, &rule->heads);
    if (json_text_is(key, "multiple"))
        return read_number(reading, &rule->multiple);
    if (json_text_is(key, "size"))
        return read_number(reading, &rule->size);
    if (json_text_is(key, "dtype"))
        return read_dtype(reading, &rule->dtype);
    if (json_text_is(key, "from"))
        return read_dtype(reading, &rule->stored);
    if (json_text_is(key, "optional"))
        return read_flag(reading, &rule->optional);
    if (json_text_is(key, "only"))
        return read_direction(reading);
    return json_text_is(key, "comment") ? json_skip(&reading->json) : unknown_member(reading, key);
}

/* ---- what a rule needs ---- */

static bool keeps_names(enum transform_kind kind)
{
    return kind != TRANSFORM_RENAME && kind != TRANSFORM_JOIN && kind != TRANSFORM_SPLIT &&
           kind != TRANSFORM_STACK && kind != TRANSFORM_UNSTACK && kind != TRANSFORM_TIE &&
           kind != TRANSFORM_UNTIE;
}

/* All patterns of a rule have the same stars, so that it can be inverted; a number where tensors
 * are stacked. */
static dcp_status check_patterns(const struct reading *reading)
{
    const struct transform_rule *rule = reading->rule;
    size_t stars, numbers, expected = 0;
    for (size_t i = 0; i < rule->from_count + rule->to_count; i++) {
        bool source = i < rule->from_count;
        bool numbered = rule->kind == TRANSFORM_STACK     ? source
                        : rule->kind == TRANSFORM_UNSTACK ? !source
                                                          : false;
        RETURN_IF_ERROR(transform_pattern_count(
            source ? rule->from[i] : rule->to[i - rule->from_count], &stars, &numbers));
        expected = i == 0 ? stars : expected;
        if (stars != expected || (numbers > 0) != numbered)
            return wrong(reading, "its names have different stars, or \"#\" where nothing is "
                                  "stacked");
    }
    return DCP_OK;
}

static dcp_status check_rule(const struct reading *reading)
{
    const struct transform_rule *rule = reading->rule;
    bool joins = rule->kind == TRANSFORM_JOIN, splits = rule->kind == TRANSFORM_SPLIT;
    bool needs_to = !keeps_names(rule->kind);
    size_t pieces = joins ? rule->from_count : rule->to_count;
    if (!reading->has_operation)
        return wrong(reading, "no operation");
    if ((rule->from_count > 1 && !joins) || (rule->to_count > 1 && !splits) ||
        (rule->to_count > 0) != needs_to)
        return wrong(reading, "its operation takes another number of names");
    for (size_t i = 0; i < pieces && rule->parts; i++)
        if ((joins || splits) && rule->parts[i] == 0)
            return wrong(reading, "\"parts\" has not a number for each name");
    if (rule->kind == TRANSFORM_CAST && rule->dtype == DCP_DTYPE_NONE)
        return wrong(reading, "a cast without a dtype");
    if ((rule->kind == TRANSFORM_PERMUTE || rule->kind == TRANSFORM_UNPERMUTE) && rule->heads == 0)
        return wrong(reading, "\"heads\" is missing");
    if ((rule->kind == TRANSFORM_PAD && rule->multiple == 0) || rule->groups == 0)
        return wrong(reading, "\"multiple\" or \"groups\" is 0");
    if (rule->kind == TRANSFORM_CUT && rule->size == 0)
        return wrong(reading, "\"size\" is missing");
    return check_patterns(reading);
}

static dcp_status read_rule(struct reading *reading)
{
    struct json_text key;
    bool more;
    reading->rule = &reading->transform->rules[reading->transform->count];
    *reading->rule = (struct transform_rule){.number = ++reading->transform->count, .groups = 1};
    reading->has_operation = false;
    RETURN_IF_ERROR(json_enter_object(&reading->json));
    for (;;) {
        RETURN_IF_ERROR(json_next_member(&reading->json, &more, &key));
        if (!more)
            return check_rule(reading);
        RETURN_IF_ERROR(read_rule_member(reading, key));
    }
}

static dcp_status read_rules(struct reading *reading)
{
    struct transform *transform = reading->transform;
    bool more;
    transform->rules =
        arena_allocate_array(reading->json.arena, RULES_MAX, sizeof *transform->rules);
    if (!transform->rules)
        return error_no_memory(RULES_MAX * sizeof *transform->rules, "a transform file");
    RETURN_IF_ERROR(json_enter_array(&reading->json));
    for (;;) {
        RETURN_IF_ERROR(json_next_element(&reading->json, &more));
        if (!more)
            return DCP_OK;
        if (transform->count == RULES_MAX)
            return wrong(reading, "too many rules");
        RETURN_IF_ERROR(read_rule(reading));
    }
}

static dcp_status read_others(struct reading *reading)
{
    static const char *const names[] = {"keep", "drop", "refuse"};
    const char *text;
    RETURN_IF_ERROR(read_text(reading, &text));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i]) == 0) {
            reading->transform->others = (enum transform_others)i;
            return DCP_OK;
        }
    return wrong(reading, "\"others\" is \"keep\", \"drop\" or \"refuse\"");
}

/* The file is read twice, as rules may name values that stand behind them. */
static dcp_status read_members(struct reading *reading, bool rules)
{
    struct json_text key;
    bool more;
    RETURN_IF_ERROR(json_enter_object(&reading->json));
    for (;;) {
        RETURN_IF_ERROR(json_next_member(&reading->json, &more, &key));
        if (!more)
            return json_end(&reading->json);
        bool is_values = json_text_is(key, "values"), is_rules = json_text_is(key, "rules");
        bool is_others = json_text_is(key, "others");
        if (!is_values && !is_rules && !is_others && !json_text_is(key, "comment"))
            return wrong(reading, "an unknown member of the file");
        if (is_values && !rules)
            RETURN_IF_ERROR(read_values(reading, &reading->json, true, true));
        else if (is_rules && rules)
            RETURN_IF_ERROR(read_rules(reading));
        else if (is_others && rules)
            RETURN_IF_ERROR(read_others(reading));
        else
            RETURN_IF_ERROR(json_skip(&reading->json));
    }
}

dcp_status transform_read(const char *path, const char *text, size_t size, const char *config,
                          size_t config_size, struct arena *arena, struct transform *transform)
{
    struct reading reading = {.transform = transform};
    struct json_reader json;
    *transform = (struct transform){0};
    reading.end = &reading.values;
    if (config) {
        json_init(&json, "config.json", config, config_size, arena);
        json.python = true;
        RETURN_IF_ERROR(read_values(&reading, &json, false, false));
    }
    json_init(&reading.json, path, text, size, arena);
    RETURN_IF_ERROR(read_members(&reading, false));
    json_init(&reading.json, path, text, size, arena);
    return read_members(&reading, true);
}
