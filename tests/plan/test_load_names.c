/* SPDX-License-Identifier: BSD-3-Clause */
/* What the options about names make of a load: what is planned, what is told, what is suggested. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "dcp/environment.h"
#include "dcp/load.h"
#include "fault/failing_allocator.h"
#include "plan/load/load_plan.h"
#include "samples.h"

/* Objects that are stored and objects that are wanted, by name. */
struct scene {
    struct samples samples;
    struct merged merged;
    dcp_state *root;
    struct flat_state flat;
    struct load_names names;
    struct load_plan plan;
    struct load_differences mine, all;
};

/* Both lists end with NULL. */
static void scene_make(struct scene *scene, const char *const *stored, const char *const *wanted)
{
    struct save_plan_options options = sample_options(DCP_REPLICAS_WHOLE);
    *scene = (struct scene){.root = dcp_state_new()};
    samples_init(&scene->samples, 1);
    for (size_t i = 0; stored[i] != NULL; i++)
        sample_object(&scene->samples, 0, stored[i], 1261);
    assert_int_equal(samples_merge(&scene->samples, &options, &scene->merged), DCP_OK);
    for (size_t i = 0; wanted[i] != NULL; i++)
        dcp_state_int(scene->root, wanted[i], (int64_t)i);
    assert_int_equal(flatten_state(scene->root, &scene->flat), DCP_OK);
}

static dcp_status scene_run(struct scene *scene, const dcp_load_options *options)
{
    RETURN_IF_ERROR(load_names_init(&scene->names,
                                    &(struct name_filter){.include = options->include,
                                                          .include_count = options->include_count,
                                                          .exclude = options->exclude,
                                                          .exclude_count = options->exclude_count},
                                    options->renames, options->rename_count));
    RETURN_IF_ERROR(load_plan_make(&scene->flat, &scene->merged.metadata, &scene->names, false,
                                   &scene->plan, &scene->mine));
    return load_differences_merge(&scene->mine, 1, &scene->merged.metadata, &scene->names,
                                  &scene->all);
}

static void scene_forget(struct scene *scene)
{
    load_differences_free(&scene->all);
    load_differences_free(&scene->mine);
    load_plan_free(&scene->plan);
    load_names_free(&scene->names);
}

static void scene_free(struct scene *scene)
{
    scene_forget(scene);
    flatten_free(&scene->flat);
    dcp_state_free(scene->root);
    merged_free(&scene->merged);
    samples_free(&scene->samples);
}

/* "wanted<stored ..." in the order of the tree. */
static void expect_planned(const struct scene *scene, const char *expected)
{
    char text[512] = "";
    for (size_t i = 0; i < scene->flat.count; i++)
        for (size_t k = 0; k < scene->plan.count; k++)
            if (scene->plan.items[k].wanted == i) {
                strcat(text, scene->flat.entries[i].name);
                strcat(text, "<");
                strcat(text, scene->merged.metadata.entries[scene->plan.items[k].entry].name);
                strcat(text, " ");
            }
    assert_string_equal(text, expected);
}

/* "KIND name detail stored;" of each line. */
static void expect_lines(const struct scene *scene, const char *expected)
{
    char text[1024] = "";
    for (size_t i = 0; i < scene->all.count; i++) {
        const struct load_difference *line = &scene->all.lines[i];
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%d %s [%s] %s; ", (int)line->difference,
                 line->name, line->detail, line->stored_name);
    }
    assert_string_equal(text, expected);
}

static void names_left_out_are_neither_missing_nor_unexpected(void **state)
{
    (void)state;
    static const char *const stored[] = {"model.w", "optimizer.w", "model.old", "step", NULL};
    static const char *const wanted[] = {"model.w", "optimizer.w", "optimizer.new", "model.new",
                                         NULL};
    static const char *const include[] = {"model.*", "absent.*"};
    static const char *const exclude[] = {"optimizer.*"};
    struct scene scene;
    scene_make(&scene, stored, wanted);
    dcp_load_options options = {.include = include, .include_count = 2};
    assert_int_equal(scene_run(&scene, &options), DCP_OK);
    expect_planned(&scene, "model.w<model.w ");
    expect_lines(&scene, "0 model.new [] model.new; 1 model.old [] model.old; "
                         "4 absent.* [include[1]] absent.*; ");
    assert_false(scene.flat.entries[0].left_out);
    assert_true(scene.flat.entries[1].left_out);
    scene_forget(&scene);

    options = (dcp_load_options){.exclude = exclude, .exclude_count = 1};
    assert_int_equal(scene_run(&scene, &options), DCP_OK);
    expect_planned(&scene, "model.w<model.w ");
    expect_lines(&scene, "0 model.new [] model.new; 1 model.old [] model.old; 1 step [] step; ");
    scene_free(&scene);
}

