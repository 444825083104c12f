/* SPDX-License-Identifier: BSD-3-Clause */
/* What saves leave of their shard files in the page cache, as mincore() sees it; and how much
 * memory is plenty. */
#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory_available.h"
#include "checkpoint/save/save_page_cache.h"
#include "dcp.h"
#include "storage/scratch.h"

#define PAGE   ((size_t)4096)
#define LARGE  ((int64_t)5 << 20) /* floats: written in parts, and alone in its file */
#define MIDDLE ((int64_t)300001)  /* ends within a page */
#define SMALL  ((int64_t)30000)   /* a file that is not worth going around the page cache */

static float *values;

static int set_up(void **state)
{
    values = malloc((size_t)LARGE * sizeof *values);
    for (int64_t i = 0; values && i < LARGE; i++)
        values[i] = (float)i;
    return values ? scratch_setup(state) : -1;
}

static int tear_down(void **state)
{
    free(values);
    return scratch_teardown(state);
}

/* Pages of a file that the page cache has, and all. */
static void count_pages(const char *path, size_t *kept, size_t *all)
{
    int file = open(path, O_RDONLY);
    struct stat status;
    assert_true(file >= 0);
    assert_int_equal(fstat(file, &status), 0);
    size_t size = (size_t)status.st_size, count = (size + PAGE - 1) / PAGE;
    unsigned char *pages = malloc(count);
    void *mapped = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
    assert_non_null(pages);
    assert_ptr_not_equal(mapped, MAP_FAILED);
    assert_int_equal(mincore(mapped, size, pages), 0);
    for (size_t i = 0; i < count; i++)
        *kept += pages[i] & 1;
    *all += count;
    munmap(mapped, size);
    free(pages);
    close(file);
}

/* Part of the shard files that is in the page cache, in per cent. */
static size_t part_kept(const char *checkpoint)
{
    const struct dirent *entry;
    size_t kept = 0, all = 0;
    DIR *listing = opendir(checkpoint);
    assert_non_null(listing);
    while ((entry = readdir(listing))) {
        if (!strstr(entry->d_name, ".distcp"))
            continue;
        char *path = scratch_path(checkpoint, entry->d_name);
        count_pages(path, &kept, &all);
        free(path);
    }
    closedir(listing);
    assert_true(all > 0);
    return 100 * kept / all;
}

static dcp_state *sample(int64_t elements)
{
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .global_shape = {elements}, .data = values};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "values", &tensor);
    return root;
}

static size_t save_and_look_once(const char *path, int64_t elements,
                                 const dcp_save_options *options, bool async)
{
    dcp_save_options save = *options;
    dcp_state *root = sample(elements);
    dcp_future *future = NULL;
    save.overwrite = DCP_OVERWRITE_REPLACE;
    assert_int_equal(
        async ? dcp_save_async(root, path, &save, &future) : dcp_save(root, path, &save), DCP_OK);
    assert_int_equal(async ? dcp_future_wait(future, 60) : DCP_OK, DCP_OK);
    dcp_future_free(future);
    size_t part = part_kept(path);
    memset(values, 0, (size_t)elements * sizeof *values);
    assert_int_equal(dcp_load(root, path, NULL, NULL), DCP_OK);
    for (int64_t i = 0; i < elements; i++)
        assert_true(values[i] == (float)i);
    dcp_state_free(root);
    return part;
}

/* Saves again if only some pages are gone: a busy kernel may take one before mincore() looks. */
static size_t save_and_look(const char *path, int64_t elements, const dcp_save_options *options,
                            bool async)
{
    size_t part = save_and_look_once(path, elements, options, async);
    for (int i = 0; i < 9 && part > 50 && part < 100; i++)
        part = save_and_look_once(path, elements, options, async);
    return part;
}

static bool has_page_cache(const char *directory)
{
    struct statfs status;
    if (statfs(directory, &status) == 0 && status.f_type != TMPFS_MAGIC)
        return true;
    print_message("%s is in memory: there is nothing to see\n", directory);
    return false;
}

static void test_pages(void **state)
{
    static const struct {
        dcp_save_options options;
        size_t part; /* that is kept */
    } cases[] = {
        {{.page_cache = DCP_PAGE_CACHE_KEPT}, 100},
        {{.page_cache = DCP_PAGE_CACHE_KEPT, .thread_count = 3}, 100},
        {{.page_cache = DCP_PAGE_CACHE_KEPT, .skip_sync = true}, 100},
        {{.page_cache = DCP_PAGE_CACHE_KEPT, .io = DCP_IO_POOL}, 100},
        {{.page_cache = DCP_PAGE_CACHE_DROPPED}, 0},
        {{.page_cache = DCP_PAGE_CACHE_DROPPED, .io = DCP_IO_POOL}, 0},
        {{.page_cache = DCP_PAGE_CACHE_DROPPED, .io = DCP_IO_BUFFERED}, 0},
    };
    static const int64_t sizes[] = {LARGE, MIDDLE, SMALL};
    char *path = scratch_path(*state, "checkpoint");
    for (size_t i = 0; has_page_cache(*state) && i < sizeof cases / sizeof *cases; i++)
        for (size_t s = 0; s < 3; s++)
            for (int async = 0; async < 2; async++)
                assert_int_equal(save_and_look(path, sizes[s], &cases[i].options, async),
                                 cases[i].part);
    free(path);
}

