/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensors of a .pt file that share a storage, are a part of one, or are transposed in it: each
 * storage has one checksum, and a damaged one is found wherever the damage is. */
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
#include "format/pt_file.h"
#include "storage/scratch.h"

enum { ELEMENTS = 1200000, STORAGES = 3 }; /* 4.8 MB each: more than is read at a time */

/* Elements of storage 0 that are of no tensor: 350,000 to 359,999. */
static const struct pt_view views[] = {
    {"a", 0, 0, 2, {1000, 300}, {300, 1}},      {"b", 0, 300000, 2, {50, 1000}, {1000, 1}},
    {"c", 0, 360000, 2, {8400, 100}, {100, 1}}, {"d", 1, 0, 2, {1000, 1200}, {1, 1000}},
    {"e", 2, 600000, 2, {1000, 600}, {600, 1}}, {"f", 2, 0, 2, {600, 1000}, {1000, 1}},
};
enum { VIEWS = sizeof views / sizeof *views };

static char *make_source(void *const *state, bool deflated, uint64_t *places)
{
    const struct pt_file file = {.views = views,
                                 .count = VIEWS,
                                 .storages = STORAGES,
                                 .elements = ELEMENTS,
                                 .deflated = deflated};
    pt_file_write(&file, *state, "v.pt", places);
    return scratch_path(*state, "v.pt");
}

static void flip(void *const *state, const uint64_t *places, size_t storage, uint64_t element)
{
    scratch_flip(*state, "v.pt", places[storage] + 4 * element, 0x20);
}

/* What is wrong is only the checksum, which is of all of a storage. */
static void deflated_storages_are_checked(void **state)
{
    static const char *const names[] = {"dcp", "v2.pt", "v.safetensors"};
    static const dcp_form forms[] = {DCP_FORM_DCP, DCP_FORM_PT, DCP_FORM_SAFETENSORS};
    uint64_t places[PT_FILE_STORAGES];
    char *source = make_source(state, true, places);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        char *target = scratch_path(*state, names[i]);
        const dcp_convert_options options = {.form = forms[i], .skip_sync = true};
        assert_int_equal(dcp_convert(source, target, &options, NULL), DCP_ERR_CHECKSUM);
        assert_false(scratch_exists(*state, names[i]));
        free(target);
    }
    free(source);
}

static void every_damage_is_found(void **state)
{
    static const struct {
        const char *name;
        dcp_convert_options options;
    } targets[] = {{"dcp", {.form = DCP_FORM_DCP}},
                   {"ranks", {.form = DCP_FORM_DCP, .ranks = 3}},
                   {"v2.pt", {.form = DCP_FORM_PT}},
                   {"half.pt", {.form = DCP_FORM_PT, .dtype = DCP_F16}},
                   {"v.safetensors", {.form = DCP_FORM_SAFETENSORS, .thread_count = 1}},
                   {"hf", {.form = DCP_FORM_HF}}};
    static const uint64_t elements[] = {0, 299999, 355000, ELEMENTS - 1};
    uint64_t places[PT_FILE_STORAGES];
    char *source = make_source(state, false, places);
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        char *target = scratch_path(*state, targets[i].name);
        dcp_convert_options options = targets[i].options;
        options.skip_sync = true;
        for (size_t k = 0; k < STORAGES * sizeof elements / sizeof *elements;
             k += 1 + TRIAL_STEP / 4) {
            flip(state, places, k % STORAGES, elements[k / STORAGES]);
            assert_int_equal(dcp_convert(source, target, &options, NULL), DCP_ERR_CHECKSUM);
            assert_non_null(strstr(dcp_error_message(), "(v.pt:"));
            assert_false(scratch_exists(*state, targets[i].name));
            flip(state, places, k % STORAGES, elements[k / STORAGES]);
        }
        assert_int_equal(dcp_convert(source, target, &options, NULL), DCP_OK);
        free(target);
    }
    free(source);
}

/* Whatever memory is missing: of a transposed storage, and of one that is read in part. */
static void without_memory_damage_is_not_missed(void **state)
{
    uint64_t places[PT_FILE_STORAGES];
    char *source = make_source(state, false, places), *target = scratch_path(*state, "dcp");
    const dcp_convert_options options = {.form = DCP_FORM_DCP, .skip_sync = true};
    for (size_t storage = 0; storage < 2; storage++) {
        bool reached = true;
        long failures = 0;
        flip(state, places, storage, 355000);
        for (long n = 1; reached; n += TRIAL_STEP + n / 16) {
            failing_allocator_install(n, false);
            dcp_status status = dcp_convert(source, target, &options, NULL);
            reached = failing_allocator_reached();
            assert_int_equal(failing_allocator_remove(), 0);
            assert_true(status == DCP_ERR_CHECKSUM || (reached && status == DCP_ERR_NO_MEMORY));
            assert_false(scratch_exists(*state, "dcp/.metadata"));
            failures += status == DCP_ERR_NO_MEMORY;
        }
        assert_true(failures * TRIAL_STEP > 20);
        flip(state, places, storage, 355000);
    }
    free(target);
    free(source);
}

static dcp_status read_view(dcp_checkpoint *checkpoint, const struct pt_view *view,
                            uint32_t *elements)
{
    const dcp_tensor tensor = {.dtype = DCP_F32,
                               .ndim = 2,
                               .global_shape = {view->sizes[0], view->sizes[1]},
                               .data = elements};
    size_t entry;
    assert_int_equal(dcp_checkpoint_find(checkpoint, view->name, &entry), DCP_OK);
    return dcp_checkpoint_read_tensor(checkpoint, entry, &tensor, NULL);
}

/* Storage 2 by both tensors that it consists of. */
static void views_are_checked_together(void **state)
{
    uint64_t places[PT_FILE_STORAGES];
    char *source = make_source(state, false, places);
    uint32_t *elements = malloc(ELEMENTS * sizeof *elements);
    assert_non_null(elements);
    for (int damaged = 0; damaged < 2; damaged++) {
        dcp_checkpoint *checkpoint;
        assert_int_equal(dcp_checkpoint_open(source, NULL, &checkpoint), DCP_OK);
        for (size_t i = 0; i < VIEWS; i++) {
            bool last = i == VIEWS - 1;
            assert_int_equal(read_view(checkpoint, &views[i], elements),
                             damaged && last ? DCP_ERR_CHECKSUM : DCP_OK);
            if (last && damaged)
                continue;
            assert_int_equal(elements[1], pt_file_element(views[i].storage,
                                                          views[i].offset + views[i].strides[1]));
        }
        dcp_checkpoint_close(checkpoint);
        flip(state, places, 2, damaged ? 700000 : 5);
    }
    free(elements);
    free(source);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_damage_is_found),
        TEST(deflated_storages_are_checked),
        TEST(without_memory_damage_is_not_missed),
        TEST(views_are_checked_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