static void renamed_names_are_found(void **state)
{
    (void)state;
    static const char *const stored[] = {"net.w", "net.optimizer.m", "tied", NULL};
    static const char *const wanted[] = {"w", "optimizer.m", "a", "b", "absent", NULL};
    static const dcp_rename renames[] = {{DCP_RENAME_EXACT, "a", "tied"},
                                         {DCP_RENAME_EXACT, "b", "tied"},
                                         {DCP_RENAME_GLOB, "*.never", "*"},
                                         {DCP_RENAME_PREFIX, "", "net."}};
    static const char *const exclude[] = {"optimizer.*"};
    dcp_load_options options = {
        .renames = renames, .rename_count = 4, .exclude = exclude, .exclude_count = 1};
    struct scene scene;
    scene_make(&scene, stored, wanted);
    assert_int_equal(scene_run(&scene, &options), DCP_OK);
    expect_planned(&scene, "w<net.w a<tied b<tied ");
    /* what a name that is left out would have been filled from is not unexpected either */
    expect_lines(&scene, "0 absent [] net.absent; 4 *.never [renames[2]] *.never; ");
    scene_free(&scene);
}

static void renamed_mismatches_name_both(void **state)
{
    (void)state;
    static const char *const stored[] = {"old.n", "old.weight", NULL};
    static const char *const wanted[] = {"new.weigth", NULL};
    static const dcp_rename renames[] = {{DCP_RENAME_PREFIX, "new.", "old."}};
    dcp_load_options options = {.renames = renames, .rename_count = 1};
    struct scene scene;
    scene_make(&scene, stored, wanted);
    assert_int_equal(scene_run(&scene, &options), DCP_OK);
    assert_int_equal(
        load_differences_judge(&scene.all, DCP_STRICT_MISSING, false, &scene.merged.metadata),
        DCP_ERR_MISSING_KEY);
    assert_string_equal(dcp_error_message(),
                        "1 name not in the checkpoint: \"new.weigth\" (looked for as "
                        "\"old.weigth\"; did you mean \"old.weight\"?)");
    scene_free(&scene);

    scene_make(&scene, stored, (const char *const[]){NULL});
    dcp_tensor n = {.dtype = DCP_F32, .ndim = 1, .global_shape = {4}};
    flatten_free(&scene.flat);
    dcp_state_tensor(scene.root, "new.n", &n);
    assert_int_equal(flatten_state(scene.root, &scene.flat), DCP_OK);
    assert_int_equal(scene_run(&scene, &options), DCP_OK);
    assert_int_equal(
        load_differences_judge(&scene.all, DCP_STRICT_PARTIAL, false, &scene.merged.metadata),
        DCP_ERR_KIND);
    assert_string_equal(dcp_error_message(),
                        "1 name in the checkpoint does not fit: \"new.n\" (looked for as "
                        "\"old.n\"; stored an object, wanted a tensor)");
    scene_free(&scene);
}

/* A dict that old versions stored whole is found under the name that a rule gives it. */
static void objects_above_are_found_by_their_stored_name(void **state)
{
    (void)state;
    static const char *const stored[] = {"old.group", NULL};
    static const char *const wanted[] = {"new.group.lr", NULL};
    static const dcp_rename renames[] = {{DCP_RENAME_PREFIX, "new.", "old."}};
    dcp_load_options options = {.renames = renames, .rename_count = 1};
    struct scene scene;
    scene_make(&scene, stored, wanted);
    assert_int_equal(scene_run(&scene, &options), DCP_OK);
    expect_lines(&scene,
                 "0 new.group.lr [its parent \"old.group\" is stored as one object] old.group.lr; "
                 "1 old.group [] old.group; ");
    scene_free(&scene);
}

