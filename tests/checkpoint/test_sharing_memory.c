/* SPDX-License-Identifier: BSD-3-Clause */
/* What reading for other ranks takes of memory is known before it begins, for any number of ranks:
 * each rank that sends takes a window at the receiver. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/memory.h"
#include "checkpoint/load/load_limit.h"
#include "checkpoint/share/load_exchange.h"
#include "dcp/load.h"
#include "storage/shard/shard_file.h"

#define MIB ((uint64_t)1 << 20)

/* A tensor of so many MiB that all ranks want, one MiB and more of it from each. */
struct wanted {
    struct metadata metadata;
    struct metadata_entry entry;
    struct metadata_piece piece;
    int64_t start, size;
    struct share_want want;
    struct share_wants wants;
    struct load_share share;
};

static void want(struct wanted *wanted, uint32_t rank_count)
{
    const struct share_rules rules = {.verification = DCP_VERIFY_NONE,
                                      .cut_size = MIB,
                                      .receive_bytes = EXCHANGE_RECEIVE_BYTES,
                                      .largest_window = EXCHANGE_LOT_BYTES};
    uint32_t *class_of = calloc(rank_count, sizeof *class_of);
    *wanted = (struct wanted){.size = (int64_t)(rank_count * MIB)};
    wanted->piece = (struct metadata_piece){
        .offsets = &wanted->start, .sizes = &wanted->size, .length = rank_count * MIB};
    wanted->entry = (struct metadata_entry){.name = "t",
                                            .is_tensor = true,
                                            .dtype = DCP_U8,
                                            .ndim = 1,
                                            .global_shape = &wanted->size,
                                            .pieces = &wanted->piece,
                                            .piece_count = 1};
    wanted->metadata.entries = &wanted->entry;
    wanted->metadata.count = 1;
    wanted->metadata.save_id = "";
    wanted->want = (struct share_want){.region = {1, &wanted->start, &wanted->size}};
    wanted->wants.wants = &wanted->want;
    wanted->wants.count = 1;
    assert_non_null(class_of);
    assert_int_equal(load_share_make(&wanted->metadata, &wanted->wants, 1, class_of, rank_count,
                                     &rules, &wanted->share),
                     DCP_OK);
    free(class_of);
}

static void more_ranks_take_more(void **state)
{
    static const struct {
        uint32_t ranks;
        uint64_t least, most; /* MiB */
    } cases[] = {{2, 8, 24}, {64, 16, 32}, {4096, 16, 32}, {150000, 45, 70}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct wanted wanted;
        struct operation operation;
        struct load_limit limit = {.needs.requests = 0};
        struct load_plan plan = {.count = 0};
        struct shard_reader reader = {.newest = NULL};
        dcp_load_options options = {.memory_limit = 1, .verification = DCP_VERIFY_NONE};
        const struct load_sharing sharing = {
            .options = &options, .metadata = &wanted.metadata, .plan = &plan, .reader = &reader};
        want(&wanted, cases[i].ranks);
        uint64_t memory = load_share_memory(&sharing, &wanted.share);
        assert_in_range(memory, cases[i].least * MIB, cases[i].most * MIB);
        options.memory_limit = memory;
        assert_int_equal(operation_start(&operation, NULL, NULL, 0), DCP_OK);
        assert_int_equal(load_limit_fit_sharing(&limit, &operation, &sharing, &wanted.share),
                         DCP_ERR_NO_MEMORY);
        operation_finish(&operation, NULL);
        load_share_free(&wanted.share);
    }
}

/* For what cannot be given to several places from where it was read to. */
static void reading_takes_a_room(void **state)
{
    struct wanted wanted;
    const dcp_load_options options = {.verification = DCP_VERIFY_NONE};
    const struct load_plan plan = {.count = 0};
    const struct load_sharing sharing = {
        .options = &options, .metadata = &wanted.metadata, .plan = &plan};
    const struct load_exchange exchange = {
        .metadata = &wanted.metadata, .share = &wanted.share, .plan = &plan};
    (void)state;
    want(&wanted, 64);
    uint64_t memory = load_share_memory(&sharing, &wanted.share);
    uint64_t exchanging = load_exchange_memory(&exchange);
    assert_in_range(memory, exchanging + SHARD_PASS_ROOM, exchanging + SHARD_PASS_ROOM + 4096);
    load_share_free(&wanted.share);
}

