/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/model_config.h"

#include <string.h>

#include "base/error.h"
#include "format/json/json_reader.h"

#define CONFIG_NAME "config.json"

static dcp_status copy_string(struct json_reader *json, struct arena *arena, const char **value)
{
    struct json_text text;
    RETURN_IF_ERROR(json_string(json, &text));
    *value = arena_copy_text(arena, text.bytes, text.length);
    return *value ? DCP_OK : error_no_memory(text.length, CONFIG_NAME);
}

/* No method is none; older files of bitsandbytes and those of ModelOpt say other things. */
static dcp_status read_quantization(struct json_reader *json, struct arena *arena,
                                    struct model_config *config)
{
    const char *named = NULL, *implied = NULL;
    struct json_text key;
    bool more;
    if (json_peek(json) != JSON_OBJECT)
        return json_skip(json);
    RETURN_IF_ERROR(json_enter_object(json));
    for (;;) {
        RETURN_IF_ERROR(json_next_member(json, &more, &key));
        if (!more)
            break;
        enum json_kind kind = json_peek(json);
        if (kind == JSON_TRUE &&
            (json_text_is(key, "load_in_4bit") || json_text_is(key, "load_in_8bit")))
            implied = "bitsandbytes";
        if (kind == JSON_STRING && json_text_is(key, "quant_algo"))
            implied = "modelopt";
        if (kind == JSON_STRING && json_text_is(key, "quant_method"))
            RETURN_IF_ERROR(copy_string(json, arena, &named));
        else
            RETURN_IF_ERROR(json_skip(json));
    }
    if (named || implied)
        config->quant_method = named ? named : implied;
    return DCP_OK;
}

/* nested: it is text_config, whose own are not entered. */
static dcp_status read_members(struct json_reader *json, bool nested, struct arena *arena,
                               struct model_config *config)
{
    struct json_text key;
    bool more;
    RETURN_IF_ERROR(json_enter_object(json));
    for (;;) {
        RETURN_IF_ERROR(json_next_member(json, &more, &key));
        if (!more)
            return DCP_OK;
        enum json_kind kind = json_peek(json);
        if (json_text_is(key, "tie_word_embeddings"))
            config->tied |= kind == JSON_TRUE;
        if (json_text_is(key, "quantization_config"))
            RETURN_IF_ERROR(read_quantization(json, arena, config));
        else if (json_text_is(key, "text_config") && kind == JSON_OBJECT && !nested)
            RETURN_IF_ERROR(read_members(json, true, arena, config));
        else
            RETURN_IF_ERROR(json_skip(json));
    }
}

dcp_status model_config_read(const char *text, size_t size, struct arena *arena,
                             struct model_config *config)
{
    struct json_reader json;
    *config = (struct model_config){0};
    json_init(&json, CONFIG_NAME, text, size, arena);
    json.python = true;
    RETURN_IF_ERROR(read_members(&json, false, arena, config));
    return json_end(&json);
}

dcp_status model_config_find(const char *text, size_t size, const char *key, struct arena *arena,
                             const char **value)
{
    struct json_reader json;
    struct json_text found;
    bool more;
    *value = NULL;
    json_init(&json, "metadata.json", text, size, arena);
    json.python = true;
    RETURN_IF_ERROR(json_enter_object(&json));
    for (;;) {
        RETURN_IF_ERROR(json_next_member(&json, &more, &found));
        if (!more)
            return json_end(&json);
        if (json_text_is(found, key) && json_peek(&json) == JSON_STRING)
            RETURN_IF_ERROR(copy_string(&json, arena, value));
        else
            RETURN_IF_ERROR(json_skip(&json));
    }
}

static bool ends_in_config(struct json_text key)
{
    size_t suffix = strlen("_config");
    return key.length > suffix && !json_text_is(key, "quantization_config") &&
           memcmp(key.bytes + key.length - suffix, "_config", suffix) == 0;
}

/* copied: bytes of the text that are in out. */
static dcp_status retype_members(struct json_reader *json, const char *dtype, bool nested,
                                 size_t *copied, struct buffer *out)
{
    struct json_text key, value;
    bool more;
    RETURN_IF_ERROR(json_enter_object(json));
    for (;;) {
        RETURN_IF_ERROR(json_next_member(json, &more, &key));
        if (!more)
            return DCP_OK;
        enum json_kind kind = json_peek(json); /* stands at the value */
        if (kind == JSON_OBJECT && !nested && ends_in_config(key)) {
            RETURN_IF_ERROR(retype_members(json, dtype, true, copied, out));
        } else if (kind == JSON_STRING &&
                   (json_text_is(key, "dtype") || json_text_is(key, "torch_dtype"))) {
            buffer_append(out, json->text + *copied, json->position - *copied);
            RETURN_IF_ERROR(json_string(json, &value));
            buffer_append_format(out, "\"%s\"", dtype);
            *copied = json->position;
        } else {
            RETURN_IF_ERROR(json_skip(json));
        }
    }
}

dcp_status model_config_retype(const char *text, size_t size, dcp_dtype dtype, struct buffer *out)
{
    struct json_reader json;
    struct arena arena;
    size_t copied = 0;
    arena_init(&arena, 0);
    json_init(&json, CONFIG_NAME, text, size, &arena);
    json.python = true;
    dcp_status status = retype_members(&json, dcp_dtype_name(dtype), false, &copied, out);
    if (status == DCP_OK)
        status = json_end(&json);
    buffer_append(out, text + copied, size - copied);
    arena_free(&arena);
    return status == DCP_OK ? buffer_status(out) : status;
}
