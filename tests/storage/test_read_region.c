/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "fault/failing_allocator.h"
#include "layout.h"
#include "scratch.h"
#include "state/element_sign.h"
#include "storage/shard/read_region.h"

enum { RING = 128 };
/* Bytes up to which it is told beforehand what will be read. */
#define AHEAD ((uint64_t)4 << 20)

/* A source that counts what is read of it. */
struct counted {
    unsigned char *bytes;
    uint64_t read;
    uint64_t calls;
    uint64_t aligned; /* calls into memory that is aligned as the source's file */
    uint64_t place;   /* of the source in its file */
    struct expected_range {
        uint64_t offset;
        size_t size;
    } expected[RING]; /* and not behind what is read */
    size_t expected_first, expected_end;
    uint64_t ahead; /* how far it was told of something beforehand, at most */
};

static void expect_counted(void *context, uint64_t offset, size_t size)
{
    struct counted *counted = context;
    assert_true(counted->expected_end - counted->expected_first < RING);
    counted->expected[counted->expected_end++ % RING] = (struct expected_range){offset, size};
}

/* What is read is in a range that it was told of, if it was told of some. */
static dcp_status read_counted(void *context, uint64_t offset, void *bytes, size_t size)
{
    struct counted *counted = context;
    bool found = counted->expected_end == 0;
    size_t last = counted->expected_end, first = last > RING ? last - RING : 0;
    for (size_t i = last; i > first && !found; i--) {
        const struct expected_range *expected = &counted->expected[(i - 1) % RING];
        found = offset >= expected->offset && offset + size <= expected->offset + expected->size;
        if (found && i - 1 > counted->expected_first)
            counted->expected_first = i - 1;
    }
    assert_true(found);
    if (last > 0) {
        uint64_t farthest = counted->expected[(last - 1) % RING].offset;
        assert_true(farthest <= offset + AHEAD);
        if (farthest > offset && farthest - offset > counted->ahead)
            counted->ahead = farthest - offset;
    }
    memcpy(bytes, counted->bytes + offset, size);
    counted->read += size;
    counted->calls++;
    counted->aligned += (counted->place + offset - (uintptr_t)bytes) % 64 == 0;
    return DCP_OK;
}

/* A view of a storage of random bytes that begins somewhere in a source. */
struct stored {
    struct counted counted;
    struct byte_source source;
    struct layout layout;
    struct tensor_view view;
};

#define HEAD 17 /* bytes in front of the storage: data need not be aligned */

static void stored_make(struct stored *stored, uint64_t *random, dcp_dtype dtype, int32_t ndim,
                        const int64_t *sizes, bool plain)
{
    size_t element = dcp_dtype_size(dtype);
    layout_make(&stored->layout, random, ndim, sizes, false, plain);
    int64_t skipped = plain ? 0 : scratch_below(random, 5);
    size_t bytes = (size_t)(stored->layout.total + skipped) * element;
    stored->counted = (struct counted){.bytes = malloc(HEAD + bytes)};
    assert_non_null(stored->counted.bytes);
    for (size_t i = 0; i < HEAD + bytes; i++)
        stored->counted.bytes[i] = (unsigned char)scratch_random(random);
    stored->source = (struct byte_source){.read = read_counted,
                                          .expect = expect_counted,
                                          .context = &stored->counted,
                                          .size = HEAD + bytes};
    stored->view = (struct tensor_view){
        .dtype = dtype,
        .ndim = ndim,
        .sizes = stored->layout.sizes,
        .strides = stored->layout.strides,
        .storage_offset = skipped,
        .data_offset = HEAD,
        .data_length = bytes,
        .storage_bytes = bytes,
    };
}

static const unsigned char *stored_element(const struct stored *stored, const int64_t *offsets,
                                           const int64_t *index)
{
    const struct tensor_view *view = &stored->view;
    int64_t at = view->storage_offset + layout_offset(view->ndim, offsets, view->strides) +
                 layout_offset(view->ndim, index, view->strides);
    return stored->counted.bytes + HEAD + at * (int64_t)dcp_dtype_size(view->dtype);
}

