/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "failing_allocator.h"
#include "fixture.h"
#include "format/metadata/metadata_codec.h"
#include "state/copy.h"

/* ---- what PyTorch wrote ---- */

enum { FILES_MAX = 4 };

struct directory {
    struct bytes files[FILES_MAX];
    size_t count;
};

/* A tensor put together from its pieces, by their views. */
static void assert_tensor(const struct metadata_entry *entry, const struct directory *directory,
                          const struct bytes *expected)
{
    size_t element_size = dcp_dtype_size(entry->dtype);
    unsigned char *whole = calloc(1, expected->size != 0 ? expected->size : 1);
    assert_non_null(whole);
    int64_t strides[DCP_MAX_DIMS];
    shape_strides(entry->ndim, entry->global_shape, strides);
    for (size_t i = 0; i < entry->piece_count; i++) {
        const struct metadata_piece *piece = &entry->pieces[i];
        const struct bytes *file = &directory->files[piece->file];
        const struct tensor_view *view = piece->view;
        assert_int_equal(piece->encoding, PIECE_RAW);
        assert_int_equal(view->data_offset, piece->offset);
        assert_int_equal(view->data_length, piece->length);
        assert_true(piece->offset + piece->length <= file->size);
        int64_t start = 0;
        for (int32_t d = 0; d < entry->ndim; d++)
            start += piece->offsets[d] * strides[d];
        if (piece->length != 0)
            copy_strided(view->ndim, view->sizes, element_size, file->data + view->data_offset,
                         view->strides, whole + (size_t)start * element_size, strides);
    }
    if (expected->size != 0)
        assert_memory_equal(whole, expected->data, expected->size);
    free(whole);
}

static void check_case(const char *name, const char *const *files, size_t count)
{
    struct fixture fixture;
    struct directory directory = {.count = count};
    struct metadata metadata;
    char path[256];
    fixture_open(&fixture, name);
    metadata_init(&metadata);
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/ckpt/%s", name, files[i]);
        directory.files[i] = fixture_file(path);
        struct byte_source source =
            byte_source_memory(directory.files[i].data, directory.files[i].size);
        assert_int_equal(safetensors_add(source, files[i], &metadata), DCP_OK);
        assert_string_equal(metadata.files[i], files[i]);
    }
    assert_int_equal(safetensors_finish(&metadata), DCP_OK);
    const cJSON *entries = cJSON_GetObjectItem(fixture.expected, "entries");
    assert_int_equal(metadata.count, cJSON_GetArraySize(entries));
    for (const cJSON *expected = entries->child; expected != NULL; expected = expected->next) {
        const char *fqn = cJSON_GetObjectItem(expected, "fqn")->valuestring;
        const struct metadata_entry *entry = metadata_find(&metadata, fqn);
        assert_non_null(entry);
        assert_true(entry->is_tensor);
        assert_int_equal(entry->path_length, 1);
        assert_string_equal(entry->path[0].key, fqn);
        assert_string_equal(dcp_dtype_name(entry->dtype),
                            cJSON_GetObjectItem(expected, "dtype")->valuestring);
        const cJSON *shape = cJSON_GetObjectItem(expected, "shape");
        assert_int_equal(entry->ndim, cJSON_GetArraySize(shape));
        for (int32_t d = 0; d < entry->ndim; d++)
            assert_int_equal(entry->global_shape[d],
                             (int64_t)cJSON_GetArrayItem(shape, d)->valuedouble);
        snprintf(path, sizeof path, "%s/%s", name,
                 cJSON_GetObjectItem(expected, "file")->valuestring);
        struct bytes bytes = fixture_file(path);
        assert_tensor(entry, &directory, &bytes);
        bytes_free(&bytes);
    }
    for (size_t i = 0; i < count; i++)
        bytes_free(&directory.files[i]);
    metadata_free(&metadata);
    fixture_close(&fixture);
}

static void test_directories_of_pytorch(void **state)
{
    (void)state;
    static const char *const single[] = {"model-00001-of-00003.safetensors",
                                         "model-00002-of-00003.safetensors",
                                         "model-00003-of-00003.safetensors"};
    static const char *const sharded[] = {"shard-00001-model-00001-of-00001.safetensors",
                                          "shard-00002-model-00001-of-00001.safetensors"};
    static const char *const consolidated[] = {"model-00001-of-00002.safetensors",
                                               "model-00002-of-00002.safetensors"};
    check_case("hf_single", single, 3);
    check_case("hf_sharded_w2", sharded, 2);
    check_case("hf_consolidated_w2", consolidated, 2);
}

