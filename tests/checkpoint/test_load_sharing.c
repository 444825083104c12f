/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that read for each other: each byte is read once, everyone gets what it wants, and the
 * reading is shared evenly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/wanted_parts.h"
#include "fault/over_files.h"
#include "group/collective.h"

struct trial {
    int64_t rows;
    enum want want;
    dcp_reading reading;
    dcp_verification verification;
    bool wide;
    bool remote;                                             /* the file system says so */
    enum { CACHE_AS_IT_IS, CACHE_ALL, CACHE_NOTHING } cache; /* what it holds of the files */
    bool derived;                                            /* the group has broadcasts only */
    bool paired; /* with another that carries what was read */
    uint64_t group_rate;
    dcp_figures figures[RANKS_MAX];
    uint64_t wanted[RANKS_MAX];
};

static int hold_all(void *context, int descriptor, uint64_t offset, size_t size, bool *cached)
{
    (void)context, (void)descriptor, (void)offset, (void)size;
    *cached = true;
    return 0;
}

static int hold_nothing(void *context, int descriptor, uint64_t offset, size_t size, bool *cached)
{
    (void)context, (void)descriptor, (void)offset, (void)size;
    *cached = false;
    return 0;
}

static dcp_status refuse(void *context, const dcp_collective *call, const void *send,
                         const size_t *send_sizes, const size_t *send_offsets, void *receive,
                         const size_t *receive_sizes, const size_t *receive_offsets)
{
    (void)context, (void)call, (void)send, (void)send_sizes, (void)send_offsets;
    (void)receive, (void)receive_sizes, (void)receive_offsets;
    return dcp_error_set(DCP_ERR_GROUP, "bulk bytes in the group of messages");
}

/* From then on only the other group can do what sharing needs. */
static void pair_up(dcp_group *group)
{
    dcp_group *bulk;
    must(dcp_group_duplicate(group, 30, &bulk));
    must(dcp_group_pair(group, bulk, 30));
    group->operations.all_to_all = refuse;
}

static dcp_status load_body(struct rank *self)
{
    struct trial *trial = self->context;
    struct wanted_parts parts;
    struct file_ops ops = file_ops_system;
    dcp_figures *figures = &trial->figures[self->rank];
    figures->size_of = sizeof *figures;
    const dcp_load_options options = {.group = self->group,
                                      .timeout_seconds = 30,
                                      .convert = trial->wide,
                                      .reading = trial->reading,
                                      .verification = trial->verification,
                                      .group_bytes_per_second = trial->group_rate,
                                      .figures = figures};
    if (trial->remote)
        ops.remote = over_network;
    if (trial->cache != CACHE_AS_IT_IS)
        ops.cached = trial->cache == CACHE_ALL ? hold_all : hold_nothing;
    if (trial->derived)
        self->group->operations.all_to_all = NULL;
    if (trial->paired)
        pair_up(self->group);
    wanted_parts_init(&parts, trial->rows, trial->want, self->rank, self->size, trial->wide, false);
    bool over = trial->remote || trial->cache != CACHE_AS_IT_IS;
    dcp_status status = over ? load_over(&ops, parts.root, self->path, &options, NULL)
                             : dcp_load(parts.root, self->path, &options, NULL);
    if (status == DCP_OK)
        status = wanted_parts_check(&parts);
    trial->wanted[self->rank] = wanted_parts_bytes(&parts);
    wanted_parts_free(&parts);
    return status;
}

static uint64_t total_read(const struct trial *trial, int ranks)
{
    uint64_t total = 0;
    for (int r = 0; r < ranks; r++)
        total += trial->figures[r].bytes_read;
    return total;
}

static uint64_t total_exchanged(const struct trial *trial, int ranks)
{
    uint64_t total = 0;
    for (int r = 0; r < ranks; r++)
        total += trial->figures[r].bytes_exchanged;
    return total;
}