/* Reads a random box into random memory, and compares with moving it by hand. */
static void check_random_box(struct stored *stored, uint64_t *random)
{
    struct box_storage box;
    struct layout to;
    int32_t ndim = stored->view.ndim;
    size_t element = dcp_dtype_size(stored->view.dtype);
    layout_random_box(random, ndim, stored->layout.sizes, &box);
    layout_make(&to, random, ndim, box.sizes, false, scratch_below(random, 2) == 0);
    unsigned char *memory = malloc((size_t)to.total * element);
    unsigned char *expected = malloc((size_t)to.total * element);
    assert_true(memory && expected);
    memset(expected, 0xee, (size_t)to.total * element);
    if (box_volume(box_of(ndim, &box)) > 0) {
        int64_t index[DCP_MAX_DIMS] = {0};
        do
            memcpy(expected + layout_offset(ndim, index, to.strides) * (int64_t)element,
                   stored_element(stored, box.offsets, index), element);
        while (layout_next(ndim, box.sizes, index));
    }
    struct region_target target = {stored->view.dtype, {0}, memory, to.strides, 0, NULL};
    const struct byte_source sources[] = {
        stored->source, byte_source_memory(stored->counted.bytes, (size_t)stored->source.size)};
    stored->counted.expected_first = stored->counted.expected_end = 0;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        memset(memory, 0xee, (size_t)to.total * element);
        assert_int_equal(read_region(&sources[i], &stored->view, box.offsets, box.sizes, &target),
                         DCP_OK);
        assert_memory_equal(memory, expected, (size_t)to.total * element);
    }
    if (stored->counted.expected_end > 0)
        assert_int_equal(stored->counted.expected_first, stored->counted.expected_end - 1);
    free(memory);
    free(expected);
}

/* Half of 400 rows. Returns how often something was announced. */
static size_t count_announced(int64_t columns)
{
    static float memory[400 * 2000];
    uint64_t random = 5;
    struct stored stored;
    const int64_t sizes[] = {400, columns}, offsets[] = {0, 1000}, wanted[] = {400, 2000};
    const int64_t strides[] = {2000, 1};
    stored_make(&stored, &random, DCP_F32, 2, sizes, true);
    struct region_target target = {DCP_F32, {0}, memory, strides, 0, NULL};
    assert_int_equal(read_region(&stored.source, &stored.view, offsets, wanted, &target), DCP_OK);
    assert_int_equal(stored.counted.expected_first, stored.counted.expected_end - 1);
    assert_int_equal(stored.counted.read, sizeof memory);
    assert_true(stored.counted.ahead > AHEAD / 2);
    free(stored.counted.bytes);
    return stored.counted.expected_end;
}

/* Rows that are read one by one are told of while others are still to come, along with what lies
 * between them, unless that is much. */
static void what_comes_next_is_expected(void **state)
{
    (void)state;
    assert_in_range(count_announced(4000), 6, 8); /* windows of at most 1 MiB */
    assert_in_range(count_announced(16000), 24, 27);
    assert_int_equal(count_announced(20000), 400); /* gaps of 72 KB */
}

static void random_regions_arrive(void **state)
{
    (void)state;
    static const dcp_dtype dtypes[] = {DCP_U8, DCP_F16, DCP_F32, DCP_I64, DCP_C128};
    uint64_t random = 3;
    for (int round = 0; round < 3000; round++) {
        struct stored stored;
        int64_t sizes[8];
        int32_t ndim = (int32_t)scratch_below(&random, 6);
        for (int32_t i = 0; i < ndim; i++)
            sizes[i] = scratch_below(&random, 12) == 0 ? 0 : 1 + scratch_below(&random, 9);
        stored_make(&stored, &random, dtypes[scratch_below(&random, 5)], ndim, sizes,
                    scratch_below(&random, 2) == 0);
        check_random_box(&stored, &random);
        free(stored.counted.bytes);
    }
}

