/* SPDX-License-Identifier: BSD-3-Clause */
/* Matrices that are larger than what is read at a time, transposed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "convert/convert_scene.h"

enum { MATRICES = 2, ROWS = 1500, COLUMNS = 1100, INNER = 3, LONG_ROWS = 1200000 };

/* Matrices of several tiles, of entries of three numbers, and one of lines longer than a tile. */
static void save_large(const char *path, dcp_compression compression)
{
    size_t count = (size_t)MATRICES * ROWS * COLUMNS * INNER;
    uint16_t *numbers = malloc(count * sizeof *numbers);
    int32_t *more = malloc(sizeof *more * LONG_ROWS * 2);
    dcp_state *root = dcp_state_new();
    assert_true(numbers && more);
    for (size_t i = 0; i < count; i++)
        numbers[i] = (uint16_t)(i * 40503 >> 7);
    for (size_t i = 0; i < (size_t)LONG_ROWS * 2; i++)
        more[i] = (int32_t)i;
    const dcp_tensor matrices = {.dtype = DCP_U16,
                                 .ndim = 4,
                                 .global_shape = {MATRICES, ROWS, COLUMNS, INNER},
                                 .data = numbers};
    const dcp_tensor tall = {
        .dtype = DCP_I32, .ndim = 2, .global_shape = {LONG_ROWS, 2}, .data = more};
    assert_non_null(dcp_state_tensor(root, "matrices", &matrices));
    assert_non_null(dcp_state_tensor(root, "tall", &tall));
    must(dcp_save(root, path, &(dcp_save_options){.skip_sync = true, .compression = compression}));
    dcp_state_free(root);
    free(numbers);
    free(more);
}

/* All of a tensor, which has this shape. */
static void *read_tensor(const char *path, const char *name, int32_t ndim, const int64_t *shape)
{
    dcp_checkpoint *checkpoint;
    dcp_entry entry;
    size_t index;
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    must(dcp_checkpoint_find(checkpoint, name, &index));
    must(dcp_checkpoint_entry(checkpoint, index, &entry));
    assert_int_equal(entry.ndim, ndim);
    assert_memory_equal(entry.global_shape, shape, (size_t)ndim * sizeof *shape);
    void *elements = scene_elements(checkpoint, index, &entry);
    dcp_checkpoint_close(checkpoint);
    return elements;
}

static void are_transposed(const char *path)
{
    uint16_t *numbers =
        read_tensor(path, "matrices", 4, (int64_t[]){MATRICES, COLUMNS, ROWS, INNER});
    for (size_t m = 0, at = 0; m < MATRICES; m++)
        for (size_t column = 0; column < COLUMNS; column++)
            for (size_t row = 0; row < ROWS; row++)
                for (size_t i = 0; i < INNER; i++, at++) {
                    size_t from = ((m * ROWS + row) * COLUMNS + column) * INNER + i;
                    if (numbers[at] != (uint16_t)(from * 40503 >> 7))
                        fail_msg("%s: element %zu", path, at);
                }
    free(numbers);
    int32_t *tall = read_tensor(path, "tall", 2, (int64_t[]){2, LONG_ROWS});
    for (int32_t i = 0; i < LONG_ROWS * 2; i++)
        if (tall[i] != i % LONG_ROWS * 2 + i / LONG_ROWS)
            fail_msg("%s: element %d of a long line", path, i);
    free(tall);
}

/* However the source is stored and whoever asks for the elements. */
static void large_matrices_are_transposed(void **state)
{
    static const char rules[] = "{\"rules\": [{\"transpose\": \"matrices\", \"dims\": [1, 2]}, "
                                "{\"transpose\": \"tall\", \"dims\": [0, 1]}]}";
    static const struct {
        const char *from, *to;
        dcp_convert_options options;
    } cases[] = {
        {"plain", "a.safetensors", {.thread_count = 4}},
        {"plain", "b", {.form = DCP_FORM_DCP, .ranks = 3}},
        {"a.safetensors", "c.pt", {.thread_count = 1}},
        {"packed", "d.pt", {.thread_count = 3}},
    };
    scene_write(*state, "rules.json", rules);
    char *file = strdup(path_in(state, "rules.json"));
    save_large(path_in(state, "plain"), DCP_COMPRESSION_NONE);
    save_large(path_in(state, "packed"),
               DCP_HAVE_ZSTD ? DCP_COMPRESSION_ZSTD : DCP_COMPRESSION_NONE);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dcp_convert_options options = cases[i].options;
        options.transform = file;
        options.skip_sync = true;
        char *from = strdup(path_in(state, cases[i].from)),
             *to = strdup(path_in(state, cases[i].to));
        must(dcp_convert(from, to, &options, NULL));
        if (i == 2) /* it was transposed before */
            scene_equal(to, path_in(state, "plain"));
        else
            are_transposed(to);
        free(from);
        free(to);
    }
    free(file);
}

/* Through another recipe: twice is as it was. */
static void large_matrices_are_transposed_twice(void **state)
{
    static const char rules[] =
        "{\"rules\": [{\"transpose\": \"*\", \"dims\": [0, 1]}, {\"transpose\": \"*\", "
        "\"dims\": [0, 1]}]}";
    scene_write(*state, "rules.json", rules);
    char *file = strdup(path_in(state, "rules.json")), *from = strdup(path_in(state, "plain"));
    char *to = strdup(path_in(state, "a.safetensors"));
    save_large(from, DCP_COMPRESSION_NONE);
    must(dcp_convert(
        from, to, &(dcp_convert_options){.transform = file, .thread_count = 4, .skip_sync = true},
        NULL));
    scene_equal(from, to);
    free(file);
    free(from);
    free(to);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(large_matrices_are_transposed),
        TEST(large_matrices_are_transposed_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
