/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <string.h>

#include "command.h"
#include "ls.h"

#define VALUE_COLUMNS 72

/* Names are padded to the longest one, up to this. */
#define NAME_COLUMNS 56

/* The object as JSON text; NULL, with the library's error set, if it cannot be read. */
static char *read_value(dcp_checkpoint *checkpoint, size_t index)
{
    char *text = NULL;
    dcp_state *root = dcp_state_new();
    if (root && dcp_checkpoint_read_object(checkpoint, index, root, "value", NULL) == DCP_OK)
        dcp_state_to_json(dcp_state_at(root, 0), VALUE_LIMIT, &text);
    dcp_state_free(root);
    return text;
}

static void print_numbers(const int64_t *numbers, int32_t count)
{
    putchar('[');
    for (int32_t i = 0; i < count; i++)
        printf(i > 0 ? ", %" PRId64 : "%" PRId64, numbers[i]);
    putchar(']');
}

/* ---- for people ---- */

/* Columns of a name as print_plain() shows it, continuation bytes of UTF-8 not counted. */
static int name_columns(const char *name)
{
    int columns = 0;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        columns += *c < 0x20 || *c == 0x7f ? 4 : (*c & 0xc0) != 0x80;
    return columns;
}

static int widest_name(const dcp_checkpoint *checkpoint)
{
    int widest = 0;
    dcp_entry entry;
    for (size_t i = 0; i < dcp_checkpoint_count(checkpoint); i++) {
        if (dcp_checkpoint_entry(checkpoint, i, &entry) != DCP_OK)
            continue;
        int columns = name_columns(entry.name);
        if (columns > widest && columns <= NAME_COLUMNS)
            widest = columns;
    }
    return widest;
}

static void print_name(const char *name, int width)
{
    int padding = width - name_columns(name);
    print_plain(stdout, name);
    printf("%*s", padding > 0 ? padding : 0, "");
}

static void print_tensor(const dcp_entry *entry)
{
    printf("  %-8s ", dcp_dtype_name(entry->dtype));
    print_numbers(entry->global_shape, entry->ndim);
    printf("  %" PRIu64 " bytes in %zu chunk%s", entry->bytes, entry->chunk_count,
           entry->chunk_count == 1 ? "" : "s");
}

void print_value(char *text)
{
    size_t length = strlen(text);
    if (length > VALUE_COLUMNS) {
        length = VALUE_COLUMNS;
        while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
            length--;
        text[length] = '\0';
        printf("  %s...", text);
    } else {
        printf("  %s", text);
    }
}

static int print_extra_files(const dcp_checkpoint *checkpoint, int width)
{
    for (size_t i = 0; i < dcp_checkpoint_extra_file_count(checkpoint); i++) {
        dcp_extra_file_info info;
        if (dcp_checkpoint_extra_file(checkpoint, i, &info) != DCP_OK)
            return command_fail("ls");
        print_name(info.name, width);
        printf("  extra file, %" PRIu64 " byte%s, in ", info.size, info.size == 1 ? "" : "s");
        print_plain(stdout, info.file);
        putchar('\n');
    }
    return EXIT_FINE;
}

static int list_plain(dcp_checkpoint *checkpoint)
{
    int status = print_save(checkpoint);
    uint64_t bytes = 0;
    size_t tensors = 0, count = dcp_checkpoint_count(checkpoint);
    int width = widest_name(checkpoint);

    for (size_t i = 0; i < count; i++) {
        dcp_entry entry;
        if (dcp_checkpoint_entry(checkpoint, i, &entry) != DCP_OK)
            return command_fail("ls");
        print_name(entry.name, width);
        if (entry.is_tensor) {
            print_tensor(&entry);
            tensors++;
            bytes += entry.bytes;
        } else {
            char *text = read_value(checkpoint, i);
            if (text)
                print_value(text);
            else
                status = command_fail("ls");
            dcp_text_free(text);
        }
        putchar('\n');
    }
    if (print_extra_files(checkpoint, width) != EXIT_FINE)
        status = EXIT_FAULT;
    size_t extra = dcp_checkpoint_extra_file_count(checkpoint);
    printf("%zu tensor%s, %" PRIu64 " bytes, %zu object%s", tensors, tensors == 1 ? "" : "s", bytes,
           count - tensors, count - tensors == 1 ? "" : "s");
    if (extra > 0)
        printf(", %zu extra file%s", extra, extra == 1 ? "" : "s");
    putchar('\n');
    return status;
}

