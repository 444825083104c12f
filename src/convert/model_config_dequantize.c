/* SPDX-License-Identifier: BSD-3-Clause */
/* config.json of a model that is quantized no more. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "convert/model_config.h"
#include "format/json/json_reader.h"

/* Text that is copied but for members that are taken out. */
struct removal {
    struct json_reader json;
    struct buffer *out;
    size_t copied; /* bytes of the text that are done with */
};

/* Where the comma behind a value ends; where the value ends, if there is none. */
static size_t after_comma(const struct json_reader *json)
{
    size_t at = json->position;
    while (at < json->size && memchr(" \t\r\n", json->text[at], 4))
        at++;
    return at < json->size && json->text[at] == ',' ? at + 1 : json->position;
}

/* Takes a member out that began behind `before`, where the one before it, or the brace, ended;
 * one comma goes with it. */
static dcp_status remove_member(struct removal *removal, size_t before, bool is_first,
                                const char *instead)
{
    struct json_reader *json = &removal->json;
    if (before > removal->copied) /* else a comma went with the one before */
        buffer_append(removal->out, json->text + removal->copied, before - removal->copied);
    RETURN_IF_ERROR(json_skip(json));
    removal->copied = json->position;
    if (instead)
        buffer_append_format(removal->out, "%s\n  \"dtype\": \"%s\"", is_first ? "" : ",", instead);
    else if (is_first)
        removal->copied = after_comma(json);
    return DCP_OK;
}

/* instead: the dtype that stands in the place of the outermost one; NULL: nothing does. */
static dcp_status remove_members(struct removal *removal, const char *instead, bool nested)
{
    struct json_reader *json = &removal->json;
    struct json_text key;
    bool more, is_first = true;
    RETURN_IF_ERROR(json_enter_object(json));
    for (;; is_first = false) {
        size_t before = json->position;
        RETURN_IF_ERROR(json_next_member(json, &more, &key));
        if (!more)
            return DCP_OK;
        if (json_text_is(key, "quantization_config"))
            RETURN_IF_ERROR(remove_member(removal, before, is_first, instead));
        else if (json_text_is(key, "text_config") && json_peek(json) == JSON_OBJECT && !nested)
            RETURN_IF_ERROR(remove_members(removal, NULL, true));
        else
            RETURN_IF_ERROR(json_skip(json));
    }
}

static dcp_status says_dtype(const char *text, size_t size, struct arena *arena, bool *says)
{
    const char *dtype, *torch_dtype;
    RETURN_IF_ERROR(model_config_find(text, size, "dtype", arena, &dtype));
    RETURN_IF_ERROR(model_config_find(text, size, "torch_dtype", arena, &torch_dtype));
    *says = dtype || torch_dtype;
    return DCP_OK;
}

dcp_status model_config_dequantize(const char *text, size_t size, dcp_dtype dtype,
                                   struct buffer *out)
{
    struct removal removal = {.out = NULL};
    struct buffer plain;
    struct arena arena;
    bool says;
    arena_init(&arena, 0);
    buffer_init(&plain, 0);
    removal.out = &plain;
    json_init(&removal.json, "config.json", text, size, &arena);
    removal.json.python = true;
    dcp_status status = says_dtype(text, size, &arena, &says);
    if (status == DCP_OK)
        status = remove_members(&removal, says ? NULL : dcp_dtype_name(dtype), false);
    if (status == DCP_OK)
        status = json_end(&removal.json);
    buffer_append(&plain, text + removal.copied, size - removal.copied);
    if (status == DCP_OK)
        status = buffer_status(&plain);
    if (status == DCP_OK)
        status = model_config_retype((const char *)plain.data, plain.size, dtype, out);
    buffer_free(&plain);
    arena_free(&arena);
    return status;
}
