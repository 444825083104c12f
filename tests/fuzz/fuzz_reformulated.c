/* SPDX-License-Identifier: BSD-3-Clause */
/* The shapes in a .metadata of Megatron-Core's old flattened form. */
#include <stdlib.h>

#include "convert/source_reformulated.h"
#include "fuzz_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct reformulated_shapes shapes;
    struct arena arena;
    arena_init(&arena, 0);
    if (reformulated_decode(&shapes, data, size, &arena) == DCP_OK)
        for (size_t i = 0; i < shapes.count; i++)
            for (int32_t d = 0; d < shapes.shapes[i].ndim; d++)
                if (shapes.shapes[i].shape[d] < 0)
                    abort();
    reformulated_free(&shapes);
    arena_free(&arena);
    return 0;
}
