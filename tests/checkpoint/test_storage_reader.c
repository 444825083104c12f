/* SPDX-License-Identifier: BSD-3-Clause */
/* Storage readers of the caller's own: one in memory, over what PyTorch and this library wrote; how
 * it is found by its id; and those that do not do what they should. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/limit_trial.h"
#include "checkpoint/load_hooks.h"
#include "checkpoint/memory_reader.h"
#include "checkpoint/whole_state.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* What ranks of a test load from. */
struct source {
    const char *directory; /* that is in memory */
    const char *id;        /* that is loaded; NULL: none, the reader is passed */
};

static dcp_status load_from_memory(struct rank *self)
{
    const struct source *source = self->context;
    struct memory_reader readers[2];
    const dcp_storage_reader *list[2] = {&readers[0].table, &readers[1].table};
    dcp_load_options options = {.group = self->group};
    struct scene scene;
    memory_reader_init(&readers[0], source->directory, "mem://other");
    memory_reader_init(&readers[1], source->directory, "mem://this");
    if (source->id) {
        options.storage_readers = list;
        options.storage_reader_count = 2;
    } else {
        options.storage_reader = list[1];
    }
    scene_init(&scene, self, false);
    /* Others take the coordinator's id. */
    dcp_status status = dcp_load(scene.root, self->rank == 0 ? source->id : NULL, &options, NULL);
    if (status == DCP_OK)
        status = scene_check(&scene);
    if (status == DCP_OK && (readers[0].reads != 0 || readers[1].reads != 5))
        status =
            dcp_error_set(DCP_ERR_INTERNAL, "%d and %d reads", readers[0].reads, readers[1].reads);
    scene_free(&scene);
    memory_reader_free(&readers[0]);
    memory_reader_free(&readers[1]);
    return status;
}

static void a_reader_that_is_passed_needs_no_id(void **state)
{
    struct source source = {path_in(state, "c"), NULL};
    ranks_must(2, NULL, load_from_memory, &source);
}

enum { LARGE = 4 << 20 };

/* The library sees no files, and what the reader brings is its own. */
static void a_reader_works_within_a_limit_of_memory(void **state)
{
    struct memory_reader reader;
    unsigned char *bytes = calloc(1, LARGE);
    const void *loaded;
    size_t size;
    dcp_state *root = dcp_state_new();
    assert_non_null(bytes);
    dcp_state_bytes(root, "bytes", bytes, LARGE);
    must(dcp_save(root, path_in(state, "large"), NULL));
    memory_reader_init(&reader, path_in(state, "large"), "mem://this");
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_load_options options = {
        .storage_reader = &reader.table, .memory_limit = 1, .figures = &figures};
    must_fail(dcp_load(root, "mem://this", &options, NULL), DCP_ERR_NO_MEMORY,
              "the smallest sufficient limit is ");
    options.memory_limit = limit_named();
    assert_in_range(options.memory_limit, 1, LARGE);
    must(dcp_load(root, "mem://this", &options, NULL));
    assert_in_range(figures.peak_memory, 1, options.memory_limit);
    must(dcp_state_as_bytes(dcp_state_find(root, "bytes"), &loaded, &size));
    assert_int_equal(size, LARGE);
    assert_memory_equal(loaded, bytes, LARGE);
    dcp_state_free(root);
    memory_reader_free(&reader);
    free(bytes);
}

static void the_first_reader_that_takes_the_id_is_used(void **state)
{
    struct source source = {path_in(state, "c"), "mem://this"};
    ranks_must(2, NULL, load_from_memory, &source);
}

static dcp_status load_alone(const char *id, const dcp_storage_reader *const *readers, size_t count)
{
    const struct rank alone = {.size = 1};
    dcp_load_options options = {.storage_readers = readers, .storage_reader_count = count};
    struct scene scene;
    scene_init(&scene, &alone, false);
    dcp_status status = dcp_load(scene.root, id, &options, NULL);
    if (status == DCP_OK)
        status = scene_check(&scene);
    scene_free(&scene);
    return status;
}

