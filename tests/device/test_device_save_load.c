/* SPDX-License-Identifier: BSD-3-Clause */
/* What is on a device is saved and loaded as what is in host memory: dense, strided, sharded,
 * converted, resharded, with device failures told on every rank. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "device/stand_in.h"

/* More than the buffers of writing and reading, in rows of no round size. */
#define ROWS     1500
#define COLUMNS  1999
#define ELEMENTS (ROWS * COLUMNS)

static float *numbers(void)
{
    float *values = malloc(ELEMENTS * sizeof *values);
    assert_non_null(values);
    for (int i = 0; i < ELEMENTS; i++)
        values[i] = (float)(i % 65536) - 1000;
    return values;
}

static dcp_tensor matrix(dcp_dtype dtype, int64_t rows, int64_t columns, void *data)
{
    return (dcp_tensor){.dtype = dtype, .ndim = 2, .global_shape = {rows, columns}, .data = data};
}

static void save_one(const char *path, const dcp_tensor *tensor)
{
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "w", tensor);
    must(dcp_save(root, path, NULL));
    dcp_state_free(root);
}

static dcp_status load_one(const char *path, const dcp_tensor *tensor, bool convert)
{
    dcp_load_options options = {.convert = convert};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "w", tensor);
    dcp_status status = dcp_load(root, path, &options, NULL);
    dcp_state_free(root);
    return status;
}

static void save_to(void **state, const float *values)
{
    dcp_tensor tensor = matrix(DCP_F32, ROWS, COLUMNS, (void *)values);
    save_one(path_in(state, "c"), &tensor);
}

static void dense_tensors_round_trip(void **state)
{
    float *values = numbers();
    dcp_tensor tensor = matrix(DCP_F32, ROWS, COLUMNS, NULL);
    tensor.device = stand_in(2);
    tensor.data = stand_in_new(2, values, ELEMENTS * sizeof *values);
    stand_in_reset(0, 0);
    save_one(path_in(state, "c"), &tensor);
    assert_true(stand_in_figures().copies > 10);
    assert_true(stand_in_figures().largest <= 1u << 20);

    memset(stand_in_bytes(tensor.data), 0, ELEMENTS * sizeof *values);
    stand_in_reset(0, 0);
    must(load_one(path_in(state, "c"), &tensor, false));
    assert_true(stand_in_figures().copies > 1);
    assert_true(stand_in_figures().largest <= 8u << 20);
    assert_memory_equal(stand_in_bytes(tensor.data), values, ELEMENTS * sizeof *values);

    float *host = calloc(ELEMENTS, sizeof *host);
    dcp_tensor plain = matrix(DCP_F32, ROWS, COLUMNS, host);
    must(load_one(path_in(state, "c"), &plain, false));
    assert_memory_equal(host, values, ELEMENTS * sizeof *values);
    stand_in_free(tensor.data);
    free(host);
    free(values);
}

/* Transposed on the device, with gaps, when saved and when loaded. */
static void strided_tensors_round_trip(void **state)
{
    enum { PITCH = ROWS + 13 };
    float *values = numbers();
    float *lying = calloc((size_t)PITCH * COLUMNS, sizeof *lying);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++)
            lying[c * PITCH + r] = values[r * COLUMNS + c];
    dcp_tensor tensor = matrix(DCP_F32, ROWS, COLUMNS, NULL);
    tensor.strided = true;
    tensor.strides[0] = 1;
    tensor.strides[1] = PITCH;
    tensor.device = stand_in(0);
    tensor.data = stand_in_new(0, lying, (size_t)PITCH * COLUMNS * sizeof *lying);
    save_one(path_in(state, "c"), &tensor);

    float *host = calloc(ELEMENTS, sizeof *host);
    dcp_tensor plain = matrix(DCP_F32, ROWS, COLUMNS, host);
    must(load_one(path_in(state, "c"), &plain, false));
    assert_memory_equal(host, values, ELEMENTS * sizeof *values);

    memset(stand_in_bytes(tensor.data), 0, (size_t)PITCH * COLUMNS * sizeof *lying);
    must(load_one(path_in(state, "c"), &tensor, false));
    assert_memory_equal(stand_in_bytes(tensor.data), lying,
                        (size_t)PITCH * COLUMNS * sizeof *lying);
    stand_in_free(tensor.data);
    free(host);
    free(lying);
    free(values);
}

