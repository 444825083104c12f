/* SPDX-License-Identifier: BSD-3-Clause */
/* The check of many tensors that are small: neighbours are read at once, with their blocks, and not
 * again; and whatever is wrong with one of them is found, and reported as its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "dcp.h"
#include "fault/failing_allocator.h"
#include "fault/transfer_watch.h"
#include "storage/files/files.h"
#include "verify_scene.h"

#define TOGETHER ((uint64_t)512 << 10) /* what is read at once */

/* Tensors of bytes, with one that is large among them, or none. */
struct scene {
    const char *name;
    int count;
    int64_t bytes; /* of each */
    bool large;    /* one has LARGE bytes */
};

#define LARGE ((int64_t)3 << 20)

static const struct scene scenes[] = {
    {"less than a page", 600, 2500, false},
    {"less than 64 KiB", 300, 40000, true},
    {"more than 64 KiB", 60, 300000, true},
    {"one by one", 20, 700000, true},
};

#define SCENES (sizeof scenes / sizeof *scenes)

static struct simulated_file_system *disk_with(const struct scene *scene)
{
    struct simulated_file_system *fs = simulated_new();
    const dcp_save_options options = {.storage = simulated_storage(fs)};
    dcp_state *root = dcp_state_new();
    unsigned char *values = malloc((size_t)LARGE);
    assert_non_null(values);
    for (int64_t i = 0; i < LARGE; i++)
        values[i] = (unsigned char)(i % 251);
    for (int i = 0; i < scene->count; i++) {
        char name[16];
        const int64_t size = scene->large && i == scene->count / 3 ? LARGE : scene->bytes;
        const dcp_tensor tensor = {
            .dtype = DCP_U8, .ndim = 1, .global_shape = {size}, .data = values};
        snprintf(name, sizeof name, "t%d", i);
        assert_non_null(dcp_state_tensor(root, name, &tensor));
    }
    assert_int_equal(dcp_save(root, VERIFY_SCENE, &options), DCP_OK);
    dcp_state_free(root);
    free(values);
    return fs;
}

/* With fewer tensors, for tests that check it many times. */
static struct simulated_file_system *small_disk_with(const struct scene *scene)
{
    struct scene few = *scene;
    few.count /= 5;
    return disk_with(&few);
}

static uint64_t bytes_of(const struct scene *scene)
{
    return (uint64_t)scene->count * (uint64_t)scene->bytes + (scene->large ? LARGE : 0);
}

/* In the middle of a tensor's elements. */
static uint64_t middle_of(const dcp_storage *storage, int tensor)
{
    const dcp_open_options options = {.storage = storage};
    dcp_checkpoint *checkpoint;
    dcp_entry entry;
    dcp_stored_chunk chunk;
    char name[16];
    size_t index = 0;
    snprintf(name, sizeof name, "t%d", tensor);
    assert_int_equal(dcp_checkpoint_open(VERIFY_SCENE, &options, &checkpoint), DCP_OK);
    assert_int_equal(dcp_checkpoint_find(checkpoint, name, &index), DCP_OK);
    assert_int_equal(dcp_checkpoint_entry(checkpoint, index, &entry), DCP_OK);
    assert_int_equal(entry.chunk_count, 1);
    assert_int_equal(dcp_checkpoint_chunk(checkpoint, index, 0, &chunk), DCP_OK);
    dcp_checkpoint_close(checkpoint);
    return chunk.offset + chunk.length / 2;
}

/* With the metadata, the footer, and sums of blocks; a run of one tensor may be less than what is
 * read at once. */
static void check_reads(const struct scene *scene, uint64_t at_once)
{
    long read = transfer_watch_count(true).count + transfer_watch_count(false).count;
    uint64_t runs = bytes_of(scene) / at_once + 1;
    if (scene->bytes < (int64_t)TOGETHER / 2 && (uint64_t)read > 2 * runs + 20)
        fail_msg("%s: %ld reads of %d runs", scene->name, read, (int)runs);
}

