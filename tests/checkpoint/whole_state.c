/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/whole_state.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"

dcp_state *whole_state_of(const char *path)
{
    dcp_checkpoint *checkpoint;
    dcp_state *root = dcp_state_new();
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    for (size_t i = 0; i < dcp_checkpoint_count(checkpoint); i++) {
        dcp_entry entry;
        must(dcp_checkpoint_entry(checkpoint, i, &entry));
        if (!entry.is_tensor) {
            must(dcp_state_none(root, entry.name));
            continue;
        }
        dcp_tensor tensor = {.dtype = entry.dtype, .ndim = entry.ndim};
        for (int32_t d = 0; d < entry.ndim; d++)
            tensor.global_shape[d] = entry.global_shape[d];
        assert_non_null(dcp_state_tensor(root, entry.name, &tensor));
    }
    dcp_checkpoint_close(checkpoint);
    return root;
}

void whole_states_must_be_equal(const dcp_state *a, const dcp_state *b)
{
    for (size_t i = 0; i < dcp_state_count(a); i++) {
        const dcp_state *x = dcp_state_at(a, i), *y = dcp_state_at(b, i);
        assert_int_equal(dcp_state_kind(x), dcp_state_kind(y));
        if (dcp_state_kind(x) != DCP_KIND_TENSOR) {
            char *first, *second;
            must(dcp_state_to_json(x, 0, &first));
            must(dcp_state_to_json(y, 0, &second));
            assert_string_equal(first, second);
            dcp_text_free(first);
            dcp_text_free(second);
            continue;
        }
        dcp_tensor first, second;
        must(dcp_state_chunk(x, 0, &first));
        must(dcp_state_chunk(y, 0, &second));
        size_t bytes = dcp_dtype_size(first.dtype);
        for (int32_t d = 0; d < first.ndim; d++)
            bytes *= (size_t)first.global_shape[d];
        if (bytes > 0)
            assert_memory_equal(first.data, second.data, bytes);
    }
}
