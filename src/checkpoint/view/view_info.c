/* SPDX-License-Identifier: BSD-3-Clause */
/* What metadata.json says of a checkpoint, read back. */
#include <string.h>

#include "base/error.h"
#include "base/sized.h"
#include "checkpoint/view/view.h"
#include "format/json/json_state.h"
#include "storage/open/directory.h"

/* The dict that the text is. It lives in the root's pool. */
static dcp_status parse(const struct buffer *text, dcp_state *root, dcp_state **dict)
{
    struct json_reader reader;
    json_init(&reader, JSON_NAME, (const char *)text->data, text->size, &root->pool->arena);
    if (json_peek(&reader) != JSON_OBJECT)
        return dcp_error_set(DCP_ERR_FORMAT, "%s is not a JSON object", JSON_NAME);
    RETURN_IF_ERROR(json_read_state(&reader, root->pool, dict));
    return json_end(&reader);
}

/* *value: 0 where there is no such key. */
static dcp_status find_integer(const dcp_state *dict, const char *key, int64_t *value, bool *found)
{
    const dcp_state *node = dcp_state_find(dict, key);
    *found = node != NULL;
    *value = 0;
    if (!node)
        return DCP_OK;
    if (dcp_state_as_int(node, value) != DCP_OK)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: \"%s\" is not a 64-bit integer", JSON_NAME, key);
    return DCP_OK;
}

static bool is_of_save(const dcp_state *id, const char *save_id)
{
    const char *text;
    size_t length;
    return id && *save_id && id->kind == DCP_KIND_STRING &&
           dcp_state_as_text(id, &text, &length) == DCP_OK && length == strlen(save_id) &&
           memcmp(text, save_id, length) == 0;
}

static dcp_status take_fields(const dcp_state *dict, dcp_save_info *info)
{
    bool found;
    int64_t ranks;
    RETURN_IF_ERROR(find_integer(dict, "step", &info->step, &info->has_step));
    RETURN_IF_ERROR(find_integer(dict, "unix_time", &info->unix_time, &found));
    RETURN_IF_ERROR(find_integer(dict, "world_size", &ranks, &found));
    info->world_size = ranks > 0 && ranks <= INT32_MAX ? (int32_t)ranks : 0;
    return DCP_OK;
}

static dcp_status take_info(const dcp_state *dict, dcp_state *parent, const char *key,
                            dcp_save_info *info)
{
    const dcp_state *node = dcp_state_find(dict, "info");
    info->has_info = node != NULL;
    if (!node)
        return DCP_OK;
    if (!node_is_dict(node))
        return dcp_error_set(DCP_ERR_FORMAT, "%s: \"info\" is not a dict", JSON_NAME);
    if (!parent || dcp_state_copy(parent, key, node))
        return DCP_OK;
    return dcp_state_status(parent);
}

static dcp_status take_text(const struct buffer *text, const char *save_id, dcp_state *parent,
                            const char *key, dcp_save_info *info)
{
    dcp_state *dict = NULL, *root = dcp_state_new();
    if (!root)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = parse(text, root, &dict);
    if (status == DCP_OK) {
        const dcp_state *id = dcp_state_find(dict, "save_id");
        info->found = is_of_save(id, save_id);
        info->stale = id && !info->found; /* Megatron-Core has a file of this name as well */
    }
    if (status == DCP_OK && info->found)
        status = take_fields(dict, info);
    if (status == DCP_OK && info->found)
        status = take_info(dict, parent, key, info);
    dcp_state_free(root);
    return status;
}

dcp_status dcp_checkpoint_info_sized(const dcp_checkpoint *checkpoint, dcp_state *parent,
                                     const char *key, dcp_save_info *info, size_t info_size)
{
    struct buffer text;
    if (!checkpoint || !info)
        return dcp_error_set(
            DCP_ERR_ARGUMENT,
            "reading the info of a save needs a checkpoint and a place for the result");
    const char *save_id = checkpoint->metadata->save_id ? checkpoint->metadata->save_id : "";
    dcp_save_info ours = {.save_id = *save_id ? save_id : NULL};
    buffer_init(&text, 0);
    dcp_status status = checkpoint->reader ? shard_reader_read_beside(checkpoint->reader, JSON_NAME,
                                                                      JSON_LIMIT, &text)
                                           : DCP_ERR_NOT_FOUND;
    if (status == DCP_OK)
        status = take_text(&text, save_id, parent, key, &ours);
    else if (status == DCP_ERR_NOT_FOUND)
        status = DCP_OK;
    buffer_free(&text);
    if (status == DCP_OK)
        sized_write(info, info_size, &ours, sizeof ours);
    return status;
}