/* What one rank reads of everything. */
static uint64_t read_by_one(const char *path, int64_t rows)
{
    struct trial trial = {.rows = rows};
    ranks_must(1, path, load_body, &trial);
    return trial.figures[0].bytes_read;
}

/* Footers are still read by each rank. */
static uint64_t around(int ranks)
{
    return (uint64_t)ranks * 24 * 1024;
}

/* A rank that reads for itself alone may read a block twice, for small neighbours together and for
 * the large tensor that they share it with. */
enum { SEAMS = 2 * 4096 };

/* Large enough for several windows a rank; the large tensor is cut. */
enum { ROWS = 2503 };

/* Of three by three trials all, or one of each row and column. */
enum { DIAGONAL = TRIAL_STEP > 1 ? 4 : 1 };

static void everyone_wants_everything(void **state)
{
    needs_files();
    const char *path = path_in(state, "c");
    wanted_parts_save(path, ROWS, NULL);
    uint64_t once = read_by_one(path, ROWS), objects = wanted_parts_object_bytes(path);
    for (int i = 0; i < 3 * 3; i += DIAGONAL) {
        int ranks = 2 << i / 3, way = i % 3;
        struct trial trial = {.rows = ROWS,
                              .reading = DCP_READING_COOPERATIVE,
                              .derived = way == 1,
                              .paired = way == 2};
        ranks_must(ranks, path, load_body, &trial);
        uint64_t read = total_read(&trial, ranks);
        assert_in_range(read, once - SEAMS, once + around(ranks));
        assert_int_equal(total_exchanged(&trial, ranks),
                         (trial.wanted[0] + objects) * (uint64_t)(ranks - 1));
        trial.reading = DCP_READING_DIRECT;
        ranks_must(ranks, path, load_body, &trial);
        assert_int_equal(total_read(&trial, ranks), once * (uint64_t)ranks);
        assert_int_equal(total_exchanged(&trial, ranks), 0);
    }
}

/* Of one tensor that is nearly all of the state. */
static void a_huge_tensor_is_read_evenly(void **state)
{
    const char *path = path_in(state, "c");
    wanted_parts_save(path, 3 * ROWS, NULL);
    struct trial trial = {.rows = 3 * ROWS, .reading = DCP_READING_COOPERATIVE};
    ranks_must(4, path, load_body, &trial);
    uint64_t share = total_read(&trial, 4) / 4;
    for (int r = 0; r < 4; r++)
        assert_in_range(trial.figures[r].bytes_read, share - share / 8, share + share / 8);
    assert_in_range(total_read(&trial, 4), 0, read_by_one(path, 3 * ROWS) + around(4));
}

static void check_all_wants(const char *path, int64_t rows, struct trial trial)
{
    trial.rows = rows;
    trial.reading = DCP_READING_COOPERATIVE;
    for (int i = 0; i < 4 * WANTS * 2; i += TRIAL_STEP) {
        trial.want = (enum want)(i / 2 % WANTS);
        trial.wide = i % 2 == 1;
        ranks_must(2 + i / (2 * WANTS), path, load_body, &trial);
    }
}

static dcp_status save_hybrid(struct rank *self)
{
    const dcp_save_options options = {.group = self->group, .overwrite = DCP_OVERWRITE_REPLACE};
    const int64_t *rows = self->context;
    struct wanted_parts parts;
    wanted_parts_init(&parts, *rows, WANT_HYBRID, self->rank, self->size, false, true);
    dcp_status status = dcp_save(parts.root, self->path, &options);
    wanted_parts_free(&parts);
    return status;
}

static void everyone_gets_what_it_wants(void **state)
{
    int64_t rows = 501;
    wanted_parts_save(path_in(state, "c"), rows, NULL);
    check_all_wants(path_in(state, "c"), rows, (struct trial){0});
    ranks_must(6, path_in(state, "d"), save_hybrid, &rows);
    check_all_wants(path_in(state, "d"), rows, (struct trial){0});
    rows = 1201;
    ranks_must(4, path_in(state, "d"), save_hybrid, &rows);
    check_all_wants(path_in(state, "d"), rows, (struct trial){.verification = DCP_VERIFY_RECORDS});
    check_all_wants(path_in(state, "d"), rows, (struct trial){.verification = DCP_VERIFY_NONE});
}

