/* SPDX-License-Identifier: BSD-3-Clause */
/* Storages of the caller's own that fail, lie, or lack something. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/load_scene.h"
#include "checkpoint/own_storage.h"
#include "fault/failing_allocator.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* ---- one call that fails ---- */

/* What is wrong with the storage of rank 1, or of both. */
struct fault {
    long fails_at;
    const char *fails_in;
    int fails_with; /* 0: DCP_ERR_IO */
    bool silent;
    uint64_t adds;
    const char *missing;
    bool at_the_coordinator;
    const char *id;    /* that is saved to; NULL: to be loaded from */
    int more;          /* tensors to be saved, each on both ranks */
    bool torn;         /* the ranks' plans do not fit together */
    atomic_long calls; /* of all who have the fault, when they are done */
};

static void own_storage_spoil(struct own_storage *own, const struct fault *fault)
{
    own->fails_at = fault->fails_at;
    own->fails_in = fault->fails_in;
    own->fails_with = fault->fails_with ? fault->fails_with : DCP_ERR_IO;
    own->fails_silently = fault->silent;
    own->adds = fault->adds;
    own->missing = fault->missing;
}

static dcp_status load_scene(const struct rank *self, const struct own_storage *own,
                             dcp_load_options options)
{
    struct scene scene;
    options.group = self->group;
    options.storage = &own->table;
    scene_init(&scene, self, false);
    dcp_status status = dcp_load(scene.root, "store://c", &options, NULL);
    if (status == DCP_OK)
        status = scene_check(&scene);
    scene_free(&scene);
    return status;
}

static dcp_status save_values(const struct rank *self, const struct own_storage *own,
                              const struct fault *fault)
{
    float values[64];
    for (int i = 0; i < 64; i++)
        values[i] = (float)(64 * self->rank + i);
    const dcp_tensor tensor = {.dtype = DCP_F32,
                               .ndim = 1,
                               .sharded = true,
                               .data = values,
                               .global_shape = {128},
                               .offsets = {64 * self->rank},
                               .sizes = {64}};
    const dcp_save_options options = {
        .group = self->group, .storage = &own->table, .overwrite = DCP_OVERWRITE_REPLACE};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "values", &tensor);
    for (int i = 0; i < fault->more; i++) {
        const dcp_tensor one = {.dtype = DCP_F32, .data = &values[0]};
        char name[32];
        snprintf(name, sizeof name, "more%d", i);
        dcp_state_tensor(root, name, &one);
    }
    if (fault->torn && self->rank == 1)
        dcp_state_int(root, "torn", 1);
    else if (fault->torn)
        dcp_state_tensor(root, "torn", &tensor);
    dcp_status status = dcp_save(root, fault->id, &options);
    dcp_state_free(root);
    return status;
}

static dcp_status run_faulty(struct rank *self)
{
    struct fault *fault = self->context;
    struct own_storage own;
    own_storage_init(&own, self->path);
    bool spoiled = self->rank == 1 || fault->at_the_coordinator;
    if (spoiled)
        own_storage_spoil(&own, fault);
    dcp_status status = fault->id ? save_values(self, &own, fault)
                                  : load_scene(self, &own, (dcp_load_options){.thread_count = 2});
    if (spoiled)
        fault->calls += own.calls;
    if (own.open != 0)
        status = dcp_error_set(DCP_ERR_INTERNAL, "%d handles are open", (int)own.open);
    return status;
}

/* Both ranks must hear the same; gives the outcome. */
static dcp_status both_must_agree(void *const *state, struct fault *fault, char message[1024])
{
    struct rank ranks[RANKS_MAX];
    fault->calls = 0;
    ranks_run(ranks, 2, *state, run_faulty, fault);
    if (ranks[0].status != ranks[1].status)
        fail_msg("call %ld: %s and %s", fault->fails_at, ranks[0].message, ranks[1].message);
    if (ranks[0].status != DCP_OK)
        assert_string_equal(ranks[0].message, ranks[1].message);
    snprintf(message, 1024, "%s", ranks[0].status == DCP_OK ? "" : ranks[0].message);
    return ranks[0].status;
}

