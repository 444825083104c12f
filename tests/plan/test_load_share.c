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
#include "plan/share/record_parts.h"
#include "samples.h"
#include "share_wishes.h"

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

/* So that it may go to its place without a copy. */
static void a_large_segment_has_a_window_of_its_own(void **state)
{
    (void)state;
    struct stored stored;
    struct wishes *wishes = calloc(RANKS_MOST, sizeof *wishes);
    struct load_share result;
    size_t large = 0, joined = 0;
    stored_init(&stored, 1000, 1024);
    for (uint32_t r = 0; r < 2; r++)
        for (uint32_t e = 0; e < ENTRIES; e++)
            wish(&wishes[r], &stored, e, (int64_t[]){e == 2 ? 0 : 320, 0},
                 e == 2 ? stored.shape : (int64_t[]){20, 1024});
    assert_int_equal(share(&stored, wishes, 2, &large_rules, &result), DCP_OK);
    for (uint32_t reader = 0; reader < 2; reader++) {
        struct share_cursor cursor = share_cursor_start(&result, reader);
        while (cursor.run < result.run_count) {
            struct share_window window = {0};
            struct share_segment segment;
            size_t count = 0, most = 0;
            while (share_window_next(&result, &stored.metadata, &window, &cursor, &segment)) {
                size_t size = (size_t)(segment.end - segment.from) * sizeof(float);
                most = size > most ? size : most;
                count++;
            }
            assert_true(count == 1 || most < 1 << 20);
            large += most >= 1 << 20;
            joined += count > 1;
        }
    }
    assert_int_equal(large, 2);
    assert_int_equal(joined, 2);
    load_share_free(&result);
    free(wishes);
}

