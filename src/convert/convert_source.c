/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/source_training.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "checkpoint/view/view_read.h"
#include "convert/convert_tiles.h"
#include "convert/foreign_method.h"

/* More than any config.json has. */
enum { SMALL_FILE_MAX = 256 << 20 };
/* One for each of the usual threads, and more for those that stand between two tiles. */
enum { TILES = 6 };

static dcp_status read_text(struct convert_source *source, const char *path, FILE *file,
                            const char **text, size_t *size)
{
    struct buffer bytes;
    size_t taken = 1;
    buffer_init(&bytes, SMALL_FILE_MAX);
    dcp_status status = DCP_OK;
    while (taken > 0 && status == DCP_OK) {
        status = buffer_reserve(&bytes, 1 << 16);
        if (status != DCP_OK)
            break;
        taken = fread(bytes.data + bytes.size, 1, 1 << 16, file);
        bytes.size += taken;
    }
    if (status == DCP_OK && ferror(file))
        status = dcp_error_set(DCP_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
    if (status == DCP_OK) {
        *size = bytes.size;
        *text = arena_copy_text(&source->arena, (const char *)bytes.data, bytes.size);
        if (!*text)
            status = error_no_memory(bytes.size, path);
    }
    buffer_free(&bytes);
    return status;
}

dcp_status convert_read_text(struct convert_source *source, const char *name, const char **text,
                             size_t *size)
{
    size_t length = strlen(source->path) + strlen(name) + 2;
    char *path = arena_allocate(&source->arena, length);
    *text = NULL;
    *size = 0;
    if (!path)
        return error_no_memory(length, "a path");
    snprintf(path, length, "%s/%s", source->path, name);
    return convert_read_path(source, path, text, size);
}

dcp_status convert_read_path(struct convert_source *source, const char *path, const char **text,
                             size_t *size)
{
    *text = NULL;
    *size = 0;
    FILE *file = fopen(path, "rb");
    if (!file)
        return errno == ENOENT
                   ? DCP_OK
                   : dcp_error_set(DCP_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    dcp_status status = read_text(source, path, file, text, size);
    fclose(file);
    return status;
}

/* Adds to what the source is taken for how it is quantized. */
static void say_quantized(struct convert_source *source)
{
    size_t length = strlen(source->text);
    bool bracket = length > 0 && source->text[length - 1] == ')';
    if (!source->quantized)
        return;
    length -= bracket;
    snprintf(source->text + length, sizeof source->text - length, ", quantized: %s%s",
             source->quantized, bracket ? ")" : "");
}

dcp_status convert_source_open(struct convert_source *source, const char *path,
                               const dcp_convert_options *options)
{
    const dcp_open_options open_options = {.storage = options->storage,
                                           .members = options->members,
                                           .member_count = options->member_count};
    *source = (struct convert_source){.options = options, .path = path};
    arena_init(&source->arena, 0);
    RETURN_IF_ERROR(convert_tiles_new(TILES, &source->tiles));
    RETURN_IF_ERROR(convert_recognize(source, &source->opened));
    if (source->training)
        return training_open(source);
    RETURN_IF_ERROR(dcp_checkpoint_open(source->opened, &open_options, &source->checkpoint));
    view_join_records(source->checkpoint);
    RETURN_IF_ERROR(foreign_method_find(source));
    say_quantized(source);
    return DCP_OK;
}

dcp_status convert_source_check(const struct convert_source *source)
{
    if (source->parts)
        return source_files_complete(&source->parts->files);
    return source->checkpoint ? view_complete_records(source->checkpoint) : DCP_OK;
}

void convert_source_close(struct convert_source *source)
{
    dcp_checkpoint_close(source->checkpoint);
    if (source->parts)
        source_parts_free(source->parts);
    convert_tiles_free(source->tiles);
    arena_free(&source->arena);
    *source = (struct convert_source){0};
}
