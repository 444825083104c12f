/* SPDX-License-Identifier: BSD-3-Clause */
/* A disk that cannot hold a save refuses it before the first byte, on every rank. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "fault/over_files.h"
#include "fault/simulated_file_system.h"

#define ELEMENTS 65536
#define BYTES    ((uint64_t)ELEMENTS * sizeof(float))

/* MANY tensors hold as much as one; of so many, the metadata is made when files are written. */
enum { MANY = 2048 };

static dcp_state *sample(const struct rank *self, float *data, int tensors)
{
    dcp_mesh mesh = {.ndim = 1, .shape = {self->size}, .rank = self->rank};
    dcp_placement divided = dcp_shard(0);
    dcp_state *root = dcp_state_new();
    for (int i = 0; i < tensors; i++) {
        dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .global_shape = {ELEMENTS / tensors}};
        char name[32];
        must(dcp_mesh_shard(&mesh, &tensor, &divided));
        tensor.data = data;
        snprintf(name, sizeof name, "weights%d", i);
        dcp_state_tensor(root, name, &tensor);
    }
    must(dcp_state_status(root));
    return root;
}

static dcp_status save_tensors(struct rank *self, int tensors)
{
    static float data[ELEMENTS];
    dcp_state *root = sample(self, data, tensors);
    dcp_save_options options = {.group = self->group, .overwrite = DCP_OVERWRITE_REPLACE};
    dcp_status status = save_over(simulated_ops(self->context), root, "/c", &options);
    dcp_state_free(root);
    return status;
}

static dcp_status save(struct rank *self)
{
    return save_tensors(self, 1);
}

static dcp_status save_many(struct rank *self)
{
    return save_tensors(self, MANY);
}

/* Operations on shard files. */
static long count_shard_operations(const struct simulated_file_system *fs)
{
    long operations = 0;
    for (long n = 1; n <= simulated_operation_count(fs); n++)
        operations += strstr(simulated_operation_name(fs, n), ".distcp") != NULL;
    return operations;
}

static void expect_refused(struct simulated_file_system *fs, rank_body body, uint64_t room,
                           uint64_t least, uint64_t most)
{
    struct rank ranks[RANKS_MAX];
    const char *expected = "but the disk has only ";
    uint64_t needed = 0, found;
    simulated_set_fault(fs, NULL);
    ranks_run(ranks, 2, NULL, body, fs);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(ranks[r].status, DCP_ERR_NO_SPACE);
        assert_non_null(strstr(ranks[r].message, "rank 0: /c: the save needs "));
        assert_non_null(strstr(ranks[r].message, expected));
        /* The directory's mark is there already. */
        found = strtoull(strstr(ranks[r].message, expected) + strlen(expected), NULL, 10);
        assert_in_range(found, room - 1024, room);
        needed = strtoull(strstr(ranks[r].message, "needs ") + 6, NULL, 10);
        assert_in_range(needed, least, most);
    }
    assert_int_equal(count_shard_operations(fs), 0);
}

static void test_refused_before_the_first_byte(void **state)
{
    (void)state;
    struct simulated_file_system *fs = simulated_new();
    struct file_information information;
    simulated_set_capacity(fs, BYTES);
    expect_refused(fs, save, BYTES, BYTES, BYTES + 100000);
    assert_int_equal(file_look(FILE_PATHS(simulated_ops(fs)), "/c", &information),
                     DCP_ERR_NOT_FOUND);
    simulated_set_capacity(fs, 2 * BYTES);
    ranks_must(2, NULL, save, fs);
    simulated_free(fs);
}

/* Each tensor has two streams, of which torch.save() makes more than a KiB longer than the data. */
static void test_many_are_refused_as_well(void **state)
{
    (void)state;
    struct simulated_file_system *fs = simulated_new();
    uint64_t streams = BYTES + UINT64_C(2) * MANY * 1024;
    simulated_set_capacity(fs, streams);
    expect_refused(fs, save_many, streams, streams, 2 * streams);
    simulated_set_capacity(fs, 3 * streams);
    ranks_must(2, NULL, save_many, fs);
    simulated_free(fs);
}

static void test_both_generations_need_room(void **state)
{
    (void)state;
    struct simulated_file_system *fs = simulated_new();
    ranks_must(2, NULL, save, fs);
    simulated_set_capacity(fs, BYTES * 15 / 8);
    uint64_t room;
    struct file_directory directory;
    must(file_directory_open(&directory, FILE_PATHS(simulated_ops(fs)), "/c", 0));
    must(file_free_space(&directory, &room));
    file_directory_close(&directory);
    expect_refused(fs, save, room, BYTES, BYTES + 100000);
    /* The one before is still there, and with enough room the new one takes its place. */
    struct file_information information;
    must(file_look(FILE_PATHS(simulated_ops(fs)), "/c/.metadata", &information));
    simulated_set_capacity(fs, 3 * BYTES);
    ranks_must(2, NULL, save, fs);
    simulated_free(fs);
}

static void test_the_unknown_is_not_refused(void **state)
{
    (void)state;
    static float data[ELEMENTS];
    struct rank alone = {.size = 1};
    struct simulated_file_system *fs = simulated_new();
    dcp_save_options options = {0};
    simulated_hide_free_space(fs);
    simulated_set_capacity(fs, BYTES / 2);
    dcp_state *root = sample(&alone, data, 1);
    must_fail(save_over(simulated_ops(fs), root, "/c", &options), DCP_ERR_NO_SPACE, "__0_0.distcp");
    simulated_set_capacity(fs, 0);
    must(save_over(simulated_ops(fs), root, "/c", &options));
    dcp_state_free(root);
    simulated_free(fs);
}

/* Of a shape that no disk holds; memory that is never touched is not needed for it. */
static void test_a_real_disk(void **state)
{
    char path[64] = "/dev/shm";
    struct statvfs disk;
    if (statvfs(path, &disk) != 0 || disk.f_blocks == 0 ||
        (uint64_t)disk.f_bavail * disk.f_frsize > (uint64_t)1 << 46)
        skip();
    (void)state;
    static char byte;
    dcp_tensor huge = {.dtype = DCP_U8,
                       .ndim = 1,
                       .global_shape = {INT64_C(1) << 50},
                       .data = &byte,
                       .strided = true,
                       .strides = {0}};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "huge", &huge);
    snprintf(path, sizeof path, "/dev/shm/dcp-test-disk-space-%ld", (long)getpid());
    must_fail(dcp_save(root, path, NULL), DCP_ERR_NO_SPACE, "the disk has only");
    dcp_state_free(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_before_the_first_byte),
        cmocka_unit_test(test_many_are_refused_as_well),
        cmocka_unit_test(test_both_generations_need_room),
        cmocka_unit_test(test_the_unknown_is_not_refused),
        cmocka_unit_test(test_a_real_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
