/* SPDX-License-Identifier: BSD-3-Clause */
#include "share_wishes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "samples.h"

void stored_init(struct stored *stored, int64_t rows, int64_t columns)
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

void wish(struct wishes *wishes, const struct stored *stored, uint32_t entry,
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

dcp_status share(const struct stored *stored, struct wishes *wishes, uint32_t ranks,
                 const struct share_rules *rules, struct load_share *result)
{
    struct share_wants wants[RANKS_MOST] = {0};
    uint32_t class_of[RANKS_MOST] = {0}, classes = 0;
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

void count_windows(const struct load_share *share, const struct stored *stored, uint32_t rank,
                   struct counts *counts)
{
    for (uint32_t reader = 0; reader < share->rank_count; reader++) {
        struct share_cursor cursor = share_cursor_start(share, reader);
        for (;;) {
            struct share_window window = {0};
            struct share_segment segment;
            const struct share_run *first = NULL;
            size_t end = 0;
            while (share_window_next(share, &stored->metadata, &window, &cursor, &segment)) {
                const struct share_region *region = &share->regions[segment.run->region];
                assert_int_equal(segment.run->reader, reader);
                assert_int_equal(region->set, window.set);
                first = first ? first : segment.run;
                assert_true(share_read_together(share, &stored->metadata, first, segment.run));
                assert_true(segment.place >= end && segment.place % 16 == 0);
                assert_true(segment.from < segment.end);
                /* What does not fit begins a window of its own, unless this one has room left. */
                if (segment.end < segment.run->end)
                    assert_true(segment.place <= share->window / 2);
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

void check_rank(const struct load_share *share, const struct stored *stored,
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

void check_shared(const struct load_share *share, const struct stored *stored,
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

const struct share_rules small_rules = {
    .cut_size = 64, .striped_size = 64, .receive_bytes = 1200, .largest_window = 1024};

void make_wishes(struct wishes *wishes, const struct stored *stored, uint32_t ranks, uint64_t *seed)
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

void fill_loads(const struct load_share *share, const struct stored *stored,
                uint64_t loads[RANKS_MOST])
{
    memset(loads, 0, RANKS_MOST * sizeof *loads);
    for (size_t i = 0; i < share->run_count; i++)
        loads[share->runs[i].reader] +=
            (uint64_t)(share->runs[i].end - share->runs[i].from) *
            dcp_dtype_size(stored->entries[share->regions[share->runs[i].region].entry].dtype);
}

const struct share_rules large_rules = {.cut_size = (uint64_t)4 << 20,
                                        .striped_size = (uint64_t)4 << 20,
                                        .receive_bytes = (size_t)8 << 20,
                                        .largest_window = (size_t)4 << 20};

void wish_columns(struct wishes *wishes, const struct stored *stored, uint32_t entry,
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

struct share_rules striping(struct share_rules rules)
{
    rules.long_run = (uint64_t)1 << 20;
    return rules;
}

size_t count_striped(const struct load_share *share)
{
    size_t count = 0;
    for (size_t i = 0; i < share->region_count; i++)
        count += share->regions[i].striped;
    return count;
}
