/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads of one chain plan once, and again when an ingredient of the plan has changed on any rank or
 * in what is stored. Whatever is reused, each rank gets what this checkpoint holds, and the report
 * that a load without a cache gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "checkpoint/load_reuse_scene.h"
#include "fault/failing_allocator.h"
#include "group/group.h"

/* Loads of one chain. */
struct chain {
    const struct reuse_scene *scenes;
    size_t count;
    const char *directory;
    long shortage; /* which allocation of the second load fails, on whichever rank makes it; 0: none
                    */
};

/* ---- loading ---- */

static void together(struct rank *self)
{
    static const struct dcp_collective call = {"waiting", 30};
    must(group_agree(self->group, &call, DCP_OK));
}

static void write_report(const dcp_load_report *report, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < dcp_load_report_count(report) && used < size; i++) {
        dcp_report_line line = {0};
        if (dcp_load_report_line(report, i, &line) != DCP_OK)
            break;
        used += (size_t)snprintf(text + used, size - used, "%d %s %s %s\n", line.difference,
                                 line.name, line.detail, line.stored_name);
    }
}

static dcp_status load_short_of_memory(struct rank *self, dcp_state *root, const char *path,
                                       const dcp_load_options *options, long shortage,
                                       dcp_load_report **report)
{
    together(self);
    if (self->rank == 0)
        failing_allocator_install(shortage, false);
    together(self);
    dcp_status status = dcp_load(root, path, options, report);
    struct saved_error error;
    error_save(&error);
    together(self);
    if (self->rank == 0)
        failing_allocator_remove();
    together(self);
    return status == DCP_OK ? DCP_OK : error_restore(&error);
}

/* What a load came to. */
struct outcome {
    bool reused;
    char report[2000];
    char message[500];
};

static dcp_status load_once(struct rank *self, const struct reuse_scene *scene, const char *path,
                            dcp_load_plan_cache *cache, long shortage, struct outcome *outcome)
{
    const dcp_rename rename = {DCP_RENAME_EXACT, scene->wanted, scene->stored};
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_load_options options = {
        .group = self->group,
        .coordinator = scene->alone ? 0 : scene->coordinator,
        .no_dist = scene->alone,
        .convert = scene->wants_double,
        .include = &scene->include,
        .include_count = scene->include != NULL,
        .exclude = &scene->exclude,
        .exclude_count = scene->exclude != NULL,
        .renames = &rename,
        .rename_count = scene->wanted != NULL,
        .strictness = scene->strictness,
        .verification = scene->verification,
        .reading = scene->reading,
        .memory_limit = scene->memory_limit,
        .timeout_seconds = 30,
        .figures = &figures,
        .plan_cache = cache,
    };
    dcp_load_report *report = NULL;
    struct wish wish;
    wish_new(scene, self->rank, &wish);
    dcp_status status =
        shortage != 0 ? load_short_of_memory(self, wish.root, path, &options, shortage, &report)
                      : dcp_load(wish.root, path, &options, &report);
    snprintf(outcome->message, sizeof outcome->message, "%s",
             status != DCP_OK ? dcp_error_message() : "");
    outcome->reused = figures.plan_reused;
    write_report(report, outcome->report, sizeof outcome->report);
    dcp_load_report_free(report);
    if (status == DCP_OK)
        status = wish_check(scene, &wish, self->rank);
    wish_free(&wish);
    return status;
}

static dcp_status compare_with_plain(struct rank *self, const struct reuse_scene *scene,
                                     const char *path, const struct outcome *outcome)
{
    struct outcome plain;
    dcp_status status = load_once(self, scene, path, NULL, 0, &plain);
    if (plain.reused)
        return dcp_error_set(DCP_ERR_STATE, "reused a plan without a cache");
    if (status != scene->fails)
        return status != DCP_OK ? status : dcp_error_set(DCP_ERR_STATE, "succeeded");
    const struct chain *chain = self->context;
    /* A rank that had no memory to find out hears of the verdict from another one. */
    const char *message = outcome->message;
    if (strncmp(message, "rank 0: ", 8) == 0)
        message += 8;
    if (strcmp(message, plain.message) != 0)
        return dcp_error_set(DCP_ERR_STATE, "\"%s\", without a cache \"%s\"", outcome->message,
                             plain.message);
    bool unreported = chain->shortage != 0 && scene->fails != DCP_OK && outcome->report[0] == '\0';
    if (!unreported && strcmp(outcome->report, plain.report) != 0)
        return dcp_error_set(DCP_ERR_STATE, "reported \"%s\", without a cache \"%s\"",
                             outcome->report, plain.report);
    return DCP_OK;
}

static void name_path(const struct chain *chain, size_t number, char *path, size_t size)
{
    while (number > 0 && (chain->scenes[number].again || chain->scenes[number].same_path))
        number--;
    snprintf(path, size, "%s/c%zu", chain->directory, number);
}