static void conversion_happens_on_the_way(void **state)
{
    float *values = numbers();
    save_to(state, values);
    dcp_tensor wide = matrix(DCP_F64, ROWS, COLUMNS, NULL);
    wide.device = stand_in(0);
    wide.data = stand_in_new(0, NULL, ELEMENTS * sizeof(double));
    stand_in_reset(0, 0);
    must(load_one(path_in(state, "c"), &wide, true));
    assert_true(stand_in_figures().largest <= 8u << 20);
    const double *found = (const double *)(void *)stand_in_bytes(wide.data);
    for (int i = 0; i < ELEMENTS; i++)
        assert_true(found[i] == (double)values[i]);
    stand_in_free(wide.data);

    /* To a transposed destination of another dtype. */
    dcp_tensor turned = matrix(DCP_I32, ROWS, COLUMNS, NULL);
    turned.strided = true;
    turned.strides[0] = 1;
    turned.strides[1] = ROWS;
    turned.device = stand_in(1);
    turned.data = stand_in_new(1, NULL, ELEMENTS * sizeof(int32_t));
    must(load_one(path_in(state, "c"), &turned, true));
    const int32_t *integers = (const int32_t *)(void *)stand_in_bytes(turned.data);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++)
            assert_int_equal(integers[c * ROWS + r], (int32_t)values[r * COLUMNS + c]);
    stand_in_free(turned.data);
    free(values);
}

static void memory_comes_from_the_device(void **state)
{
    float *values = numbers();
    save_to(state, values);
    long before = stand_in_figures().blocks;
    dcp_tensor tensor = matrix(DCP_F32, ROWS, COLUMNS, NULL), found;
    tensor.device = stand_in(4);
    dcp_state *root = dcp_state_new();
    dcp_state *node = dcp_state_tensor(root, "w", &tensor);
    must(dcp_load(root, path_in(state, "c"), NULL, NULL));
    must(dcp_state_chunk(node, 0, &found));
    assert_int_equal(stand_in_figures().blocks, before + 1);
    assert_ptr_equal(found.device.operations, tensor.device.operations);
    assert_int_equal(found.device.index, 4);
    assert_memory_equal(stand_in_bytes(found.data), values, ELEMENTS * sizeof *values);
    dcp_state_free(root);
    assert_int_equal(stand_in_figures().blocks, before);

    stand_in_reset(0, 1);
    must_fail(load_one(path_in(state, "c"), &tensor, false), DCP_ERR_NO_MEMORY,
              "stand-in:4: the device is full on purpose");
    assert_int_equal(stand_in_figures().blocks, before);
    stand_in_reset(0, 0);
    free(values);
}

