/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads of many small tensors, which are read along with their neighbours, and of large ones, which
 * several threads read in parts: the same bytes, and no damage goes unnoticed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault/failing_allocator.h"
#include "storage/scratch.h"

enum { SMALL_COUNT = 300, LARGE_ROWS = 1250, LARGE_COLUMNS = 7001 };
#define LARGE_BYTES ((size_t)LARGE_ROWS * LARGE_COLUMNS * sizeof(float))
#define FILE_NAME   "__0_0.distcp"

struct sample {
    dcp_state *root;
    float *large;
    float small[SMALL_COUNT][100];
};

/* Sizes differ, so that heads do not lie at even steps. */
static void sample_make(struct sample *sample, float first)
{
    char name[16];
    sample->root = dcp_state_new();
    sample->large = malloc(LARGE_BYTES);
    assert_non_null(sample->large);
    for (size_t i = 0; i < LARGE_BYTES / sizeof(float); i++)
        sample->large[i] = first * (float)i;
    dcp_tensor large = {.dtype = DCP_F32,
                        .ndim = 2,
                        .global_shape = {LARGE_ROWS, LARGE_COLUMNS},
                        .sizes = {LARGE_ROWS, LARGE_COLUMNS},
                        .data = sample->large};
    dcp_state_tensor(sample->root, "large", &large);
    for (int t = 0; t < SMALL_COUNT; t++) {
        for (int i = 0; i < 100; i++)
            sample->small[t][i] = first * (float)(t * 100 + i);
        dcp_tensor small = {.dtype = DCP_F32,
                            .ndim = 1,
                            .global_shape = {1 + t % 100},
                            .sizes = {1 + t % 100},
                            .data = sample->small[t]};
        snprintf(name, sizeof name, "t%d", t);
        dcp_state_tensor(sample->root, name, &small);
    }
    assert_int_equal(dcp_state_status(sample->root), DCP_OK);
}

static void sample_free(struct sample *sample)
{
    dcp_state_free(sample->root);
    free(sample->large);
}

static dcp_status load(struct sample *loaded, const char *path, int32_t threads, uint32_t io,
                       dcp_verification verification)
{
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_load_options options = {
        .thread_count = threads, .io = io, .verification = verification, .figures = &figures};
    dcp_status status = dcp_load(loaded->root, path, &options, NULL);
    uint64_t bytes = LARGE_BYTES;
    for (uint64_t t = 0; t < SMALL_COUNT; t++)
        bytes += (1 + t % 100) * sizeof(float);
    if (status == DCP_OK)
        assert_int_equal(figures.bytes_moved, bytes);
    return status;
}

static void check_equal(const struct sample *loaded, const struct sample *saved)
{
    assert_memory_equal(loaded->large, saved->large, LARGE_BYTES);
    for (int t = 0; t < SMALL_COUNT; t++)
        assert_memory_equal(loaded->small[t], saved->small[t], (size_t)(1 + t % 100) * 4);
}

static void loads_are_whole_in_any_way(void **state)
{
    static const uint32_t ways[] = {DCP_IO_AUTO, DCP_IO_POOL | DCP_IO_BUFFERED, DCP_IO_RING};
    static struct sample saved, loaded;
    sample_make(&saved, 1);
    assert_int_equal(dcp_save(saved.root, *state, &(dcp_save_options){.skip_sync = true}), DCP_OK);
    for (int bare = 0; bare < 2; bare++) {
        for (int i = 0; i < 3 * 3 * 3; i += TRIAL_STEP) {
            sample_make(&loaded, -1);
            dcp_status status = load(&loaded, *state, i % 3 * 2 + 1, ways[i / 3 % 3],
                                     i / 9 == 0   ? DCP_VERIFY_ALL
                                     : i / 9 == 1 ? DCP_VERIFY_RECORDS
                                                  : DCP_VERIFY_NONE);
            if (status == DCP_ERR_UNSUPPORTED)
                print_message("not tested: %s\n", dcp_error_message());
            else if (status != DCP_OK)
                fail_msg("%s", dcp_error_message());
            else
                check_equal(&loaded, &saved);
            sample_free(&loaded);
        }
        if (!bare)
            scratch_drop_footer(*state, FILE_NAME);
    }
    sample_free(&saved);
}

