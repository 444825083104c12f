/* SPDX-License-Identifier: BSD-3-Clause */
/* Pieces that ranks divide by columns are read in stripes, which are sent to each rank in part;
 * small pieces in lots. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan/share/record_parts.h"
#include "share_wishes.h"

#define MIB ((uint64_t)1 << 20)

/* Everything is read once, and each rank gets its columns alone. */
static void columns_come_out_of_stripes(void **state)
{
    (void)state;
    struct stored stored;
    struct wishes *wishes = calloc(RANKS_MOST, sizeof *wishes);
    const struct share_rules rules = striping(small_rules);
    stored_init(&stored, ROWS, COLUMNS);
    for (uint32_t ranks = 2; ranks <= 5; ranks++)
        for (int64_t overlap = 0; overlap < 3; overlap++) {
            struct load_share result;
            struct counts *counts = calloc(1, sizeof *counts);
            memset(wishes, 0, RANKS_MOST * sizeof *wishes);
            for (uint32_t e = 0; e < ENTRIES; e++)
                wish_columns(wishes, &stored, e, ranks, overlap);
            wish(&wishes[ranks], &stored, 1, (int64_t[]){0, 0}, stored.shape);
            assert_int_equal(share(&stored, wishes, ranks + 1, &rules, &result), DCP_OK);
            assert_int_equal(count_striped(&result), result.region_count);
            for (uint32_t r = 0; r <= ranks; r++)
                check_rank(&result, &stored, &wishes[r], r);
            count_windows(&result, &stored, 0, counts);
            for (int e = 0; e < ENTRIES; e++)
                for (int i = 0; i < ROWS * COLUMNS; i++)
                    assert_int_equal(counts->read[e][i], 1);
            load_share_free(&result);
            free(counts);
        }
    free(wishes);
}

/* Each reader takes a stripe to its end before it begins another, its own part first, and the
 * others in their order from there on. */
static void check_order(const struct load_share *share, const struct stored *stored, uint32_t ranks)
{
    for (uint32_t reader = 0; reader < ranks; reader++) {
        uint32_t distance = ranks - 1;
        int64_t end = 0;
        for (uint32_t at = share->first[reader]; at < share->run_count; at = share->next[at]) {
            const struct share_run *run = &share->runs[at];
            const struct share_region *region = &share->regions[run->region];
            const struct share_stripe stripe =
                share_stripe_of(&stored->metadata, region, run->from);
            uint64_t bytes = (uint64_t)(stripe.end - stripe.from) * 4;
            uint32_t class = share->sets[region->set].classes[0];
            distance = (distance + 1) % ranks;
            assert_int_equal(class, (share->class_of[reader] + distance) % ranks);
            assert_true(distance == 0 || stripe.end == end);
            assert_in_range(bytes, SHARE_STRIPE / 2, SHARE_STRIPE_MOST);
            end = stripe.end;
        }
        assert_int_equal(distance, ranks - 1);
    }
}

static void stripes_are_read_evenly(void **state)
{
    (void)state;
    struct stored stored;
    struct wishes *wishes = calloc(RANKS_MOST, sizeof *wishes);
    struct share_rules rules = striping(large_rules);
    const uint64_t all = 60000 * UINT64_C(4096);
    uint64_t loads[RANKS_MOST];
    struct load_share result;
    struct record_part part;
    stored_init(&stored, 60000, 1024);
    wish_columns(wishes, &stored, 0, 4, 0);
    for (int way = 0; way < 3; way++) { /* checked by blocks, not checked, checked by records */
        rules.blocks = way == 0;
        rules.verification = way == 1 ? DCP_VERIFY_NONE : DCP_VERIFY_ALL;
        assert_int_equal(share(&stored, wishes, 4, &rules, &result), DCP_OK);
        assert_int_equal(result.bytes_distinct, all);
        assert_int_equal(result.bytes_wanted, 4 * all);
        assert_in_range(result.bytes_exchanged, all - all / 4, all - all / 4 + PIECES);
        assert_true(result.window < SHARE_STRIPE_MOST / 4 + 64);
        check_order(&result, &stored, 4);
        fill_loads(&result, &stored, loads);
        for (int r = 0; r < 4 && way < 2; r++)
            assert_in_range(loads[r], all / 4 - all / 32, all / 4 + all / 32);
        size_t readers = 0;
        for (int r = 0; r < 4; r++)
            readers += loads[r] != 0;
        assert_int_equal(readers, way < 2 ? 4 : PIECES);
        for (size_t i = 0; i < result.run_count; i++)
            assert_false(record_part_of_run(&stored.metadata, &result, &result.runs[i], &part));
        load_share_free(&result);
    }
    stored.pieces[0][0].zstd = stored.pieces[0][1].zstd = true;
    rules = striping(large_rules);
    assert_int_equal(share(&stored, wishes, 4, &rules, &result), DCP_OK);
    for (size_t i = 0; i < result.run_count; i++)
        for (size_t j = 0; j < i; j++)
            assert_true(result.regions[result.runs[i].region].piece !=
                            result.regions[result.runs[j].region].piece ||
                        result.runs[i].reader == result.runs[j].reader);
    load_share_free(&result);
    free(wishes);
}