/* One tensor in two halves on two devices, and a third part on the host. */
static void chunks_are_on_several_devices(void **state)
{
    float values[60];
    for (int i = 0; i < 60; i++)
        values[i] = (float)i;
    dcp_tensor part = matrix(DCP_F32, 10, 6, NULL);
    part.sharded = true;
    part.sizes[0] = 4;
    part.sizes[1] = 6;
    part.device = stand_in(0);
    void *first = part.data = stand_in_new(0, values, 24 * sizeof *values);
    dcp_state *root = dcp_state_new();
    dcp_state *node = dcp_state_tensor(root, "w", &part);
    part.offsets[0] = 4;
    part.device = stand_in(1);
    void *second = part.data = stand_in_new(1, values + 24, 24 * sizeof *values);
    must(dcp_state_add_chunk(node, &part));
    part.offsets[0] = 8;
    part.sizes[0] = 2;
    part.device = (dcp_device){0};
    part.data = values + 48;
    must(dcp_state_add_chunk(node, &part));
    must(dcp_save(root, path_in(state, "c"), NULL));

    float host[60] = {0};
    dcp_tensor whole = matrix(DCP_F32, 10, 6, host);
    must(load_one(path_in(state, "c"), &whole, false));
    assert_memory_equal(host, values, sizeof values);
    memset(stand_in_bytes(first), 0, 24 * sizeof *values);
    memset(stand_in_bytes(second), 0, 24 * sizeof *values);
    must(dcp_load(root, path_in(state, "c"), NULL, NULL));
    assert_memory_equal(stand_in_bytes(first), host, 24 * sizeof *values);
    assert_memory_equal(stand_in_bytes(second), host + 24, 24 * sizeof *values);
    dcp_state_free(root);
    stand_in_free(first);
    stand_in_free(second);
}

/* Boxes read through a view. */
static void views_read_into_devices(void **state)
{
    float *values = numbers();
    save_to(state, values);
    dcp_checkpoint *checkpoint = NULL;
    must(dcp_checkpoint_open(path_in(state, "c"), NULL, &checkpoint));
    dcp_tensor box = matrix(DCP_F32, ROWS, COLUMNS, NULL);
    box.sharded = true;
    box.offsets[0] = 7;
    box.offsets[1] = 1000;
    box.sizes[0] = 90;
    box.sizes[1] = 33;
    box.device = stand_in(0);
    box.data = stand_in_new(0, NULL, 90 * 33 * sizeof *values);
    must(dcp_checkpoint_read_tensor(checkpoint, 0, &box, NULL));
    const float *found = (const float *)(void *)stand_in_bytes(box.data);
    for (int r = 0; r < 90; r++)
        assert_memory_equal(found + r * 33, values + (r + 7) * COLUMNS + 1000, 33 * sizeof *values);
    stand_in_free(box.data);
    dcp_checkpoint_close(checkpoint);
    free(values);
}

/* Rank r of a job has its share of the rows, or of the columns, on device r. */
struct job {
    int dimension; /* -1: all ranks hold all, and load it for each other */
    bool load;
    bool paired;  /* what was read goes over another group than all else */
    int64_t rows; /* 0: 301 */
};

static dcp_status run_sharded(struct rank *self)
{
    const struct job *job = self->context;
    dcp_mesh mesh = {.ndim = 1, .shape = {self->size}, .rank = self->rank};
    bool together = job->dimension < 0;
    dcp_placement shard = together ? dcp_replicate() : dcp_shard(job->dimension);
    dcp_tensor tensor = matrix(DCP_I32, job->rows != 0 ? job->rows : 301, 77, NULL);
    if (job->paired) {
        dcp_group *bulk;
        must(dcp_group_duplicate(self->group, 30, &bulk));
        must(dcp_group_pair(self->group, bulk, 30));
    }
    must(dcp_mesh_shard(&mesh, &tensor, &shard));
    tensor.device = stand_in(self->rank);
    size_t count = (size_t)(tensor.sizes[0] * tensor.sizes[1]);
    tensor.data = stand_in_new(self->rank, NULL, count * sizeof(int32_t));
    int32_t *bytes = (int32_t *)(void *)stand_in_bytes(tensor.data);
    for (size_t i = 0; i < count && !job->load; i++)
        bytes[i] = (int32_t)((tensor.offsets[0] + (int64_t)i / tensor.sizes[1]) * 77 +
                             tensor.offsets[1] + (int64_t)i % tensor.sizes[1]);
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "w", &tensor);
    dcp_save_options save = {.group = self->group, .thread_count = 2};
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_load_options load = {.group = self->group,
                             .figures = &figures,
                             .reading = together ? DCP_READING_COOPERATIVE : DCP_READING_DIRECT};
    dcp_status status =
        job->load ? dcp_load(root, self->path, &load, NULL) : dcp_save(root, self->path, &save);
    if (status == DCP_OK &&
        (figures.bytes_exchanged != 0) != (job->load && together && self->size > 1))
        status = dcp_error_set(DCP_ERR_INTERNAL, "bytes came another way");
    for (size_t i = 0; i < count && job->load && status == DCP_OK; i++)
        if (bytes[i] != (tensor.offsets[0] + (int64_t)i / tensor.sizes[1]) * 77 +
                            tensor.offsets[1] + (int64_t)i % tensor.sizes[1])
            status = dcp_error_set(DCP_ERR_INTERNAL, "element %zu is %d", i, (int)bytes[i]);
    dcp_state_free(root);
    stand_in_free(tensor.data);
    return status;
}

