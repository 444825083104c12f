/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

/* Most bytes of a tensor in memory at a time. A tensor up to this size is read, and so verified, as
 * a whole. */
#define BLOCK_BYTES ((int64_t)32 << 20)

/* A walk over a tensor in row-major order, block by block. A block is a range of dimension `split`,
 * at one index of the outer ones. */
struct walk {
    dcp_tensor block;
    int32_t split;
    int64_t rows; /* of a full block */
};

static void walk_start(struct walk *walk, const dcp_entry *entry)
{
    int64_t inner = (int64_t)dcp_dtype_size(entry->dtype);

    memset(walk, 0, sizeof *walk);
    walk->block.dtype = entry->dtype;
    walk->block.ndim = entry->ndim;
    walk->block.sharded = true;
    walk->split = 0;
    for (int32_t d = 0; d < entry->ndim; d++) {
        walk->block.global_shape[d] = entry->global_shape[d];
        walk->block.sizes[d] = entry->global_shape[d];
    }
    for (int32_t d = entry->ndim - 1; d >= 0; d--) {
        walk->split = d;
        if (inner * entry->global_shape[d] > BLOCK_BYTES)
            break;
        if (d > 0)
            inner *= entry->global_shape[d];
    }
    walk->rows = BLOCK_BYTES / inner;
    for (int32_t d = 0; d < walk->split; d++)
        walk->block.sizes[d] = 1;
}

/* Sets the block's rows for its present offset; false when the walk is over. */
static bool walk_fit(struct walk *walk)
{
    dcp_tensor *block = &walk->block;
    int32_t d = walk->split;
    if (block->ndim == 0)
        return true;
    int64_t left = block->global_shape[d] - block->offsets[d];
    block->sizes[d] = left < walk->rows ? left : walk->rows;
    return block->offsets[0] < block->global_shape[0];
}

static bool walk_next(struct walk *walk)
{
    dcp_tensor *block = &walk->block;
    if (block->ndim == 0)
        return false;
    block->offsets[walk->split] += block->sizes[walk->split];
    for (int32_t d = walk->split; d > 0 && block->offsets[d] >= block->global_shape[d]; d--) {
        block->offsets[d] = 0;
        block->offsets[d - 1] += 1;
    }
    return walk_fit(walk);
}

static size_t block_bytes(const dcp_tensor *block)
{
    size_t bytes = dcp_dtype_size(block->dtype);
    for (int32_t d = 0; d < block->ndim; d++)
        bytes *= (size_t)block->sizes[d];
    return bytes;
}

/* Reads, although stored chunks could be mapped (dcp_checkpoint_map_chunk()). A file that is
 * truncated meanwhile is an error here, but would end the program with SIGBUS if mapped; and mapped
 * data would have to be verified in a separate pass. */
static int cat_tensor(dcp_checkpoint *checkpoint, size_t index, const dcp_entry *entry)
{
    struct walk walk;
    int status = EXIT_FINE;
    bool more = true;

    if (entry->bytes == 0)
        return EXIT_FINE;
    walk_start(&walk, entry);
    walk_fit(&walk);
    walk.block.data = malloc(block_bytes(&walk.block));
    if (!walk.block.data) {
        fprintf(stderr, "dcp cat: not enough memory for %zu bytes\n", block_bytes(&walk.block));
        return EXIT_FAULT;
    }
    while (more && status == EXIT_FINE) {
        size_t bytes = block_bytes(&walk.block);
        if (dcp_checkpoint_read_tensor(checkpoint, index, &walk.block, NULL) != DCP_OK)
            status = command_fail("cat");
        else if (fwrite(walk.block.data, 1, bytes, stdout) != bytes)
            break;
        more = walk_next(&walk);
    }
    free(walk.block.data);
    return status;
}

static int cat_object(dcp_checkpoint *checkpoint, size_t index)
{
    char *text = NULL;
    int status = EXIT_FINE;
    dcp_state *root = dcp_state_new();

    if (!root || dcp_checkpoint_read_object(checkpoint, index, root, "value", NULL) != DCP_OK ||
        dcp_state_to_json(dcp_state_at(root, 0), 0, &text) != DCP_OK)
        status = command_fail("cat");
    else
        puts(text);
    dcp_text_free(text);
    dcp_state_free(root);
    return status;
}

static int cat_extra_file(dcp_checkpoint *checkpoint, size_t index)
{
    dcp_extra_file_info info;
    int status = EXIT_FINE;
    if (dcp_checkpoint_extra_file(checkpoint, index, &info) != DCP_OK)
        return command_fail("cat");
    size_t size = (size_t)info.size;
    char *bytes = malloc(size + 1);
    if (!bytes) {
        fprintf(stderr, "dcp cat: no memory for %zu bytes\n", size);
        return EXIT_FAULT;
    }
    if (dcp_checkpoint_read_extra_file(checkpoint, index, bytes, size, NULL) != DCP_OK)
        status = command_fail("cat");
    else
        fwrite(bytes, 1, size, stdout);
    free(bytes);
    return status;
}

static int cat_entry(dcp_checkpoint *checkpoint, size_t index)
{
    dcp_entry entry;
    if (dcp_checkpoint_entry(checkpoint, index, &entry) != DCP_OK)
        return command_fail("cat");
    return entry.is_tensor ? cat_tensor(checkpoint, index, &entry) : cat_object(checkpoint, index);
}

/* An unknown name gets the message that dcp_checkpoint_find() sets for entries. */
static int cat_name(dcp_checkpoint *checkpoint, const char *name)
{
    size_t index;
    if (dcp_checkpoint_find(checkpoint, name, &index) == DCP_OK)
        return cat_entry(checkpoint, index);
    if (dcp_checkpoint_find_extra_file(checkpoint, name, &index) == DCP_OK)
        return cat_extra_file(checkpoint, index);
    dcp_checkpoint_find(checkpoint, name, &index);
    return command_fail("cat");
}

static int run_cat(struct command_line *line)
{
    dcp_checkpoint *checkpoint;
    if (command_open(line->paths, line->path_count - 1, &checkpoint) != DCP_OK)
        return command_fail("cat");
    int status = cat_name(checkpoint, line->paths[line->path_count - 1]);
    dcp_checkpoint_close(checkpoint);
    return status;
}

const struct command command_cat = {
    .name = "cat",
    .operands = "CHECKPOINT... NAME",
    .least = 2,
    .purpose = "write a tensor's bytes, an object as JSON, or an extra file",
    .description = "NAME is one that dcp ls shows. The bytes of a tensor are row-major and "
                   "little-endian; an extra file is written as it is. What is written has been "
                   "checked.\n",
    .examples = "  dcp cat run/step_1000 train.step\n"
                "      An object, as JSON.\n",
    .see_also = "ls",
    .run = run_cat};
