/* SPDX-License-Identifier: BSD-3-Clause */
/* Values that are stored whole: with flatten_state_dict off, and in tuples. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"

enum { MANY = 40 };

static float weights[2][3] = {{0, 1, 2}, {3, 4, 5}};
static uint16_t counters[MANY];
static double scalar = 0.5;

static void build(dcp_state *root)
{
    dcp_tensor weight = {.dtype = DCP_F32,
                         .ndim = 2,
                         .strided = true,
                         .requires_grad = true,
                         .global_shape = {3, 2},
                         .strides = {1, 3},
                         .data = weights};
    dcp_tensor counter = {.dtype = DCP_U16, .ndim = 1, .global_shape = {1}};
    dcp_tensor number = {.dtype = DCP_F64, .data = &scalar};
    dcp_tensor empty = {.dtype = DCP_BF16, .ndim = 5, .global_shape = {2, 0, 1, 1, 3}};
    dcp_state *model = dcp_state_dict(root, "model");
    dcp_state_tensor(dcp_state_dict(model, "layer"), "weight", &weight);
    dcp_state_tensor(model, "number", &number);
    dcp_state_tensor(model, "empty", &empty);
    dcp_state *list = dcp_state_list(model, "counters");
    for (int i = 0; i < MANY; i++) {
        counters[i] = (uint16_t)(1000 + i);
        counter.data = &counters[i];
        dcp_state_tensor(list, NULL, &counter);
    }
    dcp_state_int(model, "epoch", 3);
    dcp_state_tensor(root, "plain", &number);
    dcp_state_int(root, "step", 7);
    must(dcp_state_status(root));
}

static void check_floats(const dcp_state *node)
{
    dcp_tensor chunk;
    must(dcp_state_chunk(node, 0, &chunk));
    assert_int_equal(chunk.dtype, DCP_F32);
    assert_int_equal(chunk.global_shape[0], 3);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 2; j++)
            assert_true(((const float *)chunk.data)[i * 2 + j] == weights[j][i]);
}

static void check_model(const dcp_state *model)
{
    dcp_tensor chunk;
    int64_t epoch = 0;
    check_floats(dcp_state_find(dcp_state_find(model, "layer"), "weight"));
    must(dcp_state_chunk(dcp_state_find(model, "number"), 0, &chunk));
    assert_true(*(const double *)chunk.data == 0.5);
    must(dcp_state_chunk(dcp_state_find(model, "empty"), 0, &chunk));
    assert_int_equal(chunk.ndim, 5);
    const dcp_state *list = dcp_state_find(model, "counters");
    assert_int_equal(dcp_state_count(list), MANY);
    for (int i = 0; i < MANY; i++) {
        must(dcp_state_chunk(dcp_state_at(list, (size_t)i), 0, &chunk));
        assert_int_equal(*(const uint16_t *)chunk.data, 1000 + i);
    }
    must(dcp_state_as_int(dcp_state_find(model, "epoch"), &epoch));
    assert_int_equal(epoch, 3);
}

static void stores_each_value_of_the_root_whole(void **state)
{
    const char *path = path_in(state, "a");
    dcp_checkpoint *checkpoint;
    size_t index;
    dcp_entry entry;
    dcp_state *root = dcp_state_new();
    build(root);
    must(dcp_save(root, path, &(dcp_save_options){.unflattened = true}));
    dcp_state_free(root);

    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    assert_int_equal(dcp_checkpoint_count(checkpoint), 3);
    must(dcp_checkpoint_find(checkpoint, "model", &index));
    must(dcp_checkpoint_entry(checkpoint, index, &entry));
    assert_false(entry.is_tensor);
    root = dcp_state_new();
    must(dcp_checkpoint_read_object(checkpoint, index, root, "model", NULL));
    check_model(dcp_state_find(root, "model"));
    must(dcp_checkpoint_find(checkpoint, "plain", &index));
    must(dcp_checkpoint_entry(checkpoint, index, &entry));
    assert_true(entry.is_tensor);
    dcp_state_free(root);
    dcp_checkpoint_close(checkpoint);

    root = dcp_state_new();
    dcp_state_dict(root, "model");
    must(dcp_load(root, path, &(dcp_load_options){.unflattened = true}, NULL));
    check_model(dcp_state_find(root, "model"));
    dcp_state_free(root);
}

static void stores_tensors_in_tuples(void **state)
{
    const char *path = path_in(state, "a");
    dcp_state *root = dcp_state_new();
    dcp_tensor weight = {
        .dtype = DCP_F32, .ndim = 2, .strided = true, .global_shape = {3, 2}, .strides = {1, 3}};
    weight.data = weights;
    dcp_state_tensor(dcp_state_tuple(root, "pair"), NULL, &weight);
    must(dcp_save(root, path, NULL));
    dcp_state_free(root);
    root = dcp_state_new();
    dcp_state_none(root, "pair");
    must(dcp_load(root, path, NULL, NULL));
    check_floats(dcp_state_at(dcp_state_find(root, "pair"), 0));
    dcp_state_free(root);
}

static void refuses_parts_of_tensors_inside(void **state)
{
    const char *path = path_in(state, "a");
    dcp_save_options options = {.unflattened = true};
    dcp_state *root = dcp_state_new();
    dcp_tensor part = {.dtype = DCP_F32,
                       .ndim = 1,
                       .sharded = true,
                       .global_shape = {4},
                       .sizes = {2},
                       .data = weights};
    dcp_state_tensor(dcp_state_dict(root, "model"), "w", &part);
    must_fail(dcp_save(root, path, &options), DCP_ERR_UNSUPPORTED,
              "model: object['w']: a tensor inside of an object, of which this rank does not hold");
    dcp_state_free(root);
    root = dcp_state_new();
    part.sizes[0] = 4;
    part.data = NULL;
    dcp_state_tensor(dcp_state_dict(root, "model"), "w", &part);
    must_fail(dcp_save(root, path, &options), DCP_ERR_ARGUMENT, "without memory to save from");
    dcp_state_free(root);
}

static dcp_status alone_body(struct rank *self)
{
    char path[1024];
    int64_t value = self->rank;
    dcp_state *root = dcp_state_new();
    snprintf(path, sizeof path, "%s.%d", self->path, self->rank);
    dcp_state_int(root, "rank", value);
    dcp_save_options options = {
        .group = self->group, .coordinator = 2, .no_dist = true, .timeout_seconds = 20};
    dcp_status status = dcp_save(root, path, &options);
    must(dcp_load(root, path, NULL, NULL));
    must(dcp_state_as_int(dcp_state_find(root, "rank"), &value));
    assert_int_equal(value, self->rank);
    dcp_state_free(root);
    return status;
}

static void saves_alone_in_a_group(void **state)
{
    ranks_must(3, path_in(state, "alone"), alone_body, NULL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)
    const struct CMUnitTest tests[] = {
        TEST(stores_each_value_of_the_root_whole),
        TEST(stores_tensors_in_tuples),
        TEST(refuses_parts_of_tensors_inside),
        TEST(saves_alone_in_a_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