/* ---- for programs ---- */

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
    fputs(", \"chunks\": [", stdout);
    for (size_t i = 0; i < entry->chunk_count; i++) {
        dcp_stored_chunk chunk;
        if (dcp_checkpoint_chunk(checkpoint, index, i, &chunk) != DCP_OK)
            return command_fail("ls");
        fputs(i > 0 ? ", {\"offsets\": " : "{\"offsets\": ", stdout);
        print_numbers(chunk.offsets, entry->ndim);
        fputs(", \"sizes\": ", stdout);
        print_numbers(chunk.sizes, entry->ndim);
        fputs(", \"file\": ", stdout);
        print_json_string(stdout, chunk.file);
        printf(", \"offset\": %" PRIu64 ", \"length\": %" PRIu64 "}", chunk.offset, chunk.length);
    }
    putchar(']');
    return EXIT_FINE;
}

static int print_entry(dcp_checkpoint *checkpoint, size_t index)
{
    dcp_entry entry;
    int status = EXIT_FINE;

    if (dcp_checkpoint_entry(checkpoint, index, &entry) != DCP_OK)
        return command_fail("ls");
    fputs(index > 0 ? ",\n {\"name\": " : "\n {\"name\": ", stdout);
    print_json_string(stdout, entry.name);
    print_path(&entry);
    if (entry.is_tensor) {
        printf(", \"type\": \"tensor\", \"dtype\": \"%s\", \"shape\": ",
               dcp_dtype_name(entry.dtype));
        print_numbers(entry.global_shape, entry.ndim);
        printf(", \"bytes\": %" PRIu64, entry.bytes);
        status = print_chunks(checkpoint, index, &entry);
    } else {
        char *text = read_value(checkpoint, index);
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
    fputs(", \"extra_files\": [", stdout);
    for (size_t i = 0; i < dcp_checkpoint_extra_file_count(checkpoint); i++) {
        dcp_extra_file_info info;
        if (dcp_checkpoint_extra_file(checkpoint, i, &info) != DCP_OK)
            return command_fail("ls");
        fputs(i > 0 ? ",\n {\"name\": " : "\n {\"name\": ", stdout);
        print_json_string(stdout, info.name);
        fputs(", \"file\": ", stdout);
        print_json_string(stdout, info.file);
        printf(", \"size\": %" PRIu64 ", \"xxh3\": \"%016" PRIx64 "\"}", info.size, info.xxh3);
    }
    putchar(']');
    return EXIT_FINE;
}

static int list_json(dcp_checkpoint *checkpoint)
{
    int status = EXIT_FINE;

    fputs("{\"entries\": [", stdout);
    for (size_t i = 0; i < dcp_checkpoint_count(checkpoint); i++)
        if (print_entry(checkpoint, i) != EXIT_FINE)
            status = EXIT_FAULT;
    fputs("\n]", stdout);
    if (print_extra_files_json(checkpoint) != EXIT_FINE)
        status = EXIT_FAULT;
    if (print_save_json(checkpoint) != EXIT_FINE)
        status = EXIT_FAULT;
    fputs("}\n", stdout);
    return status;
}

struct ls_options {
    bool json;
};

static int run_ls(struct command_line *line)
{
    const struct ls_options *options = line->options;
    dcp_checkpoint *checkpoint;
    if (command_open(line->paths, line->path_count, &checkpoint) != DCP_OK)
        return command_fail("ls");
    int status = options->json ? list_json(checkpoint) : list_plain(checkpoint);
    dcp_checkpoint_close(checkpoint);
    return status;
}

static const struct option ls_table[] = {
    {.name = "json",
     .letter = 'j',
     .set = option_flag,
     .field = offsetof(struct ls_options, json),
     .help = "Everything as JSON: paths, chunks, files and whole values too."},
    {.name = NULL}};

const struct command command_ls = {
    .name = "ls",
    .operands = "CHECKPOINT...",
    .least = 1,
    .purpose = "list what is in a checkpoint",
    .description =
        "Prints which save made the checkpoint, if metadata.json says it: its step, when it was, "
        "by how many ranks, and the caller's fields. Then a line for each name: of a tensor its "
        "dtype, shape, bytes and number of chunks; of an object the beginning of its value; and "
        "for each extra file, which belongs to the checkpoint without being of the state, its "
        "bytes and the file that holds it. The last line has the totals. Control characters in "
        "names are shown as \\x1b.\n",
    .options = ls_table,
    .size = sizeof(struct ls_options),
    .examples = "  dcp ls run/step_1000\n"
                "      What is in it.\n",
    .see_also = "cat verify",
    .run = run_ls};
