/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "dcp/state.h"
#include "fault/failing_allocator.h"
#include "state/flatten.h"
#include "state/node.h"

static int root_new(void **state)
{
    *state = dcp_state_new();
    return *state ? 0 : -1;
}

static int root_free(void **state)
{
    dcp_state_free(*state);
    return 0;
}

static void expect_message(const char *words)
{
    if (!strstr(dcp_error_message(), words))
        fail_msg("\"%s\" lacks \"%s\"", dcp_error_message(), words);
}

static void expect_json(const dcp_state *node, const char *expected)
{
    char *text;
    assert_int_equal(dcp_state_to_json(node, 0, &text), DCP_OK);
    assert_string_equal(text, expected);
    dcp_text_free(text);
}

/* (1, "a") */
static dcp_state *add_tuple(dcp_state *parent)
{
    dcp_state *tuple = dcp_state_tuple(parent, NULL);
    dcp_state_int(tuple, NULL, 1);
    dcp_state_string(tuple, NULL, "a");
    return tuple;
}

static void keys_are_of_any_kind(void **state)
{
    dcp_state *dict = dcp_state_dict(*state, "dict"), *pair = dcp_state_pair(dict);
    assert_int_equal(dcp_state_kind(pair), DCP_KIND_PAIR);
    assert_int_equal(dcp_state_none(pair, NULL), DCP_OK);
    assert_int_equal(dcp_state_count(dict), 0);
    assert_int_equal(dcp_state_int(pair, NULL, 1), DCP_OK);
    assert_int_equal(dcp_state_count(dict), 1);
    assert_int_equal(dcp_state_int(dcp_state_int_key(dict, -2), NULL, 2), DCP_OK);
    pair = dcp_state_pair(dict);
    dcp_state_digits(pair, NULL, "18446744073709551616");
    dcp_state_int(pair, NULL, 3);
    pair = dcp_state_pair(dict);
    dcp_state_float(pair, NULL, 0.5);
    dcp_state_int(pair, NULL, 4);
    pair = dcp_state_pair(dict);
    dcp_state_bytes(pair, NULL, "a", 1);
    dcp_state_int(pair, NULL, 5);
    pair = dcp_state_pair(dict);
    add_tuple(pair);
    dcp_state_int(dcp_state_dict(pair, NULL), "in a dict", 6);
    pair = dcp_state_pair(dict);
    dcp_state_int(dcp_state_frozenset(pair, NULL), NULL, 7);
    dcp_state_none(pair, NULL);
    pair = dcp_state_pair(dict);
    dcp_state_text(pair, NULL, "a\0b", 3);
    dcp_state_bool(pair, NULL, false);
    dcp_state_int(dict, "string", 8);
    assert_int_equal(dcp_state_status(*state), DCP_OK);
    expect_json(dict, "{\"$dict\": [[null, 1], [-2, 2], [18446744073709551616, 3], [0.5, 4], "
                      "[{\"$bytes\": \"61\"}, 5], [[1, \"a\"], {\"in a dict\": 6}], "
                      "[{\"$frozenset\": [7]}, null], [\"a\\u0000b\", false], [\"string\", 8]]}");
    int64_t key;
    assert_int_equal(dcp_state_as_int(dcp_state_key_at(dict, 1), &key), DCP_OK);
    assert_int_equal(key, -2);
}

