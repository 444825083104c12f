/* SPDX-License-Identifier: BSD-3-Clause */
/* dcp ls --json. */
#include <inttypes.h>

#include "ls.h"

static void print_path(const dcp_entry *entry)
{
    fputs(", \"path\": [", stdout);
    for (size_t i = 0; i < entry->path_length; i++) {
        if (i > 0)
            fputs(", ", stdout);
        if (entry->path[i].key)
            print_json_string(stdout, entry->path[i].key);
        else
            printf("%" PRId64, entry->path[i].position);
    }
    putchar(']');
}

static int print_chunks(dcp_checkpoint *checkpoint, size_t index, const dcp_entry *entry)
{
    int status = EXIT_FINE;
    fputs(", \"chunks\": [", stdout);
    for (size_t i = 0; i < entry->chunk_count && status == EXIT_FINE; i++) {
        dcp_stored_chunk chunk;
        if (dcp_checkpoint_chunk(checkpoint, index, i, &chunk) != DCP_OK) {
            status = command_fail("ls");
            continue;
        }
        fputs(i > 0 ? ", {\"offsets\": " : "{\"offsets\": ", stdout);
        ls_print_numbers(chunk.offsets, entry->ndim);
        fputs(", \"sizes\": ", stdout);
        ls_print_numbers(chunk.sizes, entry->ndim);
        fputs(", \"file\": ", stdout);
        print_json_string(stdout, chunk.file);
        printf(", \"offset\": %" PRIu64 ", \"length\": %" PRIu64 "}", chunk.offset, chunk.length);
    }
    putchar(']');
    return status;
}

static int print_entry(dcp_checkpoint *checkpoint, const struct selected *item)
{
    const dcp_entry entry = item->entry;
    size_t index = item->index;
    int status = EXIT_FINE;
    fputs("\n {\"name\": ", stdout);
    print_json_string(stdout, entry.name);
    print_path(&entry);
    if (entry.is_tensor) {
        printf(", \"type\": \"tensor\", \"dtype\": \"%s\", \"shape\": ",
               dcp_dtype_name(entry.dtype));
        ls_print_numbers(entry.global_shape, entry.ndim);
        printf(", \"bytes\": %" PRIu64, entry.bytes);
        status = print_chunks(checkpoint, index, &entry);
    } else {
        char *text = ls_value(checkpoint, index);
        fputs(", \"type\": \"object\", ", stdout);
        if (text) {
            printf("\"value\": %s", text);
        } else {
            fputs("\"value\": null, \"error\": ", stdout);
            print_json_string(stdout, dcp_error_message());
            status = command_fail("ls");
        }
        dcp_text_free(text);
    }
    putchar('}');
    return status;
}

static int print_extra_files_json(const dcp_checkpoint *checkpoint)
{
    size_t count = dcp_checkpoint_extra_file_count(checkpoint);
    int status = EXIT_FINE;
    fputs(", \"extra_files\": [", stdout);
    for (size_t i = 0; i < count && status == EXIT_FINE; i++) {
        dcp_extra_file_info info;
        if (dcp_checkpoint_extra_file(checkpoint, i, &info) != DCP_OK) {
            status = command_fail("ls");
            continue;
        }
        fputs(i > 0 ? ",\n {\"name\": " : "\n {\"name\": ", stdout);
        print_json_string(stdout, info.name);
        fputs(", \"file\": ", stdout);
        print_json_string(stdout, info.file);
        printf(", \"size\": %" PRIu64 ", \"xxh3\": \"%016" PRIx64 "\"}", info.size, info.xxh3);
    }
    putchar(']');
    return status;
}

int ls_json(dcp_checkpoint *checkpoint, const struct selection *selection,
            const struct ls_form *form)
{
    int status = EXIT_FINE;
    printf("{\"form\": \"%s\", \"entries\": [", form->name);
    for (size_t i = 0; i < selection->count; i++) {
        fputs(i > 0 ? "," : "", stdout);
        if (print_entry(checkpoint, &selection->items[i]) != EXIT_FINE)
            status = EXIT_FAULT;
    }
    fputs("\n]", stdout);
    if (print_extra_files_json(checkpoint) != EXIT_FINE)
        status = EXIT_FAULT;
    if (print_save_json(checkpoint) != EXIT_FINE)
        status = EXIT_FAULT;
    fputs("}\n", stdout);
    return status;
}
