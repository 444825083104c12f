/* SPDX-License-Identifier: BSD-3-Clause */
/* Shard files one by one:
 *
 *   shard_files write PATH plain|zstd
 *       two files with a tensor in two chunks, a whole tensor and an object, and rebuilt metadata
 *   shard_files rebuild PATH
 *       publishes the metadata of a directory that has none
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dcp.h"

enum { ROWS = 8, COLUMNS = 4096 };

static void must(dcp_status status, const char *what)
{
    if (status == DCP_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, dcp_error_message());
    exit(1);
}

static void add_chunk(dcp_shard_writer *writer, float *elements, int half)
{
    static const dcp_path_part path[] = {{.key = "model"}, {.key = "layer.w"}};
    const dcp_shard_name name = {"model.layer.w", path, 2};
    const dcp_tensor chunk = {.dtype = DCP_F32,
                              .ndim = 2,
                              .sharded = true,
                              .data = elements + half * (ROWS / 2 * COLUMNS),
                              .global_shape = {ROWS, COLUMNS},
                              .offsets = {half * (ROWS / 2), 0},
                              .sizes = {ROWS / 2, COLUMNS}};
    must(dcp_shard_writer_add_tensor(writer, &name, &chunk), "adding a chunk");
}

static void add_small(dcp_shard_writer *writer, int64_t *values)
{
    static const dcp_path_part path[] = {{.key = "list"}, {.position = 0}};
    const dcp_shard_name whole = {.name = "flat.name"}, step = {"list.0", path, 2};
    const dcp_tensor tensor = {.dtype = DCP_I64, .ndim = 1, .data = values, .global_shape = {3}};
    dcp_state *root = dcp_state_new();
    must(dcp_state_string(root, "step", "n\xc3\xbcn"), "a value");
    must(dcp_shard_writer_add_tensor(writer, &whole, &tensor), "adding a tensor");
    must(dcp_shard_writer_add_object(writer, &step, dcp_state_find(root, "step")),
         "adding an object");
    dcp_state_free(root);
}

static void rebuild(const char *path)
{
    dcp_shard_list *list;
    dcp_checkpoint *checkpoint;
    must(dcp_shard_list_read(path, NULL, &list), "reading footers");
    must(dcp_shard_list_rebuild(list, NULL, &checkpoint), "rebuilding");
    must(dcp_checkpoint_publish(checkpoint, path, NULL), "publishing");
    dcp_checkpoint_close(checkpoint);
    dcp_shard_list_free(list);
}

static void write_files(const char *path, dcp_compression compression)
{
    static float elements[ROWS * COLUMNS];
    int64_t values[3] = {1, -2, INT64_MAX};
    char save_id[DCP_SAVE_ID_SIZE];
    for (int i = 0; i < ROWS * COLUMNS; i++)
        elements[i] = (float)i;
    must(dcp_save_id_make(save_id), "a save id");
    for (int rank = 0; rank < 2; rank++) {
        const dcp_shard_writer_options options = {.save_id = save_id, .compression = compression};
        char file[32];
        dcp_shard_writer *writer;
        snprintf(file, sizeof file, "__%d_0.distcp", rank);
        must(dcp_shard_writer_open(path, file, &options, &writer), "opening a file");
        add_chunk(writer, elements, rank);
        if (rank == 1)
            add_small(writer, values);
        must(dcp_shard_writer_seal(writer), "sealing a file");
        dcp_shard_writer_free(writer);
    }
    rebuild(path);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "write") == 0)
        write_files(argv[2],
                    strcmp(argv[3], "zstd") == 0 ? DCP_COMPRESSION_ZSTD : DCP_COMPRESSION_NONE);
    else if (argc == 3 && strcmp(argv[1], "rebuild") == 0)
        rebuild(argv[2]);
    else
        return 2;
    return 0;
}