static void sets_are_built(void **state)
{
    dcp_state *set = dcp_state_set(*state, "set"), *frozen = dcp_state_frozenset(set, NULL);
    dcp_state_int(set, NULL, 1);
    dcp_state_string(set, NULL, "1");
    add_tuple(set);
    for (int i = 0; i < 100; i++)
        assert_int_equal(dcp_state_int(frozen, NULL, i), DCP_OK);
    assert_int_equal(dcp_state_status(*state), DCP_OK);
    assert_int_equal(dcp_state_kind(set), DCP_KIND_SET);
    assert_int_equal(dcp_state_kind(frozen), DCP_KIND_FROZENSET);
    assert_int_equal(dcp_state_count(set), 4);
    assert_int_equal(dcp_state_count(frozen), 100);
    assert_null(dcp_state_key_at(set, 0));
    assert_ptr_equal(dcp_state_find_key(set, dcp_state_at(set, 3)), dcp_state_at(set, 3));
    assert_ptr_equal(dcp_state_find_key(set, frozen), frozen);
    assert_ptr_equal(dcp_state_find_key(frozen, dcp_state_at(set, 1)), dcp_state_at(frozen, 1));
    assert_null(dcp_state_find_key(frozen, dcp_state_at(set, 2)));
}

/* What a failing call says, in a tree of its own, whose first failure it is. */
#define REFUSED(call, expected, words)                                                             \
    do {                                                                                           \
        dcp_state *root = dcp_state_new(), *dict = dcp_state_dict(root, "dict");                   \
        dcp_state *set = dcp_state_set(root, "set"), *pair = dcp_state_pair(dict);                 \
        dcp_state *full = dcp_state_int_key(dict, 1);                                              \
        dcp_state_none(full, NULL);                                                                \
        dcp_state_float(set, NULL, 2);                                                             \
        (void)pair;                                                                                \
        (void)(call);                                                                              \
        expect_message(words);                                                                     \
        assert_int_equal(dcp_state_status(root), expected);                                        \
        expect_message(words);                                                                     \
        assert_int_equal(dcp_state_count(dict), 1);                                                \
        assert_int_equal(dcp_state_count(set), 1);                                                 \
        dcp_state_free(root);                                                                      \
    } while (0)

static void wrong_pairs_are_refused(void **state)
{
    const dcp_tensor tensor = {.dtype = DCP_F32};
    const dcp_stateful stateful = {0};
    (void)state;
    REFUSED(dcp_state_list(pair, NULL), DCP_ERR_ARGUMENT, "a list has no hash");
    REFUSED(dcp_state_dict(pair, NULL), DCP_ERR_ARGUMENT, "it cannot be the key of a dict");
    REFUSED(dcp_state_ordered_dict(pair, NULL), DCP_ERR_ARGUMENT, "ordered dict has no hash");
    REFUSED(dcp_state_set(pair, NULL), DCP_ERR_ARGUMENT, "a set has no hash");
    REFUSED(dcp_state_bytearray(pair, NULL, "a", 1), DCP_ERR_ARGUMENT, "bytearray has no hash");
    REFUSED(dcp_state_tensor(pair, NULL, &tensor), DCP_ERR_ARGUMENT, "a tensor equals only itself");
    REFUSED(dcp_state_stateful(pair, NULL, &stateful), DCP_ERR_ARGUMENT, "no state_dict");
    REFUSED(dcp_state_int(pair, "key", 1), DCP_ERR_ARGUMENT, "a pair have no key, but \"key\"");
    REFUSED(dcp_state_int(full, NULL, 1), DCP_ERR_ARGUMENT, "nothing more can be added");
    REFUSED(dcp_state_int(dict, NULL, 1), DCP_ERR_ARGUMENT, "dcp_state_pair()");
    REFUSED(dcp_state_bool(pair, NULL, true), DCP_ERR_DUPLICATE, "the key True is in the dict");
    REFUSED(dcp_state_int_key(dict, 1), DCP_ERR_DUPLICATE, "the key 1 is in the dict");
    REFUSED(dcp_state_complex(pair, NULL, 1, 0), DCP_ERR_DUPLICATE, "the key (1+0j) is in");
    REFUSED(dcp_state_int(set, NULL, 2), DCP_ERR_DUPLICATE, "the set has the element already");
    REFUSED(dcp_state_list(set, NULL), DCP_ERR_ARGUMENT, "it cannot be an element of a set");
    REFUSED(dcp_state_int(set, "key", 1), DCP_ERR_ARGUMENT, "elements of a set have no key");
    REFUSED(dcp_state_pair(set), DCP_ERR_ARGUMENT, "a pair belongs to a dict, not to set");
    REFUSED(dcp_state_copy(dict, "copy", pair), DCP_ERR_ARGUMENT, "cannot be copied");
    assert_null(dcp_state_pair(NULL));
    assert_null(dcp_state_int_key(NULL, 1));
}

