/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/operation/metadata_json.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
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

/* Only for partial checkpoints. */
static bool add_missing(cJSON *object, const struct metadata *metadata)
{
    struct metadata_missing missing = metadata_sum_missing(metadata);
    if (missing.tensors == 0)
        return true;
    cJSON *counts = cJSON_AddObjectToObject(object, "missing");
    return counts && add_integer(counts, "tensors", (int64_t)missing.tensors) &&
           add_integer(counts, "elements", (int64_t)missing.elements);
}

static bool add_extra_file(cJSON *list, const struct extra_file *extra)
{
    char digest[24];
    snprintf(digest, sizeof digest, "%016" PRIx64, extra->digest);
    cJSON *object = cJSON_CreateObject();
    if (!object || !cJSON_AddItemToArray(list, object)) {
        cJSON_Delete(object);
        return false;
    }
    return cJSON_AddStringToObject(object, "name", extra->name) &&
           cJSON_AddStringToObject(object, "file", extra->file) &&
           add_integer(object, "size", (int64_t)extra->size) &&
           cJSON_AddStringToObject(object, "xxh3", digest);
}

static bool add_extra_files(cJSON *object, const struct metadata *metadata)
{
    if (metadata->extra_file_count == 0)
        return true;
    cJSON *list = cJSON_AddArrayToObject(object, "extra_files");
    for (size_t i = 0; list && i < metadata->extra_file_count; i++)
        if (!add_extra_file(list, &metadata->extra_files[i]))
            return false;
    return list != NULL;
}

/* Memory that cJSON allocates: for the fixed fields, for each extra file, and per byte of info in
 * the object and while printing. */
#define JSON_SIZE   ((size_t)16 << 10)
#define EXTRA_SIZE  ((size_t)2 << 10)
#define INFO_COPIES 4

static dcp_status info_text(const dcp_state *info, char **text)
{
    *text = NULL;
    if (!info)
        return DCP_OK;
    dcp_status status = dcp_state_to_json(info, 1 << 20, text);
    return status == DCP_OK ? DCP_OK : error_prefix(status, "info for metadata.json");
}

static bool print(const struct metadata *metadata, const dcp_save_options *options, int world_size,
                  const char *info, char **text)
{
    cJSON *object = cJSON_CreateObject();
    char *printed = NULL;
    if (object && cJSON_AddStringToObject(object, "format", "dcp") &&
        cJSON_AddStringToObject(object, "library", "dcp " DCP_VERSION_STRING) &&
        cJSON_AddStringToObject(object, "save_id", metadata->save_id) && add_time(object) &&
        (!options->has_step || add_integer(object, "step", options->step)) &&
        add_integer(object, "world_size", world_size) && add_totals(object, metadata) &&
        add_missing(object, metadata) && add_extra_files(object, metadata) &&
        (!info || cJSON_AddRawToObject(object, "info", info)))
        printed = cJSON_Print(object);
    *text = printed ? memory_copy_text(printed) : NULL;
    cJSON_free(printed);
    cJSON_Delete(object);
    return *text != NULL;
}

dcp_status metadata_json_print(const struct metadata *metadata, const dcp_save_options *options,
                               int world_size, char **text)
{
    char *info;

    *text = NULL;
    RETURN_IF_ERROR(info_text(options->info, &info));
    size_t beside = JSON_SIZE + EXTRA_SIZE * metadata->extra_file_count +
                    INFO_COPIES * (info ? strlen(info) : 0);
    void *charge = memory_allocate_beside(0, beside);
    bool printed = charge && print(metadata, options, world_size, info, text);
    memory_release(charge);
    dcp_text_free(info);
    return printed ? DCP_OK : error_no_memory(beside, "metadata.json");
}
