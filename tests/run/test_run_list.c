/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs of this library and of others: what is whole, what is the latest, and what marks say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "dcp.h"
#include "run/run_scene.h"
#include "storage/scratch.h"

static void expect_reason(const char *path, const char *words)
{
    dcp_run_list *list = scene_read(path, NULL);
    if (!strstr(dcp_run_list_reason(list), words))
        fail_msg("no \"%s\" in: %s", words, dcp_run_list_reason(list));
    dcp_run_list_free(list);
}

/* ---- checkpoints of this library ---- */

static void own_checkpoints_are_checked_to_their_footers(void **state)
{
    const char *run = *state;
    for (int i = 1; i <= 6; i++) {
        char name[32];
        snprintf(name, sizeof name, "step_%d", i);
        scene_save(NULL, scene_in(run, name));
    }
    scene_remove(scene_in(run, "step_2"), "__0_1.distcp");
    scene_cut(scene_in(run, "step_3"), "__0_0.distcp", 1); /* the footer alone */
    scene_cut(scene_in(run, "step_4"), ".metadata", 10);
    scratch_remove(scene_in(run, "step_5"), "__0_1.distcp");
    size_t size;
    unsigned char *other = scratch_read(scene_in(run, "step_6"), "__0_1.distcp", &size);
    scratch_write(scene_in(run, "step_5"), "__0_1.distcp", other, size);
    free(other);
    scene_remove(scene_in(run, "step_6"), ".metadata");
    scene_expect(run, NULL,
                 "step_1 1 dcp whole latest\n"
                 "step_2 2 dcp (__0_1.distcp is missing)\n"
                 "step_3 3 dcp (__0_0.distcp has no footer)\n"
                 "step_4 4 dcp (.metadata)\n"
                 "step_5 5 dcp (__0_1.distcp is of save)\n"
                 "step_6 6 dcp (no .metadata)\n");
    scene_expect_latest(run, "step_1");
    expect_reason(run, "step_1 is the newest whole one; step_6 is not whole: no .metadata");
    expect_reason(run, "; nor are 2 more");
}

static void what_is_known_of_a_checkpoint_is_listed(void **state)
{
    dcp_run_checkpoint found;
    size_t index;
    scene_save(NULL, scene_in(*state, "step_7"));
    scene_write(scene_in(*state, "step_3"), ".metadata", "");
    const dcp_run_list_options options = {.latest_only = true};
    dcp_run_list *list;
    must(dcp_run_list_read(*state, &options, &list));
    assert_int_equal(dcp_run_list_count(list), 2);
    must(dcp_run_list_checkpoint(list, 0, &found));
    assert_false(found.checked || found.complete);
    must(dcp_run_list_latest(list, &index));
    must(dcp_run_list_checkpoint(list, index, &found));
    assert_true(found.checked && found.complete && found.latest && found.bytes > 1000);
    assert_true(found.unix_time > 1700000000);
    assert_string_equal(found.framework, "dcp");
    assert_string_equal(dcp_run_kind_name(found.kind), "dcp");
    assert_string_equal(dcp_run_kind_name((dcp_run_kind)1), "unknown");
    dcp_run_list_free(list);
}

static void stages_are_a_union(void **state)
{
    for (int i = 0; i < 2; i++) {
        mkdir(scene_in(*state, i ? "step_2" : "step_1"), 0777);
        scene_save(NULL, scene_in(*state, i ? "step_2/pp0" : "step_1/pp0"));
        scene_save(NULL, scene_in(*state, i ? "step_2/pp2" : "step_1/pp1"));
    }
    scene_expect(*state, NULL,
                 "step_1 1 dcp-stages whole latest\n"
                 "step_2 2 dcp-stages (of the stages pp0 to pp2 only 2 are there)\n");
}

/* ---- names and places ---- */