/* Two pairs with one key, both begun before either has its value. */
static void keys_are_compared_again_with_the_value(void **state)
{
    dcp_state *first = dcp_state_int_key(*state, 5), *second = dcp_state_int_key(*state, 5);
    assert_non_null(second);
    assert_int_equal(dcp_state_int(first, NULL, 1), DCP_OK);
    assert_int_equal(dcp_state_int(second, NULL, 2), DCP_ERR_DUPLICATE);
    assert_int_equal(dcp_state_count(*state), 1);
}

static void half_a_pair_is_an_error_until_it_is_whole(void **state)
{
    dcp_state *root = *state, *list = dcp_state_list(dcp_state_dict(root, "a"), "b");
    dcp_state *entry = dcp_state_dict(dcp_state_int_key(dcp_state_dict(list, NULL), 7), NULL);
    dcp_state *outer = dcp_state_pair(root), *pair = dcp_state_pair(entry);
    assert_int_equal(dcp_state_status(root), DCP_ERR_ARGUMENT);
    expect_message("the dict at [\"a\"][\"b\"][0][7]: a pair has neither key nor");
    dcp_state_int(pair, NULL, 1);
    assert_int_equal(dcp_state_status(pair), DCP_ERR_ARGUMENT);
    expect_message("the dict at [\"a\"][\"b\"][0][7]: a pair has a key but no value");
    dcp_state_int(pair, NULL, 1);
    assert_int_equal(dcp_state_status(root), DCP_ERR_ARGUMENT);
    expect_message("the dict at the root: ");
    add_tuple(outer);
    dcp_state_none(outer, NULL);
    assert_int_equal(dcp_state_status(root), DCP_OK);
}

/* Tuples are filled after they were added, so that the tree is looked at as a whole. */
static void equal_tuples_are_found_when_they_are_complete(void **state)
{
    dcp_state *root = *state, *dict = dcp_state_dict(root, "dict"), *pair = dcp_state_pair(dict);
    add_tuple(pair);
    dcp_state_none(pair, NULL);
    pair = dcp_state_pair(dict);
    dcp_state *tuple = dcp_state_tuple(pair, NULL);
    dcp_state_int(tuple, NULL, 1);
    dcp_state_none(pair, NULL);
    assert_int_equal(dcp_state_status(root), DCP_OK);
    dcp_state_string(tuple, NULL, "a");
    assert_int_equal(dcp_state_status(root), DCP_ERR_DUPLICATE);
    expect_message("the dict at [\"dict\"]: the keys of pairs 0 and 1 are equal");
    dcp_state *copy = dcp_state_new();
    assert_non_null(dcp_state_copy(copy, "copy", dict));
    assert_int_equal(dcp_state_status(copy), DCP_ERR_DUPLICATE);
    expect_message("the dict at [\"copy\"]");
    dcp_state_free(copy);
    dcp_state_list(tuple, NULL);
    assert_int_equal(dcp_state_status(root), DCP_ERR_ARGUMENT);
    expect_message("a list, which cannot be hashed");
}

static void equal_frozensets_in_a_set_are_found(void **state)
{
    dcp_state *set = dcp_state_set(*state, "set");
    for (int i = 0; i < 2; i++) {
        dcp_state *frozen = dcp_state_frozenset(set, NULL);
        dcp_state_int(frozen, NULL, i ? 3 : 4);
        dcp_state_int(frozen, NULL, i ? 4 : 3);
    }
    assert_int_equal(dcp_state_status(*state), DCP_ERR_DUPLICATE);
    expect_message("the set at [\"set\"]: elements 0 and 1 are equal");
}

