/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading compressed checkpoints: a chunk is decompressed once for all that is wanted of it, in
 * memory that its size does not matter for; whatever fails, there is an error and nothing is left.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory_account.h"
#include "base/thread.h"
#include "fault/failing_allocator.h"
#include "fault/simulated_file_system.h"
#include "sample.h"
#include "scratch.h"
#include "state/box.h"
#include "storage/shard/shard_read_needs.h"
#include "storage/verify/verify.h"

#define SHARD "__0_0.distcp"

static void make(struct sample *sample, uint64_t seed)
{
    sample_make(
        sample,
        &(struct sample_options){
            .seed = seed, .ranks = 1, .files = 1, .tensors = 3, .objects = 1, .large = true});
    sample->zstd = true;
}

static void save(struct sample *sample, const char *path)
{
    assert_int_equal(sample_save(sample, dcp_storage_files(), path, DCP_OVERWRITE_REPLACE, false),
                     DCP_OK);
}

struct opened {
    struct metadata metadata;
    struct shard_reader *reader;
    const struct metadata_entry *entry; /* of the large tensor */
};

static void open_sample(struct opened *opened, const char *path)
{
    enum storage_form form;
    assert_int_equal(storage_read_metadata(dcp_storage_files(), storage_at(path), &form,
                                           &opened->metadata, &opened->reader),
                     DCP_OK);
    opened->entry = metadata_find(&opened->metadata, "tensor.0");
    assert_non_null(opened->entry);
}

static void close_sample(struct opened *opened)
{
    shard_reader_free(opened->reader);
    metadata_free(&opened->metadata);
}

/* The columns that several targets want, each of memory of its own. */
enum { TARGETS = 5 };

struct target {
    struct state_chunk chunk;
    int64_t offsets[2], sizes[2], strides[2];
    double *doubles;
};

static void want_columns(struct target *target, const int64_t *shape, int number)
{
    int64_t width = shape[1] / TARGETS;
    target->offsets[0] = number;
    target->sizes[0] = shape[0] - number;
    target->offsets[1] = number * width;
    target->sizes[1] = width;
    target->strides[0] = number % 2 == 0 ? width : 1;
    target->strides[1] = number % 2 == 0 ? 1 : target->sizes[0];
    target->doubles = malloc((size_t)(target->sizes[0] * width) * sizeof *target->doubles);
    assert_non_null(target->doubles);
    target->chunk = (struct state_chunk){.offsets = target->offsets,
                                         .sizes = target->sizes,
                                         .strides = target->strides,
                                         .data = target->doubles};
}

static void compare(const struct target *target, const struct sample_tensor *tensor,
                    dcp_dtype dtype)
{
    const float *floats = (const float *)(const void *)target->doubles;
    for (int64_t i = 0; i < target->sizes[0]; i++)
        for (int64_t j = 0; j < target->sizes[1]; j++) {
            int64_t at = i * target->strides[0] + j * target->strides[1];
            float expected;
            memcpy(&expected,
                   tensor->dense + ((target->offsets[0] + i) * tensor->layout.sizes[1] +
                                    target->offsets[1] + j) *
                                       4,
                   sizeof expected);
            float found = dtype == DCP_F32 ? floats[at] : (float)target->doubles[at];
            if (memcmp(&found, &expected, sizeof found) != 0 &&
                (found == found || expected == expected))
                fail_msg("differs at %lld, %lld", (long long)i, (long long)j);
        }
}

/* Every piece is wanted by every target. */
static size_t list_requests(const struct opened *opened, struct target *targets, dcp_dtype dtype,
                            struct shard_request *requests, struct box_storage *boxes)
{
    const struct metadata_entry *entry = opened->entry;
    size_t count = 0;
    for (size_t p = 0; p < entry->piece_count; p++)
        for (int t = 0; t < TARGETS; t++) {
            const struct metadata_piece *piece = &entry->pieces[p];
            struct box_storage *common = &boxes[count];
            if (!box_intersect((struct box){2, piece->offsets, piece->sizes},
                               (struct box){2, targets[t].offsets, targets[t].sizes}, common))
                continue;
            requests[count++] = (struct shard_request){
                entry, piece, box_of(2, common), dtype, &targets[t].chunk, NULL};
        }
    return count;
}

