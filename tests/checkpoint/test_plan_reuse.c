/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves of one chain plan once, and again when an ingredient of the plan has changed on any rank.
 * Whatever is reused, what is stored is what this save was given: each is loaded and compared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "checkpoint/reuse_hooks.h"
#include "fault/failing_allocator.h"
#include "group/group.h"

enum { RANKS = 3, COLUMNS = 5, ROWS_MAX = 24, REPLICA = 7, NOTE_MAX = 4096 };

/* One save. All zero is the plain one. */
struct scene {    /* NOLINT(clang-analyzer-optin.performance.Padding): in the order of reading */
    int values;   /* what is in the tensors */
    int rows;     /* more than 12, 4 on each rank */
    int odd_rank; /* who does the following alone */
    bool extra;   /* one more object */
    bool other_dtype;   /* of the replica, on all ranks */
    bool uneven;        /* rows move from rank 1 to rank 0 */
    bool grad;          /* requires_grad of the replica */
    bool meshed;        /* rows are divided by dcp_mesh_shard() */
    int64_t step;       /* an object that all ranks have */
    size_t note;        /* length of a text that each rank has for itself, on the odd rank */
    bool same_path;     /* over the checkpoint before */
    bool fresh_cache;   /* the odd rank has lost its cache */
    bool swapped_cache; /* the odd rank takes the cache of another chain */
    bool fails;         /* the path is a file */
    bool compressed;
    enum reuse_hooks hooks;
    dcp_replicas replicas;
    dcp_file_layout files;
    int32_t threads;
    int32_t coordinator;
    bool reused; /* is expected */
};

struct chain {
    const struct scene *scenes;
    size_t count;
    const char *directory;
    long shortage; /* which allocation of the second save fails, on whichever rank makes it; 0: none
                    */
};

static float element(const struct scene *scene, int index)
{
    return (float)(scene->values * 1000 + index);
}

static size_t note_length(const struct scene *scene, int rank)
{
    return rank == scene->odd_rank && scene->note != 0 ? scene->note : 40;
}

static void fill_note(const struct scene *scene, int rank, char *note)
{
    size_t length = note_length(scene, rank);
    memset(note, 'a' + (scene->values + rank) % 26, length);
    note[length] = '\0';
}

static void place_rows(const struct scene *scene, int rank, dcp_tensor *tensor)
{
    int rows = 12 + scene->rows;
    tensor->sharded = true;
    tensor->offsets[0] = rank * 4;
    tensor->sizes[0] = rank == RANKS - 1 ? rows - rank * 4 : 4;
    tensor->sizes[1] = COLUMNS;
    if (scene->uneven && rank == 0)
        tensor->sizes[0]++;
    if (scene->uneven && rank == 1) {
        tensor->offsets[0]++;
        tensor->sizes[0]--;
    }
}

/* memory: for a rank's rows and the replica. */
static dcp_state *build(const struct scene *scene, int rank, float *memory)
{
    char name[32], note[NOTE_MAX];
    dcp_state *root = dcp_state_new(), *model = dcp_state_dict(root, "model");
    dcp_tensor rows = {
        .dtype = DCP_F32, .ndim = 2, .global_shape = {12 + scene->rows, COLUMNS}, .data = memory};
    dcp_tensor replica = {.dtype = scene->other_dtype ? DCP_I32 : DCP_F32,
                          .ndim = 1,
                          .requires_grad = scene->grad,
                          .global_shape = {REPLICA},
                          .data = memory + ROWS_MAX * COLUMNS};
    if (scene->meshed) {
        dcp_mesh mesh = {.ndim = 1, .shape = {RANKS}, .rank = rank};
        dcp_placement placement = dcp_shard(0);
        must(dcp_mesh_shard(&mesh, &rows, &placement));
    } else {
        place_rows(scene, rank, &rows);
    }
    for (int i = 0; i < rows.sizes[0] * COLUMNS; i++)
        memory[i] = element(scene, (int)rows.offsets[0] * COLUMNS + i);
    for (int i = 0; i < REPLICA; i++) {
        float value = element(scene, 500 + i);
        int32_t whole = (int32_t)value;
        memcpy(memory + ROWS_MAX * COLUMNS + i, scene->other_dtype ? (void *)&whole : &value, 4);
    }
    dcp_state_tensor(model, "rows", &rows);
    dcp_state_tensor(model, "replica", &replica);
    dcp_state_int(root, "step", scene->step);
    if (!scene->meshed) {
        fill_note(scene, rank, note);
        snprintf(name, sizeof name, "note%d", rank);
        dcp_state_string(root, name, note);
    }
    if (scene->extra && rank == scene->odd_rank)
        dcp_state_int(root, "extra", 5);
    must(dcp_state_status(root));
    return root;
}

