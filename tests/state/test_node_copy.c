/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "dcp/mesh.h"
#include "fault/failing_allocator.h"
#include "state/node.h"

static float memory[6];

static dcp_status no_state(void *context, dcp_state *into)
{
    (void)context;
    (void)into;
    return DCP_OK;
}

/* One of everything that a tree can be built of. */
static dcp_state *sample_new(void)
{
    dcp_state *root = dcp_state_new();
    if (!root)
        return NULL;
    dcp_state *model = dcp_state_dict(root, "model");
    dcp_tensor tensor = {
        .dtype = DCP_F32, .ndim = 2, .sharded = true, .requires_grad = true, .data = memory};
    tensor.global_shape[0] = 4;
    tensor.global_shape[1] = tensor.sizes[1] = 3;
    tensor.sizes[0] = 1;
    dcp_state *weight = dcp_state_tensor(model, "weight", &tensor);
    tensor.offsets[0] = 2;
    tensor.data = memory + 3;
    dcp_state_add_chunk(weight, &tensor);
    dcp_state *list = dcp_state_list(model, "list");
    dcp_state_int(list, NULL, -3);
    dcp_state_uint(list, NULL, UINT64_MAX);
    dcp_state_float(list, NULL, 0.5);
    dcp_state_bool(dcp_state_tuple(list, NULL), NULL, true);
    dcp_state_none(root, "none");
    dcp_state_text(root, "text", "a\0b", 3);
    dcp_state_bytes(root, "bytes", "\xff", 1);
    dcp_state_stateful(root, "stateful", &(dcp_stateful){.state_dict = no_state});
    if (dcp_state_status(root) == DCP_OK)
        return root;
    dcp_state_free(root);
    return NULL;
}

static void copies_all_kinds_and_borrows_the_memory_of_tensors(void **state)
{
    (void)state;
    dcp_state *source = sample_new(), *root = dcp_state_new();
    char *expected, *found;
    for (size_t i = 0; i < dcp_state_count(source); i++) {
        const char *key = NULL;
        size_t length;
        assert_int_equal(dcp_state_as_text(dcp_state_key_at(source, i), &key, &length), DCP_OK);
        assert_non_null(dcp_state_copy(root, key, dcp_state_at(source, i)));
    }
    assert_int_equal(dcp_state_to_json(source, 0, &expected), DCP_OK);
    assert_int_equal(dcp_state_to_json(root, 0, &found), DCP_OK);
    assert_string_equal(found, expected);
    dcp_text_free(expected);
    dcp_text_free(found);
    dcp_state_free(source);

    const dcp_state *weight = dcp_state_find(dcp_state_find(root, "model"), "weight");
    dcp_tensor chunk;
    assert_int_equal(dcp_state_chunk_count(weight), 2);
    assert_int_equal(dcp_state_chunk(weight, 1, &chunk), DCP_OK);
    assert_ptr_equal(chunk.data, memory + 3);
    assert_true(chunk.requires_grad && chunk.sharded);
    assert_int_equal(chunk.offsets[0], 2);
    assert_int_equal(chunk.sizes[0], 1);
    dcp_state_free(root);
}

