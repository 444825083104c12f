/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves with planners of the caller's own: what comes of each hook. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/planner_trial.h"

/* The tensor, whatever it is called and stored as, has the values that were saved. */
static void check_tensor(dcp_checkpoint *checkpoint, const char *name, dcp_dtype dtype)
{
    float read[ROWS][COLUMNS];
    size_t entry;
    dcp_entry found;
    must(dcp_checkpoint_find(checkpoint, name, &entry));
    must(dcp_checkpoint_entry(checkpoint, entry, &found));
    assert_int_equal(found.dtype, dtype);
    dcp_state *root = dcp_state_new();
    dcp_tensor tensor = {
        .dtype = DCP_F32, .ndim = 2, .data = read, .global_shape = {ROWS, COLUMNS}};
    dcp_state_tensor(root, name, &tensor);
    dcp_state_free(root);
    if (dtype == DCP_F32)
        must(dcp_checkpoint_read_tensor(checkpoint, entry, &tensor, NULL));
    for (int64_t i = 0; i < ROWS && dtype == DCP_F32; i++)
        for (int64_t j = 0; j < COLUMNS; j++)
            assert_true(read[i][j] == value_at(i, j));
}

/* ---- rename by prefix: another state, or other names in the plan ---- */

struct renaming {
    dcp_state *renamed;
};

static dcp_status rename_state(void *context, dcp_saving *saving, dcp_state *state,
                               const dcp_storage_meta *storage_meta, bool is_coordinator)
{
    (void)storage_meta;
    (void)is_coordinator;
    struct renaming *renaming = context;
    renaming->renamed = dcp_state_new();
    for (size_t i = 0; i < dcp_state_count(state); i++) {
        const char *key = NULL;
        size_t length;
        char name[64];
        dcp_status status = dcp_state_as_text(dcp_state_key_at(state, i), &key, &length);
        if (status != DCP_OK)
            return status;
        snprintf(name, sizeof name, "foo_%s", key);
        dcp_state_copy(renaming->renamed, name, dcp_state_at(state, i));
    }
    return dcp_save_default_set_up_planner(saving, renaming->renamed);
}

static dcp_status rename_body(struct rank *self)
{
    float data[ROWS][COLUMNS];
    struct renaming renaming = {0};
    dcp_save_planner planner = {
        .size_of = sizeof planner, .context = &renaming, .set_up_planner = rename_state};
    dcp_save_options options = {.group = self->group, .planner = &planner};
    dcp_state *root = dcp_state_new();
    build(root, data, self, false);
    dcp_status status = dcp_save(root, self->path, &options);
    dcp_state_free(renaming.renamed);
    dcp_state_free(root);
    return status;
}

static void saves_a_rewritten_state(void **state)
{
    dcp_checkpoint *checkpoint;
    dcp_entry entry;
    size_t index;
    ranks_must(3, path_in(state, "a"), rename_body, NULL);
    must(dcp_checkpoint_open(path_in(state, "a"), NULL, &checkpoint));
    assert_int_equal(dcp_checkpoint_count(checkpoint), 3);
    check_tensor(checkpoint, "foo_model.w", DCP_F32);
    must(dcp_checkpoint_find(checkpoint, "foo_train.step", &index));
    must(dcp_checkpoint_entry(checkpoint, index, &entry));
    assert_string_equal(entry.path[0].key, "foo_train");
    dcp_checkpoint_close(checkpoint);
}

static dcp_status rename_items(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context;
    dcp_status status = dcp_save_default_create_local_plan(saving, plan);
    for (size_t i = 0; i < dcp_save_plan_count(plan) && status == DCP_OK; i++) {
        dcp_write_item item;
        char name[64];
        status = dcp_save_plan_item(plan, i, &item);
        snprintf(name, sizeof name, "bar/%s", item.index.name);
        item.index.name = name;
        item.path_length = 0;
        if (status == DCP_OK)
            status = dcp_save_plan_set_item(plan, i, &item);
    }
    return status;
}

static void saves_items_under_other_names(void **state)
{
    struct trial trial = {.planner.create_local_plan = rename_items};
    dcp_checkpoint *checkpoint;
    size_t index;
    dcp_entry entry;
    ranks_must(2, path_in(state, "a"), body, &trial);
    must(dcp_checkpoint_open(path_in(state, "a"), NULL, &checkpoint));
    check_tensor(checkpoint, "bar/model.w", DCP_F32);
    must(dcp_checkpoint_find(checkpoint, "bar/train.step", &index));
    must(dcp_checkpoint_entry(checkpoint, index, &entry));
    assert_int_equal(entry.path_length, 1);
    dcp_checkpoint_close(checkpoint);
}

/* ---- another dtype ---- */

