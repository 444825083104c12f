/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads of one chain plan once, and again when an ingredient of the plan has changed on any rank or
 * in what is stored. Whatever is reused, each rank gets what this checkpoint holds, and the report
 * that a load without a cache gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "checkpoint/ranks.h"
#include "fault/failing_allocator.h"
#include "group/group.h"

enum { RANKS = 3, COLUMNS = 5, ROWS = 12, ROWS_MAX = 24, REPLICA = 7, NOTE_MAX = 4096 };

/* One load, and what is stored before it. All zero is the plain one. */
struct scene { /* NOLINT(clang-analyzer-optin.performance.Padding): in the order of reading */
    /* What is stored. */
    int values;         /* what is in the tensors */
    int rows;           /* more than ROWS, of the last rank */
    bool again;         /* the checkpoint before, as it is */
    bool same_path;     /* over the checkpoint before: files of another generation */
    bool uneven;        /* rows move from rank 1 to rank 0 */
    bool other_dtype;   /* of the replica */
    bool grad;          /* requires_grad of the replica */
    bool stores_extra;  /* one more object */
    bool other_name;    /* of the replica: "model.copy" */
    int64_t step;       /* an object that all ranks have */
    size_t note;        /* length of a text that each rank has for itself */
    int32_t save_files; /* of each rank */
    bool chained;       /* by the plan of the save before */

    /* What is wanted. */
    int odd_rank;       /* who does the following alone */
    bool wants_more;    /* one more name, which is not stored */
    bool takes_less;    /* the replica is not wanted */
    bool narrow;        /* a row less */
    bool wants_double;  /* of the replica, converted; everybody */
    bool fresh_cache;   /* the odd rank has lost its cache */
    bool swapped_cache; /* the odd rank takes the cache of another chain */
    bool alone;         /* each rank loads by itself (no_dist) */
    const char *include, *exclude, *wanted, *stored; /* patterns and a rule of the options */
    dcp_strictness strictness;
    dcp_verification verification;
    dcp_reading reading;
    int32_t coordinator;
    uint64_t memory_limit;
    dcp_status fails; /* and nothing is reused */

    bool reused; /* is expected */
};

struct chain {
    const struct scene *scenes;
    size_t count;
    const char *directory;
    long shortage; /* which allocation of the second load fails, on whichever rank makes it; 0: none
                    */
};

static float element(const struct scene *scene, int index)
{
    return (float)(scene->values * 1000 + index);
}

static void fill_note(const struct scene *scene, int rank, char *note)
{
    size_t length = scene->note != 0 ? scene->note : 40;
    memset(note, 'a' + (scene->values + rank) % 26, length);
    note[length] = '\0';
}

/* ---- storing ---- */

static dcp_tensor rows_of(const struct scene *scene, int rank, bool uneven, float *memory)
{
    int rows = ROWS + scene->rows;
    dcp_tensor tensor = {.dtype = DCP_F32,
                         .ndim = 2,
                         .global_shape = {rows, COLUMNS},
                         .sharded = true,
                         .offsets = {rank * 4},
                         .sizes = {rank == RANKS - 1 ? rows - rank * 4 : 4, COLUMNS},
                         .data = memory};
    if (uneven && rank == 0)
        tensor.sizes[0]++;
    if (uneven && rank == 1) {
        tensor.offsets[0]++;
        tensor.sizes[0]--;
    }
    return tensor;
}

static dcp_state *build(const struct scene *scene, int rank, float *memory)
{
    char name[32], note[NOTE_MAX];
    dcp_state *root = dcp_state_new(), *model = dcp_state_dict(root, "model");
    dcp_tensor rows = rows_of(scene, rank, scene->uneven, memory);
    dcp_tensor replica = {.dtype = scene->other_dtype ? DCP_I32 : DCP_F32,
                          .ndim = 1,
                          .requires_grad = scene->grad,
                          .global_shape = {REPLICA},
                          .data = memory + ROWS_MAX * COLUMNS};
    for (int i = 0; i < rows.sizes[0] * COLUMNS; i++)
        memory[i] = element(scene, (int)rows.offsets[0] * COLUMNS + i);
    for (int i = 0; i < REPLICA; i++) {
        float value = element(scene, 500 + i);
        int32_t whole = (int32_t)value;
        memcpy(memory + ROWS_MAX * COLUMNS + i, scene->other_dtype ? (void *)&whole : &value, 4);
    }
    dcp_state_tensor(model, "rows", &rows);
    dcp_state_tensor(model, scene->other_name ? "copy" : "replica", &replica);
    dcp_state_int(root, "step", scene->step);
    fill_note(scene, rank, note);
    snprintf(name, sizeof name, "note%d", rank);
    dcp_state_string(root, name, note);
    if (scene->stores_extra)
        dcp_state_int(root, "extra", 5);
    must(dcp_state_status(root));
    return root;
}

