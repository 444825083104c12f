/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "expected_metadata.h"

static const cJSON *member(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (item == NULL)
        fail_msg("expected.json lacks \"%s\"", key);
    return item;
}

static bool numbers_are(const int64_t *numbers, int32_t ndim, const cJSON *expected)
{
    if (cJSON_GetArraySize(expected) != ndim)
        return false;
    const cJSON *item = expected->child;
    for (int32_t i = 0; i < ndim; i++, item = item->next)
        if (numbers[i] != (int64_t)item->valuedouble)
            return false;
    return true;
}

static void check_path(const struct metadata_entry *entry, const cJSON *expected)
{
    assert_int_equal(entry->path_length, cJSON_GetArraySize(expected));
    const cJSON *part = expected->child;
    for (size_t i = 0; i < entry->path_length; i++, part = part->next) {
        if (cJSON_IsString(part)) {
            assert_non_null(entry->path[i].key);
            assert_string_equal(entry->path[i].key, part->valuestring);
        } else {
            assert_null(entry->path[i].key);
            assert_int_equal(entry->path[i].position, (int64_t)part->valuedouble);
        }
    }
}

static void check_place(const struct metadata *metadata, const struct metadata_piece *piece,
                        const cJSON *expected)
{
    assert_in_range(piece->file, 0, metadata->file_count - 1);
    assert_string_equal(metadata->files[piece->file], member(expected, "file")->valuestring);
    assert_int_equal(piece->offset, (uint64_t)member(expected, "offset")->valuedouble);
    assert_int_equal(piece->length, (uint64_t)member(expected, "length")->valuedouble);
    assert_int_equal(piece->zstd, cJSON_GetArraySize(member(expected, "transforms")) != 0);
    assert_int_equal(piece->encoding, PIECE_STREAM);
}

/* Whether a lower rank has a chunk at the same place: saves without collectives keep them all. */
static bool is_copy(const cJSON *chunk)
{
    const cJSON *offsets = member(chunk, "offsets");
    for (const cJSON *other = chunk; other->prev->next != NULL;) {
        other = other->prev;
        if (cJSON_Compare(member(other, "offsets"), offsets, true))
            return true;
    }
    return false;
}

static void check_tensor(const struct metadata *metadata, const struct metadata_entry *entry,
                         const cJSON *expected)
{
    assert_true(entry->is_tensor);
    assert_string_equal(dcp_dtype_name(entry->dtype), member(expected, "dtype")->valuestring);
    assert_true(numbers_are(entry->global_shape, entry->ndim, member(expected, "shape")));
    const cJSON *chunks = member(expected, "chunks");
    size_t count = 0;
    for (const cJSON *chunk = chunks->child; chunk != NULL; chunk = chunk->next) {
        if (is_copy(chunk))
            continue;
        size_t i = 0;
        while (i < entry->piece_count &&
               !numbers_are(entry->pieces[i].offsets, entry->ndim, member(chunk, "offsets")))
            i++;
        assert_true(i < entry->piece_count);
        assert_true(numbers_are(entry->pieces[i].sizes, entry->ndim, member(chunk, "sizes")));
        check_place(metadata, &entry->pieces[i], chunk);
        count++;
    }
    assert_int_equal(entry->piece_count, count);
}

void check_expected_metadata(const struct metadata *metadata, const cJSON *expected)
{
    const cJSON *entries = member(expected, "entries");
    assert_int_equal(metadata->count, cJSON_GetArraySize(entries));
    for (const cJSON *item = entries->child; item != NULL; item = item->next) {
        const struct metadata_entry *entry =
            metadata_find(metadata, member(item, "fqn")->valuestring);
        assert_non_null(entry);
        check_path(entry, member(item, "path"));
        if (strcmp(member(item, "type")->valuestring, "tensor") == 0) {
            check_tensor(metadata, entry, item);
            continue;
        }
        assert_false(entry->is_tensor);
        assert_int_equal(entry->piece_count, 1);
        assert_null(entry->pieces[0].offsets);
        check_place(metadata, &entry->pieces[0], member(item, "storage"));
    }
}