static dcp_status plan_half(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context;
    dcp_status status = dcp_save_default_create_local_plan(saving, plan);
    for (size_t i = 0; i < dcp_save_plan_count(plan) && status == DCP_OK; i++) {
        dcp_write_item item;
        status = dcp_save_plan_item(plan, i, &item);
        if (status != DCP_OK || !item.is_tensor)
            continue;
        item.dtype = DCP_F16;
        status = dcp_save_plan_set_item(plan, i, &item);
    }
    return status;
}

static void check_half(const char *path)
{
    uint16_t read[ROWS][COLUMNS];
    float wide[ROWS][COLUMNS];
    dcp_checkpoint *checkpoint;
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    check_tensor(checkpoint, "model.w", DCP_F16);
    dcp_tensor half = {.dtype = DCP_F16, .ndim = 2, .data = read, .global_shape = {ROWS, COLUMNS}};
    size_t index;
    must(dcp_checkpoint_find(checkpoint, "model.w", &index));
    must(dcp_checkpoint_read_tensor(checkpoint, index, &half, NULL));
    assert_int_equal(read[0][4], 0x3c00); /* 1.0 */
    assert_int_equal(read[1][0], 0x4e40); /* 25.0 */
    dcp_checkpoint_close(checkpoint);

    dcp_state *root = dcp_state_new();
    dcp_tensor tensor = {
        .dtype = DCP_F32, .ndim = 2, .data = wide, .global_shape = {ROWS, COLUMNS}};
    dcp_state_tensor(dcp_state_dict(root, "model"), "w", &tensor);
    must(dcp_load(root, path, &(dcp_load_options){.convert = true}, NULL));
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t j = 0; j < COLUMNS; j++)
            assert_true(wide[i][j] == value_at(i, j));
    dcp_state_free(root);
}

static void converts_while_saving(void **state)
{
    struct trial trial = {.planner.create_local_plan = plan_half};
    ranks_must(2, path_in(state, "a"), body, &trial);
    check_half(path_in(state, "a"));
    trial.whole = true;
    ranks_must(2, path_in(state, "b"), body, &trial);
    check_half(path_in(state, "b"));
#if DCP_HAVE_ZSTD
    trial.options.compression = DCP_COMPRESSION_ZSTD;
    ranks_must(2, path_in(state, "c"), body, &trial);
    check_half(path_in(state, "c"));
#endif
}

static atomic_int held;

static void release(void *owner)
{
    atomic_fetch_sub(&held, 1);
    free(owner);
}

/* Twice the values, in memory of its own, as doubles. */
static dcp_status resolve_doubled(void *context, dcp_saving *saving, const dcp_write_item *item,
                                  dcp_write_data *data)
{
    (void)context;
    dcp_write_data plain;
    dcp_status status = dcp_save_default_resolve_data(saving, item, &plain);
    if (status != DCP_OK || !item->is_tensor) {
        *data = plain;
        return status;
    }
    int64_t rows = item->sizes[0], columns = item->sizes[1];
    double *doubled = malloc((size_t)(rows * columns) * sizeof *doubled);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            doubled[i * columns + j] =
                2 * ((const float *)plain.data)[i * plain.strides[0] + j * plain.strides[1]];
    atomic_fetch_add(&held, 1);
    data->dtype = DCP_F64;
    data->data = doubled;
    data->release = release;
    data->owner = doubled;
    return DCP_OK;
}

static void writes_what_the_planner_resolves(void **state)
{
    struct trial trial = {.planner.resolve_data = resolve_doubled};
    float read[ROWS][COLUMNS];
    dcp_checkpoint *checkpoint;
    ranks_must(2, path_in(state, "a"), body, &trial);
    assert_int_equal(atomic_load(&held), 0);
    must(dcp_checkpoint_open(path_in(state, "a"), NULL, &checkpoint));
    dcp_tensor tensor = {
        .dtype = DCP_F32, .ndim = 2, .data = read, .global_shape = {ROWS, COLUMNS}};
    size_t index;
    must(dcp_checkpoint_find(checkpoint, "model.w", &index));
    must(dcp_checkpoint_read_tensor(checkpoint, index, &tensor, NULL));
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t j = 0; j < COLUMNS; j++)
            assert_true(read[i][j] == 2 * value_at(i, j));
    dcp_checkpoint_close(checkpoint);
}

/* An item that is not in the state, and an object in the place of another. */
static dcp_status add_item(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context;
    dcp_write_item item = {.index.name = "note"};
    dcp_status status = dcp_save_default_create_local_plan(saving, plan);
    return status == DCP_OK ? dcp_save_plan_add(plan, &item) : status;
}

