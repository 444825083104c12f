/* SPDX-License-Identifier: BSD-3-Clause */
/* Storages of the caller's own that fail, or say what cannot be: every rank is told, and nothing is
 * left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/memory_store.h"

static dcp_status write_default(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    (void)context;
    (void)plan;
    return dcp_save_default_write_data(saving);
}

static dcp_status set_nowhere(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    (void)context;
    (void)saving;
    (void)plan;
    return DCP_OK;
}

static dcp_status locate(dcp_saving *saving, const dcp_save_plan *plan, const char *path,
                         uint64_t offset, uint64_t length)
{
    dcp_storage_location location = {path, offset, length};
    if (dcp_save_plan_count(plan) == 0)
        return DCP_OK;
    return dcp_saving_set_location(saving, 0, &location);
}

#define LOCATION(name, path, offset, length)                                                       \
    static dcp_status name(void *context, dcp_saving *saving, const dcp_save_plan *plan)           \
    {                                                                                              \
        (void)context;                                                                             \
        return locate(saving, plan, path, offset, length);                                         \
    }
LOCATION(leads_out, "items/../../../etc/passwd", 0, 10)
LOCATION(absolute, "/etc/passwd", 0, 10)
LOCATION(no_path, NULL, 0, 10)
LOCATION(no_bytes, "a", 0, 0)
LOCATION(too_far, "a", INT64_MAX, 10)

static dcp_status twice(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    dcp_status status = leads_out(context, saving, plan);
    status = locate(saving, plan, "a", 0, 10);
    return status == DCP_OK ? locate(saving, plan, "a", 0, 10) : status;
}

static dcp_status fail_write(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    (void)context;
    (void)saving;
    (void)plan;
    return dcp_error_set(DCP_ERR_IO, "the wire is cut");
}

static dcp_status refuse_bytes(void *context, const void *bytes, size_t size)
{
    (void)context;
    (void)bytes;
    (void)size;
    return dcp_error_set(DCP_ERR_NO_SPACE, "the store is full");
}

static dcp_status write_into_full_store(void *context, dcp_saving *saving,
                                        const dcp_save_plan *plan)
{
    (void)context;
    (void)plan;
    return dcp_saving_stream(saving, 0, refuse_bytes, NULL);
}

static dcp_status locate_early(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context;
    (void)plan;
    dcp_storage_location location = {"a", 0, 10};
    return dcp_saving_set_location(saving, 0, &location);
}

static dcp_status write_early(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context;
    (void)plan;
    return dcp_save_default_write_data(saving);
}

static dcp_status fail_finish(void *context, dcp_saving *saving, const dcp_checkpoint *metadata,
                              const dcp_write_result *results, size_t result_count)
{
    (void)context;
    (void)saving;
    (void)metadata;
    (void)results;
    (void)result_count;
    return dcp_error_set(DCP_ERR_IO, "the wire is cut");
}

static dcp_status finish_default_blindly(void *context, dcp_saving *saving,
                                         const dcp_checkpoint *metadata,
                                         const dcp_write_result *results, size_t result_count)
{
    (void)context;
    (void)metadata;
    (void)results;
    (void)result_count;
    return dcp_save_default_finish(saving);
}

static void every_rank_fails_and_nothing_is_left(void **state)
{
    const struct {
        dcp_storage_writer writer;
        dcp_status status;
        const char *message;
    } cases[] = {
        {{.write_data = set_nowhere},
         DCP_ERR_ARGUMENT,
         "hook write_data has not set the locations"},
        {{.write_data = leads_out}, DCP_ERR_ARGUMENT, "may lead out of the checkpoint"},
        {{.write_data = absolute}, DCP_ERR_ARGUMENT, "may lead out of the checkpoint"},
        {{.write_data = no_path}, DCP_ERR_ARGUMENT, "its location has no path"},
        {{.write_data = no_bytes}, DCP_ERR_ARGUMENT, "length of its location is 0, or too large"},
        {{.write_data = too_far}, DCP_ERR_ARGUMENT, "length of its location is 0, or too large"},
        {{.write_data = twice}, DCP_ERR_ARGUMENT, "was already set"},
        {{.write_data = fail_write}, DCP_ERR_IO, "rank 0: hook write_data: the wire is cut"},
        {{.write_data = write_into_full_store},
         DCP_ERR_NO_SPACE,
         "hook write_data: the store is full"},
        {{.prepare_local_plan = locate_early}, DCP_ERR_ARGUMENT, "there is no item 0"},
        {{.prepare_local_plan = write_early},
         DCP_ERR_STATE,
         "files can be written only in hook write_data"},
        {{.finish = fail_finish}, DCP_ERR_IO, "rank 0: hook finish: the wire is cut"},
        {{.set_up_storage_writer = store_set_up},
         DCP_ERR_STATE,
         "has not called dcp_save_default_set_up_storage_writer(), so a hook write_data"},
        {{.set_up_storage_writer = store_set_up, .write_data = store_write},
         DCP_ERR_STATE,
         "has not called dcp_save_default_set_up_storage_writer(), so a hook finish"},
        {{.set_up_storage_writer = store_set_up,
          .write_data = write_default,
          .finish = fail_finish},
         DCP_ERR_STATE,
         "there is no directory to write to"},
        {{.set_up_storage_writer = store_set_up,
          .write_data = store_write,
          .finish = finish_default_blindly},
         DCP_ERR_STATE,
         "there is no directory to finish"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct store store;
        struct rank ranks[RANKS_MAX];
        store_init(&store);
        store.writer = cases[i].writer;
        store.writer.size_of = sizeof store.writer;
        store.writer.context = &store;
        store.writer.abandon = store_abandon;
        const char *path = path_in(state, "refused");
        ranks_run(ranks, 2, path, store_save, &store);
        for (int rank = 0; rank < 2; rank++) {
            if (ranks[rank].status != cases[i].status ||
                !strstr(ranks[rank].message, cases[i].message))
                fail_msg("case %zu, rank %d: status %d, \"%s\" does not contain \"%s\"", i, rank,
                         ranks[rank].status, ranks[rank].message, cases[i].message);
            assert_string_equal(ranks[rank].message, ranks[0].message);
        }
        assert_int_equal(store.abandoned, 2);
        assert_int_not_equal(access(path, F_OK), 0);
        store_clear(&store);
    }
}

/* ---- what a storage says of a save ---- */

