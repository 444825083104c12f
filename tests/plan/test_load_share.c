/* SPDX-License-Identifier: BSD-3-Clause */
/* Sharing the reading of a load: whatever ranks want, each of them gets every element exactly once,
 * no element is read twice where several want it, and the reading is even. */
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
#include "plan/share/load_share.h"
#include "samples.h"

enum { ENTRIES = 3, PIECES = 2, ROWS = 12, COLUMNS = 10, RANKS_MOST = 6 };

/* Two-dimensional tensors of two pieces each, one above the other. */
struct stored {
    struct metadata metadata;
    struct metadata_entry entries[ENTRIES];
    struct metadata_piece pieces[ENTRIES][PIECES];
    int64_t numbers[PIECES][4];
    int64_t shape[2];
    int64_t rows;
};

static void stored_init(struct stored *stored, int64_t rows, int64_t columns)
{
    *stored = (struct stored){.shape = {rows, columns}, .rows = rows};
    for (int p = 0; p < PIECES; p++) {
        stored->numbers[p][0] = p == 0 ? 0 : rows / 3;
        stored->numbers[p][2] = p == 0 ? rows / 3 : rows - rows / 3;
        stored->numbers[p][3] = columns;
    }
    for (int e = 0; e < ENTRIES; e++) {
        for (int p = 0; p < PIECES; p++)
            stored->pieces[e][p] =
                (struct metadata_piece){.offsets = stored->numbers[p],
                                        .sizes = stored->numbers[p] + 2,
                                        .file = (uint32_t)p,
                                        .offset = (uint64_t)(e * 3 + p) * 1000000,
                                        .length = 1000000};
        stored->entries[e] = (struct metadata_entry){.name = "t",
                                                     .is_tensor = true,
                                                     .dtype = e == 1 ? DCP_C128 : DCP_F32,
                                                     .ndim = 2,
                                                     .global_shape = stored->shape,
                                                     .pieces = stored->pieces[e],
                                                     .piece_count = PIECES};
    }
    stored->metadata.entries = stored->entries;
    stored->metadata.count = ENTRIES;
}

/* A rank's plan of boxes, each of them cut by the pieces. */
struct wishes {
    struct load_plan plan;
    struct read_item items[64];
    int64_t numbers[64][4];
};

static void wish(struct wishes *wishes, const struct stored *stored, uint32_t entry,
                 const int64_t offsets[2], const int64_t sizes[2])
{
    for (uint32_t p = 0; p < PIECES; p++) {
        struct box_storage common;
        const struct metadata_piece *piece = &stored->pieces[entry][p];
        if (!box_intersect((struct box){2, offsets, sizes},
                           (struct box){2, piece->offsets, piece->sizes}, &common))
            continue;
        size_t at = wishes->plan.count++;
        assert_true(at < 64);
        memcpy(wishes->numbers[at], common.offsets, 16);
        memcpy(wishes->numbers[at] + 2, common.sizes, 16);
        wishes->items[at] =
            (struct read_item){.wanted = (uint32_t)at,
                               .entry = entry,
                               .piece = p,
                               .region = {2, wishes->numbers[at], wishes->numbers[at] + 2}};
    }
    wishes->plan.items = wishes->items;
}

/* One message of what a rank wants, decoded again. */
static dcp_status hear(const struct wishes *wishes, const struct stored *stored,
                       struct share_wants *wants)
{
    struct buffer message;
    buffer_init(&message, 0);
    *wants = (struct share_wants){0};
    dcp_status status = share_wants_encode(&wishes->plan, &stored->metadata, true, &message);
    if (status == DCP_OK)
        status = share_wants_decode(message.data, message.size, &stored->metadata, wants);
    buffer_free(&message);
    return status;
}

static bool is_same(const struct wishes *a, const struct wishes *b)
{
    bool same =
        a->plan.count == b->plan.count && memcmp(a->numbers, b->numbers, sizeof a->numbers) == 0;
    for (size_t i = 0; i < a->plan.count && same; i++)
        same = a->items[i].entry == b->items[i].entry && a->items[i].piece == b->items[i].piece;
    return same;
}