static void shards_are_loaded_in_another_division(void **state)
{
    struct job job = {.dimension = 0};
    ranks_must(4, path_in(state, "c"), run_sharded, &job);
    for (int ranks = 1; ranks <= 5; ranks++)
        for (int dimension = -1; dimension < 2; dimension++) {
            job = (struct job){.dimension = dimension, .load = true};
            ranks_must(ranks, path_in(state, "c"), run_sharded, &job);
        }
}

/* A tensor of several megabytes, which ranks read in parts, over one group and over two; copies
 * that come in windows fail as others do. */
static void what_others_read_reaches_every_device(void **state)
{
    struct job job = {.rows = 20011};
    struct rank ranks[RANKS_MAX];
    ranks_must(2, path_in(state, "c"), run_sharded, &job);
    for (int size = 2; size <= 4; size++)
        for (int way = 0; way < 2; way++) {
            job = (struct job){.dimension = -1, .load = true, .rows = 20011, .paired = way == 1};
            ranks_must(size, path_in(state, "c"), run_sharded, &job);
            stand_in_reset(2, 0);
            ranks_run(ranks, size, path_in(state, "c"), run_sharded, &job);
            stand_in_reset(0, 0);
            for (int r = 0; r < size; r++)
                assert_int_equal(ranks[r].status, DCP_ERR_DEVICE);
        }
}

/* A copy that fails on one rank is the same failure on all, and no checkpoint is left. */
static void failing_copies_fail_everywhere(void **state)
{
    struct rank ranks[RANKS_MAX];
    static const struct job jobs[] = {
        {.load = false}, {.load = true}, {.dimension = -1, .load = true}};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        struct job job = jobs[i];
        long n = 1;
        for (;; n++) {
            stand_in_reset(n, 0);
            ranks_run(ranks, 2, path_in(state, "c"), run_sharded, &job);
            stand_in_reset(0, 0);
            if (ranks[0].status == DCP_OK)
                break;
            for (int r = 0; r < 2; r++) {
                assert_int_equal(ranks[r].status, DCP_ERR_DEVICE);
                assert_non_null(strstr(ranks[r].message, "the copy failed on purpose"));
                assert_non_null(strstr(ranks[r].message, "stand-in:"));
                assert_non_null(strstr(ranks[r].message, "w"));
            }
            if (!job.load) {
                dcp_checkpoint *checkpoint = NULL;
                must_fail(dcp_checkpoint_open(path_in(state, "c"), NULL, &checkpoint),
                          DCP_ERR_NOT_FOUND, "");
            }
            assert_true(n < 100);
        }
        assert_int_equal(ranks[1].status, DCP_OK);
        assert_true(n > 2);
    }
}

