/* SPDX-License-Identifier: BSD-3-Clause */
/* What a load does with names, on several ranks: leaving out, renaming, and the same report on each
 * of them. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "fault/failing_allocator.h"

enum { ROWS = 12, RANKS = 3 };

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* A tree of one rank: tensors of ROWS elements of which it has a share, and a value. */
struct tree {
    dcp_state *root;
    float data[4][ROWS];
    int tensors;
    int64_t begin, share;
    int reported; /* how often the stateful entry was */
};

static void tree_init(struct tree *tree, const struct rank *self)
{
    *tree = (struct tree){.root = dcp_state_new()};
    tree->share = ROWS / self->size;
    tree->begin = self->rank * tree->share;
}

/* The value of an element: start + its position. 0 for start: what no load leaves behind. */
static float *tree_tensor(struct tree *tree, dcp_state *parent, const char *key, float start)
{
    float *data = tree->data[tree->tensors++];
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .sharded = true, .global_shape = {ROWS}};
    tensor.offsets[0] = tree->begin;
    tensor.sizes[0] = tree->share;
    tensor.data = data;
    for (int64_t i = 0; i < tree->share; i++)
        data[i] = start != 0 ? start + (float)(tree->begin + i) : -1;
    dcp_state_tensor(parent, key, &tensor);
    return data;
}

static bool holds(const struct tree *tree, const float *data, float start)
{
    for (int64_t i = 0; i < tree->share; i++)
        if (data[i] != (start != 0 ? start + (float)(tree->begin + i) : -1))
            return false;
    return true;
}

static dcp_status give_position(void *context, dcp_state *into)
{
    (void)context;
    return dcp_state_int(into, "position", 5);
}

static dcp_status count_calls(void *context, const dcp_state *filled)
{
    (void)filled;
    ++*(int *)context;
    return DCP_OK;
}

/* model.w 100, model.b 200, optimizer.m 300, step 7, and a loader. */
static dcp_status save_body(struct rank *self)
{
    struct tree tree;
    tree_init(&tree, self);
    dcp_stateful loader = {give_position, count_calls, &tree.reported};
    dcp_state *model = dcp_state_dict(tree.root, "model");
    tree_tensor(&tree, model, "w", 100);
    tree_tensor(&tree, model, "b", 200);
    tree_tensor(&tree, dcp_state_dict(tree.root, "optimizer"), "m", 300);
    dcp_state_int(tree.root, "step", 7);
    dcp_state_stateful(tree.root, "loader", &loader);
    dcp_save_options options = {.group = self->group};
    dcp_status status = dcp_save(tree.root, self->path, &options);
    dcp_state_free(tree.root);
    return status;
}

/* All lines, each "KIND name [detail] stored_name". */
static void report_text(const dcp_load_report *report, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < dcp_load_report_count(report) && used < size; i++) {
        dcp_report_line line = {0};
        if (dcp_load_report_line(report, i, &line) != DCP_OK)
            break;
        used += (size_t)snprintf(text + used, size - used, "%d %s [%s] %s\n", (int)line.difference,
                                 line.name, line.detail, line.stored_name);
    }
}

/* A load that must end with this report on every rank. */
struct job {
    dcp_load_options options;
    dcp_status (*check)(struct rank *self, struct job *job);
    const char *report;
};

static dcp_status load_and_compare(struct rank *self, const struct job *job, struct tree *tree)
{
    dcp_load_options options = job->options;
    dcp_load_report *report = NULL;
    char text[2048];
    options.group = self->group;
    dcp_status status = dcp_load(tree->root, self->path, &options, &report);
    report_text(report, text, sizeof text);
    dcp_load_report_free(report);
    if (status == DCP_OK && strcmp(text, job->report) != 0)
        return dcp_error_set(DCP_ERR_INTERNAL, "rank %d has the report\n%sexpected\n%s", self->rank,
                             text, job->report);
    return status;
}

static dcp_status job_body(struct rank *self)
{
    struct job *job = self->context;
    return job->check(self, job);
}

