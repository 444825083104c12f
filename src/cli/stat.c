/* SPDX-License-Identifier: BSD-3-Clause */
/* dcp stat: what the numbers of tensors are like. */
#include "stat.h"

#include <stdlib.h>
#include <string.h>

#include "element.h"
#include "names.h"
#include "parallel.h"
#include "walk.h"

/* Of what a thread reads at once. */
#define BLOCK_BYTES ((int64_t)4 << 20)

struct stat_options {
    struct text_list exclude;
    int32_t depth;
    int32_t threads;
    bool json;
};

/* A block of a tensor, and what was found in it. */
struct piece {
    size_t item; /* of the selection */
    int64_t block;
    struct summary summary;
};

struct measuring {
    dcp_checkpoint *checkpoint;
    const struct selection *selection;
    struct walk *walks; /* by item */
    struct piece *pieces;
    size_t piece_count;
    void **memory; /* by thread */
};

/* ---- measuring ---- */

static int fail_memory(void)
{
    fputs("dcp stat: not enough memory\n", stderr);
    return EXIT_UNABLE;
}

/* Objects, and dtypes that are no numbers, have no blocks. */
static int make_pieces(struct measuring *measuring)
{
    const struct selection *selection = measuring->selection;
    size_t count = 0, next = 0;
    measuring->walks = calloc(selection->count + 1, sizeof *measuring->walks);
    if (!measuring->walks)
        return fail_memory();
    for (size_t i = 0; i < selection->count; i++) {
        const dcp_entry *entry = &selection->items[i].entry;
        dcp_dtype dtype = entry->is_tensor ? element_dtype(entry->dtype) : DCP_DTYPE_NONE;
        if (dtype != DCP_DTYPE_NONE)
            walk_whole(&measuring->walks[i], entry, dtype, BLOCK_BYTES);
        walk_group(&measuring->walks[i], measuring->checkpoint, selection->items[i].index);
        count += (size_t)measuring->walks[i].count;
    }
    measuring->pieces = calloc(count + 1, sizeof *measuring->pieces);
    if (!measuring->pieces)
        return fail_memory();
    for (size_t i = 0; i < selection->count; i++)
        for (int64_t block = 0; block < measuring->walks[i].count; block++)
            measuring->pieces[next++] = (struct piece){.item = i, .block = block};
    measuring->piece_count = count;
    return EXIT_FINE;
}

static dcp_status measure(void *context, int thread, size_t index, uint64_t *bytes)
{
    const dcp_read_options options = {.convert = true};
    struct measuring *measuring = context;
    struct piece *piece = &measuring->pieces[index];
    const struct walk *walk = &measuring->walks[piece->item];
    const struct selected *item = &measuring->selection->items[piece->item];
    dcp_tensor block;
    walk_block(walk, piece->block, &block);
    block.data = measuring->memory[thread];
    int64_t elements = walk_elements(&block);
    dcp_status status =
        dcp_checkpoint_read_tensor(measuring->checkpoint, item->index, &block, &options);
    summary_init(&piece->summary);
    if (status == DCP_OK)
        summary_add(&piece->summary, walk->box.dtype, block.data, elements);
    *bytes = (uint64_t)elements * dcp_dtype_size(item->entry.dtype);
    return status;
}

static size_t run_length(void *context, size_t index)
{
    const struct measuring *measuring = context;
    const struct piece *piece = &measuring->pieces[index];
    return (size_t)walk_run(&measuring->walks[piece->item], piece->block);
}

static int run_pieces(struct measuring *measuring, int32_t threads)
{
    struct parallel parallel = {.count = measuring->piece_count,
                                .thread_count = parallel_threads(threads, measuring->piece_count),
                                .work = measure,
                                .run_length = run_length,
                                .context = measuring};
    size_t most = 1;
    int status = EXIT_FINE;
    for (size_t i = 0; i < measuring->selection->count; i++) {
        const struct walk *walk = &measuring->walks[i];
        most = walk->count > 0 && walk->bytes > most ? walk->bytes : most;
        parallel.bytes_total += walk->count > 0 ? measuring->selection->items[i].entry.bytes : 0;
    }
    measuring->memory = calloc((size_t)parallel.thread_count, sizeof *measuring->memory);
    for (int i = 0; measuring->memory && i < parallel.thread_count; i++)
        if (!(measuring->memory[i] = malloc(most)))
            status = EXIT_UNABLE;
    if (!measuring->memory || status != EXIT_FINE)
        status = fail_memory();
    command_catch_signals(false);
    dcp_status ran = status == EXIT_FINE ? parallel_run(&parallel) : DCP_OK;
    if (ran != DCP_OK)
        status = command_fail_with("stat", ran);
    for (int i = 0; measuring->memory && i < parallel.thread_count; i++)
        free(measuring->memory[i]);
    free((void *)measuring->memory);
    return status;
}

/* ---- the command ---- */

/* One for each tensor that has numbers; the pieces of each are joined in their order, so that the
 * result does not depend on threads. */
