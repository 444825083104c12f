/* SPDX-License-Identifier: BSD-3-Clause */
/* Every checkpoint that PyTorch wrote is read bit-exactly, whole and in boxes, and is without
 * fault. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixtures.h"
#include "layout.h"
#include "scratch.h"
#include "storage/shard/shard_reader.h"
#include "storage/verify/verify.h"

/* One fixture while it is read. */
struct fixture {
    const char *name;
    cJSON *expected;
    char *path;
    struct metadata metadata;
    struct shard_reader *reader;
};

static bool needs(const cJSON *expected, const char *what)
{
    const cJSON *need;
    cJSON_ArrayForEach(need, cJSON_GetObjectItemCaseSensitive(expected, "needs"))
    {
        if (strcmp(need->valuestring, what) == 0)
            return true;
    }
    return false;
}

static dcp_status read_box(const struct fixture *fixture, const struct metadata_entry *entry,
                           const struct box_storage *box, dcp_verification verification,
                           unsigned char *memory)
{
    struct box wanted = box_of(entry->ndim, box);
    int64_t strides[DCP_MAX_DIMS];
    dcp_status status = DCP_OK;
    struct state_chunk target = layout_target(wanted, strides, memory);
    shape_strides(entry->ndim, box->sizes, strides);
    for (size_t i = 0; i < entry->piece_count && status == DCP_OK; i++) {
        const struct metadata_piece *piece = &entry->pieces[i];
        struct box_storage common;
        if (box_intersect((struct box){entry->ndim, piece->offsets, piece->sizes}, wanted, &common))
            status = shard_read_tensor(fixture->reader, entry, piece, box_of(entry->ndim, &common),
                                       entry->dtype, &target, verification);
    }
    return status;
}

/* The box of the expected bytes, dense. */
static void cut_box(const struct metadata_entry *entry, const struct box_storage *box,
                    const unsigned char *whole, unsigned char *cut)
{
    size_t element = dcp_dtype_size(entry->dtype);
    int64_t strides[DCP_MAX_DIMS], index[DCP_MAX_DIMS] = {0};
    shape_strides(entry->ndim, entry->global_shape, strides);
    int64_t base = layout_offset(entry->ndim, box->offsets, strides);
    do {
        memcpy(cut, whole + (base + layout_offset(entry->ndim, index, strides)) * (int64_t)element,
               element);
        cut += element;
    } while (layout_next(entry->ndim, box->sizes, index));
}

static void check_box(const struct fixture *fixture, const struct metadata_entry *entry,
                      const struct box_storage *box, dcp_verification verification,
                      const unsigned char *whole)
{
    size_t bytes = (size_t)box_volume(box_of(entry->ndim, box)) * dcp_dtype_size(entry->dtype);
    unsigned char *memory = calloc(bytes + 1, 1), *cut = calloc(bytes + 1, 1);
    assert_true(memory && cut);
    if (read_box(fixture, entry, box, verification, memory) != DCP_OK)
        fail_msg("%s: %s", fixture->name, dcp_error_message());
    if (bytes > 0)
        cut_box(entry, box, whole, cut);
    if (memcmp(memory, cut, bytes) != 0)
        fail_msg("%s: %s differs", fixture->name, entry->name);
    free(memory);
    free(cut);
}

static void check_tensor(const struct fixture *fixture, const cJSON *expected,
                         const struct metadata_entry *entry)
{
    uint64_t random = 1;
    size_t size;
    struct box_storage box = {{0}, {0}};
    assert_true(entry->is_tensor);
    assert_string_equal(dcp_dtype_name(entry->dtype), fixture_text(expected, "dtype"));
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(expected, "shape");
    assert_int_equal(entry->ndim, cJSON_GetArraySize(shape));
    for (int32_t i = 0; i < entry->ndim; i++)
        assert_int_equal(entry->global_shape[i],
                         (int64_t)cJSON_GetArrayItem(shape, i)->valuedouble);
    unsigned char *whole = scratch_read(FIXTURES, fixture_text(expected, "$path"), &size);
    for (int32_t i = 0; i < entry->ndim; i++)
        box.sizes[i] = entry->global_shape[i];
    assert_int_equal(size,
                     (size_t)box_volume(box_of(entry->ndim, &box)) * dcp_dtype_size(entry->dtype));
    check_box(fixture, entry, &box, DCP_VERIFY_ALL, whole);
    check_box(fixture, entry, &box, DCP_VERIFY_NONE, whole);
    for (int i = 0; i < 6; i++) {
        layout_random_box(&random, entry->ndim, entry->global_shape, &box);
        check_box(fixture, entry, &box, i % 2 ? DCP_VERIFY_ALL : DCP_VERIFY_RECORDS, whole);
    }
    free(whole);
}