/* Every rank in a class of its own, but those that wish the same. */
static dcp_status share(const struct stored *stored, struct wishes *wishes, uint32_t ranks,
                        const struct share_rules *rules, struct load_share *result)
{
    struct share_wants wants[RANKS_MOST] = {0};
    uint32_t class_of[RANKS_MOST], classes = 0;
    dcp_status status = DCP_OK;
    for (uint32_t r = 0; r < ranks; r++) {
        class_of[r] = classes;
        for (uint32_t other = 0; other < r; other++)
            if (is_same(&wishes[other], &wishes[r]))
                class_of[r] = class_of[other];
        if (class_of[r] == classes && status == DCP_OK)
            status = hear(&wishes[r], stored, &wants[classes]);
        classes += class_of[r] == classes;
    }
    struct load_share made = {0};
    if (status == DCP_OK)
        status = load_share_make(&stored->metadata, wants, classes, class_of, ranks, rules, &made);
    struct buffer message;
    buffer_init(&message, 0);
    *result = (struct load_share){0};
    if (status == DCP_OK)
        status = load_share_encode(&made, &stored->metadata, &message);
    if (status == DCP_OK)
        status = load_share_decode(message.data, message.size, &stored->metadata, ranks, result);
    for (uint32_t c = 0; c < classes; c++)
        share_wants_free(&wants[c]);
    load_share_free(&made);
    buffer_free(&message);
    return status;
}

/* How often each element of each tensor came to a rank, and was read for others. */
struct counts {
    int got[ENTRIES][ROWS * COLUMNS];
    int read[ENTRIES][ROWS * COLUMNS];
};

static void count_box(int *counts, struct box box)
{
    for (int64_t r = 0; r < box.sizes[0]; r++)
        for (int64_t c = 0; c < box.sizes[1]; c++)
            counts[(box.offsets[0] + r) * COLUMNS + box.offsets[1] + c]++;
}

static void count_elements(int *counts, struct box box, int64_t from, int64_t end)
{
    for (int64_t at = from; at < end; at++)
        counts[(box.offsets[0] + at / box.sizes[1]) * COLUMNS + box.offsets[1] +
               at % box.sizes[1]]++;
}

/* Walks over all windows, as ranks do. */
static void count_windows(const struct load_share *share, const struct stored *stored,
                          uint32_t rank, struct counts *counts)
{
    for (uint32_t reader = 0; reader < share->rank_count; reader++) {
        struct share_cursor cursor = share_cursor_start(share, reader);
        for (;;) {
            struct share_window window = {0};
            struct share_segment segment;
            size_t end = 0;
            while (share_window_next(share, &stored->metadata, &window, &cursor, &segment)) {
                const struct share_region *region = &share->regions[segment.run->region];
                assert_int_equal(segment.run->reader, reader);
                assert_int_equal(region->set, window.set);
                assert_true(segment.place >= end && segment.place % 16 == 0);
                assert_true(segment.from < segment.end);
                end = window.bytes;
                count_elements(counts->read[region->entry], region->box, segment.from, segment.end);
                if (load_share_wants(share, region->set, rank))
                    count_elements(counts->got[region->entry], region->box, segment.from,
                                   segment.end);
            }
            assert_true(window.bytes <= share->window);
            if (!window.begun)
                break;
        }
    }
}

static void check_rank(const struct load_share *share, const struct stored *stored,
                       const struct wishes *wishes, uint32_t rank)
{
    struct counts *counts = calloc(2, sizeof *counts), *wanted = counts + 1;
    struct load_plan rest;
    count_windows(share, stored, rank, counts);
    assert_int_equal(load_share_rest(share, rank, &wishes->plan, &stored->metadata, &rest), DCP_OK);
    for (size_t i = 0; i < rest.count; i++)
        count_box(wanted->read[rest.items[i].entry], rest.items[i].region);
    for (size_t i = 0; i < wishes->plan.count; i++)
        count_box(wanted->got[wishes->items[i].entry], wishes->items[i].region);
    for (int e = 0; e < ENTRIES; e++)
        for (int i = 0; i < ROWS * COLUMNS; i++) {
            int shared = counts->got[e][i], own = wanted->read[e][i], wishes_of = wanted->got[e][i];
            assert_in_range(counts->read[e][i], 0, 1);
            if (wishes_of == 0)
                assert_int_equal(shared + own, 0);
            else
                assert_true((shared == 1 && own == 0) || (shared == 0 && own == wishes_of));
        }
    load_plan_free(&rest);
    free(counts);
}

