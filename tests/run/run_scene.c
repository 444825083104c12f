/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/run_scene.h"

#include <dirent.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "dcp.h"
#include "storage/scratch.h"

const char *scene_in(const char *directory, const char *name)
{
    static char ring[8][1024];
    static unsigned next;
    char *path = ring[next++ % 8];
    snprintf(path, sizeof ring[0], "%s/%s", directory, name);
    return path;
}

static void copy_tree(const char *from, const char *to)
{
    struct dirent **entries;
    int count = scandir(from, &entries, NULL, alphasort);
    assert_true(count >= 0);
    scratch_copy(from, to);
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        char *inner = scratch_path(from, name), *copy = scratch_path(to, name);
        struct stat status;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && stat(inner, &status) == 0 &&
            S_ISDIR(status.st_mode))
            copy_tree(inner, copy);
        free(inner);
        free(copy);
        free(entries[i]);
    }
    free(entries);
}

static void make_link(const char *run, const char *name)
{
    size_t size;
    char target[256];
    if (!scratch_exists(run, name))
        return;
    unsigned char *text = scratch_read(run, name, &size);
    assert_true(size < sizeof target);
    memcpy(target, text, size);
    target[size] = '\0';
    free(text);
    scratch_remove(run, name);
    assert_int_equal(symlink(target, scene_in(run, name)), 0);
}

const char *scene_tree(void *const *state, const char *tree, bool links)
{
    static const char *const names[] = {"LATEST", "LOWEST_VAL", "last.ckpt", "latest-rank0.pt",
                                        "loop"};
    static char run[512];
    char *from = scratch_path(FIXTURES "/runs", tree), *inner = scratch_path(from, "run");
    snprintf(run, sizeof run, "%s/%s%s", (const char *)*state, tree, links ? "-links" : "");
    copy_tree(inner, run);
    for (size_t i = 0; i < sizeof names / sizeof *names && links; i++)
        make_link(run, names[i]);
    if (links && strcmp(tree, "deepspeed") != 0) /* its mark is a text */
        make_link(run, "latest");
    free(from);
    free(inner);
    return run;
}

void scene_save(const dcp_storage *storage, const char *id)
{
    float values[4] = {1, 2, 3, 4};
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .global_shape = {4}, .data = values};
    dcp_save_options options = {.storage = storage,
                                .files = DCP_FILE_PER_ITEM,
                                .overwrite = DCP_OVERWRITE_REPLACE,
                                .skip_sync = true};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "a", &tensor);
    dcp_state_int(root, "b", 5);
    must(dcp_save(root, id, &options));
    dcp_state_free(root);
}

void scene_write(const char *directory, const char *name, const char *text)
{
    mkdir(directory, 0777);
    scratch_write(directory, name, text, strlen(text));
}

void scene_remove(const char *directory, const char *name)
{
    scratch_remove(directory, name);
}

void scene_cut(const char *directory, const char *name, size_t bytes)
{
    size_t size;
    unsigned char *content = scratch_read(directory, name, &size);
    assert_true(size > bytes);
    scratch_write(directory, name, content, size - bytes);
    free(content);
}

dcp_run_list *scene_read(const char *path, const dcp_storage *storage)
{
    const dcp_run_list_options options = {.storage = storage};
    dcp_run_list *list = NULL;
    must(dcp_run_list_read(path, &options, &list));
    return list;
}

/* Cuts "(REASON)" out of a line: *reason is what was in it, and "not" stands there instead. */
static void cut_reason(char *line, size_t size, char *reason)
{
    char rest[64] = "";
    char *open = strchr(line, '('), *close = open ? strrchr(line, ')') : NULL;
    *reason = '\0';
    if (!close)
        return;
    memcpy(reason, open + 1, (size_t)(close - open - 1));
    reason[close - open - 1] = '\0';
    snprintf(rest, sizeof rest, "%s", close + 1);
    snprintf(open, size - (size_t)(open - line), "not%s", rest);
}

static void expect_line(const dcp_run_checkpoint *found, const char *line, size_t length)
{
    char expected[512], reason[512], text[512], step[32] = "-";
    assert_true(length < sizeof expected - 8);
    memcpy(expected, line, length);
    expected[length] = '\0';
    cut_reason(expected, sizeof expected, reason);
    if (found->has_step)
        snprintf(step, sizeof step, "%" PRId64, found->step);
    snprintf(text, sizeof text, "%s %s %s %s%s%s", found->path, step,
             dcp_run_kind_name(found->kind), found->complete ? "whole" : "not",
             found->latest ? " latest" : "", found->marked ? " marked" : "");
    if (strcmp(text, expected) != 0)
        fail_msg("expected \"%s\", found \"%s\": %s", expected, text, found->why);
    if (!strstr(found->why, reason) || (found->complete && *found->why))
        fail_msg("%s: expected \"%s\", found \"%s\"", found->path, reason, found->why);
}

void scene_expect(const char *path, const dcp_storage *storage, const char *expected)
{
    dcp_run_list *list = scene_read(path, storage);
    size_t i = 0;
    for (; *expected; i++) {
        dcp_run_checkpoint found;
        size_t length = strcspn(expected, "\n");
        if (i >= dcp_run_list_count(list))
            fail_msg("not found: %s", expected);
        must(dcp_run_list_checkpoint(list, i, &found));
        expect_line(&found, expected, length);
        expected += length + (expected[length] == '\n');
    }
    assert_int_equal(dcp_run_list_count(list), i);
    dcp_run_list_free(list);
}

void scene_expect_latest(const char *path, const char *expected)
{
    const dcp_run_list_options options = {.latest_only = true};
    dcp_run_checkpoint found;
    dcp_run_list *list = NULL;
    size_t index;
    must(dcp_run_list_read(path, &options, &list));
    dcp_status status = dcp_run_list_latest(list, &index);
    if (status == DCP_OK) {
        must(dcp_run_list_checkpoint(list, index, &found));
        assert_string_equal(found.path, expected);
        assert_true(found.latest);
    } else if (!strstr(dcp_run_list_reason(list), expected)) {
        fail_msg("expected \"%s\", found \"%s\"", expected, dcp_run_list_reason(list));
    }
    dcp_run_list_free(list);
}