static void ids_that_nobody_takes_are_files_or_nothing(void **state)
{
    struct memory_reader reader;
    dcp_storage_reader takes_none = {.size_of = sizeof takes_none};
    const dcp_storage_reader *list[] = {&takes_none, &reader.table};
    memory_reader_init(&reader, path_in(state, "c"), "mem://this");
    must(load_alone(path_in(state, "c"), list, 2));
    must(load_alone("mem://this", list, 2));
    must_fail(load_alone("s3://bucket/step_1000", list, 2), DCP_ERR_UNSUPPORTED,
              "no storage takes \"s3://bucket/step_1000\"");
    must_fail(load_alone("s3://bucket", NULL, 0), DCP_ERR_UNSUPPORTED,
              "no storage takes \"s3://bucket\"");
    must_fail(load_alone("mem://this", list, 1), DCP_ERR_UNSUPPORTED,
              "no storage takes \"mem://this\"");
    must_fail(load_alone("", list, 2), DCP_ERR_ARGUMENT, "no path");
    /* These are no schemes. */
    must_fail(load_alone("1a://b", NULL, 0), DCP_ERR_NOT_FOUND, "1a://b");
    must_fail(load_alone("a/b://c", NULL, 0), DCP_ERR_NOT_FOUND, "a/b://c");
    list[0] = NULL;
    must_fail(load_alone("mem://this", list, 2), DCP_ERR_ARGUMENT, "one of the storage readers");
    memory_reader_free(&reader);
}

static dcp_status choose_otherwise(struct rank *self)
{
    struct memory_reader readers[2];
    const dcp_storage_reader *list[2];
    memory_reader_init(&readers[0], self->path, self->rank == 0 ? "mem://this" : "mem://other");
    memory_reader_init(&readers[1], self->path, "mem://this");
    list[0] = &readers[0].table;
    list[1] = &readers[1].table;
    dcp_load_options options = {
        .group = self->group, .storage_readers = list, .storage_reader_count = 2};
    struct scene scene;
    scene_init(&scene, self, false);
    dcp_status status = dcp_load(scene.root, "mem://this", &options, NULL);
    scene_free(&scene);
    memory_reader_free(&readers[0]);
    memory_reader_free(&readers[1]);
    return status;
}

static void ranks_that_choose_differently_are_reported(void **state)
{
    struct rank ranks[RANKS_MAX];
    ranks_run(ranks, 2, path_in(state, "c"), choose_otherwise, NULL);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(ranks[r].status, DCP_ERR_ARGUMENT);
        assert_non_null(strstr(ranks[r].message, "rank 1: the storage reader for \"mem://this\""));
    }
}

/* ---- what PyTorch wrote ---- */

static void files_of_pytorch_are_read_from_memory(void **state)
{
    static const char *const names[] = {
        "basic",      "dtypes",     "fsdp2_adam_w2",
        "layouts",    "mesh2d_w4",  "nesting",
        "no_flatten", "objects",    "sharded_tensor_w2",
        "shapes",     "uneven_w4",  "training_state",
        "hsdp_w4",    "threads_w2", "torch_2.0.1_sharded_w2",
    };
    (void)state;
    for (size_t i = 0; i < COUNT(names) + (DCP_HAVE_ZSTD ? 2 : 0); i++) {
        const char *name = i < COUNT(names) ? names[i] : i == COUNT(names) ? "zstd" : "zstd_w2";
        char path[512];
        struct memory_reader reader;
        snprintf(path, sizeof path, FIXTURES "/%s/ckpt", name);
        memory_reader_init(&reader, path, "mem://fixture");
        const dcp_load_options options = {.storage_reader = &reader.table};
        dcp_state *from_files = whole_state_of(path), *from_memory = whole_state_of(path);
        must(dcp_load(from_files, path, NULL, NULL));
        must(dcp_load(from_memory, NULL, &options, NULL));
        assert_true(reader.reads > 0);
        whole_states_must_be_equal(from_files, from_memory);
        dcp_state_free(from_files);
        dcp_state_free(from_memory);
        memory_reader_free(&reader);
    }
}

/* ---- readers that do not do what they should ---- */

