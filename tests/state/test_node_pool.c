/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "dcp/environment.h"
#include "fault/failing_allocator.h"
#include "state/node_block.h"
#include "state/random.h"

/* ---- an allocator that knows how many bytes are in use ---- */

struct counted {
    _Alignas(max_align_t) size_t size;
};

static size_t bytes_in_use;

static void *counting_allocate(void *context, size_t size)
{
    (void)context;
    struct counted *block = malloc(sizeof *block + size);
    if (!block)
        return NULL;
    block->size = size;
    bytes_in_use += size;
    return block + 1;
}

static void counting_release(void *context, void *bytes)
{
    (void)context;
    if (!bytes)
        return;
    struct counted *block = (struct counted *)bytes - 1;
    bytes_in_use -= block->size;
    free(block);
}

static void *counting_reallocate(void *context, void *bytes, size_t size)
{
    void *grown = counting_allocate(context, size);
    if (grown && bytes) {
        size_t before = ((struct counted *)bytes - 1)->size;
        memcpy(grown, bytes, before < size ? before : size);
        counting_release(context, bytes);
    }
    return grown;
}

static const dcp_allocator counting = {counting_allocate, counting_reallocate, counting_release,
                                       NULL};

static int counting_begin(void **state)
{
    (void)state;
    bytes_in_use = 0;
    return dcp_set_allocator(&counting) == DCP_OK ? 0 : -1;
}

static int counting_end(void **state)
{
    (void)state;
    dcp_set_allocator(NULL);
    return bytes_in_use == 0 ? 0 : -1;
}

/* ---- objects as a load makes them ---- */

/* A dict of `count` ints and a tensor with memory. NULL: no memory. */
static struct state_pool *object_make(dcp_state *root, int count, dcp_state **object)
{
    struct state_pool *pool = state_pool_new(root->root);
    if (!pool)
        return NULL;
    *object = node_new(pool, DCP_KIND_DICT);
    dcp_tensor whole = {.dtype = DCP_U8, .ndim = 1, .global_shape = {1000}};
    struct state_block *block;
    bool allocated = state_block_new(pool, &whole.device, 1000, &block) == DCP_OK;
    whole.data = allocated ? block->data : NULL;
    dcp_state *tensor = allocated ? node_tensor(pool, &whole, block) : NULL;
    bool made =
        *object && tensor &&
        node_append(pool, *object, node_text(pool, DCP_KIND_STRING, "t", 1), tensor) == DCP_OK;
    for (int i = 0; made && i < count; i++) {
        char key[2] = {(char)('A' + i), 0};
        dcp_state *name = node_text(pool, DCP_KIND_STRING, key, 1);
        dcp_state *value = node_int(pool, i);
        made = name && value && node_append(pool, *object, name, value) == DCP_OK;
    }
    if (made)
        return pool;
    state_pool_free(pool);
    return NULL;
}

static void replaced_objects_give_their_memory_back(void **state)
{
    (void)state;
    dcp_state *root = dcp_state_new();
    dcp_state_none(root, "object");
    dcp_state *target = dcp_state_find(root, "object");
    size_t after_first = 0;
    for (int round = 0; round < 50; round++) {
        dcp_state *object;
        struct state_pool *pool = object_make(root, 20, &object);
        assert_non_null(pool);
        assert_int_equal(node_replace(target, pool, object), DCP_OK);
        assert_ptr_equal(dcp_state_find(root, "object"), target);
        assert_int_equal(dcp_state_kind(target), DCP_KIND_DICT);
        assert_int_equal(dcp_state_count(target), 21);
        assert_non_null(dcp_state_find(target, "T"));
        if (round == 0)
            after_first = bytes_in_use;
        assert_int_equal(bytes_in_use, after_first);
    }
    dcp_state_free(root);
}

static void objects_inside_a_replaced_object_go_with_it(void **state)
{
    (void)state;
    dcp_state *root = dcp_state_new();
    dcp_state_none(root, "object");
    dcp_state *target = dcp_state_find(root, "object");
    size_t after_first = 0;
    for (int round = 0; round < 20; round++) {
        dcp_state *place = target;
        for (int depth = 0; depth < 5; depth++) {
            dcp_state *object;
            struct state_pool *pool = object_make(root, 20, &object);
            assert_non_null(pool);
            assert_int_equal(node_replace(place, pool, object), DCP_OK);
            assert_int_equal(dcp_state_int(place, "added by the caller", depth), DCP_OK);
            place = dcp_state_find(place, "C");
        }
        if (round == 0)
            after_first = bytes_in_use;
        assert_int_equal(bytes_in_use, after_first);
    }
    dcp_state_free(root);
}

static void objects_nest_without_recursion(void **state)
{
    (void)state;
    dcp_state *root = dcp_state_new();
    dcp_state_none(root, "object");
    dcp_state *place = dcp_state_find(root, "object");
    for (int depth = 0; depth < 50000; depth++) {
        struct state_pool *pool = state_pool_new(root->root);
        dcp_state *object = node_new(pool, DCP_KIND_LIST);
        dcp_state *inner = node_new(pool, DCP_KIND_NONE);
        assert_int_equal(node_append(pool, object, NULL, inner), DCP_OK);
        assert_int_equal(node_replace(place, pool, object), DCP_OK);
        place = inner;
    }
    dcp_state_free(root);
}

