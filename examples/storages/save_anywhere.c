/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ranks, threads here, save to a storage of one's own and load from it as they would with
 * files: in several files each, compressed, then behind the next step and over the checkpoint that
 * is there. What is stored is listed, verified, and loaded in part.
 *
 *     save_anywhere ID
 *
 * An id "tar://PATH" is an archive, all others are in memory.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "storages.h"

enum { RANKS = 2, ROWS = 4096, MINE = ROWS / RANKS, COLUMNS = 1024, WANTED = 256 };

struct trainer {
    dcp_group *group;
    const char *id;
    const dcp_storage *storage;
    dcp_status status;
};

static float value_at(int row, int column, int step)
{
    return (float)((row * COLUMNS + column) * step);
}

/* This rank's rows, as they are at a step. */
static dcp_state *make_state(const struct trainer *trainer, float *rows, int step)
{
    int first = dcp_group_rank(trainer->group) * MINE;
    for (int i = 0; i < MINE * COLUMNS; i++)
        rows[i] = value_at(first + i / COLUMNS, i % COLUMNS, step);
    const dcp_tensor tensor = {.dtype = DCP_F32,
                               .ndim = 2,
                               .sharded = true,
                               .data = rows,
                               .global_shape = {ROWS, COLUMNS},
                               .offsets = {first, 0},
                               .sizes = {MINE, COLUMNS}};
    dcp_state *state = dcp_state_new();
    dcp_state_tensor(state, "matrix", &tensor);
    dcp_state_int(state, "step", step);
    return state;
}

static dcp_status save_now(const struct trainer *trainer, float *rows)
{
    dcp_save_options options = {.group = trainer->group,
                                .storage = trainer->storage,
                                .overwrite = DCP_OVERWRITE_REPLACE,
                                .thread_count = 2,
                                .compression = DCP_COMPRESSION_ZSTD};
    dcp_state *state = make_state(trainer, rows, 1);
    dcp_status status = dcp_save(state, trainer->id, &options);
    if (status == DCP_ERR_UNSUPPORTED) { /* by a library without zstd */
        options.compression = DCP_COMPRESSION_NONE;
        status = dcp_save(state, trainer->id, &options);
    }
    dcp_state_free(state);
    return status;
}

static dcp_status save_behind(const struct trainer *trainer, float *rows)
{
    dcp_future *future;
    const dcp_save_options options = {.group = trainer->group,
                                      .storage = trainer->storage,
                                      .overwrite = DCP_OVERWRITE_REPLACE,
                                      .thread_count = 2};
    dcp_state *state = make_state(trainer, rows, 2);
    dcp_status status = dcp_save_async(state, trainer->id, &options, &future);
    dcp_state_free(state);
    if (status != DCP_OK)
        return status;
    status = dcp_future_wait(future, -1);
    dcp_future_free(future);
    return status;
}

/* Some rows from the middle, by a rank alone, within a limit of memory. */
static dcp_status load_rows(const struct trainer *trainer, float *rows)
{
    dcp_figures figures = {.size_of = sizeof figures};
    int first = (ROWS - WANTED) / 2;
    const dcp_tensor tensor = {.dtype = DCP_F32,
                               .ndim = 2,
                               .sharded = true,
                               .data = rows,
                               .global_shape = {ROWS, COLUMNS},
                               .offsets = {first, 0},
                               .sizes = {WANTED, COLUMNS}};
    const dcp_load_options options = {
        .storage = trainer->storage, .memory_limit = 64 << 20, .figures = &figures};
    dcp_state *state = dcp_state_new();
    dcp_state_tensor(state, "matrix", &tensor);
    dcp_status status = dcp_load(state, trainer->id, &options, NULL);
    dcp_state_free(state);
    for (int i = 0; i < WANTED * COLUMNS && status == DCP_OK; i++)
        if (rows[i] != value_at(first + i / COLUMNS, i % COLUMNS, 2))
            status = dcp_error_set(DCP_ERR_INTERNAL, "element %d is wrong", i);
    if (status == DCP_OK && figures.bytes_read > 4 * figures.bytes_wanted)
        status = dcp_error_set(DCP_ERR_INTERNAL, "%zu bytes were read for %zu",
                               (size_t)figures.bytes_read, (size_t)figures.bytes_wanted);
    return status;
}

static void *run(void *argument)
{
    struct trainer *trainer = argument;
    void *rows;
    trainer->status = dcp_memory_allocate(sizeof(float) * MINE * COLUMNS, &rows);
    if (trainer->status == DCP_OK)
        trainer->status = save_now(trainer, rows);
    if (trainer->status == DCP_OK)
        trainer->status = save_behind(trainer, rows);
    if (trainer->status == DCP_OK)
        trainer->status = load_rows(trainer, rows);
    if (trainer->status != DCP_OK)
        fprintf(stderr, "%s\n", dcp_error_message());
    dcp_memory_free(rows);
    return NULL;
}

/* What "dcp ls" and "dcp verify" say. */
static dcp_status list_and_verify(const char *id, const dcp_storage *storage)
{
    const dcp_open_options options = {.storage = storage};
    dcp_checkpoint *checkpoint = NULL;
    uint64_t faults = 0;
    dcp_status status = dcp_checkpoint_open(id, &options, &checkpoint);
    for (size_t i = 0; status == DCP_OK && i < dcp_checkpoint_count(checkpoint); i++) {
        dcp_entry entry;
        dcp_stored_chunk chunk;
        status = dcp_checkpoint_entry(checkpoint, i, &entry);
        for (size_t k = 0; status == DCP_OK && k < entry.chunk_count; k++) {
            status = dcp_checkpoint_chunk(checkpoint, i, k, &chunk);
            if (status == DCP_OK)
                printf("%s: %zu bytes in %s\n", entry.name, (size_t)chunk.length, chunk.file);
        }
    }
    dcp_checkpoint_close(checkpoint);
    if (status == DCP_OK)
        status = dcp_verify(id, &options, NULL, NULL, &faults);
    return status == DCP_OK && faults > 0
               ? dcp_error_set(DCP_ERR_INTERNAL, "%zu faults", (size_t)faults)
               : status;
}

int main(int argc, char **argv)
{
    struct trainer trainers[RANKS];
    dcp_group *groups[RANKS];
    pthread_t threads[RANKS];
    dcp_status status = DCP_OK;
    if (argc != 2) {
        fprintf(stderr, "usage: save_anywhere ID\n");
        return 2;
    }
    bool tar = tar_storage.takes(NULL, argv[1]);
    const dcp_storage *storage = tar ? &tar_storage : &memory_storage;
    if (dcp_group_new_threads(RANKS, groups) != DCP_OK)
        return 1;
    for (int r = 0; r < RANKS; r++) {
        trainers[r] = (struct trainer){.group = groups[r], .id = argv[1], .storage = storage};
        if (pthread_create(&threads[r], NULL, run, &trainers[r]) != 0)
            return 1;
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(threads[r], NULL);
        dcp_group_free(groups[r]);
        status = status == DCP_OK ? trainers[r].status : status;
    }
    if (status != DCP_OK)
        return 1;
    status = list_and_verify(argv[1], storage);
    if (status != DCP_OK)
        fprintf(stderr, "%s\n", dcp_error_message());
    return status == DCP_OK ? 0 : 1;
}
