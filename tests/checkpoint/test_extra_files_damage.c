/* SPDX-License-Identifier: BSD-3-Clause */
/* Damaged extra files and metadata that lies of them; what metadata and estimates say of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/extra_scene.h"
#include "checkpoint/ranks.h"

static const char long_text[] = "a text of some length, of which one bit is flipped";

static void damage(const char *file, long offset, long size)
{
    FILE *stream = fopen(file, "r+b");
    assert_non_null(stream);
    if (offset >= 0) {
        assert_int_equal(fseek(stream, offset, SEEK_SET), 0);
        int byte = fgetc(stream);
        assert_int_equal(fseek(stream, offset, SEEK_SET), 0);
        fputc(byte ^ 1, stream);
    }
    assert_int_equal(fclose(stream), 0);
    if (size >= 0)
        assert_int_equal(truncate(file, size), 0);
}

static void expect_damage(const char *path, dcp_status expected, const char *fault)
{
    char text[1024];
    dcp_checkpoint *checkpoint;
    assert_int_equal(extra_scene_verify(path), 1);
    assert_non_null(strstr(extra_scene_faults, "__0.g0.extra.a: a: "));
    assert_non_null(strstr(extra_scene_faults, fault));
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    must_fail(extra_scene_read(checkpoint, "a", text), expected, fault);
    extra_scene_expect(checkpoint, "b", "b");
    dcp_checkpoint_close(checkpoint);
}

/* The damaged file is returned if no checksums are wanted. */
static void expect_unchecked(const char *path)
{
    char text[sizeof long_text - 1];
    size_t index;
    dcp_checkpoint *checkpoint;
    dcp_read_options options = {.verification = DCP_VERIFY_NONE};
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    must(dcp_checkpoint_find_extra_file(checkpoint, "a", &index));
    must(dcp_checkpoint_read_extra_file(checkpoint, index, text, sizeof text, &options));
    assert_memory_equal(text, long_text, 20);
    assert_int_equal(text[20], long_text[20] ^ 1);
    options.convert = true;
    must_fail(dcp_checkpoint_read_extra_file(checkpoint, index, text, sizeof text, &options),
              DCP_ERR_ARGUMENT, "convert");
    dcp_checkpoint_close(checkpoint);
}

static void damage_is_found(void **state)
{
    const dcp_extra_file files[] = {FILE_OF("a", long_text), FILE_OF("b", "b")};
    const char *path = path_in(state, "c"), *file = path_in(state, "c/__0.g0.extra.a");
    needs_files();
    must(extra_scene_save_files(path, files, 2));
    assert_int_equal(extra_scene_verify(path), 0);
    damage(file, 20, -1);
    expect_damage(path, DCP_ERR_CHECKSUM, "has XXH3");
    expect_unchecked(path);
    damage(file, 20, -1);
    assert_int_equal(extra_scene_verify(path), 0);
    damage(file, -1, 10);
    expect_damage(path, DCP_ERR_FORMAT, "has 10 bytes, expected 50");
    assert_int_equal(unlink(file), 0);
    expect_damage(path, DCP_ERR_NOT_FOUND, "__0.g0.extra.a");
    assert_int_equal(symlink(path_in(state, "c/__0.g0.extra.b"), file), 0);
    assert_int_equal(extra_scene_verify(path), 1);
}

/* A text of .metadata, in the place of another of the same length. What is behind the pickle goes.
 */
static void replace(const char *directory, const char *text, const char *other)
{
    char file[1100];
    char bytes[65536];
    size_t length = strlen(text), at = 0;
    snprintf(file, sizeof file, "%s/.metadata", directory);
    FILE *stream = fopen(file, "r+b");
    assert_non_null(stream);
    size_t size = fread(bytes, 1, sizeof bytes, stream);
    while (at + length <= size && memcmp(bytes + at, text, length) != 0)
        at++;
    assert_true(at + length <= size);
    assert_int_equal(fseek(stream, (long)at, SEEK_SET), 0);
    assert_int_equal(fwrite(other, 1, length, stream), length);
    assert_int_equal(fclose(stream), 0);
    const char *trailer = memmem(bytes, size, "\211DCPALL\n", 8);
    if (trailer)
        assert_int_equal(truncate(file, trailer - bytes), 0);
}

