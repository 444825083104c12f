/* SPDX-License-Identifier: BSD-3-Clause */
/* metadata.json: the save has not told its sum to anybody, but that it is JSON can be checked. */
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "format/json/json_reader.h"
#include "storage/open/directory.h"
#include "storage/verify/verification.h"

/* Whether the text is a JSON object; *other: it names another save. */
static dcp_status read_object(struct json_reader *json, const char *save_id, bool *other)
{
    struct json_text key, value;
    bool more;
    *other = false;
    RETURN_IF_ERROR(json_enter_object(json));
    for (;;) {
        RETURN_IF_ERROR(json_next_member(json, &more, &key));
        if (!more)
            return json_end(json);
        if (json_text_is(key, "save_id") && json_peek(json) == JSON_STRING) {
            RETURN_IF_ERROR(json_string(json, &value));
            *other = !json_text_is(value, save_id);
        } else {
            RETURN_IF_ERROR(json_skip(json));
        }
    }
}

dcp_status verify_json(struct verification *verification)
{
    const struct metadata *metadata = verification->metadata;
    struct json_reader json;
    struct buffer text;
    struct arena arena;
    bool other = false;
    if (!verification->some_footers)
        return DCP_OK;
    arena_init(&arena, 0);
    buffer_init(&text, 0);
    dcp_status status =
        shard_reader_read_beside(verification->reader, JSON_NAME, JSON_LIMIT, &text);
    if (status == DCP_OK) {
        json_init(&json, JSON_NAME, (const char *)text.data, text.size, &arena);
        json.python = true; /* other programs add to it */
        status = read_object(&json, metadata->save_id, &other);
    } else if (status == DCP_ERR_NOT_FOUND) {
        status = DCP_OK; /* nothing is read with it, and not every save has one */
    }
    if (status == DCP_OK && other)
        log_line(DCP_LOG_INFO, "%s%s" JSON_NAME " is of another save",
                 verification->member ? verification->member : "", verification->member ? "/" : "");
    buffer_free(&text);
    arena_free(&arena);
    return verification_judge(verification, status, JSON_NAME, 0, "");
}
