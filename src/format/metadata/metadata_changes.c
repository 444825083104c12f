/* SPDX-License-Identifier: BSD-3-Clause */
/* The message:
 *
 *   save id, number of members, the save id of each
 *   whether files are called otherwise; if so: their number, then per file its name, and of a union
 *   its member
 *   number of pieces that changed, per piece: how many pieces after the one before, its file,
 *   offset and length, whether it is compressed
 *
 * All numbers are varints; pieces are counted through all entries. */
#include "format/metadata/metadata_changes.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "format/metadata/metadata_trailer.h"
#include "format/metadata/relative_path.h"

static dcp_status fault(const char *what)
{
    return dcp_error_set(DCP_ERR_GROUP, "changes of the metadata: %s", what);
}

/* ---- the structure ---- */

static bool numbers_equal(int32_t ndim, const int64_t *a, const int64_t *b)
{
    return ndim == 0 || memcmp(a, b, (size_t)ndim * sizeof *a) == 0;
}

static bool entries_equal(const struct metadata_entry *a, const struct metadata_entry *b)
{
    if (a->is_tensor != b->is_tensor || a->dtype != b->dtype || a->ndim != b->ndim ||
        a->requires_grad != b->requires_grad || a->piece_count != b->piece_count ||
        strcmp(a->name, b->name) != 0)
        return false;
    if (!a->is_tensor)
        return true;
    if (!numbers_equal(a->ndim, a->global_shape, b->global_shape))
        return false;
    for (size_t i = 0; i < a->piece_count; i++)
        if (!numbers_equal(a->ndim, a->pieces[i].offsets, b->pieces[i].offsets) ||
            !numbers_equal(a->ndim, a->pieces[i].sizes, b->pieces[i].sizes))
            return false;
    return true;
}

bool metadata_structure_equal(const struct metadata *a, const struct metadata *b)
{
    if (a->count != b->count || a->member_count != b->member_count)
        return false;
    for (size_t i = 0; i < a->member_count; i++)
        if (strcmp(a->members[i].name, b->members[i].name) != 0 ||
            a->members[i].chosen != b->members[i].chosen)
            return false;
    for (size_t i = 0; i < a->count; i++)
        if (!entries_equal(&a->entries[i], &b->entries[i]))
            return false;
    return true;
}

/* ---- appending ---- */

static void append_text(struct buffer *out, const char *text)
{
    buffer_append_text(out, text, strlen(text));
}

static bool files_equal(const struct metadata *a, const struct metadata *b)
{
    if (a->file_count != b->file_count)
        return false;
    for (size_t i = 0; i < a->file_count; i++)
        if (strcmp(a->files[i], b->files[i]) != 0)
            return false;
    return true;
}

static void append_files(const struct metadata *before, const struct metadata *now,
                         struct buffer *out)
{
    bool renamed = !files_equal(before, now);
    buffer_append_varint(out, renamed);
    if (!renamed)
        return;
    buffer_append_varint(out, now->file_count);
    for (size_t i = 0; i < now->file_count; i++) {
        append_text(out, now->files[i]);
        if (now->member_count != 0)
            buffer_append_varint(out, now->file_members[i]);
    }
}

static bool pieces_equal(const struct metadata_piece *a, const struct metadata_piece *b)
{
    return a->file == b->file && a->offset == b->offset && a->length == b->length &&
           a->zstd == b->zstd;
}

static bool has_moved(const struct metadata_entry *entry, const struct metadata_piece *before,
                      const struct metadata_piece *now)
{
    return entry->is_tensor || now->file != before->file || now->offset != before->offset;
}

/* Appends the part behind the number of pieces to a buffer of its own. */
static uint64_t append_pieces(const struct metadata *before, const struct metadata *now,
                              struct buffer *out, bool *moved)
{
    uint64_t count = 0, gap = 0;
    for (size_t i = 0; i < now->count; i++) {
        const struct metadata_entry *entry = &now->entries[i];
        for (size_t k = 0; k < entry->piece_count; k++, gap++) {
            const struct metadata_piece *piece = &entry->pieces[k];
            if (pieces_equal(piece, &before->entries[i].pieces[k]))
                continue;
            buffer_append_varint(out, gap);
            buffer_append_varint(out, piece->file);
            buffer_append_varint(out, piece->offset);
            buffer_append_varint(out, piece->length);
            buffer_append_varint(out, piece->zstd);
            *moved |= has_moved(entry, &before->entries[i].pieces[k], piece);
            count++;
            gap = 0;
        }
    }
    return count;
}

