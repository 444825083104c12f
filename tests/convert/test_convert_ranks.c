/* SPDX-License-Identifier: BSD-3-Clause */
/* A conversion as by several ranks, which one process plays: what it writes lies where ranks that
 * save their rows would have written it, and failures leave nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "convert/convert_scene.h"
#include "fault/failing_allocator.h"

/* ---- ranks that save for themselves ---- */

struct saving {
    const char *from;
    dcp_compression compression;
};

/* As torch.chunk divides; of what has no dimension all have the whole. */
static void cut_rows(const struct rank *self, const dcp_entry *entry, dcp_tensor *share)
{
    *share = (dcp_tensor){.dtype = entry->dtype,
                          .ndim = entry->ndim,
                          .requires_grad = entry->requires_grad,
                          .sharded = entry->ndim > 0};
    memcpy(share->global_shape, entry->global_shape, (size_t)entry->ndim * sizeof(int64_t));
    if (entry->ndim == 0)
        return;
    memcpy(share->sizes, entry->global_shape, (size_t)entry->ndim * sizeof(int64_t));
    int64_t rows = entry->global_shape[0], part = (rows + self->size - 1) / self->size;
    int64_t begin = self->rank * part < rows ? self->rank * part : rows;
    share->offsets[0] = begin;
    share->sizes[0] = rows - begin < part ? rows - begin : part;
}

static dcp_status save_rows(struct rank *self)
{
    enum { TENSORS_MAX = 64 };
    const struct saving *saving = self->context;
    const dcp_save_options options = {
        .group = self->group, .skip_sync = true, .compression = saving->compression};
    void *data[TENSORS_MAX];
    dcp_checkpoint *from;
    dcp_state *root = dcp_state_new();
    must(dcp_checkpoint_open(saving->from, NULL, &from));
    size_t count = dcp_checkpoint_count(from);
    assert_in_range(count, 1, TENSORS_MAX);
    for (size_t i = 0; i < count; i++) {
        dcp_entry entry;
        dcp_tensor share;
        must(dcp_checkpoint_entry(from, i, &entry));
        cut_rows(self, &entry, &share);
        share.data = data[i] = malloc((size_t)entry.bytes + 1);
        assert_non_null(share.data);
        must(dcp_checkpoint_read_tensor(from, i, &share, NULL));
        assert_non_null(dcp_state_tensor(root, entry.name, &share));
    }
    dcp_checkpoint_close(from);
    dcp_status status = dcp_save(root, self->path, &options);
    for (size_t i = 0; i < count; i++)
        free(data[i]);
    dcp_state_free(root);
    return status;
}

static void expect_same_as_ranks(void **state, int ranks, dcp_compression compression)
{
    char from[4096], saved[4096], to[4096], name[32];
    const dcp_convert_options options = {.form = DCP_FORM_DCP,
                                         .ranks = ranks,
                                         .compression = compression,
                                         .thread_count = 3,
                                         .skip_sync = true};
    struct saving saving = {from, compression};
    uint64_t faults;
    snprintf(from, sizeof from, "%s", path_in(state, "source"));
    snprintf(name, sizeof name, "saved-%d-%d", ranks, (int)compression);
    snprintf(saved, sizeof saved, "%s", path_in(state, name));
    snprintf(name, sizeof name, "converted-%d-%d", ranks, (int)compression);
    snprintf(to, sizeof to, "%s", path_in(state, name));
    ranks_must(ranks, saved, save_rows, &saving);
    must(dcp_convert(from, to, &options, NULL));
    scene_same_places(saved, to);
    scene_equal(from, to);
    must(dcp_verify(to, NULL, NULL, NULL, &faults));
    assert_int_equal(faults, 0);
}

static void everything_lies_where_ranks_write_it(void **state)
{
    scene_save(path_in(state, "source"), false);
    for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
        expect_same_as_ranks(state, ranks, DCP_COMPRESSION_NONE);
        if (DCP_HAVE_ZSTD)
            expect_same_as_ranks(state, ranks, DCP_COMPRESSION_ZSTD);
    }
}

/* ---- more ranks than rows, objects ---- */

static void many_ranks_have_nothing(void **state)
{
    const char *from = path_in(state, "source"), *to = path_in(state, "to");
    dcp_save_info info;
    dcp_checkpoint *checkpoint;
    scene_save(from, true);
    must(dcp_convert(from, to,
                     &(dcp_convert_options){
                         .form = DCP_FORM_DCP, .ranks = DCP_CONVERT_RANKS_MAX, .skip_sync = true},
                     NULL));
    scene_equal(from, to);
    must(dcp_checkpoint_open(to, NULL, &checkpoint));
    must(dcp_checkpoint_info(checkpoint, NULL, NULL, &info));
    assert_int_equal(info.world_size, DCP_CONVERT_RANKS_MAX);
    dcp_checkpoint_close(checkpoint);
}

/* ---- failures ---- */

static bool stop_while_writing(void *context, const dcp_progress *progress)
{
    (void)context;
    return progress->phase < DCP_PHASE_WRITING || progress->bytes_done == 0;
}

static void cancelled_leaves_nothing(void **state)
{
    const char *from = path_in(state, "source"), *to = path_in(state, "to");
    scene_save(from, true);
    must_fail(dcp_convert(from, to,
                          &(dcp_convert_options){.form = DCP_FORM_DCP,
                                                 .ranks = 3,
                                                 .skip_sync = true,
                                                 .progress = stop_while_writing},
                          NULL),
              DCP_ERR_CANCELLED, "cancelled");
    scene_expect_size(to, -1);
}

/* Some failures cost nothing but time. */
static void fail_each_allocation(void **state, const char *from, dcp_compression compression)
{
    const dcp_convert_options options = {.form = DCP_FORM_DCP,
                                         .ranks = 2,
                                         .thread_count = 1,
                                         .skip_sync = true,
                                         .compression = compression};
    for (long n = 1;; n++) {
        char name[64];
        snprintf(name, sizeof name, "%d-%ld", (int)compression, n);
        const char *to = path_in(state, name);
        failing_allocator_install(n, false);
        dcp_status status = dcp_convert(from, to, &options, NULL);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        if (status != DCP_OK) {
            assert_int_equal(status, DCP_ERR_NO_MEMORY);
            scene_expect_size(to, -1);
        }
        if (!reached) {
            must(status);
            break;
        }
    }
}

static void every_allocation_may_fail(void **state)
{
    char from[4096];
    float data[6] = {1, 2, 3, 4, 5, 6};
    dcp_state *root = dcp_state_new();
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 2, .global_shape = {3, 2}, .data = data};
    snprintf(from, sizeof from, "%s", path_in(state, "source"));
    assert_non_null(dcp_state_tensor(dcp_state_dict(root, "model"), "weight", &tensor));
    must(dcp_state_int(root, "step", 3));
    must(dcp_save(root, from, NULL));
    dcp_state_free(root);
    fail_each_allocation(state, from, DCP_COMPRESSION_NONE);
    if (DCP_HAVE_ZSTD)
        fail_each_allocation(state, from, DCP_COMPRESSION_ZSTD);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(everything_lies_where_ranks_write_it),
        TEST(many_ranks_have_nothing),
        TEST(cancelled_leaves_nothing),
        TEST(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
