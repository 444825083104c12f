/* SPDX-License-Identifier: BSD-3-Clause */
/* One process: what was saved comes back, in every form that a destination can take. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "fault/io_ways.h"

static dcp_tensor matrix(dcp_dtype dtype, int64_t rows, int64_t columns, void *data)
{
    dcp_tensor tensor = {.dtype = dtype, .ndim = 2, .global_shape = {rows, columns}, .data = data};
    return tensor;
}

static void fill(float *values, int count)
{
    for (int i = 0; i < count; i++)
        values[i] = (float)i * 0.5f - 3;
}

static dcp_state *sample(float *weights)
{
    dcp_state *root = dcp_state_new();
    dcp_tensor w = matrix(DCP_F32, 4, 6, weights);
    dcp_state *train = dcp_state_dict(root, "train");
    fill(weights, 24);
    dcp_state_tensor(dcp_state_dict(root, "model"), "layer.w", &w);
    dcp_state_int(train, "step", 1000);
    dcp_state_float(train, "lr", 3e-4);
    dcp_state_string(train, "name", "na\xc3\xafve");
    dcp_state *betas = dcp_state_tuple(train, "betas");
    dcp_state_float(betas, NULL, 0.9);
    dcp_state_float(betas, NULL, 0.999);
    must(dcp_state_status(root));
    return root;
}

/* Elements that are none, of sizes whose product no number holds. */
static void test_strange_shapes(void **state)
{
    const int64_t big = INT64_C(1) << 40;
    const int64_t shapes[][3] = {
        {big, big, 0}, {0, big, big}, {big, 0, big}, {INT64_MAX, 4, 0}, {0, INT64_MAX, INT64_MAX}};
    enum { SHAPES = sizeof shapes / sizeof *shapes };
    char name[SHAPES][8];
    uint64_t faults = 1;
    dcp_checkpoint *checkpoint;
    dcp_entry entry;
    dcp_state *root = dcp_state_new();
    dcp_state *tuple = dcp_state_tuple(root, "inside");
    for (int i = 0; i < SHAPES; i++) {
        dcp_tensor tensor = {.dtype = DCP_F64, .ndim = 3};
        memcpy(tensor.global_shape, shapes[i], sizeof shapes[i]);
        snprintf(name[i], sizeof name[i], "t%d", i);
        dcp_state_tensor(root, name[i], &tensor);
        dcp_state_tensor(tuple, NULL, &tensor);
    }
    must(dcp_state_status(root));
    must(dcp_save(root, path_in(state, "c"), NULL));
    must(dcp_load(root, path_in(state, "c"), NULL, NULL));
    dcp_state_free(root);
    must(dcp_verify(path_in(state, "c"), NULL, NULL, NULL, &faults));
    assert_int_equal(faults, 0);
    must(dcp_checkpoint_open(path_in(state, "c"), NULL, &checkpoint));
    assert_int_equal(dcp_checkpoint_count(checkpoint), SHAPES + 1);
    for (int i = 0; i < SHAPES; i++) {
        size_t index;
        must(dcp_checkpoint_find(checkpoint, name[i], &index));
        must(dcp_checkpoint_entry(checkpoint, index, &entry));
        assert_memory_equal(entry.global_shape, shapes[i], sizeof shapes[i]);
        assert_int_equal(entry.bytes, 0);
    }
    dcp_checkpoint_close(checkpoint);
}

/* What PyTorch 2.13 could not load is not saved, in objects neither. */
static void test_dtypes_that_are_not_saved(void **state)
{
    static const dcp_dtype dtypes[] = {DCP_BCOMPLEX32, DCP_BITS8, DCP_BITS4X2};
    uint32_t data[4] = {0};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        for (int inside = 0; inside < 2; inside++) {
            dcp_state *root = dcp_state_new();
            dcp_tensor tensor = matrix(dtypes[i], 2, 2, data);
            dcp_state_tensor(inside ? dcp_state_tuple(root, "w") : root, inside ? NULL : "w",
                             &tensor);
            must_fail(dcp_save(root, path_in(state, "c"), NULL), DCP_ERR_UNSUPPORTED,
                      dcp_dtype_name(dtypes[i]));
            assert_non_null(strstr(dcp_error_message(), "w"));
            dcp_state_free(root);
        }
}