/* No element that two ranks want is left to both of them. */
static void check_shared(const struct load_share *share, const struct stored *stored,
                         const struct wishes *wishes)
{
    struct counts *all = calloc(1 + RANKS_MOST, sizeof *all);
    count_windows(share, stored, 0, all);
    for (uint32_t r = 0; r < share->rank_count; r++)
        for (size_t i = 0; i < wishes[r].plan.count; i++)
            count_box(all[1 + r].got[wishes[r].items[i].entry], wishes[r].items[i].region);
    for (int e = 0; e < ENTRIES; e++)
        for (int i = 0; i < ROWS * COLUMNS; i++) {
            int ranks = 0;
            for (uint32_t r = 0; r < share->rank_count; r++)
                ranks += all[1 + r].got[e][i] != 0;
            assert_int_equal(all[0].read[e][i], ranks > 1);
        }
    free(all);
}

static const struct share_rules small_rules = {
    .cut_size = 64, .receive_bytes = 1200, .largest_window = 1024};

/* Kinds of wishes: whole tensors, random boxes, the same as another rank's. */
static void make_wishes(struct wishes *wishes, const struct stored *stored, uint32_t ranks,
                        uint64_t *seed)
{
    for (uint32_t r = 0; r < ranks; r++) {
        wishes[r] = (struct wishes){0};
        if (r > 0 && random_below(seed, 3) == 0) {
            const struct wishes *other = &wishes[random_below(seed, r)];
            for (size_t i = 0; i < other->plan.count; i++)
                wish(&wishes[r], stored, other->items[i].entry, other->numbers[i],
                     other->numbers[i] + 2);
            continue;
        }
        uint64_t count = random_below(seed, 5);
        for (uint64_t i = 0; i < count; i++) {
            int64_t offsets[2] = {(int64_t)random_below(seed, ROWS),
                                  (int64_t)random_below(seed, COLUMNS)};
            int64_t sizes[2] = {1 + (int64_t)random_below(seed, (uint64_t)(ROWS - offsets[0])),
                                1 + (int64_t)random_below(seed, (uint64_t)(COLUMNS - offsets[1]))};
            if (random_below(seed, 4) == 0) {
                offsets[0] = offsets[1] = 0;
                sizes[0] = ROWS;
                sizes[1] = COLUMNS;
            }
            wish(&wishes[r], stored, (uint32_t)random_below(seed, ENTRIES), offsets, sizes);
        }
    }
}

static void everyone_gets_its_wishes_once(void **state)
{
    (void)state;
    struct stored stored;
    struct wishes *wishes = calloc(RANKS_MOST, sizeof *wishes);
    uint64_t seed = 5;
    stored_init(&stored, ROWS, COLUMNS);
    for (int trial = 0; trial < 300; trial++) {
        uint32_t ranks = 2 + (uint32_t)random_below(&seed, RANKS_MOST - 1);
        struct load_share result;
        make_wishes(wishes, &stored, ranks, &seed);
        assert_int_equal(share(&stored, wishes, ranks, &small_rules, &result), DCP_OK);
        for (uint32_t r = 0; r < ranks; r++)
            check_rank(&result, &stored, &wishes[r], r);
        check_shared(&result, &stored, wishes);
        load_share_free(&result);
    }
    free(wishes);
}

static void fill_loads(const struct load_share *share, const struct stored *stored,
                       uint64_t loads[RANKS_MOST])
{
    memset(loads, 0, RANKS_MOST * sizeof *loads);
    for (size_t i = 0; i < share->run_count; i++)
        loads[share->runs[i].reader] +=
            (uint64_t)(share->runs[i].end - share->runs[i].from) *
            dcp_dtype_size(stored->entries[share->regions[share->runs[i].region].entry].dtype);
}

/* For rows of 4 KiB. */
static const struct share_rules large_rules = {.cut_size = (uint64_t)4 << 20,
                                               .receive_bytes = (size_t)8 << 20,
                                               .largest_window = (size_t)4 << 20};

