/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/load_scene.h"

static float expected_w(int64_t row, int64_t column)
{
    return (float)(100 * row + column);
}

dcp_status scene_save(struct rank *self)
{
    float w[SCENE_ROWS * SCENE_COLUMNS], b[SCENE_COLUMNS];
    int64_t rows = SCENE_ROWS / self->size, first = self->rank * rows;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < SCENE_COLUMNS; c++)
            w[r * SCENE_COLUMNS + c] = expected_w(first + r, c);
    for (int c = 0; c < SCENE_COLUMNS; c++)
        b[c] = 7 + (float)c;
    dcp_tensor matrix = {.dtype = DCP_F32,
                         .ndim = 2,
                         .sharded = true,
                         .data = w,
                         .global_shape = {SCENE_ROWS, SCENE_COLUMNS},
                         .offsets = {first, 0},
                         .sizes = {rows, SCENE_COLUMNS}};
    dcp_tensor vector = {.dtype = DCP_F32, .ndim = 1, .data = b, .global_shape = {SCENE_COLUMNS}};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "w", &matrix);
    dcp_state_tensor(root, "b", &vector);
    dcp_state_int(root, "step", 1000);
    dcp_state *list = dcp_state_list(root, "cfg");
    dcp_state_int(list, NULL, 1);
    dcp_state_int(list, NULL, 2);
    dcp_save_options options = {.group = self->group};
    dcp_status status = dcp_save(root, self->path, &options);
    dcp_state_free(root);
    return status;
}

void scene_init(struct scene *scene, const struct rank *self, bool no_memory)
{
    *scene = (struct scene){.root = dcp_state_new()};
    scene->columns = SCENE_COLUMNS / self->size;
    scene->first = self->rank * scene->columns;
    for (int i = 0; i < SCENE_ROWS * SCENE_COLUMNS; i++)
        scene->w[i] = -1;
    for (int i = 0; i < SCENE_COLUMNS; i++)
        scene->b[i] = -1;
    dcp_tensor matrix = {.dtype = DCP_F32,
                         .ndim = 2,
                         .sharded = true,
                         .data = no_memory ? NULL : scene->w,
                         .global_shape = {SCENE_ROWS, SCENE_COLUMNS},
                         .offsets = {0, scene->first},
                         .sizes = {SCENE_ROWS, scene->columns}};
    dcp_tensor vector = {.dtype = DCP_F32,
                         .ndim = 1,
                         .data = no_memory ? NULL : scene->b,
                         .global_shape = {SCENE_COLUMNS}};
    dcp_state_tensor(scene->root, "w", &matrix);
    dcp_state_tensor(scene->root, "b", &vector);
    dcp_state_int(scene->root, "step", 0);
    dcp_state_list(scene->root, "cfg");
}

void scene_free(struct scene *scene)
{
    dcp_state_free(scene->root);
}

dcp_status scene_check_w(const struct scene *scene)
{
    for (int64_t r = 0; r < SCENE_ROWS; r++)
        for (int64_t c = 0; c < scene->columns; c++)
            if (scene->w[r * scene->columns + c] != expected_w(r, scene->first + c))
                return dcp_error_set(DCP_ERR_INTERNAL, "w(%d, %d) is %g", (int)r,
                                     (int)(scene->first + c),
                                     (double)scene->w[r * scene->columns + c]);
    return DCP_OK;
}

static int64_t step_of(const struct scene *scene)
{
    int64_t step = -1;
    dcp_state_as_int(dcp_state_find(scene->root, "step"), &step);
    return step;
}

dcp_status scene_check(const struct scene *scene)
{
    dcp_status status = scene_check_w(scene);
    for (int c = 0; status == DCP_OK && c < SCENE_COLUMNS; c++)
        if (scene->b[c] != 7 + (float)c)
            status = dcp_error_set(DCP_ERR_INTERNAL, "b(%d) is %g", c, (double)scene->b[c]);
    if (status == DCP_OK && step_of(scene) != 1000)
        status = dcp_error_set(DCP_ERR_INTERNAL, "step is %d", (int)step_of(scene));
    if (status == DCP_OK && dcp_state_count(dcp_state_find(scene->root, "cfg")) != 2)
        status = dcp_error_set(DCP_ERR_INTERNAL, "cfg is not as it was saved");
    return status;
}

dcp_status scene_check_untouched(const struct scene *scene)
{
    bool touched = step_of(scene) != 0;
    for (int i = 0; i < SCENE_ROWS * SCENE_COLUMNS; i++)
        touched |= scene->w[i] != -1;
    for (int i = 0; i < SCENE_COLUMNS; i++)
        touched |= scene->b[i] != -1;
    return touched ? dcp_error_set(DCP_ERR_INTERNAL, "something has been touched") : DCP_OK;
}