static void read_columns(const char *path, const struct sample *sample, dcp_dtype dtype,
                         size_t thread_count, uint64_t limit)
{
    struct opened opened;
    struct target targets[TARGETS];
    struct shard_request requests[TARGETS * 16];
    struct box_storage boxes[TARGETS * 16];
    struct shard_read_figures before, after;
    struct memory_account *account = memory_account_open(0);
    uint64_t moved = 0, wanted = 0, stored = 0;
    open_sample(&opened, path);
    assert_true(opened.entry->piece_count <= 16);
    for (int t = 0; t < TARGETS; t++)
        want_columns(&targets[t], sample->tensors[0].layout.sizes, t);
    size_t count = list_requests(&opened, targets, dtype, requests, boxes);
    for (size_t i = 0; i < count; i++)
        wanted += (uint64_t)box_volume(requests[i].region) * dcp_dtype_size(dtype);
    for (size_t p = 0; p < opened.entry->piece_count; p++)
        stored += opened.entry->pieces[p].length;
    memory_account_enter(account);
    if (limit != 0) {
        struct shard_read_needs needs;
        struct shard_read_how how = shard_read_how_usual();
        assert_int_equal(
            shard_read_needs_find(opened.reader, requests, count, DCP_VERIFY_ALL, &needs), DCP_OK);
        how.thread_count = thread_count;
        shard_read_needs_fit(&needs, limit, &how);
        assert_true(shard_read_needs_memory(&needs, &how) <= limit);
        shard_reader_set_how(opened.reader, &how);
        thread_count = how.thread_count;
        memory_account_set_limit(account, memory_account_taken(account) + limit);
    }
    shard_reader_figures(opened.reader, &before);
    if (shard_read_tensors(opened.reader, requests, count, thread_count, DCP_VERIFY_ALL, &moved) !=
        DCP_OK)
        fail_msg("%s", dcp_error_message());
    shard_reader_figures(opened.reader, &after);
    memory_account_enter(NULL);
    assert_int_equal(moved, wanted);
    /* Beside it, footers. */
    assert_true(after.bytes_read - before.bytes_read < stored + stored / 4);
    for (int t = 0; t < TARGETS; t++) {
        compare(&targets[t], &sample->tensors[0], dtype);
        free(targets[t].doubles);
    }
    close_sample(&opened);
    memory_account_close(account);
}

static void several_targets_of_one_chunk(void **state)
{
    for (uint64_t seed = 1; seed < 8; seed++) {
        struct sample sample;
        make(&sample, seed);
        save(&sample, *state);
        read_columns(*state, &sample, DCP_F32, 1 + seed % 3, 0);
        read_columns(*state, &sample, DCP_F64, 1, 0);
        read_columns(*state, &sample, DCP_F64, 1 + seed % 3, (uint64_t)6 << 20);
        read_columns(*state, &sample, DCP_F32, 2, (uint64_t)16 << 20);
        sample_free(&sample);
    }
}

/* Rows of the tensor, some at a time, in order or not. */
struct rows {
    const struct sample *sample;
    struct opened *opened;
    int64_t step; /* negative: from the end on */
};

static dcp_status read_rows(void *context, size_t index)
{
    const struct rows *rows = context;
    const struct metadata_entry *entry = rows->opened->entry;
    const int64_t *shape = rows->sample->tensors[0].layout.sizes;
    int64_t step = rows->step < 0 ? -rows->step : rows->step;
    int64_t most = (shape[0] + step - 1) / step;
    for (int64_t n = 0; n < most; n++) {
        struct target target = {.offsets = {(rows->step < 0 ? most - 1 - n : n) * step, 0},
                                .sizes = {step, shape[1]},
                                .strides = {shape[1], 1}};
        if (target.sizes[0] > shape[0] - target.offsets[0])
            target.sizes[0] = shape[0] - target.offsets[0];
        target.doubles = malloc((size_t)(target.sizes[0] * shape[1]) * sizeof *target.doubles);
        assert_non_null(target.doubles);
        target.chunk = (struct state_chunk){.offsets = target.offsets,
                                            .sizes = target.sizes,
                                            .strides = target.strides,
                                            .data = target.doubles};
        for (size_t p = 0; p < entry->piece_count; p++) {
            const struct metadata_piece *piece = &entry->pieces[p];
            struct box_storage common;
            uint64_t moved;
            if (!box_intersect((struct box){2, piece->offsets, piece->sizes},
                               (struct box){2, target.offsets, target.sizes}, &common))
                continue;
            struct shard_request request = {entry,   piece,         box_of(2, &common),
                                            DCP_F64, &target.chunk, NULL};
            RETURN_IF_ERROR(shard_read_tensors(rows->opened->reader, &request, 1, 1,
                                               index % 2 == 0 ? DCP_VERIFY_ALL : DCP_VERIFY_RECORDS,
                                               &moved));
        }
        compare(&target, &rows->sample->tensors[0], DCP_F64);
        free(target.doubles);
    }
    return DCP_OK;
}