static void what_a_storage_does_wrong_reaches_every_rank(void **state)
{
    static const struct {
        struct fault fault;
        dcp_status status;
        const char *message;
    } cases[] = {
        {{.fails_at = 1, .fails_in = "open"}, DCP_ERR_IO, "rank 1: "},
        {{.fails_at = 1, .fails_in = "open_file"},
         DCP_ERR_IO,
         "the store is away, open_file of __0_0.distcp with it"},
        {{.fails_at = 1, .fails_in = "read"},
         DCP_ERR_IO,
         "the store is away, read of __0_0.distcp"},
        {{.missing = "__1_0.distcp"}, DCP_ERR_NOT_FOUND, "the store has no __1_0.distcp"},
        {{.missing = ".metadata", .at_the_coordinator = true}, DCP_ERR_NOT_FOUND, "interrupted"},
        {{.fails_at = 1, .at_the_coordinator = true}, DCP_ERR_IO, "rank 0: "},
        {{.adds = 100}, DCP_ERR_FORMAT, "distcp"},
        {{.adds = 1}, DCP_ERR_FORMAT, "distcp"},
        {{.adds = 5000}, DCP_ERR_FORMAT, "distcp"},
        {{.adds = UINT64_MAX / 2, .at_the_coordinator = true}, DCP_ERR_FORMAT, "more than the "},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fault fault = cases[i].fault;
        char message[1024];
        dcp_status status = both_must_agree(state, &fault, message);
        if (status != cases[i].status || !strstr(message, cases[i].message))
            fail_msg("case %zu: %d, %s", i, (int)status, message);
    }
}

/* Values that are no status, and failures without a word. */
static void what_is_no_status_is_an_error_of_the_storage(void **state)
{
    static const char *const loading[] = {"open", "open_file", "read"};
    static const char *const saving[] = {"open", "list", "create",  "write",
                                         "seal", "sync", "prepare", "publish"};
    for (size_t i = 0; i < COUNT(loading) + COUNT(saving); i++)
        for (int silent = 0; silent < 2; silent++) {
            bool load = i < COUNT(loading);
            const char *function = load ? loading[i] : saving[i - COUNT(loading)];
            struct fault fault = {.fails_at = 1,
                                  .fails_in = function,
                                  .fails_with = silent ? DCP_ERR_DEVICE : 77,
                                  .silent = true,
                                  .at_the_coordinator = true,
                                  .id = load ? NULL : "store://again"};
            char message[1024], text[128];
            snprintf(text, sizeof text,
                     silent ? "the storage's %s failed, and did not say why"
                            : "the storage's %s returned 77, which is not a dcp_status",
                     function);
            struct fault none = {.id = "store://again"};
            must(both_must_agree(state, &none, message));
            dcp_status status = both_must_agree(state, &fault, message);
            if (status != (silent ? DCP_ERR_DEVICE : DCP_ERR_CALLBACK) || !strstr(message, text))
                fail_msg("%s: %d, %s", function, (int)status, message);
        }
}

static void every_call_of_a_load_may_fail(void **state)
{
    struct fault fault = {.fails_at = 0};
    char message[1024];
    int failures = 0;
    do {
        fault.fails_at++;
        dcp_status status = both_must_agree(state, &fault, message);
        if (status != DCP_OK) {
            assert_int_equal(status, DCP_ERR_IO);
            assert_non_null(strstr(message, "rank 1: "));
        }
        failures += status != DCP_OK;
    } while (fault.calls >= fault.fails_at);
    assert_in_range(failures, 5, 100);
}

/* Whatever fails, the directory holds a whole checkpoint, or none. */
static void every_call_of_a_save_may_fail(void **state)
{
    for (int both = 0; both < 2; both++) {
        struct fault fault = {.at_the_coordinator = both != 0};
        int failures = 0;
        do {
            struct own_storage own;
            dcp_checkpoint *checkpoint;
            char message[1024], id[64];
            snprintf(id, sizeof id, "store://save%d_%ld", both, ++fault.fails_at);
            fault.id = id;
            dcp_status status = both_must_agree(state, &fault, message);
            assert_true(status == DCP_OK || status == DCP_ERR_IO);
            failures += status != DCP_OK;
            own_storage_init(&own, *state);
            const dcp_open_options options = {.storage = &own.table};
            dcp_status opened = dcp_checkpoint_open(id, &options, &checkpoint);
            if (opened == DCP_OK)
                dcp_checkpoint_close(checkpoint);
            if (opened != (status == DCP_OK ? DCP_OK : DCP_ERR_NOT_FOUND))
                fail_msg("call %ld: %s, but %s", fault.fails_at, message, dcp_error_message());
            /* What is left of it is in nobody's way. */
            struct fault none = {.id = id};
            must(both_must_agree(state, &none, message));
        } while (fault.calls >= fault.fails_at);
        assert_in_range(failures, 4, 100);
    }
}