/* The same bit of every stream; some places mean nothing. */
static void damaged_streams_are_refused(void **state)
{
    int refused = 0;
    for (int place = 0; place < 1200; place += 7) {
        struct memory_reader reader;
        struct scene scene;
        const struct rank alone = {.size = 1};
        memory_reader_init(&reader, path_in(state, "c"), "mem://this");
        reader.damage = place;
        const dcp_load_options options = {.storage_reader = &reader.table};
        scene_init(&scene, &alone, false);
        dcp_status status = dcp_load(scene.root, NULL, &options, NULL);
        if (status == DCP_OK)
            must(scene_check(&scene));
        refused += status != DCP_OK;
        scene_free(&scene);
        memory_reader_free(&reader);
    }
    assert_true(refused > 20);
}

/* What a read_data does with the items in the place of reading them. */
static dcp_status reads_nothing(void *context, dcp_loading *loading, const dcp_load_plan *plan)
{
    (void)context, (void)loading, (void)plan;
    return DCP_OK;
}

static dcp_status reads_twice(void *context, dcp_loading *loading, const dcp_load_plan *plan)
{
    static const char zeros[8];
    (void)context, (void)plan;
    dcp_status status = dcp_load_default_read_data(loading);
    return status == DCP_OK ? dcp_loading_stream(loading, 0, zeros, sizeof zeros) : status;
}

static dcp_status reads_beyond(void *context, dcp_loading *loading, const dcp_load_plan *plan)
{
    static const char zeros[8];
    (void)context;
    return dcp_loading_stream(loading, dcp_load_plan_count(plan), zeros, sizeof zeros);
}

static size_t first_of(const dcp_load_plan *plan, bool is_tensor)
{
    dcp_read_item item = {.is_tensor = !is_tensor};
    size_t i = 0;
    while (dcp_load_plan_item(plan, i, &item) == DCP_OK && item.is_tensor != is_tensor)
        i++;
    return i;
}

static dcp_status reads_too_little(void *context, dcp_loading *loading, const dcp_load_plan *plan)
{
    static const char zeros[8];
    (void)context;
    return dcp_loading_stream(loading, first_of(plan, true), zeros, sizeof zeros);
}

static dcp_status takes_objects_for_tensors(void *context, dcp_loading *loading,
                                            const dcp_load_plan *plan)
{
    dcp_tensor tensor;
    (void)context;
    return dcp_loading_resolve_tensor(loading, first_of(plan, false), &tensor);
}

static dcp_status takes_tensors_for_objects(void *context, dcp_loading *loading,
                                            const dcp_load_plan *plan)
{
    void *bytes;
    (void)context;
    return dcp_loading_resolve_bytes(loading, first_of(plan, true), 8, &bytes);
}

static dcp_status commits_what_was_not_resolved(void *context, dcp_loading *loading,
                                                const dcp_load_plan *plan)
{
    const dcp_tensor tensor = {.dtype = DCP_F32};
    (void)context;
    return dcp_loading_commit_tensor(loading, first_of(plan, true), &tensor);
}

static dcp_status loads_bytes_that_are_none(void *context, dcp_loading *loading,
                                            const dcp_load_plan *plan)
{
    (void)context;
    return dcp_loading_load_bytes(loading, first_of(plan, false), "no stream", 9);
}

static dcp_status no_metadata(void *context, const void **bytes, size_t *size)
{
    (void)context, (void)bytes, (void)size;
    return DCP_OK;
}

static dcp_status other_metadata(void *context, const void **bytes, size_t *size)
{
    (void)context;
    *bytes = "no metadata";
    *size = 11;
    return DCP_OK;
}