static void check_whole(const char *path)
{
    uint64_t faults;
    must(dcp_verify(path, NULL, NULL, NULL, &faults));
    assert_int_equal(faults, 0);
}

/* What is stored is what the scene says, as one process reads it. */
static void check(const struct scene *scene, const char *path)
{
    float rows[ROWS_MAX * COLUMNS], replica[REPLICA];
    dcp_state *root = dcp_state_new(), *model = dcp_state_dict(root, "model");
    dcp_tensor tensor = {
        .dtype = DCP_F32, .ndim = 2, .global_shape = {12 + scene->rows, COLUMNS}, .data = rows};
    dcp_state_tensor(model, "rows", &tensor);
    tensor = (dcp_tensor){.dtype = scene->other_dtype ? DCP_I32 : DCP_F32,
                          .ndim = 1,
                          .global_shape = {REPLICA},
                          .data = replica};
    dcp_state_tensor(model, "replica", &tensor);
    dcp_state_int(root, "step", 0);
    for (int rank = 0; rank < RANKS && !scene->meshed; rank++) {
        char name[32];
        snprintf(name, sizeof name, "note%d", rank);
        dcp_state_string(root, name, "");
    }
    must(dcp_load(root, path, NULL, NULL));
    for (int i = 0; i < (12 + scene->rows) * COLUMNS; i++)
        assert_true(rows[i] == element(scene, i));
    for (int i = 0; i < REPLICA; i++) {
        int32_t whole;
        memcpy(&whole, &replica[i], 4);
        float found = scene->other_dtype ? (float)whole : replica[i];
        assert_true(found == element(scene, 500 + i));
    }
    int64_t step;
    must(dcp_state_as_int(dcp_state_find(root, "step"), &step));
    assert_int_equal(step, scene->step);
    for (int rank = 0; rank < RANKS && !scene->meshed; rank++) {
        char name[32], note[NOTE_MAX];
        const char *found;
        size_t length;
        snprintf(name, sizeof name, "note%d", rank);
        fill_note(scene, rank, note);
        must(dcp_state_as_text(dcp_state_find(root, name), &found, &length));
        assert_int_equal(length, strlen(note));
        assert_memory_equal(found, note, length);
    }
    dcp_state_free(root);
    check_whole(path);
    check_planner_data(scene->hooks, scene->values, path);
}

static void together(struct rank *self)
{
    static const struct dcp_collective call = {"waiting", 30};
    must(group_agree(self->group, &call, DCP_OK));
}

static dcp_status save_short_of_memory(struct rank *self, dcp_state *root, const char *path,
                                       const dcp_save_options *options, long n)
{
    together(self);
    if (self->rank == 0)
        failing_allocator_install(n, false);
    together(self);
    dcp_status status = dcp_save(root, path, options);
    together(self);
    if (self->rank == 0)
        failing_allocator_remove();
    together(self);
    return status;
}

