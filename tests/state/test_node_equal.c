/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dcp/environment.h"
#include "fault/failing_allocator.h"
#include "state/node_equal.h"

enum { KINDS = 14 };

/* Value number kind in one of two variants that differ. Equal arguments give equal values. */
static dcp_state *make(dcp_state *root, int kind, int variant)
{
    static float elements[2][6] = {{1, 2, 3, 4, 5, 6}, {1, 3, 2, 4, 5, 7}};
    struct state_pool *pool = &root->root->own;
    dcp_state *list = dcp_state_list(root, "list");
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 2, .global_shape = {2, 3}};
    tensor.data = elements[variant];
    switch (kind) {
    case 0:
        variant ? dcp_state_none(list, NULL) : dcp_state_bool(list, NULL, false);
        break;
    case 1:
        dcp_state_bool(list, NULL, variant);
        break;
    case 2:
        dcp_state_int(list, NULL, variant ? -1 : 1);
        break;
    case 3:
        variant ? dcp_state_uint(list, NULL, UINT64_MAX) : dcp_state_int(list, NULL, -1);
        break;
    case 4:
        dcp_state_float(list, NULL, variant ? NAN : 0.0);
        break;
    case 5:
        dcp_state_float(list, NULL, variant ? -0.0 : 0.0);
        break;
    case 6:
        dcp_state_text(list, NULL, "a\0b", variant ? 3 : 1);
        break;
    case 7:
        variant ? dcp_state_bytes(list, NULL, "a", 1) : dcp_state_string(list, NULL, "a");
        break;
    case 8:
        dcp_state_tensor(list, NULL, &tensor);
        break;
    case 9: /* a transposed view against a dense tensor of the same shape */
        tensor.data = elements[0];
        tensor.strided = true;
        tensor.strides[0] = variant ? 1 : 3;
        tensor.strides[1] = variant ? 2 : 1;
        dcp_state_tensor(list, NULL, &tensor);
        break;
    case 10:
        dcp_state_int(dcp_state_dict(list, NULL), variant ? "a" : "b", 1);
        break;
    case 11:
        dcp_state_int(variant ? dcp_state_tuple(list, NULL) : list, NULL, 1);
        break;
    case 12:
        node_append(pool, list, NULL,
                    node_digits(pool, variant ? "99999999999999999999" : "99999999999999999998"));
        break;
    default:
        node_append(pool, list, NULL, node_text(pool, DCP_KIND_OPAQUE, variant ? "a.b" : "a.c", 3));
    }
    assert_int_equal(dcp_state_status(root), DCP_OK);
    return list;
}

/* Some values are there twice: the first place of one. */
static int first_of(int value)
{
    static const int twice[][2] = {{2, 0}, {6, 5}, {10, 8}, {14, 12}, {18, 16}, {22, 4}};
    for (size_t i = 0; i < sizeof twice / sizeof *twice; i++)
        if (value == twice[i][0])
            return twice[i][1];
    return value;
}

static void values_are_equal_to_themselves_and_no_others(void **state)
{
    (void)state;
    for (int pair = 0; pair < 2 * KINDS * 2 * KINDS; pair++) {
        int first = pair / (2 * KINDS), second = pair % (2 * KINDS);
        dcp_state *roots[2] = {dcp_state_new(), dcp_state_new()};
        const dcp_state *left = make(roots[0], first / 2, first % 2);
        const dcp_state *right = make(roots[1], second / 2, second % 2);
        bool equal = false;
        assert_int_equal(node_equal(left, right, &equal), DCP_OK);
        bool same = first_of(first) == first_of(second);
        if (equal != same)
            fail_msg("%d against %d", first, second);
        dcp_state_free(roots[0]);
        dcp_state_free(roots[1]);
    }
}

static void what_contains_itself_ends(void **state)
{
    (void)state;
    dcp_state *root = dcp_state_new();
    struct state_pool *pool = &root->root->own;
    dcp_state *nodes[2];
    bool equal;
    for (int i = 0; i < 2; i++) {
        nodes[i] = node_new(pool, DCP_KIND_LIST);
        assert_int_equal(node_append(pool, nodes[i], NULL, nodes[i]), DCP_OK);
    }
    assert_int_equal(node_equal(nodes[0], nodes[1], &equal), DCP_ERR_UNSUPPORTED);
    assert_int_equal(node_equal(nodes[0], nodes[0], &equal), DCP_OK);
    assert_true(equal);
    dcp_state_free(root);
}