static dcp_status check_without_optimizer(struct rank *self, struct job *job)
{
    struct tree tree;
    int64_t step = 0;
    tree_init(&tree, self);
    dcp_stateful loader = {give_position, count_calls, &tree.reported};
    dcp_state *model = dcp_state_dict(tree.root, "model");
    dcp_state *optimizer = dcp_state_dict(tree.root, "optimizer");
    const float *w = tree_tensor(&tree, model, "w", 0), *b = tree_tensor(&tree, model, "b", 0);
    const float *m = tree_tensor(&tree, optimizer, "m", 0);
    const float *v = tree_tensor(&tree, optimizer, "v", 0);
    dcp_state_int(tree.root, "step", 1);
    dcp_state_stateful(tree.root, "loader", &loader);
    dcp_status status = load_and_compare(self, job, &tree);
    if (status == DCP_OK)
        status = dcp_state_as_int(dcp_state_find(tree.root, "step"), &step);
    if (status == DCP_OK &&
        !(holds(&tree, w, 100) && holds(&tree, b, 200) && holds(&tree, m, 0) && holds(&tree, v, 0)))
        status = dcp_error_set(DCP_ERR_INTERNAL, "a tensor holds what it should not");
    if (status == DCP_OK && (step != 1 || tree.reported != 0))
        status = dcp_error_set(DCP_ERR_INTERNAL, "step %d, reported %d", (int)step, tree.reported);
    dcp_state_free(tree.root);
    return status;
}

static void the_model_loads_without_the_optimizer(void **state)
{
    static const char *const include[] = {"model"};
    static const char *const exclude[] = {"optimizer", "step", "loader"};
    const char *path = path_in(state, "c");
    ranks_must(RANKS, path, save_body, NULL);
    struct job job = {{.strictness = DCP_STRICT_RAISE_ALL}, check_without_optimizer, ""};
    job.options.include = include;
    job.options.include_count = COUNT(include);
    ranks_must(4, path, job_body, &job);
    job.options.include_count = 0;
    job.options.exclude = exclude;
    job.options.exclude_count = COUNT(exclude);
    ranks_must(2, path, job_body, &job);
}

static dcp_status check_renamed(struct rank *self, struct job *job)
{
    struct tree tree;
    int64_t step = 0;
    tree_init(&tree, self);
    dcp_state *net = dcp_state_dict(tree.root, "net");
    const float *weight = tree_tensor(&tree, net, "weight", 0);
    const float *tied = tree_tensor(&tree, net, "tied", 0);
    const float *b = tree_tensor(&tree, net, "b", 0);
    const float *absent = tree_tensor(&tree, net, "absent", 0);
    dcp_state_int(tree.root, "steps", 1);
    dcp_status status = load_and_compare(self, job, &tree);
    if (status == DCP_OK)
        status = dcp_state_as_int(dcp_state_find(tree.root, "steps"), &step);
    if (status == DCP_OK && !(holds(&tree, weight, 100) && holds(&tree, tied, 100) &&
                              holds(&tree, b, 200) && holds(&tree, absent, 0) && step == 7))
        status = dcp_error_set(DCP_ERR_INTERNAL, "an entry holds what it should not");
    dcp_state_free(tree.root);
    return status;
}

static void renamed_entries_are_found(void **state)
{
    static const dcp_rename renames[] = {
        {DCP_RENAME_EXACT, "net.tied", "model.w"},
        {DCP_RENAME_GLOB, "*t.w?ight", "model.w"},
        {DCP_RENAME_PREFIX, "net.", "model."},
        {DCP_RENAME_PREFIX, "nothing.", "model."},
        {DCP_RENAME_GLOB, "*[s]", "*"},
    };
    const char *path = path_in(state, "c");
    ranks_must(RANKS, path, save_body, NULL);
    struct job job = {{.strictness = DCP_STRICT_PARTIAL,
                       .renames = renames,
                       .rename_count = 5,
                       .allow_unused_patterns = true},
                      check_renamed,
                      "0 net.absent [] model.absent\n"
                      "1 loader.position [] loader.position\n"
                      "1 optimizer.m [] optimizer.m\n"
                      "4 nothing. [renames[3]] nothing.\n"};
    ranks_must(2, path, job_body, &job);
    ranks_must(1, path, job_body, &job);

    struct rank ranks[RANKS_MAX];
    job.options.strictness = DCP_STRICT_MISSING;
    ranks_run(ranks, 3, path, job_body, &job);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(ranks[r].status, DCP_ERR_MISSING_KEY);
        assert_string_equal(ranks[r].message, "1 name not in the checkpoint: \"net.absent\" "
                                              "(looked for as \"model.absent\")");
    }
}