/* Metadata of so many tensors is written beside the shards. */
static void metadata_and_shards_may_fail_beside_each_other(void **state)
{
    /* The first publication is the directory's mark, the second one metadata.json. */
    static const struct {
        const char *function;
        long at;
        const char *message;
    } cases[] = {{"prepare", 1, "prepare of .dcp_owner"},
                 {"prepare", 2, "prepare of metadata.json"},
                 {"prepare", 3, "prepare of .metadata"},
                 {"create", 1, "create of __0_0.distcp"},
                 {"seal", 1, "seal of __0_0.distcp"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fault fault = {.fails_in = cases[i].function,
                              .fails_at = cases[i].at,
                              .at_the_coordinator = true,
                              .id = "store://many",
                              .more = 5000};
        struct own_storage own;
        dcp_checkpoint *checkpoint;
        char message[1024];
        assert_int_equal(both_must_agree(state, &fault, message), DCP_ERR_IO);
        if (!strstr(message, cases[i].message))
            fail_msg("case %zu: %s", i, message);
        own_storage_init(&own, *state);
        const dcp_open_options options = {.storage = &own.table};
        assert_int_equal(dcp_checkpoint_open(fault.id, &options, &checkpoint), DCP_ERR_NOT_FOUND);
    }
    struct fault none = {.id = "store://many", .more = 5000};
    struct own_storage own;
    uint64_t faults = 1;
    char message[1024];
    must(both_must_agree(state, &none, message));
    own_storage_init(&own, *state);
    const dcp_open_options options = {.storage = &own.table};
    must(dcp_verify(none.id, &options, NULL, NULL, &faults));
    assert_int_equal(faults, 0);
}

/* Of so many tensors, the session begins meanwhile: nothing of it may stay. */
static void planning_may_fail_while_the_session_begins(void **state)
{
    struct fault torn = {.id = "store://torn", .more = 5000, .torn = true};
    char message[1024];
    assert_int_equal(both_must_agree(state, &torn, message), DCP_ERR_KIND);
    if (!strstr(message, "\"torn\" is a tensor on rank 0, but an object on rank 1"))
        fail_msg("%s", message);
    assert_int_equal(access(path_in(state, "torn"), F_OK), -1);
    /* The session's failure comes second. */
    torn.fails_in = "prepare";
    torn.fails_at = 1;
    torn.at_the_coordinator = true;
    assert_int_equal(both_must_agree(state, &torn, message), DCP_ERR_KIND);
    assert_int_equal(access(path_in(state, "torn"), F_OK), -1);
}

/* ---- attempts ---- */

/* The first attempt fails at one call, the second one does all of it again. */
static dcp_status save_with_retries(struct rank *self)
{
    const char *function = self->context;
    struct own_storage own;
    float value = (float)self->rank;
    dcp_save_chain *chain;
    dcp_future *future;
    const dcp_save_chain_options attempts = {
        .group = self->group, .retries = 1, .retry_seconds = 0.01};
    own_storage_init(&own, self->path);
    /* The first publication is the directory's mark, which is there before the data is copied. */
    long at = strncmp(function, "p", 1) == 0 ? 2 : 1;
    own.fails_in = function;
    own.fails_at = self->rank == 0 ? at : 0;
    dcp_status status = dcp_save_chain_new(&attempts, &chain);
    if (status != DCP_OK)
        return status;
    const dcp_tensor tensor = {.dtype = DCP_F32,
                               .ndim = 1,
                               .sharded = true,
                               .data = &value,
                               .global_shape = {2},
                               .offsets = {self->rank},
                               .sizes = {1}};
    const dcp_save_options options = {.group = self->group,
                                      .storage = &own.table,
                                      .overwrite = DCP_OVERWRITE_REPLACE,
                                      .chain = chain};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "value", &tensor);
    status = dcp_save_async(root, "store://again", &options, &future);
    dcp_state_free(root);
    if (status == DCP_OK) {
        status = dcp_future_wait(future, -1);
        dcp_future_free(future);
    }
    dcp_save_chain_free(chain);
    if (status == DCP_OK && self->rank == 0 && own.calls < at + 1)
        status = dcp_error_set(DCP_ERR_INTERNAL, "%s was not called again", function);
    if (status == DCP_OK && own.open != 0)
        status = dcp_error_set(DCP_ERR_INTERNAL, "%d handles are open", (int)own.open);
    return status;
}