static dcp_status store(struct rank *self, const struct scene *scene, const char *path,
                        dcp_save_plan_cache *cache)
{
    float *memory = malloc((ROWS_MAX * COLUMNS + REPLICA) * sizeof *memory);
    if (!memory)
        return DCP_ERR_NO_MEMORY;
    dcp_state *root = build(scene, self->rank, memory);
    dcp_save_options options = {
        .group = self->group,
        .thread_count = scene->save_files,
        .overwrite = scene->same_path ? DCP_OVERWRITE_REPLACE : DCP_OVERWRITE_REFUSE,
        .skip_sync = true,
        .timeout_seconds = 30,
        .plan_cache = scene->chained ? cache : NULL,
    };
    dcp_status status = dcp_save(root, path, &options);
    dcp_state_free(root);
    free(memory);
    return status;
}

/* ---- wanting ---- */

/* A rank's tree, and the memory in it, which is of its own for each load. */
struct wish {
    dcp_state *root;
    float *rows;
    void *replica;
    dcp_tensor box; /* of the rows */
    bool has_replica;
};

static void wish_new(const struct scene *scene, int rank, struct wish *wish)
{
    bool odd = rank == scene->odd_rank;
    char name[32];
    *wish = (struct wish){.root = dcp_state_new(),
                          .rows = calloc(ROWS_MAX * COLUMNS, sizeof(float)),
                          .replica = calloc(REPLICA, sizeof(double)),
                          .has_replica = !scene->takes_less || !odd};
    dcp_state *model = dcp_state_dict(wish->root, "model");
    wish->box = rows_of(scene, RANKS - 1 - rank, false, wish->rows);
    wish->box.sizes[0] -= odd && scene->narrow;
    dcp_state_tensor(model, "rows", &wish->box);
    dcp_tensor replica = {.dtype = scene->wants_double  ? DCP_F64
                                   : scene->other_dtype ? DCP_I32
                                                        : DCP_F32,
                          .ndim = 1,
                          .global_shape = {REPLICA},
                          .data = wish->replica};
    if (wish->has_replica)
        dcp_state_tensor(model, "replica", &replica);
    dcp_state_int(wish->root, "step", -1);
    snprintf(name, sizeof name, "note%d", (rank + 1) % RANKS);
    dcp_state_string(wish->root, name, "");
    if (odd && scene->wants_more)
        dcp_state_int(wish->root, "more", -1);
    must(dcp_state_status(wish->root));
}

static void wish_free(struct wish *wish)
{
    dcp_state_free(wish->root);
    free(wish->rows);
    free(wish->replica);
}

static bool is_left_out(const struct scene *scene, const char *name)
{
    return (scene->exclude && strcmp(scene->exclude, name) == 0) ||
           (scene->include && strcmp(scene->include, name) != 0);
}

static dcp_status wrong(const char *what)
{
    return dcp_error_set(DCP_ERR_STATE, "%s is not what was stored", what);
}

static dcp_status check_replica(const struct scene *scene, const struct wish *wish)
{
    bool loaded = wish->has_replica && !is_left_out(scene, "model.replica") &&
                  (!scene->other_name || scene->stored);
    for (int i = 0; i < REPLICA; i++) {
        double found = scene->wants_double  ? ((const double *)wish->replica)[i]
                       : scene->other_dtype ? ((const int32_t *)wish->replica)[i]
                                            : (double)((const float *)wish->replica)[i];
        if (found != (loaded ? (double)element(scene, 500 + i) : 0))
            return wrong("the replica");
    }
    return DCP_OK;
}

static dcp_status check_objects(const struct scene *scene, const struct wish *wish, int rank)
{
    char name[32], note[NOTE_MAX];
    const char *found;
    size_t length;
    int64_t step;
    snprintf(name, sizeof name, "note%d", (rank + 1) % RANKS);
    fill_note(scene, (rank + 1) % RANKS, note);
    if (is_left_out(scene, name))
        return DCP_OK;
    must(dcp_state_as_int(dcp_state_get(wish->root, "step"), &step));
    if (step != (is_left_out(scene, "step") ? -1 : scene->step))
        return wrong("the step");
    must(dcp_state_as_text(dcp_state_get(wish->root, name), &found, &length));
    if (length != strlen(note) || memcmp(found, note, length) != 0)
        return wrong("the note");
    return DCP_OK;
}