/* A set of the elements first to last - 1 of a list that repeats them. */
static dcp_state *add_set(dcp_state *root, const char *key, size_t first, const char *opaque)
{
    dcp_state *set = dcp_state_set(root, key);
    for (size_t i = first; i < first + 5; i++) {
        if (i % 5 == 0)
            dcp_state_int(set, NULL, 1);
        else if (i % 5 == 1)
            dcp_state_string(set, NULL, "1");
        else if (i % 5 == 2)
            dcp_state_int(dcp_state_tuple(set, NULL), NULL, 2);
        else if (i % 5 == 3)
            dcp_state_int(dcp_state_frozenset(set, NULL), NULL, 2);
        else
            node_append(set->pool, set, NULL,
                        node_text(set->pool, DCP_KIND_OPAQUE, opaque, strlen(opaque)));
    }
    assert_int_equal(dcp_state_status(root), DCP_OK);
    return set;
}

static void sets_have_no_order(void **state)
{
    (void)state;
    dcp_state *root = dcp_state_new();
    bool equal;
    dcp_state *set = add_set(root, "0", 0, "a.b");
    for (size_t first = 1; first < 5; first++) {
        char key[2] = {(char)('0' + first), '\0'};
        assert_int_equal(node_equal(set, add_set(root, key, first, "a.b"), &equal), DCP_OK);
        assert_true(equal);
    }
    /* another object, and a value of another kind that Python takes for the same */
    assert_int_equal(node_equal(set, add_set(root, "other", 1, "a.c"), &equal), DCP_OK);
    assert_false(equal);
    dcp_state *numbers[4];
    for (int i = 0; i < 4; i++)
        numbers[i] = dcp_state_set(root, i == 0 ? "i" : i == 1 ? "f" : i == 2 ? "more" : "less");
    dcp_state_int(numbers[0], NULL, 3);
    dcp_state_float(numbers[1], NULL, 3);
    dcp_state_int(numbers[2], NULL, 3);
    dcp_state_int(numbers[2], NULL, 4);
    for (int i = 1; i < 4; i++) {
        assert_int_equal(node_equal(numbers[0], numbers[i], &equal), DCP_OK);
        assert_false(equal);
    }
    dcp_state_free(root);
}

static void memory_failures_are_reported(void **state)
{
    (void)state;
    dcp_state *root = dcp_state_new();
    const dcp_state *left = add_set(root, "left", 0, "a.b"), *right = add_set(root, "b", 3, "a.b");
    for (long n = 1;; n++) {
        bool equal = false;
        failing_allocator_install(n, false);
        dcp_status status = node_equal(left, right, &equal);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        if (!reached)
            break;
    }
    dcp_state_free(root);
}

/* ---- in little memory ---- */

static void *allocate_little(void *context, size_t size)
{
    (void)context;
    return size <= (size_t)1 << 20 ? malloc(size) : NULL;
}

static void *reallocate_little(void *context, void *block, size_t size)
{
    (void)context;
    return size <= (size_t)1 << 20 ? realloc(block, size) : NULL;
}

static void release_little(void *context, void *block)
{
    (void)context;
    free(block);
}

static int little_begin(void **state)
{
    static const dcp_allocator little = {allocate_little, reallocate_little, release_little, NULL};
    (void)state;
    return dcp_set_allocator(&little) == DCP_OK ? 0 : -1;
}

static int little_end(void **state)
{
    (void)state;
    return dcp_set_allocator(NULL) == DCP_OK ? 0 : -1;
}

enum { ROWS = 300, COLUMNS = 500 };

/* A matrix of which each row is the same, against one of so many rows. */
static void large_tensors_are_compared_in_parts(void **state)
{
    (void)state;
    static double rows[ROWS][COLUMNS];
    dcp_tensor tensor = {.dtype = DCP_F64, .ndim = 2, .global_shape = {ROWS, COLUMNS}};
    dcp_state *root = dcp_state_new();
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++)
            rows[i][j] = j;
    tensor.data = rows;
    const dcp_state *full = dcp_state_tensor(root, "full", &tensor);
    tensor.strided = true;
    tensor.strides[1] = 1;
    const dcp_state *repeated = dcp_state_tensor(root, "repeated", &tensor);
    for (int change = -1; change < ROWS; change += 30) {
        bool equal = change >= 0;
        if (change >= 0)
            rows[change][COLUMNS - 1]++;
        assert_int_equal(node_equal(full, repeated, &equal), DCP_OK);
        assert_int_equal(equal, change < 0);
        if (change >= 0)
            rows[change][COLUMNS - 1]--;
    }
    dcp_state_free(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_equal_to_themselves_and_no_others),
        cmocka_unit_test(what_contains_itself_ends),
        cmocka_unit_test(sets_have_no_order),
        cmocka_unit_test(memory_failures_are_reported),
        cmocka_unit_test_setup_teardown(large_tensors_are_compared_in_parts, little_begin,
                                        little_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