/* A stream that is kept is not decompressed anew for each region that follows another. */
static void regions_in_order(void **state)
{
    struct sample sample;
    struct opened opened;
    struct shard_read_figures figures;
    uint64_t stored = 0;
    make(&sample, 3);
    save(&sample, *state);
    open_sample(&opened, *state);
    for (size_t p = 0; p < opened.entry->piece_count; p++)
        stored += opened.entry->pieces[p].length;
    struct rows rows = {&sample, &opened, 20};
    shard_reader_keep_streams(opened.reader);
    assert_int_equal(read_rows(&rows, 0), DCP_OK);
    shard_reader_figures(opened.reader, &figures);
    /* Once to see that it is right, and once more. */
    assert_true(opened.entry->piece_count > 1);
    assert_true(figures.bytes_read < 3 * stored);
    rows.step = -50;
    assert_int_equal(read_rows(&rows, 0), DCP_OK);
    assert_int_equal(thread_run(6, 3, read_rows, &rows), DCP_OK);
    close_sample(&opened);
    sample_free(&sample);
}

/* One row of a piece. device: NULL: into host memory. */
static dcp_status read_row(struct opened *opened, const struct metadata_piece *piece, int64_t row,
                           const dcp_device *device, float *floats)
{
    int64_t strides[2] = {piece->sizes[1], 1}, offsets[2], sizes[2] = {1, piece->sizes[1]};
    uint64_t moved;
    offsets[0] = piece->offsets[0] + row;
    offsets[1] = piece->offsets[1];
    const struct state_chunk chunk = {.offsets = offsets,
                                      .sizes = sizes,
                                      .strides = strides,
                                      .data = floats,
                                      .device = device ? *device : (dcp_device){0}};
    struct shard_request request = {opened->entry, piece,  {2, offsets, sizes},
                                    DCP_F32,       &chunk, NULL};
    return shard_read_tensors(opened->reader, &request, 1, 1, DCP_VERIFY_ALL, &moved);
}

static void expect_row(const struct sample *sample, const struct metadata_piece *piece, int64_t row,
                       const float *floats)
{
    const struct sample_tensor *tensor = &sample->tensors[0];
    const unsigned char *expected =
        tensor->dense +
        ((piece->offsets[0] + row) * tensor->layout.sizes[1] + piece->offsets[1]) * 4;
    assert_memory_equal(floats, expected, (size_t)piece->sizes[1] * 4);
}

/* A device to which rows come while another one is read. */
struct interrupting {
    struct opened *opened;
    const struct metadata_piece *piece;
    int64_t row;
    float *floats;
};

static dcp_status read_another(const dcp_device *device, void *memory, size_t pitch,
                               const void *host, size_t width, size_t height)
{
    const struct interrupting *interrupting = device->queue;
    assert_true(pitch == width || height == 1);
    memcpy(memory, host, width * height);
    return read_row(interrupting->opened, interrupting->piece, interrupting->row, NULL,
                    interrupting->floats);
}

