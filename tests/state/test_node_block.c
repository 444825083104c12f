/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "state/node_block.h"

static const dcp_device host;

/* A view of floats in a block, if there is one. NULL: no memory. */
static dcp_state *view(struct state_pool *pool, const struct state_block *block, void *base,
                       int64_t offset, int64_t size, int64_t stride)
{
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .strided = true};
    tensor.global_shape[0] = size;
    tensor.strides[0] = stride;
    tensor.data = (float *)base + offset;
    return node_tensor(pool, &tensor, block);
}

static bool is_view(const dcp_state *node, int64_t *offset)
{
    return chunk_is_view(node->as.tensor, &node->as.tensor->chunks[0], offset);
}

static void views_lie_in_their_block(void **state)
{
    (void)state;
    static float elsewhere[8];
    dcp_state *root = dcp_state_new();
    struct state_pool *pool = root->pool;
    struct state_block *block;
    int64_t offset;
    assert_int_equal(state_block_new(pool, &host, 22, &block), DCP_OK); /* 5 elements and a half */
    assert_true((uintptr_t)block->data % 64 == 0);
    assert_true(is_view(view(pool, block, block->data, 0, 5, 1), &offset));
    assert_int_equal(offset, 0);
    assert_true(is_view(view(pool, block, block->data, 1, 2, 3), &offset));
    assert_int_equal(offset, 1);
    assert_true(is_view(view(pool, block, block->data, 4, 100, 0), &offset));
    assert_true(is_view(view(pool, block, block->data, 5, 0, 7), &offset));
    assert_int_equal(offset, 5);
    assert_true(is_view(view(pool, block, block->data, 2, 1, INT64_MAX), &offset));
    assert_false(is_view(view(pool, block, block->data, 0, 6, 1), &offset));
    assert_false(is_view(view(pool, block, block->data, 1, 2, 4), &offset));
    assert_false(is_view(view(pool, block, block->data, 4, 2, -1), &offset));
    assert_false(is_view(view(pool, block, block->data, 6, 0, 1), &offset));
    assert_false(is_view(view(pool, block, (unsigned char *)block->data + 1, 0, 1, 1), &offset));
    assert_false(is_view(view(pool, block, elsewhere, 0, 1, 1), &offset));
    assert_false(is_view(view(pool, NULL, block->data, 0, 5, 1), &offset));
    dcp_state_free(root);
}

/* A tuple of two views of a block of another tree, one of them twice, a caller's tensor, and a dict
 * that contains itself. NULL: no memory. */
static dcp_state *make_object(dcp_state *root, struct state_block *block, float *elements)
{
    struct state_pool *pool = root->pool;
    dcp_state *tuple = dcp_state_tuple(root, "t"), *dict = dcp_state_dict(root, "d");
    dcp_state *first = view(pool, block, block->data, 1, 3, 1);
    dcp_state *second = view(pool, block, block->data, 3, 2, 0);
    dcp_state *own = view(pool, NULL, elements, 3, 2, -2);
    dcp_state *nothing = view(pool, NULL, NULL, 0, 0, 1);
    dcp_state *values[] = {first, second, first, own, dict, nothing};
    dcp_state *key = node_text(pool, DCP_KIND_STRING, "me", 2);
    bool made = tuple && dict && key && node_append(pool, dict, key, dict) == DCP_OK;
    for (size_t i = 0; i < sizeof values / sizeof *values && made; i++)
        made = values[i] && node_append(pool, tuple, NULL, values[i]) == DCP_OK;
    return made ? tuple : NULL;
}

static const struct state_chunk *chunk_at(const dcp_state *tuple, size_t index)
{
    return &dcp_state_at(tuple, index)->as.tensor->chunks[0];
}

static void owned_tensors_need_no_other_memory(void **state)
{
    (void)state;
    static const float numbers[] = {0, 1, 2, 3, 4};
    float elements[] = {9, 8, 7, 6};
    dcp_state *other = dcp_state_new(), *root = dcp_state_new();
    struct state_block *block;
    assert_int_equal(state_block_new(other->pool, &host, sizeof numbers, &block), DCP_OK);
    memcpy(block->data, numbers, sizeof numbers);
    dcp_state *tuple = make_object(root, block, elements);
    assert_int_equal(node_own_tensors(tuple), DCP_OK);
    assert_ptr_not_equal(chunk_at(tuple, 0)->block, block);
    memset(block->data, 0, sizeof numbers);
    memset(elements, 0, sizeof elements);
    dcp_state_free(other);

    const struct state_block *copy = chunk_at(tuple, 0)->block;
    assert_int_equal(copy->size, sizeof numbers);
    assert_memory_equal(copy->data, numbers, sizeof numbers);
    assert_ptr_equal(chunk_at(tuple, 0)->data, (float *)copy->data + 1);
    assert_ptr_equal(chunk_at(tuple, 1)->block, copy);
    assert_ptr_equal(chunk_at(tuple, 1)->data, (float *)copy->data + 3);
    assert_int_equal(chunk_at(tuple, 1)->strides[0], 0);
    assert_memory_equal(chunk_at(tuple, 3)->data, ((float[]){6, 8}), 2 * sizeof(float));
    assert_int_equal(chunk_at(tuple, 3)->strides[0], 1);
    assert_ptr_equal(chunk_at(tuple, 3)->block->data, chunk_at(tuple, 3)->data);
    assert_null(chunk_at(tuple, 5)->data);
    dcp_state_free(root);
}

static dcp_status make_and_own(void)
{
    float elements[4] = {0};
    struct state_block *block;
    dcp_state *other = dcp_state_new(), *root = dcp_state_new();
    dcp_status status = other && root ? DCP_OK : DCP_ERR_NO_MEMORY;
    if (status == DCP_OK)
        status = state_block_new(other->pool, &host, 20, &block);
    dcp_state *tuple = status == DCP_OK ? make_object(root, block, elements) : NULL;
    if (status == DCP_OK)
        status = tuple ? node_own_tensors(tuple) : DCP_ERR_NO_MEMORY;
    dcp_state_free(root);
    dcp_state_free(other);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        failing_allocator_install(n, false);
        dcp_status status = make_and_own();
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        if (!reached) {
            assert_int_equal(status, DCP_OK);
            assert_true(n > 10);
            break;
        }
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_lie_in_their_block),
        cmocka_unit_test(owned_tensors_need_no_other_memory),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
