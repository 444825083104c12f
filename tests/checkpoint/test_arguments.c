/* SPDX-License-Identifier: BSD-3-Clause */
/* Wrong arguments of saving, loading and looking at checkpoints: each is an error that says what is
 * wrong, never a crash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "dcp.h"
#include "storage/scratch.h"

/* ---- structs of other versions ---- */

static void larger_structs(void **state)
{
    struct {
        dcp_tensor tensor;
        int64_t later;
    } larger = {matrix(2, 2), 0};
    struct {
        dcp_save_options options;
        int64_t later;
    } save = {.later = 1};
    struct {
        dcp_load_options options;
        int64_t later;
    } load = {.later = 1};
    dcp_state *root = dcp_state_new();

    assert_non_null(dcp_state_tensor_sized(root, "zero", &larger.tensor, sizeof larger));
    REFUSED(dcp_save_sized(root, *state, &save.options, sizeof save), DCP_ERR_ARGUMENT, "know");
    REFUSED(dcp_load_sized(root, *state, &load.options, sizeof load, NULL), DCP_ERR_ARGUMENT,
            "know");
    larger.later = 1;
    NOT_BUILT(dcp_state_tensor_sized(root, "later", &larger.tensor, sizeof larger), root,
              DCP_ERR_ARGUMENT, "know");
    /* An earlier version knew nothing of the shape. */
    NOT_BUILT(dcp_state_tensor_sized(root, "earlier", &larger.tensor, 0), root, DCP_ERR_ARGUMENT,
              "dtype");
    dcp_state_free(root);
}

/* ---- saving ---- */

static void save_options(void **state)
{
    const struct {
        dcp_save_options options;
        const char *part;
    } wrong[] = {
        {{.coordinator = -1}, "coordinator"},
        {{.coordinator = 1}, "coordinator"},
        {{.overwrite = (dcp_overwrite)2}, "overwrite"},
        {{.replicas = (dcp_replicas)-1}, "replicas"},
        {{.files = (dcp_file_layout)100}, "files"},
        {{.thread_count = -1}, "thread_count"},
        {{.thread_count = DCP_MAX_THREADS + 1}, "thread_count"},
        {{.compression = (dcp_compression)2}, "compression"},
        {{.io_threads = -1}, "io_threads"},
        {{.io_threads = DCP_MAX_THREADS + 1}, "io_threads"},
        {{.io_priority = (dcp_io_priority)3}, "io_priority"},
        {{.page_cache = (dcp_page_cache)1}, "page_cache is 1"},
        {{.page_cache = (dcp_page_cache)-10}, "page_cache is -10"},
        {{.page_cache = (dcp_page_cache)40}, "page_cache is 40"},
        {{.page_cache = DCP_PAGE_CACHE_KEPT, .io = DCP_IO_DIRECT}, "use one of them"},
        {{.compression_threads = -1}, "compression_threads"},
        {{.compression_threads = DCP_MAX_THREADS + 1}, "compression_threads"},
#if DCP_HAVE_ZSTD
        {{.compression = DCP_COMPRESSION_ZSTD, .compression_level = 23}, "compression_level"},
        {{.compression = DCP_COMPRESSION_ZSTD, .compression_level = INT32_MIN},
         "compression_level"},
#endif
        {{.timeout_seconds = -1}, "timeout"},
        {{.timeout_seconds = (double)NAN}, "timeout"},
        {{.timeout_seconds = (double)INFINITY}, "timeout"},
    };
    char *path = scratch_path(*state, "saved");
    dcp_state *root = dcp_state_new();

    dcp_state_int(root, "step", 1);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        REFUSED(dcp_save(root, path, &wrong[i].options), DCP_ERR_ARGUMENT, wrong[i].part);
    dcp_save_options options = {.info = dcp_state_find(root, "step")};
    REFUSED(dcp_save(root, path, &options), DCP_ERR_ARGUMENT, "info");
    REFUSED(dcp_save(NULL, path, NULL), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_save(root, NULL, NULL), DCP_ERR_ARGUMENT, "path");
    REFUSED(dcp_save(root, "", NULL), DCP_ERR_ARGUMENT, "path");
    REFUSED(dcp_save(dcp_state_find(root, "step"), path, NULL), DCP_ERR_ARGUMENT, "int");
#if !DCP_HAVE_ZSTD
    options = (dcp_save_options){.compression = DCP_COMPRESSION_ZSTD};
    REFUSED(dcp_save(root, path, &options), DCP_ERR_UNSUPPORTED, "DCP_ZSTD");
#endif
    assert_false(scratch_exists(*state, "saved"));
    free(path);
    dcp_state_free(root);
}

