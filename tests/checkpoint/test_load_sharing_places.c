/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks read for each other goes straight to tensors, and from there to the others, where it
 * needs no copy; and only there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "group/collective.h"

/* Each rank's part of a tensor makes several windows. */
enum { TENSORS = 2, RANKS = 3, ROWS = 3840, COLUMNS = 1024, GAP = 16, ELEMENTS = ROWS * COLUMNS };

#define BYTES ((uint64_t)ELEMENTS * sizeof(int32_t))

/* Where the tensors of a rank are. */
enum manner {
    APART,
    TIED,    /* those of rank 0 have the same memory */
    LAPPING, /* the second of rank 0 begins inside of the first */
    GAPPED,  /* there are gaps between the rows of rank 0's */
    WIDER    /* rank 0 wants another dtype */
};

static int32_t memory[RANKS][TENSORS][ROWS * (COLUMNS + GAP)];
static int64_t wide_memory[TENSORS][ELEMENTS];

/* Bytes of messages that came from, or went to, tensors. */
static _Atomic uint64_t sent_from_tensors[RANKS], received_in_tensors[RANKS];

typedef dcp_status (*exchange_call)(void *context, const dcp_collective *call, const void *send,
                                    const size_t *send_sizes, const size_t *send_offsets,
                                    void *receive, const size_t *receive_sizes,
                                    const size_t *receive_offsets);

static _Atomic(exchange_call) original; /* of the group of threads */
static int rank_count;                  /* in it */

static int32_t value_at(int tensor, int64_t element)
{
    return (int32_t)(element * 31 + tensor * 1000003);
}

/* The rank whose tensors an address lies in, or -1. */
static int owner_of(const void *address)
{
    uintptr_t at = (uintptr_t)address, start = (uintptr_t)memory;
    return at >= start && at < start + sizeof memory ? (int)((at - start) / sizeof memory[0]) : -1;
}

static dcp_status all_to_all(void *context, const dcp_collective *call, const void *send,
                             const size_t *send_sizes, const size_t *send_offsets, void *receive,
                             const size_t *receive_sizes, const size_t *receive_offsets)
{
    for (int rank = 0; rank < rank_count; rank++) {
        int from = owner_of((const char *)send + send_offsets[rank]);
        int to = owner_of((char *)receive + receive_offsets[rank]);
        if (send_sizes[rank] > 0 && from >= 0)
            sent_from_tensors[from] += send_sizes[rank];
        if (receive_sizes[rank] > 0 && to >= 0)
            received_in_tensors[to] += receive_sizes[rank];
    }
    return original(context, call, send, send_sizes, send_offsets, receive, receive_sizes,
                    receive_offsets);
}

static dcp_tensor describe(enum manner manner, int rank, int tensor)
{
    bool other = rank == 0;
    dcp_tensor made = {
        .dtype = DCP_I32, .ndim = 2, .data = memory[rank][tensor], .global_shape = {ROWS, COLUMNS}};
    if (other && manner == TIED && tensor == 1)
        made.data = memory[rank][0];
    if (other && manner == LAPPING && tensor == 1)
        made.data = memory[rank][0] + ELEMENTS - 1;
    if (other && manner == GAPPED) {
        made.strided = true;
        made.strides[0] = COLUMNS + GAP;
        made.strides[1] = 1;
    }
    if (other && manner == WIDER) {
        made.dtype = DCP_I64;
        made.data = wide_memory[tensor];
    }
    return made;
}

static dcp_state *make_tree(enum manner manner, int rank)
{
    dcp_state *root = dcp_state_new();
    assert_non_null(root);
    for (int i = 0; i < TENSORS; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        dcp_tensor tensor = describe(manner, rank, i);
        assert_non_null(dcp_state_tensor(root, name, &tensor));
    }
    return root;
}

