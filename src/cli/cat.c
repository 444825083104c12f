/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "cat.h"
#include "element.h"
#include "names.h"

/* Most bytes of a tensor in memory at a time. A tensor up to this size is read, and so verified, as
 * a whole. */
#define BLOCK_BYTES ((int64_t)32 << 20)

struct cat_options {
    const char *slice;
    int format; /* enum cat_format */
    bool json;
};

static int fail(const char *text)
{
    fprintf(stderr, "dcp cat: %s\n", text);
    return EXIT_FAULT;
}

/* As what elements are read, so that the form can show them. */
static dcp_dtype dtype_for(dcp_dtype stored, enum cat_format format)
{
    if (format == CAT_TEXT || format == CAT_JSON)
        return element_dtype(stored);
    bool shown = format == CAT_RAW || element_dtype(stored) != DCP_F32 || stored == DCP_F16;
    return shown ? stored : DCP_F32; /* NumPy has no floats of 8 bits and no bfloat16 */
}

/* Reads, although stored chunks could be mapped (dcp_checkpoint_map_chunk()). A file that is
 * truncated meanwhile is an error here, but would end the program with SIGBUS if mapped; and mapped
 * data would have to be verified in a separate pass. */
static int cat_blocks(dcp_checkpoint *checkpoint, size_t index, const struct slice *slice,
                      enum cat_format format, dcp_dtype stored, void *data)
{
    const dcp_read_options options = {.convert = format != CAT_RAW};
    int64_t before = 0;
    for (int64_t i = 0; i < slice->walk.count; i++) {
        dcp_tensor block;
        walk_block(&slice->walk, i, &block);
        block.data = data;
        size_t bytes = (size_t)walk_elements(&block) * slice->walk.element_size;
        if (dcp_checkpoint_read_tensor(checkpoint, index, &block, &options) != DCP_OK) {
            if (format == CAT_JSON)
                json_print_tail(slice, before);
            return command_fail("cat");
        }
        if (format == CAT_TEXT)
            text_print(slice, &block, before);
        else if (format == CAT_JSON)
            json_print(slice, stored, &block, before);
        else
            fwrite(data, 1, bytes, stdout);
        if (ferror(stdout))
            break;
        before += walk_elements(&block);
    }
    return EXIT_FINE;
}

static int cat_tensor(dcp_checkpoint *checkpoint, size_t index, const dcp_entry *entry,
                      const struct cat_options *options)
{
    enum cat_format format = options->json ? CAT_JSON : (enum cat_format)options->format;
    dcp_dtype dtype = dtype_for(entry->dtype, format);
    struct slice slice = {0};
    if (dtype == DCP_DTYPE_NONE)
        return fail("elements of this dtype are no numbers; leave out --format and --json");
    walk_whole(&slice.walk, entry, dtype, BLOCK_BYTES);
    if (options->slice) {
        if (!slice_take(&slice, options->slice)) {
            fputs("dcp cat: --slice is outside of the tensor, or none of ", stderr);
            fprintf(stderr, "its %d dimensions; write 0:4,:,2\n", (int)entry->ndim);
            return EXIT_FAULT;
        }
        walk_divide(&slice.walk, BLOCK_BYTES);
    }
    if (format == CAT_NPY && !npy_print_head(&slice))
        return fail("NumPy has no such dtype; leave out --format");
    void *data = malloc(slice.walk.count > 0 ? slice.walk.bytes : 1);
    if (!data) {
        fprintf(stderr, "dcp cat: not enough memory for %zu bytes\n", slice.walk.bytes);
        return EXIT_FAULT;
    }
    if (format == CAT_JSON) {
        json_begin(entry->name, "tensor");
        json_print_head(&slice, entry->dtype);
    }
    int status = cat_blocks(checkpoint, index, &slice, format, entry->dtype, data);
    if (format == CAT_JSON)
        json_end(status == EXIT_FINE ? NULL : dcp_error_message());
    free(data);
    return status;
}

static int cat_object(dcp_checkpoint *checkpoint, size_t index, const char *name, bool json)
{
    char *text = NULL;
    dcp_state *root = dcp_state_new();
    bool read = root &&
                dcp_checkpoint_read_object(checkpoint, index, root, "value", NULL) == DCP_OK &&
                dcp_state_to_json(dcp_state_at(root, 0), 0, &text) == DCP_OK;
    int status = read ? EXIT_FINE : command_fail("cat");
    if (json) {
        json_begin(name, "object");
        printf(", \"value\": %s", read ? text : "null");
        json_end(read ? NULL : dcp_error_message());
    } else if (read) {
        puts(text);
    }
    dcp_text_free(text);
    dcp_state_free(root);
    return status;
}

static int cat_extra_file(dcp_checkpoint *checkpoint, size_t index, bool json)
{
    dcp_extra_file_info info;
    if (dcp_checkpoint_extra_file(checkpoint, index, &info) != DCP_OK)
        return command_fail("cat");
    size_t size = (size_t)info.size;
    char *bytes = malloc(size + 1);
    if (!bytes) {
        fprintf(stderr, "dcp cat: no memory for %zu bytes\n", size);
        return EXIT_FAULT;
    }
    bool read = dcp_checkpoint_read_extra_file(checkpoint, index, bytes, size, NULL) == DCP_OK;
    int status = read ? EXIT_FINE : command_fail("cat");
    bytes[read ? size : 0] = '\0';
    if (json) {
        json_begin(info.name, "file");
        if (read)
            json_print_file(bytes, size);
        json_end(read ? NULL : dcp_error_message());
    } else if (read) {
        fwrite(bytes, 1, size, stdout);
    }
    free(bytes);
    return status;
}