static void lies_are_refused(void **state)
{
    static const char *const lies[][2] = {
        {"xxh3", "XXh3"},
        {"name", "NAme"},
        {"\x8c\x13__0.g0.extra.aaaaaa", "\x8c\x13__0.g0.extra.bbbbbb"},
        {"\x8c\x13__0.g0.extra.aaaaaa", "\x8c\x13../../../../etc/xxx"},
        {"\x8c\x13__0.g0.extra.aaaaaa", "\x8c\x13__0.g0.extra.aa/aaa"},
        {"\x8c\x06"
         "aaaaaa",
         "\x8c\x06"
         "aaa/aa"},
    };
    const dcp_extra_file file = FILE_OF("aaaaaa", "text");
    const char *path = path_in(state, "c");
    needs_files();
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        dcp_checkpoint *checkpoint;
        must(extra_scene_save_files(path, NULL, 0));
        must(dcp_checkpoint_remove(path, NULL, NULL));
        must(extra_scene_save_files(path, &file, 1));
        replace(path, lies[i][0], lies[i][1]);
        must_fail(dcp_checkpoint_open(path, NULL, &checkpoint), DCP_ERR_FORMAT, "dcp_extra_files");
        must(dcp_checkpoint_remove(path, NULL, NULL));
    }
}

static void a_name_that_is_there_twice_is_refused(void **state)
{
    const dcp_extra_file files[] = {FILE_OF("aaaaaa", "text"), FILE_OF("bbbbbb", "text")};
    const char *path = path_in(state, "c");
    dcp_checkpoint *checkpoint;
    needs_files();
    must(extra_scene_save_files(path, files, 2));
    replace(path, "extra.bbbbbb", "extra.aaaaaa");
    replace(path,
            "\x8c\x06"
            "bbbbbb",
            "\x8c\x06"
            "aaaaaa");
    must_fail(dcp_checkpoint_open(path, NULL, &checkpoint), DCP_ERR_DUPLICATE, "aaaaaa");
}

/* ---- what is said of them ---- */

static void metadata_lists_them(void **state)
{
    const dcp_extra_file file = FILE_OF("a.txt", "text");
    dcp_checkpoint *metadata = NULL;
    dcp_save_options options = {.metadata = &metadata, .extra_files = &file, .extra_file_count = 1};
    char text[8], json[8192], expected[256];
    dcp_extra_file_info info;
    must(extra_scene_save(path_in(state, "c"), 1, &options));
    assert_int_equal(dcp_checkpoint_extra_file_count(metadata), 1);
    must(dcp_checkpoint_extra_file(metadata, 0, &info));
    assert_string_equal(info.name, "a.txt");
    must_fail(dcp_checkpoint_read_extra_file(metadata, 0, text, 4, NULL), DCP_ERR_STATE, "a.txt");
    snprintf(expected, sizeof expected, "\"xxh3\":\t\"%016llx\"", (unsigned long long)info.xxh3);
    dcp_checkpoint_close(metadata);
    needs_files();
    FILE *stream = fopen(path_in(state, "c/metadata.json"), "r");
    assert_non_null(stream);
    json[fread(json, 1, sizeof json - 1, stream)] = '\0';
    fclose(stream);
    assert_non_null(strstr(json, "\"extra_files\":"));
    assert_non_null(strstr(json, "\"name\":\t\"a.txt\""));
    assert_non_null(strstr(json, "\"file\":\t\"__0.g0.extra.a.txt\""));
    assert_non_null(strstr(json, "\"size\":\t4"));
    assert_non_null(strstr(json, expected));
}

static dcp_status add_size(void *context, const char *name)
{
    void *const *state = context;
    uint64_t *sizes = state[1];
    char path[256];
    snprintf(path, sizeof path, "c/%s", name);
    FILE *stream = fopen(path_in(&state[0], path), "rb");
    assert_non_null(stream);
    fseek(stream, 0, SEEK_END);
    sizes[0] += (uint64_t)ftell(stream);
    sizes[1]++;
    fclose(stream);
    return DCP_OK;
}

static void estimates_count_them(void **state)
{
    const dcp_extra_file file = FILE_OF("a", long_text);
    dcp_save_options options = {.extra_files = &file, .extra_file_count = 1};
    dcp_estimate estimate = {.size_of = sizeof estimate};
    uint64_t sizes[2] = {0};
    void *context[2] = {*state, sizes};
    dcp_state *root = dcp_state_new();
    needs_files();
    dcp_state_int(root, "value", 1);
    must(dcp_save_estimate(root, path_in(state, "c"), &options, &estimate));
    dcp_state_free(root);
    must(extra_scene_save(path_in(state, "c"), 1, &options));
    must(dcp_storage_list(NULL, path_in(state, "c"), add_size, context));
    assert_int_equal(estimate.total_files, sizes[1]);
    assert_int_equal(estimate.total_bytes, sizes[0]);
}

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(damage_is_found),
        TEST(lies_are_refused),
        TEST(a_name_that_is_there_twice_is_refused),
        TEST(metadata_lists_them),
        TEST(estimates_count_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
