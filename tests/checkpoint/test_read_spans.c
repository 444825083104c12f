/* SPDX-License-Identifier: BSD-3-Clause */
/* Elements of a stored tensor from one to another, as ranks read them for each other: rows are
 * begun and ended in the middle. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dcp.h>
#include <string.h>

#include "fault/simulated_file_system.h"
#include "fault/transfer_watch.h"
#include "state/box.h"
#include "storage/files/files.h"
#include "storage/shard/shard_reader.h"

#define PATH "c"

enum { PLANES = 3, ROWS = 50, COLUMNS = 333, ELEMENTS = PLANES * ROWS * COLUMNS };

/* An open checkpoint with one tensor. */
struct stored {
    struct simulated_file_system *fs;
    dcp_storage storage;
    struct metadata metadata;
    struct shard_reader *reader;
};

static int32_t elements[ELEMENTS];

/* False: the library was built without that compression. */
static bool open_stored(struct stored *stored, dcp_compression compression)
{
    dcp_state *root = dcp_state_new();
    const dcp_tensor tensor = {
        .dtype = DCP_I32, .ndim = 3, .global_shape = {PLANES, ROWS, COLUMNS}, .data = elements};
    enum storage_form form;
    for (int i = 0; i < ELEMENTS; i++)
        elements[i] = i;
    *stored = (struct stored){.fs = simulated_new()};
    stored->storage = files_storage(transfer_watch(simulated_ops(stored->fs)));
    dcp_state_tensor(root, "t", &tensor);
    const dcp_save_options options = {.storage = &stored->storage, .compression = compression};
    dcp_status status = dcp_save(root, PATH, &options);
    dcp_state_free(root);
    if (status == DCP_ERR_UNSUPPORTED) {
        simulated_free(stored->fs);
        return false;
    }
    assert_int_equal(status, DCP_OK);
    assert_int_equal(storage_read_metadata(&stored->storage, storage_at(PATH), &form,
                                           &stored->metadata, &stored->reader),
                     DCP_OK);
    return true;
}

static void close_stored(struct stored *stored)
{
    shard_reader_free(stored->reader);
    metadata_free(&stored->metadata);
    assert_int_equal(simulated_open_descriptors(stored->fs), 0);
    simulated_free(stored->fs);
}

/* A box of the tensor: its elements, row-major. */
static void check_span(struct box region, int64_t from, int64_t end, const int32_t *read)
{
    const int64_t rows = region.sizes[1], columns = region.sizes[2];
    for (int64_t i = from; i < end; i++) {
        int64_t plane = i / (rows * columns), row = i / columns % rows, column = i % columns;
        int64_t at = ((plane + region.offsets[0]) * ROWS + row + region.offsets[1]) * COLUMNS +
                     column + region.offsets[2];
        if (read[i - from] != elements[at])
            fail_msg("element %ld is %d, expected %d", (long)i, read[i - from], elements[at]);
    }
}

/* Gathers what comes part after part. */
struct gathering {
    unsigned char *bytes;
    size_t size;
    size_t most; /* bytes after which it fails */
};

static dcp_status gather(void *context, const unsigned char *bytes, size_t size)
{
    struct gathering *gathering = context;
    if (gathering->size + size > gathering->most)
        return dcp_error_set(DCP_ERR_CANCELLED, "enough");
    memcpy(gathering->bytes + gathering->size, bytes, size);
    gathering->size += size;
    return DCP_OK;
}

/* The same elements, part after part; and a failure of who gets them. */
static void pass_span(struct shard_piece *piece, struct box region, int64_t from, int64_t end)
{
    static int32_t read[ELEMENTS];
    static unsigned char room[SHARD_PASS_ROOM];
    const size_t size = (size_t)(end - from) * sizeof *read;
    struct gathering gathering = {(unsigned char *)read, 0, size};
    memset(read, 0, sizeof read);
    assert_int_equal(shard_piece_pass_span(piece, region, from, end, room, gather, &gathering),
                     DCP_OK);
    assert_int_equal(gathering.size, size);
    check_span(region, from, end, read);
    gathering = (struct gathering){(unsigned char *)read, 0, size - 1};
    assert_int_equal(shard_piece_pass_span(piece, region, from, end, room, gather, &gathering),
                     DCP_ERR_CANCELLED);
}

/* In three spans. Returns the reads that the middle one took. */
static long read_region_in_spans(const struct stored *stored, const int64_t *offsets,
                                 const int64_t *sizes, dcp_verification verification, bool passed)
{
    static int32_t read[ELEMENTS];
    const struct metadata_entry *entry = &stored->metadata.entries[0];
    const struct box region = {3, offsets, sizes};
    const int64_t ends[] = {0, box_volume(region) / 3 + 1, box_volume(region) / 2 + 7,
                            box_volume(region)};
    struct shard_piece *piece;
    long reads = 0;
    assert_int_equal(shard_piece_open(stored->reader, entry, entry->pieces, region, false,
                                      verification, NULL, &piece),
                     DCP_OK);
    for (size_t i = 0; i < 3; i++) {
        long before = transfer_watch_count(false).count;
        memset(read, 0, sizeof read);
        assert_int_equal(shard_piece_read_span(piece, region, ends[i], ends[i + 1], read), DCP_OK);
        check_span(region, ends[i], ends[i + 1], read);
        reads = i == 1 ? transfer_watch_count(false).count - before : reads;
        if (passed)
            pass_span(piece, region, ends[i], ends[i + 1]);
    }
    shard_piece_close(piece);
    return reads;
}

static const struct {
    int64_t offsets[3], sizes[3];
    bool dense;
} regions[] = {{{0, 0, 0}, {PLANES, ROWS, COLUMNS}, true}, {{1, 0, 0}, {2, ROWS, COLUMNS}, true},
               {{1, 7, 0}, {1, 30, COLUMNS}, true},        {{2, 7, 13}, {1, 1, 300}, true},
               {{0, 7, 0}, {PLANES, 30, COLUMNS}, false},  {{0, 0, 1}, {PLANES, ROWS, 100}, false}};
#define REGIONS (sizeof regions / sizeof *regions)

static void a_span_that_lies_in_one_place_is_one_read(void **state)
{
    struct stored stored;
    (void)state;
    assert_true(open_stored(&stored, DCP_COMPRESSION_NONE));
    for (size_t i = 0; i < REGIONS; i++) {
        long reads = read_region_in_spans(&stored, regions[i].offsets, regions[i].sizes,
                                          DCP_VERIFY_NONE, false);
        if (regions[i].dense)
            assert_int_equal(reads, 1);
    }
    close_stored(&stored);
}

static void spans_are_right_however_they_are_stored(void **state)
{
    static const dcp_compression compressions[] = {DCP_COMPRESSION_NONE, DCP_COMPRESSION_ZSTD};
    (void)state;
    for (size_t i = 0; i < 4 * REGIONS; i++) {
        const size_t region = i / 4;
        struct stored stored;
        if (!open_stored(&stored, compressions[i % 2]))
            continue;
        read_region_in_spans(&stored, regions[region].offsets, regions[region].sizes,
                             i % 4 < 2 ? DCP_VERIFY_ALL : DCP_VERIFY_NONE, true);
        close_stored(&stored);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_span_that_lies_in_one_place_is_one_read),
        cmocka_unit_test(spans_are_right_however_they_are_stored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
