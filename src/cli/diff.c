/* SPDX-License-Identifier: BSD-3-Clause */
/* dcp diff: what two checkpoints do not have in common, whatever their forms and topologies. */
#include "diff.h"

#include <stdlib.h>
#include <string.h>

#include "element.h"
#include "ls.h"

/* ---- names ---- */

/* A name without a prefix; NULL: it does not begin with it. "model" is "model." */
static const char *without_prefix(const char *name, const char *prefix)
{
    size_t length = prefix ? strlen(prefix) : 0;
    if (length == 0)
        return name;
    if (strncmp(name, prefix, length) != 0)
        return NULL;
    if (prefix[length - 1] == '.')
        return name + length;
    return name[length] == '.' ? name + length + 1 : NULL;
}

static int compare_pairs(const void *left, const void *right)
{
    const struct pair *a = left, *b = right;
    int order = strcmp(a->name, b->name);
    return order != 0 ? order : (a->side[0] == NULL) - (b->side[0] == NULL);
}

static void list_side(struct diff *diff, const struct selection *selection, int side)
{
    const struct diff_options *options = diff->options;
    for (size_t i = 0; i < selection->count; i++) {
        const struct selected *item = &selection->items[i];
        const char *name = without_prefix(item->entry.name, options->prefix[side]);
        if (!name || (options->include.count > 0 && !names_match(&options->include, name)) ||
            names_match(&options->exclude, name))
            continue;
        struct pair *pair = &diff->pairs[diff->count++];
        pair->name = name;
        pair->side[side] = item;
    }
}

/* Names of both sides, each once, in their order. */
static bool make_pairs(struct diff *diff, const struct selection selections[2])
{
    size_t kept = 0;
    diff->pairs = calloc(selections[0].count + selections[1].count + 1, sizeof *diff->pairs);
    if (!diff->pairs)
        return false;
    list_side(diff, &selections[0], 0);
    list_side(diff, &selections[1], 1);
    qsort(diff->pairs, diff->count, sizeof *diff->pairs, compare_pairs);
    for (size_t i = 0; i < diff->count; i++) {
        if (kept > 0 && strcmp(diff->pairs[kept - 1].name, diff->pairs[i].name) == 0)
            diff->pairs[kept - 1].side[1] = diff->pairs[i].side[1];
        else
            diff->pairs[kept++] = diff->pairs[i];
    }
    diff->count = kept;
    return true;
}

/* ---- what is not in the values of tensors ---- */

static dcp_status compare_objects(struct diff *diff, struct pair *pair)
{
    char *a = ls_value(diff->checkpoints[0], pair->side[0]->index);
    char *b = a ? ls_value(diff->checkpoints[1], pair->side[1]->index) : NULL;
    if (a && b && strcmp(a, b) != 0)
        pair->kind = DIFF_OBJECT;
    dcp_status status = a && b ? DCP_OK : DCP_ERR_FORMAT;
    dcp_text_free(a);
    dcp_text_free(b);
    return status;
}

static enum diff_kind compare_tensors(const struct diff_options *options, const struct pair *pair)
{
    const dcp_entry *a = &pair->side[0]->entry, *b = &pair->side[1]->entry;
    if (a->ndim != b->ndim || (a->ndim > 0 && memcmp(a->global_shape, b->global_shape,
                                                     (size_t)a->ndim * sizeof(int64_t)) != 0))
        return DIFF_SHAPE;
    if (a->dtype == b->dtype)
        return DIFF_NONE;
    return options->any_dtype && diff_dtype(pair) != DCP_DTYPE_NONE ? DIFF_NONE : DIFF_DTYPE;
}

static dcp_status compare_pair(struct diff *diff, struct pair *pair)
{
    enum { BLOCK_BYTES = 4 << 20 };
    if (!pair->side[0] || !pair->side[1]) {
        pair->kind = pair->side[0] ? DIFF_ONLY_A : DIFF_ONLY_B;
        return DCP_OK;
    }
    const dcp_entry *a = &pair->side[0]->entry, *b = &pair->side[1]->entry;
    if (a->is_tensor != b->is_tensor) {
        pair->kind = DIFF_TYPE;
        return DCP_OK;
    }
    if (!a->is_tensor)
        return diff->options->names_only ? DCP_OK : compare_objects(diff, pair);
    pair->kind = compare_tensors(diff->options, pair);
    if (pair->kind != DIFF_NONE || diff->options->names_only)
        return DCP_OK;
    /* Blocks have room for both dtypes, as they are stored and as they are compared. */
    dcp_dtype dtype = diff_dtype(pair);
    bool wider = dtype != DCP_DTYPE_NONE && dcp_dtype_size(dtype) > dcp_dtype_size(a->dtype);
    walk_whole(&pair->walk, a, wider ? dtype : a->dtype, BLOCK_BYTES);
    return DCP_OK;
}

/* ---- the command ---- */

static dcp_status compare(struct diff *diff, const struct selection selections[2])
{
    if (!make_pairs(diff, selections))
        return dcp_error_set(DCP_ERR_NO_MEMORY, "not enough memory for %zu names",
                             selections[0].count + selections[1].count);
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < diff->count && status == DCP_OK; i++)
        status = compare_pair(diff, &diff->pairs[i]);
    if (status == DCP_OK)
        status = diff_values(diff);
    for (size_t i = 0; i < diff->count; i++)
        diff->differences += diff->pairs[i].kind != DIFF_NONE;
    return status == DCP_OK ? diff_print(diff) : status;
}