/* PyTorch's RenamePlanner: the checkpoint has "foo_" in front of every key. */
static dcp_status save_with_prefix(struct rank *self)
{
    struct tree tree;
    tree_init(&tree, self);
    tree_tensor(&tree, dcp_state_dict(tree.root, "foo_model"), "w", 100);
    dcp_state_int(tree.root, "foo_step", 7);
    dcp_save_options options = {.group = self->group};
    dcp_status status = dcp_save(tree.root, self->path, &options);
    dcp_state_free(tree.root);
    return status;
}

static dcp_status check_prefix(struct rank *self, struct job *job)
{
    struct tree tree;
    int64_t step = 0;
    tree_init(&tree, self);
    const float *w = tree_tensor(&tree, dcp_state_dict(tree.root, "model"), "w", 0);
    dcp_state_int(tree.root, "step", 1);
    dcp_status status = load_and_compare(self, job, &tree);
    if (status == DCP_OK)
        status = dcp_state_as_int(dcp_state_find(tree.root, "step"), &step);
    if (status == DCP_OK && !(holds(&tree, w, 100) && step == 7))
        status = dcp_error_set(DCP_ERR_INTERNAL, "an entry holds what it should not");
    dcp_state_free(tree.root);
    return status;
}

static void a_prefix_of_all_keys_is_one_rule(void **state)
{
    static const dcp_rename put[] = {{DCP_RENAME_PREFIX, "", "foo_"}};
    struct job job = {
        {.strictness = DCP_STRICT_RAISE_ALL, .renames = put, .rename_count = 1}, check_prefix, ""};
    ranks_must(2, path_in(state, "c"), save_with_prefix, NULL);
    ranks_must(3, path_in(state, "c"), job_body, &job);
}

/* Rank 0 and the others want different things, some of them wrong. */
static dcp_status check_mixed(struct rank *self, struct job *job)
{
    struct tree tree;
    dcp_tensor other = {.dtype = DCP_F64, .ndim = 1, .global_shape = {ROWS}};
    double doubles[ROWS];
    other.data = doubles;
    tree_init(&tree, self);
    dcp_state *model = dcp_state_dict(tree.root, "model");
    if (self->rank == 0)
        dcp_state_tensor(model, "w", &other);
    else
        tree_tensor(&tree, model, "b", 0);
    if (self->rank == 1)
        dcp_state_int(tree.root, "absent", 0);
    dcp_status status = load_and_compare(self, job, &tree);
    dcp_state_free(tree.root);
    return status;
}

/* Lines are taken from several threads. */
struct log_lines {
    pthread_mutex_t lock;
    char text[2048];
};

static void take_line(void *context, dcp_log_level level, const char *line)
{
    struct log_lines *lines = context;
    pthread_mutex_lock(&lines->lock);
    size_t used = strlen(lines->text);
    snprintf(lines->text + used, sizeof lines->text - used, "%d %s\n", (int)level, line);
    pthread_mutex_unlock(&lines->lock);
}

/* Nothing is read for a pattern that no rank's tree and no stored name fits. */
static dcp_status check_untouched(struct rank *self, struct job *job)
{
    struct tree tree;
    tree_init(&tree, self);
    dcp_state *model = dcp_state_dict(tree.root, "model");
    const float *w = tree_tensor(&tree, model, "w", 0);
    if (self->rank == 1)
        dcp_state_int(tree.root, "mine", 0);
    dcp_status status = load_and_compare(self, job, &tree);
    if (status != DCP_OK && !holds(&tree, w, 0))
        status = dcp_error_set(DCP_ERR_INTERNAL, "a tensor was changed");
    dcp_state_free(tree.root);
    return status;
}

