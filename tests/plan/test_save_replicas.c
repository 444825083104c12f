/* SPDX-License-Identifier: BSD-3-Clause */
/* Who writes replicas, and in which slices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "samples.h"

enum { KIB = 1024, MIB = 1024 * 1024 };

static void merge_and_check(const struct samples *samples, dcp_replicas replicas,
                            struct merged *merged)
{
    struct save_plan_options options = sample_options(replicas);
    assert_int_equal(samples_merge(samples, &options, merged), DCP_OK);
    check_merged(samples, merged);
}

static uint64_t most_bytes(const struct merged *merged)
{
    uint64_t most = 0;
    for (int rank = 0; rank < merged->count; rank++)
        if (orders_bytes(&merged->orders[rank]) > most)
            most = orders_bytes(&merged->orders[rank]);
    return most;
}

static uint64_t mean_bytes(const struct merged *merged)
{
    uint64_t sum = 0;
    for (int rank = 0; rank < merged->count; rank++)
        sum += orders_bytes(&merged->orders[rank]);
    return sum / (uint64_t)merged->count;
}

static size_t piece_count(const struct merged *merged, const char *name)
{
    const struct metadata_entry *entry = metadata_find(&merged->metadata, name);
    assert_non_null(entry);
    return entry->piece_count;
}

static void hold_everywhere(struct samples *samples, const char *name, int32_t ndim,
                            const int64_t *shape)
{
    static const int64_t origin[DCP_MAX_DIMS];
    for (int rank = 0; rank < samples->count; rank++)
        sample_tensor(samples, rank, name, DCP_U8, BOX(ndim, origin, shape), shape);
}

static void whole_replicas_go_to_the_least_loaded(void **state)
{
    (void)state;
    struct samples samples;
    struct merged merged;
    samples_init(&samples, 3);
    sample_tensor(&samples, 0, "own", DCP_U8, BOX(1, DIMS(0), DIMS(5 * MIB)), DIMS(5 * MIB));
    hold_everywhere(&samples, "small", 1, DIMS(MIB));
    hold_everywhere(&samples, "large", 1, DIMS(4 * MIB));
    hold_everywhere(&samples, "middle", 1, DIMS(2 * MIB));
    merge_and_check(&samples, DCP_REPLICAS_WHOLE, &merged);
    assert_int_equal(piece_count(&merged, "large"), 1);
    assert_int_equal(merged.orders[0].count, 1); /* own */
    assert_int_equal(merged.orders[1].count, 1); /* large: the lowest rank of two */
    assert_int_equal(merged.orders[2].count, 2); /* middle and small */
    merged_free(&merged);
    samples_free(&samples);
}

static void small_replicas_are_not_sliced(void **state)
{
    (void)state;
    struct samples samples;
    struct merged merged;
    samples_init(&samples, 4);
    hold_everywhere(&samples, "w", 1, DIMS(MIB - 2048));
    merge_and_check(&samples, DCP_REPLICAS_SLICE, &merged);
    assert_int_equal(piece_count(&merged, "w"), 1);
    merged_free(&merged);
    samples_free(&samples);
}

static void large_replicas_are_slices_of_rows(void **state)
{
    (void)state;
    struct samples samples;
    struct merged merged;
    samples_init(&samples, 4);
    hold_everywhere(&samples, "w", 2, DIMS(4096, KIB));
    merge_and_check(&samples, DCP_REPLICAS_SLICE, &merged);
    const struct metadata_entry *entry = metadata_find(&merged.metadata, "w");
    assert_int_equal(entry->piece_count, 4);
    for (size_t i = 0; i < 4; i++) {
        char name[SHARD_NAME_MAX];
        shard_name(name, (int)i, 0, SAMPLE_GENERATION);
        assert_int_equal(entry->pieces[i].offsets[0], 1024 * i);
        assert_int_equal(entry->pieces[i].sizes[0], 1024);
        assert_int_equal(entry->pieces[i].sizes[1], KIB);
        assert_string_equal(merged.metadata.files[entry->pieces[i].file], name);
    }
    merged_free(&merged);
    samples_free(&samples);
}