static void any_key_is_found(void **state)
{
    dcp_state *dict = dcp_state_dict(*state, "dict"), *keys = dcp_state_list(*state, "keys");
    dcp_state_float(keys, NULL, 3);
    add_tuple(keys);
    dcp_state_string(keys, NULL, "3");
    dcp_state_list(keys, NULL);
    dcp_state_bytes(keys, NULL, "3", 1);
    for (int64_t i = 0; i < 1000; i++)
        dcp_state_int(dcp_state_int_key(dict, i), NULL, i);
    dcp_state *pair = dcp_state_pair(dict);
    add_tuple(pair);
    dcp_state *value = dcp_state_dict(pair, NULL);
    assert_int_equal(dcp_state_status(dict), DCP_OK);
    assert_ptr_equal(dcp_state_find_key(dict, dcp_state_at(keys, 0)), dcp_state_at(dict, 3));
    assert_ptr_equal(dcp_state_find_int(dict, 999), dcp_state_at(dict, 999));
    assert_null(dcp_state_find_int(dict, 1000));
    assert_ptr_equal(dcp_state_find_key(dict, dcp_state_at(keys, 1)), value);
    assert_null(dcp_state_find_key(dict, dcp_state_at(keys, 2)));
    assert_null(dcp_state_find_key(dict, dcp_state_at(keys, 3)));
    assert_null(dcp_state_find_key(dict, dcp_state_at(keys, 4)));
    dcp_state_int(dcp_state_at(keys, 1), NULL, 0);
    assert_null(dcp_state_find_key(dict, dcp_state_at(keys, 1)));
    assert_null(dcp_state_find_key(keys, dcp_state_at(keys, 0)));
    assert_null(dcp_state_find_key(NULL, keys));
    assert_null(dcp_state_find_key(dict, NULL));
}

/* A load replaces what pairs and tuples were added to, and copies of trees are trees. */
static void replaced_values_are_looked_at_no_longer(void **state)
{
    dcp_state *root = *state;
    assert_int_equal(dcp_state_none(root, "value"), DCP_OK);
    dcp_state *target = dcp_state_find(root, "value");
    for (int round = 0; round < 3; round++) {
        struct state_pool *pool = state_pool_new(root->root);
        assert_int_equal(node_replace(target, pool, node_new(pool, DCP_KIND_DICT)), DCP_OK);
        for (int i = 0; i < 2; i++) { /* equal, and a pair without a value */
            dcp_state *pair = dcp_state_pair(target);
            add_tuple(pair);
            dcp_state_int(pair, NULL, i);
        }
        assert_non_null(dcp_state_pair(target));
        assert_int_equal(dcp_state_status(root), DCP_ERR_ARGUMENT);
    }
    struct state_pool *pool = state_pool_new(root->root);
    assert_int_equal(node_replace(target, pool, node_int(pool, 1)), DCP_OK);
    assert_int_equal(dcp_state_status(root), DCP_OK);

    dcp_state *copy = NULL, *pair = dcp_state_pair(root);
    add_tuple(pair);
    dcp_state_none(pair, NULL);
    assert_int_equal(state_copy_root(root, &copy), DCP_OK);
    pair = dcp_state_pair(copy);
    add_tuple(pair);
    dcp_state_none(pair, NULL);
    assert_int_equal(dcp_state_status(copy), DCP_ERR_DUPLICATE);
    expect_message("the dict at the root");
    assert_int_equal(dcp_state_status(root), DCP_OK);
    dcp_state_free(copy);
}

