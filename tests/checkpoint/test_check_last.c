/* SPDX-License-Identifier: BSD-3-Clause */
/* A compressed tensor that is read in parts: each read proves what it gives, or the last one all.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"

enum { ROWS = 64, COLUMNS = 8192, PARTS = 8 };

static float elements[ROWS * COLUMNS];

static void save(const char *path)
{
    const dcp_save_options options = {.compression = DCP_COMPRESSION_ZSTD, .skip_sync = true};
    const dcp_tensor tensor = {
        .dtype = DCP_F32, .ndim = 2, .global_shape = {ROWS, COLUMNS}, .data = elements};
    dcp_state *root = dcp_state_new();
    uint32_t noise = 1;
    for (size_t i = 0; i < (size_t)ROWS * COLUMNS; i++) {
        noise = noise * 1664525 + 1013904223;
        elements[i] = (float)(noise >> 8);
    }
    assert_non_null(dcp_state_tensor(root, "w", &tensor));
    must(dcp_save(root, path, &options));
    dcp_state_free(root);
}

static void damage(const char *path, long where)
{
    char file[1024];
    snprintf(file, sizeof file, "%s/__0_0.distcp", path);
    FILE *stream = fopen(file, "r+b");
    assert_non_null(stream);
    fseek(stream, where, SEEK_SET);
    int byte = fgetc(stream);
    fseek(stream, where, SEEK_SET);
    fputc(byte ^ 1, stream);
    fclose(stream);
}

/* Reads in order up to the first part that fails; PARTS if none does. */
static int first_failure(const char *path, bool check_last)
{
    static float part[ROWS / PARTS * COLUMNS];
    const dcp_open_options options = {.check_last = check_last};
    dcp_checkpoint *checkpoint;
    int failed = PARTS;
    must(dcp_checkpoint_open(path, &options, &checkpoint));
    for (int i = 0; i < PARTS && failed == PARTS; i++) {
        dcp_tensor tensor = {.dtype = DCP_F32,
                             .ndim = 2,
                             .sharded = true,
                             .global_shape = {ROWS, COLUMNS},
                             .offsets = {i * (ROWS / PARTS), 0},
                             .sizes = {ROWS / PARTS, COLUMNS},
                             .data = part};
        if (dcp_checkpoint_read_tensor(checkpoint, 0, &tensor, NULL) != DCP_OK)
            failed = i;
        else
            assert_memory_equal(part, elements + (size_t)i * (ROWS / PARTS) * COLUMNS, sizeof part);
    }
    dcp_checkpoint_close(checkpoint);
    return failed;
}

static void test_what_is_whole(void **state)
{
    const char *path = path_in(state, "whole");
    save(path);
    assert_int_equal(first_failure(path, false), PARTS);
    assert_int_equal(first_failure(path, true), PARTS);
}

/* Behind the last elements that are compressed: the first read finds it, or the last. */
static void test_what_is_damaged(void **state)
{
    const char *path = path_in(state, "damaged");
    dcp_checkpoint *checkpoint;
    dcp_stored_chunk chunk;
    save(path);
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    must(dcp_checkpoint_chunk(checkpoint, 0, 0, &chunk));
    assert_true(chunk.compressed);
    long end = (long)(chunk.offset + chunk.length);
    dcp_checkpoint_close(checkpoint);
    damage(path, end - 2);
    assert_int_equal(first_failure(path, false), 0);
    assert_int_equal(first_failure(path, true), PARTS - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_is_whole, directory_setup, directory_teardown),
        cmocka_unit_test_setup_teardown(test_what_is_damaged, directory_setup, directory_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