static void unused_patterns_are_refused(void **state)
{
    static const char *const exclude[] = {"optimzer", "optimizer", "mine"};
    static const dcp_strictness modes[] = {DCP_STRICT_MISSING, DCP_STRICT_RAISE_ALL,
                                           DCP_STRICT_LOG_MISSING, DCP_STRICT_PARTIAL};
    const char *path = path_in(state, "c");
    struct rank ranks[RANKS_MAX];
    ranks_must(RANKS, path, save_body, NULL);
    struct job job = {{.exclude = exclude, .exclude_count = COUNT(exclude)}, check_untouched, ""};
    for (size_t i = 0; i < COUNT(modes); i++) {
        job.options.strictness = modes[i];
        ranks_run(ranks, 3, path, job_body, &job);
        for (int r = 0; r < 3; r++) {
            if (modes[i] == DCP_STRICT_RAISE_ALL) {
                assert_int_equal(ranks[r].status, DCP_ERR_UNEXPECTED_KEY);
                continue;
            }
            assert_int_equal(ranks[r].status, DCP_ERR_ARGUMENT);
            assert_string_equal(
                ranks[r].message,
                "1 pattern or rule applies to no name: \"optimzer\" (exclude[0]; "
                "did you mean \"optimizer\"?); set allow_unused_patterns to allow this");
        }
    }
    job.options.strictness = DCP_STRICT_MISSING;
    job.options.allow_unused_patterns = true;
    job.report = "1 loader.position [] loader.position\n"
                 "1 model.b [] model.b\n"
                 "1 step [] step\n"
                 "4 optimzer [exclude[0]; did you mean \"optimizer\"?] optimzer\n";
    ranks_must(3, path, job_body, &job);
}

static void differences_are_logged_once(void **state)
{
    static const char *const exclude[] = {"loader.*", "steps"};
    struct log_lines lines = {PTHREAD_MUTEX_INITIALIZER, ""};
    const char *path = path_in(state, "c");
    char expected[2048];
    ranks_must(RANKS, path, save_body, NULL);
    struct job job = {{.strictness = DCP_STRICT_LOG_ALL,
                       .convert = true,
                       .exclude = exclude,
                       .exclude_count = 2,
                       .allow_unused_patterns = true,
                       .coordinator = 2},
                      check_mixed,
                      "0 absent [wanted on rank 1] absent\n"
                      "1 optimizer.m [] optimizer.m\n"
                      "1 step [] step\n"
                      "2 model.w [float32 -> float64] model.w\n"
                      "4 steps [exclude[1]; did you mean \"step\"?] steps\n"};
    dcp_set_log(take_line, &lines, DCP_LOG_WARNING);
    ranks_must(3, path, job_body, &job);
    snprintf(
        expected, sizeof expected,
        "20 load of \"%s\": 1 name not in the checkpoint: \"absent\" (wanted on rank 1)\n"
        "20 load of \"%s\": 2 names in the checkpoint, but not wanted: \"optimizer.m\", "
        "\"step\"\n"
        "20 load of \"%s\": 1 pattern or rule applies to no name: \"steps\" (exclude[1]; did you "
        "mean \"step\"?)\n",
        path, path, path);
    assert_string_equal(lines.text, expected);

    lines.text[0] = '\0';
    job.options.strictness = DCP_STRICT_LOG_MISSING;
    ranks_must(3, path, job_body, &job);
    *strchr(expected, '\n') = '\0';
    strcat(expected, "\n");
    assert_string_equal(lines.text, expected);

    lines.text[0] = '\0';
    job.options.strictness = DCP_STRICT_PARTIAL;
    ranks_must(3, path, job_body, &job);
    assert_string_equal(lines.text, "");
    dcp_set_log(NULL, NULL, DCP_LOG_ERROR);
}

/* One rank's options are its own. */
struct odd {
    int rank;
    dcp_load_options options;
};

static dcp_status odd_body(struct rank *self)
{
    const struct odd *odd = self->context;
    struct tree tree;
    dcp_load_options options = {.strictness = DCP_STRICT_PARTIAL};
    tree_init(&tree, self);
    tree_tensor(&tree, tree.root, "w", 0);
    if (self->rank == odd->rank)
        options = odd->options;
    options.group = self->group;
    dcp_status status = dcp_load(tree.root, self->path, &options, NULL);
    dcp_state_free(tree.root);
    return status;
}

static void expect_refused(const char *path, dcp_load_options options, const char *message)
{
    struct rank ranks[RANKS_MAX];
    struct odd odd = {0, options};
    for (odd.rank = 0; odd.rank < RANKS; odd.rank++) {
        ranks_run(ranks, RANKS, path, odd_body, &odd);
        for (int r = 0; r < RANKS; r++) {
            if (ranks[r].status != DCP_ERR_ARGUMENT || !strstr(ranks[r].message, message))
                fail_msg("\"%s\" of rank %d: rank %d ended with %s: %s", message, odd.rank, r,
                         dcp_status_string(ranks[r].status), ranks[r].message);
            assert_string_equal(ranks[r].message, ranks[0].message);
        }
    }
}

