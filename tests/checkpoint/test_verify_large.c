/* SPDX-License-Identifier: BSD-3-Clause */
/* The check of tensors that are too large for a look through the page cache: they are read around
 * it, into large pages, and whatever is wrong with them is found all the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "dcp.h"
#include "fault/simulated_file_system.h"
#include "fault/transfer_watch.h"
#include "storage/files/files.h"
#include "verify_scene.h"

#define PATH       VERIFY_SCENE
#define MEDIUM     ((int64_t)7 << 18) /* 7 MiB of floats: less on average, with the small ones */
#define ELEMENTS   ((int64_t)5 << 19) /* 10 MiB */
#define DIVIDED    ((int64_t)9 << 20) /* 36 MiB, which are checked in parts */
#define PIECE      ((size_t)512 << 10)
#define DIRECT     ((size_t)2 << 20) /* a piece around the page cache */
#define LARGE_PAGE ((size_t)2 << 20)

/* Two tensors, and small ones around them. */
static struct simulated_file_system *disk_with(int64_t elements)
{
    struct simulated_file_system *fs = simulated_new();
    const dcp_save_options options = {.storage = simulated_storage(fs)};
    dcp_state *root = dcp_state_new();
    float *values = malloc((size_t)elements * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < elements; i++)
        values[i] = (float)(i % 4099);
    const dcp_tensor large = {
        .dtype = DCP_F32, .ndim = 1, .global_shape = {elements}, .data = values};
    const dcp_tensor small = {.dtype = DCP_F32, .ndim = 1, .global_shape = {7}, .data = values};
    assert_non_null(dcp_state_tensor(root, "a", &small));
    assert_non_null(dcp_state_tensor(root, "b", &large));
    assert_non_null(dcp_state_tensor(root, "c", &small));
    assert_non_null(dcp_state_tensor(root, "d", &large));
    assert_int_equal(dcp_save(root, PATH, &options), DCP_OK);
    dcp_state_free(root);
    free(values);
    return fs;
}

static void bytes_go_around_the_page_cache(void **state)
{
    static const int64_t sizes[] = {MEDIUM, ELEMENTS, DIVIDED};
    (void)state;
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        int64_t elements = sizes[i / 2];
        struct simulated_file_system *fs = disk_with(elements);
        if (i % 2 == 1)
            verify_scene_make_bare(fs);
        const struct file_ops *ops = transfer_watch(simulated_ops(fs));
        const dcp_storage storage = files_storage(ops);
        const dcp_open_options options = {.storage = &storage};
        uint64_t faults;
        assert_int_equal(dcp_verify(PATH, &options, NULL, NULL, &faults), DCP_OK);
        assert_int_equal(faults, 0);
        struct transfer_count count = transfer_watch_count(true);
        /* The simulated page cache has every other group of 8 MiB. */
        assert_true((uint64_t)count.count * DIRECT > (uint64_t)elements * sizeof(float) / 2);
        assert_true((uint64_t)count.count * DIRECT < (uint64_t)elements * sizeof(float) * 3 / 2);
        assert_int_equal(count.largest, DIRECT);
        assert_int_equal(count.lowest % LARGE_PAGE, 0);
        assert_int_equal(count.addresses % DIRECT, 0);
        assert_in_range(transfer_watch_announced(), 1, PIECE); /* ends of streams, and sums */
        simulated_free(fs);
    }
}

static void every_damaged_block_is_reported(void **state)
{
    static const int64_t sizes[] = {MEDIUM, ELEMENTS, DIVIDED};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct simulated_file_system *fs = disk_with(sizes[i]);
        const dcp_open_options options = {.storage = simulated_storage(fs)};
        struct scene_faults faults = {0};
        uint64_t count, bytes = (uint64_t)sizes[i] * sizeof(float);
        verify_scene_damage(fs, VERIFY_SCENE_SHARD, bytes / 7);
        verify_scene_damage(fs, VERIFY_SCENE_SHARD, bytes / 2);
        verify_scene_damage(fs, VERIFY_SCENE_SHARD, bytes + bytes / 3);
        assert_int_equal(dcp_verify(PATH, &options, verify_scene_fault, &faults, &count), DCP_OK);
        assert_int_equal(faults.blocks, 3);
        assert_int_equal(faults.records, 2);
        assert_int_equal(count, 5);
        verify_scene_make_bare(fs);
        faults = (struct scene_faults){0};
        assert_int_equal(dcp_verify(PATH, &options, verify_scene_fault, &faults, &count), DCP_OK);
        assert_int_equal(faults.records, 2);
        assert_int_equal(count, 2);
        simulated_free(fs);
    }
}

/* Of files without footers what fails once is read again, with its piece. */
static void what_cannot_be_read_is_a_fault(void **state)
{
    (void)state;
    struct simulated_file_system *fs = disk_with(ELEMENTS);
    dcp_storage storages[2] = {*simulated_storage(fs), *simulated_storage(fs)};
    verify_scene_make_costly(&storages[1]);
    for (size_t i = 0; i < 4; i++) {
        if (i == 2)
            verify_scene_make_bare(fs);
        verify_scene_fail_each(fs, &storages[i % 2], i >= 2);
    }
    simulated_free(fs);
}

static void missing_memory_is_an_error(void **state)
{
    (void)state;
    struct simulated_file_system *fs = disk_with(ELEMENTS);
    dcp_storage storages[2] = {*simulated_storage(fs), *simulated_storage(fs)};
    verify_scene_make_costly(&storages[1]);
    for (size_t i = 0; i < 4; i++) {
        simulated_set_fault(fs, NULL);
        if (i == 2)
            verify_scene_make_bare(fs);
        verify_scene_fail_each_allocation(&storages[i % 2]);
    }
    simulated_free(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_go_around_the_page_cache),
        cmocka_unit_test(every_damaged_block_is_reported),
        cmocka_unit_test(what_cannot_be_read_is_a_fault),
        cmocka_unit_test(missing_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