static size_t make_rows(const struct measuring *measuring, int depth, struct stat_row *rows)
{
    size_t count = 0;
    const struct piece *piece = measuring->pieces;
    for (size_t i = 0; i < measuring->selection->count; i++) {
        const dcp_entry *entry = &measuring->selection->items[i].entry;
        if (!entry->is_tensor || element_dtype(entry->dtype) == DCP_DTYPE_NONE)
            continue;
        struct stat_row *row = &rows[count++];
        *row = (struct stat_row){.name = entry->name, .dtype = entry->dtype, .tensors = 1};
        row->name_length = depth > 0 ? name_prefix(entry->name, depth) : strlen(entry->name);
        summary_init(&row->summary);
        for (int64_t block = 0; block < measuring->walks[i].count; block++)
            summary_join(&row->summary, &piece++->summary);
    }
    return count;
}

static int print_rows(const struct measuring *measuring, const struct stat_options *options)
{
    struct stat_row *rows = calloc(measuring->selection->count + 1, sizeof *rows);
    if (!rows)
        return fail_memory();
    size_t count = make_rows(measuring, options->depth, rows);
    stat_print(rows, count, options->depth > 0, options->json);
    free(rows);
    return EXIT_FINE;
}

static int run_stat(struct command_line *line)
{
    const struct stat_options *options = line->options;
    struct text_list names = {(const char **)line->paths + 1, (size_t)line->path_count - 1};
    struct selection selection = {0};
    struct measuring measuring = {.selection = &selection};
    dcp_status opened = command_open(line->paths, 1, true, &measuring.checkpoint);
    if (opened != DCP_OK)
        return command_fail_with("stat", opened);
    int status =
        selection_make(measuring.checkpoint, "stat", &names, &options->exclude, &selection);
    if (status == EXIT_FINE)
        status = make_pieces(&measuring);
    if (status == EXIT_FINE)
        status = run_pieces(&measuring, options->threads);
    if (status == EXIT_FINE)
        status = print_rows(&measuring, options);
    free(measuring.pieces);
    free(measuring.walks);
    selection_free(&selection);
    dcp_checkpoint_close(measuring.checkpoint);
    return status;
}

#define FIELD(member) offsetof(struct stat_options, member)

static const struct option stat_table[] = {
    {.name = "exclude",
     .letter = 'x',
     .argument = "GLOB",
     .set = option_list,
     .field = FIELD(exclude),
     .help = "Not such names. May be given several times."},
    {.name = "depth",
     .letter = 'd',
     .argument = "N",
     .set = option_int,
     .field = FIELD(depth),
     .least = 1,
     .most = 1000,
     .help = "A line for all that have the first N parts of their names in common, instead of one "
             "for each tensor."},
    {.name = "threads",
     .argument = "N",
     .set = option_int,
     .field = FIELD(threads),
     .least = 1,
     .most = 256,
     .help = "That read; as many as there are processors, up to 8, by default. The result is the "
             "same."},
    {.name = "json",
     .letter = 'j',
     .set = option_flag,
     .field = FIELD(json),
     .help = "All of it, as JSON."},
    COMMAND_TAKE_OPTION,
    {.name = NULL}};

static const struct exit_text exits[] = {
    {EXIT_UNABLE, "It could not be found out, for want of memory or open files."}, {0, NULL}};

const struct command command_stat = {
    .name = "stat",
    .operands = "CHECKPOINT [NAME...]",
    .least = 1,
    .purpose = "find out what the numbers of tensors are like",
    .description =
        "Prints a line for each tensor: its dtype, how many elements it has, the least and the "
        "greatest, their mean and their 2-norm, how many are NaN, infinite and zero; and a last "
        "line for all of them. Each NAME is a name, all that is below it, or a pattern: * is any "
        "run of characters, ? one, [a-z] one of a set. Without one, all tensors are looked at.\n"
        "\n"
        "NaN and infinities are counted and left out of the rest. Bools are 0 and 1. Of complex "
        "numbers, min, max and mean are those of the absolute values. Packed floats of 4 bits "
        "count one by one. Dtypes that are no numbers (bits8) are left out. Sums are taken in more "
        "than double precision. The data streams, through 4 MiB for each thread.\n",
    .options = stat_table,
    .size = sizeof(struct stat_options),
    .json = "An array of objects:\n"
            "  name            of the tensor, or with --depth the prefix\n"
            "  dtype           null: tensors of several\n"
            "  tensors         how many, 1 without --depth\n"
            "  elements        of all of them\n"
            "  min, max, mean  of finite elements; null if there are none\n"
            "  norm            the root of the sum of squares\n"
            "  nan, inf, zero  counts\n",
    .examples = "  dcp stat run/step_1000 model\n"
                "      Each tensor of the model.\n"
                "  dcp stat run/step_1000 --depth 3 'model.layers.*'\n"
                "      Layer by layer.\n"
                "  dcp stat --json run/step_1000 | jq -r '.[] | select(.nan > 0) | .name'\n"
                "      Where the NaN are.\n",
    .exits = exits,
    .see_also = "ls cat diff",
    .run = run_stat};
