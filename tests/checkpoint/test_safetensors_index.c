/* SPDX-License-Identifier: BSD-3-Clause */
/* Hugging Face directories: which files count, and what is said of those that do not fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"

static void write_file(const char *directory, const char *name, const void *head, size_t head_size,
                       const char *text, const void *data, size_t size)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite(head, 1, head_size, file);
    fwrite(text, 1, strlen(text), file);
    fwrite(data, 1, size, file);
    assert_int_equal(fclose(file), 0);
}

/* A file with one tensor of two floats. */
static void write_tensor(const char *directory, const char *file, const char *name, float value)
{
    char header[256];
    const float data[] = {value, value + 1};
    snprintf(header, sizeof header,
             "{\"%s\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", name);
    uint64_t length = strlen(header);
    write_file(directory, file, &length, sizeof length, header, data, sizeof data);
}

static void write_index(const char *directory, const char *text)
{
    write_file(directory, "model.safetensors.index.json", "", 0, text, "", 0);
}

static const char *new_directory(void *const *state)
{
    const char *path = path_in(state, "hf");
    assert_int_equal(mkdir(path, 0700), 0);
    return path;
}

static dcp_status load_a(const char *path, float *values)
{
    dcp_state *root = dcp_state_new();
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .global_shape = {2}, .data = values};
    dcp_state_tensor(root, "a", &tensor);
    dcp_status status = dcp_load(root, path, NULL, NULL);
    dcp_state_free(root);
    return status;
}

struct fault_text {
    char text[1024];
};

static void note_fault(void *context, const char *file, uint64_t offset, const char *name,
                       const char *fault)
{
    struct fault_text *faults = context;
    size_t used = strlen(faults->text);
    (void)offset, (void)name;
    snprintf(faults->text + used, sizeof faults->text - used, "%s: %s\n", file, fault);
}

/* Opening and loading fail, and verifying finds the fault. */
static void expect_fault(const char *path, dcp_status status, const char *text)
{
    dcp_checkpoint *checkpoint = NULL;
    struct fault_text faults = {""};
    uint64_t count = 0;
    float values[2];
    must_fail(dcp_checkpoint_open(path, NULL, &checkpoint), status, text);
    must_fail(load_a(path, values), status, text);
    must(dcp_verify(path, NULL, note_fault, &faults, &count));
    assert_int_equal(count, 1);
    if (strstr(faults.text, text) == NULL)
        fail_msg("verify says \"%s\", expected \"%s\"", faults.text, text);
}

static void only_files_of_the_index_count(void **state)
{
    const char *path = new_directory(state);
    float values[2] = {0};
    uint64_t faults = 1;
    dcp_checkpoint *checkpoint;
    needs_files();
    write_tensor(path, "model-00001-of-00001.safetensors", "a", 1);
    write_tensor(path, "consolidated.safetensors", "a", 5);
    write_tensor(path, "other.safetensors", "b", 7);
    write_index(path, "{\"metadata\": {\"total_size\": 8}, \"weight_map\": {\"a\": "
                      "\"model-00001-of-00001.safetensors\"}}\n");
    must(load_a(path, values));
    assert_true(values[0] == 1 && values[1] == 2);
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    assert_int_equal(dcp_checkpoint_count(checkpoint), 1);
    dcp_checkpoint_close(checkpoint);
    must(dcp_verify(path, NULL, NULL, NULL, &faults));
    assert_int_equal(faults, 0);
}

static void missing_files_are_faults(void **state)
{
    const char *path = new_directory(state);
    needs_files();
    write_index(path, "{\"weight_map\": {\"a\": \"one.safetensors\", \"b\": \"two.safetensors\"}}");
    write_tensor(path, "one.safetensors", "a", 1);
    expect_fault(path, DCP_ERR_NOT_FOUND,
                 "there is no two.safetensors, which model.safetensors.index.json names");
    write_tensor(path, "two.safetensors", "c", 1);
    expect_fault(path, DCP_ERR_FORMAT, "'b' is in two.safetensors, which does not have it");
    write_tensor(path, "two.safetensors", "b", 1);
    float values[2];
    must(load_a(path, values));
}

static void tensors_elsewhere_are_faults(void **state)
{
    const char *path = new_directory(state);
    needs_files();
    write_tensor(path, "one.safetensors", "a", 1);
    write_tensor(path, "two.safetensors", "b", 1);
    write_index(path, "{\"weight_map\": {\"b\": \"one.safetensors\", \"a\": \"two.safetensors\"}}");
    expect_fault(path, DCP_ERR_FORMAT, "'a' is in two.safetensors, but it is in one.safetensors");
    write_tensor(path, "two.safetensors", "a", 1);
    expect_fault(path, DCP_ERR_OVERLAP,
                 "'a' is in two files, as [0:2] in one.safetensors and as [0:2] in "
                 "two.safetensors, which overlap");
}

/* Without an index all files count. */
static void overlaps_name_both_files(void **state)
{
    const char *path = new_directory(state);
    needs_files();
    write_tensor(path, "one.safetensors", "a", 1);
    write_tensor(path, "two.safetensors", "a", 1);
    expect_fault(path, DCP_ERR_OVERLAP,
                 "in one.safetensors and as [0:2] in two.safetensors, which overlap");
}

static void a_broken_index_is_a_fault(void **state)
{
    static const struct {
        const char *text;
        dcp_status status;
        const char *fault;
    } cases[] = {
        {"", DCP_ERR_FORMAT, "model.safetensors.index.json: "},
        {"[]", DCP_ERR_FORMAT, "model.safetensors.index.json: "},
        {"{}", DCP_ERR_FORMAT, "'weight_map' is missing"},
        {"{\"weight_map\": []}", DCP_ERR_FORMAT, "model.safetensors.index.json: "},
        {"{\"weight_map\": {\"a\": 1}}", DCP_ERR_FORMAT, "model.safetensors.index.json: "},
        {"{\"weight_map\": {\"a\": \"../one.safetensors\"}}", DCP_ERR_FORMAT, "is refused"},
        {"{\"weight_map\": {\"a\": \"/one.safetensors\"}}", DCP_ERR_FORMAT, "is refused"},
        {"{\"weight_map\": {\"a\": \"one\\u0000\"}}", DCP_ERR_FORMAT, "NUL"},
        {"{\"weight_map\": {}, \"weight_map\": {}}", DCP_ERR_DUPLICATE, "occurs twice"},
        {"{\"weight_map\": {\"a\": \"one.safetensors\", \"a\": \"two.safetensors\"}}",
         DCP_ERR_DUPLICATE, "'a' occurs twice, in one.safetensors and in two.safetensors"},
        {"{\"weight_map\": {}} x", DCP_ERR_FORMAT, "model.safetensors.index.json: "},
    };
    const char *path = new_directory(state);
    needs_files();
    write_tensor(path, "one.safetensors", "a", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_index(path, cases[i].text);
        expect_fault(path, cases[i].status, cases[i].fault);
    }
}

#define directory_test(test)                                                                       \
    cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        directory_test(only_files_of_the_index_count), directory_test(missing_files_are_faults),
        directory_test(tensors_elsewhere_are_faults),  directory_test(overlaps_name_both_files),
        directory_test(a_broken_index_is_a_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
