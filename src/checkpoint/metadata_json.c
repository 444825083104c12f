/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/metadata_json.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

/* cJSON keeps numbers as doubles, which do not hold every 64-bit integer. */
static bool add_integer(cJSON *object, const char *key, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    return cJSON_AddRawToObject(object, key, text) != NULL;
}

static bool add_time(cJSON *object)
{
    char text[32];
    struct tm parts;
    time_t seconds = (time_t)(clock_wall_ns() / 1000000000);

    if (!gmtime_r(&seconds, &parts) || !strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts))
        return false;
    return cJSON_AddStringToObject(object, "time", text) &&
           add_integer(object, "unix_time", seconds);
}

static bool add_totals(cJSON *object, const struct metadata *metadata)
{
    int64_t tensors = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < metadata->count; i++) {
        const struct metadata_entry *entry = &metadata->entries[i];
        uint64_t entry_bytes = 0;
        if (!entry->is_tensor)
            continue;
        tensors++;
        if (shape_bytes(entry->ndim, entry->global_shape, entry->dtype, &entry_bytes))
            bytes += entry_bytes;
    }
    return add_integer(object, "tensors", tensors) &&
           add_integer(object, "objects", (int64_t)metadata->count - tensors) &&
           add_integer(object, "tensor_bytes", (int64_t)bytes);
}

static dcp_status add_info(cJSON *object, const dcp_state *info, bool *added)
{
    char *text = NULL;
    *added = true;
    if (!info)
        return DCP_OK;
    dcp_status status = dcp_state_to_json(info, 1 << 20, &text);
    if (status != DCP_OK)
        return error_prefix(status, "info for metadata.json");
    *added = cJSON_AddRawToObject(object, "info", text) != NULL;
    dcp_text_free(text);
    return DCP_OK;
}

dcp_status metadata_json_print(const struct metadata *metadata, const dcp_save_options *options,
                               int world_size, char **text)
{
    cJSON *object = cJSON_CreateObject();
    char *printed = NULL;
    bool info_added = false;
    dcp_status status = DCP_ERR_NO_MEMORY;

    *text = NULL;
    if (!object || !cJSON_AddStringToObject(object, "format", "dcp") ||
        !cJSON_AddStringToObject(object, "library", "dcp " DCP_VERSION_STRING) ||
        !cJSON_AddStringToObject(object, "save_id", metadata->save_id) || !add_time(object) ||
        (options->has_step && !add_integer(object, "step", options->step)) ||
        !add_integer(object, "world_size", world_size) || !add_totals(object, metadata))
        goto no_memory;
    status = add_info(object, options->info, &info_added);
    if (status != DCP_OK)
        goto done;
    printed = info_added ? cJSON_Print(object) : NULL;
    *text = printed ? memory_copy_text(printed) : NULL;
    if (*text)
        goto done;
no_memory:
    status = error_no_memory(0, "metadata.json");
done:
    cJSON_free(printed);
    cJSON_Delete(object);
    return status;
}
