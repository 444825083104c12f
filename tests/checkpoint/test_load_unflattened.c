/* SPDX-License-Identifier: BSD-3-Clause */
/* What PyTorch saved with flatten_state_dict=False, and what it saved whole until 2.4, loaded into
 * trees that are flattened or not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"

/* Of PyTorch 2.13: a tensor "plain" of 3, "n": 3, "tup": (1, tensor([1., 1.])). */
#define NO_FLATTEN FIXTURES "/no_flatten/ckpt"

static void plain_values_load_into_both(void **state)
{
    (void)state;
    for (int unflattened = 0; unflattened < 2; unflattened++) {
        dcp_load_options options = {.unflattened = unflattened != 0};
        dcp_tensor plain = {.dtype = DCP_F32, .ndim = 1, .global_shape = {3}};
        dcp_state *root = dcp_state_new();
        dcp_state *node = dcp_state_tensor(root, "plain", &plain);
        int64_t n = 0;
        dcp_state_int(root, "n", 0);
        dcp_state_tuple(root, "tup");
        must(dcp_load(root, NO_FLATTEN, &options, NULL));
        must(dcp_state_as_int(dcp_state_find(root, "n"), &n));
        assert_int_equal(n, 3);
        must(dcp_state_chunk(node, 0, &plain));
        assert_non_null(plain.data);
        const dcp_state *tuple = dcp_state_find(root, "tup");
        assert_int_equal(dcp_state_count(tuple), 2);
        must(dcp_state_chunk(dcp_state_at(tuple, 1), 0, &plain));
        assert_true(((const float *)plain.data)[1] == 1);
        dcp_state_free(root);
    }
}

static void nested_dicts_are_replaced_by_what_is_stored(void **state)
{
    dcp_load_options options = {.unflattened = true};
    (void)state;
    float untouched[2] = {7, 7};
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .data = untouched, .global_shape = {2}};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(dcp_state_dict(root, "tup"), "w", &tensor);
    must(dcp_load(root, NO_FLATTEN, &options, NULL));
    assert_int_equal(dcp_state_kind(dcp_state_find(root, "tup")), DCP_KIND_TUPLE);
    assert_true(untouched[0] == 7);
    options.unflattened = false;
    dcp_state_free(root);

    root = dcp_state_new();
    dcp_state_tensor(dcp_state_dict(root, "tup"), "w", &tensor);
    must_fail(dcp_load(root, NO_FLATTEN, &options, NULL), DCP_ERR_MISSING_KEY,
              "its parent \"tup\" is stored as one object");
    dcp_state_free(root);
}

static void a_dict_without_tensors_is_one_object_where_it_is_stored_so(void **state)
{
    (void)state;
    dcp_state *root = dcp_state_new();
    dcp_state_int(dcp_state_dict(root, "tup"), "a", 1);
    must(dcp_load(root, NO_FLATTEN, NULL, NULL));
    assert_int_equal(dcp_state_kind(dcp_state_find(root, "tup")), DCP_KIND_TUPLE);
    dcp_state_free(root);
}

/* ---- tensors that share a storage, inside of a dict that is stored whole ---- */

static dcp_tensor chunk_of(dcp_state *root, const char *name)
{
    dcp_tensor chunk;
    must(dcp_state_chunk(dcp_state_find(dcp_state_find(root, "model"), name), 0, &chunk));
    return chunk;
}

/* {"model": a dict with what is stored}. */
static dcp_state *load_model(const char *path)
{
    const dcp_load_options options = {.unflattened = true};
    dcp_state *root = dcp_state_new();
    dcp_state_dict(root, "model");
    must(dcp_load(root, path, &options, NULL));
    return root;
}

/* A load into one of them is one into all of them, and they are still shared when they are saved
 * again; what was there before a whole dict is loaded goes. */