static void names_that_are_none_are_left_out(void **state)
{
    static const char *const others[] = {
        "step_", "step_1.5", "step_-1", "step_99999999999999999999", "old-step_3", "step_4.tmp"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        scene_save(NULL, scene_in(*state, others[i]));
    scene_write(*state, "step_8", "a file");
    scene_write(scene_in(*state, "step_9"), "notes.txt", "of somebody else");
    scene_write(scene_in(*state, "7"), "notes.txt", "no Orbax either");
    scene_save(NULL, scene_in(*state, "step_9223372036854775807"));
    scene_expect(*state, NULL, "step_9223372036854775807 9223372036854775807 dcp whole latest\n");
}

static void order_is_by_number_and_not_by_time(void **state)
{
    scene_save(NULL, scene_in(*state, "step_9"));
    scene_save(NULL, scene_in(*state, "step_0010"));
    const struct utimbuf long_ago = {1, 1};
    assert_int_equal(utime(scene_in(*state, "step_0010"), &long_ago), 0);
    scene_expect(*state, NULL, "step_9 9 dcp whole\nstep_0010 10 dcp whole latest\n");
}

static void two_of_one_step_are_no_choice(void **state)
{
    scene_save(NULL, scene_in(*state, "step_10"));
    scene_save(NULL, scene_in(*state, "step_20"));
    scene_save(NULL, scene_in(*state, "step_00000020"));
    scene_expect(*state, NULL,
                 "step_10 10 dcp whole\nstep_00000020 20 dcp whole\nstep_20 20 dcp whole\n");
    scene_expect_latest(*state, "step_00000020 and step_20 are both step 20");
    dcp_run_list *list = scene_read(*state, NULL);
    size_t index;
    must_fail(dcp_run_list_latest(list, &index), DCP_ERR_DUPLICATE, "both step 20");
    dcp_run_list_free(list);
    /* One that is not whole is none. */
    scene_remove(scene_in(*state, "step_20"), ".metadata");
    scene_expect_latest(*state, "step_00000020");
    /* And those that are not the newest are nobody's choice. */
    scene_save(NULL, scene_in(*state, "step_20"));
    scene_save(NULL, scene_in(*state, "step_30"));
    scene_expect_latest(*state, "step_30");
}

static void folders_of_several_runs_are_no_choice(void **state)
{
    mkdir(scene_in(*state, "first"), 0777);
    mkdir(scene_in(*state, "second"), 0777);
    scene_save(NULL, scene_in(*state, "first/step_1"));
    scene_save(NULL, scene_in(*state, "second/step_2"));
    scene_expect_latest(*state, "both first and second hold steps");
    /* Its own names come before those of others. */
    mkdir(scene_in(*state, "checkpoints"), 0777);
    scene_save(NULL, scene_in(*state, "checkpoints/step_3"));
    scene_expect(*state, NULL, "checkpoints/step_3 3 dcp whole latest\n");
}

static void pins_of_several_runs_are_listed(void **state)
{
    static const char *const runs[] = {"a", "b", "c"};
    for (size_t i = 0; i < 3; i++) {
        mkdir(scene_in(*state, runs[i]), 0777);
        scene_write(scene_in(*state, runs[i]), ".dcp_run",
                    "dcp run 1\nidentity: x\npattern: step_{N}\nlayout: dcp\n");
        scene_write(scene_in(*state, runs[i]), ".dcp_pin.step_1", "");
        scene_save(NULL, scene_in(scene_in(*state, runs[i]), "step_1"));
        scene_save(NULL, scene_in(scene_in(*state, runs[i]), "step_2"));
    }
    dcp_run_list *list = scene_read(*state, NULL);
    assert_int_equal(dcp_run_list_count(list), 6);
    for (size_t i = 0; i < 6; i++) {
        dcp_run_checkpoint found;
        must(dcp_run_list_checkpoint(list, i, &found));
        assert_int_equal(found.pinned, found.step == 1);
    }
    dcp_run_list_free(list);
}

/* Another name of a run beside it is no second run, and one that leads elsewhere is. */
static void a_link_to_a_run_is_no_second_one(void **state)
{
    char above[512];
    snprintf(above, sizeof above, "%s/above", (const char *)*state);
    scene_save(NULL, scene_in(above, "run/step_1"));
    assert_int_equal(symlink("run", scene_in(above, "current")), 0);
    assert_int_equal(symlink("run", scene_in(above, "zz")), 0);
    scene_expect(above, NULL, "run/step_1 1 dcp whole latest\n");
    assert_int_equal(symlink("above/run", scene_in(*state, "link")), 0);
    scene_expect(scene_in(*state, "link/"), NULL, "step_1 1 dcp whole latest\n");
    mkdir(scene_in(*state, "other"), 0777);
    assert_int_equal(symlink("../above/run", scene_in(*state, "other/only")), 0);
    assert_int_equal(symlink("../above/run", scene_in(*state, "other/twice")), 0);
    scene_expect_latest(scene_in(*state, "other"), "only/step_1");
    scene_save(NULL, scene_in(*state, "second/step_2"));
    assert_int_equal(symlink("../second", scene_in(above, "old")), 0);
    scene_expect_latest(above, "both run and old hold steps");
}

static void neighbours_folders_are_not_searched(void **state)
{
    const char *run = scene_tree(state, "megatron_bridge", false);
    mkdir(scene_in(run, "energon"), 0777);
    scene_save(NULL, scene_in(run, "energon/iter_0000099"));
    scene_expect_latest(run, "iter_0000030");
    /* Parts of a checkpoint are parts, also when it is their folder that is looked at. */
    run = scene_tree(state, "torchtitan_ft", false);
    scene_expect(scene_in(run, "checkpoint/ft-replicat-0/"), NULL,
                 "step-10 10 dcp-part whole\nstep-20 20 dcp-part whole\n");
}

static void many_entries_are_fine(void **state)
{
    char name[64];
    for (int i = 0; i < 2000; i++) {
        snprintf(name, sizeof name, "step_%d", i);
        mkdir(scene_in(*state, name), 0777);
        snprintf(name, sizeof name, "event.%d", i);
        scene_write(*state, name, "");
    }
    scene_save(NULL, scene_in(*state, "step_77"));
    dcp_run_list *list = scene_read(*state, NULL);
    assert_int_equal(dcp_run_list_count(list), 2000);
    dcp_run_list_free(list);
    scene_expect_latest(*state, "step_77");
}

static void an_empty_run_has_no_latest(void **state)
{
    size_t index;
    dcp_run_list *list = scene_read(*state, NULL);
    assert_int_equal(dcp_run_list_count(list), 0);
    must_fail(dcp_run_list_latest(list, &index), DCP_ERR_NOT_FOUND, "no checkpoints are there");
    dcp_run_list_free(list);
    scene_write(scene_in(*state, "step_5"), ".metadata.tmp", "x");
    scene_expect_latest(*state, "none of the run is whole; step_5 is not whole: no .metadata");
}

/* A storage that cannot open one of the steps. */
static dcp_status open_but_one(void *context, const char *id, uint32_t flags, void **directory,
                               bool *created)
{
    if (strstr(id, "step_2"))
        return dcp_error_set(DCP_ERR_IO, "%s: permission denied", id);
    return dcp_storage_files()->open(context, id, flags, directory, created);
}

static void what_cannot_be_read_is_not_whole(void **state)
{
    dcp_storage storage = *dcp_storage_files();
    storage.open = open_but_one;
    scene_save(NULL, scene_in(*state, "step_1"));
    scene_save(NULL, scene_in(*state, "step_2"));
    scene_expect(*state, &storage, "step_1 1 dcp whole latest\nstep_2 2 dcp (permission denied)\n");
}

/* Files that are none wait for nobody. */
static void pipes_are_no_files(void **state)
{
    const char *run = scene_tree(state, "kempnerforge", false);
    scene_remove(run, "latest");
    assert_int_equal(mkfifo(scene_in(run, "latest"), 0600), 0);
    assert_int_equal(mkfifo(scene_in(run, "last.ckpt"), 0600), 0);
    assert_int_equal(mkfifo(scene_in(run, "step_50"), 0600), 0);
    scene_remove(scene_in(run, "step_30"), "train_state.pt");
    assert_int_equal(mkfifo(scene_in(run, "step_30/train_state.pt"), 0600), 0);
    scene_expect_latest(run, "step_20");
    dcp_run_list *list = scene_read(run, NULL);
    assert_int_equal(dcp_run_list_count(list), 4); /* the pipe is no step */
    dcp_run_list_free(list);
}

/* Loads follow no link to a shard, wherever it leads. */
static void shards_that_are_links_are_missing(void **state)
{
    const char *run = scene_tree(state, "torchtitan", false);
    const char *step = scene_in(run, "checkpoint/step-30");
    assert_int_equal(rename(scene_in(step, "__0_0.distcp"), scene_in(run, "checkpoint/notes.txt")),
                     0);
    assert_int_equal(symlink("../notes.txt", scene_in(step, "__0_0.distcp")), 0);
    scene_expect_latest(run, "checkpoint/step-20");
}

/* ---- marks ---- */

static void a_mark_is_a_hint(void **state)
{
    scene_save(NULL, scene_in(*state, "step_1"));
    scene_save(NULL, scene_in(*state, "step_2"));
    scene_write(scene_in(*state, "step_3"), "__0_0.distcp", "x");
    scene_write(*state, "latest", "step_1\n");
    scene_expect(*state, NULL,
                 "step_1 1 dcp whole marked\nstep_2 2 dcp whole latest\nstep_3 3 dcp (no .meta)\n");
    expect_reason(*state, "the mark latest names step_1");
    scene_write(*state, "latest", "step_3");
    expect_reason(*state, "step_2 is the newest whole one; step_3 is not whole: no .metadata; the "
                          "mark latest names step_3");
    scene_write(*state, "latest_checkpointed_iteration.txt", "2");
    expect_reason(*state, "marks disagree: none was believed");
    dcp_run_mark mark;
    dcp_run_list *list = scene_read(*state, NULL);
    assert_int_equal(dcp_run_list_mark_count(list), 2);
    must(dcp_run_list_mark(list, 1, &mark));
    assert_string_equal(mark.path, "latest_checkpointed_iteration.txt");
    assert_string_equal(mark.text, "2");
    assert_true(mark.found && mark.checkpoint == 1);
    must_fail(dcp_run_list_mark(list, 2, &mark), DCP_ERR_ARGUMENT, "mark 2");
    dcp_run_list_free(list);
}

static void links_lead_nowhere_else(void **state)
{
    mkdir(scene_in(*state, "run"), 0777);
    mkdir(scene_in(*state, "elsewhere"), 0777);
    char run[512];
    snprintf(run, sizeof run, "%s/run", (const char *)*state);
    scene_save(NULL, scene_in(run, "step_1"));
    scene_save(NULL, scene_in(*state, "elsewhere/step_1"));
    assert_int_equal(symlink("../elsewhere/step_1", scene_in(run, "latest")), 0);
    scene_expect(run, NULL, "step_1 1 dcp whole latest\n");
    unlink(scene_in(run, "latest"));
    assert_int_equal(symlink(scene_in(run, "step_1"), scene_in(run, "latest")), 0);
    scene_expect(run, NULL, "step_1 1 dcp whole latest marked\n");
    /* A step that is a link is listed, and never the latest by itself. */
    assert_int_equal(symlink("../elsewhere/step_1", scene_in(run, "step_2")), 0);
    assert_int_equal(symlink("step_3", scene_in(run, "step_3")), 0);
    scene_expect(run, NULL, "step_1 1 dcp whole latest marked\nstep_2 2 link whole\n");
}

static void a_link_is_as_whole_as_what_it_leads_to(void **state)
{
    const char *run = scene_tree(state, "lightning", false);
    scene_remove(run, "last.ckpt");
    assert_int_equal(symlink("epoch=0-step=30.ckpt", scene_in(run, "last.ckpt")), 0);
    scene_expect(
        run, NULL,
        "epoch=0-step=10.ckpt 10 pt whole\nepoch=0-step=20.ckpt 20 pt whole\n"
        "last.ckpt 30 link whole marked\nepoch=0-step=30.ckpt 30 pt whole latest marked\n");
    scene_cut(run, "epoch=0-step=30.ckpt", 100);
    scene_expect(run, NULL,
                 "epoch=0-step=10.ckpt 10 pt whole\nepoch=0-step=20.ckpt 20 pt whole latest\n"
                 "last.ckpt 30 link (leads to epoch=0-step=30.ckpt) marked\n"
                 "epoch=0-step=30.ckpt 30 pt (cut short) marked\n");
    /* A copy is a checkpoint whose step is not known. */
    scene_remove(run, "last.ckpt");
    size_t size;
    unsigned char *bytes = scratch_read(run, "epoch=0-step=20.ckpt", &size);
    scratch_write(run, "last.ckpt", bytes, size);
    free(bytes);
    scene_remove(run, "epoch=0-step=10.ckpt");
    scene_remove(run, "epoch=0-step=20.ckpt");
    scene_expect(run, NULL,
                 "last.ckpt - pt whole latest marked\nepoch=0-step=30.ckpt 30 pt (cut short)\n");
}

/* ---- arguments ---- */

static void wrong_arguments_are_refused(void **state)
{
    dcp_run_list *list = NULL;
    dcp_run_checkpoint found;
    size_t index;
    must_fail(dcp_run_list_read(NULL, NULL, &list), DCP_ERR_ARGUMENT, "directory");
    must_fail(dcp_run_list_read("", NULL, &list), DCP_ERR_ARGUMENT, "directory");
    must_fail(dcp_run_list_read(*state, NULL, NULL), DCP_ERR_ARGUMENT, "directory");
    must_fail(dcp_run_list_read(scene_in(*state, "none"), NULL, &list), DCP_ERR_NOT_FOUND, "none");
    scene_write(*state, "file", "x");
    must_fail(dcp_run_list_read(scene_in(*state, "file"), NULL, &list), DCP_ERR_KIND, "file");
    struct {
        dcp_run_list_options options;
        int more;
    } newer = {.more = 1};
    must_fail(dcp_run_list_read_sized(*state, &newer.options, sizeof newer, &list),
              DCP_ERR_ARGUMENT, "dcp_run_list_options");
    must(dcp_run_list_read(*state, NULL, &list));
    must_fail(dcp_run_list_checkpoint(list, 0, &found), DCP_ERR_ARGUMENT, "checkpoint 0");
    must_fail(dcp_run_list_checkpoint(list, 0, NULL), DCP_ERR_ARGUMENT, "NULL");
    must_fail(dcp_run_list_latest(NULL, &index), DCP_ERR_ARGUMENT, "NULL");
    assert_int_equal(dcp_run_list_count(NULL) + dcp_run_list_mark_count(NULL), 0);
    assert_string_equal(dcp_run_list_reason(NULL), "");
    dcp_run_list_free(list);
    dcp_run_list_free(NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(own_checkpoints_are_checked_to_their_footers),
        TEST(what_is_known_of_a_checkpoint_is_listed),
        TEST(stages_are_a_union),
        TEST(names_that_are_none_are_left_out),
        TEST(order_is_by_number_and_not_by_time),
        TEST(two_of_one_step_are_no_choice),
        TEST(folders_of_several_runs_are_no_choice),
        TEST(pins_of_several_runs_are_listed),
        TEST(a_link_to_a_run_is_no_second_one),
        TEST(neighbours_folders_are_not_searched),
        TEST(many_entries_are_fine),
        TEST(an_empty_run_has_no_latest),
        TEST(what_cannot_be_read_is_not_whole),
        TEST(pipes_are_no_files),
        TEST(shards_that_are_links_are_missing),
        TEST(a_mark_is_a_hint),
        TEST(links_lead_nowhere_else),
        TEST(a_link_is_as_whole_as_what_it_leads_to),
        TEST(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
