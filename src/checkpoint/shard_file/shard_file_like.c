/* SPDX-License-Identifier: BSD-3-Clause */
/* Rebuilds metadata for files without footers: another checkpoint of the same job says what the
 * streams at each place should be, and they say whether they are. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/name_table.h"
#include "checkpoint/shard_file/shard_file_list.h"
#include "checkpoint/view/view.h"
#include "format/metadata/metadata_codec.h"
#include "storage/shard/stored_item.h"

/* A comparison on its way. */
struct comparison {
    const dcp_shard_list *list;
    const dcp_rebuild_options *options;
    struct metadata like; /* what is taken over of it; borrowed */
    struct shard_reader *reader;
    const struct listed_file **files; /* by file of like; NULL: not there */
    bool **named;                     /* by file of the list, then stream */
    dcp_status first;                 /* of all faults; its message is in error */
    struct saved_error error;
};

/* Reports the current failure as a fault, unless it is our own. */
static dcp_status note_fault(struct comparison *comparison, const char *file, uint64_t offset,
                             const char *name, dcp_status status)
{
    const dcp_rebuild_options *options = comparison->options;
    if (status == DCP_ERR_NO_MEMORY || status == DCP_ERR_FILE_LIMIT)
        return status;
    if (comparison->first == DCP_OK) {
        comparison->first = status;
        error_save(&comparison->error);
    }
    if (options->report)
        options->report(options->report_context, file, offset, name, dcp_error_message());
    return DCP_OK;
}

/* ---- one stream ---- */