static void compressed_streams_are_read_once(void **state)
{
#if DCP_HAVE_ZSTD
    const char *path = path_in(state, "c");
    const dcp_save_options options = {.compression = DCP_COMPRESSION_ZSTD};
    wanted_parts_save(path, ROWS, &options);
    uint64_t once = read_by_one(path, ROWS);
    struct trial trial = {.rows = ROWS, .reading = DCP_READING_COOPERATIVE};
    ranks_must(4, path, load_body, &trial);
    assert_in_range(total_read(&trial, 4), once, once + around(4));
    wanted_parts_save(path, 501,
                      &(dcp_save_options){.overwrite = DCP_OVERWRITE_REPLACE,
                                          .compression = DCP_COMPRESSION_ZSTD});
    check_all_wants(path, 501, trial);
#else
    (void)state;
    skip();
#endif
}

/* What PyTorch wrote has one checksum for each tensor, and no footers, so that hardly anything is
 * read twice; a large tensor is cut between ranks all the same. */
static void records_are_read_once_and_evenly(void **state)
{
    needs_files();
    const char *path = path_in(state, "c");
    wanted_parts_save(path, ROWS, NULL);
    wanted_parts_as_pytorch(path);
    uint64_t once = read_by_one(path, ROWS);
    for (int i = 0; i < 3 * 3; i += DIAGONAL) {
        int ranks = 2 + i % 3;
        struct trial trial = {.rows = ROWS,
                              .reading = DCP_READING_COOPERATIVE,
                              .verification = (dcp_verification)(DCP_VERIFY_ALL + i / 3)};
        ranks_must(ranks, path, load_body, &trial);
        uint64_t read = total_read(&trial, ranks), share = read / (uint64_t)ranks;
        assert_in_range(read, once, once + around(ranks));
        for (int r = 0; r < ranks; r++)
            assert_in_range(trial.figures[r].bytes_read, share - share / 4, share + share / 4);
    }
    wanted_parts_save(path, 601, &(dcp_save_options){.overwrite = DCP_OVERWRITE_REPLACE});
    wanted_parts_as_pytorch(path);
    check_all_wants(path, 601, (struct trial){0});
}

/* Overlapping wants: each row is read once all the same. */
static void overlaps_are_read_once(void **state)
{
    const char *path = path_in(state, "c");
    wanted_parts_save(path, ROWS, NULL);
    uint64_t once = read_by_one(path, ROWS);
    for (enum want want = WANT_OVERLAPS; want <= WANT_MIXED; want++) {
        struct trial trial = {.rows = ROWS, .want = want, .reading = DCP_READING_COOPERATIVE};
        ranks_must(4, path, load_body, &trial);
        assert_in_range(total_read(&trial, 4), once, once + once / 50 + around(4));
        uint64_t wanted = 0;
        for (int r = 0; r < 4; r++)
            wanted += trial.wanted[r];
        assert_true(total_exchanged(&trial, 4) > wanted / 4);
    }
}

/* Of what is not in the page cache, each rank would read all of the large tensor for its columns.
 * Checked by blocks, by records, or not at all. */