static void a_save_that_has_failed_is_tried_again(void **state)
{
    static char functions[][12] = {"create", "write", "seal", "prepare", "publish"};
    for (size_t i = 0; i < COUNT(functions); i++) {
        struct own_storage own;
        uint64_t faults = 1;
        ranks_must(2, *state, save_with_retries, functions[i]);
        own_storage_init(&own, *state);
        const dcp_open_options options = {.storage = &own.table};
        must(dcp_verify("store://again", &options, NULL, NULL, &faults));
        assert_int_equal(faults, 0);
    }
}

static void every_allocation_may_fail(void **state)
{
    const struct rank alone = {.size = 1};
    for (long n = 1;; n++) {
        struct own_storage own;
        struct scene scene;
        own_storage_init(&own, *state);
        const dcp_load_options options = {.storage = &own.table};
        failing_allocator_install(n, false);
        scene_init(&scene, &alone, false);
        dcp_status status = scene.root ? dcp_state_status(scene.root) : DCP_ERR_NO_MEMORY;
        if (status == DCP_OK)
            status = dcp_load(scene.root, "store://c", &options, NULL);
        bool reached = failing_allocator_reached();
        scene_free(&scene);
        assert_int_equal(failing_allocator_remove(), 0);
        assert_int_equal(own.open, 0);
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        if (!reached)
            break;
    }
}

/* ---- damage ---- */

static uint64_t size_of(const char *path)
{
    struct stat file;
    assert_int_equal(stat(path, &file), 0);
    return (uint64_t)file.st_size;
}

/* One bit of each file in turn; some places mean nothing. */
static void damage_is_found_or_harmless(void **state)
{
    static const char *const files[] = {".metadata", "__0_0.distcp", "__1_0.distcp"};
    const struct rank alone = {.size = 1};
    struct own_storage own;
    int refused = 0;
    own_storage_init(&own, *state);
    for (size_t f = 0; f < COUNT(files); f++) {
        char path[64];
        snprintf(path, sizeof path, "c/%s", files[f]);
        uint64_t size = size_of(path_in(state, path));
        own.damaged = files[f];
        for (own.damaged_at = 0; own.damaged_at < size; own.damaged_at += 11) {
            dcp_status status = load_scene(&alone, &own, (dcp_load_options){0});
            refused += status != DCP_OK;
            if (status == DCP_ERR_INTERNAL)
                fail_msg("%s, byte %zu: %s", files[f], (size_t)own.damaged_at, dcp_error_message());
        }
    }
    assert_true(refused > 100);
}

enum { ELEMENTS = 1 << 20 }; /* 4 MiB */

static dcp_status save_large(struct own_storage *own)
{
    float *elements = malloc(sizeof *elements * ELEMENTS);
    assert_non_null(elements);
    for (int i = 0; i < ELEMENTS; i++)
        elements[i] = (float)i;
    const dcp_tensor tensor = {
        .dtype = DCP_F32, .ndim = 1, .data = elements, .global_shape = {ELEMENTS}};
    const dcp_save_options options = {.storage = &own->table};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "large", &tensor);
    dcp_status status = dcp_save(root, "store://large", &options);
    dcp_state_free(root);
    free(elements);
    return status;
}

/* The second half; DCP_ERR_INTERNAL if it is not as it was saved. */
static dcp_status load_half(const struct own_storage *own, dcp_verification verification)
{
    float *half = calloc(ELEMENTS / 2, sizeof *half);
    assert_non_null(half);
    const dcp_tensor tensor = {.dtype = DCP_F32,
                               .ndim = 1,
                               .sharded = true,
                               .data = half,
                               .global_shape = {ELEMENTS},
                               .offsets = {ELEMENTS / 2},
                               .sizes = {ELEMENTS / 2}};
    const dcp_load_options options = {.storage = &own->table, .verification = verification};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "large", &tensor);
    dcp_status status = dcp_load(root, "store://large", &options, NULL);
    dcp_state_free(root);
    for (int i = 0; i < ELEMENTS / 2 && status == DCP_OK; i++)
        if (half[i] != (float)(ELEMENTS / 2 + i))
            status = dcp_error_set(DCP_ERR_INTERNAL, "element %d is wrong", i);
    free(half);
    return status;
}