static dcp_status save_scene(struct rank *self, const struct scene *scene, size_t number,
                             dcp_save_plan_cache **caches)
{
    const struct chain *chain = self->context;
    char path[1100];
    dcp_figures figures = {.size_of = sizeof figures};
    struct hooking hooking;
    float *memory = malloc((ROWS_MAX * COLUMNS + REPLICA) * sizeof *memory);
    if (memory == NULL)
        return DCP_ERR_NO_MEMORY;
    snprintf(path, sizeof path, "%s/%s%d", chain->directory, scene->fails ? "file" : "c",
             scene->same_path ? (int)number - 1 : (int)number);
    hooking_init(&hooking, scene->hooks, scene->values, self->rank,
                 self->rank == scene->coordinator);
    bool odd = self->rank == scene->odd_rank;
    if (odd && scene->fresh_cache) {
        dcp_save_plan_cache_free(caches[0]);
        must(dcp_save_plan_cache_new(&caches[0]));
    }
    dcp_save_options options = {
        .group = self->group,
        .coordinator = scene->coordinator,
        .replicas = scene->replicas,
        .files = scene->files,
        .thread_count = scene->threads,
        .overwrite = scene->same_path ? DCP_OVERWRITE_REPLACE : DCP_OVERWRITE_REFUSE,
        .compression = scene->compressed ? DCP_COMPRESSION_ZSTD : DCP_COMPRESSION_NONE,
        .skip_sync = true,
        .figures = &figures,
        .timeout_seconds = 30,
        .plan_cache = caches[odd && scene->swapped_cache],
    };
    hooking_set_options(&hooking, &options);
    dcp_state *root = build(scene, self->rank, memory);
    dcp_status status = chain->shortage != 0 && number == 1
                            ? save_short_of_memory(self, root, path, &options, chain->shortage)
                            : dcp_save(root, path, &options);
    dcp_state_free(root);
    free(memory);
    if (scene->fails)
        return status == DCP_OK ? dcp_error_set(DCP_ERR_STATE, "saved to a file") : DCP_OK;
    if (status != DCP_OK)
        return status;
    if (!hooking_was_called(&hooking))
        return dcp_error_set(DCP_ERR_STATE, "save %zu: no data went through its hook", number);
    if (figures.plan_reused != scene->reused)
        return dcp_error_set(DCP_ERR_STATE, "save %zu: %s", number,
                             figures.plan_reused ? "reused a plan" : "planned again");
    return DCP_OK;
}

static dcp_status chain_body(struct rank *self)
{
    const struct chain *chain = self->context;
    dcp_save_plan_cache *caches[2] = {NULL};
    dcp_status status = dcp_save_plan_cache_new(&caches[0]);
    if (status == DCP_OK)
        status = dcp_save_plan_cache_new(&caches[1]);
    for (size_t i = 0; i < chain->count && status == DCP_OK; i++)
        status = save_scene(self, &chain->scenes[i], i, caches);
    dcp_save_plan_cache_free(caches[0]);
    dcp_save_plan_cache_free(caches[1]);
    return status;
}

/* Saves the scenes one after the other, and looks at what is there of them. */
static void run_chain(void **state, const struct scene *scenes, size_t count)
{
    static int number;
    char name[32];
    snprintf(name, sizeof name, "chain%d", number++);
    struct chain chain = {scenes, count, path_in(state, name), 0};
    for (size_t i = 0; i < count; i++) {
        char path[1100];
        if (!scenes[i].fails)
            continue;
        snprintf(path, sizeof path, "mkdir -p %s && touch %s/file%zu", chain.directory,
                 chain.directory, i);
        assert_int_equal(system(path), 0);
    }
    ranks_must(RANKS, chain.directory, chain_body, &chain);
    for (size_t i = 0; i < count; i++) {
        char path[1100];
        bool replaced = i + 1 < count && scenes[i + 1].same_path;
        snprintf(path, sizeof path, "%s/c%zu", chain.directory, scenes[i].same_path ? i - 1 : i);
        if (!scenes[i].fails && !replaced)
            check(&scenes[i], path);
    }
}

#define RUN(...)                                                                                   \
    do {                                                                                           \
        const struct scene scenes[] = {__VA_ARGS__};                                               \
        run_chain(state, scenes, sizeof scenes / sizeof *scenes);                                  \
    } while (0)