static void readers_read_about_equal_bytes(void **state)
{
    (void)state;
    struct stored stored;
    struct wishes *wishes = calloc(RANKS_MOST, sizeof *wishes);
    const int64_t origin[2] = {0, 0};
    uint64_t loads[RANKS_MOST], all = 0, most = 0;
    struct load_share result;
    stored_init(&stored, 60000, 1024);
    for (uint32_t r = 0; r < 5; r++)
        for (uint32_t e = 0; e < ENTRIES; e += 2)
            wish(&wishes[r], &stored, e, origin, stored.shape);
    assert_int_equal(share(&stored, wishes, 5, &large_rules, &result), DCP_OK);
    fill_loads(&result, &stored, loads);
    for (int r = 0; r < 5; r++) {
        all += loads[r];
        most = loads[r] > most ? loads[r] : most;
    }
    assert_int_equal(all, 2 * 60000 * UINT64_C(4096));
    assert_true(most < all / 5 + (2 << 20));
    assert_int_equal(result.bytes_distinct, all);
    assert_int_equal(result.bytes_exchanged, 4 * all);
    assert_true(result.window * 4 <= large_rules.receive_bytes && result.window % 16 == 0);
    load_share_free(&result);
    free(wishes);
}

/* What does not fit into a window is sent in about equal parts, which end at blocks of the file. */
static void runs_are_sent_in_equal_parts(void **state)
{
    (void)state;
    struct stored stored;
    struct wishes *wishes = calloc(RANKS_MOST, sizeof *wishes);
    struct load_share result;
    size_t parts = 0;
    stored_init(&stored, 3 * 1311, 1024);
    for (uint32_t r = 0; r < 2; r++)
        for (uint32_t e = 0; e < ENTRIES; e += 2)
            wish(&wishes[r], &stored, e, (int64_t[]){0, 0}, stored.shape);
    assert_int_equal(share(&stored, wishes, 2, &large_rules, &result), DCP_OK);
    assert_int_equal(result.window, large_rules.receive_bytes / 2);
    for (uint32_t reader = 0; reader < 2; reader++) {
        struct share_cursor cursor = share_cursor_start(&result, reader);
        struct share_window window = {0};
        struct share_segment segment;
        while (cursor.run < result.run_count) {
            window = (struct share_window){0};
            while (share_window_next(&result, &stored.metadata, &window, &cursor, &segment)) {
                const struct share_run *run = segment.run;
                const struct share_region *region = &result.regions[run->region];
                uint64_t start = stored.pieces[region->entry][region->piece].offset / 4096 + 1;
                int64_t rest = (run->end - run->from) * 4, size = (segment.end - segment.from) * 4;
                if (rest <= (int64_t)result.window)
                    continue;
                int64_t even = rest / ((rest - 1) / (int64_t)result.window + 1);
                assert_in_range(size, even - (128 << 10), even + (128 << 10));
                if (segment.end < run->end)
                    assert_int_equal((start * 4096 + (uint64_t)segment.end * 4) % (64 << 10), 0);
                parts++;
            }
        }
    }
    assert_true(parts >= 4);
    load_share_free(&result);
    free(wishes);
}

static size_t count_runs(const struct stored *stored, struct wishes *wishes,
                         const struct share_rules *rules, size_t *summed)
{
    struct load_share result;
    assert_int_equal(share(stored, wishes, 3, rules, &result), DCP_OK);
    size_t count = result.run_count;
    *summed = 0;
    for (size_t i = 0; i < count; i++)
        *summed +=
            share_run_is_summed(&result, &stored->metadata, &result.runs[i], rules->verification);
    load_share_free(&result);
    return count;
}

/* A compressed stream is read by one rank; one with a single checksum may be cut where all of it is
 * read, or where nobody would have checked the part of it, as most of it is not wanted. */
