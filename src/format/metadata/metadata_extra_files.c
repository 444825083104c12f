/* SPDX-License-Identifier: BSD-3-Clause */
/* Extra files in .metadata: a field of Metadata that PyTorch does not have, and passes over. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "format/metadata/metadata_decoding.h"
#include "format/metadata/metadata_encoder.h"

enum { DIGEST_DIGITS = 16 };

/* ---- writing ---- */

static void put_text_field(struct metadata_encoder *encoder, const char *field, const char *text)
{
    encoder_put_text(encoder, field);
    encoder_put_text(encoder, text);
}

static void put_extra_file(struct metadata_encoder *encoder, const struct extra_file *extra)
{
    char digest[DIGEST_DIGITS + 1];
    snprintf(digest, sizeof digest, "%016" PRIx64, extra->digest);
    pickle_put_op(encoder->out, OP_EMPTY_DICT);
    pickle_put_op(encoder->out, OP_MARK);
    put_text_field(encoder, "name", extra->name);
    put_text_field(encoder, "file", extra->file);
    encoder_put_text(encoder, "size");
    pickle_put_uint(encoder->out, extra->size);
    put_text_field(encoder, "xxh3", digest);
    pickle_put_op(encoder->out, OP_SETITEMS);
}

void metadata_put_extra_files(struct metadata_encoder *encoder, const struct metadata *metadata)
{
    if (metadata->extra_file_count == 0)
        return;
    encoder_put_text(encoder, METADATA_EXTRA_FILES);
    pickle_put_op(encoder->out, OP_EMPTY_LIST);
    for (size_t i = 0; i < metadata->extra_file_count; i++) {
        encoder_batch_next(encoder, i, OP_APPENDS);
        put_extra_file(encoder, &metadata->extra_files[i]);
    }
    encoder_batch_end(encoder, metadata->extra_file_count, OP_APPENDS);
}

/* ---- reading ---- */

static bool get_text(const struct pickle_value *dict, const char *field, const char **bytes,
                     size_t *length)
{
    const struct pickle_value *value = pickle_dict_get(dict, field);
    if (value == NULL || value->kind != PICKLE_STRING)
        return false;
    *bytes = value->as.text.bytes;
    *length = value->as.text.length;
    return true;
}

static bool parse_digest(const char *digits, size_t length, uint64_t *digest)
{
    *digest = 0;
    for (size_t i = 0; i < length; i++) {
        const char *all = "0123456789abcdef";
        const char *digit = memchr(all, digits[i], DIGEST_DIGITS);
        if (!digit)
            return false;
        *digest = *digest << 4 | (uint64_t)(digit - all);
    }
    return length == DIGEST_DIGITS;
}

/* The file's name says the name as well. */
static bool parse_file(const char *file, size_t length, const char *name, size_t name_length,
                       char copy[EXTRA_FILE_MAX])
{
    const char *said;
    uint32_t generation;
    int rank;
    if (length >= EXTRA_FILE_MAX || memchr(file, '\0', length) != NULL)
        return false;
    memcpy(copy, file, length);
    copy[length] = '\0';
    return extra_file_parse(copy, &rank, &generation, &said) && strlen(said) == name_length &&
           memcmp(said, name, name_length) == 0;
}

static dcp_status decode_extra_file(struct arena *arena, const struct pickle_value *dict,
                                    struct extra_file *extra)
{
    const char *name = NULL, *file = NULL, *digest = NULL;
    size_t name_length = 0, file_length = 0, digest_length = 0;
    char copy[EXTRA_FILE_MAX];
    const struct pickle_value *size = pickle_dict_get(dict, "size");
    if (!get_text(dict, "name", &name, &name_length) ||
        !get_text(dict, "file", &file, &file_length) ||
        !get_text(dict, "xxh3", &digest, &digest_length) ||
        !parse_digest(digest, digest_length, &extra->digest) || size == NULL ||
        size->kind != PICKLE_INT || size->as.integer < 0 ||
        !parse_file(file, file_length, name, name_length, copy))
        return dcp_error_set(DCP_ERR_FORMAT,
                             "metadata: " METADATA_EXTRA_FILES
                             ": not the entry of an extra file: name, file, size, xxh3");
    extra->size = (uint64_t)size->as.integer;
    extra->name = arena_copy_text(arena, name, name_length);
    extra->file = arena_copy_text(arena, copy, file_length);
    extra->member = 0;
    return extra->name && extra->file ? DCP_OK : error_no_memory(EXTRA_FILE_MAX, "an extra file");
}

/* A dict that the pickle holds once may be in the list often: each name is there once. */
static dcp_status decode_all(struct arena *arena, const struct pickle_sequence *list,
                             struct name_table *names, struct extra_file *extras, size_t *count)
{
    for (uint32_t i = 0; i < list->count; i++) {
        uint64_t place = i;
        bool existing;
        RETURN_IF_ERROR(decode_extra_file(arena, list->items[i], &extras[i]));
        RETURN_IF_ERROR(
            name_table_add(names, extras[i].name, strlen(extras[i].name), &place, &existing));
        if (existing)
            return dcp_error_set(DCP_ERR_DUPLICATE,
                                 "metadata: " METADATA_EXTRA_FILES ": \"%s\" is listed twice",
                                 extras[i].name);
        ++*count;
    }
    return DCP_OK;
}

dcp_status metadata_decode_extra_files(struct metadata_decoding *decoding,
                                       const struct pickle_value *list)
{
    struct metadata *metadata = decoding->metadata;
    struct name_table names;
    if (list == NULL)
        return DCP_OK;
    if (list->kind != PICKLE_LIST)
        return dcp_error_set(DCP_ERR_FORMAT, "metadata: " METADATA_EXTRA_FILES ": no list");
    size_t count = list->as.sequence.count;
    struct extra_file *extras = arena_allocate_array(&metadata->arena, count, sizeof *extras);
    if (extras == NULL)
        return error_no_memory(count * sizeof *extras, "extra files");
    metadata->extra_files = extras;
    name_table_init(&names);
    dcp_status status = decode_all(&metadata->arena, &list->as.sequence, &names, extras,
                                   &metadata->extra_file_count);
    name_table_free(&names);
    return status;
}