/* Of each kind of byte some, with the footer and without. */
static void damage_is_noticed(void **state)
{
    static struct sample saved, loaded;
    size_t size;
    sample_make(&saved, 1);
    sample_make(&loaded, -1);
    assert_int_equal(dcp_save(saved.root, *state, &(dcp_save_options){.skip_sync = true}), DCP_OK);
    for (int bare = 0; bare < 2; bare++) {
        unsigned char *bytes = scratch_read(*state, FILE_NAME, &size);
        const unsigned char *large = NULL, *small = NULL;
        for (size_t i = 0; i + 400 < size; i += 64) {
            if (!large && i + LARGE_BYTES < size && memcmp(bytes + i, saved.large, 4000) == 0)
                large = bytes + i;
            if (!small && memcmp(bytes + i, saved.small[199], 400) == 0)
                small = bytes + i;
        }
        assert_true(large && small);
        const uint64_t places[] = {
            (uint64_t)(large - bytes),
            (uint64_t)(large - bytes) + LARGE_BYTES / 2,
            (uint64_t)(large - bytes) + LARGE_BYTES - 1,
            (uint64_t)(small - bytes) + 200,
        };
        free(bytes);
        for (int i = 0; i < 4 * 2; i++) {
            scratch_flip(*state, FILE_NAME, places[i / 2], 0x10);
            assert_int_equal(load(&loaded, *state, i % 2 * 3 + 1, DCP_IO_AUTO, DCP_VERIFY_ALL),
                             DCP_ERR_CHECKSUM);
            assert_non_null(strstr(dcp_error_message(), i / 2 == 3 ? "t199 (" : "large ("));
            scratch_flip(*state, FILE_NAME, places[i / 2], 0x10);
        }
        assert_int_equal(load(&loaded, *state, 4, DCP_IO_AUTO, DCP_VERIFY_ALL), DCP_OK);
        if (!bare)
            scratch_drop_footer(*state, FILE_NAME);
    }
    sample_free(&loaded);
    sample_free(&saved);
}

/* Neighbours take one read together. */
static void small_tensors_share_reads(void **state)
{
    static struct sample saved, loaded;
    sample_make(&saved, 1);
    sample_make(&loaded, -1);
    dcp_load_options options = {.thread_count = 1};
    const char *small[] = {"t*"};
    options.include = small;
    options.include_count = 1;
    assert_int_equal(dcp_save(saved.root, *state, &(dcp_save_options){.skip_sync = true}), DCP_OK);
    long before = scratch_count_reads();
    assert_int_equal(dcp_load(loaded.root, *state, &options, NULL), DCP_OK);
    if (before < 0)
        print_message("not tested: the system does not count reads\n");
    else if (scratch_count_reads() - before > SMALL_COUNT / 4)
        fail_msg("%ld reads", scratch_count_reads() - before);
    sample_free(&loaded);
    sample_free(&saved);
}

static void missing_memory_is_an_error(void **state)
{
    static struct sample saved, loaded;
    sample_make(&saved, 1);
    sample_make(&loaded, -1);
    assert_int_equal(dcp_save(saved.root, *state, &(dcp_save_options){.skip_sync = true}), DCP_OK);
    dcp_state *root = loaded.root;
    bool reached = true;
    for (long n = 1; reached; n += 1 + n / 3) {
        failing_allocator_install(n, false);
        dcp_status status = dcp_load(root, *state, &(dcp_load_options){.thread_count = 3}, NULL);
        reached = failing_allocator_reached();
        failing_allocator_remove();
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
    }
    check_equal(&loaded, &saved);
    sample_free(&loaded);
    sample_free(&saved);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(loads_are_whole_in_any_way, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(damage_is_noticed, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(small_tensors_share_reads, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(missing_memory_is_an_error, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