static void what_does_not_matter_is_reused(void **state)
{
    RUN({.values = 1}, {.values = 2, .reused = true}, {.values = 3, .step = 200, .reused = true},
        {.values = 4, .step = 1000000, .reused = true}, {.values = 5, .step = 3, .reused = true});
    for (int rank = 0; rank < RANKS; rank++)
        RUN({.values = 1}, {.values = 2, .odd_rank = rank, .note = 60, .reused = true},
            {.values = 3, .odd_rank = rank, .note = 3, .reused = true},
            {.values = 4, .reused = true});
    RUN({.values = 1, .meshed = true}, {.values = 2, .meshed = true, .reused = true});
    RUN({.values = 1, .coordinator = 2, .odd_rank = 1},
        {.values = 2, .coordinator = 2, .odd_rank = 1, .note = 50, .step = 300, .reused = true});
}

/* The same directory again: files of another generation. */
static void old_files_are_not_pointed_at(void **state)
{
    RUN({.values = 1}, {.values = 2, .same_path = true, .reused = true});
    RUN({.values = 1, .meshed = true}, {.values = 2, .meshed = true, .reused = true},
        {.values = 3, .meshed = true, .same_path = true, .reused = true},
        {.values = 4, .meshed = true, .reused = true});
}

static void each_ingredient_makes_a_new_plan(void **state)
{
    for (int rank = 0; rank < RANKS; rank++) {
        RUN({.values = 1}, {.values = 2, .odd_rank = rank, .extra = true},
            {.values = 3, .odd_rank = rank, .extra = true, .reused = true}, {.values = 4});
        RUN({.values = 1}, {.values = 2, .odd_rank = rank, .note = 2000},
            {.values = 3, .odd_rank = rank, .note = 2010, .reused = true});
        RUN({.values = 1}, {.values = 2, .odd_rank = rank, .fresh_cache = true},
            {.values = 3, .reused = true});
    }
    RUN({.values = 1}, {.values = 2, .rows = 6}, {.values = 3, .rows = 6, .reused = true},
        {.values = 4});
    RUN({.values = 1}, {.values = 2, .other_dtype = true}, {.values = 3});
    RUN({.values = 1}, {.values = 2, .uneven = true}, {.values = 3});
    RUN({.values = 1}, {.values = 2, .grad = true}, {.values = 3});
    RUN({.values = 1}, {.values = 2, .replicas = DCP_REPLICAS_LOWEST}, {.values = 3});
    RUN({.values = 1}, {.values = 2, .files = DCP_FILE_PER_ITEM}, {.values = 3});
    RUN({.values = 1}, {.values = 2, .threads = 3}, {.values = 3});
    RUN({.values = 1}, {.values = 2, .coordinator = 1}, {.values = 3});
}

/* A rank with what another chain has kept, and then with what its own had kept before that. */
static void chains_are_not_mixed_up(void **state)
{
    RUN({.values = 1}, {.values = 2, .reused = true},
        {.values = 3, .odd_rank = 1, .swapped_cache = true}, {.values = 4},
        {.values = 5, .reused = true});
}

static void a_failed_save_does_no_harm(void **state)
{
    needs_files();
    RUN({.values = 1}, {.values = 2, .fails = true, .odd_rank = 1, .note = 60}, {.values = 3},
        {.values = 4, .reused = true});
}

static dcp_status shortage_body(struct rank *self)
{
    const struct chain *chain = self->context;
    dcp_save_plan_cache *caches[2] = {NULL};
    must(dcp_save_plan_cache_new(&caches[0]));
    must(save_scene(self, &chain->scenes[0], 0, caches));
    dcp_status status = save_scene(self, &chain->scenes[1], 1, caches);
    char message[sizeof self->message];
    snprintf(message, sizeof message, "%s", dcp_error_message());
    dcp_status last = save_scene(self, &chain->scenes[2], 2, caches);
    if (last == DCP_ERR_STATE)
        last = DCP_OK; /* whether it was planned anew depends on where memory ran out */
    must(last);
    dcp_save_plan_cache_free(caches[0]);
    return status == DCP_OK ? DCP_OK : dcp_error_set(status, "%s", message);
}