static void test_hostile_files(void **state)
{
    (void)state;
    static const char *const names[] = {
        "st_deep_json",       "st_header_not_json",   "st_header_too_long",
        "st_offsets_outside", "st_offsets_reversed",  "st_overlapping",
        "st_shape_overflow",  "st_sharding_info_bad", "st_sharding_info_missing",
        "st_size_disagrees",  "st_unknown_dtype"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[256];
        struct metadata metadata;
        snprintf(path, sizeof path, "hostile/%s/ckpt/model-00001-of-00001.safetensors", names[i]);
        struct bytes file = fixture_file(path);
        metadata_init(&metadata);
        dcp_status status =
            safetensors_add(byte_source_memory(file.data, file.size), "model", &metadata);
        if (status == DCP_OK)
            status = safetensors_finish(&metadata);
        if (status != DCP_ERR_FORMAT && status != DCP_ERR_UNSUPPORTED)
            fail_msg("%s gives %d", names[i], (int)status);
        metadata_free(&metadata);
        bytes_free(&file);
    }
}

/* ---- files made for the purpose ---- */

static void put_file(struct buffer *out, const char *header, size_t data_size)
{
    buffer_init(out, 0);
    buffer_append_u64(out, strlen(header));
    buffer_append(out, header, strlen(header));
    buffer_append_zeros(out, data_size);
}

/* Adds one file per header; 16 bytes of data each. */
static dcp_status read_all(struct metadata *metadata, const char *const *headers, size_t count)
{
    metadata_init(metadata);
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < count && status == DCP_OK; i++) {
        struct buffer file;
        char name[32];
        snprintf(name, sizeof name, "file%zu", i);
        put_file(&file, headers[i], 16);
        status = safetensors_add(byte_source_memory(file.data, file.size), name, metadata);
        buffer_free(&file);
    }
    return status == DCP_OK ? safetensors_finish(metadata) : status;
}

static void expect(dcp_status expected, const char *words, const char *first, const char *second)
{
    struct metadata metadata;
    const char *headers[] = {first, second};
    dcp_status status = read_all(&metadata, headers, second != NULL ? 2 : 1);
    metadata_free(&metadata);
    if (status != expected || strstr(dcp_error_message(), words) == NULL)
        fail_msg("%s: status %d, \"%s\", expected %d, \"%s\"", first, (int)status,
                 dcp_error_message(), (int)expected, words);
}

#define TENSOR(name, shape, from, to)                                                              \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":[" shape "],\"data_offsets\":[" #from "," #to "]}"
#define SHARDED(info) "\"__metadata__\":{\"DCP_SHARDING_INFO\":\"" info "\"},"

static void test_forms_of_headers(void **state)
{
    (void)state;
    expect(DCP_OK, "", "{" TENSOR("a", "4", 0, 16) "}", NULL);
    expect(DCP_OK, "", "{" TENSOR("a", "4", 0, 16) "}      ", NULL);
    expect(DCP_OK, "", "{\"__metadata__\":null," TENSOR("a", "2,2", 0, 16) "}", NULL);
    expect(DCP_OK, "", "{\"__metadata__\":{\"format\":\"pt\"}," TENSOR("a", "2,2", 0, 16) "}",
           NULL);
    expect(DCP_OK, "", "{" TENSOR("b", "3", 4, 16) "," TENSOR("a", "", 0, 4) "}", NULL);
    expect(
        DCP_OK, "",
        "{" TENSOR("b", "4", 0, 16) "," TENSOR("a", "0,7", 16, 16) "," TENSOR("c", "0", 0, 0) "}",
        NULL);
    expect(DCP_OK, "",
           "{\"\\u0061\":{\"x\":[{}],\"data_offsets\":[0,16],\"shape\":[1,4],\"dtype\":\"F32\"}}",
           NULL);
}

