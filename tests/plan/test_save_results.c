/* SPDX-License-Identifier: BSD-3-Clause */
/* Each result finds the piece of its order, whatever rank and file it comes from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "fault/failing_allocator.h"
#include "samples.h"

enum { RANKS = 3 };

struct fixture {
    struct samples samples;
    struct merged merged;
    struct write_results results[RANKS];
};

static int make(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    struct samples *samples = &fixture->samples;
    samples_init(samples, RANKS);
    for (int rank = 0; rank < RANKS; rank++) {
        for (int i = 0; i < 20; i++) {
            char name[16];
            snprintf(name, sizeof name, "t%d", i);
            sample_tensor(samples, rank, name, DCP_F32,
                          BOX(2, DIMS(i % 4 * rank, 0), DIMS(i % 4, 30 + i)),
                          DIMS(i % 4 * RANKS, 30 + i));
        }
        sample_tensor(samples, rank, "sliced", DCP_F32, BOX(2, DIMS(0, 0), DIMS(4096, 256)),
                      DIMS(4096, 256));
        sample_object(samples, rank, "object", 1261);
    }
    struct save_plan_options options = sample_options(DCP_REPLICAS_SLICE);
    options.thread_count = 2;
    assert_int_equal(samples_merge(samples, &options, &fixture->merged), DCP_OK);
    *state = fixture;
    return 0;
}

/* A place that tells rank and order; every fourth stream goes to a file of its own. */
static void make_results(struct fixture *fixture)
{
    for (int rank = 0; rank < RANKS; rank++) {
        const struct write_orders *orders = &fixture->merged.orders[rank];
        struct write_results *results = &fixture->results[rank];
        arena_init(&results->arena, 0);
        results->results =
            arena_allocate_array(&results->arena, orders->count, sizeof *results->results);
        results->count = orders->count;
        for (size_t i = 0; i < orders->count; i++) {
            char path[SHARD_NAME_MAX];
            if (i % 4 == 3)
                snprintf(path, sizeof path, "own/%d.%zu", rank, i);
            else
                shard_name(path, rank, orders->orders[i].file, 0);
            results->results[i] =
                (struct write_result){arena_copy_text(&results->arena, path, strlen(path)),
                                      (uint64_t)rank * 1000 + i, 7 + i, i % 2 == 0};
        }
    }
}

static int unmake(void **state)
{
    struct fixture *fixture = *state;
    for (int rank = 0; rank < RANKS; rank++)
        write_results_free(&fixture->results[rank]);
    merged_free(&fixture->merged);
    samples_free(&fixture->samples);
    free(fixture);
    return 0;
}

static const struct metadata_piece *piece_of(const struct metadata *metadata, const char *name,
                                             struct box box)
{
    const struct metadata_entry *entry = metadata_find(metadata, name);
    assert_non_null(entry);
    for (size_t p = 0; p < entry->piece_count; p++)
        if (!entry->is_tensor || memcmp(entry->pieces[p].offsets, box.offsets,
                                        (size_t)box.ndim * sizeof *box.offsets) == 0)
            return &entry->pieces[p];
    fail_msg("%s has no such piece", name);
    return NULL;
}

static void test_every_piece_is_placed(void **state)
{
    struct fixture *fixture = *state;
    struct metadata *metadata = &fixture->merged.metadata;
    make_results(fixture);
    assert_int_equal(save_plan_place(fixture->results, RANKS, metadata), DCP_OK);
    for (int rank = 0; rank < RANKS; rank++) {
        const struct write_orders *orders = &fixture->merged.orders[rank];
        assert_true(orders->count > 3);
        for (size_t i = 0; i < orders->count; i++) {
            const struct write_order *order = &orders->orders[i];
            const struct write_result *result = &fixture->results[rank].results[i];
            const struct metadata_piece *piece = piece_of(
                metadata, fixture->samples.plans[rank].items[order->item].name, order->box);
            assert_string_equal(metadata->files[piece->file], result->path);
            assert_int_equal(piece->offset, result->offset);
            assert_int_equal(piece->length, result->length);
            assert_int_equal(piece->zstd, result->zstd);
        }
    }
}

static void test_counts_must_fit(void **state)
{
    struct fixture *fixture = *state;
    make_results(fixture);
    fixture->results[1].count--;
    assert_int_equal(save_plan_place(fixture->results, RANKS, &fixture->merged.metadata),
                     DCP_ERR_GROUP);
    fixture->results[1].count++;
    assert_int_equal(save_plan_place(fixture->results, RANKS - 1, &fixture->merged.metadata),
                     DCP_ERR_GROUP);
    struct write_results more[RANKS + 1] = {fixture->results[0], fixture->results[1],
                                            fixture->results[2], fixture->results[0]};
    assert_int_equal(save_plan_place(more, RANKS + 1, &fixture->merged.metadata), DCP_ERR_GROUP);
}

static void test_no_memory(void **state)
{
    struct fixture *fixture = *state;
    make_results(fixture);
    for (long n = 1;; n++) {
        struct merged merged;
        struct save_plan_options options = sample_options(DCP_REPLICAS_SLICE);
        options.thread_count = 2;
        assert_int_equal(samples_merge(&fixture->samples, &options, &merged), DCP_OK);
        failing_allocator_install(n, false);
        dcp_status status = save_plan_place(fixture->results, RANKS, &merged.metadata);
        bool reached = failing_allocator_reached();
        failing_allocator_remove();
        merged_free(&merged);
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        if (!reached)
            break;
    }
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, make, unmake)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_every_piece_is_placed),
        TEST(test_counts_must_fit),
        TEST(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