static void test_round_trip(void **state)
{
    float saved[24], loaded[24] = {0};
    dcp_state *root = sample(saved);
    must(dcp_save(root, path_in(state, "c"), NULL));
    dcp_state_free(root);

    root = dcp_state_new();
    dcp_tensor w = matrix(DCP_F32, 4, 6, loaded);
    dcp_state_tensor(dcp_state_dict(root, "model"), "layer.w", &w);
    dcp_state *train = dcp_state_dict(root, "train");
    dcp_state_none(train, "step");
    dcp_state_none(train, "lr");
    dcp_state_none(train, "name");
    dcp_state_none(train, "betas");
    dcp_load_report *report = NULL;
    must(dcp_load(root, path_in(state, "c"), NULL, &report));
    assert_int_equal(dcp_load_report_count(report), 0);
    dcp_load_report_free(report);

    int64_t step = 0;
    double number = 0;
    const char *text = NULL;
    assert_memory_equal(saved, loaded, sizeof saved);
    must(dcp_state_as_int(dcp_state_find(train, "step"), &step));
    assert_int_equal(step, 1000);
    must(dcp_state_as_float(dcp_state_find(train, "lr"), &number));
    assert_true(number == 3e-4);
    must(dcp_state_as_text(dcp_state_find(train, "name"), &text, NULL));
    assert_string_equal(text, "na\xc3\xafve");
    dcp_state *betas = dcp_state_find(train, "betas");
    assert_int_equal(dcp_state_kind(betas), DCP_KIND_TUPLE);
    must(dcp_state_as_float(dcp_state_at(betas, 1), &number));
    assert_true(number == 0.999);
    dcp_state_free(root);
}

static void test_transposed_source_and_destination(void **state)
{
    float saved[24], loaded[2 * 24];
    dcp_state *root = dcp_state_new();
    dcp_tensor source = matrix(DCP_F32, 4, 6, saved);
    source.strided = true;
    source.strides[0] = 1;
    source.strides[1] = 4;
    fill(saved, 24);
    dcp_state_tensor(root, "w", &source);
    must(dcp_save(root, path_in(state, "c"), NULL));
    dcp_state_free(root);

    for (int i = 0; i < 48; i++)
        loaded[i] = -77;
    root = dcp_state_new();
    dcp_tensor destination = matrix(DCP_F32, 4, 6, loaded);
    destination.strided = true;
    destination.strides[0] = 12;
    destination.strides[1] = 2;
    dcp_state_tensor(root, "w", &destination);
    must(dcp_load(root, path_in(state, "c"), NULL, NULL));
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 6; c++) {
            assert_true(loaded[r * 12 + c * 2] == saved[r + c * 4]);
            assert_true(loaded[r * 12 + c * 2 + 1] == -77);
        }
    dcp_state_free(root);
}

static void test_allocates_missing_memory(void **state)
{
    float saved[24];
    dcp_state *root = sample(saved);
    must(dcp_save(root, path_in(state, "c"), NULL));
    dcp_state_free(root);

    root = dcp_state_new();
    dcp_tensor w = matrix(DCP_F32, 4, 6, NULL), found;
    dcp_state *node = dcp_state_tensor(dcp_state_dict(root, "model"), "layer.w", &w);
    must(dcp_load(root, path_in(state, "c"), NULL, NULL));
    must(dcp_state_chunk(node, 0, &found));
    assert_non_null(found.data);
    assert_memory_equal(found.data, saved, sizeof saved);
    dcp_state_free(root);
}

static void test_scalars_and_empty(void **state)
{
    float scalar = 42.5f, loaded = 0;
    dcp_tensor zero = {.dtype = DCP_F32, .data = &scalar};
    dcp_tensor empty = {.dtype = DCP_I64, .ndim = 3, .global_shape = {3, 0, 5}};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "scalar", &zero);
    dcp_state_tensor(root, "empty", &empty);
    must(dcp_save(root, path_in(state, "c"), NULL));
    dcp_state_free(root);

    root = dcp_state_new();
    zero.data = &loaded;
    dcp_state_tensor(root, "scalar", &zero);
    dcp_state_tensor(root, "empty", &empty);
    must(dcp_load(root, path_in(state, "c"), NULL, NULL));
    assert_true(loaded == 42.5f);
    dcp_state_free(root);
}