/* KempnerForge's exclude_keys: a name stands for all below it, a tensor as well as a container. */
static void a_container_stands_for_all_below_it(void **state)
{
    (void)state;
    static const char *const stored[] = {"model.w", "optimizer.state.0.m", "optimizers", "step",
                                         NULL};
    static const char *const optimizer[] = {"optimizer"}, *const parts[] = {"model", "step"};
    dcp_load_options options = {.exclude = optimizer, .exclude_count = 1};
    struct scene scene;
    scene_make(&scene, stored, stored);
    assert_int_equal(scene_run(&scene, &options), DCP_OK);
    expect_planned(&scene, "model.w<model.w optimizers<optimizers step<step ");
    expect_lines(&scene, "");
    scene_forget(&scene);

    options = (dcp_load_options){.include = parts, .include_count = 2};
    assert_int_equal(scene_run(&scene, &options), DCP_OK);
    expect_planned(&scene, "model.w<model.w step<step ");
    expect_lines(&scene, "");
    scene_free(&scene);
}

static void a_container_is_renamed_with_all_below_it(void **state)
{
    (void)state;
    static const char *const stored[] = {"net.w", "net.b", "special", "network", NULL};
    static const char *const wanted[] = {"model.w", "model.b", "model.s", NULL};
    static const dcp_rename renames[] = {{DCP_RENAME_EXACT, "model", "net"},
                                         {DCP_RENAME_EXACT, "model.s", "special"}};
    dcp_load_options options = {.renames = renames, .rename_count = 2};
    struct scene scene;
    scene_make(&scene, stored, wanted);
    assert_int_equal(scene_run(&scene, &options), DCP_OK);
    expect_planned(&scene, "model.w<net.w model.b<net.b model.s<special ");
    expect_lines(&scene, "1 network [] network; ");
    scene_free(&scene);
}

/* What an unused pattern may have been meant for, of the tree and of what is stored. */
static void near_names_are_offered(void **state)
{
    (void)state;
    static const char *const stored[] = {"model.layers.0.w", "model.layers.1.w", "optimizer.m",
                                         "old.step", NULL};
    static const char *const wanted[] = {"model.layers.0.w", "model.layers.1.w", "optimizer.m",
                                         "epoch", NULL};
    static const char *const exclude[] = {"optimzer",       "optimzer.*", "optim",
                                          "model.layers.?", "layers",     "steps",
                                          "epohc",          "unheard-of", "optimizer.[x]"};
    static const dcp_rename renames[] = {{DCP_RENAME_PREFIX, "modle.", "net."},
                                         {DCP_RENAME_EXACT, "oldsteps", "x"}};
    dcp_load_options options = {.exclude = exclude,
                                .exclude_count = sizeof exclude / sizeof exclude[0],
                                .renames = renames,
                                .rename_count = 2};
    static const char *const details[] = {
        "optimzer exclude[0]; did you mean \"optimizer\"?",
        "optimzer.* exclude[1]; did you mean \"optimizer.*\"?",
        "optim exclude[2]; did you mean \"optimizer\"?",
        ("model.layers.? exclude[3]; did you mean \"model.layers.?.*\", for all below "
         "\"model.layers.0\"?"),
        "layers exclude[4]; did you mean \"model.layers\"?",
        "steps exclude[5]",
        "epohc exclude[6]; did you mean \"epoch\"?",
        "unheard-of exclude[7]",
        "optimizer.[x] exclude[8]",
        "modle. renames[0]; did you mean \"model.\"?",
        "oldsteps renames[1]",
    };
    struct scene scene;
    scene_make(&scene, stored, wanted);
    assert_int_equal(scene_run(&scene, &options), DCP_OK);
    for (size_t k = 0; k < sizeof details / sizeof details[0]; k++) {
        bool found = false;
        char text[256];
        for (size_t i = 0; i < scene.all.count && !found; i++) {
            snprintf(text, sizeof text, "%s %s", scene.all.lines[i].name,
                     scene.all.lines[i].detail);
            found = strcmp(text, details[k]) == 0;
        }
        if (!found)
            fail_msg("there is no line \"%s\"", details[k]);
    }
    scene_free(&scene);
}