static dcp_status load_scene(struct rank *self, size_t number, dcp_load_plan_cache **caches)
{
    const struct chain *chain = self->context;
    const struct reuse_scene *scene = &chain->scenes[number];
    char path[1100];
    struct outcome outcome;
    bool odd = self->rank == scene->odd_rank;
    name_path(chain, number, path, sizeof path);
    if (odd && scene->fresh_cache) {
        dcp_load_plan_cache_free(caches[0]);
        must(dcp_load_plan_cache_new(&caches[0]));
    }
    dcp_status status = load_once(self, scene, path, caches[odd && scene->swapped_cache],
                                  number == 1 ? chain->shortage : 0, &outcome);
    if (status != scene->fails)
        return status != DCP_OK ? status
                                : dcp_error_set(DCP_ERR_STATE, "load %zu succeeded", number);
    status = compare_with_plain(self, scene, path, &outcome);
    if (status == DCP_OK && outcome.reused != scene->reused)
        return dcp_error_set(DCP_ERR_STATE, "load %zu: %s", number,
                             outcome.reused ? "reused a plan" : "planned again");
    return status;
}

static dcp_status chain_body(struct rank *self)
{
    const struct chain *chain = self->context;
    dcp_load_plan_cache *caches[2];
    dcp_save_plan_cache *saves;
    char path[1100];
    must(dcp_load_plan_cache_new(&caches[0]));
    must(dcp_load_plan_cache_new(&caches[1]));
    must(dcp_save_plan_cache_new(&saves));
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < chain->count && status == DCP_OK; i++) {
        name_path(chain, i, path, sizeof path);
        if (!chain->scenes[i].again)
            status = reuse_scene_store(self, &chain->scenes[i], path, saves);
        if (status == DCP_OK)
            status = load_scene(self, i, caches);
        if (status != DCP_OK)
            error_prefix(status, "scene %zu", i);
    }
    dcp_load_plan_cache_free(caches[0]);
    dcp_load_plan_cache_free(caches[1]);
    dcp_save_plan_cache_free(saves);
    return status;
}

static const char *chain_directory(void **state)
{
    static int number;
    char name[32], command[1200];
    snprintf(name, sizeof name, "chain%d", number++);
    const char *directory = path_in(state, name);
    snprintf(command, sizeof command, "mkdir -p %s", directory);
    assert_int_equal(system(command), 0);
    return directory;
}

static void run_chain(void **state, const struct reuse_scene *scenes, size_t count)
{
    struct chain chain = {scenes, count, chain_directory(state), 0};
    ranks_must(SCENE_RANKS, chain.directory, chain_body, &chain);
}

#define RUN(...)                                                                                   \
    do {                                                                                           \
        const struct reuse_scene scenes[] = {__VA_ARGS__};                                         \
        run_chain(state, scenes, sizeof scenes / sizeof *scenes);                                  \
    } while (0)

static void what_does_not_matter_is_reused(void **state)
{
    RUN({.values = 1}, {.values = 1, .again = true, .reused = true},
        {.values = 1, .again = true, .reused = true});
    RUN({.values = 1}, {.values = 2, .reused = true}, {.values = 2, .again = true, .reused = true},
        {.values = 3, .step = 3, .reused = true});
    RUN({.values = 1},
        {.values = 1, .again = true, .strictness = DCP_STRICT_PARTIAL, .reused = true},
        {.values = 1, .again = true, .verification = DCP_VERIFY_NONE, .reused = true});
}

/* Pieces lie elsewhere, under other names, and have other lengths. */
static void places_are_those_of_the_checkpoint(void **state)
{
    RUN({.values = 1}, {.values = 2, .step = 300, .reused = true},
        {.values = 3, .step = INT64_C(1) << 40, .note = 2000, .reused = true},
        {.values = 4, .note = 3, .reused = true});
    RUN({.values = 1}, {.values = 2, .save_files = 3, .reused = true},
        {.values = 3, .save_files = 2, .reused = true}, {.values = 4, .reused = true});
    RUN({.values = 1}, {.values = 2, .same_path = true, .reused = true},
        {.values = 3, .same_path = true, .note = 50, .reused = true},
        {.values = 4, .reused = true});
    RUN({.values = 1, .chained = true}, {.values = 2, .chained = true, .reused = true},
        {.values = 3, .chained = true, .step = 500, .reused = true},
        {.values = 4, .chained = true, .same_path = true, .reused = true});
}