static void int_keys_are_parts_of_names(void **state)
{
    static float elements[2][3];
    static const char *const names[] = {"optimizer.state.0.exp_avg", "optimizer.state.10.exp_avg",
                                        "optimizer.(1, 'a')"};
    dcp_state *root = *state, *optimizer = dcp_state_dict(root, "optimizer");
    dcp_state *states = dcp_state_dict(optimizer, "state"), *pair = dcp_state_pair(optimizer);
    for (int i = 0; i < 2; i++) {
        const dcp_tensor tensor = {
            .dtype = DCP_F32, .ndim = 1, .global_shape = {3}, .data = elements[i]};
        dcp_state *entry = dcp_state_dict(dcp_state_int_key(states, i * 10), NULL);
        assert_non_null(dcp_state_tensor(entry, "exp_avg", &tensor));
    }
    add_tuple(pair);
    dcp_state_none(pair, NULL);
    struct flat_state flat;
    assert_int_equal(flatten_state(root, &flat), DCP_OK);
    assert_int_equal(flat.count, 3);
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(flat.entries[i].name, names[i]);
    assert_string_equal(flat.entries[1].path[2].key, "10");
    flatten_free(&flat);
    dcp_state_none(states, "0");
    assert_int_equal(flatten_state(root, &flat), DCP_OK);
    flatten_free(&flat);
    dcp_state_none(dcp_state_int_key(root, 4), NULL);
    dcp_state_none(root, "4");
    assert_int_equal(flatten_state(root, &flat), DCP_ERR_DUPLICATE);
    expect_message("duplicated flatten key 4");
}

static dcp_status build_everything(dcp_state *root)
{
    char large[600] = {0};
    dcp_state *dict = dcp_state_dict(root, "dict"), *set = dcp_state_set(root, "set");
    for (int i = 0; i < 20; i++) {
        dcp_state_bytes(dcp_state_int_key(dict, i), NULL, large, sizeof large);
        dcp_state_float(set, NULL, i + 0.5);
    }
    dcp_state *pair = dcp_state_pair(dict);
    dcp_state *tuple = dcp_state_tuple(pair, NULL);
    for (int i = 0; i < 20; i++)
        dcp_state_int(dcp_state_frozenset(tuple, NULL), NULL, i);
    dcp_state_none(pair, NULL);
    for (int i = 0; i < 20; i++)
        dcp_state_int(dcp_state_frozenset(set, NULL), NULL, i);
    return dcp_state_status(root);
}

/* Building, looking at, copying and finding again. */
static dcp_status use_everything(dcp_state *root)
{
    dcp_state *copy = NULL;
    dcp_status status = build_everything(root);
    if (status == DCP_OK)
        status = state_copy_root(root, &copy);
    if (status == DCP_OK)
        status = dcp_state_status(copy);
    if (status == DCP_OK) {
        const dcp_state *dict = dcp_state_find(root, "dict");
        const dcp_state *key = dcp_state_key_at(dict, dcp_state_count(dict) - 1);
        if (!dcp_state_find_key(dcp_state_find(copy, "dict"), key))
            status = DCP_ERR_NO_MEMORY;
    }
    dcp_state_free(copy);
    return status;
}

static void memory_failures_stick(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        failing_allocator_install(n, false);
        dcp_state *root = dcp_state_new();
        dcp_status status = root ? use_everything(root) : DCP_ERR_NO_MEMORY;
        dcp_state_free(root);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        if (!reached)
            break;
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, root_new, root_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(keys_are_of_any_kind),
        TEST(sets_are_built),
        cmocka_unit_test(wrong_pairs_are_refused),
        TEST(keys_are_compared_again_with_the_value),
        TEST(half_a_pair_is_an_error_until_it_is_whole),
        TEST(equal_tuples_are_found_when_they_are_complete),
        TEST(equal_frozensets_in_a_set_are_found),
        TEST(any_key_is_found),
        TEST(replaced_values_are_looked_at_no_longer),
        TEST(int_keys_are_parts_of_names),
        cmocka_unit_test(memory_failures_stick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