/* Larger than the buffer, so that blocks are cut in the middle of a dimension. */
static void large_regions_arrive(void **state)
{
    (void)state;
    uint64_t random = 4;
    const int64_t shapes[][3] = {{3, 1200, 1000}, {2500000, 1, 2}, {40, 60, 1500}};
    for (size_t i = 0; i < 3; i++) {
        for (int round = 0; round < 3; round++) {
            struct stored stored;
            stored_make(&stored, &random, DCP_F32, 3, shapes[i], round == 0);
            check_random_box(&stored, &random);
            free(stored.counted.bytes);
        }
    }
}

/* What PyTorch stores of overlapping and expanded views. */
static void overlapping_strides_arrive(void **state)
{
    (void)state;
    uint64_t random = 5;
    int64_t sizes[] = {4, 3, 2};
    const int64_t all_strides[][3] = {{1, 1, 1}, {0, 2, 1}, {2, 0, 3}, {0, 0, 0}, {1, 2, 2}};
    for (size_t i = 0; i < sizeof all_strides / sizeof *all_strides; i++) {
        struct stored stored;
        stored_make(&stored, &random, DCP_F32, 3, sizes, true);
        stored.view.strides = all_strides[i];
        for (int round = 0; round < 50; round++)
            check_random_box(&stored, &random);
        free(stored.counted.bytes);
    }
}

static void only_what_is_needed_is_read(void **state)
{
    (void)state;
    uint64_t random = 6;
    struct stored stored;
    const int64_t sizes[] = {1000, 4096};
    float *memory = malloc((size_t)(1000 * 4096) * sizeof *memory);
    assert_non_null(memory);
    stored_make(&stored, &random, DCP_F32, 2, sizes, true);

    const int64_t rows[2][2] = {{100, 0}, {50, 4096}}, row_strides[] = {4096, 1};
    struct region_target target = {DCP_F32, {0}, memory, row_strides, 0, NULL};
    assert_int_equal(read_region(&stored.source, &stored.view, rows[0], rows[1], &target), DCP_OK);
    assert_int_equal(stored.counted.read, 50 * 4096 * 4);
    assert_int_equal(stored.counted.calls, 1);

    /* Half of the columns: a read per row, straight or through the buffer. */
    const int64_t columns[2][2] = {{0, 2048}, {1000, 2048}}, column_strides[] = {2048, 1};
    target.strides = column_strides;
    stored.counted.read = stored.counted.calls = 0;
    stored.counted.expected_first = stored.counted.expected_end = 0;
    assert_int_equal(read_region(&stored.source, &stored.view, columns[0], columns[1], &target),
                     DCP_OK);
    assert_int_equal(stored.counted.read, 1000 * 2048 * 4);
    assert_int_equal(stored.counted.calls, 1000);

    /* All but a few columns: the gap is read along where that costs next to nothing. */
    const int64_t most[2][2] = {{0, 0}, {1000, 4090}}, most_strides[] = {1, 1000};
    target.strides = most_strides;
    stored.counted.read = stored.counted.calls = 0;
    stored.counted.expected_first = stored.counted.expected_end = 0;
    assert_int_equal(read_region(&stored.source, &stored.view, most[0], most[1], &target), DCP_OK);
    assert_true(stored.counted.read <= (uint64_t)1000 * 4096 * 4);
    assert_true(stored.counted.calls <= 1000 * 4096 * 4 / READ_REGION_BUFFER + 1);

    /* What goes through the buffer is aligned there as in the file. */
    stored.counted.place = stored.source.place = 35;
    stored.counted.aligned = stored.counted.calls = 0;
    stored.counted.expected_first = stored.counted.expected_end = 0;
    assert_int_equal(read_region(&stored.source, &stored.view, most[0], most[1], &target), DCP_OK);
    assert_int_equal(stored.counted.aligned, stored.counted.calls);
    free(stored.counted.bytes);
    free(memory);
}