static void what_is_stored_matters(void **state)
{
    RUN({.values = 1}, {.values = 2, .rows = 6}, {.values = 3, .rows = 6, .reused = true},
        {.values = 4});
    RUN({.values = 1}, {.values = 2, .uneven = true}, {.values = 3, .uneven = true, .reused = true},
        {.values = 4});
    RUN({.values = 1}, {.values = 2, .other_dtype = true},
        {.values = 3, .other_dtype = true, .reused = true}, {.values = 4});
    RUN({.values = 1}, {.values = 2, .grad = true}, {.values = 3});
    RUN({.values = 1}, {.values = 2, .stores_extra = true},
        {.values = 3, .stores_extra = true, .reused = true}, {.values = 4});
    RUN({.values = 1}, {.values = 2, .other_name = true, .strictness = DCP_STRICT_PARTIAL},
        {.values = 3, .other_name = true, .strictness = DCP_STRICT_PARTIAL, .reused = true},
        {.values = 4, .strictness = DCP_STRICT_PARTIAL});
}

static void what_each_rank_wants_matters(void **state)
{
    for (int rank = 0; rank < SCENE_RANKS; rank++) {
        RUN({.values = 1}, {.values = 2, .odd_rank = rank, .narrow = true},
            {.values = 3, .odd_rank = rank, .narrow = true, .reused = true}, {.values = 4});
        RUN({.values = 1}, {.values = 1, .again = true, .odd_rank = rank, .takes_less = true},
            {.values = 2, .odd_rank = rank, .takes_less = true, .reused = true}, {.values = 3});
        RUN({.values = 1, .strictness = DCP_STRICT_PARTIAL},
            {.values = 2, .odd_rank = rank, .wants_more = true, .strictness = DCP_STRICT_PARTIAL},
            {.values = 3,
             .odd_rank = rank,
             .wants_more = true,
             .strictness = DCP_STRICT_PARTIAL,
             .reused = true});
        RUN({.values = 1}, {.values = 2, .odd_rank = rank, .fresh_cache = true},
            {.values = 3, .reused = true});
    }
    RUN({.values = 1}, {.values = 2, .wants_double = true},
        {.values = 3, .wants_double = true, .reused = true}, {.values = 4});
}

static void options_matter(void **state)
{
    RUN({.values = 1}, {.values = 2, .exclude = "model.replica"},
        {.values = 3, .exclude = "model.replica", .reused = true}, {.values = 4, .exclude = "step"},
        {.values = 5, .include = "model.rows"},
        {.values = 6, .include = "model.rows", .reused = true}, {.values = 7});
    RUN({.values = 1},
        {.values = 2, .other_name = true, .wanted = "model.replica", .stored = "model.copy"},
        {.values = 3,
         .other_name = true,
         .wanted = "model.replica",
         .stored = "model.copy",
         .reused = true},
        {.values = 3,
         .again = true,
         .other_name = true,
         .wanted = "model.replica",
         .stored = "model.other",
         .fails = DCP_ERR_MISSING_KEY},
        {.values = 3,
         .again = true,
         .other_name = true,
         .wanted = "model.replica",
         .stored = "model.copy"});
    RUN({.values = 1}, {.values = 2, .coordinator = 1},
        {.values = 3, .coordinator = 1, .reused = true}, {.values = 4});
    RUN({.values = 1}, {.values = 2, .memory_limit = 64 << 20}, {.values = 3, .reused = true});
}

/* A verdict is passed on each load, also by a plan that is reused. */
static void strictness_is_applied_each_time(void **state)
{
    RUN({.values = 1, .wants_more = true, .strictness = DCP_STRICT_PARTIAL},
        {.values = 2, .wants_more = true, .fails = DCP_ERR_MISSING_KEY, .reused = true},
        {.values = 3, .wants_more = true, .strictness = DCP_STRICT_PARTIAL, .reused = true});
    RUN({.values = 1, .stores_extra = true}, {.values = 2,
                                              .stores_extra = true,
                                              .strictness = DCP_STRICT_RAISE_ALL,
                                              .fails = DCP_ERR_UNEXPECTED_KEY,
                                              .reused = true});
}

static void groups_are_not_mixed_up(void **state)
{
    RUN({.values = 1}, {.values = 2, .alone = true}, {.values = 3, .alone = true, .reused = true},
        {.values = 4}, {.values = 5, .reused = true});
    RUN({.values = 1}, {.values = 2, .odd_rank = 1, .swapped_cache = true}, {.values = 3},
        {.values = 4, .reused = true});
}

/* Ranks that read for each other do so again, or anew where pieces have moved. */
static void sharing_is_reused(void **state)
{
    RUN({.values = 1, .reading = DCP_READING_COOPERATIVE},
        {.values = 1, .again = true, .reading = DCP_READING_COOPERATIVE, .reused = true},
        {.values = 2, .reading = DCP_READING_COOPERATIVE, .reused = true},
        {.values = 3, .reading = DCP_READING_COOPERATIVE, .note = 900, .reused = true},
        {.values = 3, .again = true, .reading = DCP_READING_DIRECT, .note = 900, .reused = true},
        {.values = 4, .reading = DCP_READING_COOPERATIVE, .reused = true},
        {.values = 5, .reading = DCP_READING_COOPERATIVE, .uneven = true},
        {.values = 6, .reading = DCP_READING_COOPERATIVE, .uneven = true, .reused = true});
}