/* Ranks are threads: they report what is wrong. */
static dcp_status check_tensor(enum manner manner, int rank, int tensor)
{
    const dcp_tensor wanted = describe(manner, rank, tensor);
    int64_t pitch = wanted.strided ? wanted.strides[0] : COLUMNS;
    for (int64_t row = 0; row < ROWS; row++)
        for (int64_t column = 0; column < pitch; column++) {
            int64_t at = row * pitch + column;
            int64_t found = wanted.dtype == DCP_I64 ? ((const int64_t *)wanted.data)[at]
                                                    : ((const int32_t *)wanted.data)[at];
            int64_t expected = column < COLUMNS ? value_at(tensor, row * COLUMNS + column) : -1;
            if (found != expected)
                return dcp_error_set(DCP_ERR_INTERNAL,
                                     "tensor %d of rank %d at %lld, %lld: %lld, expected %lld",
                                     tensor, rank, (long long)row, (long long)column,
                                     (long long)found, (long long)expected);
        }
    return DCP_OK;
}

static dcp_status load_body(struct rank *self)
{
    enum manner manner = *(const enum manner *)self->context;
    dcp_figures figures = {.size_of = sizeof figures};
    const dcp_load_options options = {.group = self->group,
                                      .timeout_seconds = 30,
                                      .convert = true,
                                      .reading = DCP_READING_COOPERATIVE,
                                      .figures = &figures};
    original = self->group->operations.all_to_all;
    self->group->operations.all_to_all = all_to_all;
    dcp_state *root = make_tree(manner, self->rank);
    dcp_status status = dcp_load(root, self->path, &options, NULL);
    bool same = self->rank == 0 && (manner == TIED || manner == LAPPING);
    for (int i = 0; !same && i < TENSORS && status == DCP_OK; i++)
        status = check_tensor(manner, self->rank, i);
    if (status == DCP_OK && figures.bytes_exchanged == 0)
        status = dcp_error_set(DCP_ERR_INTERNAL, "nothing came from other ranks");
    dcp_state_free(root);
    return status;
}

static void load_so(const char *path, enum manner manner, int ranks)
{
    memset(memory, 0xff, sizeof memory);
    for (int rank = 0; rank < RANKS; rank++)
        sent_from_tensors[rank] = received_in_tensors[rank] = 0;
    rank_count = ranks;
    ranks_must(ranks, path, load_body, &manner);
}

static const char *save_all(void **state)
{
    const char *path = path_in(state, "c");
    for (int i = 0; i < TENSORS; i++)
        for (int64_t k = 0; k < ELEMENTS; k++)
            memory[0][i][k] = value_at(i, k);
    dcp_state *root = make_tree(APART, 0);
    must(dcp_save(root, path, NULL));
    dcp_state_free(root);
    return path;
}

/* What a rank does not read, it receives; what it reads, all others receive. */
static void nothing_is_copied_without_need(void **state)
{
    const char *path = save_all(state);
    for (int ranks = 2; ranks <= RANKS; ranks++) {
        load_so(path, APART, ranks);
        uint64_t received = 0, sent = 0;
        for (int rank = 0; rank < ranks; rank++) {
            received += received_in_tensors[rank];
            sent += sent_from_tensors[rank];
        }
        assert_int_equal(received, (uint64_t)(ranks - 1) * TENSORS * BYTES);
        assert_int_equal(sent, received);
    }
}

static void check_that_rank_0_copies(void **state, enum manner manner)
{
    load_so(save_all(state), manner, 2);
    assert_int_equal(sent_from_tensors[0], 0);
    assert_int_equal(received_in_tensors[0], 0);
    assert_true(sent_from_tensors[1] > 0);
    assert_true(received_in_tensors[1] > 0);
}

/* Rank 0 would send what it has received since for another tensor. */
static void tied_tensors_are_copied(void **state)
{
    check_that_rank_0_copies(state, TIED);
}

static void lapping_tensors_are_copied(void **state)
{
    check_that_rank_0_copies(state, LAPPING);
}

static void tensors_with_gaps_are_copied(void **state)
{
    check_that_rank_0_copies(state, GAPPED);
}

static void converted_tensors_are_copied(void **state)
{
    check_that_rank_0_copies(state, WIDER);
}

#define ON_DISK(test) cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_DISK(nothing_is_copied_without_need), ON_DISK(tied_tensors_are_copied),
        ON_DISK(lapping_tensors_are_copied),     ON_DISK(tensors_with_gaps_are_copied),
        ON_DISK(converted_tensors_are_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