static void slices_fill_up_what_ranks_write_anyway(void **state)
{
    (void)state;
    struct samples samples;
    struct merged merged;
    samples_init(&samples, 4);
    sample_tensor(&samples, 1, "own", DCP_U8, BOX(1, DIMS(0), DIMS(2 * MIB)), DIMS(2 * MIB));
    sample_tensor(&samples, 2, "huge", DCP_U8, BOX(1, DIMS(0), DIMS(20 * MIB)), DIMS(20 * MIB));
    hold_everywhere(&samples, "w", 2, DIMS(4096, 2 * KIB));
    merge_and_check(&samples, DCP_REPLICAS_SLICE, &merged);
    /* 8 MiB over ranks 0, 1 and 3, of which rank 1 has 2 MiB already */
    assert_int_equal(piece_count(&merged, "w"), 3);
    assert_int_equal(merged.orders[2].count, 1);
    for (int rank = 0; rank < 4; rank++)
        if (rank != 2)
            assert_in_range(orders_bytes(&merged.orders[rank]), 10 * MIB / 3 - 8 * KIB,
                            10 * MIB / 3 + 8 * KIB);
    merged_free(&merged);
    samples_free(&samples);
}

static void slices_are_not_tiny(void **state)
{
    (void)state;
    struct samples samples;
    struct merged merged;
    samples_init(&samples, 16);
    hold_everywhere(&samples, "w", 1, DIMS(MIB + 5));
    merge_and_check(&samples, DCP_REPLICAS_SLICE, &merged);
    assert_int_equal(piece_count(&merged, "w"), 4);
    for (size_t i = 0; i < 4; i++)
        assert_true(metadata_find(&merged.metadata, "w")->pieces[i].sizes[0] >= 256 * KIB);
    merged_free(&merged);
    samples_free(&samples);
}

/* Few long rows: the cut goes through the dimension below them. */
static void long_rows_are_cut(void **state)
{
    (void)state;
    struct samples samples;
    struct merged merged;
    samples_init(&samples, 8);
    hold_everywhere(&samples, "two", 3, DIMS(1, 2, 8 * MIB));
    hold_everywhere(&samples, "three", 3, DIMS(3, 1, 8 * MIB));
    hold_everywhere(&samples, "matrix", 4, DIMS(3, 5, 1024, 1024));
    merge_and_check(&samples, DCP_REPLICAS_SLICE, &merged);
    assert_int_equal(piece_count(&merged, "two"), 8);
    assert_in_range(piece_count(&merged, "three"), 8, 10);
    assert_in_range(piece_count(&merged, "matrix"), 8, 24);
    assert_in_range(most_bytes(&merged), mean_bytes(&merged), mean_bytes(&merged) + 256 * KIB);
    for (size_t i = 0; i < merged.metadata.count; i++)
        for (size_t k = 0; k < merged.metadata.entries[i].piece_count; k++)
            assert_true(merged.metadata.entries[i].pieces[k].length >= 256 * KIB);
    merged_free(&merged);
    samples_free(&samples);
}

/* Slices of a box that is itself a shard. */
static void shards_of_replica_groups_are_sliced(void **state)
{
    (void)state;
    struct samples samples;
    struct merged merged;
    samples_init(&samples, 4);
    for (int rank = 0; rank < 4; rank++)
        sample_tensor(&samples, rank, "w", DCP_F32,
                      BOX(2, DIMS(0, 512 * (rank % 2)), DIMS(1024, 512)), DIMS(1024, 1024));
    merge_and_check(&samples, DCP_REPLICAS_SLICE, &merged);
    assert_int_equal(piece_count(&merged, "w"), 4);
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(merged.orders[rank].count, 1);
        const struct box box = merged.orders[rank].orders[0].box;
        assert_int_equal(box.offsets[0], 512 * (rank / 2));
        assert_int_equal(box.offsets[1], 512 * (rank % 2));
        assert_int_equal(box.sizes[0], 512);
    }
    merged_free(&merged);
    samples_free(&samples);
}