static void states_to_save(void **state)
{
    char *path = scratch_path(*state, "saved");
    dcp_state *root = dcp_state_new();
    dcp_tensor tensor = piece(0, 3);

    dcp_state_tensor(root, "w", &tensor);
    REFUSED(dcp_save(root, path, NULL), DCP_ERR_COVERAGE, "w");
    tensor = piece(4, 4);
    dcp_state_add_chunk(dcp_state_find(root, "w"), &tensor);
    REFUSED(dcp_save(root, path, NULL), DCP_ERR_COVERAGE, "[3");
    dcp_state_free(root);

    root = dcp_state_new();
    tensor = matrix(2, 2);
    tensor.data = NULL;
    dcp_state_tensor(root, "w", &tensor);
    REFUSED(dcp_save(root, path, NULL), DCP_ERR_ARGUMENT, "memory");
    dcp_state_free(root);

    root = dcp_state_new();
    dcp_state_int(root, "a.b", 1);
    dcp_state_int(dcp_state_dict(root, "a"), "b", 2);
    REFUSED(dcp_save(root, path, NULL), DCP_ERR_DUPLICATE,
            "a.b: of [\"a.b\"] and of [\"a\"][\"b\"]");
    dcp_state_free(root);

    /* What went wrong while building comes back. */
    root = dcp_state_new();
    dcp_state_int(root, "a", 1);
    dcp_state_int(root, "a", 2);
    dcp_state_string(root, "b", NULL);
    REFUSED(dcp_save(root, path, NULL), DCP_ERR_DUPLICATE, "\"a\"");
    dcp_state_free(root);
    assert_false(scratch_exists(*state, "saved"));
    free(path);
}

/* ---- loading and reading ---- */

static char *save_small(const char *directory)
{
    char *path = scratch_path(directory, "small");
    dcp_state *root = dcp_state_new();
    dcp_tensor tensor = matrix(8, 2);

    dcp_state_tensor(root, "w", &tensor);
    dcp_state_int(root, "step", 7);
    assert_int_equal(dcp_save(root, path, NULL), DCP_OK);
    dcp_state_free(root);
    return path;
}

static void load_options(void **state)
{
    const struct {
        dcp_load_options options;
        const char *part;
    } wrong[] = {
        {{.coordinator = 3}, "coordinator"},
        {{.strictness = (dcp_strictness)3}, "strictness"},
        {{.verification = (dcp_verification)-1}, "verification"},
        {{.io_priority = (dcp_io_priority)-1}, "io_priority"},
        {{.timeout_seconds = -(double)INFINITY}, "timeout"},
    };
    char *path = save_small(*state);
    dcp_state *root = dcp_state_new();
    dcp_load_report *report = (dcp_load_report *)&report;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        REFUSED(dcp_load(root, path, &wrong[i].options, &report), DCP_ERR_ARGUMENT, wrong[i].part);
        assert_null(report);
    }
    REFUSED(dcp_load(NULL, path, NULL, NULL), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_load(root, NULL, NULL, NULL), DCP_ERR_ARGUMENT, "path");
    REFUSED(dcp_load(root, "", NULL, NULL), DCP_ERR_ARGUMENT, "path");
    REFUSED(dcp_load(root, "/nowhere/at all", NULL, NULL), DCP_ERR_NOT_FOUND, "/nowhere/at all");
    dcp_state_free(root);
    free(path);
}

static void choice_of_names(void **state)
{
    const char *const nothing[] = {NULL}, *const open[] = {"a[b"}, *const odd[] = {"\xff"};
    const dcp_rename wrong[] = {
        {(dcp_rename_kind)99, "a", "b"},      {DCP_RENAME_EXACT, NULL, "b"},
        {DCP_RENAME_EXACT, "a", NULL},        {DCP_RENAME_PREFIX, NULL, NULL},
        {DCP_RENAME_GLOB, "a*", "b*c*"},      {DCP_RENAME_GLOB, "[", "b"},
        {DCP_RENAME_PREFIX, "a", "\xc3\x28"}, {(dcp_rename_kind)-1, "", ""},
    };
    const struct {
        dcp_load_options options;
        const char *part;
    } lists[] = {
        {{.include_count = 1}, "include"},
        {{.exclude_count = SIZE_MAX}, "exclude"},
        {{.include = nothing, .include_count = 1}, "include[0]"},
        {{.exclude = nothing, .exclude_count = 1}, "exclude[0]"},
        {{.include = open, .include_count = 1}, "include[0]"},
        {{.exclude = odd, .exclude_count = 1}, "exclude[0]"},
        {{.rename_count = 1}, "renames"},
    };
    char *path = save_small(*state);
    dcp_state *root = dcp_state_new();

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        REFUSED(dcp_load(root, path, &lists[i].options, NULL), DCP_ERR_ARGUMENT, lists[i].part);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dcp_load_options options = {.renames = &wrong[i], .rename_count = 1};
        REFUSED(dcp_load(root, path, &options, NULL), DCP_ERR_ARGUMENT, "renames[0]");
    }
    dcp_state_free(root);
    free(path);
}

