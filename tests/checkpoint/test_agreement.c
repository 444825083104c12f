/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank never hangs and never disagrees: what goes wrong on one rank is the same error on every
 * rank. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"

/* What the odd rank does differently. */
enum oddity {
    ODD_NOTHING,
    ODD_NO_STATE,
    ODD_OTHER_SHAPE,
    ODD_OTHER_DTYPE,
    ODD_OTHER_KIND,
    ODD_OVERLAP,
    ODD_HOLE,
    ODD_OTHER_PATH,
    ODD_BAD_OPTION,
    ODD_COMPRESSION,
    ODD_STATEFUL,
    ODD_ABSENT
};

struct trial {
    enum oddity oddity;
    int odd_rank;
    bool loads;
};

static dcp_status fail_state_dict(void *context, dcp_state *into)
{
    (void)context;
    (void)into;
    return dcp_error_set(DCP_ERR_CALLBACK, "no state today");
}

static void build(dcp_state *root, const struct rank *self, enum oddity oddity, float *data)
{
    dcp_tensor tensor = {.dtype = DCP_F32,
                         .ndim = 1,
                         .sharded = true,
                         .global_shape = {12},
                         .offsets = {self->rank * 4},
                         .sizes = {4},
                         .data = data};
    dcp_stateful stateful = {fail_state_dict, NULL, NULL};
    if (oddity == ODD_OTHER_SHAPE)
        tensor.global_shape[0] = 13;
    if (oddity == ODD_OTHER_DTYPE)
        tensor.dtype = DCP_I32;
    if (oddity == ODD_OVERLAP)
        tensor.offsets[0] = self->rank > 0 ? self->rank * 4 - 1 : 1;
    if (oddity == ODD_HOLE)
        tensor.sizes[0] = 3;
    if (oddity == ODD_STATEFUL)
        dcp_state_stateful(root, "stuck", &stateful);
    if (oddity == ODD_OTHER_KIND)
        dcp_state_int(root, "w", 3);
    else
        dcp_state_tensor(root, "w", &tensor);
}

static dcp_status trial_body(struct rank *self)
{
    const struct trial *trial = self->context;
    enum oddity oddity = self->rank == trial->odd_rank ? trial->oddity : ODD_NOTHING;
    float data[8] = {0};
    char other[1024];
    dcp_state *root = dcp_state_new();
    dcp_save_options save = {.group = self->group, .timeout_seconds = 20};
    dcp_load_options load = {.group = self->group, .timeout_seconds = 20};
    const char *path = self->path;

    if (trial->oddity == ODD_ABSENT)
        save.timeout_seconds = load.timeout_seconds = 1;
    if (oddity == ODD_BAD_OPTION) {
        save.thread_count = -3;
        load.verification = (dcp_verification)77;
    }
    if (oddity == ODD_COMPRESSION)
        save.compression = DCP_COMPRESSION_ZSTD;
    if (oddity == ODD_OTHER_PATH) {
        snprintf(other, sizeof other, "%s-other", path);
        path = other;
    }
    build(root, self, oddity, data);
    dcp_status status = DCP_OK;
    if (oddity != ODD_ABSENT) {
        dcp_state *given = oddity == ODD_NO_STATE ? NULL : root;
        status = trial->loads ? dcp_load(given, path, &load, NULL) : dcp_save(given, path, &save);
    }
    dcp_state_free(root);
    return status;
}

static void expect_all(const char *path, struct trial trial, dcp_status expected, const char *text)
{
    struct rank ranks[RANKS_MAX];
    for (trial.odd_rank = 0; trial.odd_rank < 3; trial.odd_rank++) {
        ranks_run(ranks, 3, path, trial_body, &trial);
        for (int r = 0; r < 3; r++) {
            if (trial.oddity == ODD_ABSENT && r == trial.odd_rank)
                continue;
            if (ranks[r].status != expected || !strstr(ranks[r].message, text))
                fail_msg("oddity %d on rank %d: rank %d ended with %s: %s", (int)trial.oddity,
                         trial.odd_rank, r, dcp_status_string(ranks[r].status), ranks[r].message);
            if (trial.oddity != ODD_ABSENT)
                assert_string_equal(ranks[r].message, ranks[0].message);
        }
        if (!trial.loads) /* nothing that looks like a checkpoint, not even an empty directory */
            assert_int_not_equal(access(path, F_OK), 0);
    }
}