/* All ranks end alike, and the next save is right, whatever was forgotten. */
static void memory_may_run_out_anywhere(void **state)
{
    static const struct scene scenes[][3] = {
        {{.values = 1}, {.values = 2, .step = 300, .reused = true}, {.values = 3, .reused = true}},
        {{.values = 1, .meshed = true},
         {.values = 2, .meshed = true, .rows = 3},
         {.values = 3, .meshed = true, .rows = 3, .reused = true}},
        {{.values = 1, .hooks = LOCAL_HOOKS},
         {.values = 2, .hooks = LOCAL_HOOKS, .step = 300, .reused = true},
         {.values = 3, .hooks = LOCAL_HOOKS, .reused = true}},
        {{.values = 1, .hooks = STEADY_HOOKS},
         {.values = 2, .hooks = STEADY_HOOKS, .step = 300, .reused = true},
         {.values = 3, .hooks = STEADY_HOOKS, .reused = true}},
#if DCP_HAVE_ZSTD
        {{.values = 1, .compressed = true},
         {.values = 2, .compressed = true, .step = 300, .reused = true},
         {.values = 3, .compressed = true, .reused = true}},
#endif
    };
    for (size_t way = 0; way < sizeof scenes / sizeof *scenes; way++) {
        for (long n = 1;; n += TRIAL_STEP + n / 40) {
            char name[64], path[1100];
            snprintf(name, sizeof name, "shortage%zu-%ld", way, n);
            struct chain chain = {scenes[way], 3, path_in(state, name), n};
            struct rank ranks[RANKS_MAX];
            ranks_run(ranks, RANKS, chain.directory, shortage_body, &chain);
            for (int rank = 0; rank < RANKS; rank++)
                if (ranks[rank].status != ranks[0].status ||
                    (ranks[rank].status != DCP_OK && ranks[rank].status != DCP_ERR_NO_MEMORY))
                    fail_msg("allocation %ld: rank %d ended with %s", n, rank, ranks[rank].message);
            snprintf(path, sizeof path, "%s/c2", chain.directory);
            check(&scenes[way][2], path);
            if (ranks[0].status == DCP_OK && n > 1000)
                break;
        }
    }
}

#if DCP_HAVE_ZSTD
/* Where streams lie is known only when they have been written, and another place each time. */
static void compressed_saves_reuse_as_well(void **state)
{
    RUN({.values = 1, .compressed = true}, {.values = 2, .compressed = true, .reused = true},
        {.values = 3}, {.values = 4, .reused = true}, {.values = 5, .compressed = true},
        {.values = 6, .compressed = true, .same_path = true, .reused = true},
        {.values = 7, .compressed = true, .step = 3000, .reused = true});
    for (int rank = 0; rank < RANKS; rank++)
        RUN({.values = 1, .compressed = true},
            {.values = 2, .compressed = true, .odd_rank = rank, .note = 44, .reused = true},
            {.values = 3, .compressed = true, .odd_rank = rank, .note = 2, .reused = true},
            {.values = 4, .compressed = true, .odd_rank = rank, .note = 2000},
            {.values = 5, .compressed = true, .odd_rank = rank, .note = 2000, .reused = true});
    RUN({.values = 1, .compressed = true, .threads = 3},
        {.values = 2, .compressed = true, .threads = 3, .reused = true},
        {.values = 3, .compressed = true, .files = DCP_FILE_PER_ITEM},
        {.values = 4, .compressed = true, .files = DCP_FILE_PER_ITEM, .reused = true});
    RUN({.values = 1, .compressed = true, .meshed = true},
        {.values = 2, .compressed = true, .meshed = true, .reused = true},
        {.values = 3, .compressed = true, .meshed = true, .step = 900, .reused = true});
}
#endif

/* Hooks of a rank are called each time; those for all ranks' plans if something of these has
 * changed.
 */
