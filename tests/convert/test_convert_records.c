/* SPDX-License-Identifier: BSD-3-Clause */
/* A tensor that has one checksum, as in files of PyTorch, and is converted in parts, is checked all
 * the same: a damaged source leaves nothing, in any form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/parts.h"
#include "fault/failing_allocator.h"
#include "storage/scratch.h"

enum { ROWS = 21000, COLUMNS = 100 }; /* 8.4 MB: more than a window of a DCP directory */
#define SHARD "__0_0.distcp"

static const struct part whole = {
    .shape = {ROWS, COLUMNS}, .sizes = {ROWS, COLUMNS}, .dtype = DCP_F32, .end = 2};

/* A directory as PyTorch writes it, or a .pt file. */
struct source {
    char *path;
    const char *directory, *file; /* that is damaged */
};

static struct source make_source(void *const *state, bool pt)
{
    char *path = scratch_path(*state, "saved"), *file = scratch_path(*state, "source.pt");
    assert_true(parts_save(path, &whole, &(dcp_save_options){.skip_sync = true}));
    scratch_drop_footer(path, SHARD);
    assert_int_equal(dcp_convert(path, file, &(dcp_convert_options){.skip_sync = true}, NULL),
                     DCP_OK);
    struct source source = {.path = pt ? file : path, .file = pt ? "source.pt" : SHARD};
    source.directory = pt ? *state : path;
    if (pt)
        free(path);
    else
        free(file);
    return source;
}

/* Turns a bit of the second tensor, or turns it back. */
static void flip(const struct source *source, int64_t row)
{
    static int64_t before = -1;
    static uint64_t place;
    if (before != row)
        place = parts_find(source->directory, source->file, &whole, 1, row);
    before = before == row ? -1 : row;
    scratch_flip(source->directory, source->file, place, 0x20);
}

static void a_damaged_source_leaves_nothing(void **state)
{
    static const struct {
        const char *name;
        dcp_convert_options options;
    } targets[] = {{"dcp", {.form = DCP_FORM_DCP}},
                   {"ranks", {.form = DCP_FORM_DCP, .ranks = 3}},
                   {"half", {.form = DCP_FORM_DCP, .dtype = DCP_F16}},
                   {"t.pt", {.form = DCP_FORM_PT}},
                   {"t.safetensors", {.form = DCP_FORM_SAFETENSORS, .thread_count = 1}},
                   {"hf", {.form = DCP_FORM_HF, .dtype = DCP_BF16}}};
    static const int64_t rows[] = {0, 5000, ROWS - 1};
    for (int pt = 0; pt < 2; pt++) {
        struct source source = make_source(state, pt);
        for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
            char *target = scratch_path(*state, targets[i].name);
            dcp_convert_options options = targets[i].options;
            options.skip_sync = true;
            for (size_t k = 0; k < sizeof rows / sizeof *rows; k += 1 + TRIAL_STEP / 8) {
                flip(&source, rows[k]);
                assert_int_equal(dcp_convert(source.path, target, &options, NULL),
                                 DCP_ERR_CHECKSUM);
                assert_non_null(strstr(dcp_error_message(), "t1 ("));
                assert_false(scratch_exists(*state, targets[i].name));
                flip(&source, rows[k]);
            }
            assert_int_equal(dcp_convert(source.path, target, &options, NULL), DCP_OK);
            free(target);
        }
        free(source.path);
        scratch_teardown(state);
        scratch_setup(state);
    }
}

/* Rows of padding are taken off, and are not read until the end: the checksum is of them, too. */
static void what_is_wanted_in_part_is_checked_with_the_rest(void **state)
{
    static const char rules[] =
        "{\"rules\": [{\"pad\": \"t1\", \"dim\": 0, \"multiple\": 1000, \"size\": 20001}]}";
    static const struct {
        const char *name;
        dcp_form form;
        int32_t ranks;
    } targets[] = {{"dcp", DCP_FORM_DCP, 0},
                   {"ranks", DCP_FORM_DCP, 2},
                   {"t.pt", DCP_FORM_PT, 0},
                   {"t.safetensors", DCP_FORM_SAFETENSORS, 0},
                   {"hf", DCP_FORM_HF, 0}};
    struct source source = make_source(state, false);
    char *path = scratch_path(*state, "rules.json");
    scratch_write(*state, "rules.json", rules, strlen(rules));
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        char *target = scratch_path(*state, targets[i].name);
        const dcp_convert_options options = {.form = targets[i].form,
                                             .ranks = targets[i].ranks,
                                             .transform = path,
                                             .transform_inverse = true,
                                             .skip_sync = true};
        flip(&source, ROWS - 1);
        assert_int_equal(dcp_convert(source.path, target, &options, NULL), DCP_ERR_CHECKSUM);
        assert_non_null(strstr(dcp_error_message(), "t1 (" SHARD));
        assert_false(scratch_exists(*state, targets[i].name));
        flip(&source, ROWS - 1);
        assert_int_equal(dcp_convert(source.path, target, &options, NULL), DCP_OK);
        free(target);
    }
    free(path);
    free(source.path);
}

/* Also of what checks the source before the destination is there. */
static void without_memory_nothing_is_left(void **state)
{
    static const char rules[] =
        "{\"rules\": [{\"pad\": \"t1\", \"dim\": 0, \"multiple\": 1000, \"size\": 20001}]}";
    struct source source = make_source(state, false);
    char *path = scratch_path(*state, "rules.json"), *target = scratch_path(*state, "dcp");
    const dcp_convert_options options = {
        .form = DCP_FORM_DCP, .transform = path, .transform_inverse = true, .skip_sync = true};
    bool reached = true;
    long failures = 0;
    scratch_write(*state, "rules.json", rules, strlen(rules));
    for (long n = 1; reached; n += TRIAL_STEP + n / 16) {
        failing_allocator_install(n, true);
        dcp_status status = dcp_convert(source.path, target, &options, NULL);
        reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        failures += status != DCP_OK;
        assert_true(status == DCP_OK || (reached && status == DCP_ERR_NO_MEMORY));
        assert_int_equal(scratch_exists(*state, "dcp/.metadata"), status == DCP_OK);
        if (status == DCP_OK) /* done without, as without reading ahead */
            assert_int_equal(dcp_checkpoint_remove(target, &(dcp_remove_options){0}, NULL), DCP_OK);
    }
    assert_true(failures * TRIAL_STEP > 20);
    free(target);
    free(path);
    free(source.path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_damaged_source_leaves_nothing, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(what_is_wanted_in_part_is_checked_with_the_rest,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(without_memory_nothing_is_left, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