/* With footers, where requests cost time, and without footers. */
static void neighbours_are_read_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3 * SCENES; i++) {
        const struct scene *scene = &scenes[i / 3];
        struct simulated_file_system *fs = disk_with(scene);
        if (i % 3 == 2)
            verify_scene_make_bare(fs);
        dcp_storage storage = files_storage(transfer_watch(simulated_ops(fs)));
        if (i % 3 == 1) {
            verify_scene_make_costly(&storage);
            simulated_refuse_direct(fs);
        }
        const dcp_open_options options = {.storage = &storage};
        uint64_t faults;
        assert_int_equal(dcp_verify(VERIFY_SCENE, &options, NULL, NULL, &faults), DCP_OK);
        assert_int_equal(faults, 0);
        check_reads(scene, i % 3 == 1 ? VERIFY_SCENE_REQUEST : TOGETHER);
        /* The simulated page cache has every other group of 8 MiB. */
        if (i % 3 != 1 && bytes_of(scene) > (uint64_t)16 << 20)
            assert_true(transfer_watch_count(true).count > 0);
        simulated_free(fs);
    }
}

static void each_damaged_tensor_is_reported(void **state)
{
    (void)state;
    for (size_t i = 0; i < SCENES; i++) {
        const struct scene *scene = &scenes[i];
        struct simulated_file_system *fs = disk_with(scene);
        dcp_storage storages[2] = {*simulated_storage(fs), *simulated_storage(fs)};
        verify_scene_make_costly(&storages[1]);
        verify_scene_damage(fs, VERIFY_SCENE_SHARD, middle_of(&storages[0], 1));
        verify_scene_damage(fs, VERIFY_SCENE_SHARD, middle_of(&storages[0], scene->count / 2));
        verify_scene_damage(fs, VERIFY_SCENE_SHARD, middle_of(&storages[0], scene->count - 1));
        for (size_t k = 0; k < 4; k++) {
            const dcp_open_options options = {.storage = &storages[k % 2]};
            struct scene_faults faults = {0};
            uint64_t count;
            if (k == 2)
                verify_scene_make_bare(fs);
            assert_int_equal(
                dcp_verify(VERIFY_SCENE, &options, verify_scene_fault, &faults, &count), DCP_OK);
            assert_int_equal(faults.blocks, k < 2 ? 3 : 0);
            assert_int_equal(faults.records, 3);
            assert_int_equal(count, faults.blocks + faults.records);
        }
        simulated_free(fs);
    }
}

/* Of files without footers, and where a large tensor begins inside a block, what fails once is read
 * again, with its piece. */
static void what_cannot_be_read_is_a_fault(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * SCENES; i++) {
        struct simulated_file_system *fs = small_disk_with(&scenes[i / 2]);
        if (i % 2 == 1)
            verify_scene_make_bare(fs);
        verify_scene_fail_each(fs, simulated_storage(fs), i % 2 == 1 || scenes[i / 2].large);
        simulated_free(fs);
    }
}

/* What is read ahead is read at its turn, if there is no memory for that. */
static void missing_memory_is_no_fault(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * SCENES; i++) {
        struct simulated_file_system *fs = small_disk_with(&scenes[i / 2]);
        const dcp_open_options options = {.storage = simulated_storage(fs)};
        long errors = 0, others = 0;
        bool reached = true;
        if (i % 2 == 1)
            verify_scene_make_bare(fs);
        for (long n = 1; reached; n += n < 100 ? 1 : 27) {
            uint64_t faults = 0;
            failing_allocator_install(n, false);
            dcp_status status = dcp_verify(VERIFY_SCENE, &options, NULL, NULL, &faults);
            reached = failing_allocator_reached();
            assert_int_equal(failing_allocator_remove(), 0);
            assert_true(status == DCP_ERR_NO_MEMORY || status == DCP_OK);
            assert_int_equal(faults, 0);
            errors += status != DCP_OK;
            others += status == DCP_OK;
        }
        assert_true(errors > others);
        simulated_free(fs);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_are_read_once),
        cmocka_unit_test(each_damaged_tensor_is_reported),
        cmocka_unit_test(what_cannot_be_read_is_a_fault),
        cmocka_unit_test(missing_memory_is_no_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
