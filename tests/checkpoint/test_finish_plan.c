/* SPDX-License-Identifier: BSD-3-Clause */
/* What finish_plan of a save's planner may do to the plan, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/planner_trial.h"

enum { RANKS = 2, ITEMS = 8 };

/* Tensors and objects, so that a wrong order would be noticed. */
static void add_all(dcp_state *root, float data[ROWS][COLUMNS], int64_t *step,
                    const struct rank *self)
{
    dcp_tensor tensor = {.dtype = DCP_I64, .data = step};
    build(root, data, self, false);
    dcp_state_tensor(root, "count", &tensor);
}

static size_t take_items(dcp_save_plan *plan, dcp_write_item items[ITEMS])
{
    size_t count = dcp_save_plan_count(plan);
    assert_true(count <= ITEMS);
    for (size_t i = 0; i < count; i++)
        must(dcp_save_plan_item(plan, i, &items[i]));
    return count;
}

/* Items from a plan come back, some of them as new ones, in the opposite order. */
static dcp_status reverse(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context, (void)saving;
    dcp_write_item items[ITEMS];
    size_t count = take_items(plan, items);
    dcp_save_plan_clear(plan);
    for (size_t i = count; i-- > 0;) {
        if (i % 2)
            items[i].source = 0;
        must(dcp_save_plan_add(plan, &items[i]));
    }
    return dcp_state_string(dcp_save_plan_storage_data(plan), "first",
                            count > 0 ? items[count - 1].index.name : "");
}

struct blob {
    unsigned char bytes[65536];
    size_t size;
};

static dcp_status append(void *context, const void *bytes, size_t size)
{
    struct blob *blob = context;
    assert_true(blob->size + size <= sizeof blob->bytes);
    memcpy(blob->bytes + blob->size, bytes, size);
    blob->size += size;
    return DCP_OK;
}

static const char *directory;

/* One file per item, in the order of the plan. */
static dcp_status write_items(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    (void)context;
    for (size_t i = 0; i < dcp_save_plan_count(plan); i++) {
        static _Thread_local struct blob blob;
        dcp_write_item item;
        dcp_write_data data;
        const char *first;
        size_t length;
        char name[128], path[1024];
        must(dcp_save_plan_item(plan, i, &item));
        const dcp_state *sent = dcp_save_plan_storage_data((dcp_save_plan *)(uintptr_t)plan);
        must(dcp_state_as_text(dcp_state_find(sent, "first"), &first, &length));
        if (i == 0)
            assert_string_equal(first, item.index.name);
        must(dcp_saving_resolve(saving, i, &data));
        assert_int_equal(data.bytes != NULL, !item.is_tensor);
        if (data.release)
            data.release(data.owner);
        blob.size = 0;
        must(dcp_saving_stream(saving, i, append, &blob));
        snprintf(name, sizeof name, "%s.%d", item.index.name,
                 item.is_tensor && item.index.ndim > 0 ? (int)item.index.offsets[0] : 0);
        snprintf(path, sizeof path, "%s/%s", directory, name);
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        fwrite(blob.bytes, 1, blob.size, file);
        fclose(file);
        dcp_storage_location location = {.path = name, .length = blob.size};
        must(dcp_saving_set_location(saving, i, &location));
    }
    return DCP_OK;
}

struct reversal {
    dcp_save_planner planner;
    const dcp_storage_writer *writer;
};

static dcp_status save_twice(struct rank *self)
{
    const struct reversal *reversal = self->context;
    float data[ROWS][COLUMNS];
    int64_t step = 41;
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_save_options options = {.group = self->group,
                                .timeout_seconds = 20,
                                .planner = &reversal->planner,
                                .storage_writer = reversal->writer,
                                .overwrite = DCP_OVERWRITE_REPLACE,
                                .figures = &figures};
    dcp_status status = dcp_save_plan_cache_new(&options.plan_cache);
    for (int i = 0; i < 2 && status == DCP_OK; i++) {
        dcp_state *root = dcp_state_new();
        step++;
        add_all(root, data, &step, self);
        status = dcp_save(root, self->path, &options);
        dcp_state_free(root);
        if (status == DCP_OK && figures.plan_reused != (i > 0))
            status = dcp_error_set(DCP_ERR_INTERNAL, "save %d: the plan was%s reused", i,
                                   figures.plan_reused ? "" : " not");
    }
    dcp_save_plan_cache_free(options.plan_cache);
    return status;
}

static void check_values(const char *path)
{
    float read[ROWS][COLUMNS];
    int64_t count = 0, step = 0;
    struct rank alone = {.size = 1};
    dcp_state *root = dcp_state_new();
    add_all(root, read, &count, &alone);
    memset(read, 0, sizeof read);
    must(dcp_load(root, path, NULL, NULL));
    assert_int_equal(count, 43);
    must(dcp_state_as_int(dcp_state_find(dcp_state_find(root, "train"), "step"), &step));
    assert_int_equal(step, 7);
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t j = 0; j < COLUMNS; j++)
            assert_true(read[i][j] == value_at(i, j));
    dcp_state_free(root);
}