static void dtypes_are_converted(void **state)
{
    (void)state;
    const float values[6] = {0.0f, 1.5f, -2.0f, 3.25f, 1e30f, -0.0f};
    const int64_t sizes[] = {2, 3}, strides[] = {3, 1}, none[] = {0, 0}, turned[] = {1, 2};
    struct tensor_view view = {.dtype = DCP_F32,
                               .ndim = 2,
                               .sizes = sizes,
                               .strides = strides,
                               .data_length = sizeof values,
                               .storage_bytes = sizeof values};
    struct byte_source source = byte_source_memory(values, sizeof values);
    double out[6];
    struct region_target target = {DCP_F64, {0}, out, turned, 0, NULL};
    assert_int_equal(read_region(&source, &view, none, sizes, &target), DCP_OK);
    for (int i = 0; i < 6; i++)
        assert_true(out[i % 3 * 2 + i / 3] == (double)values[i]);

    target.dtype = DCP_C64;
    assert_int_equal(read_region(&source, &view, none, sizes, &target), DCP_ERR_DTYPE);
}

static void lazy_flags_are_settled(void **state)
{
    (void)state;
    const float values[4] = {1.0f, 2.0f, -3.0f, 4.0f};
    const int64_t sizes[] = {2}, strides[] = {1}, none[] = {0};
    struct tensor_view view = {.dtype = DCP_C64,
                               .ndim = 1,
                               .sizes = sizes,
                               .strides = strides,
                               .conjugate = true,
                               .data_length = sizeof values,
                               .storage_bytes = sizeof values};
    struct byte_source source = byte_source_memory(values, sizeof values);
    float out[4];
    struct region_target target = {DCP_C64, {0}, out, strides, 0, NULL};
    assert_int_equal(read_region(&source, &view, none, sizes, &target), DCP_OK);
    const float conjugated[4] = {1.0f, -2.0f, -3.0f, -4.0f};
    assert_memory_equal(out, conjugated, sizeof out);
    view.negative = true;
    assert_int_equal(read_region(&source, &view, none, sizes, &target), DCP_OK);
    const float both[4] = {-1.0f, 2.0f, 3.0f, 4.0f};
    assert_memory_equal(out, both, sizeof out);

    unsigned char swapped[16];
    for (size_t i = 0; i < 16; i++)
        swapped[i] = ((const unsigned char *)values)[i / 4 * 4 + 3 - i % 4];
    source = byte_source_memory(swapped, sizeof swapped);
    view.conjugate = view.negative = false;
    view.swapped = true;
    assert_int_equal(read_region(&source, &view, none, sizes, &target), DCP_OK);
    assert_memory_equal(out, values, sizeof out);

    const unsigned char flags[2] = {0, 1};
    source = byte_source_memory(flags, sizeof flags);
    view = (struct tensor_view){.dtype = DCP_BOOL,
                                .ndim = 1,
                                .sizes = sizes,
                                .strides = strides,
                                .negative = true,
                                .data_length = 2,
                                .storage_bytes = 2};
    target.dtype = DCP_BOOL;
    assert_int_equal(read_region(&source, &view, none, sizes, &target), DCP_ERR_UNSUPPORTED);
}

static void signs_of_every_kind_are_turned(void **state)
{
    (void)state;
    int32_t integers[3] = {1, -5, INT32_MIN};
    element_negate(DCP_I32, integers, 3);
    const int32_t negated[3] = {-1, 5, INT32_MIN};
    assert_memory_equal(integers, negated, sizeof negated);
    double number = 2.5;
    element_negate(DCP_F64, &number, 1);
    assert_true(number == -2.5);
    element_conjugate(DCP_F64, &number, 1);
    assert_true(number == -2.5);
    /* 0x80 is not a negative zero but NaN there. */
    unsigned char small[3] = {0x00, 0x12, 0x80};
    element_negate(DCP_F8_E4M3FNUZ, small, 3);
    assert_memory_equal(small, ((unsigned char[]){0x00, 0x92, 0x80}), 3);
    element_negate(DCP_F8_E4M3FN, small, 3);
    assert_memory_equal(small, ((unsigned char[]){0x80, 0x12, 0x00}), 3);
    element_negate(DCP_F8_E8M0FNU, small, 3);
    assert_memory_equal(small, ((unsigned char[]){0x80, 0x12, 0x00}), 3);
}