static void test_malformed_headers(void **state)
{
    (void)state;
    const dcp_status format = DCP_ERR_FORMAT, duplicate = DCP_ERR_DUPLICATE;
    expect(format, "expected an object", "[]", NULL);
    expect(format, "expected the end", "{" TENSOR("a", "4", 0, 16) "} {}", NULL);
    expect(format, "lacks shape", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,16]}}", NULL);
    expect(format, "lacks dtype", "{\"a\":{\"shape\":[4],\"data_offsets\":[0,16]}}", NULL);
    expect(format, "lacks data_offsets", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4]}}", NULL);
    expect(duplicate, "'a' occurs twice",
           "{" TENSOR("a", "4", 0, 16) "," TENSOR("\\u0061", "0", 16, 16) "}", NULL);
    expect(format, "'dtype' twice",
           "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
           NULL);
    expect(duplicate, "'x' occurs twice",
           "{\"__metadata__\":{\"x\":\"\",\"x\":\"\"}," TENSOR("a", "4", 0, 16) "}", NULL);
    expect(duplicate, "'__metadata__' occurs twice",
           "{\"__metadata__\":{},\"__metadata__\":{}," TENSOR("a", "4", 0, 16) "}", NULL);
    expect(format, "expected a string", "{\"__metadata__\":{\"x\":1}," TENSOR("a", "4", 0, 16) "}",
           NULL);
    expect(format, "contains NUL", "{" TENSOR("a\\u0000b", "4", 0, 16) "}", NULL);
    expect(DCP_ERR_UNSUPPORTED, "unknown dtype 'F33'",
           "{\"a\":{\"dtype\":\"F33\",\"shape\":[4],\"data_offsets\":[0,16]}}", NULL);
    expect(format, "more than 64 dimensions",
           "{" TENSOR("a",
                      "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
                      "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,4",
                      0, 16) "}",
           NULL);
    expect(format, "expected a whole number", "{" TENSOR("a", "-4", 0, 16) "}", NULL);
    expect(format, "expected a whole number", "{" TENSOR("a", "4.0", 0, 16) "}", NULL);
    expect(format, "exceeds 2^63 - 1", "{" TENSOR("a", "9223372036854775808", 0, 16) "}", NULL);
    expect(format, "exceeds 2^63 bytes", "{" TENSOR("a", "4294967296,4294967296", 0, 16) "}", NULL);
    expect(format, "not two numbers",
           "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0]}}", NULL);
    expect(format, "not two numbers",
           "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16,16]}}", NULL);
}

static void test_where_the_bytes_lie(void **state)
{
    (void)state;
    expect(DCP_ERR_FORMAT, "has 16 bytes, expected 20", "{" TENSOR("a", "5", 0, 16) "}", NULL);
    expect(DCP_ERR_FORMAT, "the data has 16 bytes", "{" TENSOR("a", "5", 0, 20) "}", NULL);
    expect(DCP_ERR_FORMAT, "the data has 16 bytes", "{" TENSOR("a", "4", 16, 0) "}", NULL);
    expect(DCP_ERR_FORMAT, "the data has 16 bytes",
           "{" TENSOR("a", "4", 18446744073709551600, 18446744073709551615) "}", NULL);
    expect(DCP_ERR_FORMAT, "overlapping",
           "{" TENSOR("a", "3", 0, 12) "," TENSOR("b", "2", 8, 16) "}", NULL);
    expect(DCP_ERR_FORMAT, "leaving a gap",
           "{" TENSOR("a", "1", 0, 4) "," TENSOR("b", "2", 8, 16) "}", NULL);
    expect(DCP_ERR_FORMAT, "the tensors end at", "{" TENSOR("a", "3", 0, 12) "}", NULL);
    expect(DCP_ERR_FORMAT, "the tensors end at", "{}", NULL);
}