static void records_are_cut_where_they_can_be_checked(void **state)
{
    (void)state;
    struct stored stored;
    struct wishes *wishes = calloc(RANKS_MOST, sizeof *wishes);
    const int64_t origin[2] = {0, 0}, most[2] = {60000, 1023}, half[2] = {60000, 512};
    struct share_rules rules = large_rules;
    size_t summed;
    stored_init(&stored, 60000, 1024);
    for (uint32_t r = 0; r < 3; r++)
        wish(&wishes[r], &stored, 0, origin, stored.shape);
    for (rules.verification = DCP_VERIFY_ALL; rules.verification <= DCP_VERIFY_NONE;
         rules.verification++) {
        size_t count = count_runs(&stored, wishes, &rules, &summed);
        assert_true(count > PIECES);
        assert_int_equal(summed, rules.verification == DCP_VERIFY_NONE ? 0 : count);
    }
    memset(wishes, 0, RANKS_MOST * sizeof *wishes);
    for (uint32_t r = 0; r < 3; r++)
        wish(&wishes[r], &stored, 0, origin, most);
    for (rules.verification = DCP_VERIFY_ALL; rules.verification <= DCP_VERIFY_NONE;
         rules.verification++) {
        size_t count = count_runs(&stored, wishes, &rules, &summed);
        assert_int_equal(count > PIECES, rules.verification == DCP_VERIFY_NONE);
        assert_int_equal(summed, 0);
    }
    rules.blocks = true;
    for (rules.verification = DCP_VERIFY_ALL; rules.verification <= DCP_VERIFY_NONE;
         rules.verification++)
        assert_true(count_runs(&stored, wishes, &rules, &summed) > PIECES);
    /* Of half of the columns, the rest is too much to be read for its checksum. */
    memset(wishes, 0, RANKS_MOST * sizeof *wishes);
    for (uint32_t r = 0; r < 3; r++)
        wish(&wishes[r], &stored, 0, origin, half);
    rules.blocks = false;
    for (rules.verification = DCP_VERIFY_ALL; rules.verification <= DCP_VERIFY_NONE;
         rules.verification++)
        assert_int_equal(count_runs(&stored, wishes, &rules, &summed) > PIECES,
                         rules.verification != DCP_VERIFY_RECORDS);
    memset(wishes, 0, RANKS_MOST * sizeof *wishes);
    for (uint32_t r = 0; r < 3; r++)
        wish(&wishes[r], &stored, 0, origin, most);
    stored.pieces[0][0].zstd = stored.pieces[0][1].zstd = true;
    assert_int_equal(count_runs(&stored, wishes, &large_rules, &summed), PIECES);
    free(wishes);
}

/* A range is cut like the stream if it is all of that; a part of it where the rest of the stream
 * would not be read for its checksum, and then without sums. */
static void ranges_of_streams_are_cut_likewise(void **state)
{
    (void)state;
    struct stored stored;
    struct wishes *wishes = calloc(RANKS_MOST, sizeof *wishes);
    const int64_t origin[2] = {0, 0};
    struct stream_range ranges[PIECES];
    int64_t there[PIECES];
    size_t summed;
    stored_init(&stored, 60000, 1024);
    for (uint32_t r = 0; r < 3; r++)
        wish(&wishes[r], &stored, 0, origin, stored.shape);
    for (int i = 0; i < PIECES; i++) {
        struct metadata_piece *piece = &stored.pieces[0][i];
        ranges[i] = (struct stream_range){.ndim = 1, .sizes = &there[i]};
        there[i] = piece->sizes[0] * piece->sizes[1];
        piece->encoding = PIECE_RANGE;
        piece->range = &ranges[i];
    }
    size_t count = count_runs(&stored, wishes, &large_rules, &summed);
    assert_true(count > PIECES);
    assert_int_equal(summed, count);
    for (int i = 0; i < PIECES; i++)
        there[i] += 1024;
    assert_int_equal(count_runs(&stored, wishes, &large_rules, &summed), PIECES);
    for (int i = 0; i < PIECES; i++)
        there[i] *= 4;
    assert_true(count_runs(&stored, wishes, &large_rules, &summed) > PIECES);
    assert_int_equal(summed, 0);
    free(wishes);
}

