/* SPDX-License-Identifier: BSD-3-Clause */
/* Cold loads of large tensors: what lies around their data has been announced by the time that it
 * is read, so that no small read waits behind the large ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault/over_files.h"
#include "storage/scratch.h"

enum { TENSORS = 4, ELEMENTS = (2 << 20) + 77, RANGES = 64 };
#define DATA_BYTES (ELEMENTS * sizeof(float))
/* Larger reads are of data. */
#define SMALL ((size_t)128 << 10)

/* file_ops_system over a page cache that holds nothing, watched. One thread loads. */
static struct {
    struct file_ops ops;
    uint64_t starts[RANGES], ends[RANGES]; /* that were announced */
    size_t range_count;
    size_t announced, surprising; /* small reads behind the first tensor */
} watch;

static int hold_nothing(void *context, int descriptor, uint64_t offset, size_t size, bool *cached)
{
    (void)context, (void)descriptor, (void)offset, (void)size;
    *cached = false;
    return 0;
}

static int note_range(void *context, int descriptor, uint64_t offset, size_t size)
{
    (void)context, (void)descriptor;
    assert_true(watch.range_count < RANGES);
    watch.starts[watch.range_count] = offset;
    watch.ends[watch.range_count++] = offset + size;
    return 0;
}

static bool is_announced(uint64_t start, uint64_t end)
{
    for (size_t i = 0; i < watch.range_count; i++)
        if (start >= watch.starts[i] && end <= watch.ends[i])
            return true;
    return false;
}

static int watched_pread(void *context, int descriptor, void *bytes, size_t size, uint64_t offset,
                         size_t *done)
{
    /* The footer is read when the file is opened, before anything is announced. */
    if (size <= SMALL && offset > DATA_BYTES + SMALL && watch.range_count > 0)
        *(is_announced(offset, offset + size) ? &watch.announced : &watch.surprising) += 1;
    return file_ops_system.pread(context, descriptor, bytes, size, offset, done);
}

static dcp_state *make_state(float *values)
{
    dcp_state *root = dcp_state_new();
    for (int t = 0; t < TENSORS; t++) {
        dcp_tensor tensor = {.dtype = DCP_F32,
                             .ndim = 1,
                             .global_shape = {ELEMENTS},
                             .data = values + (size_t)t * ELEMENTS};
        char name[16];
        snprintf(name, sizeof name, "t%d", t);
        dcp_state_tensor(root, name, &tensor);
    }
    assert_int_equal(dcp_state_status(root), DCP_OK);
    return root;
}

static void small_reads_are_announced(void **state)
{
    float *saved = malloc(TENSORS * DATA_BYTES), *loaded = calloc(TENSORS, DATA_BYTES);
    dcp_load_options options = {.thread_count = 1};
    assert_true(saved && loaded);
    for (size_t i = 0; i < (size_t)TENSORS * ELEMENTS; i++)
        saved[i] = (float)i;
    dcp_state *from = make_state(saved), *to = make_state(loaded);
    assert_int_equal(dcp_save(from, *state, &(dcp_save_options){.skip_sync = true}), DCP_OK);

    watch.ops = file_ops_system;
    watch.ops.cached = hold_nothing;
    watch.ops.will_need = note_range;
    watch.ops.pread = watched_pread;
    assert_int_equal(load_over(&watch.ops, to, *state, &options, NULL), DCP_OK);
    assert_memory_equal(saved, loaded, TENSORS * DATA_BYTES);
    /* The checksums of the first tensor's blocks, before anything else is under way. */
    assert_true(watch.surprising <= 1);
    assert_true(watch.announced >= (TENSORS - 1) * 2);
    dcp_state_free(from);
    dcp_state_free(to);
    free(saved);
    free(loaded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(small_reads_are_announced, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