/* As an asynchronous save needs it, whose caller frees the tree. */
static void takes_no_part_of_a_tensor_from_the_source(void **state)
{
    (void)state;
    enum { CHUNKS = 40 };
    dcp_state *source = dcp_state_new(), *root = dcp_state_new();
    const dcp_mesh mesh = {.ndim = 1, .shape = {CHUNKS}};
    const dcp_placement rows = dcp_shard(0);
    dcp_tensor chunk = {.dtype = DCP_F32, .ndim = 1, .global_shape = {CHUNKS}, .data = memory};
    assert_int_equal(dcp_mesh_shard(&mesh, &chunk, &rows), DCP_OK);
    dcp_state *weight = dcp_state_tensor(source, "weight", &chunk);
    for (chunk.offsets[0] = 1; chunk.offsets[0] < CHUNKS - 1; chunk.offsets[0]++)
        assert_int_equal(dcp_state_add_chunk(weight, &chunk), DCP_OK);
    dcp_state *copy = dcp_state_copy(root, "copy", weight);
    const struct state_tensor *from = weight->as.tensor, *to = copy->as.tensor;
    assert_memory_equal(to->layout, from->layout, sizeof *to->layout);
    assert_ptr_not_equal(to->layout, from->layout);
    assert_string_equal(to->key, "weight");
    assert_ptr_not_equal(to->key, from->key);
    assert_ptr_not_equal(to->index, from->index);

    /* What is added to one of them is not in the other. */
    assert_int_equal(dcp_state_add_chunk(copy, &chunk), DCP_OK);
    assert_int_equal(dcp_state_add_chunk(weight, &chunk), DCP_OK);
    dcp_state_free(source);
    chunk.offsets[0] = 7;
    assert_int_equal(dcp_state_add_chunk(copy, &chunk), DCP_ERR_OVERLAP);
    assert_non_null(strstr(dcp_error_message(), "weight"));
    dcp_state_free(root);
}

static void keeps_sharing_and_cycles(void **state)
{
    (void)state;
    dcp_state *source = dcp_state_new(), *root = dcp_state_new();
    dcp_state *list = dcp_state_list(source, "list");
    struct state_pool *pool = list->pool;
    assert_int_equal(node_append(pool, list, NULL, list), DCP_OK);
    dcp_state *shared = node_new(pool, DCP_KIND_DICT);
    assert_int_equal(node_append(pool, list, NULL, shared), DCP_OK);
    assert_int_equal(node_append(pool, list, NULL, shared), DCP_OK);
    dcp_state *copy = dcp_state_copy(root, "copy", list);
    assert_ptr_equal(dcp_state_at(copy, 0), copy);
    assert_ptr_not_equal(dcp_state_at(copy, 1), shared);
    assert_ptr_equal(dcp_state_at(copy, 1), dcp_state_at(copy, 2));
    dcp_state_free(source);
    dcp_state_free(root);
}

static void goes_into_the_tree_that_is_copied(void **state)
{
    (void)state;
    dcp_state *root = sample_new();
    dcp_state *copy = dcp_state_copy(root, "again", root);
    assert_non_null(copy);
    assert_int_equal(dcp_state_count(copy) + 1, dcp_state_count(root));
    dcp_state_free(root);
}

static void refuses_what_has_no_place(void **state)
{
    (void)state;
    dcp_state *root = dcp_state_new();
    assert_null(dcp_state_copy(NULL, "key", root));
    assert_null(dcp_state_copy(root, "key", NULL));
    assert_non_null(strstr(dcp_error_message(), "node to copy as \"key\" is NULL"));
    assert_int_equal(dcp_state_status(root), DCP_ERR_ARGUMENT);
    dcp_state_free(root);
}

static void survives_every_failing_allocation(void **state)
{
    (void)state;
    dcp_state *source = sample_new();
    for (long n = 1;; n++) {
        failing_allocator_install(n, false);
        dcp_state *root = dcp_state_new();
        dcp_state *copy = root ? dcp_state_copy(root, "copy", source) : NULL;
        if (root && !copy)
            assert_int_equal(dcp_state_status(root), DCP_ERR_NO_MEMORY);
        dcp_state_free(root);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        assert_int_equal(copy == NULL, reached);
        if (!reached)
            break;
    }
    dcp_state_free(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_all_kinds_and_borrows_the_memory_of_tensors),
        cmocka_unit_test(takes_no_part_of_a_tensor_from_the_source),
        cmocka_unit_test(keeps_sharing_and_cycles),
        cmocka_unit_test(goes_into_the_tree_that_is_copied),
        cmocka_unit_test(refuses_what_has_no_place),
        cmocka_unit_test(survives_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
