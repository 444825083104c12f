/* SPDX-License-Identifier: BSD-3-Clause */
#include "reshard/random_views.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "format/pt_file.h"
#include "storage/scratch.h"

struct random_views {
    struct pt_view views[RANDOM_TENSORS_MAX];
    struct pt_storage storages[RANDOM_TENSORS_MAX];
    char names[RANDOM_TENSORS_MAX][8];
    size_t storage_count;
};

/* The one that a tensor gets its place in: the last, if that has the same dtype, or a new one. */
static uint32_t choose_storage(struct random_views *made, dcp_dtype dtype, uint64_t *seed)
{
    size_t last = made->storage_count - 1;
    bool shared = scratch_below(seed, 3) > 0;
    if (made->storage_count == 0 || made->storages[last].dtype != dtype || !shared)
        made->storages[made->storage_count++] = (struct pt_storage){.dtype = dtype};
    return (uint32_t)made->storage_count - 1;
}

enum layout { ROW_MAJOR, COLUMN_MAJOR, STEPPED, LAYOUTS };

/* Returns how many elements of the storage it reaches over. */
static uint32_t choose_strides(struct pt_view *view, uint64_t *seed)
{
    enum layout layout = (enum layout)scratch_below(seed, LAYOUTS);
    uint32_t stride = layout == STEPPED ? 2 : 1, reach = 1;
    for (uint32_t i = 0; i < view->ndim; i++) {
        uint32_t d = layout == COLUMN_MAJOR ? i : view->ndim - 1 - i;
        view->strides[d] = stride;
        if (view->sizes[d] == 0)
            reach = 0;
        reach += reach == 0 ? 0 : (view->sizes[d] - 1) * stride;
        stride *= view->sizes[d] == 0 ? 1 : view->sizes[d];
    }
    return reach;
}

static void place(struct random_views *made, const struct random_state *state, int number,
                  uint64_t *seed)
{
    const struct random_tensor *tensor = &state->tensors[number];
    struct pt_view *view = &made->views[number];
    snprintf(made->names[number], sizeof made->names[number], "t%d", number);
    if (tensor->equal != number) {
        *view = made->views[tensor->equal];
        view->name = made->names[number];
        return;
    }
    *view = (struct pt_view){.name = made->names[number],
                             .storage = choose_storage(made, tensor->dtype, seed),
                             .ndim = (uint32_t)tensor->ndim};
    for (int32_t d = 0; d < tensor->ndim; d++)
        view->sizes[d] = (uint32_t)tensor->shape[d];
    struct pt_storage *storage = &made->storages[view->storage];
    uint32_t gap = scratch_below(seed, 3) == 0 ? (uint32_t)scratch_below(seed, 3000) : 0;
    view->offset = storage->elements + gap;
    storage->elements = view->offset + choose_strides(view, seed);
    if (scratch_below(seed, 6) == 0)
        storage->elements += (uint32_t)scratch_below(seed, 3000);
}

static void lay(const struct random_views *made, const struct random_state *state, int number)
{
    const struct pt_view *view = &made->views[number];
    const struct pt_storage *storage = &made->storages[view->storage];
    int64_t strides[RANDOM_DIMS] = {0};
    for (uint32_t d = 0; d < view->ndim; d++)
        strides[d] = view->strides[d];
    random_state_lay(state, number, strides,
                     (unsigned char *)storage->bytes +
                         view->offset * dcp_dtype_size(storage->dtype));
}

void random_views_write(const struct random_state *state, uint64_t *seed, const char *directory,
                        const char *name)
{
    struct random_views made = {.storage_count = 0};
    for (int i = 0; i < state->count; i++)
        place(&made, state, i, seed);
    for (size_t i = 0; i < made.storage_count; i++) {
        size_t size = made.storages[i].elements * dcp_dtype_size(made.storages[i].dtype);
        made.storages[i].bytes = calloc(1, size + 1);
        assert_non_null(made.storages[i].bytes);
    }
    for (int i = 0; i < state->count; i++)
        lay(&made, state, i);
    const struct pt_file file = {.views = made.views,
                                 .count = (size_t)state->count,
                                 .storages = made.storage_count,
                                 .contents = made.storages};
    pt_file_write(&file, directory, name, NULL);
    for (size_t i = 0; i < made.storage_count; i++)
        free(made.storages[i].bytes);
}