/* The device knows its own memory; nothing is written or read before that is asked. */
static void memory_elsewhere_is_refused(void **state)
{
    float values[4] = {1, 2, 3, 4};
    dcp_tensor tensor = matrix(DCP_F32, 2, 2, values);
    dcp_state *root = dcp_state_new();
    save_one(path_in(state, "c"), &tensor);
    tensor.device = stand_in(1);
    dcp_state_tensor(root, "w", &tensor);
    must_fail(dcp_save(root, path_in(state, "d"), NULL), DCP_ERR_ARGUMENT,
              "w: stand-in:1: the memory at ");
    must_fail(dcp_load(root, path_in(state, "c"), NULL, NULL), DCP_ERR_ARGUMENT,
              "w: stand-in:1: the memory at ");
    dcp_state_free(root);
    root = dcp_state_new();
    tensor.data = stand_in_new(2, NULL, sizeof values);
    dcp_state_tensor(root, "w", &tensor);
    must_fail(dcp_save(root, path_in(state, "d"), NULL), DCP_ERR_ARGUMENT, "is not on this device");
    dcp_state_free(root);
    stand_in_free(tensor.data);
}

/* ---- operations that return what is no status ---- */

enum { NO_STATUS = 4711 };

static dcp_status odd_allocate(const dcp_device *device, size_t bytes, void **memory)
{
    (void)device, (void)bytes, (void)memory;
    return (dcp_status)NO_STATUS;
}

static dcp_status odd_to_host(const dcp_device *device, void *host, const void *memory,
                              size_t pitch, size_t width, size_t height)
{
    (void)device, (void)host, (void)memory, (void)pitch, (void)width, (void)height;
    return (dcp_status)NO_STATUS;
}

static dcp_status odd_from_host(const dcp_device *device, void *memory, size_t pitch,
                                const void *host, size_t width, size_t height)
{
    (void)device, (void)memory, (void)pitch, (void)host, (void)width, (void)height;
    return (dcp_status)NO_STATUS;
}

static dcp_status odd_holds(const dcp_device *device, const void *memory, bool *held)
{
    (void)device, (void)memory, (void)held;
    return (dcp_status)NO_STATUS;
}

static void what_is_no_status_is_a_failure_of_the_callback(void **state)
{
    static const char text[] = "stand-in:1: an operation returned 4711, which is not a dcp_status";
    float values[12] = {1, 2, 3};
    dcp_tensor tensor = matrix(DCP_F32, 3, 4, stand_in_new(1, values, sizeof values));
    tensor.device = stand_in(1);
    save_one(path_in(state, "c"), &tensor);
    const dcp_device_operations good = *tensor.device.operations;
    for (int odd = 0; odd < 5; odd++) {
        dcp_device_operations operations = good;
        bool saves = odd < 2;
        if (odd == 0 || odd == 2)
            operations.holds = odd_holds;
        if (odd == 1)
            operations.copy_to_host = odd_to_host;
        if (odd == 3)
            operations.copy_from_host = odd_from_host;
        if (odd == 4)
            operations.allocate = odd_allocate;
        dcp_tensor other = tensor;
        other.device.operations = &operations;
        if (odd == 4)
            other.data = NULL;
        dcp_state *root = dcp_state_new();
        dcp_state_tensor(root, "w", &other);
        must_fail(saves ? dcp_save(root, path_in(state, "d"), NULL)
                        : dcp_load(root, path_in(state, "c"), NULL, NULL),
                  DCP_ERR_CALLBACK, text);
        dcp_state_free(root);
    }
    stand_in_free(tensor.data);
}

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(dense_tensors_round_trip),
        TEST(strided_tensors_round_trip),
        TEST(conversion_happens_on_the_way),
        TEST(memory_comes_from_the_device),
        TEST(chunks_are_on_several_devices),
        TEST(views_read_into_devices),
        TEST(shards_are_loaded_in_another_division),
        TEST(what_others_read_reaches_every_device),
        TEST(failing_copies_fail_everywhere),
        TEST(memory_elsewhere_is_refused),
        TEST(what_is_no_status_is_a_failure_of_the_callback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