/* Numbers that no checked view has must not be computed with. */
static void views_beyond_their_storage_are_refused(void **state)
{
    (void)state;
    unsigned char bytes[64] = {0};
    int64_t sizes[] = {4, 4}, strides[] = {4, 1}, offsets[] = {0, 0};
    struct byte_source source = byte_source_memory(bytes, sizeof bytes);
    const struct tensor_view good = {.dtype = DCP_F32,
                                     .ndim = 2,
                                     .sizes = sizes,
                                     .strides = strides,
                                     .data_length = 64,
                                     .storage_bytes = 64};
    float out[16];
    const int64_t out_strides[] = {4, 1};
    struct region_target target = {DCP_F32, {0}, out, out_strides, 0, NULL};
    struct tensor_view view = good;
    assert_int_equal(read_region(&source, &view, offsets, sizes, &target), DCP_OK);
    view.storage_offset = 1;
    assert_int_equal(read_region(&source, &view, offsets, sizes, &target), DCP_ERR_FORMAT);
    view.storage_offset = INT64_MAX;
    assert_int_equal(read_region(&source, &view, offsets, sizes, &target), DCP_ERR_FORMAT);
    view = good;
    view.data_offset = 1;
    assert_int_equal(read_region(&source, &view, offsets, sizes, &target), DCP_ERR_FORMAT);
    view.data_offset = UINT64_MAX - 3;
    assert_int_equal(read_region(&source, &view, offsets, sizes, &target), DCP_ERR_FORMAT);
    view = good;
    strides[0] = INT64_MAX / 2;
    assert_int_equal(read_region(&source, &view, offsets, sizes, &target), DCP_ERR_FORMAT);
    strides[0] = -4;
    assert_int_equal(read_region(&source, &view, offsets, sizes, &target), DCP_ERR_FORMAT);
    strides[0] = 4;
    view.data_length = 60;
    assert_int_equal(read_region(&source, &view, offsets, sizes, &target), DCP_ERR_FORMAT);
}

/* The other way round, as float or double. Returns the allocations asked for, the first of which
 * is refused. */
static long read_without_memory(const struct byte_source *source, dcp_dtype dtype,
                                dcp_status *status)
{
    const int64_t sizes[] = {4, 4}, strides[] = {1, 4}, none[] = {0, 0}, to[] = {4, 1};
    const struct tensor_view view = {.dtype = DCP_F32,
                                     .ndim = 2,
                                     .sizes = sizes,
                                     .strides = strides,
                                     .data_length = 64,
                                     .storage_bytes = 64};
    double out[16];
    struct region_target target = {dtype, {0}, out, to, 0, NULL};
    failing_allocator_install(1, false);
    *status = read_region(source, &view, none, sizes, &target);
    long count = failing_allocator_count();
    assert_int_equal(failing_allocator_remove(), 0);
    return count;
}

static void missing_memory_is_an_error(void **state)
{
    unsigned char bytes[64] = {0};
    struct counted counted = {.bytes = bytes};
    const struct byte_source source = {
        .read = read_counted, .context = &counted, .size = sizeof bytes};
    dcp_status status;
    (void)state;
    assert_int_equal(read_without_memory(&source, DCP_F32, &status), 1);
    assert_int_equal(status, DCP_ERR_NO_MEMORY);
}

static void what_is_in_memory_needs_no_more_of_it(void **state)
{
    static const dcp_dtype dtypes[] = {DCP_F32, DCP_F64};
    unsigned char bytes[64] = {0};
    const struct byte_source source = byte_source_memory(bytes, sizeof bytes);
    dcp_status status;
    (void)state;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        assert_int_equal(read_without_memory(&source, dtypes[i], &status), 0);
        assert_int_equal(status, DCP_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_comes_next_is_expected),
        cmocka_unit_test(random_regions_arrive),
        cmocka_unit_test(large_regions_arrive),
        cmocka_unit_test(overlapping_strides_arrive),
        cmocka_unit_test(only_what_is_needed_is_read),
        cmocka_unit_test(dtypes_are_converted),
        cmocka_unit_test(lazy_flags_are_settled),
        cmocka_unit_test(signs_of_every_kind_are_turned),
        cmocka_unit_test(views_beyond_their_storage_are_refused),
        cmocka_unit_test(missing_memory_is_an_error),
        cmocka_unit_test(what_is_in_memory_needs_no_more_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