/* Nothing has moved, but the coordinator has decoded other metadata, to which shares point. */
static void sharing_is_reused_with_other_metadata(void **state)
{
    RUN({.values = 1, .reading = DCP_READING_COOPERATIVE, .checkpoint_id = "a"},
        {.values = 2, .reading = DCP_READING_COOPERATIVE, .checkpoint_id = "b", .reused = true},
        {.values = 3, .reading = DCP_READING_COOPERATIVE, .reused = true});
}

static dcp_status shortage_body(struct rank *self)
{
    const struct chain *chain = self->context;
    dcp_load_plan_cache *caches[2] = {NULL};
    char message[sizeof self->message] = "";
    dcp_status failed = DCP_OK;
    must(dcp_load_plan_cache_new(&caches[0]));
    for (size_t i = 0; i < chain->count; i++) {
        dcp_status status = load_scene(self, i, caches);
        if (i == 1 && status == DCP_ERR_NO_MEMORY) {
            failed = status;
            snprintf(message, sizeof message, "%s", dcp_error_message());
        } else if (status != DCP_ERR_STATE || (!strstr(dcp_error_message(), "planned again") &&
                                               !strstr(dcp_error_message(), "reused a plan"))) {
            must(status); /* whether it was planned anew depends on where memory ran out */
        }
    }
    dcp_load_plan_cache_free(caches[0]);
    return failed == DCP_OK ? DCP_OK : dcp_error_set(failed, "%s", message);
}

static dcp_status store_all(struct rank *self)
{
    const struct chain *chain = self->context;
    char path[1100];
    for (size_t i = 0; i < chain->count; i++) {
        name_path(chain, i, path, sizeof path);
        if (!chain->scenes[i].again)
            must(reuse_scene_store(self, &chain->scenes[i], path, NULL));
    }
    return DCP_OK;
}

/* All ranks end alike, and the next loads are right, whatever was forgotten. */
static void memory_may_run_out_anywhere(void **state)
{
    static const struct reuse_scene scenes[][3] = {
        {{.values = 1},
         {.values = 1, .again = true, .reused = true},
         {.values = 3, .reused = true}},
        {{.values = 1}, {.values = 2, .note = 900, .reused = true}, {.values = 3, .reused = true}},
        {{.values = 1}, {.values = 2, .rows = 3}, {.values = 3, .rows = 3, .reused = true}},
        {{.values = 1, .reading = DCP_READING_COOPERATIVE},
         {.values = 2, .reading = DCP_READING_COOPERATIVE, .takes_less = true},
         {.values = 3, .reading = DCP_READING_COOPERATIVE, .takes_less = true, .reused = true}},
        {{.values = 1},
         {.values = 2, .odd_rank = 1, .wants_more = true, .fails = DCP_ERR_MISSING_KEY},
         {.values = 3}},
        {{.values = 1, .wants_more = true, .strictness = DCP_STRICT_PARTIAL},
         {.values = 2, .wants_more = true, .fails = DCP_ERR_MISSING_KEY, .reused = true},
         {.values = 3}},
    };
    for (size_t way = 0; way < sizeof scenes / sizeof *scenes; way++) {
        struct chain chain = {scenes[way], 3, chain_directory(state), 0};
        ranks_must(SCENE_RANKS, chain.directory, store_all, &chain);
        for (chain.shortage = 1;; chain.shortage += 1 + chain.shortage / 40) {
            struct rank ranks[RANKS_MAX];
            ranks_run(ranks, SCENE_RANKS, chain.directory, shortage_body, &chain);
            for (int rank = 0; rank < SCENE_RANKS; rank++)
                if (ranks[rank].status != ranks[0].status ||
                    (ranks[rank].status != DCP_OK && ranks[rank].status != DCP_ERR_NO_MEMORY))
                    fail_msg("allocation %ld: rank %d ended with %s", chain.shortage, rank,
                             ranks[rank].message);
            if (ranks[0].status == DCP_OK && chain.shortage > 900)
                break;
        }
    }
}

#define directory_test(test)                                                                       \
    cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        directory_test(what_does_not_matter_is_reused),
        directory_test(places_are_those_of_the_checkpoint),
        directory_test(what_is_stored_matters),
        directory_test(what_each_rank_wants_matters),
        directory_test(options_matter),
        directory_test(strictness_is_applied_each_time),
        directory_test(groups_are_not_mixed_up),
        directory_test(sharing_is_reused),
        directory_test(sharing_is_reused_with_other_metadata),
        directory_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
