/* SPDX-License-Identifier: BSD-3-Clause */
/* A model in safetensors files and an optimizer in a DCP directory, as NeMo AutoModel has them,
 * loaded as one by several ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "storage/scratch.h"

enum { ROWS = 12, COLUMNS = 4, ELEMENTS = ROWS * COLUMNS };

static float value_of(int which, int64_t element)
{
    return (float)(1000 * which + element);
}

/* ---- saving ---- */

static void write_safetensors(const char *directory, const char *file, const char *name, int which)
{
    unsigned char bytes[8 + 256 + ELEMENTS * sizeof(float)] = {0};
    float values[ELEMENTS];
    char *header = (char *)bytes + 8;
    int length = snprintf(header, 256,
                          "{\"%s\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%d]}}",
                          name, ROWS, COLUMNS, (int)sizeof values);
    bytes[0] = (unsigned char)length;
    for (int i = 0; i < ELEMENTS; i++)
        values[i] = value_of(which, i);
    memcpy(header + length, values, sizeof values);
    scratch_write(directory, file, bytes, 8 + (size_t)length + sizeof values);
}

static void save_model(const char *directory)
{
    static const char index[] = "{\"metadata\": {}, \"weight_map\": {"
                                "\"w\": \"model-00001-of-00002.safetensors\", "
                                "\"v\": \"model-00002-of-00002.safetensors\"}}";
    assert_int_equal(mkdir(directory, 0777), 0);
    write_safetensors(directory, "model-00001-of-00002.safetensors", "w", 1);
    write_safetensors(directory, "model-00002-of-00002.safetensors", "v", 2);
    scratch_write(directory, "model.safetensors.index.json", index, sizeof index - 1);
}

/* This rank's rows of a tensor. */
static void describe(const struct rank *self, dcp_tensor *tensor, float data[ELEMENTS])
{
    const dcp_placement rows = dcp_shard(0);
    const dcp_mesh mesh = {.ndim = 1, .shape = {self->size}, .rank = self->rank};
    *tensor = (dcp_tensor){.dtype = DCP_F32, .ndim = 2, .global_shape = {ROWS, COLUMNS}};
    must(dcp_mesh_shard(&mesh, tensor, &rows));
    tensor->data = data;
}

static dcp_status save_optimizer(struct rank *self)
{
    float data[ELEMENTS];
    dcp_tensor tensor;
    dcp_state *root = dcp_state_new();
    describe(self, &tensor, data);
    for (int64_t i = 0; i < tensor.sizes[0] * COLUMNS; i++)
        data[i] = value_of(3, tensor.offsets[0] * COLUMNS + i);
    dcp_state_tensor(root, "optim.w", &tensor);
    dcp_state_int(root, "step", 7);
    dcp_status status = dcp_save(root, self->path, &(dcp_save_options){.group = self->group});
    dcp_state_free(root);
    return status;
}

/* ---- loading ---- */

static dcp_status load(struct rank *self)
{
    static const char *const names[] = {"w", "v", "optim.w"};
    float data[3][ELEMENTS] = {{0}};
    dcp_tensor tensors[3];
    dcp_state *root = dcp_state_new();
    dcp_load_options options = *(const dcp_load_options *)self->context;
    for (int i = 0; i < 3; i++) {
        describe(self, &tensors[i], data[i]);
        dcp_state_tensor(root, names[i], &tensors[i]);
    }
    dcp_state_int(root, "step", 0);
    options.group = self->group;
    options.strictness = DCP_STRICT_RAISE_ALL;
    dcp_status status = dcp_load(root, self->path, &options, NULL);
    int64_t step = 0;
    if (status == DCP_OK)
        status = dcp_state_as_int(dcp_state_find(root, "step"), &step);
    if (status == DCP_OK && step != 7)
        status = dcp_error_set(DCP_ERR_INTERNAL, "step %d", (int)step);
    for (int k = 0; k < 3 && status == DCP_OK; k++)
        for (int64_t i = 0; i < tensors[k].sizes[0] * COLUMNS; i++)
            if (data[k][i] != value_of(k + 1, tensors[k].offsets[0] * COLUMNS + i))
                status = dcp_error_set(DCP_ERR_INTERNAL, "%s, element %d", names[k], (int)i);
    dcp_state_free(root);
    return status;
}

static void make_checkpoint(void **state)
{
    assert_int_equal(mkdir(path_in(state, "c"), 0777), 0);
    save_model(path_in(state, "c/model"));
    ranks_must(2, path_in(state, "c/optim"), save_optimizer, NULL);
}

static void any_number_of_ranks_load_it(void **state)
{
    static const dcp_reading ways[] = {DCP_READING_AUTO, DCP_READING_DIRECT,
                                       DCP_READING_COOPERATIVE};
    static const char *const members[] = {"optim", "model"};
    make_checkpoint(state);
    for (int ranks = 1; ranks <= 5; ranks++) {
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            dcp_load_options options = {.reading = ways[i]};
            ranks_must(ranks, path_in(state, "c"), load, &options);
            options.members = members;
            options.member_count = 2;
            ranks_must(ranks, path_in(state, "c"), load, &options);
        }
    }
}

/* What is missing is the same to all. */
static void a_file_that_is_missing_fails_on_all_ranks(void **state)
{
    struct rank ranks[RANKS_MAX];
    dcp_load_options options = {0};
    make_checkpoint(state);
    scratch_remove(path_in(state, "c/model"), "model-00002-of-00002.safetensors");
    ranks_run(ranks, 3, path_in(state, "c"), load, &options);
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(ranks[rank].status, DCP_ERR_NOT_FOUND);
        assert_non_null(strstr(ranks[rank].message, "model-00002-of-00002.safetensors"));
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(any_number_of_ranks_load_it),
        TEST(a_file_that_is_missing_fails_on_all_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