dcp_status metadata_changes_append(const struct metadata *before, const struct metadata *now,
                                   struct buffer *out, bool *moved)
{
    struct buffer pieces;
    buffer_init(&pieces, 0);
    *moved = false;
    append_text(out, now->save_id);
    buffer_append_varint(out, now->member_count);
    for (size_t i = 0; i < now->member_count; i++)
        append_text(out, now->members[i].save_id);
    append_files(before, now, out);
    buffer_append_varint(out, append_pieces(before, now, &pieces, moved));
    buffer_append(out, pieces.data, pieces.size);
    dcp_status status = buffer_status(&pieces);
    buffer_free(&pieces);
    return status == DCP_OK ? buffer_status(out) : status;
}

dcp_status metadata_changes_append_id(const struct metadata *before, const char *save_id,
                                      struct buffer *out)
{
    struct metadata now = *before;
    bool moved;
    now.save_id = save_id;
    return metadata_changes_append(before, &now, out, &moved);
}

/* ---- applying ---- */

static dcp_status read_id(struct reader *reader, struct arena *texts, const char **id)
{
    size_t length;
    const char *text = reader_text(reader, &length);
    if (reader->failed || (length != 0 && memchr(text, '\0', length)))
        return fault("a save id is malformed");
    *id = arena_copy_text(texts, text, length);
    return *id ? DCP_OK : error_no_memory(length, "a save's id");
}

static dcp_status read_ids(struct reader *reader, struct metadata *metadata, struct arena *texts)
{
    RETURN_IF_ERROR(read_id(reader, texts, &metadata->save_id));
    if (reader_varint(reader) != metadata->member_count)
        return fault("the number of members is wrong");
    for (size_t i = 0; i < metadata->member_count; i++)
        RETURN_IF_ERROR(read_id(reader, texts, &metadata->members[i].save_id));
    return DCP_OK;
}

/* Of a union, names begin with that of their member. */
static dcp_status check_name(const struct metadata *metadata, const char *name, size_t length,
                             uint64_t member)
{
    if (metadata->member_count == 0)
        return relative_path_check(name, length);
    const char *directory = metadata->members[member].name;
    size_t before = strlen(directory);
    if (length <= before + 1 || memcmp(name, directory, before) != 0 || name[before] != '/')
        return fault("a file is not in the directory of its member");
    return relative_path_check(name + before + 1, length - before - 1);
}

static dcp_status read_file(struct reader *reader, struct metadata *metadata, struct arena *texts,
                            size_t file)
{
    size_t length;
    const char *name = reader_text(reader, &length);
    uint64_t member = metadata->member_count != 0 ? reader_varint(reader) : 0;
    if (reader->failed || (metadata->member_count != 0 && member >= metadata->member_count))
        return fault("a file has no name or no member");
    RETURN_IF_ERROR(check_name(metadata, name, length, member));
    metadata->files[file] = arena_copy_text(texts, name, length);
    if (!metadata->files[file])
        return error_no_memory(length, "a file's name");
    if (metadata->member_count != 0)
        metadata->file_members[file] = (uint32_t)member;
    return DCP_OK;
}

static dcp_status keep_file(struct metadata *metadata, struct arena *texts, size_t file,
                            const char *name, const uint32_t *members)
{
    metadata->files[file] = arena_copy_text(texts, name, strlen(name));
    if (!metadata->files[file])
        return error_no_memory(strlen(name), "a file's name");
    if (metadata->member_count != 0)
        metadata->file_members[file] = members[file];
    return DCP_OK;
}

/* Copies unchanged names, too, as the previous texts will be freed. */
static dcp_status read_files(struct reader *reader, struct metadata *metadata, struct arena *texts)
{
    bool renamed = reader_varint(reader) != 0;
    uint64_t count = renamed ? reader_varint(reader) : metadata->file_count;
    const char **names = metadata->files;
    const uint32_t *members = metadata->file_members;
    if (reader->failed || count > UINT32_MAX || (renamed && count > reader_left(reader)))
        return fault("there are fewer files than announced");
    metadata->file_count = (size_t)count;
    metadata->files = arena_allocate_array(texts, (size_t)count, sizeof *metadata->files);
    metadata->file_members =
        arena_allocate_array(texts, (size_t)count, sizeof *metadata->file_members);
    if (!metadata->files || !metadata->file_members)
        return error_no_memory((size_t)count * sizeof *metadata->files, "the names of files");
    for (size_t i = 0; i < metadata->file_count; i++)
        RETURN_IF_ERROR(renamed ? read_file(reader, metadata, texts, i)
                                : keep_file(metadata, texts, i, names[i], members));
    return DCP_OK;
}

static bool piece_fits(const struct metadata_entry *entry, const struct metadata_piece *piece)
{
    uint64_t bytes = 0;
    if (piece->length == 0 || piece->length > INT64_MAX ||
        piece->offset > INT64_MAX - piece->length)
        return false;
    return !entry->is_tensor || piece->zstd ||
           (shape_bytes(entry->ndim, piece->sizes, entry->dtype, &bytes) && piece->length >= bytes);
}