/* What one rank used is used. */
static void options_are_unused_if_no_rank_used_them(void **state)
{
    (void)state;
    static const char *const stored[] = {"a", NULL};
    static const dcp_rename renames[] = {{DCP_RENAME_EXACT, "x", "a"},
                                         {DCP_RENAME_EXACT, "y", "a"}};
    static const char *const wanted[2][2] = {{"x", NULL}, {"y", NULL}};
    dcp_load_options options = {.renames = renames, .rename_count = 2};
    struct scene scenes[2];
    for (int i = 0; i < 2; i++) {
        scene_make(&scenes[i], stored, wanted[i]);
        assert_int_equal(scene_run(&scenes[i], &options), DCP_OK);
        assert_int_equal(scenes[i].all.count, 1);
    }
    struct load_differences ranks[2] = {scenes[0].mine, scenes[1].mine}, merged;
    assert_int_equal(
        load_differences_merge(ranks, 2, &scenes[0].merged.metadata, &scenes[0].names, &merged),
        DCP_OK);
    assert_int_equal(merged.count, 0);
    load_differences_free(&merged);
    scene_free(&scenes[0]);
    scene_free(&scenes[1]);
}

struct log_lines {
    char text[2048];
};

static void take_line(void *context, dcp_log_level level, const char *line)
{
    struct log_lines *lines = context;
    assert_int_equal(level, DCP_LOG_WARNING);
    strncat(lines->text, line, sizeof lines->text - strlen(lines->text) - 2);
    strcat(lines->text, "\n");
}

/* Megatron-Core's eight modes, each by what it does about the names that one side alone has. */
static void each_strictness_does_as_it_says(void **state)
{
    (void)state;
    static const char missing[] =
        "load of \"c\": 1 name not in the checkpoint: \"b\" (did you mean \"a\"?)\n";
    static const char all[] =
        "load of \"c\": 1 name not in the checkpoint: \"b\" (did you mean \"a\"?)\n"
        "load of \"c\": 1 name in the checkpoint, but not wanted: \"a\"\n"
        "load of \"c\": 1 pattern or rule applies to no name: \"x\" (exclude[0])\n";
    static const struct {
        dcp_strictness strictness;
        dcp_status status_missing, status_unexpected;
        const char *log;
    } modes[] = {
        {DCP_STRICT_MISSING, DCP_ERR_MISSING_KEY, DCP_OK, ""},
        {DCP_STRICT_RAISE_ALL, DCP_ERR_MISSING_KEY, DCP_ERR_UNEXPECTED_KEY, ""},
        {DCP_STRICT_LOG_MISSING, DCP_OK, DCP_OK, missing},
        {DCP_STRICT_LOG_ALL, DCP_OK, DCP_OK, all},
        {DCP_STRICT_PARTIAL, DCP_OK, DCP_OK, ""},
    };
    static const char *const a[] = {"a", NULL}, *const b[] = {"b", NULL}, *const none[] = {NULL};
    static const char *const exclude[] = {"x"};
    dcp_load_options options = {.exclude = exclude, .exclude_count = 1};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        struct log_lines lines = {""};
        struct scene scene;
        dcp_set_log(take_line, &lines, DCP_LOG_WARNING);
        assert_true(strictness_is_known(modes[i].strictness));
        scene_make(&scene, a, b);
        assert_int_equal(scene_run(&scene, &options), DCP_OK);
        const struct metadata *metadata = &scene.merged.metadata;
        assert_int_equal(load_differences_judge(&scene.all, modes[i].strictness, true, metadata),
                         modes[i].status_missing);
        load_differences_log(&scene.all, modes[i].strictness, metadata, "c");
        assert_string_equal(lines.text, modes[i].log);
        scene_free(&scene);

        scene_make(&scene, a, none);
        assert_int_equal(scene_run(&scene, &options), DCP_OK);
        assert_int_equal(
            load_differences_judge(&scene.all, modes[i].strictness, true, &scene.merged.metadata),
            modes[i].status_unexpected);
        scene_free(&scene);

        scene_make(&scene, a, a);
        assert_int_equal(scene_run(&scene, &options), DCP_OK);
        assert_int_equal(
            load_differences_judge(&scene.all, modes[i].strictness, true, &scene.merged.metadata),
            DCP_OK);
        assert_int_equal(
            load_differences_judge(&scene.all, modes[i].strictness, false, &scene.merged.metadata),
            DCP_ERR_ARGUMENT);
        assert_string_equal(dcp_error_message(),
                            "1 pattern or rule applies to no name: \"x\" (exclude[0]); set "
                            "allow_unused_patterns to allow this");
        scene_free(&scene);
    }
    dcp_set_log(NULL, NULL, DCP_LOG_ERROR);
    assert_false(strictness_is_known((dcp_strictness)1));
}