/* Two readers of one stream: each goes on where it is, as if there were no other. */
static void regions_of_two_readers(void **state)
{
    static const dcp_device_operations operations = {
        .size_of = sizeof operations, .name = "interrupting", .copy_from_host = read_another};
    struct sample sample;
    struct opened opened;
    struct shard_read_figures figures;
    make(&sample, 3);
    save(&sample, *state);
    open_sample(&opened, *state);
    shard_reader_keep_streams(opened.reader);
    const struct metadata_piece *piece = &opened.entry->pieces[0];
    int64_t half = piece->sizes[0] / 2;
    float *floats = malloc((size_t)piece->sizes[1] * 4),
          *others = malloc((size_t)piece->sizes[1] * 4);
    assert_non_null(floats);
    assert_non_null(others);
    assert_true(half > 20);
    struct interrupting interrupting = {&opened, piece, half, others};
    const dcp_device device = {.operations = &operations, .queue = &interrupting};
    assert_int_equal(read_row(&opened, piece, 0, &device, floats), DCP_OK);
    expect_row(&sample, piece, 0, floats);
    expect_row(&sample, piece, half, others);
    for (int64_t row = 1; row < half; row += half / 20)
        for (int64_t reader = 0; reader < 2; reader++) {
            assert_int_equal(read_row(&opened, piece, row + reader * half, NULL, floats), DCP_OK);
            expect_row(&sample, piece, row + reader * half, floats);
        }
    /* Each once to see that it is right, and once more. */
    shard_reader_figures(opened.reader, &figures);
    assert_true(figures.bytes_read < 5 * piece->length);
    free(floats);
    free(others);
    close_sample(&opened);
    sample_free(&sample);
}

/* Single bits: nothing else than was written is read without saying so. */
static void flipped_bits(void **state)
{
    struct sample sample;
    size_t size;
    make(&sample, 11);
    save(&sample, *state);
    free(scratch_read(*state, SHARD, &size));
    for (uint64_t at = 0; at < size; at += 1 + size / 300 * TRIAL_STEP) {
        uint64_t faults = 0;
        unsigned char mask = (unsigned char)(1 << at % 8);
        scratch_flip(*state, SHARD, at, mask);
        for (int verification = DCP_VERIFY_ALL; verification <= DCP_VERIFY_RECORDS; verification++)
            assert_int_not_equal(sample_read(&sample, dcp_storage_files(), *state,
                                             (dcp_verification)verification, 1),
                                 DCP_ERR_INTERNAL);
        assert_int_equal(
            storage_verify(dcp_storage_files(), storage_at(*state), NULL, NULL, NULL, &faults),
            DCP_OK);
        assert_true(faults > 0);
        scratch_flip(*state, SHARD, at, mask);
    }
    assert_int_equal(sample_read(&sample, dcp_storage_files(), *state, DCP_VERIFY_ALL, 3), DCP_OK);
    sample_free(&sample);
}

static void failing_reads(void **state)
{
    (void)state;
    struct sample sample;
    struct simulated_file_system *fs = simulated_new();
    make(&sample, 6);
    assert_int_equal(sample_save(&sample, simulated_storage(fs), "c", DCP_OVERWRITE_REPLACE, true),
                     DCP_OK);
    bool reached = true;
    for (long n = 1; reached; n += TRIAL_STEP + n / 60) {
        struct simulated_file_system *copy = simulated_copy(fs);
        struct simulated_fault fault = {n, SIMULATED_ERROR, EIO, n % 2 != 0};
        simulated_set_fault(copy, &fault);
        dcp_status status = sample_read(&sample, simulated_storage(copy), "c", DCP_VERIFY_ALL, 1);
        reached = simulated_fault_reached(copy);
        assert_true(status == DCP_OK || (reached && status == DCP_ERR_IO));
        assert_int_equal(simulated_open_descriptors(copy), 0);
        assert_true(reached || n > 20);
        simulated_free(copy);
    }
    simulated_free(fs);
    sample_free(&sample);
}

static void missing_memory(void **state)
{
    struct sample sample;
    make(&sample, 5);
    save(&sample, *state);
    for (long n = 1;; n += TRIAL_STEP + n / 100) {
        failing_allocator_install(n, n % 2 != 0);
        dcp_status status =
            sample_read(&sample, dcp_storage_files(), *state, DCP_VERIFY_RECORDS, 1);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        assert_true(status == DCP_OK || (reached && status == DCP_ERR_NO_MEMORY));
        if (!reached)
            break;
    }
    sample_free(&sample);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(several_targets_of_one_chunk),
        TEST(regions_in_order),
        TEST(regions_of_two_readers),
        TEST(flipped_bits),
        TEST(failing_reads),
        TEST(missing_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
