/* SPDX-License-Identifier: BSD-3-Clause */
/* What is asked of the page cache, how often, and what is announced to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scratch.h"
#include "storage/opened.h"
#include "storage/shard/shard_file.h"

#define NAME  "file"
#define GROUP ((uint64_t)8 << 20)
#define SIZE  (20 * GROUP + 12345)

/* A page cache that has what the test says. */
static struct {
    bool has;
    int queries;
    uint64_t offset;
    size_t size; /* of the last query */
    int announced;
} cache;

static int query(void *context, int descriptor, uint64_t offset, size_t size, bool *cached)
{
    (void)context, (void)descriptor;
    cache.queries++;
    cache.offset = offset;
    cache.size = size;
    *cached = cache.has;
    return 0;
}

static int announce(void *context, int descriptor, uint64_t offset, size_t size)
{
    (void)context, (void)descriptor, (void)offset, (void)size;
    cache.announced++;
    return 0;
}

struct scene {
    struct file_ops ops;
    char *path;
    struct opened opened;
    struct shard_reader reader;
    struct shard_file file;
};

static struct scene *open_scene(void **state)
{
    struct scene *scene = calloc(1, sizeof *scene);
    const dcp_storage_access access = {.size_of = sizeof access, .trusted = true};
    assert_non_null(scene);
    scene->ops = file_ops_system;
    scene->ops.cached = query;
    scene->ops.will_need = announce;
    scene->path = scratch_path(*state, NAME);
    scratch_write(*state, NAME, "", 0);
    assert_int_equal(truncate(scene->path, (off_t)SIZE), 0);
    assert_int_equal(opened_open(&scene->opened, &scene->ops, scene->path), DCP_OK);
    scene->file.reader = &scene->reader;
    assert_int_equal(
        storage_file_open(&scene->file.file, &scene->opened.directory, scene->opened.name, &access),
        DCP_OK);
    memset(&cache, 0, sizeof cache);
    return scene;
}

static void close_scene(struct scene *scene)
{
    storage_file_close(&scene->file.file);
    opened_close(&scene->opened);
    free(scene->path);
    free(scene);
}

/* As a range does that begins there. */
static bool ask(struct scene *scene, uint64_t position)
{
    struct cached_group group = {.start = UINT64_MAX};
    return shard_file_is_cached(&scene->file, &group, position);
}

static void what_the_page_cache_has_is_asked_once(void **state)
{
    struct scene *scene = open_scene(state);
    cache.has = true;
    for (uint64_t at = 0; at < GROUP; at += GROUP / 4)
        assert_true(ask(scene, at));
    assert_int_equal(cache.queries, 1);
    assert_int_equal(cache.size, GROUP);
    assert_true(ask(scene, GROUP));
    assert_int_equal(cache.offset, GROUP);
    assert_true(ask(scene, 1));
    assert_int_equal(cache.queries, 2);
    close_scene(scene);
}

/* The data may be there the next time. */
static void what_it_lacks_is_asked_again(void **state)
{
    struct scene *scene = open_scene(state);
    struct cached_group group = {.start = UINT64_MAX};
    for (int i = 0; i < 3; i++)
        assert_false(ask(scene, 3 * GROUP));
    assert_int_equal(cache.queries, 3);
    cache.has = true;
    assert_true(ask(scene, 3 * GROUP));
    assert_int_equal(cache.queries, 4);
    /* But within one range it is asked once. */
    cache.has = false;
    assert_false(shard_file_is_cached(&scene->file, &group, 5 * GROUP));
    cache.has = true;
    assert_false(shard_file_is_cached(&scene->file, &group, 5 * GROUP + 1));
    close_scene(scene);
}

/* One group does not stand for another that is remembered in its place, nor for one of a file's
 * last bytes. */
static void groups_are_told_apart(void **state)
{
    struct scene *scene = open_scene(state);
    cache.has = true;
    assert_true(ask(scene, 0));
    assert_true(ask(scene, 20 * GROUP));
    assert_int_equal(cache.size, SIZE - 20 * GROUP);
    cache.has = false;
    assert_false(ask(scene, SHARD_CACHED * GROUP));
    assert_false(ask(scene, 4 * GROUP));
    assert_true(ask(scene, 0));
    assert_true(ask(scene, SIZE - 1));
    assert_int_equal(cache.queries, 4);
    cache.has = true;
    assert_true(ask(scene, SHARD_CACHED * GROUP));
    cache.has = false;
    assert_false(ask(scene, 0));
    close_scene(scene);
}

static void only_what_is_lacking_is_announced(void **state)
{
    struct scene *scene = open_scene(state);
    struct cached_group group = {.start = UINT64_MAX};
    shard_file_expect(&scene->file, &group, GROUP, 100);
    assert_int_equal(cache.announced, 1);
    cache.has = true;
    shard_file_expect(&scene->file, &group, 2 * GROUP, 100);
    assert_int_equal(cache.announced, 1);
    close_scene(scene);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_the_page_cache_has_is_asked_once, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(what_it_lacks_is_asked_again, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(groups_are_told_apart, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(only_what_is_lacking_is_announced, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