static void siblings_are_replaced_in_any_order(void **state)
{
    (void)state;
    enum { PLACES = 5 };
    dcp_state *root = dcp_state_new();
    dcp_state *list = dcp_state_list(root, "list");
    for (int i = 0; i < PLACES; i++)
        dcp_state_none(list, NULL);
    struct random random = {41};
    for (int round = 0; round < 60; round++) {
        dcp_state *object;
        struct state_pool *pool = object_make(root, 3, &object);
        assert_int_equal(
            node_replace(dcp_state_at(list, (size_t)random_between(&random, 0, PLACES - 1)), pool,
                         object),
            DCP_OK);
    }
    dcp_state_free(root);
}

static void only_objects_of_the_tree_replace(void **state)
{
    (void)state;
    dcp_state *root = dcp_state_new();
    dcp_state *other = dcp_state_new();
    dcp_state_none(root, "object");
    dcp_state *object;
    struct state_pool *pool = object_make(other, 1, &object);
    assert_int_equal(node_replace(dcp_state_find(root, "object"), pool, object), DCP_ERR_ARGUMENT);
    assert_int_equal(node_replace(other, pool, object), DCP_ERR_ARGUMENT);
    state_pool_free(pool);
    dcp_state_free(other);
    dcp_state_free(root);
}

static void chunks_get_memory_from_the_tree(void **state)
{
    (void)state;
    dcp_state *root = dcp_state_new();
    dcp_tensor tensor = {.dtype = DCP_F64,
                         .ndim = 2,
                         .sharded = true,
                         .strided = true,
                         .global_shape = {10, 10},
                         .sizes = {3, 4},
                         .strides = {1, 3}};
    dcp_state *node = dcp_state_tensor(root, "t", &tensor);
    assert_int_equal(node_chunk_allocate(node, 0), DCP_OK);
    assert_int_equal(dcp_state_chunk(node, 0, &tensor), DCP_OK);
    assert_non_null(tensor.data);
    assert_int_equal((uintptr_t)tensor.data % 64, 0);
    assert_false(tensor.strided);
    assert_int_equal(tensor.strides[0], 4);
    memset(tensor.data, 1, 3 * 4 * 8);
    dcp_state_free(root);
}

static void freeing_what_is_no_root_does_nothing(void **state)
{
    (void)state;
    dcp_state *root = dcp_state_new();
    dcp_state_free(dcp_state_dict(root, "a"));
    dcp_state_free(NULL);
    state_pool_free(NULL);
    assert_non_null(dcp_state_find(root, "a"));
    dcp_state_free(root);
}

static void marks_belong_to_a_walk(void **state)
{
    (void)state;
    dcp_state *root = dcp_state_new();
    uint32_t first = node_walk_begin(root);
    assert_int_equal(node_mark(root, first), 0);
    node_set_mark(root, first, 3);
    assert_int_equal(node_mark(root, first), 3);
    uint32_t second = node_walk_begin(root);
    assert_int_equal(node_mark(root, second), 0);
    node_set_mark(root, second, 1);
    assert_int_equal(node_mark(root, second), 1);
    dcp_state_free(root);
}

static dcp_status replace_and_allocate(void)
{
    dcp_state *root = dcp_state_new();
    if (!root)
        return DCP_ERR_NO_MEMORY;
    dcp_state *object;
    struct state_pool *pool = NULL;
    dcp_status status = dcp_state_none(root, "object");
    if (status == DCP_OK) {
        status = DCP_ERR_NO_MEMORY;
        pool = object_make(root, 20, &object);
    }
    if (pool) {
        status = node_replace(dcp_state_find(root, "object"), pool, object);
        dcp_tensor wanted = {.dtype = DCP_F32, .ndim = 1, .global_shape = {500}};
        dcp_state *tensor = dcp_state_tensor(dcp_state_find(root, "object"), "wanted", &wanted);
        if (status == DCP_OK)
            status = tensor ? node_chunk_allocate(tensor, 0) : DCP_ERR_NO_MEMORY;
    }
    dcp_state_free(root);
    return status;
}

static void memory_failures_are_reported(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        failing_allocator_install(n, false);
        dcp_status status = replace_and_allocate();
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        if (!reached) {
            assert_int_equal(status, DCP_OK);
            break;
        }
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, counting_begin, counting_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(replaced_objects_give_their_memory_back),
        TEST(objects_inside_a_replaced_object_go_with_it),
        TEST(objects_nest_without_recursion),
        TEST(siblings_are_replaced_in_any_order),
        TEST(only_objects_of_the_tree_replace),
        TEST(chunks_get_memory_from_the_tree),
        TEST(freeing_what_is_no_root_does_nothing),
        TEST(marks_belong_to_a_walk),
        cmocka_unit_test(memory_failures_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