/* Columns of one tensor: three buffers hold a stripe each. */
static void buffers_hold_stripes(void **state)
{
    enum { RANKS = 4, ROWS = 40000, WIDTH = 300 };
    static const int64_t start[2], shape[2] = {ROWS, RANKS * WIDTH};
    struct metadata_piece piece = {.offsets = (int64_t *)start,
                                   .sizes = (int64_t *)shape,
                                   .length = (uint64_t)ROWS * RANKS * WIDTH * 4};
    struct metadata_entry entry = {.name = "t",
                                   .is_tensor = true,
                                   .dtype = DCP_F32,
                                   .ndim = 2,
                                   .global_shape = (int64_t *)shape,
                                   .pieces = &piece,
                                   .piece_count = 1};
    const struct metadata metadata = {.entries = &entry, .count = 1, .save_id = ""};
    const struct share_rules rules = {.verification = DCP_VERIFY_NONE,
                                      .cut_size = MIB,
                                      .striped_size = MIB,
                                      .long_run = MIB,
                                      .receive_bytes = EXCHANGE_RECEIVE_BYTES,
                                      .largest_window = EXCHANGE_LOT_BYTES};
    const dcp_load_options options = {.verification = DCP_VERIFY_NONE};
    const struct load_plan plan = {.count = 0};
    static const int64_t columns[RANKS][2] = {{0, 0}, {0, WIDTH}, {0, 2 * WIDTH}, {0, 3 * WIDTH}};
    static const int64_t part[2] = {ROWS, WIDTH};
    static const uint32_t classes[RANKS] = {0, 1, 2, 3};
    struct share_want wants[RANKS];
    struct share_wants of[RANKS];
    struct load_share share;
    (void)state;
    for (int r = 0; r < RANKS; r++) {
        wants[r] = (struct share_want){.region = {2, columns[r], part}};
        of[r] = (struct share_wants){.wants = &wants[r], .count = 1};
    }
    assert_int_equal(load_share_make(&metadata, of, RANKS, classes, RANKS, &rules, &share), DCP_OK);
    assert_true(share.regions[0].striped);
    const struct load_sharing sharing = {.options = &options, .metadata = &metadata, .plan = &plan};
    uint64_t memory = load_share_memory(&sharing, &share);
    assert_in_range(memory, PREFETCH_BUFFERS * SHARE_STRIPE / 2, 32 * MIB);
    load_share_free(&share);
}

/* Sums of the parts of a record, of which the coordinator gets all. */
static void checksums_of_parts_take_memory(void **state)
{
    struct wanted wanted;
    dcp_load_options options = {.verification = DCP_VERIFY_NONE, .memory_limit = 1};
    const struct load_plan plan = {.count = 0};
    const struct load_sharing sharing = {
        .options = &options, .metadata = &wanted.metadata, .plan = &plan};
    (void)state;
    want(&wanted, 64);
    uint64_t before = load_share_memory(&sharing, &wanted.share);
    options.verification = DCP_VERIFY_ALL;
    uint64_t sums = load_share_memory(&sharing, &wanted.share) - before;
    assert_int_equal(wanted.share.run_count, 64);
    assert_in_range(sums, wanted.share.run_count * 200, wanted.share.run_count * 600);
    wanted.piece.zstd = true; /* then it has no parts */
    assert_int_equal(load_share_memory(&sharing, &wanted.share), before);
    load_share_free(&wanted.share);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_ranks_take_more), cmocka_unit_test(reading_takes_a_room),
        cmocka_unit_test(buffers_hold_stripes), cmocka_unit_test(checksums_of_parts_take_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