static void readers_that_do_not_read_are_refused(void **state)
{
    static const struct {
        struct test test;
        dcp_status status;
        const char *message;
    } cases[] = {
        {{.reader.read_data = reads_nothing},
         DCP_ERR_COVERAGE,
         "the storage reader handed over 0 of 5 items: item 0, "},
        {{.reader.read_data = reads_twice}, DCP_ERR_STATE, "was already handed over"},
        {{.reader.read_data = reads_beyond},
         DCP_ERR_ARGUMENT,
         "there is no item 5: the load plan has 5"},
        {{.reader.read_data = reads_too_little}, DCP_ERR_FORMAT, "8 bytes, the metadata says"},
        {{.reader.read_data = takes_objects_for_tensors}, DCP_ERR_KIND, "is an object"},
        {{.reader.read_data = takes_tensors_for_objects}, DCP_ERR_KIND, "is a tensor"},
        {{.reader.read_data = commits_what_was_not_resolved},
         DCP_ERR_STATE,
         "has not been resolved"},
        {{.reader.read_data = loads_bytes_that_are_none}, DCP_ERR_FORMAT, "read_data: "},
        {{.reader.read_metadata = no_metadata}, DCP_ERR_CALLBACK, "but gave no bytes"},
        {{.reader.read_metadata = other_metadata}, DCP_ERR_FORMAT, "metadata"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        load_must_fail(state, &cases[i].test, cases[i].status, cases[i].message);
}

/* By hand, where the library would not have to: each tensor's elements as zeros. */
static dcp_status reads_by_itself(void *context, dcp_loading *loading, const dcp_load_plan *plan)
{
    (void)context;
    for (size_t i = 0; i < dcp_load_plan_count(plan); i++) {
        dcp_read_item item;
        dcp_tensor tensor;
        dcp_status status = dcp_load_plan_item(plan, i, &item);
        if (!item.is_tensor)
            continue;
        if (status == DCP_OK)
            status = dcp_loading_resolve_tensor(loading, i, &tensor);
        if (status != DCP_OK)
            return status;
        if (tensor.sizes[0] != item.lengths[0])
            return dcp_error_set(DCP_ERR_INTERNAL, "a destination of another size");
        for (int64_t r = 0; r < (tensor.ndim == 2 ? tensor.sizes[0] : 1); r++)
            memset((float *)tensor.data + r * tensor.strides[0], 0,
                   (size_t)tensor.sizes[tensor.ndim - 1] * sizeof(float));
        status = dcp_loading_commit_tensor(loading, i, &tensor);
        if (status != DCP_OK)
            return status;
    }
    return dcp_load_default_read_data(loading); /* the rest */
}

static dcp_status check_zeros(struct job *job)
{
    for (int64_t i = 0; i < SCENE_ROWS * job->scene->columns; i++)
        if (job->scene->w[i] != 0)
            return dcp_error_set(DCP_ERR_INTERNAL, "w is not all zeros");
    int64_t step = 0;
    dcp_state_as_int(dcp_state_find(job->scene->root, "step"), &step);
    return step == 1000 ? DCP_OK : dcp_error_set(DCP_ERR_INTERNAL, "step is %d", (int)step);
}

static void a_reader_may_bring_the_elements_by_itself(void **state)
{
    load_must(state, (struct test){.reader.read_data = reads_by_itself, .check = check_zeros});
}

static void views_locate_streams(void **state)
{
    dcp_checkpoint *checkpoint;
    dcp_storage_location location;
    const int64_t second[] = {SCENE_ROWS / 2, 0}, none[] = {1, 0};
    must(dcp_checkpoint_open(path_in(state, "c"), NULL, &checkpoint));
    dcp_item_index index = {.name = "w", .offsets = second, .ndim = 2};
    must(dcp_checkpoint_locate(checkpoint, &index, &location));
    assert_string_equal(location.path, "__1_0.distcp");
    assert_true(location.length > 0);
    index.offsets = none;
    must_fail(dcp_checkpoint_locate(checkpoint, &index, &location), DCP_ERR_NOT_FOUND, "w: no");
    index.name = "x";
    must_fail(dcp_checkpoint_locate(checkpoint, &index, &location), DCP_ERR_NOT_FOUND, "x: not");
    must_fail(dcp_checkpoint_locate(NULL, &index, &location), DCP_ERR_ARGUMENT, "needs");
    dcp_checkpoint_close(checkpoint);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reader_that_is_passed_needs_no_id),
        cmocka_unit_test(a_reader_works_within_a_limit_of_memory),
        cmocka_unit_test(the_first_reader_that_takes_the_id_is_used),
        cmocka_unit_test(ids_that_nobody_takes_are_files_or_nothing),
        cmocka_unit_test(ranks_that_choose_differently_are_reported),
        cmocka_unit_test(files_of_pytorch_are_read_from_memory),
        cmocka_unit_test(damaged_streams_are_refused),
        cmocka_unit_test(readers_that_do_not_read_are_refused),
        cmocka_unit_test(a_reader_may_bring_the_elements_by_itself),
        cmocka_unit_test(views_locate_streams),
    };
    return cmocka_run_group_tests(tests, scene_setup, directory_teardown);
}