static void test_sharding_info(void **state)
{
    (void)state;
    static const char upper[] =
        "{" SHARDED("{\\\"a\\\":{\\\"saved_offsets\\\":[0,0]}}") TENSOR("a", "1,4", 0, 16) "}";
    static const char lower[] =
        "{" SHARDED("{\\\"a\\\":{\\\"saved_offsets\\\":[1,0]}}") TENSOR("a", "1,4", 0, 16) "}";
    static const char far[] =
        "{" SHARDED("{\\\"a\\\":{\\\"saved_offsets\\\":[2,0]}}") TENSOR("a", "1,4", 0, 16) "}";
    static const char edge[] =
        "{" SHARDED("{\\\"a\\\":{\\\"saved_offsets\\\":[9223372036854775807,0]}}")
            TENSOR("a", "1,4", 0, 16) "}";
    static const char absurd[] =
        "{" SHARDED("{\\\"a\\\":{\\\"saved_offsets\\\":[9223372036854775806,0]}}")
            TENSOR("a", "1,4", 0, 16) "}";
    static const char doubles[] = "{" SHARDED(
        "{\\\"a\\\":{\\\"saved_offsets\\\":[0,0]}}") "\"a\":{\"dtype\":\"F64\","
                                                     "\"shape\":[1,2],\"data_offsets\":[0,16]}}";
    const char *headers[] = {upper, lower};
    struct metadata metadata;
    assert_int_equal(read_all(&metadata, headers, 2), DCP_OK);
    const struct metadata_entry *entry = metadata_find(&metadata, "a");
    assert_int_equal(entry->piece_count, 2);
    assert_int_equal(entry->global_shape[0], 2);
    assert_int_equal(entry->global_shape[1], 4);
    assert_int_equal(entry->pieces[1].offsets[0], 1);
    assert_int_equal(entry->pieces[1].file, 1);
    metadata_free(&metadata);

    expect(DCP_ERR_OVERLAP, "overlap", upper, upper);
    expect(DCP_ERR_COVERAGE, "no chunk holds", upper, far);
    expect(DCP_ERR_FORMAT, "ends beyond 2^63 - 1", edge, NULL);
    expect(DCP_ERR_FORMAT, "exceeds 2^63 bytes", absurd, NULL);
    expect(DCP_ERR_DTYPE, "'a' is float32 in ", upper, doubles);
    expect(DCP_ERR_SHAPE, "'a' has 2 dimensions in ", upper, "{" TENSOR("a", "4", 0, 16) "}");
    expect(DCP_ERR_OVERLAP, "overlap", "{" TENSOR("a", "4", 0, 16) "}",
           "{" TENSOR("a", "4", 0, 16) "}");
}