/* Callers were compiled with these. */
static void values_are_pinned(void **state)
{
    (void)state;
    assert_int_equal(DCP_STRICT_MISSING, 0);
    assert_int_equal(DCP_STRICT_RAISE_ALL, 10);
    assert_int_equal(DCP_STRICT_LOG_MISSING, 20);
    assert_int_equal(DCP_STRICT_LOG_ALL, 21);
    assert_int_equal(DCP_STRICT_PARTIAL, 30);
    assert_int_equal(DCP_RENAME_EXACT, 0);
    assert_int_equal(DCP_RENAME_PREFIX, 10);
    assert_int_equal(DCP_RENAME_GLOB, 20);
    assert_int_equal(DCP_DIFFERENCE_UNUSED, 4);
}

static void ranks_with_other_options_are_found(void **state)
{
    (void)state;
    static const char *const a[] = {"a", NULL};
    static const char *const include[] = {"a", "b"};
    dcp_load_options options = {.include = include, .include_count = 2};
    struct load_differences merged;
    struct scene scene;
    scene_make(&scene, a, a);
    assert_int_equal(scene_run(&scene, &options), DCP_OK);
    assert_int_equal(load_differences_merge(&scene.mine, 1, &scene.merged.metadata, NULL, &merged),
                     DCP_ERR_FORMAT);
    assert_string_equal(dcp_error_message(),
                        "rank 0 has 2 renaming rules and patterns, but the coordinator has 0: all "
                        "ranks must pass the same options");
    load_differences_free(&merged);
    scene_free(&scene);
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    static const char *const stored[] = {"net.w", "net.x", "other", NULL};
    static const char *const wanted[] = {"w", "x", "absent", NULL};
    static const dcp_rename renames[] = {{DCP_RENAME_GLOB, "*.never", "*"},
                                         {DCP_RENAME_EXACT, "never", "x"},
                                         {DCP_RENAME_PREFIX, "", "net."}};
    static const char *const exclude[] = {"x", "y"};
    dcp_load_options options = {
        .renames = renames, .rename_count = 3, .exclude = exclude, .exclude_count = 2};
    struct scene scene;
    scene_make(&scene, stored, wanted);
    for (long n = 1;; n++) {
        struct load_differences arrived = {0};
        struct buffer bytes;
        buffer_init(&bytes, 0);
        failing_allocator_install(n, false);
        dcp_status status = scene_run(&scene, &options);
        if (status == DCP_OK)
            status = load_differences_encode(&scene.all, &bytes);
        if (status == DCP_OK)
            status = load_differences_decode(bytes.data, bytes.size, &arrived);
        if (status == DCP_OK) {
            assert_int_equal(arrived.count, scene.all.count);
            assert_string_equal(arrived.lines[0].stored_name, "net.absent");
        }
        load_differences_free(&arrived);
        buffer_free(&bytes);
        scene_forget(&scene);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        if (!reached)
            break;
    }
    scene_free(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_left_out_are_neither_missing_nor_unexpected),
        cmocka_unit_test(renamed_names_are_found),
        cmocka_unit_test(renamed_mismatches_name_both),
        cmocka_unit_test(objects_above_are_found_by_their_stored_name),
        cmocka_unit_test(a_container_stands_for_all_below_it),
        cmocka_unit_test(a_container_is_renamed_with_all_below_it),
        cmocka_unit_test(near_names_are_offered),
        cmocka_unit_test(options_are_unused_if_no_rank_used_them),
        cmocka_unit_test(each_strictness_does_as_it_says),
        cmocka_unit_test(values_are_pinned),
        cmocka_unit_test(ranks_with_other_options_are_found),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