/* Whatever one rank holds comes from it, also to a single other one, and to itself. */
static void everyone_gets_what_others_hold(void **state)
{
    (void)state;
    static const uint32_t holders[PIECES] = {1, 0};
    struct share_rules rules = small_rules;
    struct stored stored;
    struct wishes *wishes = calloc(RANKS_MOST, sizeof *wishes);
    uint64_t seed = 77;
    rules.holders = holders;
    stored_init(&stored, ROWS, COLUMNS);
    for (int trial = 0; trial < 200; trial++) {
        uint32_t ranks = 2 + (uint32_t)random_below(&seed, RANKS_MOST - 1);
        struct load_share result;
        make_wishes(wishes, &stored, ranks, &seed);
        assert_int_equal(share(&stored, wishes, ranks, &rules, &result), DCP_OK);
        for (size_t i = 0; i < result.run_count; i++)
            assert_int_equal(result.runs[i].reader,
                             holders[result.regions[result.runs[i].region].piece]);
        for (uint32_t r = 0; r < ranks; r++) {
            struct load_plan rest;
            check_rank(&result, &stored, &wishes[r], r);
            assert_int_equal(load_share_rest(&result, r, &wishes[r].plan, &stored.metadata, &rest),
                             DCP_OK);
            assert_int_equal(rest.count, 0);
            load_plan_free(&rest);
        }
        load_share_free(&result);
    }
    make_wishes(wishes, &stored, 1, &seed);
    struct load_share none;
    wish(&wishes[0], &stored, 0, (int64_t[]){0, 0}, stored.shape);
    rules.holders = (const uint32_t[]){7, 7};
    assert_int_equal(share(&stored, wishes, 1, &rules, &none), DCP_ERR_GROUP);
    load_share_free(&none);
    free(wishes);
}

/* Regions that overlap in so many ways that they would be crumbs: what one rank holds goes as a
 * whole to those who want some of it, what all can read is read by each. */
static void pieces_that_would_crumble_go_whole(void **state)
{
    (void)state;
    static const uint32_t holders[PIECES] = {0, 0};
    struct share_rules rules = small_rules;
    struct stored stored;
    struct wishes *wishes = calloc(RANKS_MOST, sizeof *wishes);
    struct load_share result;
    stored_init(&stored, 4096, 4096);
    for (int64_t i = 0; i < 28; i++) {
        wish(&wishes[0], &stored, 0, (int64_t[]){i * 40, 0}, (int64_t[]){20, 1300});
        wish(&wishes[1], &stored, 0, (int64_t[]){0, i * 40}, (int64_t[]){1300, 20});
    }
    assert_int_equal(share(&stored, wishes, 3, &rules, &result), DCP_OK);
    assert_int_equal(result.run_count, 0);
    load_share_free(&result);
    rules.holders = holders;
    assert_int_equal(share(&stored, wishes, 3, &rules, &result), DCP_OK);
    assert_int_equal(result.run_count, 1);
    for (uint32_t r = 0; r < 3; r++) {
        struct load_plan rest;
        assert_int_equal(load_share_wants(&result, result.regions[0].set, r), r < 2);
        assert_int_equal(load_share_rest(&result, r, &wishes[r].plan, &stored.metadata, &rest),
                         DCP_OK);
        assert_int_equal(rest.count, 0);
        load_plan_free(&rest);
    }
    load_share_free(&result);
    free(wishes);
}

/* Ranks that want columns of a tensor, together all of them; neighbours overlap at times. */
static void wish_columns(struct wishes *wishes, const struct stored *stored, uint32_t entry,
                         uint32_t ranks, int64_t overlap)
{
    for (uint32_t r = 0; r < ranks; r++) {
        int64_t columns = stored->shape[1], begin = columns * r / ranks;
        int64_t end = columns * (r + 1) / ranks + overlap;
        end = end < columns ? end : columns;
        wish(&wishes[r], stored, entry, (int64_t[]){0, begin},
             (int64_t[]){stored->shape[0], end - begin});
    }
}

static struct share_rules striping(struct share_rules rules)
{
    rules.long_run = (uint64_t)1 << 20;
    return rules;
}

static size_t count_striped(const struct load_share *share)
{
    size_t count = 0;
    for (size_t i = 0; i < share->region_count; i++)
        count += share->regions[i].striped;
    return count;
}

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
            assert_false(share_run_is_summed(&result, &stored.metadata, &result.runs[i],
                                             rules.verification));
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
        rules.cut_size = way == 2 ? (uint64_t)1 << 30 : rules.cut_size;
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

enum { OBJECTS = 40 };