static dcp_status check(const struct scene *scene, const struct wish *wish, int rank)
{
    for (int i = 0; i < (int)wish->box.sizes[0] * COLUMNS; i++) {
        float expected = element(scene, (int)wish->box.offsets[0] * COLUMNS + i);
        if (wish->rows[i] != (is_left_out(scene, "model.rows") ? 0 : expected))
            return wrong("a row");
    }
    dcp_status status = check_replica(scene, wish);
    return status == DCP_OK ? check_objects(scene, wish, rank) : status;
}

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
        dcp_report_line line = dcp_load_report_line(report, i);
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
    struct error_story story;
    error_save(&story);
    together(self);
    if (self->rank == 0)
        failing_allocator_remove();
    together(self);
    return status == DCP_OK ? DCP_OK : error_restore(&story);
}

/* What a load came to. */
struct outcome {
    bool reused;
    char report[2000];
    char message[500];
};

static dcp_status load_once(struct rank *self, const struct scene *scene, const char *path,
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
    dcp_load_report *told = NULL;
    struct wish wish;
    wish_new(scene, self->rank, &wish);
    dcp_status status = shortage != 0
                            ? load_short_of_memory(self, wish.root, path, &options, shortage, &told)
                            : dcp_load(wish.root, path, &options, &told);
    snprintf(outcome->message, sizeof outcome->message, "%s",
             status != DCP_OK ? dcp_error_message() : "");
    outcome->reused = figures.plan_reused;
    write_report(told, outcome->report, sizeof outcome->report);
    dcp_load_report_free(told);
    if (status == DCP_OK)
        status = check(scene, &wish, self->rank);
    wish_free(&wish);
    return status;
}

static dcp_status compare_with_plain(struct rank *self, const struct scene *scene, const char *path,
                                     const struct outcome *outcome)
{
    struct outcome plain;
    dcp_status status = load_once(self, scene, path, NULL, 0, &plain);
    if (plain.reused)
        return dcp_error_set(DCP_ERR_STATE, "reused a plan without a cache");
    if (status != scene->fails)
        return status != DCP_OK ? status : dcp_error_set(DCP_ERR_STATE, "succeeded");
    if (strcmp(outcome->message, plain.message) != 0)
        return dcp_error_set(DCP_ERR_STATE, "\"%s\", without a cache \"%s\"", outcome->message,
                             plain.message);
    if (strcmp(outcome->report, plain.report) != 0)
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
    const struct scene *scene = &chain->scenes[number];
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
            status = store(self, &chain->scenes[i], path, saves);
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

static void run_chain(void **state, const struct scene *scenes, size_t count)
{
    struct chain chain = {scenes, count, chain_directory(state), 0};
    ranks_must(RANKS, chain.directory, chain_body, &chain);
}

#define RUN(...)                                                                                   \
    do {                                                                                           \
        const struct scene scenes[] = {__VA_ARGS__};                                               \
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
    for (int rank = 0; rank < RANKS; rank++) {
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
        } else if (status != DCP_ERR_STATE) {
            must(status); /* whether it was planned anew depends on where memory ran out */
        } else if (strstr(dcp_error_message(), "planned again") == NULL) {
            must(status);
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
            must(store(self, &chain->scenes[i], path, NULL));
    }
    return DCP_OK;
}

/* All ranks end alike, and the next loads are right, whatever was forgotten. */
static void memory_may_run_out_anywhere(void **state)
{
    static const struct scene scenes[4][3] = {
        {{.values = 1},
         {.values = 1, .again = true, .reused = true},
         {.values = 3, .reused = true}},
        {{.values = 1}, {.values = 2, .note = 900, .reused = true}, {.values = 3, .reused = true}},
        {{.values = 1}, {.values = 2, .rows = 3}, {.values = 3, .rows = 3, .reused = true}},
        {{.values = 1, .reading = DCP_READING_COOPERATIVE},
         {.values = 2, .reading = DCP_READING_COOPERATIVE, .takes_less = true},
         {.values = 3, .reading = DCP_READING_COOPERATIVE, .takes_less = true, .reused = true}}};
    for (int way = 0; way < 4; way++) {
        struct chain chain = {scenes[way], 3, chain_directory(state), 0};
        ranks_must(RANKS, chain.directory, store_all, &chain);
        for (chain.shortage = 1;; chain.shortage += 1 + chain.shortage / 40) {
            struct rank ranks[RANKS_MAX];
            ranks_run(ranks, RANKS, chain.directory, shortage_body, &chain);
            for (int rank = 0; rank < RANKS; rank++)
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
        directory_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