static void test_conversion_is_off_unless_asked(void **state)
{
    float saved[24];
    uint16_t loaded[24] = {0};
    dcp_state *root = sample(saved);
    must(dcp_save(root, path_in(state, "c"), NULL));
    dcp_state_free(root);

    root = dcp_state_new();
    dcp_tensor w = matrix(DCP_BF16, 4, 6, loaded);
    dcp_state_tensor(dcp_state_dict(root, "model"), "layer.w", &w);
    must_fail(dcp_load(root, path_in(state, "c"), NULL, NULL), DCP_ERR_DTYPE, "model.layer.w");
    assert_int_equal(loaded[5], 0);

    dcp_load_options options = {.convert = true};
    dcp_load_report *report = NULL;
    must(dcp_load(root, path_in(state, "c"), &options, &report));
    bool converted = false;
    for (size_t i = 0; i < dcp_load_report_count(report); i++) {
        dcp_report_line line;
        must(dcp_load_report_line(report, i, &line));
        converted |= line.difference == DCP_DIFFERENCE_CONVERTED;
    }
    assert_true(converted);
    dcp_load_report_free(report);
    /* Element 1 is -2.5, 0xc020 in bfloat16. */
    assert_int_equal(loaded[1], 0xc020);
    dcp_state_free(root);
}

static void test_shape_mismatch_names_both(void **state)
{
    float saved[24], loaded[24];
    dcp_state *root = sample(saved);
    must(dcp_save(root, path_in(state, "c"), NULL));
    dcp_state_free(root);

    root = dcp_state_new();
    dcp_tensor w = matrix(DCP_F32, 6, 4, loaded);
    dcp_state_tensor(dcp_state_dict(root, "model"), "layer.w", &w);
    must_fail(dcp_load(root, path_in(state, "c"), NULL, NULL), DCP_ERR_SHAPE, "[4, 6]");
    assert_non_null(strstr(dcp_error_message(), "[6, 4]"));
    assert_non_null(strstr(dcp_error_message(), "model.layer.w"));
    dcp_state_free(root);
}

static void test_missing_and_unexpected(void **state)
{
    float saved[24], loaded[24];
    dcp_state *root = sample(saved);
    must(dcp_save(root, path_in(state, "c"), NULL));
    dcp_state_free(root);

    root = dcp_state_new();
    dcp_tensor w = matrix(DCP_F32, 4, 6, loaded);
    dcp_state_tensor(dcp_state_dict(root, "model"), "layer.W", &w);
    must_fail(dcp_load(root, path_in(state, "c"), NULL, NULL), DCP_ERR_MISSING_KEY,
              "model.layer.W");
    assert_non_null(strstr(dcp_error_message(), "model.layer.w"));

    dcp_load_options partial = {.strictness = DCP_STRICT_PARTIAL};
    dcp_load_report *report = NULL;
    loaded[3] = 7;
    must(dcp_load(root, path_in(state, "c"), &partial, &report));
    assert_true(loaded[3] == 7);
    assert_int_equal(dcp_load_report_count(report), 6);
    dcp_report_line line;
    must(dcp_load_report_line(report, 0, &line));
    assert_int_equal(line.difference, DCP_DIFFERENCE_MISSING);
    assert_string_equal(line.name, "model.layer.W");
    must(dcp_load_report_line(report, 1, &line));
    assert_int_equal(line.difference, DCP_DIFFERENCE_UNEXPECTED);
    must_fail(dcp_load_report_line(report, 6, &line), DCP_ERR_ARGUMENT,
              "there is no line 6: the report has 6");
    /* A line of a later version, which has another field. */
    struct {
        dcp_report_line known;
        size_t later;
    } longer = {.later = 7};
    must(dcp_load_report_line_sized(report, 0, &longer.known, sizeof longer));
    assert_string_equal(longer.known.name, "model.layer.W");
    assert_int_equal(longer.later, 0);
    dcp_load_report_free(report);
    dcp_state_free(root);

    root = dcp_state_new();
    dcp_state_tensor(dcp_state_dict(root, "model"), "layer.w", &w);
    dcp_load_options all = {.strictness = DCP_STRICT_RAISE_ALL};
    must_fail(dcp_load(root, path_in(state, "c"), &all, &report), DCP_ERR_UNEXPECTED_KEY, "train.");
    assert_int_equal(dcp_load_report_count(report), 4);
    dcp_load_report_free(report);
    dcp_state_free(root);
}