static size_t count_runs(const struct stored *stored, struct wishes *wishes,
                         const struct share_rules *rules, size_t *parts)
{
    struct load_share result;
    struct record_part part;
    assert_int_equal(share(stored, wishes, 3, rules, &result), DCP_OK);
    size_t count = result.run_count;
    *parts = 0;
    for (size_t i = 0; i < count; i++)
        *parts += record_part_of_run(&stored->metadata, &result, &result.runs[i], &part);
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
    size_t parts;
    stored_init(&stored, 60000, 1024);
    for (uint32_t r = 0; r < 3; r++)
        wish(&wishes[r], &stored, 0, origin, stored.shape);
    for (rules.verification = DCP_VERIFY_ALL; rules.verification <= DCP_VERIFY_NONE;
         rules.verification++) {
        size_t count = count_runs(&stored, wishes, &rules, &parts);
        assert_true(count > PIECES);
        assert_int_equal(parts, count);
    }
    memset(wishes, 0, RANKS_MOST * sizeof *wishes);
    for (uint32_t r = 0; r < 3; r++)
        wish(&wishes[r], &stored, 0, origin, most);
    for (rules.verification = DCP_VERIFY_ALL; rules.verification <= DCP_VERIFY_NONE;
         rules.verification++) {
        size_t count = count_runs(&stored, wishes, &rules, &parts);
        assert_int_equal(count > PIECES, rules.verification == DCP_VERIFY_NONE);
        assert_int_equal(parts, 0);
    }
    rules.blocks = true;
    for (rules.verification = DCP_VERIFY_ALL; rules.verification <= DCP_VERIFY_NONE;
         rules.verification++)
        assert_true(count_runs(&stored, wishes, &rules, &parts) > PIECES);
    /* Of half of the columns, the rest is too much to be read for its checksum. */
    memset(wishes, 0, RANKS_MOST * sizeof *wishes);
    for (uint32_t r = 0; r < 3; r++)
        wish(&wishes[r], &stored, 0, origin, half);
    rules.blocks = false;
    for (rules.verification = DCP_VERIFY_ALL; rules.verification <= DCP_VERIFY_NONE;
         rules.verification++)
        assert_int_equal(count_runs(&stored, wishes, &rules, &parts) > PIECES,
                         rules.verification != DCP_VERIFY_RECORDS);
    memset(wishes, 0, RANKS_MOST * sizeof *wishes);
    for (uint32_t r = 0; r < 3; r++)
        wish(&wishes[r], &stored, 0, origin, most);
    stored.pieces[0][0].zstd = stored.pieces[0][1].zstd = true;
    assert_int_equal(count_runs(&stored, wishes, &large_rules, &parts), PIECES);
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
    size_t parts;
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
    size_t count = count_runs(&stored, wishes, &large_rules, &parts);
    assert_true(count > PIECES);
    assert_int_equal(parts, count);
    for (int i = 0; i < PIECES; i++)
        there[i] += 1024;
    assert_int_equal(count_runs(&stored, wishes, &large_rules, &parts), PIECES);
    for (int i = 0; i < PIECES; i++)
        there[i] *= 4;
    assert_true(count_runs(&stored, wishes, &large_rules, &parts) > PIECES);
    assert_int_equal(parts, 0);
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
    struct record_part part;
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
        assert_false(record_part_of_run(&stored.metadata, &result, run, &part));
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

static void sharing_pays_on_one_host_unless_the_page_cache_has_it(void)
{
    const uint64_t gib = (uint64_t)1 << 30;
    struct share_costs costs = {.wanted = 2 * gib,
                                .distinct = gib,
                                .exchanged = gib,
                                .rank_count = 2,
                                .host_count = 1,
                                .broadcasts = true,
                                .group_rate = gib / 8};
    assert_false(load_share_pays(&costs));
    costs.storage_is_shared = true;
    assert_true(load_share_pays(&costs)); /* no group is used */
    costs.host_count = 2;
    assert_false(load_share_pays(&costs));
    costs.group_rate = 0;
    assert_false(load_share_pays(&costs)); /* all bytes to all ranks, one after the other */
    costs.broadcasts = false;
    assert_true(load_share_pays(&costs));
    costs = (struct share_costs){.wanted = 3 * gib,
                                 .distinct = gib,
                                 .exchanged = 2 * gib,
                                 .rank_count = 3,
                                 .host_count = 3,
                                 .storage_is_shared = true,
                                 .broadcasts = true};
    assert_true(load_share_pays(&costs));
}

/* To another host bytes are sent once, to be read there by all of its ranks. */
static void fewer_hosts_need_less_of_a_network(void)
{
    const uint64_t gib = (uint64_t)1 << 30;
    struct share_costs costs = {.wanted = 8 * gib,
                                .distinct = gib,
                                .exchanged = 7 * gib,
                                .rank_count = 8,
                                .host_count = 2,
                                .storage_is_shared = true,
                                .group_rate = gib / 8};
    assert_true(load_share_pays(&costs));
    costs.host_count = 4; /* 3 s for the network, beside 3.5 s of reading again */
    assert_true(load_share_pays(&costs));
    costs.host_count = 5;
    assert_false(load_share_pays(&costs));
    costs.host_count = 2;
    costs.group_rate = gib / 28; /* 3.5 s, and ranks of a host read each other's memory as well */
    assert_false(load_share_pays(&costs));
}

static void sharing_pays_where_storage_is_the_bottleneck(void **state)
{
    (void)state;
    const uint64_t gib = (uint64_t)1 << 30;
    struct share_costs costs = {
        .wanted = 8 * gib, .distinct = gib, .exchanged = 7 * gib, .rank_count = 8, .host_count = 8};
    assert_false(load_share_pays(&costs)); /* the page cache is faster than a group */
    costs.storage_is_shared = true;
    assert_true(load_share_pays(&costs));
    costs.group_rate = gib / 8; /* a slow network */
    assert_false(load_share_pays(&costs));
    costs = (struct share_costs){.wanted = 2 * gib,
                                 .distinct = gib,
                                 .exchanged = gib,
                                 .rank_count = 2,
                                 .host_count = 2,
                                 .storage_is_shared = true};
    assert_true(load_share_pays(&costs)); /* as long, but sent while other bytes are read */
    costs = (struct share_costs){.wanted = 8 * gib,
                                 .distinct = gib,
                                 .exchanged = 7 * gib,
                                 .rank_count = 8,
                                 .host_count = 8,
                                 .group_rate = 8 * gib};
    costs.storage_is_shared = false;
    assert_true(load_share_pays(&costs));
    costs.distinct = costs.wanted;
    costs.exchanged = 0;
    assert_false(load_share_pays(&costs));
    sharing_pays_on_one_host_unless_the_page_cache_has_it();
    fewer_hosts_need_less_of_a_network();
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
        cmocka_unit_test(a_large_segment_has_a_window_of_its_own),
        cmocka_unit_test(records_are_cut_where_they_can_be_checked),
        cmocka_unit_test(ranges_of_streams_are_cut_likewise),
        cmocka_unit_test(everyone_gets_what_others_hold),
        cmocka_unit_test(pieces_that_would_crumble_go_whole),
        cmocka_unit_test(objects_are_dealt_out),
        cmocka_unit_test(messages_that_lie_are_refused),
        cmocka_unit_test(every_allocation_can_fail),
        cmocka_unit_test(sharing_pays_where_storage_is_the_bottleneck),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