static void plans_by_hooks_are_reused(void **state)
{
    for (enum reuse_hooks hooks = DATA_HOOKS; hooks <= RESULT_HOOKS; hooks++) {
        bool kept = hooks != GLOBAL_HOOKS;
        RUN({.values = 1, .hooks = hooks}, {.values = 2, .hooks = hooks, .reused = kept},
            {.values = 3, .hooks = hooks, .step = 3000, .reused = kept},
            {.values = 4, .hooks = hooks, .rows = 2},
            {.values = 5, .hooks = hooks, .rows = 2, .same_path = true, .reused = kept});
        for (int rank = 0; rank < RANKS; rank++)
            RUN({.values = 1, .hooks = hooks},
                {.values = 2, .hooks = hooks, .odd_rank = rank, .note = 44, .reused = kept},
                {.values = 3, .hooks = hooks, .odd_rank = rank, .note = 3000},
                {.values = 4, .hooks = hooks, .odd_rank = rank, .extra = true});
    }
    RUN({.values = 1}, {.values = 2, .hooks = DATA_HOOKS},
        {.values = 3, .hooks = DATA_HOOKS, .reused = true}, {.values = 4, .hooks = LOCAL_HOOKS},
        {.values = 5, .hooks = WRITER_HOOKS}, {.values = 6}, {.values = 7, .reused = true});
#if DCP_HAVE_ZSTD
    RUN({.values = 1, .hooks = LOCAL_HOOKS, .compressed = true},
        {.values = 2, .hooks = LOCAL_HOOKS, .compressed = true, .reused = true},
        {.values = 3, .hooks = LOCAL_HOOKS, .compressed = true, .note = 45, .reused = true});
#endif
}

static void plans_of_writers_files_are_reused(void **state)
{
    needs_files();
    RUN({.values = 1, .hooks = FILES_HOOKS}, {.values = 2, .hooks = FILES_HOOKS, .reused = true},
        {.values = 3, .hooks = FILES_HOOKS, .step = 3000, .reused = true},
        {.values = 4, .hooks = FILES_HOOKS, .rows = 2},
        {.values = 5, .hooks = FILES_HOOKS, .rows = 2, .same_path = true, .reused = true},
        {.values = 6, .hooks = FILES_HOOKS, .rows = 2, .note = 3000});
}

/* One process, no group. */
static void one_process_reuses_as_well(void **state)
{
    dcp_save_plan_cache *cache;
    float memory[ROWS_MAX * COLUMNS];
    must(dcp_save_plan_cache_new(&cache));
    for (int i = 0; i < 3; i++) {
        dcp_figures figures = {.size_of = sizeof figures};
        dcp_save_options options = {.plan_cache = cache, .figures = &figures, .skip_sync = true};
        dcp_state *root = dcp_state_new();
        dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .global_shape = {9}, .data = memory};
        dcp_state_tensor(root, "t", &tensor);
        dcp_state_int(root, "step", i * 200);
        char name[8];
        snprintf(name, sizeof name, "c%d", i);
        must(dcp_save(root, path_in(state, name), &options));
        assert_int_equal(figures.plan_reused, i > 0);
        check_whole(path_in(state, name));
        dcp_state_free(root);
    }
    dcp_save_plan_cache_free(cache);
    must_fail(dcp_save_plan_cache_new(NULL), DCP_ERR_ARGUMENT, "NULL");
    dcp_save_plan_cache_free(NULL);
}

#define directory_test(test)                                                                       \
    cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        directory_test(what_does_not_matter_is_reused),
        directory_test(old_files_are_not_pointed_at),
        directory_test(each_ingredient_makes_a_new_plan),
        directory_test(chains_are_not_mixed_up),
        directory_test(a_failed_save_does_no_harm),
        directory_test(memory_may_run_out_anywhere),
#if DCP_HAVE_ZSTD
        directory_test(compressed_saves_reuse_as_well),
#endif
        directory_test(plans_by_hooks_are_reused),
        directory_test(plans_of_writers_files_are_reused),
        directory_test(one_process_reuses_as_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