static const struct found_stream *find_stream(const struct listed_file *file, uint64_t offset)
{
    size_t low = 0, high = file->streams.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (file->streams.items[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low < file->streams.count && file->streams.items[low].offset == offset
               ? &file->streams.items[low]
               : NULL;
}

/* Dtype and shape, or that an object can be decoded. */
static dcp_status check_contents(struct comparison *comparison, const struct metadata_entry *entry,
                                 const struct metadata_piece *piece)
{
    struct stored_item item;
    struct tensor_view view;
    RETURN_IF_ERROR(
        stored_item_open(&item, comparison->reader, entry, piece, DCP_VERIFY_NONE, true));
    dcp_status status = entry->is_tensor ? stored_item_view(&item, &view)
                                         : stored_item_check_object(&item, &comparison->like);
    stored_item_close(&item);
    return status;
}

static dcp_status check_place(struct comparison *comparison, const struct metadata_piece *piece)
{
    const struct listed_file *file = comparison->files[piece->file];
    const char *name = comparison->like.files[piece->file];
    if (!file)
        return dcp_error_set(DCP_ERR_NOT_FOUND, "%s is not in the directory", name);
    const struct found_stream *stream = find_stream(file, piece->offset);
    if (!stream || !stream->is_stream)
        return dcp_error_set(DCP_ERR_NOT_FOUND, "no stream begins at %" PRIu64 " of %s",
                             piece->offset, name);
    if (piece->length < stream->length || piece->length - stream->length > stream->empty ||
        stream->zstd != piece->zstd)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "the stream at %" PRIu64 " of %s has %" PRIu64
                             " bytes%s, the other checkpoint's has %" PRIu64 "%s",
                             piece->offset, name, stream->length,
                             stream->zstd ? ", compressed" : "", piece->length,
                             piece->zstd ? ", compressed" : "");
    return DCP_OK;
}

static void mark_named(struct comparison *comparison, const struct metadata_piece *piece)
{
    const struct listed_file *file = comparison->files[piece->file];
    const struct found_stream *stream = find_stream(file, piece->offset);
    comparison->named[file - comparison->list->files][stream - file->streams.items] = true;
}

/* ---- all of them ---- */

/* *agrees: all pieces of the entry do. */
static dcp_status check_entry(struct comparison *comparison, const struct metadata_entry *entry,
                              bool *agrees)
{
    *agrees = true;
    for (size_t i = 0; i < entry->piece_count; i++) {
        const struct metadata_piece *piece = &entry->pieces[i];
        const char *file = comparison->like.files[piece->file];
        dcp_status status = check_place(comparison, piece);
        if (status == DCP_OK) {
            mark_named(comparison, piece);
            status = check_contents(comparison, entry, piece);
        }
        if (status == DCP_OK)
            continue;
        *agrees = false;
        RETURN_IF_ERROR(note_fault(comparison, file, piece->offset, entry->name, status));
    }
    return DCP_OK;
}

/* Keeps the entries that agree. entries: room for all. */
static dcp_status check_entries(struct comparison *comparison, struct metadata_entry *entries)
{
    struct metadata *like = &comparison->like;
    size_t kept = 0;
    for (size_t i = 0; i < like->count; i++) {
        bool agrees = false;
        RETURN_IF_ERROR(check_entry(comparison, &like->entries[i], &agrees));
        if (agrees)
            entries[kept++] = like->entries[i];
    }
    like->entries = entries;
    like->count = kept;
    return DCP_OK;
}

/* What is here, and has no name in the other checkpoint. */
static dcp_status report_unnamed(struct comparison *comparison)
{
    const dcp_shard_list *list = comparison->list;
    for (size_t f = 0; f < list->count; f++) {
        const struct listed_file *file = &list->files[f];
        for (size_t i = 0; i < file->streams.count; i++) {
            const struct found_stream *stream = &file->streams.items[i];
            if (comparison->named[f][i])
                continue;
            dcp_status status = dcp_error_set(
                DCP_ERR_UNEXPECTED_KEY, "%" PRIu64 " bytes at %" PRIu64 " of %s: %s",
                stream->length, stream->offset, file->name,
                stream->problem ? stream->problem
                                : "a stream that the other checkpoint has no name for");
            RETURN_IF_ERROR(note_fault(comparison, file->name, stream->offset, "", status));
        }
    }
    return DCP_OK;
}

/* ---- the parts of a comparison ---- */

static dcp_status find_files(struct comparison *comparison)
{
    const dcp_shard_list *list = comparison->list;
    const struct metadata *like = &comparison->like;
    struct name_table names;
    dcp_status status = DCP_OK;
    name_table_init(&names);
    for (size_t f = 0; f < list->count && status == DCP_OK; f++) {
        uint64_t place = f;
        bool existing;
        const char *name = list->files[f].name;
        status = name_table_add(&names, name, strlen(name), &place, &existing);
    }
    for (size_t i = 0; i < like->file_count && status == DCP_OK; i++) {
        uint64_t place;
        bool found = name_table_find(&names, like->files[i], strlen(like->files[i]), &place);
        comparison->files[i] = found ? &list->files[place] : NULL;
    }
    name_table_free(&names);
    return status;
}

static dcp_status prepare(struct comparison *comparison, struct arena *arena)
{
    const dcp_shard_list *list = comparison->list;
    struct metadata *like = &comparison->like;
    comparison->files = arena_allocate_array(arena, like->file_count, sizeof *comparison->files);
    comparison->named = arena_allocate_array(arena, list->count, sizeof *comparison->named);
    if (!comparison->files || !comparison->named)
        return error_no_memory(list->count * sizeof *comparison->named, "comparing shard files");
    for (size_t f = 0; f < list->count; f++) {
        size_t count = list->files[f].streams.count;
        comparison->named[f] = arena_allocate_array(arena, count, sizeof(bool));
        if (!comparison->named[f])
            return error_no_memory(count, "comparing streams");
        memset(comparison->named[f], 0, count * sizeof(bool));
    }
    RETURN_IF_ERROR(find_files(comparison));
    return storage_read_known(list->chosen, list->id, like, &comparison->reader);
}

static dcp_status check_given(const dcp_shard_list *list, const struct metadata *like)
{
    if (!list->streams)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "%s: to rebuild by another checkpoint, read the list of its files "
                             "with dcp_shard_list_options::streams",
                             list->id);
    for (size_t i = 0; i < list->count; i++)
        if (list->files[i].status == DCP_OK)
            return dcp_error_set(DCP_ERR_STATE,
                                 "%s has a footer, which says its names: rebuild without another "
                                 "checkpoint",
                                 list->files[i].name);
    bool streams = like->member_count == 0;
    for (size_t i = 0; i < like->count; i++)
        for (size_t p = 0; p < like->entries[i].piece_count; p++)
            streams = streams && like->entries[i].pieces[p].encoding == PIECE_STREAM;
    return streams ? DCP_OK
                   : dcp_error_set(DCP_ERR_ARGUMENT,
                                   "the other checkpoint, which has the names, is not one DCP "
                                   "directory");
}

static dcp_status compare(struct comparison *comparison, struct arena *arena,
                          struct metadata *metadata)
{
    struct metadata *like = &comparison->like;
    struct metadata_entry *entries = arena_allocate_array(arena, like->count, sizeof *entries);
    if (!entries)
        return error_no_memory(like->count * sizeof *entries, "comparing entries");
    RETURN_IF_ERROR(prepare(comparison, arena));
    RETURN_IF_ERROR(check_entries(comparison, entries));
    RETURN_IF_ERROR(report_unnamed(comparison));
    if (comparison->first != DCP_OK && (!comparison->options->leave_out || like->count == 0))
        return error_restore(&comparison->error);
    return metadata_unite(like, 1, metadata);
}

dcp_status shard_list_rebuild_like(const dcp_shard_list *list, const dcp_rebuild_options *options,
                                   struct metadata *metadata)
{
    struct comparison comparison = {
        .list = list, .options = options, .like = *options->like->metadata};
    struct arena arena;
    RETURN_IF_ERROR(check_given(list, &comparison.like));
    /* What is of that save alone. */
    comparison.like.save_id = "";
    comparison.like.replica_count = 0;
    comparison.like.extra_files = NULL;
    comparison.like.extra_file_count = 0;
    arena_init(&arena, 0);
    dcp_status status = compare(&comparison, &arena, metadata);
    shard_reader_free(comparison.reader);
    arena_free(&arena);
    return status;
}