static void options_must_be_alike(void **state)
{
    static const char *const pattern[] = {"w"};
    static const dcp_rename rename[] = {{DCP_RENAME_PREFIX, "w", "w"}};
    const char *path = path_in(state, "c");
    ranks_must(RANKS, path, save_body, NULL);
    const dcp_strictness partial = DCP_STRICT_PARTIAL;
    expect_refused(path, (dcp_load_options){.strictness = DCP_STRICT_LOG_ALL}, "strictness is ");
    expect_refused(path, (dcp_load_options){.strictness = partial, .verification = DCP_VERIFY_NONE},
                   "verification is ");
    expect_refused(path, (dcp_load_options){.strictness = partial, .convert = true}, "convert is ");
    expect_refused(path, (dcp_load_options){.strictness = partial, .allow_unused_patterns = true},
                   "allow_unused_patterns is ");
    expect_refused(
        path, (dcp_load_options){.strictness = partial, .include = pattern, .include_count = 1},
        "include differs from the coordinator's: all ranks must pass the same");
    expect_refused(
        path, (dcp_load_options){.strictness = partial, .exclude = pattern, .exclude_count = 1},
        "exclude differs from the coordinator's");
    expect_refused(path,
                   (dcp_load_options){.strictness = partial, .renames = rename, .rename_count = 1},
                   "renames differs from the coordinator's");
}

static void wrong_options_are_refused(void **state)
{
    static const char *const pattern[] = {"w["};
    static const dcp_rename rename[] = {{DCP_RENAME_GLOB, "w", "*"}};
    const char *path = path_in(state, "c");
    ranks_must(RANKS, path, save_body, NULL);
    expect_refused(path, (dcp_load_options){.strictness = (dcp_strictness)1},
                   ": strictness is 1, which is not a defined value");
    expect_refused(path, (dcp_load_options){.include_count = 1},
                   ": include is NULL, expected 1 patterns");
    expect_refused(path, (dcp_load_options){.exclude = pattern, .exclude_count = 1},
                   ": exclude[0], \"w[\", has a \"[\" without its \"]\"");
    expect_refused(path, (dcp_load_options){.renames = rename, .rename_count = 1},
                   ": renames[0].stored, \"*\", has 1 stars, but \"w\" captures only 0");
}

static void memory_may_run_out_anywhere(void **state)
{
    static const char *const exclude[] = {"optimizer.*", "never"};
    static const dcp_rename renames[] = {{DCP_RENAME_GLOB, "net.*", "model.*"}};
    const char *path = path_in(state, "c");
    struct rank alone = {.size = 1, .path = path};
    dcp_load_options options = {.strictness = DCP_STRICT_LOG_ALL,
                                .exclude = exclude,
                                .exclude_count = 2,
                                .renames = renames,
                                .rename_count = 1,
                                .allow_unused_patterns = true};
    must(save_body(&alone));
    for (long n = 1;; n++) {
        struct tree tree;
        dcp_load_report *report = NULL;
        tree_init(&tree, &alone);
        const float *w = tree_tensor(&tree, dcp_state_dict(tree.root, "net"), "w", 0);
        const float *m = tree_tensor(&tree, dcp_state_dict(tree.root, "optimizer"), "m", 0);
        dcp_state_int(tree.root, "absent", 0);
        failing_allocator_install(n, false);
        dcp_status status = dcp_load(tree.root, path, &options, &report);
        dcp_load_report_free(report);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        assert_true(holds(&tree, m, 0));
        if (!reached)
            assert_true(holds(&tree, w, 100));
        dcp_state_free(tree.root);
        if (!reached)
            break;
    }
}

#define directory_test(test)                                                                       \
    cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        directory_test(the_model_loads_without_the_optimizer),
        directory_test(renamed_entries_are_found),
        directory_test(a_prefix_of_all_keys_is_one_rule),
        directory_test(unused_patterns_are_refused),
        directory_test(differences_are_logged_once),
        directory_test(options_must_be_alike),
        directory_test(wrong_options_are_refused),
        directory_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