/* Without a sync, bytes that are dropped must not go through the page cache. */
static void test_dropped_without_sync(void **state)
{
    dcp_save_options options = {.page_cache = DCP_PAGE_CACHE_DROPPED, .skip_sync = true};
    char *path = scratch_path(*state, "checkpoint");
    if (has_page_cache(*state))
        assert_true(save_and_look(path, LARGE, &options, false) < 2);
    free(path);
}

/* A file that is written by itself. */
static void test_shard_writer(void **state)
{
    static const dcp_page_cache chosen[] = {DCP_PAGE_CACHE_KEPT, DCP_PAGE_CACHE_DROPPED};
    static const dcp_shard_name name = {.name = "values"};
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .global_shape = {LARGE}, .data = values};
    char *path = scratch_path(*state, "files");
    for (int i = 0; has_page_cache(*state) && i < 2; i++) {
        dcp_shard_writer_options options = {.page_cache = chosen[i]};
        dcp_shard_writer *writer;
        assert_int_equal(dcp_shard_writer_open(path, "__0_0.distcp", &options, &writer), DCP_OK);
        assert_int_equal(dcp_shard_writer_add_tensor(writer, &name, &tensor), DCP_OK);
        assert_int_equal(dcp_shard_writer_seal(writer), DCP_OK);
        size_t part = part_kept(path); /* a busy kernel may have taken some pages away */
        assert_true(i == 0 ? part > 90 : part == 0);
        dcp_shard_writer_abandon(writer);
        dcp_shard_writer_free(writer);
    }
    dcp_shard_writer_options wrong = {.page_cache = (dcp_page_cache)7};
    dcp_shard_writer *refused;
    assert_int_equal(dcp_shard_writer_open(path, "__0_0.distcp", &wrong, &refused),
                     DCP_ERR_ARGUMENT);
    free(path);
}

/* As this machine decides it. */
static void test_automatic(void **state)
{
    dcp_save_options options = {.page_cache = DCP_PAGE_CACHE_AUTO};
    char *path = scratch_path(*state, "checkpoint");
    bool plenty = memory_available("") > (uint64_t)LARGE * 16;
    if (has_page_cache(*state))
        assert_int_equal(save_and_look(path, LARGE, &options, false), plenty ? 100 : 0);
    free(path);
}

static void test_plenty(void **state)
{
    dcp_group *groups[10];
    dcp_save_options options = {.page_cache = DCP_PAGE_CACHE_AUTO};
    (void)state;
    assert_int_equal(save_page_cache_decide(&options, 100, 200), DCP_PAGE_CACHE_KEPT);
    assert_int_equal(save_page_cache_decide(&options, 100, 199), DCP_PAGE_CACHE_DROPPED);
    assert_int_equal(save_page_cache_decide(&options, UINT64_MAX, UINT64_MAX),
                     DCP_PAGE_CACHE_DROPPED);
    /* Not known. */
    assert_int_equal(save_page_cache_decide(&options, 0, 0), DCP_PAGE_CACHE_DROPPED);
    options.io = DCP_IO_DIRECT;
    assert_int_equal(save_page_cache_decide(&options, 1, 200), DCP_PAGE_CACHE_DROPPED);
    options.io = 0;

    assert_int_equal(dcp_group_new_threads(3, groups), DCP_OK);
    options.group = groups[1];
    assert_int_equal(save_page_cache_decide(&options, 100, 600), DCP_PAGE_CACHE_KEPT);
    assert_int_equal(save_page_cache_decide(&options, 100, 599), DCP_PAGE_CACHE_DROPPED);
    for (int r = 0; r < 3; r++)
        dcp_group_free(groups[r]);
    assert_int_equal(dcp_group_new_threads(10, groups), DCP_OK);
    options.group = groups[0];
    assert_int_equal(save_page_cache_decide(&options, 100, 1600), DCP_PAGE_CACHE_KEPT);
    assert_int_equal(save_page_cache_decide(&options, 100, 1599), DCP_PAGE_CACHE_DROPPED);
    for (int r = 0; r < 10; r++)
        dcp_group_free(groups[r]);

    options = (dcp_save_options){.page_cache = DCP_PAGE_CACHE_KEPT};
    assert_int_equal(save_page_cache_decide(&options, 100, 0), DCP_PAGE_CACHE_KEPT);
    options.page_cache = DCP_PAGE_CACHE_ANY;
    assert_int_equal(save_page_cache_decide(&options, 1, 100), DCP_PAGE_CACHE_ANY);
}

/* Where there is no page cache. */
static void test_other_storage(void **state)
{
    static const dcp_page_cache all[] = {DCP_PAGE_CACHE_KEPT, DCP_PAGE_CACHE_DROPPED,
                                         DCP_PAGE_CACHE_AUTO};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        dcp_storage *memory;
        assert_int_equal(dcp_storage_memory_new(&memory), DCP_OK);
        dcp_state *root = sample(MIDDLE);
        dcp_save_options options = {.page_cache = all[i], .storage = memory};
        assert_int_equal(dcp_save(root, "memory://checkpoint", &options), DCP_OK);
        dcp_state_free(root);
        dcp_storage_memory_free(memory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pages, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_dropped_without_sync, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_shard_writer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_automatic, set_up, tear_down),
        cmocka_unit_test(test_plenty),
        cmocka_unit_test_setup_teardown(test_other_storage, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
