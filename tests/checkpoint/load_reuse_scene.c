/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/load_reuse_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { COLUMNS = 5, ROWS = 12, ROWS_MAX = 24, REPLICA = 7, NOTE_MAX = 4096 };

static float element(const struct reuse_scene *scene, int index)
{
    return (float)(scene->values * 1000 + index);
}

static void fill_note(const struct reuse_scene *scene, int rank, char *note)
{
    size_t length = scene->note != 0 ? scene->note : 40;
    memset(note, 'a' + (scene->values + rank) % 26, length);
    note[length] = '\0';
}

/* ---- storing ---- */

static dcp_tensor rows_of(const struct reuse_scene *scene, int rank, bool uneven, float *memory)
{
    int rows = ROWS + scene->rows;
    dcp_tensor tensor = {.dtype = DCP_F32,
                         .ndim = 2,
                         .global_shape = {rows, COLUMNS},
                         .sharded = true,
                         .offsets = {rank * 4},
                         .sizes = {rank == SCENE_RANKS - 1 ? rows - rank * 4 : 4, COLUMNS},
                         .data = memory};
    if (uneven && rank == 0)
        tensor.sizes[0]++;
    if (uneven && rank == 1) {
        tensor.offsets[0]++;
        tensor.sizes[0]--;
    }
    return tensor;
}

static dcp_state *build(const struct reuse_scene *scene, int rank, float *memory)
{
    char name[32], note[NOTE_MAX];
    dcp_state *root = dcp_state_new(), *model = dcp_state_dict(root, "model");
    dcp_tensor rows = rows_of(scene, rank, scene->uneven, memory);
    dcp_tensor replica = {.dtype = scene->other_dtype ? DCP_I32 : DCP_F32,
                          .ndim = 1,
                          .requires_grad = scene->grad,
                          .global_shape = {REPLICA},
                          .data = memory + ROWS_MAX * COLUMNS};
    for (int i = 0; i < rows.sizes[0] * COLUMNS; i++)
        memory[i] = element(scene, (int)rows.offsets[0] * COLUMNS + i);
    for (int i = 0; i < REPLICA; i++) {
        float value = element(scene, 500 + i);
        int32_t whole = (int32_t)value;
        memcpy(memory + ROWS_MAX * COLUMNS + i, scene->other_dtype ? (void *)&whole : &value, 4);
    }
    dcp_state_tensor(model, "rows", &rows);
    dcp_state_tensor(model, scene->other_name ? "copy" : "replica", &replica);
    dcp_state_int(root, "step", scene->step);
    fill_note(scene, rank, note);
    snprintf(name, sizeof name, "note%d", rank);
    dcp_state_string(root, name, note);
    if (scene->stores_extra)
        dcp_state_int(root, "extra", 5);
    must(dcp_state_status(root));
    return root;
}

dcp_status reuse_scene_store(struct rank *self, const struct reuse_scene *scene, const char *path,
                             dcp_save_plan_cache *cache)
{
    float *memory = malloc((ROWS_MAX * COLUMNS + REPLICA) * sizeof *memory);
    if (!memory)
        return DCP_ERR_NO_MEMORY;
    dcp_state *root = build(scene, self->rank, memory);
    dcp_save_options options = {
        .group = self->group,
        .thread_count = scene->save_files,
        .overwrite = scene->same_path ? DCP_OVERWRITE_REPLACE : DCP_OVERWRITE_REFUSE,
        .skip_sync = true,
        .timeout_seconds = 30,
        .plan_cache = scene->chained ? cache : NULL,
        .checkpoint_id = scene->checkpoint_id,
    };
    dcp_status status = dcp_save(root, path, &options);
    dcp_state_free(root);
    free(memory);
    return status;
}

/* ---- wanting ---- */
/* ---- wanting ---- */

void wish_new(const struct reuse_scene *scene, int rank, struct wish *wish)
{
    bool odd = rank == scene->odd_rank;
    char name[32];
    *wish = (struct wish){.root = dcp_state_new(),
                          .rows = calloc(ROWS_MAX * COLUMNS, sizeof(float)),
                          .replica = calloc(REPLICA, sizeof(double)),
                          .has_replica = !scene->takes_less || !odd};
    dcp_state *model = dcp_state_dict(wish->root, "model");
    wish->box = rows_of(scene, SCENE_RANKS - 1 - rank, false, wish->rows);
    wish->box.sizes[0] -= odd && scene->narrow;
    dcp_state_tensor(model, "rows", &wish->box);
    dcp_tensor replica = {.dtype = scene->wants_double  ? DCP_F64
                                   : scene->other_dtype ? DCP_I32
                                                        : DCP_F32,
                          .ndim = 1,
                          .global_shape = {REPLICA},
                          .data = wish->replica};
    if (wish->has_replica)
        dcp_state_tensor(model, "replica", &replica);
    dcp_state_int(wish->root, "step", -1);
    snprintf(name, sizeof name, "note%d", (rank + 1) % SCENE_RANKS);
    dcp_state_string(wish->root, name, "");
    if (odd && scene->wants_more)
        dcp_state_int(wish->root, "more", -1);
    must(dcp_state_status(wish->root));
}

void wish_free(struct wish *wish)
{
    dcp_state_free(wish->root);
    free(wish->rows);
    free(wish->replica);
}

static bool is_left_out(const struct reuse_scene *scene, const char *name)
{
    return (scene->exclude && strcmp(scene->exclude, name) == 0) ||
           (scene->include && strcmp(scene->include, name) != 0);
}

static dcp_status wrong(const char *what)
{
    return dcp_error_set(DCP_ERR_STATE, "%s is not what was stored", what);
}

static dcp_status check_replica(const struct reuse_scene *scene, const struct wish *wish)
{
    bool loaded = wish->has_replica && !is_left_out(scene, "model.replica") &&
                  (!scene->other_name || scene->stored);
    for (int i = 0; i < REPLICA; i++) {
        double found = scene->wants_double  ? ((const double *)wish->replica)[i]
                       : scene->other_dtype ? ((const int32_t *)wish->replica)[i]
                                            : (double)((const float *)wish->replica)[i];
        if (found != (loaded ? (double)element(scene, 500 + i) : 0))
            return wrong("the replica");
    }
    return DCP_OK;
}

static dcp_status check_objects(const struct reuse_scene *scene, const struct wish *wish, int rank)
{
    char name[32], note[NOTE_MAX];
    const char *found;
    size_t length;
    int64_t step;
    snprintf(name, sizeof name, "note%d", (rank + 1) % SCENE_RANKS);
    fill_note(scene, (rank + 1) % SCENE_RANKS, note);
    if (is_left_out(scene, name))
        return DCP_OK;
    must(dcp_state_as_int(dcp_state_find(wish->root, "step"), &step));
    if (step != (is_left_out(scene, "step") ? -1 : scene->step))
        return wrong("the step");
    must(dcp_state_as_text(dcp_state_find(wish->root, name), &found, &length));
    if (length != strlen(note) || memcmp(found, note, length) != 0)
        return wrong("the note");
    return DCP_OK;
}

dcp_status wish_check(const struct reuse_scene *scene, const struct wish *wish, int rank)
{
    for (int i = 0; i < (int)wish->box.sizes[0] * COLUMNS; i++) {
        float expected = element(scene, (int)wish->box.offsets[0] * COLUMNS + i);
        if (wish->rows[i] != (is_left_out(scene, "model.rows") ? 0 : expected))
            return wrong("a row");
    }
    dcp_status status = check_replica(scene, wish);
    return status == DCP_OK ? check_objects(scene, wish, rank) : status;
}