/* Patterns that would take years if every way to match them were tried. */
static void patterns_that_almost_match(void **state)
{
    char *path = save_small(*state), name[5001] = "";
    const char *const include[] = {"*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b"};
    const dcp_rename rule = {DCP_RENAME_GLOB, "*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", "*"};
    const dcp_load_options options = {.include = include,
                                      .include_count = 1,
                                      .renames = &rule,
                                      .rename_count = 1,
                                      .allow_unused_patterns = true};
    dcp_state *root = dcp_state_new();

    memset(name, 'a', sizeof name - 1);
    dcp_state_int(root, name, 1);
    assert_int_equal(dcp_load(root, path, &options, NULL), DCP_OK);
    dcp_state_free(root);
    free(path);
}

static void destinations(void **state)
{
    char *path = save_small(*state);
    const int64_t strides[][2] = {{0, 1}, {1, 1}, {1, 0}, {2, 2}};
    static float room[64];

    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++) {
        dcp_state *root = dcp_state_new();
        dcp_tensor tensor = matrix(8, 2);
        tensor.strided = true;
        tensor.data = room;
        memcpy(tensor.strides, strides[i], sizeof strides[i]);
        dcp_state_tensor(root, "w", &tensor);
        REFUSED(dcp_load(root, path, NULL, NULL), DCP_ERR_ARGUMENT, "w");
        dcp_state_free(root);
    }
    dcp_state *root = dcp_state_new();
    dcp_tensor tensor = matrix(4, 4);
    dcp_state_tensor(root, "w", &tensor);
    REFUSED(dcp_load(root, path, NULL, NULL), DCP_ERR_SHAPE, "[4, 4]");
    dcp_state_free(root);
    root = dcp_state_new();
    dcp_state_int(root, "w", 0);
    REFUSED(dcp_load(root, path, NULL, NULL), DCP_ERR_KIND, "w");
    dcp_state_none(root, "w");
    REFUSED(dcp_load(root, path, NULL, NULL), DCP_ERR_DUPLICATE, "\"w\"");
    dcp_state_free(root);
    free(path);
}