static dcp_status look_up_note(void *context, dcp_saving *saving, const dcp_write_item *item,
                               const dcp_state **object)
{
    const struct trial *trial = context;
    if (strcmp(item->index.name, "note") != 0)
        return dcp_save_default_lookup_object(saving, item, object);
    *object = dcp_state_find((const dcp_state *)trial->options.info, "note");
    return DCP_OK;
}

/* Items of an earlier and of a later version, as hooks have them that were compiled with these. */
static dcp_status items_of_other_versions(dcp_saving *saving, const dcp_write_item *item,
                                          const dcp_state *object)
{
    struct {
        dcp_write_item known;
        size_t later;
    } longer = {*item, 0};
    dcp_write_data data;
    const dcp_state *found = NULL;
    dcp_write_item shorter = *item;
    shorter.source = UINT64_MAX;
    dcp_status status = dcp_save_default_lookup_object_sized(
        saving, &shorter, offsetof(dcp_write_item, source), &found);
    if (status != DCP_OK || found != object)
        return dcp_error_set(DCP_ERR_INTERNAL, "an item of an earlier version is misread");
    status = dcp_save_default_resolve_data_sized(saving, &longer.known, sizeof longer, &data);
    if (status == DCP_OK && data.release)
        data.release(data.owner);
    longer.later = 1;
    if (status != DCP_OK ||
        dcp_save_default_transform_object_sized(saving, &longer.known, sizeof longer, object,
                                                &data) != DCP_ERR_ARGUMENT)
        return dcp_error_set(DCP_ERR_INTERNAL, "an item of a later version is misread");
    return DCP_OK;
}

static dcp_status transform_checking(void *context, dcp_saving *saving, const dcp_write_item *item,
                                     const dcp_state *object, dcp_write_data *data)
{
    static _Thread_local bool checked;
    (void)context;
    if (!checked && item->is_tensor) {
        checked = true;
        dcp_status status = items_of_other_versions(saving, item, object);
        checked = false;
        if (status != DCP_OK)
            return status;
    }
    return dcp_save_default_transform_object(saving, item, object, data);
}

static void hooks_may_be_of_other_versions(void **state)
{
    struct trial trial = {.planner.transform_object = transform_checking};
    ranks_must(2, path_in(state, "a"), body, &trial);
}

static dcp_status transform_step(void *context, dcp_saving *saving, const dcp_write_item *item,
                                 const dcp_state *object, dcp_write_data *data)
{
    (void)context;
    dcp_state *root = dcp_state_new();
    dcp_state_string(root, "text", "seven");
    if (strcmp(item->index.name, "train.step") == 0)
        object = dcp_state_find(root, "text");
    dcp_status status = dcp_save_default_transform_object(saving, item, object, data);
    dcp_state_free(root);
    return status;
}

static void looks_up_and_transforms(void **state)
{
    dcp_state *info = dcp_state_new();
    dcp_state_string(info, "note", "a note");
    struct trial trial = {.planner = {.create_local_plan = add_item,
                                      .lookup_object = look_up_note,
                                      .transform_object = transform_step},
                          .options.info = info};
    dcp_checkpoint *checkpoint;
    ranks_must(2, path_in(state, "a"), body, &trial);
    must(dcp_checkpoint_open(path_in(state, "a"), NULL, &checkpoint));
    dcp_state *root = dcp_state_new();
    static const char *const names[] = {"note", "train.step"};
    static const char *const texts[] = {"a note", "seven"};
    for (size_t i = 0; i < 2; i++) {
        size_t index, length;
        const char *text = NULL;
        must(dcp_checkpoint_find(checkpoint, names[i], &index));
        must(dcp_checkpoint_read_object(checkpoint, index, root, names[i], NULL));
        must(dcp_state_as_text(dcp_state_find(root, names[i]), &text, &length));
        assert_string_equal(text, texts[i]);
    }
    check_tensor(checkpoint, "model.w", DCP_F32);
    dcp_state_free(root);
    dcp_checkpoint_close(checkpoint);
    dcp_state_free(info);
}

/* ---- the global plan ---- */

/* Row by row in turn, whoever holds what. */
static dcp_status deal_rows(void *context, dcp_saving *saving, dcp_save_plan *const *plans,
                            int plan_count)
{
    (void)context;
    (void)saving;
    size_t count = dcp_save_plan_count(plans[0]);
    dcp_write_item *items = calloc(count, sizeof *items);
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < count; i++)
        must(dcp_save_plan_item(plans[0], i, &items[i]));
    for (int rank = 0; rank < plan_count; rank++)
        dcp_save_plan_clear(plans[rank]);
    for (size_t i = 0; i < count && status == DCP_OK; i++) {
        if (!items[i].is_tensor)
            status = dcp_save_plan_add(plans[i % (size_t)plan_count], &items[i]);
        for (int64_t row = 0; items[i].is_tensor && row < ROWS && status == DCP_OK; row++) {
            const int64_t offsets[] = {row, 0}, sizes[] = {1, COLUMNS};
            dcp_write_item item = items[i];
            item.index.offsets = offsets;
            item.sizes = sizes;
            status = dcp_save_plan_add(plans[row % plan_count], &item);
        }
    }
    free(items);
    return status;
}

