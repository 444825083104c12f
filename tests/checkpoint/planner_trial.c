/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/planner_trial.h"

float value_at(int64_t row, int64_t column)
{
    return (float)(row * 100 + column) / 4;
}

void build(dcp_state *root, float data[ROWS][COLUMNS], const struct rank *self, bool whole)
{
    int64_t rows = whole ? ROWS : ROWS / self->size;
    int64_t first = whole ? 0 : self->rank * rows;
    dcp_tensor tensor = {.dtype = DCP_F32,
                         .ndim = 2,
                         .sharded = !whole,
                         .data = data,
                         .global_shape = {ROWS, COLUMNS},
                         .offsets = {first, 0},
                         .sizes = {rows, COLUMNS}};
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < COLUMNS; j++)
            data[i][j] = value_at(first + i, j);
    dcp_state_tensor(dcp_state_dict(root, "model"), "w", &tensor);
    dcp_state_int(dcp_state_dict(root, "train"), "step", 7);
    dcp_state_string(dcp_state_list(root, "names"), NULL, "first");
    must(dcp_state_status(root));
}

dcp_status body(struct rank *self)
{
    struct trial *shared = self->context;
    struct trial mine = *shared;
    float data[ROWS][COLUMNS];
    dcp_state *root = dcp_state_new();
    build(root, data, self, mine.whole);
    mine.planner.size_of = sizeof mine.planner;
    mine.planner.context = shared;
    mine.options.group = self->group;
    mine.options.timeout_seconds = 20;
    mine.options.planner = &mine.planner;
    if (mine.change)
        mine.change(&mine, self->rank);
    dcp_status status = dcp_save(root, self->path, &mine.options);
    dcp_state_free(root);
    return status;
}