/* Values are format's business; here an object comes out at all, and the plain ones as they are. */
static void check_object(const struct fixture *fixture, const cJSON *expected,
                         const struct metadata_entry *entry)
{
    dcp_state *root = dcp_state_new(), *object;
    char *text = NULL;
    assert_false(entry->is_tensor);
    struct state_pool *pool = state_pool_new(root->root);
    if (shard_read_object(fixture->reader, entry, &entry->pieces[0], DCP_VERIFY_ALL, pool,
                          &object) != DCP_OK)
        fail_msg("%s: %s: %s", fixture->name, entry->name, dcp_error_message());
    assert_int_equal(dcp_state_to_json(object, 0, &text), DCP_OK);
    const cJSON *json = cJSON_GetObjectItemCaseSensitive(expected, "json");
    if (cJSON_IsNumber(json) || cJSON_IsString(json) || cJSON_IsBool(json)) {
        cJSON *value = cJSON_Parse(text);
        if (!cJSON_Compare(value, json, true))
            fail_msg("%s: %s is %s", fixture->name, entry->name, text);
        cJSON_Delete(value);
    }
    dcp_text_free(text);
    state_pool_free(pool);
    dcp_state_free(root);
}

static void check_entries(const struct fixture *fixture)
{
    cJSON *expected;
    size_t count = 0;
    cJSON_ArrayForEach(expected, cJSON_GetObjectItemCaseSensitive(fixture->expected, "entries"))
    {
        const char *name = fixture_text(expected, "fqn");
        const struct metadata_entry *entry = metadata_find(&fixture->metadata, name);
        if (!entry)
            fail_msg("%s: %s is not there", fixture->name, name);
        count++;
        if (strcmp(fixture_text(expected, "type"), "tensor") == 0) {
            char *path = scratch_path(fixture->name, fixture_text(expected, "file"));
            cJSON_AddStringToObject(expected, "$path", path);
            free(path);
            check_tensor(fixture, expected, entry);
        } else {
            check_object(fixture, expected, entry);
        }
    }
    assert_int_equal(fixture->metadata.count, count);
}

static void print_fault(void *context, const char *file, uint64_t offset, const char *name,
                        const char *fault)
{
    (void)context;
    print_message("%s:%llu: %s: %s\n", file, (unsigned long long)offset, name, fault);
}

static enum storage_form form_of(const cJSON *expected)
{
    const char *kind = fixture_text(expected, "kind");
    return strcmp(kind, "dcp") == 0              ? STORAGE_DCP
           : strcmp(kind, "dcp-rank-local") == 0 ? STORAGE_RANK_LOCAL
           : strcmp(kind, "torch-save") == 0     ? STORAGE_PT
                                                 : STORAGE_SAFETENSORS;
}

static void check_fixture(const char *name)
{
    struct fixture fixture = {.name = name};
    enum storage_form form;
    uint64_t faults;
    char *path = scratch_path(name, "expected.json");
    fixture.expected = fixture_json(path);
    fixture.path = fixture_path(name, fixture_text(fixture.expected, "checkpoint"));
    dcp_status status = storage_read_metadata(dcp_storage_files(), storage_at(fixture.path), &form,
                                              &fixture.metadata, &fixture.reader);
    if (status != DCP_OK)
        fail_msg("%s: %s", name, dcp_error_message());
    assert_int_equal(form, form_of(fixture.expected));
    check_entries(&fixture);
    assert_int_equal(storage_verify(dcp_storage_files(), storage_at(fixture.path), print_fault,
                                    NULL, NULL, &faults),
                     DCP_OK);
    if (faults != 0)
        fail_msg("%s: %llu faults", name, (unsigned long long)faults);
    shard_reader_free(fixture.reader);
    metadata_free(&fixture.metadata);
    cJSON_Delete(fixture.expected);
    free(fixture.path);
    free(path);
}

