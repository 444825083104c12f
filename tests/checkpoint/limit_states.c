/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/limit_states.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"

/* Of all tensors together. */
#define LARGE ((int64_t)64 << 20)

static void add_tensor(struct limit_state *made, const char *name, int64_t rows, int64_t columns,
                       int rank, int size, bool turned)
{
    dcp_mesh mesh = {.ndim = 1, .shape = {size}, .rank = rank};
    dcp_placement by_rows = dcp_shard(0);
    dcp_tensor tensor = {.dtype = DCP_U8, .ndim = 2, .global_shape = {rows, columns}};
    must(dcp_mesh_shard(&mesh, &tensor, &by_rows));
    tensor.data = (unsigned char *)made->data + made->used;
    made->used += tensor.sizes[0] * tensor.sizes[1];
    assert_true(made->used <= LARGE);
    if (turned) {
        tensor.strided = true;
        tensor.strides[0] = 1;
        tensor.strides[1] = rows;
    }
    dcp_state_tensor(made->root, name, &tensor);
}

static void add_many(struct limit_state *made, int count, int rank, int size)
{
    char name[64];
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "layers.%d.attention.weight", i);
        add_tensor(made, name, 64, 16 + i % 50, rank, size, false);
        snprintf(name, sizeof name, "step %d", i);
        if (i % 10 == 0)
            dcp_state_int(made->root, name, i);
    }
}

void limit_state_make(struct limit_state *made, int kind, int rank, int size)
{
    made->root = dcp_state_new();
    made->used = 0;
    made->data = calloc(1, (size_t)LARGE);
    assert_non_null(made->data);
    switch (kind) {
    case 0: /* next to nothing */
        dcp_state_int(made->root, "step", 1);
        break;
    case 1: /* many small things */
        add_many(made, 2000, rank, size);
        break;
    case 2: /* a few large ones, as they lie in memory and not */
        add_tensor(made, "large", 48, 1 << 20, rank, size, false);
        add_tensor(made, "turned", 1 << 10, 1 << 13, rank, size, true);
        break;
    case 3: /* some of each, and an object of some size */
        add_many(made, 50, rank, size);
        add_tensor(made, "large", 48, 1 << 20, rank, size, false);
        dcp_state_bytes(made->root, "bytes", made->data, 3 << 20);
        break;
    case STATE_REPLICAS:
        add_many(made, 2000, 0, 1);
        break;
    default: /* a replica, which is divided, beside what only the last rank has */
        add_tensor(made, "replica", 40, 1 << 19, 0, 1, false);
        if (rank == size - 1)
            add_many(made, 300, 0, 1);
    }
    must(dcp_state_status(made->root));
}

void limit_state_free(struct limit_state *made)
{
    dcp_state_free(made->root);
    free(made->data);
}