static void views(void **state)
{
    char *path = save_small(*state);
    dcp_checkpoint *checkpoint = NULL;
    dcp_entry entry;
    dcp_stored_chunk chunk;
    uint64_t faults;
    size_t index, object;

    REFUSED(dcp_checkpoint_open(NULL, NULL, &checkpoint), DCP_ERR_ARGUMENT, "path");
    REFUSED(dcp_checkpoint_open("", NULL, &checkpoint), DCP_ERR_ARGUMENT, "path");
    REFUSED(dcp_checkpoint_open(path, NULL, NULL), DCP_ERR_ARGUMENT, "place");
    REFUSED(dcp_verify(NULL, NULL, NULL, NULL, &faults), DCP_ERR_ARGUMENT, "path");
    REFUSED(dcp_verify(path, NULL, NULL, NULL, NULL), DCP_ERR_ARGUMENT, "");
    assert_int_equal(dcp_checkpoint_open(path, NULL, &checkpoint), DCP_OK);
    REFUSED(dcp_checkpoint_entry(checkpoint, 2, &entry), DCP_ERR_ARGUMENT, "2");
    REFUSED(dcp_checkpoint_entry(checkpoint, SIZE_MAX, &entry), DCP_ERR_ARGUMENT, "entry");
    REFUSED(dcp_checkpoint_entry_sized(checkpoint, 0, NULL, sizeof entry), DCP_ERR_ARGUMENT,
            "NULL");
    REFUSED(dcp_checkpoint_entry(NULL, 0, &entry), DCP_ERR_ARGUMENT, "NULL");
    dcp_entry entries[2];
    REFUSED(dcp_checkpoint_entries(checkpoint, 1, 2, entries), DCP_ERR_ARGUMENT,
            "2 entries from number 1 on were requested, but the checkpoint has 2");
    REFUSED(dcp_checkpoint_entries(checkpoint, 3, 0, entries), DCP_ERR_ARGUMENT, "from number 3");
    REFUSED(dcp_checkpoint_entries(checkpoint, 0, 1, NULL), DCP_ERR_ARGUMENT, "place");
    REFUSED(dcp_checkpoint_entries(NULL, 0, 0, entries), DCP_ERR_ARGUMENT, "checkpoint");
    assert_int_equal(dcp_checkpoint_entries(checkpoint, 0, 2, entries), DCP_OK);
    assert_int_equal(dcp_checkpoint_entry(checkpoint, 1, &entry), DCP_OK);
    assert_string_equal(entries[1].name, entry.name);
    assert_int_equal(entries[1].is_tensor, entry.is_tensor);
    assert_string_not_equal(entries[0].name, entry.name);
    REFUSED(dcp_checkpoint_find(checkpoint, "no such", &index), DCP_ERR_NOT_FOUND, "no such");
    REFUSED(dcp_checkpoint_find(checkpoint, NULL, &index), DCP_ERR_ARGUMENT, "name");
    REFUSED(dcp_checkpoint_find(NULL, "w", &index), DCP_ERR_ARGUMENT, "checkpoint");
    REFUSED(dcp_checkpoint_find(checkpoint, "w", NULL), DCP_ERR_ARGUMENT, "place");
    assert_int_equal(dcp_checkpoint_find(checkpoint, "w", &index), DCP_OK);
    assert_int_equal(dcp_checkpoint_find(checkpoint, "step", &object), DCP_OK);
    REFUSED(dcp_checkpoint_chunk(checkpoint, index, 1, &chunk), DCP_ERR_ARGUMENT, "w");
    REFUSED(dcp_checkpoint_chunk(checkpoint, 9, 0, &chunk), DCP_ERR_ARGUMENT, "9");
    REFUSED(dcp_checkpoint_chunk_sized(checkpoint, index, 0, NULL, 0), DCP_ERR_ARGUMENT, "NULL");

    dcp_tensor tensor = matrix(8, 2);
    REFUSED(dcp_checkpoint_read_tensor(NULL, index, &tensor, NULL), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_checkpoint_read_tensor(checkpoint, 5, &tensor, NULL), DCP_ERR_ARGUMENT, "5");
    REFUSED(dcp_checkpoint_read_tensor_sized(checkpoint, index, NULL, 8, NULL, 0), DCP_ERR_ARGUMENT,
            "w");
    REFUSED(dcp_checkpoint_read_tensor(checkpoint, object, &tensor, NULL), DCP_ERR_KIND, "step");
    REFUSED(dcp_checkpoint_read_tensor(checkpoint, index, &tensor,
                                       &(dcp_read_options){.verification = (dcp_verification)9}),
            DCP_ERR_ARGUMENT, "verification");
    tensor.data = NULL;
    REFUSED(dcp_checkpoint_read_tensor(checkpoint, index, &tensor, NULL), DCP_ERR_ARGUMENT,
            "memory");
    tensor.sharded = true; /* nothing of it needs no memory */
    assert_int_equal(dcp_checkpoint_read_tensor(checkpoint, index, &tensor, NULL), DCP_OK);
    tensor = matrix(2, 8);
    REFUSED(dcp_checkpoint_read_tensor(checkpoint, index, &tensor, NULL), DCP_ERR_SHAPE, "w");
    tensor = matrix(8, 2);
    tensor.dtype = DCP_I32;
    REFUSED(dcp_checkpoint_read_tensor(checkpoint, index, &tensor, NULL), DCP_ERR_DTYPE, "w");

    dcp_state *root = dcp_state_new();
    REFUSED(dcp_checkpoint_read_object(checkpoint, object, NULL, "a", NULL), DCP_ERR_ARGUMENT,
            "NULL");
    REFUSED(dcp_checkpoint_read_object(NULL, object, root, "a", NULL), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_checkpoint_read_object(checkpoint, index, root, "a", NULL), DCP_ERR_KIND, "w");
    REFUSED(dcp_checkpoint_read_object(checkpoint, 77, root, "a", NULL), DCP_ERR_ARGUMENT, "77");
    assert_int_equal(dcp_state_status(root), DCP_OK);
    assert_int_equal(dcp_state_count(root), 0);
    dcp_read_options options = {.convert = true};
    REFUSED(dcp_checkpoint_read_object(checkpoint, object, root, "a", &options), DCP_ERR_ARGUMENT,
            "convert");
    options = (dcp_read_options){.verification = (dcp_verification)9};
    REFUSED(dcp_checkpoint_read_object(checkpoint, object, root, "a", &options), DCP_ERR_ARGUMENT,
            "verification");
    struct {
        dcp_read_options known;
        char grown[8];
    } longer = {.grown = {1}};
    REFUSED(dcp_checkpoint_read_object_sized(checkpoint, object, root, "a", &longer.known,
                                             sizeof longer),
            DCP_ERR_ARGUMENT, "dcp_read_options");
    assert_int_equal(dcp_state_count(root), 0);
    REFUSED(dcp_checkpoint_read_object(checkpoint, object, root, NULL, NULL), DCP_ERR_ARGUMENT,
            "key");
    dcp_state_free(root);
    dcp_checkpoint_close(checkpoint);
    free(path);
}

#define FILES(function) cmocka_unit_test_setup_teardown(function, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILES(larger_structs), FILES(save_options),    FILES(states_to_save),
        FILES(load_options),   FILES(choice_of_names), FILES(patterns_that_almost_match),
        FILES(destinations),   FILES(views),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