static void test_refuses_then_replaces(void **state)
{
    float saved[24], loaded[24];
    dcp_state *root = sample(saved);
    dcp_save_options replace = {.overwrite = DCP_OVERWRITE_REPLACE, .thread_count = 3};
    must(dcp_save(root, path_in(state, "c"), NULL));
    must_fail(dcp_save(root, path_in(state, "c"), NULL), DCP_ERR_EXISTS, "");
    saved[0] = 99;
    for (int i = 0; i < 3; i++)
        must(dcp_save(root, path_in(state, "c"), &replace));
    dcp_state_free(root);

    uint64_t faults = 1;
    must(dcp_verify(path_in(state, "c"), NULL, NULL, NULL, &faults));
    assert_int_equal(faults, 0);
    assert_int_not_equal(access(path_in(state, "c/__0_0.distcp"), F_OK), 0);
    root = dcp_state_new();
    dcp_tensor w = matrix(DCP_F32, 4, 6, loaded);
    dcp_state_tensor(dcp_state_dict(root, "model"), "layer.w", &w);
    must(dcp_load(root, path_in(state, "c"), NULL, NULL));
    assert_memory_equal(saved, loaded, sizeof saved);
    dcp_state_free(root);
}

/* A counter that is not a tree: PyTorch's Stateful. */
struct counter {
    int64_t value;
    int64_t reported;
};

static dcp_status counter_save(void *context, dcp_state *into)
{
    struct counter *counter = context;
    return dcp_state_int(into, "value", counter->value);
}

static dcp_status counter_load(void *context, const dcp_state *filled)
{
    struct counter *counter = context;
    return dcp_state_as_int(dcp_state_find(filled, "value"), &counter->reported);
}

static dcp_status counter_fail(void *context, dcp_state *into)
{
    (void)context;
    (void)into;
    return dcp_error_set(DCP_ERR_CALLBACK, "the counter is stuck");
}

static void test_stateful(void **state)
{
    struct counter counter = {5, 0};
    dcp_stateful stateful = {counter_save, counter_load, &counter};
    dcp_state *root = dcp_state_new();
    dcp_state_stateful(root, "counter", &stateful);
    must(dcp_save(root, path_in(state, "c"), NULL));
    counter.value = -1;
    must(dcp_load(root, path_in(state, "c"), NULL, NULL));
    assert_int_equal(counter.reported, 5);
    dcp_state_free(root);

    stateful.state_dict = counter_fail;
    root = dcp_state_new();
    dcp_state_stateful(root, "counter", &stateful);
    must_fail(dcp_save(root, path_in(state, "d"), NULL), DCP_ERR_CALLBACK, "the counter is stuck");
    assert_non_null(strstr(dcp_error_message(), "counter"));
    assert_int_not_equal(access(path_in(state, "d"), F_OK), 0);
    dcp_state_free(root);
}

