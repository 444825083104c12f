/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads into memory that is mapped for reading only are refused before anything is read, with the
 * name of the tensor: a copy into it would end the process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "dcp.h"
#include "storage/scratch.h"

#define PAGE     ((size_t)4096)
#define ELEMENTS ((int64_t)3 * 1024) /* three pages of floats */

/* "ours" is the process's own memory, "mapped" is not. */
static dcp_state *tree(float *ours, const dcp_tensor *mapped)
{
    const dcp_tensor tensor = {
        .dtype = DCP_F32, .ndim = 1, .global_shape = {ELEMENTS}, .data = ours};
    dcp_state *root = dcp_state_new();
    assert_non_null(dcp_state_tensor(root, "ours", &tensor));
    assert_non_null(dcp_state_tensor(root, "mapped", mapped));
    return root;
}

static float *map_pages(size_t count)
{
    float *memory =
        mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

static void save_sample(const char *path, float *values)
{
    const dcp_tensor tensor = {
        .dtype = DCP_F32, .ndim = 1, .global_shape = {ELEMENTS}, .data = values};
    for (int64_t i = 0; i < ELEMENTS; i++)
        values[i] = (float)i;
    dcp_state *root = tree(values, &tensor);
    assert_int_equal(dcp_save(root, path, NULL), DCP_OK);
    dcp_state_free(root);
    memset(values, 0, (size_t)ELEMENTS * sizeof *values);
}

static void assert_refused(dcp_state *root, const char *path, const float *ours)
{
    assert_int_equal(dcp_load(root, path, NULL, NULL), DCP_ERR_ARGUMENT);
    assert_non_null(strstr(dcp_error_message(), "mapped"));
    assert_non_null(strstr(dcp_error_message(), "reading only"));
    for (int64_t i = 0; i < ELEMENTS; i++)
        assert_true(ours[i] == 0);
}

/* Also where only one page of the tensor is. */
static void protected_memory_is_refused(void **state)
{
    static const struct {
        size_t page, count;
    } protected[] = {{1, 3}, {1, 1}, {2, 1}, {3, 1}};
    float *ours = malloc((size_t)ELEMENTS * sizeof *ours);
    assert_non_null(ours);
    save_sample(*state, ours);
    for (size_t i = 0; i < sizeof protected / sizeof *protected; i++) {
        float *memory = map_pages(5);
        const dcp_tensor tensor = {.dtype = DCP_F32,
                                   .ndim = 1,
                                   .global_shape = {ELEMENTS},
                                   .data = memory + PAGE / sizeof *memory};
        char *begin = (char *)memory + protected[i].page * PAGE;
        assert_int_equal(mprotect(begin, protected[i].count * PAGE, PROT_READ), 0);
        dcp_state *root = tree(ours, &tensor);
        assert_refused(root, *state, ours);
        dcp_state_free(root);
        munmap(memory, 5 * PAGE);
    }
    free(ours);
}

/* Right beside it there is nothing to refuse. */
static void neighbours_of_protected_memory_are_loaded(void **state)
{
    float *ours = malloc((size_t)ELEMENTS * sizeof *ours), *memory = map_pages(5);
    assert_non_null(ours);
    save_sample(*state, ours);
    assert_int_equal(mprotect(memory, PAGE, PROT_READ), 0);
    assert_int_equal(mprotect((char *)memory + 4 * PAGE, PAGE, PROT_NONE), 0);
    float *values = memory + PAGE / sizeof *memory;
    const dcp_tensor tensor = {
        .dtype = DCP_F32, .ndim = 1, .global_shape = {ELEMENTS}, .data = values};
    dcp_state *root = tree(ours, &tensor);
    assert_int_equal(dcp_load(root, *state, NULL, NULL), DCP_OK);
    for (int64_t i = 0; i < ELEMENTS; i++)
        assert_true(values[i] == (float)i && ours[i] == (float)i);
    dcp_state_free(root);
    munmap(memory, 5 * PAGE);
    free(ours);
}

/* The plan is kept from the load before, the memory is not. */
static void kept_plans_look_again(void **state)
{
    float *ours = malloc((size_t)ELEMENTS * sizeof *ours), *memory = map_pages(3);
    dcp_load_plan_cache *cache;
    const dcp_tensor tensor = {
        .dtype = DCP_F32, .ndim = 1, .global_shape = {ELEMENTS}, .data = memory};
    assert_non_null(ours);
    save_sample(*state, ours);
    assert_int_equal(dcp_load_plan_cache_new(&cache), DCP_OK);
    const dcp_load_options options = {.plan_cache = cache};
    dcp_state *root = tree(ours, &tensor);
    assert_int_equal(dcp_load(root, *state, &options, NULL), DCP_OK);
    assert_int_equal(dcp_load(root, *state, &options, NULL), DCP_OK);
    assert_int_equal(mprotect((char *)memory + 2 * PAGE, PAGE, PROT_READ), 0);
    assert_int_equal(dcp_load(root, *state, &options, NULL), DCP_ERR_ARGUMENT);
    dcp_state_free(root);
    dcp_load_plan_cache_free(cache);
    munmap(memory, 3 * PAGE);
    free(ours);
}

/* The memory of a tensor that runs backwards begins before its first element. */
static void backward_strides_count(void **state)
{
    float *ours = malloc((size_t)ELEMENTS * sizeof *ours), *memory = map_pages(3);
    const dcp_tensor tensor = {.dtype = DCP_F32,
                               .ndim = 1,
                               .global_shape = {ELEMENTS},
                               .strided = true,
                               .strides = {-1},
                               .data = memory + ELEMENTS - 1};
    assert_non_null(ours);
    save_sample(*state, ours);
    dcp_state *root = tree(ours, &tensor);
    assert_int_equal(dcp_load(root, *state, NULL, NULL), DCP_OK);
    assert_true(memory[0] == (float)(ELEMENTS - 1));
    memset(ours, 0, (size_t)ELEMENTS * sizeof *ours);
    assert_int_equal(mprotect(memory, PAGE, PROT_READ), 0);
    assert_refused(root, *state, ours);
    dcp_state_free(root);
    munmap(memory, 3 * PAGE);
    free(ours);
}

/* It may lie anywhere. */
static void what_is_not_loaded_may_be_protected(void **state)
{
    float *ours = malloc((size_t)ELEMENTS * sizeof *ours), *memory = map_pages(3);
    static const char *const names[] = {"ours"};
    const dcp_load_options options = {.include = names, .include_count = 1};
    const dcp_tensor tensor = {
        .dtype = DCP_F32, .ndim = 1, .global_shape = {ELEMENTS}, .data = memory};
    assert_non_null(ours);
    save_sample(*state, ours);
    assert_int_equal(mprotect(memory, 3 * PAGE, PROT_READ), 0);
    dcp_state *root = tree(ours, &tensor);
    assert_int_equal(dcp_load(root, *state, &options, NULL), DCP_OK);
    assert_true(ours[ELEMENTS - 1] == (float)(ELEMENTS - 1));
    dcp_state_free(root);
    munmap(memory, 3 * PAGE);
    free(ours);
}

/* Without looking through all mappings: a small read takes less time than that. */
static void a_read_of_one_tensor_is_refused(void **state)
{
    float *ours = malloc((size_t)ELEMENTS * sizeof *ours), *memory = map_pages(3);
    dcp_checkpoint *checkpoint;
    size_t entry;
    const dcp_tensor tensor = {
        .dtype = DCP_F32, .ndim = 1, .global_shape = {ELEMENTS}, .data = memory};
    assert_non_null(ours);
    save_sample(*state, ours);
    assert_int_equal(dcp_checkpoint_open(*state, NULL, &checkpoint), DCP_OK);
    assert_int_equal(dcp_checkpoint_find(checkpoint, "mapped", &entry), DCP_OK);
    assert_int_equal(dcp_checkpoint_read_tensor(checkpoint, entry, &tensor, NULL), DCP_OK);
    for (int64_t i = 0; i < ELEMENTS; i++)
        assert_true(memory[i] == (float)i);
    for (size_t page = 0; page < 3; page += 2) {
        char *protected = (char *)memory + page * PAGE;
        assert_int_equal(mprotect(protected, PAGE, PROT_READ), 0);
        assert_int_equal(dcp_checkpoint_read_tensor(checkpoint, entry, &tensor, NULL),
                         DCP_ERR_ARGUMENT);
        assert_non_null(strstr(dcp_error_message(), "mapped: its 12288 bytes of memory at"));
        assert_non_null(strstr(dcp_error_message(), "reading only"));
        assert_int_equal(mprotect(protected, PAGE, PROT_READ | PROT_WRITE), 0);
    }
    dcp_checkpoint_close(checkpoint);
    munmap(memory, 3 * PAGE);
    free(ours);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(protected_memory_is_refused, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(neighbours_of_protected_memory_are_loaded, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(kept_plans_look_again, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(backward_strides_count, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(what_is_not_loaded_may_be_protected, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(a_read_of_one_tensor_is_refused, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