static int cat_entry(dcp_checkpoint *checkpoint, size_t index, const struct cat_options *options)
{
    dcp_entry entry;
    if (dcp_checkpoint_entry(checkpoint, index, &entry) != DCP_OK)
        return command_fail("cat");
    if (entry.is_tensor)
        return cat_tensor(checkpoint, index, &entry, options);
    return options->slice ? fail("--slice is for tensors, and this is an object")
                          : cat_object(checkpoint, index, entry.name, options->json);
}

/* An unknown name, which may be the beginning of others. */
static int fail_unknown(const dcp_checkpoint *checkpoint, const char *name)
{
    const char *patterns[] = {name};
    const struct text_list below = {patterns, 1};
    size_t count = 0;
    dcp_entry entry;
    for (size_t i = 0; !strpbrk(name, "*?[") && i < dcp_checkpoint_count(checkpoint); i++)
        count += dcp_checkpoint_entry(checkpoint, i, &entry) == DCP_OK &&
                 names_match(&below, entry.name);
    fputs("dcp cat: ", stderr);
    print_plain(stderr, name);
    fputs(": not in the checkpoint", stderr);
    if (count > 0)
        fprintf(stderr, ", but %zu name%s below it %s", count, plural(count),
                count == 1 ? "is" : "are");
    fputs("; dcp ls shows the names\n", stderr);
    return EXIT_FAULT;
}

static int cat_name(dcp_checkpoint *checkpoint, const char *name, const struct cat_options *options)
{
    size_t index;
    if (dcp_checkpoint_find(checkpoint, name, &index) == DCP_OK)
        return cat_entry(checkpoint, index, options);
    if (dcp_checkpoint_find_extra_file(checkpoint, name, &index) == DCP_OK)
        return cat_extra_file(checkpoint, index, options->json);
    return fail_unknown(checkpoint, name);
}

static int run_cat(struct command_line *line)
{
    const struct cat_options *options = line->options;
    dcp_checkpoint *checkpoint;
    if (options->json && options->format != CAT_RAW)
        return option_usage(line, "--json is a format of its own");
    if (command_open(line->paths, line->path_count - 1, !options->slice, &checkpoint) != DCP_OK)
        return command_fail("cat");
    int status = cat_name(checkpoint, line->paths[line->path_count - 1], options);
    dcp_checkpoint_close(checkpoint);
    return status;
}

static const struct option_word formats[] = {
    {"raw", CAT_RAW}, {"text", CAT_TEXT}, {"npy", CAT_NPY}, {NULL, 0}};

static const struct option cat_table[] = {
    {.name = "slice",
     .letter = 's',
     .argument = "RANGES",
     .set = option_text,
     .field = offsetof(struct cat_options, slice),
     .help = "Only a part of a tensor, as in Python: 0:4,:,2 are the first four of the first "
             "dimension, all of the second, and index 2 of the third. Dimensions that are not "
             "named are whole."},
    {.name = "format",
     .letter = 'f',
     .argument = "FORMAT",
     .set = option_choice,
     .words = formats,
     .field = offsetof(struct cat_options, format),
     .help = "How a tensor is written: raw, which is the default: its bytes, row-major and "
             "little-endian; text: numbers, a row of the last dimension on a line; npy: a file of "
             "NumPy, where bfloat16 and floats of 8 bits become float32."},
    {.name = "json",
     .letter = 'j',
     .set = option_flag,
     .field = offsetof(struct cat_options, json),
     .help = "What it is and its value, as JSON."},
    COMMAND_TAKE_OPTION,
    {.name = NULL}};

const struct command command_cat = {
    .name = "cat",
    .operands = "CHECKPOINT... NAME",
    .least = 2,
    .purpose = "write a tensor's bytes, an object as JSON, or an extra file",
    .description = "NAME is one that dcp ls shows. An object is written as JSON, and an extra file "
                   "as it is. What is written has been checked, as loads check it.\n",
    .options = cat_table,
    .size = sizeof(struct cat_options),
    .json =
        "An object:\n"
        "  name    that was asked for\n"
        "  type    \"tensor\", \"object\" or \"file\"\n"
        "  tensor  dtype; shape of what is written, so of the slice; and values, in an array for\n"
        "          each dimension. A complex number, and a byte of two floats, is an array of\n"
        "          two. NaN and infinities are {\"$float\": \"nan\"}, \"inf\" or \"-inf\".\n"
        "  object  value, where dcp/state.h says how what JSON lacks is written\n"
        "  file    size, and text, or base64 where it is no UTF-8 text\n"
        "  error   why the values are not all there\n",
    .examples = "  dcp cat run/step_1000 train.step\n"
                "      An object, as JSON.\n"
                "  dcp cat run/step_1000 model.embed.weight -s 0:2,:8 -f text\n"
                "      The first eight columns of the first two rows.\n"
                "  dcp cat run/step_1000 model.embed.weight -f npy >embed.npy\n"
                "      For numpy.load().\n",
    .see_also = "ls stat",
    .run = run_cat};
