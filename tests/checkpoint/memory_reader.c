/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/memory_reader.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct memory_file *memory_reader_find(struct memory_reader *reader, const char *name)
{
    for (int i = 0; i < reader->count; i++)
        if (strcmp(reader->files[i].name, name) == 0)
            return &reader->files[i];
    return NULL;
}

static bool validate(void *context, const char *id)
{
    const struct memory_reader *reader = context;
    return strcmp(id, reader->id) == 0;
}

static dcp_status read_metadata(void *context, const void **bytes, size_t *size)
{
    const struct memory_file *file = memory_reader_find(context, ".metadata");
    if (!file)
        return dcp_error_set(DCP_ERR_NOT_FOUND, "there is no .metadata in memory");
    *bytes = file->bytes;
    *size = file->size;
    return DCP_OK;
}

static dcp_status set_up(void *context, dcp_loading *loading, const dcp_checkpoint *metadata,
                         bool is_coordinator)
{
    struct memory_reader *reader = context;
    (void)loading;
    (void)is_coordinator;
    reader->metadata = metadata;
    return DCP_OK;
}

static dcp_status hand_over(struct memory_reader *reader, dcp_loading *loading,
                            const dcp_load_plan *plan, size_t index)
{
    dcp_storage_location location;
    dcp_read_item item;
    dcp_status status = dcp_load_plan_item(plan, index, &item);
    if (status == DCP_OK)
        status = dcp_checkpoint_locate(reader->metadata, &item.stored, &location);
    if (status != DCP_OK)
        return status;
    const struct memory_file *file = memory_reader_find(reader, location.path);
    if (!file || location.offset + location.length > file->size)
        return dcp_error_set(DCP_ERR_NOT_FOUND, "%s is not in memory", location.path);
    unsigned char *stream = file->bytes + location.offset;
    if (reader->damage >= 0)
        stream[reader->damage] ^= 0x40;
    reader->reads++;
    return dcp_loading_stream(loading, index, stream, location.length);
}

static dcp_status read_data(void *context, dcp_loading *loading, const dcp_load_plan *plan)
{
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < dcp_load_plan_count(plan) && status == DCP_OK; i++)
        status = hand_over(context, loading, plan, i);
    return status;
}

static void take_file(struct memory_reader *reader, const char *directory, const char *prefix,
                      const char *name)
{
    struct memory_file *file = &reader->files[reader->count++];
    char path[512];
    assert_true(reader->count <= 16);
    snprintf(path, sizeof path, "%s/%s", directory, name);
    snprintf(file->name, sizeof file->name, "%s%s", prefix, name);
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    assert_int_equal(fseek(stream, 0, SEEK_END), 0);
    file->size = (size_t)ftell(stream);
    rewind(stream);
    file->bytes = malloc(file->size + 1);
    assert_non_null(file->bytes);
    assert_int_equal(fread(file->bytes, 1, file->size, stream), file->size);
    fclose(stream);
}

void memory_reader_init(struct memory_reader *reader, const char *directory, const char *id)
{
    *reader = (struct memory_reader){
        .table = {.size_of = sizeof reader->table,
                  .context = reader,
                  .validate_checkpoint_id = validate,
                  .read_metadata = read_metadata,
                  .set_up_storage_reader = set_up,
                  .read_data = read_data},
        .damage = -1,
    };
    snprintf(reader->id, sizeof reader->id, "%s", id);
    memory_reader_add(reader, directory, "");
}

void memory_reader_add(struct memory_reader *reader, const char *directory, const char *prefix)
{
    DIR *listing = opendir(directory);
    assert_non_null(listing);
    for (struct dirent *entry = readdir(listing); entry; entry = readdir(listing))
        if (entry->d_type == DT_REG)
            take_file(reader, directory, prefix, entry->d_name);
    closedir(listing);
}

void memory_reader_free(struct memory_reader *reader)
{
    for (int i = 0; i < reader->count; i++)
        free(reader->files[i].bytes);
}