static void columns_are_read_once(void **state)
{
    needs_files();
    const char *path = path_in(state, "c");
    wanted_parts_save(path, ROWS, NULL);
    for (int i = 0; i < 2 * 3; i += TRIAL_STEP) {
        if (i == 3)
            wanted_parts_as_pytorch(path);
        uint64_t once = read_by_one(path, ROWS), wanted = 0, unchecked = 0;
        int ranks = 2 + i % 3;
        struct trial trial = {.rows = ROWS,
                              .want = WANT_COLUMNS,
                              .reading = DCP_READING_COOPERATIVE,
                              .remote = true,
                              .verification = (dcp_verification)(DCP_VERIFY_ALL + i % 3)};
        ranks_must(ranks, path, load_body, &trial);
        for (int r = 0; r < ranks; r++) {
            unchecked += trial.figures[r].bytes_unchecked;
            wanted += trial.wanted[r];
        }
        assert_int_equal(unchecked != 0, trial.verification == DCP_VERIFY_NONE);
        assert_in_range(total_read(&trial, ranks), once - once / 100, once + around(ranks));
        assert_true(total_exchanged(&trial, ranks) < wanted);
        trial.remote = false;
        trial.reading = DCP_READING_DIRECT;
        ranks_must(ranks, path, load_body, &trial);
        assert_true(total_read(&trial, ranks) > once + once / 4);
    }
    int64_t rows = 1201;
    ranks_must(6, path_in(state, "d"), save_hybrid, &rows);
    check_all_wants(path_in(state, "d"), rows, (struct trial){.remote = true});
}

/* Directly from the page cache, cooperatively from a disk or over a network, if there is enough to
 * save. */
static void the_way_is_chosen_by_cost(void **state)
{
    needs_files();
    const char *path = path_in(state, "c");
    wanted_parts_save(path, 8006, NULL);
    struct trial trial = {.rows = 8006, .cache = CACHE_ALL};
    ranks_must(4, path, load_body, &trial);
    assert_int_equal(total_exchanged(&trial, 4), 0);
    bool apart = getenv("RANKS_APART") != NULL; /* on several hosts */
    trial.group_rate = (uint64_t)16 << 30;
    ranks_must(4, path, load_body, &trial);
    assert_true((total_exchanged(&trial, 4) > 0) == apart);
    trial.group_rate = 0;
    trial.cache = CACHE_NOTHING;
    trial.reading = DCP_READING_DIRECT;
    ranks_must(4, path, load_body, &trial);
    bool around = trial.figures[0].direct; /* the page cache, if the system can do that */
    trial.reading = DCP_READING_AUTO;
    ranks_must(4, path, load_body, &trial);
    assert_true((total_exchanged(&trial, 4) > 0) == around);
    trial.cache = CACHE_ALL;
    trial.remote = true;
    ranks_must(4, path, load_body, &trial);
    assert_true(total_exchanged(&trial, 4) > 0);
    trial.group_rate = (uint64_t)1 << 20;
    ranks_must(4, path, load_body, &trial);
    assert_true((total_exchanged(&trial, 4) > 0) == !apart);
    trial.derived = true;
    ranks_must(4, path, load_body, &trial);
    assert_true((total_exchanged(&trial, 4) > 0) == !apart);
    trial.group_rate = (uint64_t)600 << 20; /* enough for messages, but not for broadcasts */
    ranks_must(4, path, load_body, &trial);
    assert_true((total_exchanged(&trial, 4) > 0) == !apart);
    trial.derived = false;
    ranks_must(4, path, load_body, &trial);
    assert_true(total_exchanged(&trial, 4) > 0);
    trial.derived = true;
    trial.group_rate = (uint64_t)1 << 30;
    ranks_must(4, path, load_body, &trial);
    assert_true(total_exchanged(&trial, 4) > 0);
    wanted_parts_save(path, 500, &(dcp_save_options){.overwrite = DCP_OVERWRITE_REPLACE});
    trial = (struct trial){.rows = 500, .remote = true};
    ranks_must(4, path, load_body, &trial);
    assert_int_equal(total_exchanged(&trial, 4), 0);
}

#define directory_test(test)                                                                       \
    cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        directory_test(everyone_wants_everything),
        directory_test(a_huge_tensor_is_read_evenly),
        directory_test(everyone_gets_what_it_wants),
        directory_test(compressed_streams_are_read_once),
        directory_test(records_are_read_once_and_evenly),
        directory_test(overlaps_are_read_once),
        directory_test(columns_are_read_once),
        directory_test(the_way_is_chosen_by_cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