static void items_may_come_in_another_order(void **state)
{
    struct reversal reversal = {
        .planner = {.size_of = sizeof reversal.planner, .finish_plan = reverse}};
    ranks_must(RANKS, path_in(state, "files"), save_twice, &reversal);
    check_values(path_in(state, "files"));
}

static void a_storage_writer_gets_the_order_and_the_data(void **state)
{
    dcp_storage_writer writer = {.size_of = sizeof writer, .write_data = write_items};
    struct reversal reversal = {
        .planner = {.size_of = sizeof reversal.planner, .finish_plan = reverse}, .writer = &writer};
    needs_files();
    directory = path_in(state, "items");
    ranks_must(RANKS, directory, save_twice, &reversal);
    check_values(directory);
}

/* ---- refused ---- */

/* The last item. */
static dcp_status drop_one(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context, (void)saving;
    dcp_write_item items[ITEMS];
    size_t count = take_items(plan, items);
    dcp_save_plan_clear(plan);
    for (size_t i = 0; i + 1 < count; i++)
        must(dcp_save_plan_add(plan, &items[i]));
    return DCP_OK;
}

static dcp_status drop_all(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context, (void)saving;
    dcp_save_plan_clear(plan);
    return DCP_OK;
}

static dcp_status add_one(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context, (void)saving;
    dcp_write_item item = {.index = {.name = "zzz"}, .is_tensor = true, .dtype = DCP_F32};
    return dcp_save_plan_add(plan, &item);
}

static dcp_status repeat_one(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context, (void)saving;
    dcp_write_item item;
    must(dcp_save_plan_item(plan, 0, &item));
    return dcp_save_plan_add(plan, &item);
}

/* The matrix, of which each rank has a part. */
static size_t find_matrix(const dcp_save_plan *plan, dcp_write_item *item)
{
    for (size_t i = 0; i < dcp_save_plan_count(plan); i++) {
        must(dcp_save_plan_item(plan, i, item));
        if (item->is_tensor)
            return i;
    }
    fail_msg("there is no tensor in the plan");
    return 0;
}

#define CHANGING(name, change)                                                                     \
    static dcp_status name(void *context, dcp_saving *saving, dcp_save_plan *plan)                 \
    {                                                                                              \
        (void)context, (void)saving;                                                               \
        dcp_write_item item;                                                                       \
        int64_t numbers[2] = {0, 0};                                                               \
        size_t index = find_matrix(plan, &item);                                                   \
        change;                                                                                    \
        (void)numbers;                                                                             \
        return dcp_save_plan_set_item(plan, index, &item);                                         \
    }

CHANGING(change_name, (item.index.name = "model.v", item.path_length = 0))
CHANGING(change_dtype, item.dtype = DCP_F64)
CHANGING(change_grad, item.requires_grad = !item.requires_grad)
CHANGING(change_source, item.source += 1)
CHANGING(change_sizes, (numbers[0] = 1, numbers[1] = COLUMNS, item.sizes = numbers))
CHANGING(change_shape, (numbers[0] = ROWS + 1, numbers[1] = COLUMNS, item.global_shape = numbers))

static dcp_status change_length(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context, (void)saving;
    for (size_t i = 0; i < dcp_save_plan_count(plan); i++) {
        dcp_write_item item;
        must(dcp_save_plan_item(plan, i, &item));
        item.object_length += 1;
        must(dcp_save_plan_set_item(plan, i, &item));
    }
    return DCP_OK;
}

static void what_the_metadata_says_is_settled(void **state)
{
    const struct {
        dcp_status (*finish_plan)(void *context, dcp_saving *saving, dcp_save_plan *plan);
        const char *message;
    } cases[] = {
        {drop_one, "hook finish_plan has removed an item of"},
        {drop_all, "hook finish_plan has removed an item of"},
        {add_one, "hook finish_plan has added an item of \"zzz\""},
        {repeat_one, "hook finish_plan has added an item of"},
        {change_name, "hook finish_plan has "},
        {change_dtype, "changed the dtype of an item of \"model.w\""},
        {change_grad, "changed the requires_grad of an item of \"model.w\""},
        {change_source, "changed the source of an item of \"model.w\""},
        {change_sizes, "hook finish_plan has "},
        {change_shape, "changed the global_shape of an item of \"model.w\""},
        {change_length, "changed the object_length of an item of"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct trial trial = {.planner.finish_plan = cases[i].finish_plan};
        struct rank ranks[RANKS_MAX];
        const char *path = path_in(state, "refused");
        ranks_run(ranks, RANKS, path, body, &trial);
        for (int rank = 0; rank < RANKS; rank++) {
            assert_int_equal(ranks[rank].status, DCP_ERR_ARGUMENT);
            if (!strstr(ranks[rank].message, cases[i].message))
                fail_msg("case %zu: \"%s\"", i, ranks[rank].message);
        }
        assert_int_not_equal(access(path, F_OK), 0);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)
    const struct CMUnitTest tests[] = {
        TEST(items_may_come_in_another_order),
        TEST(a_storage_writer_gets_the_order_and_the_data),
        TEST(what_the_metadata_says_is_settled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
