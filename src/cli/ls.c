/* SPDX-License-Identifier: BSD-3-Clause */
#include "ls.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Names are padded to the longest one, up to this. */
#define NAME_COLUMNS 56

char *ls_value(dcp_checkpoint *checkpoint, size_t index)
{
    char *text = NULL;
    dcp_state *root = dcp_state_new();
    if (root && dcp_checkpoint_read_object(checkpoint, index, root, "value", NULL) == DCP_OK)
        dcp_state_to_json(dcp_state_at(root, 0), VALUE_LIMIT, &text);
    dcp_state_free(root);
    return text;
}

void ls_print_numbers(const int64_t *numbers, int32_t count)
{
    putchar('[');
    for (int32_t i = 0; i < count; i++)
        printf(i > 0 ? ", %" PRId64 : "%" PRId64, numbers[i]);
    putchar(']');
}

int ls_widest_name(const struct selection *selection)
{
    int widest = 0;
    for (size_t i = 0; i < selection->count; i++) {
        int columns = plain_columns(selection->items[i].entry.name);
        if (columns > widest && columns <= NAME_COLUMNS)
            widest = columns;
    }
    return widest;
}

void ls_print_name(const char *name, int width)
{
    int padding = width - plain_columns(name);
    print_plain(stdout, name);
    printf("%*s", padding > 0 ? padding : 0, "");
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* By what the data of the first entry lies in. */
static const char *form_of_data(dcp_checkpoint *checkpoint)
{
    dcp_stored_chunk chunk;
    if (dcp_checkpoint_count(checkpoint) == 0 ||
        dcp_checkpoint_chunk(checkpoint, 0, 0, &chunk) != DCP_OK)
        return "dcp";
    if (ends_with(chunk.file, ".safetensors"))
        return "safetensors";
    return ends_with(chunk.file, ".distcp") ? "dcp" : "pt";
}

/* Of a checkpoint without entries, and of another framework's, the path says it. */
static void find_form(dcp_checkpoint *checkpoint, const char *path, bool foreign,
                      struct ls_form *form)
{
    const dcp_convert_options options = {.storage = command_storage()};
    dcp_convert_report report;
    *form = (struct ls_form){.name = form_of_data(checkpoint)};
    if (!path || (!foreign && dcp_checkpoint_count(checkpoint) > 0) ||
        dcp_convert_recognize(path, &options, &report) != DCP_OK)
        return;
    form->name = report.source == DCP_FORM_HF ? "safetensors" : dcp_form_name(report.source);
    if (foreign)
        snprintf(form->text, sizeof form->text, "%s",
                 report.source_text + (strncmp(report.source_text, "a ", 2) == 0 ? 2 : 0));
}

/* ---- order ---- */

static int compare_names(const void *left, const void *right)
{
    const struct selected *a = left, *b = right;
    return strcmp(a->entry.name, b->entry.name);
}

/* The largest first; objects, which have no bytes, last. */
static int compare_sizes(const void *left, const void *right)
{
    const struct selected *a = left, *b = right;
    if (a->entry.bytes != b->entry.bytes)
        return a->entry.bytes < b->entry.bytes ? 1 : -1;
    return compare_names(left, right);
}

static int compare_dtypes(const void *left, const void *right)
{
    const struct selected *a = left, *b = right;
    int order = (a->entry.dtype > b->entry.dtype) - (a->entry.dtype < b->entry.dtype);
    return order != 0 ? order : compare_names(left, right);
}

void ls_sort(struct selection *selection, enum ls_sort by, bool reverse)
{
    struct selected *items = selection->items;
    if (by != LS_STORED && selection->count > 1)
        qsort(items, selection->count, sizeof *items,
              by == LS_NAME   ? compare_names
              : by == LS_SIZE ? compare_sizes
                              : compare_dtypes);
    for (size_t i = 0; reverse && i < selection->count / 2; i++) {
        struct selected kept = items[i];
        items[i] = items[selection->count - 1 - i];
        items[selection->count - 1 - i] = kept;
    }
}

/* ---- the command ---- */

static int list(dcp_checkpoint *checkpoint, const struct ls_options *options,
                const struct ls_form *form)
{
    struct selection selection;
    int status = selection_make(checkpoint, "ls", &options->include, &options->exclude, &selection);
    if (status == EXIT_FINE) {
        ls_sort(&selection, (enum ls_sort)options->sort, options->reverse);
        if (options->files)
            status = ls_files(checkpoint, &selection, options->json);
        else if (options->totals)
            status = ls_totals(&selection, options->depth > 0 ? options->depth : 1, options->json);
        else if (options->json)
            status = ls_json(checkpoint, &selection, form);
        else if (options->tree)
            status = ls_tree(checkpoint, &selection, form, options->depth);
        else
            status = ls_table(checkpoint, &selection, form);
    }
    selection_free(&selection);
    return status;
}

/* What the library notes of a checkpoint that it opens: that it is another framework's. */
static void take_note(void *context, dcp_log_level level, const char *line)
{
    bool *noted = context;
    (void)level, (void)line;
    *noted = true;
}

static int run_ls(struct command_line *line)
{
    const struct ls_options *options = line->options;
    dcp_checkpoint *checkpoint;
    struct ls_form form;
    bool noted = false;
    if (options->files + options->totals + options->tree > 1)
        return option_usage(line, "--files, --totals and --tree are different lists");
    dcp_set_log(take_note, &noted, DCP_LOG_INFO);
    dcp_status opened = command_open(line->paths, line->path_count, false, &checkpoint);
    dcp_set_log(NULL, NULL, DCP_LOG_INFO);
    if (opened != DCP_OK)
        return command_fail("ls");
    find_form(checkpoint, line->path_count == 1 ? line->paths[0] : NULL, noted, &form);
    int status = list(checkpoint, options, &form);
    dcp_checkpoint_close(checkpoint);
    return status;
}

static const struct option_word orders[] = {
    {"stored", LS_STORED}, {"name", LS_NAME}, {"size", LS_SIZE}, {"dtype", LS_DTYPE}, {NULL, 0}};

#define FIELD(member) offsetof(struct ls_options, member)

static const struct option ls_options_table[] = {
    {.name = "include",
     .letter = 'i',
     .argument = "GLOB",
     .set = option_list,
     .field = FIELD(include),
     .help = "Only such names, and what is below them: * is any run of characters, ? one, [a-z] "
             "one of a set. May be given several times."},
    {.name = "exclude",
     .letter = 'x',
     .argument = "GLOB",
     .set = option_list,
     .field = FIELD(exclude),
     .help = "Not such names. May be given several times."},
    {.name = "sort",
     .letter = 's',
     .argument = "ORDER",
     .set = option_choice,
     .field = FIELD(sort),
     .words = orders,
     .help = "In which order: stored, name, size (the largest first) or dtype."},
    {.name = "reverse",
     .letter = 'r',
     .set = option_flag,
     .field = FIELD(reverse),
     .help = "The other way round."},
    {.name = "tree",
     .letter = 't',
     .set = option_flag,
     .field = FIELD(tree),
     .help = "As a tree of the parts of names, with the bytes below each."},
    {.name = "totals",
     .letter = 'T',
     .set = option_flag,
     .field = FIELD(totals),
     .help = "Totals by the first parts of names, and by dtype, instead of names."},
    {.name = "depth",
     .letter = 'd',
     .argument = "N",
     .set = option_int,
     .field = FIELD(depth),
     .least = 1,
     .most = 1000,
     .help = "How many parts of names: of --tree all by default, of --totals 1."},
    {.name = "files",
     .letter = 'f',
     .set = option_flag,
     .field = FIELD(files),
     .help = "Which file holds what, and where in it."},
    {.name = "json",
     .letter = 'j',
     .set = option_flag,
     .field = FIELD(json),
     .help = "Everything as JSON: paths, chunks, files and whole values too."},
    COMMAND_TAKE_OPTION,
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
    .options = ls_options_table,
    .size = sizeof(struct ls_options),
    .json =
        "An object:\n"
        "  form         \"dcp\", \"safetensors\", \"pt\", or of a training checkpoint "
        "\"deepspeed\",\n"
        "               \"megatron\" or \"torch_checkpointing\"\n"
        "  entries      name, path (keys and positions), type: \"tensor\" or \"object\"\n"
        "    tensors    dtype, shape, bytes, and chunks: offsets, sizes, file, offset, length\n"
        "    objects    value, or null and error\n"
        "  extra_files  name, file, size, xxh3\n"
        "  save         id or null; writer (\"libdcp\"), step, unix_time, world_size, info, each\n"
        "               if it is known\n"
        "With --files an array: file, bytes, items, each with name, offset and length. With "
        "--totals an object of two arrays, prefixes and dtypes: prefix or dtype, tensors, bytes "
        "and objects.\n",
    .examples = "  dcp ls run/step_1000\n"
                "      What is in it.\n"
                "  dcp ls run/step_1000 -i 'model.layers.0.*' --sort size\n"
                "      The tensors of a layer, the largest first.\n"
                "  dcp ls run/step_1000 --totals --depth 2\n"
                "      Where the bytes are.\n",
    .see_also = "cat stat verify",
    .run = run_ls};