static void carries_out_a_global_plan(void **state)
{
    struct trial trial = {.planner.create_global_plan = deal_rows, .whole = true};
    dcp_checkpoint *checkpoint;
    dcp_entry entry;
    size_t index;
    ranks_must(3, path_in(state, "a"), body, &trial);
    must(dcp_checkpoint_open(path_in(state, "a"), NULL, &checkpoint));
    check_tensor(checkpoint, "model.w", DCP_F32);
    must(dcp_checkpoint_find(checkpoint, "model.w", &index));
    must(dcp_checkpoint_entry(checkpoint, index, &entry));
    assert_int_equal(entry.chunk_count, ROWS);
    for (size_t i = 0; i < ROWS; i++) {
        dcp_stored_chunk chunk;
        char file[32];
        must(dcp_checkpoint_chunk(checkpoint, index, i, &chunk));
        snprintf(file, sizeof file, "__%d_0.distcp", (int)(chunk.offsets[0] % 3));
        assert_string_equal(chunk.file, file);
    }
    dcp_checkpoint_close(checkpoint);
    uint64_t faults;
    must(dcp_verify(path_in(state, "a"), NULL, NULL, NULL, &faults));
    assert_int_equal(faults, 0);
}

/* ---- planner data, in all directions ---- */

static dcp_status send_rank(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context;
    dcp_write_item item;
    dcp_status status = dcp_save_default_create_local_plan(saving, plan);
    if (status == DCP_OK)
        status = dcp_save_plan_item(plan, 0, &item);
    if (status == DCP_OK)
        status =
            dcp_state_int(dcp_save_plan_planner_data(plan), "first row", item.index.offsets[0]);
    return status;
}

static dcp_status gather_data(void *context, dcp_saving *saving, dcp_save_plan *const *plans,
                              int plan_count)
{
    (void)context;
    dcp_status status = dcp_save_default_create_global_plan(saving, plans, plan_count);
    dcp_state *root = dcp_state_new();
    dcp_state *merged = dcp_state_list(root, "merged");
    for (int rank = 0; rank < plan_count; rank++) {
        dcp_state *data = dcp_save_plan_planner_data(plans[rank]);
        dcp_state_copy(merged, NULL, data);
        dcp_state_int(data, "ranks", plan_count);
    }
    if (status == DCP_OK)
        status = dcp_saving_set_planner_data(saving, merged);
    dcp_state_free(root);
    return status;
}

static dcp_status check_finished(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    struct trial *trial = context;
    (void)saving;
    int64_t ranks = 0;
    dcp_state *data = dcp_save_plan_planner_data(plan);
    must(dcp_state_as_int(dcp_state_find(data, "ranks"), &ranks));
    assert_int_equal(ranks, 3);
    atomic_fetch_add(&trial->calls, 1);
    return DCP_OK;
}

static void stores_planner_data_of_all_ranks(void **state)
{
    struct trial trial = {.planner = {.create_local_plan = send_rank,
                                      .create_global_plan = gather_data,
                                      .finish_plan = check_finished}};
    dcp_checkpoint *checkpoint;
    ranks_must(3, path_in(state, "a"), body, &trial);
    assert_int_equal(atomic_load(&trial.calls), 3);
    must(dcp_checkpoint_open(path_in(state, "a"), NULL, &checkpoint));
    const dcp_state *data = dcp_checkpoint_planner_data(checkpoint);
    assert_int_equal(dcp_state_kind(data), DCP_KIND_LIST);
    for (size_t rank = 0; rank < 3; rank++) {
        int64_t row = -1;
        must(dcp_state_as_int(dcp_state_find(dcp_state_at(data, rank), "first row"), &row));
        assert_int_equal(row, 4 * rank);
    }
    check_tensor(checkpoint, "model.w", DCP_F32);
    dcp_checkpoint_close(checkpoint);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)
    const struct CMUnitTest tests[] = {
        TEST(saves_a_rewritten_state),   TEST(saves_items_under_other_names),
        TEST(converts_while_saving),     TEST(writes_what_the_planner_resolves),
        TEST(looks_up_and_transforms),   TEST(hooks_may_be_of_other_versions),
        TEST(carries_out_a_global_plan), TEST(stores_planner_data_of_all_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
