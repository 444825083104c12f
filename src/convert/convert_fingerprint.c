/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/name_table.h"
#include "base/path.h"
#include "convert/convert_journal.h"
#include "convert/source_parts.h"

/* Another number: the same source and options come to lie otherwise. */
enum { LAYOUT = 3 };

struct fingerprint {
    struct convert_source *source;
    struct xxh3_stream *hash;
    struct name_table files; /* that are in it */
};

static void add(struct fingerprint *print, const void *bytes, size_t size)
{
    xxh3_stream_update(print->hash, bytes, size);
}

static void add_number(struct fingerprint *print, uint64_t number)
{
    unsigned char bytes[8];
    store_u64(bytes, number);
    add(print, bytes, sizeof bytes);
}

static void add_text(struct fingerprint *print, const char *text)
{
    add_number(print, text ? strlen(text) : UINT64_MAX);
    if (text)
        add(print, text, strlen(text));
}

/* The options that names, dtypes and shapes do not tell. */
static dcp_status add_options(struct fingerprint *print)
{
    const dcp_convert_options *options = print->source->options;
    const char *const files[] = {options->transform, options->transform_config};
    add_text(print, DCP_VERSION_STRING);
    add_number(print, LAYOUT);
    add_number(print, (uint64_t)options->form);
    add_number(print, (uint64_t)options->take);
    add_number(print, (uint64_t)options->tied);
    add_number(print, (uint64_t)options->gguf_type);
    add_number(print, options->shard_size);
    add_number(print, (uint64_t)options->ranks);
    add_number(print, (uint64_t)options->compression);
    add_number(print, (uint64_t)options->compression_level);
    add_number(print, options->model_only);
    add_number(print, options->transform_inverse);
    add_number(print, (uint64_t)options->dequantize);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *text = NULL;
        size_t size = 0;
        if (files[i])
            RETURN_IF_ERROR(convert_read_path(print->source, files[i], &text, &size));
        add_number(print, size);
        if (text)
            add(print, text, size);
    }
    return DCP_OK;
}

static void add_items(struct fingerprint *print)
{
    add_number(print, print->source->count);
    for (size_t i = 0; i < print->source->count; i++) {
        const struct convert_item *item = &print->source->items[i];
        add_text(print, item->name);
        add_number(print, item->path_length);
        add_number(print, item->entry);
        add_number(print, item->is_tensor);
        if (!item->is_tensor)
            continue;
        add_number(print, (uint64_t)item->stored);
        add_number(print, (uint64_t)item->dtype);
        add_number(print, (uint64_t)item->ndim);
        for (int32_t d = 0; d < item->ndim; d++)
            add_number(print, (uint64_t)item->shape[d]);
    }
}

static dcp_status add_stat(struct fingerprint *print, const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "%s: cannot be looked at, so that a conversion of it could not be "
                             "continued",
                             path);
    add_number(print, (uint64_t)about.st_size);
    add_number(print, (uint64_t)about.st_mtim.tv_sec);
    add_number(print, (uint64_t)about.st_mtim.tv_nsec);
    return DCP_OK;
}

static bool is_directory(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

static dcp_status add_joined(struct fingerprint *print, const char *directory, const char *name)
{
    char *path = path_join(directory, name);
    if (!path)
        return error_no_memory(strlen(directory) + strlen(name), "a path");
    dcp_status status = add_stat(print, path);
    memory_release(path);
    return status;
}

/* A file of the checkpoint, as its chunks name it: members by the path that the caller gave. */
static dcp_status add_file(struct fingerprint *print, const char *name)
{
    const struct convert_source *source = print->source;
    uint64_t nothing = 0;
    bool existing;
    RETURN_IF_ERROR(name_table_add(&print->files, name, strlen(name), &nothing, &existing));
    if (existing)
        return DCP_OK;
    if (source->options->member_count > 0)
        return add_stat(print, name);
    return is_directory(source->opened) ? add_joined(print, source->opened, name)
                                        : add_stat(print, source->opened);
}

static dcp_status add_checkpoint(struct fingerprint *print)
{
    const dcp_checkpoint *checkpoint = print->source->checkpoint;
    for (size_t i = 0; i < dcp_checkpoint_count(checkpoint); i++) {
        dcp_entry entry;
        RETURN_IF_ERROR(dcp_checkpoint_entry(checkpoint, i, &entry));
        for (size_t c = 0; c < entry.chunk_count; c++) {
            dcp_stored_chunk chunk;
            RETURN_IF_ERROR(dcp_checkpoint_chunk(checkpoint, i, c, &chunk));
            RETURN_IF_ERROR(add_file(print, chunk.file));
            add_number(print, chunk.offset);
            add_number(print, chunk.length);
        }
    }
    return DCP_OK;
}

/* One that is a directory is a checkpoint by itself. */
static dcp_status add_part_file(struct fingerprint *print, const char *path)
{
    return is_directory(path) ? add_joined(print, path, ".metadata") : add_stat(print, path);
}

static dcp_status add_source(struct fingerprint *print)
{
    const struct source_parts *parts = print->source->parts;
    if (!parts)
        return add_checkpoint(print);
    for (size_t i = 0; i < parts->files.count; i++)
        RETURN_IF_ERROR(add_part_file(print, parts->files.files[i].path));
    return DCP_OK;
}

dcp_status convert_fingerprint(struct convert_source *source, uint64_t *fingerprint)
{
    struct fingerprint print = {.source = source, .hash = xxh3_stream_new()};
    if (!print.hash)
        return error_no_memory(1, "a checksum");
    xxh3_stream_reset(print.hash);
    name_table_init(&print.files);
    dcp_status status = add_options(&print);
    if (status == DCP_OK)
        status = add_source(&print);
    add_items(&print);
    *fingerprint = xxh3_stream_digest(print.hash);
    name_table_free(&print.files);
    xxh3_stream_free(print.hash);
    return status;
}