/* Each object that several ranks want is read by one of them, as a whole. */
static void objects_are_dealt_out(void **state)
{
    (void)state;
    struct metadata_piece pieces[OBJECTS];
    struct metadata_entry entries[OBJECTS];
    struct stored stored = {.metadata = {.entries = entries, .count = OBJECTS}};
    struct wishes *wishes = calloc(RANKS_MOST, sizeof *wishes);
    struct share_rules rules = small_rules;
    struct load_share result;
    uint64_t loads[RANKS_MOST] = {0};
    for (uint32_t i = 0; i < OBJECTS; i++) {
        pieces[i] = (struct metadata_piece){.offset = 1000 * i, .length = 10 + i};
        entries[i] = (struct metadata_entry){.name = "o", .pieces = &pieces[i], .piece_count = 1};
    }
    pieces[7].length = 0; /* has no stream */
    pieces[8].encoding = PIECE_VIEW;
    for (uint32_t r = 0; r < 4; r++) {
        wishes[r].plan.items = wishes[r].items;
        for (uint32_t i = 0; i < OBJECTS; i++)
            if (r != 3 || i % 2 == 0)
                wishes[r].items[wishes[r].plan.count++] = (struct read_item){.entry = i};
        for (uint32_t i = 0; i < 4 && r == 0; i++) /* the same under several names */
            wishes[r].items[wishes[r].plan.count++] = (struct read_item){.entry = i};
    }
    rules.objects = true;
    assert_int_equal(share(&stored, wishes, 4, &rules, &result), DCP_OK);
    assert_int_equal(result.run_count, OBJECTS - 2);
    for (size_t i = 0; i < result.run_count; i++) {
        const struct share_run *run = &result.runs[i];
        uint32_t entry = result.regions[run->region].entry;
        assert_int_equal(run->end - run->from, 10 + entry);
        assert_false(share_run_is_summed(&result, &stored.metadata, run, DCP_VERIFY_ALL));
        loads[run->reader] += 10 + entry;
        for (uint32_t r = 0; r < 4; r++)
            assert_int_equal(load_share_brings(&result, r, entry), r != 3 || entry % 2 == 0);
    }
    for (uint32_t r = 0; r < 4; r++) {
        assert_in_range(loads[r], 200, 400);
        assert_false(load_share_brings(&result, r, 7));
        assert_false(load_share_brings(&result, r, 8));
    }
    load_share_free(&result);
    rules.objects = false;
    assert_int_equal(share(&stored, wishes, 4, &rules, &result), DCP_OK);
    assert_int_equal(result.run_count, 0);
    load_share_free(&result);
    free(wishes);
}

/* Of all kinds of regions. */
static struct share_rules wish_for_all_kinds(struct wishes *wishes, const struct stored *stored)
{
    uint64_t seed = 11;
    make_wishes(wishes, stored, 4, &seed);
    for (uint32_t r = 0; r < 4; r++)
        for (size_t i = 0; i < wishes[r].plan.count; i++)
            wishes[r].items[i].entry = 0;
    wish_columns(wishes, stored, 2, 4, 1);
    return striping(small_rules);
}

static void messages_that_lie_are_refused(void **state)
{
    (void)state;
    struct stored stored;
    struct wishes *wishes = calloc(RANKS_MOST, sizeof *wishes);
    struct buffer message;
    struct load_share result;
    uint64_t seed = 11;
    stored_init(&stored, ROWS, COLUMNS);
    buffer_init(&message, 0);
    const struct share_rules rules = wish_for_all_kinds(wishes, &stored);
    assert_int_equal(share(&stored, wishes, 4, &rules, &result), DCP_OK);
    assert_in_range(count_striped(&result), 1, result.region_count - 1);
    struct share_set first = result.sets[0];
    result.sets[0].count = 0;
    assert_int_equal(load_share_encode(&result, &stored.metadata, &message), DCP_OK);
    result.sets[0] = first;
    load_share_free(&result);
    assert_int_equal(load_share_decode(message.data, message.size, &stored.metadata, 4, &result),
                     DCP_ERR_FORMAT);
    load_share_free(&result);
    message.size = 0;
    assert_int_equal(share(&stored, wishes, 4, &rules, &result), DCP_OK);
    assert_int_equal(load_share_encode(&result, &stored.metadata, &message), DCP_OK);
    load_share_free(&result);
    for (size_t size = 0; size < message.size; size++) {
        assert_int_equal(load_share_decode(message.data, size, &stored.metadata, 4, &result),
                         DCP_ERR_FORMAT);
        load_share_free(&result);
    }
    assert_int_equal(load_share_decode(message.data, message.size, &stored.metadata, 5, &result),
                     DCP_ERR_FORMAT);
    load_share_free(&result);
    for (size_t i = 0; i < 20000; i++) {
        size_t at = random_below(&seed, message.size);
        unsigned char kept = message.data[at];
        message.data[at] = (unsigned char)random_next(&seed);
        if (load_share_decode(message.data, message.size, &stored.metadata, 4, &result) == DCP_OK)
            for (size_t run = 0; run < result.run_count; run++)
                assert_true(box_contains(
                    (struct box){2, stored.numbers[result.regions[result.runs[run].region].piece],
                                 stored.numbers[result.regions[result.runs[run].region].piece] + 2},
                    result.regions[result.runs[run].region].box));
        load_share_free(&result);
        message.data[at] = kept;
    }
    buffer_free(&message);
    free(wishes);
}

