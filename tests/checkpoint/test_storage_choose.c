/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves that choose their storage by the checkpoint's id, and loads that nobody else takes part in.
 * Loads that choose are in test_storage_reader.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/load_scene.h"
#include "checkpoint/memory_store.h"

static bool takes(void *context, const char *id)
{
    return strcmp(context, id) == 0;
}

static dcp_status refuse(void *context, const char *id)
{
    return dcp_error_set(DCP_ERR_DEVICE, "\"%s\" has been asked for %s", (const char *)context, id);
}

/* Writers that can be told apart by how they fail. */
static dcp_storage_writer writer_for(char *id)
{
    return (dcp_storage_writer){.size_of = sizeof(dcp_storage_writer),
                                .context = id,
                                .validate_checkpoint_id = takes,
                                .reset = refuse};
}

static dcp_status save_as(const char *id, const dcp_save_options *options)
{
    dcp_state *state = dcp_state_new();
    dcp_state_int(state, "step", 1);
    dcp_status status = dcp_save(state, id, options);
    dcp_state_free(state);
    return status;
}

static void the_first_writer_that_takes_the_id_is_used(void **state)
{
    char a[] = "a://1", b[] = "b://1", again[] = "b://1";
    const dcp_storage_writer none = {.size_of = sizeof none};
    const dcp_storage_writer first = writer_for(a), second = writer_for(b),
                             third = writer_for(again);
    const dcp_storage_writer *writers[] = {&none, &first, &second, &third};
    dcp_save_options options = {.storage_writers = writers, .storage_writer_count = 4};
    must_fail(save_as("a://1", &options), DCP_ERR_DEVICE, "\"a://1\" has been asked for a://1");
    must_fail(save_as("b://1", &options), DCP_ERR_DEVICE, "\"b://1\" has been asked for b://1");
    must_fail(save_as("c://1", &options), DCP_ERR_UNSUPPORTED, "no storage takes \"c://1\"");
    must_fail(save_as("", &options), DCP_ERR_ARGUMENT, "");
    must(save_as(path_in(state, "files"), &options));
    must_fail(save_as("c://1", NULL), DCP_ERR_UNSUPPORTED, "no storage takes \"c://1\"");
    writers[0] = NULL;
    must_fail(save_as("a://1", &options), DCP_ERR_ARGUMENT, "one of the storage writers is NULL");
    /* One that is passed is used, and may refuse the id. */
    options.storage_writer = &first;
    must_fail(save_as("b://1", &options), DCP_ERR_ARGUMENT, "does not accept the id \"b://1\"");
}

static dcp_status load_alone(struct rank *self)
{
    const struct rank alone = {.size = 1};
    dcp_load_options options = {.group = self->group, .coordinator = 1, .no_dist = true};
    struct scene scene;
    if (self->rank == 1)
        return DCP_OK; /* and does not come */
    scene_init(&scene, &alone, false);
    dcp_status status = dcp_load(scene.root, self->path, &options, NULL);
    if (status == DCP_OK)
        status = scene_check(&scene);
    scene_free(&scene);
    return status;
}

static void a_rank_may_load_by_itself(void **state)
{
    ranks_must(2, path_in(state, "c"), scene_save, NULL);
    ranks_must(2, path_in(state, "c"), load_alone, NULL);
}

/* ---- several ranks ---- */

static dcp_status set_nowhere(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    (void)context;
    (void)saving;
    (void)plan;
    return DCP_OK;
}

static bool take_other(void *context, const char *checkpoint_id)
{
    (void)context;
    return strncmp(checkpoint_id, "other:", 6) == 0;
}

static dcp_status choose_body(struct rank *self)
{
    struct store *store = self->context;
    const dcp_storage_writer other = {
        .size_of = sizeof other, .validate_checkpoint_id = take_other, .write_data = set_nowhere};
    const dcp_storage_writer *writers[] = {&other, &store->writer};
    dcp_save_options options = {.group = self->group,
                                .timeout_seconds = 20,
                                .storage_writers = writers,
                                .storage_writer_count = 2};
    dcp_state *root = dcp_state_new();
    dcp_state_int(root, "rank", self->rank);
    if (store->mischief && self->rank == 1)
        options.storage_writer_count = 1;
    dcp_status status = dcp_save(root, self->path, &options);
    dcp_state_free(root);
    return status;
}

static void chooses_by_the_id(void **state)
{
    struct store store;
    struct rank ranks[RANKS_MAX];
    store_init(&store);
    store.writer.validate_checkpoint_id = store_takes;
    store.writer.set_up_storage_writer = store_set_up;
    store.writer.write_data = store_write;
    store.writer.finish = store_finish;
    ranks_must(2, "store:first", choose_body, &store);
    assert_int_equal(store.count, 2);
    store_clear(&store);
    ranks_must(2, path_in(state, "a"), choose_body, &store);
    assert_int_equal(store.count, 0);
    assert_int_equal(access(path_in(state, "a"), F_OK), 0);

    ranks_run(ranks, 2, "other:id", choose_body, &store);
    assert_int_equal(ranks[1].status, DCP_ERR_ARGUMENT);
    assert_non_null(strstr(ranks[1].message, "hook write_data has not set the locations"));
    ranks_run(ranks, 2, "s3://bucket/key", choose_body, &store);
    assert_int_equal(ranks[1].status, DCP_ERR_UNSUPPORTED);
    assert_non_null(strstr(ranks[1].message, "no storage takes \"s3://bucket/key\""));
    store.mischief = true;
    ranks_run(ranks, 2, "store:first", choose_body, &store);
    assert_int_equal(ranks[0].status, DCP_ERR_ARGUMENT);
    assert_string_equal(ranks[0].message, ranks[1].message);
    store_clear(&store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_writer_that_takes_the_id_is_used),
        cmocka_unit_test(a_rank_may_load_by_itself),
        cmocka_unit_test(chooses_by_the_id),
    };
    return cmocka_run_group_tests(tests, directory_setup, directory_teardown);
}