static int run_diff(struct command_line *line)
{
    struct diff diff = {.options = line->options};
    struct selection selections[2] = {{0}, {0}};
    int status = EXIT_FINE;
    for (int side = 0; side < 2 && status == EXIT_FINE; side++) {
        if (command_open(line->paths + side, 1, false, &diff.checkpoints[side]) != DCP_OK)
            status = command_fail("diff");
        else
            status = selection_make(diff.checkpoints[side], "diff", NULL, NULL, &selections[side]);
    }
    command_catch_signals(false);
    dcp_status compared = status == EXIT_FINE ? compare(&diff, selections) : DCP_OK;
    if (compared != DCP_OK)
        status = command_fail_with("diff", compared);
    for (int side = 0; side < 2; side++) {
        selection_free(&selections[side]);
        dcp_checkpoint_close(diff.checkpoints[side]);
    }
    free(diff.pairs);
    if (status != EXIT_FINE)
        return status == EXIT_INTERRUPTED ? status : DIFF_TROUBLE;
    return diff.differences == 0 ? DIFF_SAME : DIFF_DIFFERENT;
}

#define FIELD(member) offsetof(struct diff_options, member)

static const struct option diff_table[] = {
    {.name = "atol",
     .letter = 'a',
     .argument = "NUMBER",
     .set = option_real,
     .expected = "a number from 0 on, such as 1e-6",
     .field = FIELD(absolute),
     .help = "Numbers are equal if they differ by no more than this, and by --rtol. NaN is equal "
             "to NaN."},
    {.name = "rtol",
     .letter = 'r',
     .argument = "NUMBER",
     .set = option_real,
     .expected = "a number from 0 on, such as 1e-3",
     .field = FIELD(relative),
     .help = "This, times the absolute value in B, is added to --atol."},
    {.name = "any-dtype",
     .letter = 'd',
     .set = option_flag,
     .field = FIELD(any_dtype),
     .help = "Compare the values of tensors of different dtypes, too, instead of saying that these "
             "differ."},
    {.name = "names-only",
     .letter = 'n',
     .set = option_flag,
     .field = FIELD(names_only),
     .help = "Compare names, kinds, dtypes and shapes, and read no data."},
    {.name = "include",
     .letter = 'i',
     .argument = "GLOB",
     .set = option_list,
     .field = FIELD(include),
     .help = "Only such names, and what is below them. May be given several times."},
    {.name = "exclude",
     .letter = 'x',
     .argument = "GLOB",
     .set = option_list,
     .field = FIELD(exclude),
     .help = "Not such names. May be given several times."},
    {.name = "prefix-a",
     .argument = "PREFIX",
     .set = option_text,
     .field = FIELD(prefix[0]),
     .help = "Of A only what is below PREFIX, without it: --prefix-a model compares the model of a "
             "training checkpoint with one that was exported."},
    {.name = "prefix-b",
     .argument = "PREFIX",
     .set = option_text,
     .field = FIELD(prefix[1]),
     .help = "The same of B."},
    {.name = "threads",
     .argument = "N",
     .set = option_int,
     .field = FIELD(threads),
     .least = 1,
     .most = 256,
     .help = "That read; as many as there are processors, up to 8, by default."},
    {.name = "quiet",
     .letter = 'q',
     .set = option_flag,
     .field = FIELD(quiet),
     .help = "Print nothing but errors; the exit status says it."},
    {.name = "json",
     .letter = 'j',
     .set = option_flag,
     .field = FIELD(json),
     .help = "The differences, as JSON."},
    {.name = NULL}};

static const struct exit_text exits[] = {{DIFF_SAME, "There is no difference."},
                                         {DIFF_DIFFERENT, "There are differences."},
                                         {DIFF_TROUBLE, "Wrong usage, or a failure."},
                                         {0, NULL}};

const struct command command_diff = {
    .name = "diff",
    .operands = "CHECKPOINT CHECKPOINT",
    .least = 2,
    .most = 2,
    .purpose = "compare two checkpoints",
    .description =
        "Compares names, dtypes, shapes, objects and values of two checkpoints, A and B, of any "
        "forms, and by however many ranks they were saved. Prints a line for each name that "
        "differs, what A has before what B has; of values how many elements differ, and the "
        "largest difference and where it is. Without a tolerance values are equal if their bits "
        "are. Both stream, through 8 MiB for each thread. Extra files and metadata.json are not "
        "compared.\n",
    .options = diff_table,
    .size = sizeof(struct diff_options),
    .json = "An object: names, how many there are; equal, true or false; and differences, an array "
            "of objects:\n"
            "  name       without its prefix\n"
            "  kind       only_a, only_b, type, dtype, shape, object or values\n"
            "  a, b       of values: the elements at the largest difference, of complex ones the\n"
            "             real part; of objects: the values; otherwise type, dtype and shape\n"
            "  different  of values: how many elements\n"
            "  largest    the largest difference of finite elements\n"
            "  at         where it is\n",
    .examples = "  dcp diff run/step_1000 run/step_1000.backup\n"
                "      Whether they are the same, bit for bit.\n"
                "  dcp diff run/step_1000 model.pt --prefix-a model --any-dtype --rtol 1e-2\n"
                "      Whether an exported model is that of a checkpoint.\n"
                "  dcp diff -n run/step_1000 run/step_2000\n"
                "      Whether both have the same names and shapes.\n",
    .exits = exits,
    .see_also = "stat ls convert",
    .run = run_diff};
