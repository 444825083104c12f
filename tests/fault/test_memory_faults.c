/* SPDX-License-Identifier: BSD-3-Clause */
/* Every allocation of a save and of a load fails, once and from then on: an error, no leak, and
 * nothing half-done. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "fault/io_ways.h"
#include "fault/versions.h"

/* Of the matrix of six rows: half a megabyte. */
#define LARGE_COLUMNS 20000

static void expect(dcp_status status, bool reached, long n, const char *what)
{
    if (status == DCP_OK || status == DCP_ERR_NO_MEMORY)
        return;
    fail_msg("allocation %ld of a %s, %s: ended with %s: %s", n, what,
             reached ? "refused" : "not reached", dcp_status_string(status), dcp_error_message());
}

static void loop_over_saves(bool from_then_on)
{
    for (long n = 1;; n++) {
        struct simulated_file_system *fs = simulated_new();
        assert_int_equal(version_save(fs, 1, 1), DCP_OK);
        failing_allocator_install(n, from_then_on);
        dcp_status status = version_save(fs, 2, 1);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        expect(status, reached, n, "save");
        int found = version_find(fs);
        assert_true(found == (status == DCP_OK ? 2 : 1));
        assert_int_equal(simulated_open_descriptors(fs), 0);
        simulated_free(fs);
        if (!reached) {
            assert_int_equal(status, DCP_OK);
            assert_true(n > 20);
            return;
        }
    }
}

static void loop_over_loads(bool from_then_on)
{
    struct simulated_file_system *fs = simulated_new();
    assert_int_equal(version_save(fs, 1, 1), DCP_OK);
    for (long n = 1;; n++) {
        dcp_status status;
        failing_allocator_install(n, from_then_on);
        int found = version_load(fs, &status);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        expect(status, reached, n, "load");
        assert_int_equal(simulated_open_descriptors(fs), 0);
        if (status == DCP_OK)
            assert_int_equal(found, 1);
        if (!reached) {
            assert_int_equal(status, DCP_OK);
            break;
        }
    }
    simulated_free(fs);
}

static void test_saves(void **state)
{
    (void)state;
    for (size_t i = 0; i < IO_WAY_COUNT; i++) {
        version_save_by(io_ways[i]);
        loop_over_saves(false);
        loop_over_saves(true);
    }
}

static void test_compressed(void **state)
{
    (void)state;
    if (!DCP_HAVE_ZSTD)
        skip();
    version_save_by(DCP_IO_AUTO);
    version_compress(true);
    loop_over_saves(false);
    loop_over_saves(true);
    loop_over_loads(false);
    /* What is decompressed as it is read. */
    version_widen(LARGE_COLUMNS);
    loop_over_loads(false);
    loop_over_loads(true);
    version_widen(0);
    version_compress(false);
}

static void test_asynchronous(void **state)
{
    (void)state;
    version_save_by(DCP_IO_AUTO);
    version_save_course(VERSION_IN_BACKGROUND);
    loop_over_saves(false);
    loop_over_saves(true);
    version_save_course(VERSION_AT_ONCE);
}

/* Every hook that there is, and a storage of one's own. */
static void test_hooks(void **state)
{
    (void)state;
    version_save_by(DCP_IO_AUTO);
    version_save_hooked(VERSION_BY_HOOKS);
    for (int course = VERSION_AT_ONCE; course <= VERSION_IN_BACKGROUND; course++) {
        version_save_course((enum version_course)course);
        loop_over_saves(false);
        loop_over_saves(true);
    }
    version_save_course(VERSION_AT_ONCE);
    for (int how = VERSION_OWN_FILES; how <= VERSION_OWN_STORAGE; how++) {
        version_save_hooked((enum version_hooked)how);
        loop_over_saves(false);
        loop_over_saves(true);
    }
    version_save_hooked(VERSION_WITHOUT_HOOKS);
    for (size_t i = 0; i < 2; i++) {
        version_load_hooked(i == 0 ? VERSION_BY_HOOKS : VERSION_OWN_STORAGE);
        loop_over_loads(false);
        loop_over_loads(true);
    }
    version_load_hooked(VERSION_WITHOUT_HOOKS);
}

static void test_loads(void **state)
{
    (void)state;
    loop_over_loads(false);
    loop_over_loads(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_saves),      cmocka_unit_test(test_loads),
        cmocka_unit_test(test_compressed), cmocka_unit_test(test_asynchronous),
        cmocka_unit_test(test_hooks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