/* Where ranks read their parts well by themselves, or not all is wanted, or by one rank. */
static void other_pieces_are_not_striped(void **state)
{
    (void)state;
    struct stored stored;
    struct wishes *wishes = calloc(RANKS_MOST, sizeof *wishes);
    struct share_rules rules;
    struct load_share result;
    stored_init(&stored, 60000, 1024);
    wish_columns(wishes, &stored, 0, 4, 8);
    for (int way = 0; way < 4; way++) {
        rules = striping(large_rules);
        rules.long_run = way == 0 ? 0 : way == 1 ? 16 : rules.long_run;
        rules.striped_size = way == 2 ? (uint64_t)1 << 30 : rules.striped_size;
        if (way == 3) {
            memset(wishes, 0, RANKS_MOST * sizeof *wishes);
            wish_columns(wishes, &stored, 0, 4, -1);
        }
        assert_int_equal(share(&stored, wishes, 4, &rules, &result), DCP_OK);
        assert_int_equal(count_striped(&result), 0);
        load_share_free(&result);
    }
    memset(wishes, 0, RANKS_MOST * sizeof *wishes);
    for (int64_t c = 0; c < 4; c++)
        wish(&wishes[0], &stored, 0, (int64_t[]){0, 256 * c}, (int64_t[]){60000, 256});
    rules = striping(large_rules);
    assert_int_equal(share(&stored, wishes, 4, &rules, &result), DCP_OK);
    assert_int_equal(result.run_count, 0);
    load_share_free(&result);
    wish_columns(wishes, &stored, 2, 4, 0); /* which others want is striped all the same */
    assert_int_equal(share(&stored, wishes, 4, &rules, &result), DCP_OK);
    assert_int_equal(count_striped(&result), 4 * PIECES);
    load_share_free(&result);
    memset(wishes, 0, RANKS_MOST * sizeof *wishes);
    stored_init(&stored, 600, 1024);
    for (int64_t r = 0; r < 4; r++)
        wish(&wishes[r], &stored, 0, (int64_t[]){150 * r, 0}, (int64_t[]){150, 1024});
    rules = striping(small_rules);
    assert_int_equal(share(&stored, wishes, 4, &rules, &result), DCP_OK);
    assert_int_equal(count_striped(&result), 0);
    load_share_free(&result);
    free(wishes);
}

/* Pieces that lie next to each other in two files. */
static void place_in_lots(struct stored *stored)
{
    for (int e = 0; e < ENTRIES; e++)
        for (int p = 0; p < PIECES; p++)
            stored->pieces[e][p].offset = (uint64_t)e * 10;
}

static uint32_t file_of(const struct load_share *share, const struct stored *stored, size_t run)
{
    const struct share_region *region = &share->regions[share->runs[run].region];
    return stored->pieces[region->entry][region->piece].file;
}

/* What is in one lot of a file is read by one rank; what is far from it, or large, need not be. */
static void a_lot_is_read_by_one_rank(void **state)
{
    (void)state;
    struct stored stored;
    struct wishes *wishes = calloc(RANKS_MOST, sizeof *wishes);
    struct share_rules rules = small_rules;
    rules.cut_size = 1 << 20;
    stored_init(&stored, ROWS, COLUMNS);
    for (uint32_t r = 0; r < 2; r++)
        for (uint32_t e = 0; e < ENTRIES; e++)
            wish(&wishes[r], &stored, e, (int64_t[]){0, 0}, stored.shape);
    for (int way = 0; way < 4; way++) { /* in lots; far from each other, large, or none */
        struct load_share result;
        uint32_t readers[2] = {0};
        stored_init(&stored, ROWS, COLUMNS);
        if (way != 1)
            place_in_lots(&stored);
        for (int e = 0; e < ENTRIES && way == 2; e++)
            stored.pieces[e][0].length = stored.pieces[e][1].length = SHARE_LOT_PIECE;
        rules.lot = way == 3 ? 0 : (uint64_t)1 << 19;
        assert_int_equal(share(&stored, wishes, 2, &rules, &result), DCP_OK);
        assert_int_equal(result.lot > 0, way != 3);
        for (size_t i = 0; i < result.run_count; i++)
            readers[file_of(&result, &stored, i)] |= 1u << result.runs[i].reader;
        assert_int_equal(readers[0] + readers[1], way == 0 ? 1 + 2 : 3 + 3);
        for (uint32_t r = 0; r < 2; r++)
            check_rank(&result, &stored, &wishes[r], r);
        load_share_free(&result);
    }
    free(wishes);
}

/* How often a reader turns from one set of ranks to another. */
static size_t count_turns(const struct load_share *share, uint32_t reader)
{
    size_t turns = 0;
    uint32_t at = share->first[reader];
    for (; at < share->run_count && share->next[at] < share->run_count; at = share->next[at])
        turns += share->regions[share->runs[at].region].set !=
                 share->regions[share->runs[share->next[at]].region].set;
    return turns;
}