static void test_save(void **state)
{
    const char *path = path_in(state, "c");
    expect_all(path, (struct trial){ODD_NO_STATE, 0, false}, DCP_ERR_ARGUMENT, "NULL");
    expect_all(path, (struct trial){ODD_OTHER_SHAPE, 0, false}, DCP_ERR_SHAPE, "w");
    expect_all(path, (struct trial){ODD_OTHER_DTYPE, 0, false}, DCP_ERR_DTYPE, "int32");
    expect_all(path, (struct trial){ODD_OTHER_KIND, 0, false}, DCP_ERR_KIND, "w");
    expect_all(path, (struct trial){ODD_OVERLAP, 0, false}, DCP_ERR_OVERLAP, "w");
    expect_all(path, (struct trial){ODD_HOLE, 0, false}, DCP_ERR_COVERAGE, "w");
    expect_all(path, (struct trial){ODD_OTHER_PATH, 0, false}, DCP_ERR_ARGUMENT, "-other");
    expect_all(path, (struct trial){ODD_BAD_OPTION, 0, false}, DCP_ERR_ARGUMENT, "thread_count");
#if DCP_HAVE_ZSTD
    expect_all(path, (struct trial){ODD_COMPRESSION, 0, false}, DCP_ERR_ARGUMENT,
               "all ranks must pass the same");
#else
    expect_all(path, (struct trial){ODD_COMPRESSION, 0, false}, DCP_ERR_UNSUPPORTED, "DCP_ZSTD");
#endif
    expect_all(path, (struct trial){ODD_STATEFUL, 0, false}, DCP_ERR_CALLBACK, "no state today");
}

static void test_load(void **state)
{
    const char *path = path_in(state, "c");
    struct rank ranks[RANKS_MAX];
    struct trial trial = {ODD_NOTHING, 0, false};
    ranks_run(ranks, 3, path, trial_body, &trial);
    for (int r = 0; r < 3; r++)
        if (ranks[r].status != DCP_OK)
            fail_msg("rank %d: %s", r, ranks[r].message);
    expect_all(path, (struct trial){ODD_NO_STATE, 0, true}, DCP_ERR_ARGUMENT, "NULL");
    expect_all(path, (struct trial){ODD_OTHER_SHAPE, 0, true}, DCP_ERR_SHAPE, "[13]");
    expect_all(path, (struct trial){ODD_OTHER_DTYPE, 0, true}, DCP_ERR_DTYPE, "int32");
    expect_all(path, (struct trial){ODD_OTHER_KIND, 0, true}, DCP_ERR_KIND, "w");
    expect_all(path, (struct trial){ODD_BAD_OPTION, 0, true}, DCP_ERR_ARGUMENT, "verification");
    expect_all(path, (struct trial){ODD_STATEFUL, 0, true}, DCP_ERR_CALLBACK, "no state today");
}

/* One rank never comes: everyone else gives up within the deadline and names it, and no checkpoint
 * is left. */
static void test_absent_rank(void **state)
{
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    expect_all(path_in(state, "c"), (struct trial){ODD_ABSENT, 0, false}, DCP_ERR_TIMEOUT, "rank");
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true(end.tv_sec - start.tv_sec <= 3 * 2);
    assert_int_not_equal(access(path_in(state, "c/.metadata"), F_OK), 0);
}

#define directory_test(test)                                                                       \
    cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        directory_test(test_save),
        directory_test(test_load),
        directory_test(test_absent_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
