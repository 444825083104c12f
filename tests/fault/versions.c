/* SPDX-License-Identifier: BSD-3-Clause */
#include "fault/versions.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/conductor.h"

#define ROWS    6
#define COLUMNS 5
#define RANKS   3

/* The state of one rank: half or all of a matrix, a scalar, two objects. */
struct content {
    float matrix[ROWS * COLUMNS];
    int64_t scalar;
    dcp_state *root;
};

static float element(int version, int64_t index)
{
    return (float)(version * 1000 + index);
}

static void content_init(struct content *content, int version, int rank, int size)
{
    dcp_tensor matrix = {.dtype = DCP_F32,
                         .ndim = 2,
                         .sharded = true,
                         .global_shape = {ROWS, COLUMNS},
                         .offsets = {ROWS / size * rank, 0},
                         .sizes = {ROWS / size, COLUMNS},
                         .data = content->matrix};
    dcp_tensor scalar = {.dtype = DCP_I64, .data = &content->scalar};
    for (int64_t i = 0; i < ROWS / size * COLUMNS; i++)
        content->matrix[i] = version ? element(version, ROWS / size * rank * COLUMNS + i) : -1;
    content->scalar = version;
    content->root = dcp_state_new();
    dcp_state_tensor(content->root, "matrix", &matrix);
    dcp_state_tensor(content->root, "scalar", &scalar);
    dcp_state_int(content->root, "version", version);
    dcp_state_string(content->root, "name", "a name of some length");
}

static uint32_t save_io;

void version_save_by(uint32_t io)
{
    save_io = io;
}

static bool save_compressed;

void version_compress(bool compress)
{
    save_compressed = compress;
}

struct saver {
    const struct file_ops *ops;
    dcp_group *group;
    int version, rank, size;
    dcp_status status;
};

static void *run_saver(void *argument)
{
    struct saver *saver = argument;
    struct content content = {.root = NULL};
    dcp_save_options options = {.group = saver->group,
                                .overwrite = DCP_OVERWRITE_REPLACE,
                                .timeout_seconds = 20,
                                .io = save_io};
    if (save_compressed) {
        options.compression = DCP_COMPRESSION_ZSTD;
        options.compression_threads = 2;
    }
    content_init(&content, saver->version, saver->rank, saver->size);
    saver->status = content.root
                        ? checkpoint_save(saver->ops, content.root, VERSIONS_PATH, &options)
                        : DCP_ERR_NO_MEMORY;
    dcp_state_free(content.root);
    return NULL;
}

dcp_status version_save(struct simulated_file_system *fs, int version, int size)
{
    dcp_group *groups[RANKS] = {NULL};
    struct saver savers[RANKS];
    pthread_t threads[RANKS];

    if (size > 1)
        assert_int_equal(dcp_group_new_threads(size, groups), DCP_OK);
    for (int r = 0; r < size; r++)
        savers[r] = (struct saver){simulated_ops(fs), groups[r], version, r, size, DCP_OK};
    for (int r = 1; r < size; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, run_saver, &savers[r]), 0);
    run_saver(&savers[0]);
    for (int r = 1; r < size; r++)
        assert_int_equal(pthread_join(threads[r], NULL), 0);
    for (int r = 0; r < size; r++) {
        assert_int_equal(savers[r].status, savers[0].status);
        dcp_group_free(groups[r]);
    }
    return savers[0].status;
}

int version_load(struct simulated_file_system *fs, dcp_status *status)
{
    struct content content = {.root = NULL};
    dcp_load_options options = {.timeout_seconds = 20};
    int64_t version = VERSION_CORRUPT;

    content_init(&content, 0, 0, 1);
    *status = content.root
                  ? checkpoint_load(simulated_ops(fs), content.root, VERSIONS_PATH, &options, NULL)
                  : DCP_ERR_NO_MEMORY;
    if (*status == DCP_OK) {
        dcp_state_as_int(dcp_state_get(content.root, "version"), &version);
        for (int i = 0; i < ROWS * COLUMNS; i++)
            if (content.matrix[i] != element((int)version, i))
                version = VERSION_CORRUPT;
        if (content.scalar != version)
            version = VERSION_CORRUPT;
    } else if (*status == DCP_ERR_NOT_FOUND) {
        version = VERSION_NONE;
    }
    dcp_state_free(content.root);
    return (int)version;
}

int version_find(struct simulated_file_system *fs)
{
    dcp_status status;
    int version = version_load(fs, &status);
    if (version == VERSION_CORRUPT)
        print_error("found: %s: %s\n", dcp_status_string(status), dcp_error_message());
    return version;
}

static int count_one(void *context, const char *name)
{
    size_t length = strlen(name);
    int *count = context;
    *count += (length > 7 && strcmp(name + length - 7, ".distcp") == 0) ||
              (length > 4 && strcmp(name + length - 4, ".tmp") == 0);
    return 0;
}

int version_count_files(struct simulated_file_system *fs)
{
    const struct file_ops *ops = simulated_ops(fs);
    int count = 0;
    ops->list(ops->context, VERSIONS_PATH, count_one, &count);
    return count;
}