static void all_reference_checkpoints_are_read(void **state)
{
    (void)state;
    cJSON *index = fixture_json("index.json"), *fixture;
    int count = 0;
    cJSON_ArrayForEach(fixture, cJSON_GetObjectItemCaseSensitive(index, "cases"))
    {
        if (DCP_HAVE_ZSTD || !needs(fixture, "zstd"))
            check_fixture(fixture_text(fixture, "case"));
        count++;
    }
    assert_true(count > 50);
    cJSON_Delete(index);
}

/* The bytes of .metadata, handed on by another rank. */
static void metadata_can_be_passed_on(void **state)
{
    (void)state;
    struct buffer raw;
    struct metadata metadata;
    struct shard_reader *reader;
    struct storage_directory opened;
    char *path = fixture_path("basic", "ckpt");
    buffer_init(&raw, 0);
    assert_int_equal(storage_read_raw(dcp_storage_files(), storage_at(path), &raw, &opened),
                     DCP_OK);
    assert_int_equal(
        storage_decode_raw(dcp_storage_files(), path, raw.data, raw.size, &metadata, &reader),
        DCP_OK);
    shard_reader_take_directory(reader, &opened);
    assert_null(opened.table);
    assert_int_equal(metadata.count, 4);
    assert_string_equal(metadata.save_id == NULL ? "none" : "some", "some");
    shard_reader_free(reader);
    metadata_free(&metadata);
    assert_int_equal(
        storage_decode_raw(dcp_storage_files(), path, raw.data, raw.size / 2, &metadata, &reader),
        DCP_ERR_FORMAT);
    assert_null(reader);
    buffer_free(&raw);
    free(path);
    path = fixture_path("rank_local_w2", "ckpt");
    buffer_init(&raw, 0);
    assert_int_equal(storage_read_raw(dcp_storage_files(), storage_at(path), &raw, &opened),
                     DCP_ERR_NOT_FOUND);
    assert_null(opened.table);
    buffer_free(&raw);
    free(path);
}

/* A single safetensors file, by its own path. */
static void one_safetensors_file_is_a_checkpoint(void **state)
{
    (void)state;
    struct metadata metadata;
    struct shard_reader *reader;
    enum storage_form form;
    char *path = fixture_path("hf_single", "ckpt/model-00001-of-00003.safetensors");
    assert_int_equal(
        storage_read_metadata(dcp_storage_files(), storage_at(path), &form, &metadata, &reader),
        DCP_OK);
    assert_int_equal(form, STORAGE_SAFETENSORS);
    assert_true(metadata.count > 0);
    struct fixture fixture = {.name = "hf_single", .reader = reader};
    for (size_t i = 0; i < metadata.count; i++) {
        const struct metadata_entry *entry = &metadata.entries[i];
        struct box_storage box = {{0}, {0}};
        memcpy(box.sizes, entry->global_shape, (size_t)entry->ndim * sizeof *box.sizes);
        uint64_t bytes;
        assert_true(shape_bytes(entry->ndim, entry->global_shape, entry->dtype, &bytes));
        unsigned char *memory = calloc((size_t)bytes + 1, 1);
        assert_int_equal(read_box(&fixture, entry, &box, DCP_VERIFY_ALL, memory), DCP_OK);
        free(memory);
    }
    shard_reader_free(reader);
    metadata_free(&metadata);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reference_checkpoints_are_read),
        cmocka_unit_test(metadata_can_be_passed_on),
        cmocka_unit_test(one_safetensors_file_is_a_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