/* Also where the half begins in the middle of what has one checksum. */
static void half_of_a_damaged_tensor_is_not_taken_for_sound(void **state)
{
    struct own_storage own;
    int refused = 0;
    own_storage_init(&own, *state);
    must(save_large(&own));
    uint64_t size = size_of(path_in(state, "large/__0_0.distcp")), middle = size / 2;
    own.damaged = "__0_0.distcp";
    for (int i = 0; i < 64; i++) {
        /* Around the middle by kilobytes, then through the rest. */
        own.damaged_at = i < 32 ? middle + 1000 * (uint64_t)i
                                : middle + (size - middle) / 33 * (uint64_t)(i - 31);
        dcp_status status = load_half(&own, DCP_VERIFY_ALL);
        if (status == DCP_ERR_INTERNAL)
            fail_msg("byte %zu: %s", (size_t)own.damaged_at, dcp_error_message());
        refused += status == DCP_ERR_CHECKSUM;
    }
    assert_true(refused > 50);
}

/* ---- tables that are not whole ---- */

static void half_a_storage_is_refused(void **state)
{
    static const size_t needed[] = {
        offsetof(dcp_storage, list),       offsetof(dcp_storage, remove),
        offsetof(dcp_storage, open_file),  offsetof(dcp_storage, read),
        offsetof(dcp_storage, close_file), offsetof(dcp_storage, create),
        offsetof(dcp_storage, write),      offsetof(dcp_storage, seal),
    };
    static const size_t paired[] = {
        offsetof(dcp_storage, open),        offsetof(dcp_storage, close),
        offsetof(dcp_storage, prepare),     offsetof(dcp_storage, publish),
        offsetof(dcp_storage, retract),     offsetof(dcp_storage, queue_open),
        offsetof(dcp_storage, queue_start), offsetof(dcp_storage, queue_finish),
        offsetof(dcp_storage, queue_close),
    };
    const struct rank alone = {.size = 1};
    const struct fault none = {.id = "store://x"};
    struct own_storage own;
    for (size_t i = 0; i < COUNT(needed) + COUNT(paired); i++) {
        bool is_needed = i < COUNT(needed);
        own_storage_init(&own, *state);
        own_storage_add_queue(&own);
        memset((char *)&own.table + (is_needed ? needed[i] : paired[i - COUNT(needed)]), 0,
               sizeof(void (*)(void)));
        const char *text =
            is_needed ? "lacks a required function" : "only some functions of a group";
        dcp_checkpoint *checkpoint;
        const dcp_open_options options = {.storage = &own.table};
        must_fail(load_scene(&alone, &own, (dcp_load_options){0}), DCP_ERR_ARGUMENT, text);
        must_fail(save_values(&alone, &own, &none), DCP_ERR_ARGUMENT, text);
        must_fail(dcp_checkpoint_open("store://c", &options, &checkpoint), DCP_ERR_ARGUMENT, text);
        must_fail(dcp_verify("store://c", &options, NULL, NULL, &(uint64_t){0}), DCP_ERR_ARGUMENT,
                  text);
    }
}

static int setup(void **state)
{
    if (directory_setup(state) != 0)
        return -1;
    ranks_must(2, path_in(state, "c"), scene_save, NULL);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_storage_does_wrong_reaches_every_rank),
        cmocka_unit_test(what_is_no_status_is_an_error_of_the_storage),
        cmocka_unit_test(every_call_of_a_load_may_fail),
        cmocka_unit_test(every_call_of_a_save_may_fail),
        cmocka_unit_test(metadata_and_shards_may_fail_beside_each_other),
        cmocka_unit_test(planning_may_fail_while_the_session_begins),
        cmocka_unit_test(a_save_that_has_failed_is_tried_again),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(damage_is_found_or_harmless),
        cmocka_unit_test(half_of_a_damaged_tensor_is_not_taken_for_sound),
        cmocka_unit_test(half_a_storage_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, directory_teardown);
}