/* Columns of small pieces: of all in a lot, those of one rank follow each other, its own first. */
static void stripes_in_a_lot_are_sent_together(void **state)
{
    (void)state;
    struct stored stored;
    struct wishes *wishes = calloc(RANKS_MOST, sizeof *wishes);
    struct share_rules rules = striping(small_rules);
    rules.cut_size = 1 << 20;
    stored_init(&stored, ROWS, COLUMNS);
    place_in_lots(&stored);
    for (uint32_t e = 0; e < ENTRIES; e++)
        wish_columns(wishes, &stored, e, 2, 0);
    for (int lots = 0; lots < 2; lots++) {
        struct load_share result;
        rules.lot = lots ? (uint64_t)1 << 19 : 0;
        assert_int_equal(share(&stored, wishes, 2, &rules, &result), DCP_OK);
        assert_int_equal(count_striped(&result), result.region_count);
        for (uint32_t r = 0; r < 2; r++) {
            const struct share_run *first = &result.runs[result.first[r]];
            assert_int_equal(result.sets[result.regions[first->region].set].classes[0],
                             result.class_of[r]);
            assert_true(lots ? count_turns(&result, r) == 1 : count_turns(&result, r) > 1);
            check_rank(&result, &stored, &wishes[r], r);
        }
        load_share_free(&result);
    }
    free(wishes);
}

static size_t count_groups(const struct load_share *share, const struct stored *stored,
                           uint32_t reader)
{
    size_t groups = 1;
    uint32_t at = share->first[reader], next;
    for (; at < share->run_count && (next = share->next[at]) < share->run_count; at = next)
        groups +=
            !share_read_together(share, &stored->metadata, &share->runs[at], &share->runs[next]);
    return groups;
}

/* A stripe, or the pieces of a lot; not the stripes of a piece that takes few bytes in its file. */
static void what_is_read_together(void **state)
{
    (void)state;
    struct stored stored;
    struct wishes *wishes = calloc(RANKS_MOST, sizeof *wishes);
    struct share_rules rules = striping(small_rules);
    struct load_share result;
    stored_init(&stored, ROWS, COLUMNS);
    place_in_lots(&stored);
    rules.cut_size = 1 << 20;
    rules.lot = (uint64_t)1 << 19;
    for (uint32_t e = 0; e < ENTRIES; e++)
        wish_columns(wishes, &stored, e, 2, 0);
    assert_int_equal(share(&stored, wishes, 2, &rules, &result), DCP_OK);
    for (uint32_t r = 0; r < 2; r++)
        assert_int_equal(count_groups(&result, &stored, r), 1); /* of its file */
    load_share_free(&result);
    memset(wishes, 0, RANKS_MOST * sizeof *wishes);
    stored_init(&stored, 60000, 1024);
    wish_columns(wishes, &stored, 0, 2, 0);
    rules = striping(large_rules);
    rules.lot = (uint64_t)1 << 19;
    for (int small = 0; small < 2; small++) {
        for (int p = 0; p < PIECES && small; p++) {
            stored.pieces[0][p].zstd = true;
            stored.pieces[0][p].length = 4096;
        }
        assert_int_equal(share(&stored, wishes, 2, &rules, &result), DCP_OK);
        size_t stripes = (size_t)60000 * 4096 / SHARE_STRIPE;
        assert_in_range(count_groups(&result, &stored, 0) + count_groups(&result, &stored, 1),
                        stripes, stripes + 2 * PIECES);
        load_share_free(&result);
    }
    memset(wishes, 0, RANKS_MOST * sizeof *wishes);
    stored_init(&stored, 1000, 1024); /* pieces of one stripe; and one that is not striped */
    wish_columns(wishes, &stored, 0, 2, 0);
    wish_columns(wishes, &stored, 2, 2, 0);
    wish(&wishes[0], &stored, 1, (int64_t[]){0, 0}, stored.shape);
    wish(&wishes[1], &stored, 1, (int64_t[]){0, 0}, stored.shape);
    rules.striped_size = rules.cut_size = MIB;
    assert_int_equal(share(&stored, wishes, 2, &rules, &result), DCP_OK);
    for (size_t i = 0; i < result.run_count; i++)
        for (size_t j = 0; j < result.run_count; j++) {
            const struct share_region *x = &result.regions[result.runs[i].region];
            const struct share_region *y = &result.regions[result.runs[j].region];
            bool same = x->entry == y->entry && x->piece == y->piece;
            bool alike = x->striped == y->striped && (!x->striped || same);
            assert_int_equal(x->striped, x->entry != 1);
            assert_int_equal(
                share_read_together(&result, &stored.metadata, &result.runs[i], &result.runs[j]),
                alike);
        }
    load_share_free(&result);
    free(wishes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_read_together),
        cmocka_unit_test(columns_come_out_of_stripes),
        cmocka_unit_test(stripes_are_read_evenly),
        cmocka_unit_test(other_pieces_are_not_striped),
        cmocka_unit_test(a_lot_is_read_by_one_rank),
        cmocka_unit_test(stripes_in_a_lot_are_sent_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