static void test_malformed_sharding_info(void **state)
{
    (void)state;
    static const struct {
        const char *info, *words;
        dcp_status status;
    } cases[] = {
        {"", "DCP_SHARDING_INFO: ends", DCP_ERR_FORMAT},
        {"[]", "expected an object", DCP_ERR_FORMAT},
        {"{}", "no entry for 'a'", DCP_ERR_FORMAT},
        {"{\\\"b\\\":{\\\"saved_offsets\\\":[0]}}", "no entry for 'a'", DCP_ERR_FORMAT},
        {"{\\\"a\\\":{}}", "no entry for 'a'", DCP_ERR_FORMAT},
        {"{\\\"a\\\":{\\\"saved_offsets\\\":[]}}", "0 saved_offsets, expected 1", DCP_ERR_FORMAT},
        {"{\\\"a\\\":{\\\"saved_offsets\\\":[0,0]}}", "2 saved_offsets, expected 1",
         DCP_ERR_FORMAT},
        {"{\\\"a\\\":{\\\"saved_offsets\\\":[-1]}}", "whole number", DCP_ERR_FORMAT},
        {"{\\\"a\\\":{\\\"saved_offsets\\\":0}}", "expected an array", DCP_ERR_FORMAT},
        {"{\\\"a\\\":{\\\"saved_offsets\\\":[0],\\\"saved_offsets\\\":[0]}}", "'a' occurs twice",
         DCP_ERR_DUPLICATE},
        {"{\\\"a\\\":{\\\"saved_offsets\\\":[0]},\\\"a\\\":{\\\"saved_offsets\\\":[0]}}",
         "'a' occurs twice", DCP_ERR_DUPLICATE},
        {"{\\\"a\\\":{\\\"saved_offsets\\\":[0]}} x", "expected the end", DCP_ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char header[512];
        snprintf(header, sizeof header,
                 "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"%s\"}," TENSOR("a", "4", 0, 16) "}",
                 cases[i].info);
        expect(cases[i].status, cases[i].words, header, NULL);
    }
    /* What it says about others does not matter. */
    expect(DCP_OK, "",
           "{" SHARDED("{\\\"a\\\":{\\\"x\\\":[],\\\"saved_offsets\\\":[0]},\\\"z\\\":[1]}")
               TENSOR("a", "4", 0, 16) "}",
           NULL);
}

static void test_header_lengths(void **state)
{
    (void)state;
    static const struct {
        uint64_t length;
        size_t size;
    } cases[] = {{0, 0}, {0, 7}, {1, 8}, {UINT64_MAX, 64}, {57, 64}, {INT64_MAX, 64}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char bytes[64] = {0};
        struct metadata metadata;
        store_u64(bytes, cases[i].length);
        metadata_init(&metadata);
        assert_int_equal(
            safetensors_add(byte_source_memory(bytes, cases[i].size), "file", &metadata),
            DCP_ERR_FORMAT);
        metadata_free(&metadata);
    }
}

/* Far more names than a list could be searched for. */
static void test_many_names(void **state)
{
    (void)state;
    enum { COUNT = 120000 };
    struct buffer header, file;
    struct metadata metadata;
    buffer_init(&header, 0);
    buffer_append(&header, "{", 1);
    for (int i = 0; i < COUNT; i++)
        buffer_append_format(
            &header, "%s\"layer.%d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
            i != 0 ? "," : "", i, i, i + 1);
    buffer_append(&header, "}", 2);
    put_file(&file, (const char *)header.data, COUNT);
    metadata_init(&metadata);
    assert_int_equal(safetensors_add(byte_source_memory(file.data, file.size), "f", &metadata),
                     DCP_OK);
    assert_int_equal(safetensors_finish(&metadata), DCP_OK);
    assert_int_equal(metadata.count, COUNT);
    assert_int_equal(metadata_find(&metadata, "layer.77777")->pieces[0].offset,
                     file.size - COUNT + 77777);
    metadata_free(&metadata);
    buffer_free(&file);
    buffer_free(&header);
}

static void test_damage_everywhere(void **state)
{
    (void)state;
    struct buffer file;
    put_file(&file,
             "{" SHARDED("{\\\"a\\\":{\\\"saved_offsets\\\":[0]}}") TENSOR("a", "4", 0, 16) "}",
             16);
    for (size_t i = 0; i < file.size * 8; i++) {
        struct metadata metadata;
        file.data[i / 8] ^= (unsigned char)(1u << i % 8);
        metadata_init(&metadata);
        if (safetensors_add(byte_source_memory(file.data, file.size), "f", &metadata) == DCP_OK)
            safetensors_finish(&metadata);
        metadata_free(&metadata);
        file.data[i / 8] ^= (unsigned char)(1u << i % 8);
    }
    for (size_t size = 0; size < file.size; size++) {
        struct metadata metadata;
        metadata_init(&metadata);
        assert_int_equal(safetensors_add(byte_source_memory(file.data, size), "f", &metadata),
                         DCP_ERR_FORMAT);
        metadata_free(&metadata);
    }
    buffer_free(&file);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    static const char *const headers[] = {
        "{" SHARDED("{\\\"a\\\":{\\\"saved_offsets\\\":[0]}}") TENSOR("a", "4", 0, 16) "}",
        "{" SHARDED("{\\\"\\u0061\\\":{\\\"saved_offsets\\\":[4]}}") TENSOR("a", "4", 0, 16) "}"};
    struct buffer files[2];
    put_file(&files[0], headers[0], 16);
    put_file(&files[1], headers[1], 16);
    size_t failed = 0;
    for (;; failed++) {
        struct metadata metadata;
        dcp_status status = DCP_OK;
        failing_allocator_install(failed);
        metadata_init(&metadata);
        for (int i = 0; i < 2 && status == DCP_OK; i++)
            status =
                safetensors_add(byte_source_memory(files[i].data, files[i].size), "f", &metadata);
        if (status == DCP_OK)
            status = safetensors_finish(&metadata);
        metadata_free(&metadata);
        failing_allocator_remove();
        if (status == DCP_OK)
            break;
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
    }
    assert_true(failed > 10);
    buffer_free(&files[0]);
    buffer_free(&files[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_directories_of_pytorch),
        cmocka_unit_test(test_hostile_files),
        cmocka_unit_test(test_forms_of_headers),
        cmocka_unit_test(test_malformed_headers),
        cmocka_unit_test(test_where_the_bytes_lie),
        cmocka_unit_test(test_sharding_info),
        cmocka_unit_test(test_malformed_sharding_info),
        cmocka_unit_test(test_header_lengths),
        cmocka_unit_test(test_many_names),
        cmocka_unit_test(test_damage_everywhere),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