/* What it is to say is the store's directory, or one of these. */
static dcp_status say(void *context, dcp_storage_meta *meta)
{
    static const char *const broken[] = {"a", "\xff"}, *const missing[] = {"a", NULL};
    struct store *store = context;
    const char *what = store->directory;
    if (strcmp(what, "broken module") == 0)
        *meta = (dcp_storage_meta){.modules = broken, .module_count = 2};
    else if (strcmp(what, "missing module") == 0)
        *meta = (dcp_storage_meta){.modules = missing, .module_count = 2};
    else if (strcmp(what, "no list") == 0)
        *meta = (dcp_storage_meta){.module_count = 2};
    else if (strcmp(what, "checkpoint_id") == 0)
        *meta = (dcp_storage_meta){.checkpoint_id = "\xc3"};
    else if (strcmp(what, "save_id") == 0)
        *meta = (dcp_storage_meta){.save_id = "\xc3"};
    else
        *meta = (dcp_storage_meta){.load_id = "\xc3"};
    return DCP_OK;
}

static void refuses_descriptions_that_nobody_could_read(void **state)
{
    static const struct {
        const char *what;
        const char *message;
    } cases[] = {
        {"broken module", "hook storage_meta gave a module that is not valid UTF-8"},
        {"missing module", "hook storage_meta gave no module 1 of 2"},
        {"no list", "hook storage_meta gave no module 0 of 2"},
        {"checkpoint_id", "hook storage_meta gave a checkpoint_id that is not valid UTF-8"},
        {"save_id", "hook storage_meta gave a save_id that is not valid UTF-8"},
        {"load_id", "hook storage_meta gave a load_id that is not valid UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct store store;
        struct rank ranks[RANKS_MAX];
        store_init(&store);
        store.writer.storage_meta = say;
        store.directory = cases[i].what;
        ranks_run(ranks, 2, path_in(state, "refused"), store_save, &store);
        assert_int_equal(ranks[1].status, DCP_ERR_ARGUMENT);
        assert_string_equal(ranks[0].message, ranks[1].message);
        if (!strstr(ranks[0].message, cases[i].message))
            fail_msg("\"%s\" does not contain \"%s\"", ranks[0].message, cases[i].message);
        assert_int_not_equal(access(path_in(state, "refused"), F_OK), 0);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)
    const struct CMUnitTest tests[] = {
        TEST(every_rank_fails_and_nothing_is_left),
        TEST(refuses_descriptions_that_nobody_could_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