static void shared_tensors_are_shared_as_destinations(void **state)
{
    const dcp_save_options whole = {.unflattened = true, .overwrite = DCP_OVERWRITE_REPLACE};
    const dcp_load_options some = {.strictness = DCP_STRICT_PARTIAL};
    const dcp_load_options unflattened = {.unflattened = true};
    float first[] = {1, 2, 3, 4}, second[] = {5, 6, 7, 8};
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .data = first, .global_shape = {4}};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(dcp_state_dict(root, "model"), "w", &tensor);
    must(dcp_save(root, path_in(state, "one"), &whole));
    dcp_state_free(root);

    dcp_state *one = load_model(path_in(state, "one"));
    const dcp_state *weight = dcp_state_find(dcp_state_find(one, "model"), "w");
    root = dcp_state_new();
    dcp_state_dict(root, "model");
    dcp_state_copy(dcp_state_find(root, "model"), "w", weight);
    dcp_state_copy(dcp_state_find(root, "model"), "tied", weight);
    must(dcp_save(root, path_in(state, "two"), &whole));
    dcp_state_free(root);
    dcp_state_free(one);

    dcp_state *two = load_model(path_in(state, "two"));
    assert_ptr_equal(chunk_of(two, "tied").data, chunk_of(two, "w").data);
    root = dcp_state_new();
    tensor.data = second;
    dcp_state_tensor(dcp_state_dict(root, "model"), "w", &tensor);
    must(dcp_save(root, path_in(state, "flat"), NULL));
    dcp_state_free(root);
    must(dcp_load(two, path_in(state, "flat"), &some, NULL));
    assert_memory_equal(chunk_of(two, "tied").data, second, sizeof second);
    must(dcp_save(two, path_in(state, "one"), &whole));

    must(dcp_load(two, path_in(state, "two"), &unflattened, NULL));
    assert_memory_equal(chunk_of(two, "tied").data, first, sizeof first);
    must(dcp_load(two, path_in(state, "one"), &unflattened, NULL));
    assert_memory_equal(chunk_of(two, "tied").data, second, sizeof second);
    assert_ptr_equal(chunk_of(two, "tied").data, chunk_of(two, "w").data);
    dcp_state_free(two);
}

struct reported {
    int asked;
    int64_t value;
};

static dcp_status give_value(void *context, dcp_state *into)
{
    ((struct reported *)context)->asked++;
    return dcp_state_int(into, "value", 0);
}

static dcp_status take_value(void *context, const dcp_state *filled)
{
    struct reported *reported = context;
    return dcp_state_as_int(dcp_state_at(filled, 0), &reported->value);
}

static void stateful_entries_receive_the_whole(void **state)
{
    (void)state;
    struct reported reported = {0};
    dcp_stateful entry = {give_value, take_value, &reported};
    dcp_load_options options = {.unflattened = true};
    dcp_state *root = dcp_state_new();
    dcp_state_stateful(root, "tup", &entry);
    must(dcp_load(root, NO_FLATTEN, &options, NULL));
    assert_int_equal(reported.asked, 1);
    assert_int_equal(reported.value, 1);
    dcp_state_free(root);
}

static dcp_status load_otherwise(struct rank *self)
{
    dcp_load_options options = {.group = self->group, .unflattened = self->rank == 1};
    dcp_state *root = dcp_state_new();
    dcp_state_int(root, "n", 0);
    dcp_status status = dcp_load(root, self->path, &options, NULL);
    dcp_state_free(root);
    return status;
}

static void ranks_that_disagree_are_reported(void **state)
{
    (void)state;
    struct rank ranks[RANKS_MAX];
    ranks_run(ranks, 2, NO_FLATTEN, load_otherwise, NULL);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(ranks[r].status, DCP_ERR_ARGUMENT);
        assert_string_equal(ranks[r].message,
                            "rank 1: unflattened is 1, but the coordinator's is 0: "
                            "all ranks must pass the same");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_values_load_into_both),
        cmocka_unit_test(nested_dicts_are_replaced_by_what_is_stored),
        cmocka_unit_test(a_dict_without_tensors_is_one_object_where_it_is_stored_so),
        cmocka_unit_test_setup_teardown(shared_tensors_are_shared_as_destinations, directory_setup,
                                        directory_teardown),
        cmocka_unit_test(stateful_entries_receive_the_whole),
        cmocka_unit_test(ranks_that_disagree_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