static dcp_status read_piece(struct reader *reader, const struct metadata *metadata,
                             const struct metadata_entry *entry, struct metadata_piece *piece,
                             bool *moved)
{
    const struct metadata_piece before = *piece;
    uint64_t file = reader_varint(reader);
    piece->offset = reader_varint(reader);
    piece->length = reader_varint(reader);
    piece->zstd = reader_varint(reader) != 0;
    if (reader->failed || file >= metadata->file_count || !piece_fits(entry, piece))
        return fault("the place of a piece is invalid");
    piece->file = (uint32_t)file;
    *moved |= has_moved(entry, &before, piece);
    return DCP_OK;
}

static dcp_status read_pieces(struct reader *reader, struct metadata *metadata, bool *moved)
{
    uint64_t left = reader_varint(reader), gap = left != 0 ? reader_varint(reader) : 0;
    for (size_t i = 0; i < metadata->count && left != 0; i++) {
        struct metadata_entry *entry = &metadata->entries[i];
        size_t k = 0;
        while (left != 0 && gap < entry->piece_count - k) {
            k += (size_t)gap;
            RETURN_IF_ERROR(read_piece(reader, metadata, entry, &entry->pieces[k], moved));
            gap = --left != 0 ? reader_varint(reader) : 0;
        }
        gap -= entry->piece_count - k;
    }
    return left == 0 ? DCP_OK : fault("there are more pieces than in the metadata");
}

/* Checks that no piece is in a file that no longer exists. */
static dcp_status check_files(const struct metadata *metadata)
{
    for (size_t i = 0; i < metadata->count; i++)
        for (size_t k = 0; k < metadata->entries[i].piece_count; k++)
            if (metadata->entries[i].pieces[k].file >= metadata->file_count)
                return fault("a piece is in an unknown file");
    return DCP_OK;
}

dcp_status metadata_changes_apply(const void *bytes, size_t size, struct metadata *metadata,
                                  struct arena *texts, bool *moved)
{
    struct reader reader;
    size_t file_count = metadata->file_count;
    reader_init(&reader, bytes, size);
    *moved = false;
    metadata->replica_count = 0;
    RETURN_IF_ERROR(read_ids(&reader, metadata, texts));
    RETURN_IF_ERROR(read_files(&reader, metadata, texts));
    RETURN_IF_ERROR(read_pieces(&reader, metadata, moved));
    if (reader.failed || reader_left(&reader) != 0)
        return fault("the message ends too early, or is too long");
    return metadata->file_count < file_count ? check_files(metadata) : DCP_OK;
}

/* ---- the bytes ---- */

static bool is_uuid(const unsigned char *text)
{
    for (size_t i = 0; i < METADATA_ID_LENGTH; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        bool hex = (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f');
        if (dash ? text[i] != '-' : !hex)
            return false;
    }
    return true;
}

/* Where a string is, with the opcode of short ones before it. */
static const unsigned char *find_id(const unsigned char *bytes, size_t size, const char *id)
{
    unsigned char string[METADATA_ID_LENGTH + 2] = {0x8c, METADATA_ID_LENGTH};
    memcpy(string + 2, id, METADATA_ID_LENGTH);
    const unsigned char *found = memmem(bytes, size, string, sizeof string);
    return found ? found + 2 : NULL;
}

/* What is behind the pickles differs, too. A file whose checksum does not match has to be decoded,
 * which says so. */
static bool take_trailers_off(const unsigned char *before, const unsigned char *now, size_t *size)
{
    struct metadata_trailer one, other;
    bool match = metadata_trailer_read(before, *size, &one) == DCP_OK &&
                 metadata_trailer_read(now, *size, &other) == DCP_OK &&
                 one.pickle_size == other.pickle_size;
    if (match)
        *size = one.pickle_size;
    else
        error_clear();
    return match;
}

bool metadata_bytes_differ_by_id(const unsigned char *before, const unsigned char *now, size_t size,
                                 const char *before_id, char now_id[METADATA_ID_LENGTH + 1])
{
    if (!take_trailers_off(before, now, &size))
        return false;
    if (strlen(before_id) != METADATA_ID_LENGTH || !is_uuid((const unsigned char *)before_id))
        return false;
    const unsigned char *id = find_id(before, size, before_id);
    if (!id)
        return false;
    size_t start = (size_t)(id - before), end = start + METADATA_ID_LENGTH;
    if (memmem(id + 1, size - start - 1, before_id, METADATA_ID_LENGTH) || !is_uuid(now + start) ||
        memcmp(before, now, start) != 0 || memcmp(before + end, now + end, size - end) != 0)
        return false;
    memcpy(now_id, now + start, METADATA_ID_LENGTH);
    now_id[METADATA_ID_LENGTH] = '\0';
    return true;
}