static void every_allocation_can_fail(void **state)
{
    (void)state;
    struct stored stored;
    struct wishes *wishes = calloc(RANKS_MOST, sizeof *wishes);
    struct load_share result;
    stored_init(&stored, ROWS, COLUMNS);
    const struct share_rules rules = wish_for_all_kinds(wishes, &stored);
    for (long n = 1;; n++) {
        failing_allocator_install(n, false);
        dcp_status status = share(&stored, wishes, 4, &rules, &result);
        load_share_free(&result);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        if (!reached) {
            assert_int_equal(status, DCP_OK);
            break;
        }
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
    }
    free(wishes);
}

static void sharing_pays_where_storage_is_the_bottleneck(void **state)
{
    (void)state;
    const uint64_t gib = (uint64_t)1 << 30;
    struct share_costs costs = {
        .wanted = 8 * gib, .distinct = gib, .exchanged = 7 * gib, .rank_count = 8};
    assert_false(load_share_pays(&costs)); /* the page cache is faster than a group */
    costs.storage_is_shared = true;
    assert_true(load_share_pays(&costs));
    costs.group_rate = gib / 8; /* a slow network */
    assert_false(load_share_pays(&costs));
    costs = (struct share_costs){.wanted = 2 * gib,
                                 .distinct = gib,
                                 .exchanged = gib,
                                 .rank_count = 2,
                                 .storage_is_shared = true};
    assert_true(load_share_pays(&costs)); /* as long, but sent while other bytes are read */
    costs = (struct share_costs){.wanted = 8 * gib,
                                 .distinct = gib,
                                 .exchanged = 7 * gib,
                                 .rank_count = 8,
                                 .group_rate = 8 * gib};
    costs.storage_is_shared = false;
    assert_true(load_share_pays(&costs));
    costs.distinct = costs.wanted;
    costs.exchanged = 0;
    assert_false(load_share_pays(&costs));
    costs = (struct share_costs){
        .wanted = 1000, .distinct = 100, .storage_is_shared = true, .rank_count = 10};
    assert_false(load_share_pays(&costs)); /* not worth the planning */
    costs.reads_wanted = 10000;            /* of small objects, one after the other */
    costs.reads_distinct = 1000;
    assert_true(load_share_pays(&costs));
    costs.storage_is_shared = false;
    assert_false(load_share_pays(&costs));
    costs.storage_is_shared = true;
    costs.reads_distinct = costs.reads_wanted;
    assert_false(load_share_pays(&costs));
    costs.reads_wanted = 100;
    costs.reads_distinct = 10;
    assert_false(load_share_pays(&costs));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everyone_gets_its_wishes_once),
        cmocka_unit_test(readers_read_about_equal_bytes),
        cmocka_unit_test(runs_are_sent_in_equal_parts),
        cmocka_unit_test(records_are_cut_where_they_can_be_checked),
        cmocka_unit_test(ranges_of_streams_are_cut_likewise),
        cmocka_unit_test(everyone_gets_what_others_hold),
        cmocka_unit_test(pieces_that_would_crumble_go_whole),
        cmocka_unit_test(columns_come_out_of_stripes),
        cmocka_unit_test(stripes_are_read_evenly),
        cmocka_unit_test(other_pieces_are_not_striped),
        cmocka_unit_test(objects_are_dealt_out),
        cmocka_unit_test(messages_that_lie_are_refused),
        cmocka_unit_test(every_allocation_can_fail),
        cmocka_unit_test(sharing_pays_where_storage_is_the_bottleneck),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