/* A replicated model of many tensors: what a rank writes is near the mean. */
static void check_balance(uint64_t seed, int ranks, dcp_replicas replicas)
{
    struct samples samples;
    struct merged merged;
    samples_init(&samples, ranks);
    for (int i = 0; i < 150; i++) {
        char name[32];
        int64_t rows = 1 + (int64_t)random_below(&seed, 3000);
        int64_t columns = 1 + (int64_t)random_below(&seed, i % 3 == 0 ? 4096 : 64);
        snprintf(name, sizeof name, "layers.%d.w", i);
        if (i % 5 != 0) {
            hold_everywhere(&samples, name, 2, DIMS(rows, columns));
            continue;
        }
        int only = (int)random_below(&seed, (uint64_t)ranks);
        sample_tensor(&samples, only, name, DCP_U8, BOX(1, DIMS(0), DIMS(columns)), DIMS(columns));
    }
    merge_and_check(&samples, replicas, &merged);
    uint64_t slack = replicas == DCP_REPLICAS_SLICE ? 256 * KIB : 3000 * 4096;
    assert_true(most_bytes(&merged) <= mean_bytes(&merged) * 105 / 100 + slack);
    merged_free(&merged);
    samples_free(&samples);
}

static void ranks_write_about_equally_much(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        int ranks = 2 + (int)(seed * 5 % 15);
        check_balance(seed, ranks, DCP_REPLICAS_SLICE);
        check_balance(seed, ranks, DCP_REPLICAS_WHOLE);
    }
}

/* Any shapes, any holders: all slices together are the tensors, and the result is the same again.
 */
static void random_replicas_stay_whole(void **state)
{
    (void)state;
    uint64_t seed = 7;
    for (int round = 0; round < 300; round++) {
        struct samples samples;
        struct merged merged;
        int ranks = 1 + (int)random_below(&seed, SAMPLE_RANKS_MAX);
        samples_init(&samples, ranks);
        for (int i = 0; i < 4; i++) {
            int64_t shape[4];
            int64_t origin[4] = {0};
            int64_t left = 1 << (8 + random_below(&seed, 17));
            int32_t ndim = 1 + (int32_t)random_below(&seed, 4);
            char name[8];
            for (int32_t dim = 0; dim < ndim; dim++) {
                shape[dim] = dim == ndim - 1 ? left : 1 + (int64_t)random_below(&seed, 30);
                left = left / shape[dim] + 1;
            }
            snprintf(name, sizeof name, "t%d", i);
            uint64_t holders = random_next(&seed) | 1u << random_below(&seed, (uint64_t)ranks);
            for (int rank = 0; rank < ranks; rank++)
                if (holders >> rank & 1)
                    sample_tensor(&samples, rank, name, DCP_BF16, BOX(ndim, origin, shape), shape);
        }
        struct merged again;
        merge_and_check(&samples, DCP_REPLICAS_SLICE, &merged);
        merge_and_check(&samples, DCP_REPLICAS_SLICE, &again);
        for (int rank = 0; rank < ranks; rank++)
            assert_int_equal(orders_bytes(&merged.orders[rank]), orders_bytes(&again.orders[rank]));
        merged_free(&again);
        merged_free(&merged);
        samples_free(&samples);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_replicas_go_to_the_least_loaded),
        cmocka_unit_test(small_replicas_are_not_sliced),
        cmocka_unit_test(large_replicas_are_slices_of_rows),
        cmocka_unit_test(slices_fill_up_what_ranks_write_anyway),
        cmocka_unit_test(slices_are_not_tiny),
        cmocka_unit_test(long_rows_are_cut),
        cmocka_unit_test(shards_of_replica_groups_are_sliced),
        cmocka_unit_test(ranks_write_about_equally_much),
        cmocka_unit_test(random_replicas_stay_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