static void test_metadata_json(void **state)
{
    needs_files();
    float saved[24];
    char text[4096] = "";
    dcp_state *root = sample(saved), *info = dcp_state_new();
    dcp_state_string(info, "run", "r\"1");
    dcp_state_int(info, "tokens", INT64_MAX);
    dcp_save_options options = {.has_step = true, .step = 9007199254740993, .info = info};
    must(dcp_save(root, path_in(state, "c"), &options));
    FILE *file = fopen(path_in(state, "c/metadata.json"), "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    assert_non_null(strstr(text, "9007199254740993"));
    assert_non_null(strstr(text, "9223372036854775807"));
    assert_non_null(strstr(text, "\"world_size\":\t1"));
    assert_non_null(strstr(text, "r\\\"1"));
    dcp_state_free(info);
    dcp_state_free(root);
}

#define LARGE_ROWS    4
#define LARGE_COLUMNS 600000

static dcp_state *large_state(float *large, float *small)
{
    dcp_state *root = dcp_state_new();
    dcp_tensor matrices[] = {matrix(DCP_F32, LARGE_ROWS, LARGE_COLUMNS, large),
                             matrix(DCP_F32, 2, 3, small)};
    dcp_state_tensor(root, "large", &matrices[0]);
    dcp_state_tensor(root, "small", &matrices[1]);
    must(dcp_state_status(root));
    return root;
}

/* Large enough for every way of moving bytes, by several threads on either side. */
static void test_ways_of_moving_bytes(void **state)
{
    size_t count = (size_t)LARGE_ROWS * LARGE_COLUMNS;
    float *saved = calloc(count, sizeof *saved), *loaded = calloc(count, sizeof *loaded);
    float few[6] = {1, 2, 3, 4, 5, 6}, found[6] = {0};
    assert_true(saved && loaded);
    fill(saved, (int)count);
    dcp_state *source = large_state(saved, few), *target = large_state(loaded, found);
    for (size_t i = 0; i < IO_WAY_COUNT; i++) {
        dcp_save_options save = {
            .overwrite = DCP_OVERWRITE_REPLACE, .io = io_ways[i], .thread_count = 1 + (int)i % 2};
        dcp_load_options load = {.io = io_ways[i], .thread_count = (int)i};
        dcp_status status = dcp_save(source, path_in(state, "c"), &save);
        if (status == DCP_ERR_UNSUPPORTED)
            continue;
        must(status);
        memset(loaded, 0, count * sizeof *loaded);
        must(dcp_load(target, path_in(state, "c"), &load, NULL));
        assert_memory_equal(saved, loaded, count * sizeof *saved);
        assert_memory_equal(few, found, sizeof few);
    }
    dcp_state_free(source);
    dcp_state_free(target);
    free(saved);
    free(loaded);
}

static void test_wrong_arguments(void **state)
{
    float saved[24];
    dcp_state *root = sample(saved);
    dcp_save_options options = {.coordinator = 1};
    must_fail(dcp_save(NULL, path_in(state, "c"), NULL), DCP_ERR_ARGUMENT, "NULL");
    must_fail(dcp_save(root, NULL, NULL), DCP_ERR_ARGUMENT, "path");
    must_fail(dcp_save(root, "", NULL), DCP_ERR_ARGUMENT, "path");
    must_fail(dcp_save(root, path_in(state, "c"), &options), DCP_ERR_ARGUMENT, "coordinator");
    options = (dcp_save_options){.thread_count = -1};
    must_fail(dcp_save(root, path_in(state, "c"), &options), DCP_ERR_ARGUMENT, "thread_count");
    options = (dcp_save_options){.io = DCP_IO_RING | DCP_IO_POOL};
    must_fail(dcp_save(root, path_in(state, "c"), &options), DCP_ERR_ARGUMENT, "io");
    dcp_load_options load = {.io = 16};
    must_fail(dcp_load(root, path_in(state, "c"), &load, NULL), DCP_ERR_ARGUMENT, "io");
    load = (dcp_load_options){.thread_count = DCP_MAX_LOAD_THREADS + 1};
    must_fail(dcp_load(root, path_in(state, "c"), &load, NULL), DCP_ERR_ARGUMENT, "thread_count");
    must_fail(dcp_load(root, path_in(state, "nowhere"), NULL, NULL), DCP_ERR_NOT_FOUND, "nowhere");
    must_fail(dcp_load(NULL, path_in(state, "c"), NULL, NULL), DCP_ERR_NOT_FOUND, "");

    struct {
        dcp_save_options known;
        uint64_t unknown;
    } newer = {.unknown = 1};
    must_fail(dcp_save_sized(root, path_in(state, "c"), &newer.known, sizeof newer),
              DCP_ERR_ARGUMENT, "knows only");
    dcp_tensor no_memory = matrix(DCP_F32, 2, 2, NULL);
    dcp_state_tensor(root, "hollow", &no_memory);
    must_fail(dcp_save(root, path_in(state, "c"), NULL), DCP_ERR_ARGUMENT, "hollow");
    dcp_state_free(root);
}

#define directory_test(test)                                                                       \
    cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        directory_test(test_round_trip),
        directory_test(test_transposed_source_and_destination),
        directory_test(test_allocates_missing_memory),
        directory_test(test_scalars_and_empty),
        directory_test(test_conversion_is_off_unless_asked),
        directory_test(test_shape_mismatch_names_both),
        directory_test(test_missing_and_unexpected),
        directory_test(test_strange_shapes),
        directory_test(test_dtypes_that_are_not_saved),
        directory_test(test_refuses_then_replaces),
        directory_test(test_stateful),
        directory_test(test_metadata_json),
        directory_test(test_ways_of_moving_bytes),
        directory_test(test_wrong_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
