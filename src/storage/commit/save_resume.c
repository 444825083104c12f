/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/commit/save_resume.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/footer/footer.h"
#include "storage/file_source.h"
#include "storage/open/directory.h"

static dcp_status refuse(const struct save_session *session, const char *name, const char *why)
{
    return dcp_error_set(DCP_ERR_FORMAT,
                         "%s/%s: an interrupted save had finished it, but it %s; remove what is "
                         "kept to begin anew",
                         session->path, name, why);
}

/* Footers can be read of whole files alone. */
static dcp_status read_footer(const struct save_session *session, const char *name,
                              struct footer *footer)
{
    struct file_source source;
    bool found = false;
    dcp_status status = file_source_open(&source, &session->directory, name);
    if (status == DCP_ERR_NOT_FOUND)
        return refuse(session, name, "is missing");
    RETURN_IF_ERROR(status);
    status = footer_decode(source.source, footer, &found);
    file_source_close(&source);
    if (status == DCP_ERR_FORMAT || status == DCP_ERR_CHECKSUM || (status == DCP_OK && !found))
        return refuse(session, name, "is damaged");
    return status;
}

/* The id of the first kept file becomes the session's; the others must have it, too. */
static dcp_status take_identity(struct save_session *session, const struct directory_name *name,
                                bool is_first)
{
    struct footer footer;
    RETURN_IF_ERROR(read_footer(session, name->name, &footer));
    if (is_first) {
        memcpy(session->save_id, footer.save_id, sizeof session->save_id);
        session->generation = name->generation;
    }
    bool same =
        strcmp(session->save_id, footer.save_id) == 0 && session->generation == name->generation;
    footer_free(&footer);
    return same ? DCP_OK : refuse(session, name->name, "is of another save");
}

static bool is_kept(const struct directory_name *name, const bool *kept, uint32_t rank_count)
{
    uint32_t file, generation;
    int rank;
    return name->kind == DIRECTORY_SHARD &&
           shard_name_parse(name->name, &rank, &file, &generation) && file == 0 &&
           (uint32_t)rank < rank_count && kept[rank];
}

/* Temporary files go with the commit. */
static dcp_status take_up_or_remove(struct save_session *session, const struct directory *directory,
                                    const bool *kept, uint32_t rank_count, size_t *taken)
{
    for (size_t i = 0; i < directory->count; i++) {
        const struct directory_name *name = &directory->names[i];
        if (is_kept(name, kept, rank_count))
            RETURN_IF_ERROR(take_identity(session, name, (*taken)++ == 0));
        else if (name->kind == DIRECTORY_SHARD || name->kind == DIRECTORY_EXTRA)
            RETURN_IF_ERROR(storage_directory_remove(&session->directory, name->name));
    }
    return DCP_OK;
}

static dcp_status take_up(struct save_session *session, const bool *kept, uint32_t rank_count)
{
    struct directory directory;
    size_t taken = 0, wanted = 0;
    for (uint32_t rank = 0; rank < rank_count; rank++)
        wanted += kept[rank];
    RETURN_IF_ERROR(directory_read(&session->directory, &directory));
    dcp_status status = take_up_or_remove(session, &directory, kept, rank_count, &taken);
    directory_free(&directory);
    RETURN_IF_ERROR(status);
    if (taken < wanted)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "%s: an interrupted save had finished %zu files, but only %zu are "
                             "there; remove what is kept to begin anew",
                             session->path, wanted, taken);
    if (wanted == 0 && !session->replaces)
        session->generation = 0; /* what made it a later one is gone */
    return DCP_OK;
}

dcp_status save_session_resume(struct save_session *session, const dcp_storage *storage,
                               const char *path, bool sync, const bool *kept, uint32_t rank_count)
{
    const double takeover_seconds = 0; /* whatever mark is there */
    RETURN_IF_ERROR(
        save_session_begin(session, storage, path, DCP_OVERWRITE_REPLACE, sync, takeover_seconds));
    dcp_status status = take_up(session, kept, rank_count);
    if (status != DCP_OK) {
        save_session_abandon(session);
        save_session_free(session);
    }
    return status;
}

/* ---- what a kept file holds ---- */

/* Pieces of an entry are in the order in which they were written. */
struct kept_contents {
    const struct metadata *contents;
    size_t *taken; /* by entry: of its pieces */
};

static bool is_same_item(const struct metadata_entry *entry, const struct write_item *item)
{
    if (entry->is_tensor != item->is_tensor)
        return false;
    return !item->is_tensor || (entry->dtype == item->dtype && entry->ndim == item->ndim &&
                                box_equal(box_whole(entry->ndim, entry->global_shape),
                                          box_whole(item->ndim, item->global_shape)));
}

/* Compressed streams lie where they came to lie. */
static bool is_same_piece(const struct metadata_piece *piece, const struct write_item *item,
                          const struct write_order *order, bool zstd)
{
    if (!zstd && (piece->zstd || piece->offset != order->offset || piece->length != order->length))
        return false;
    return !item->is_tensor ||
           box_equal((struct box){item->ndim, piece->offsets, piece->sizes}, order->box);
}

/* The piece that an order has become; NULL: there is none. */
static const struct metadata_piece *find_piece(struct kept_contents *kept,
                                               const struct write_item *item,
                                               const struct write_order *order, bool zstd)
{
    const struct metadata_entry *entry = metadata_find(kept->contents, item->name);
    if (!entry || !is_same_item(entry, item))
        return NULL;
    size_t *taken = &kept->taken[entry - kept->contents->entries];
    if (*taken == entry->piece_count)
        return NULL;
    const struct metadata_piece *piece = &entry->pieces[(*taken)++];
    return is_same_piece(piece, item, order, zstd) ? piece : NULL;
}

static dcp_status start_results(struct write_results *results, size_t count, const char *name,
                                const char **path)
{
    *path = arena_copy_text(&results->arena, name, strlen(name));
    results->results = arena_allocate_array(&results->arena, count, sizeof *results->results);
    if (!*path || !results->results)
        return error_no_memory(count * sizeof *results->results, "write results");
    results->count = count;
    return DCP_OK;
}

static dcp_status compare(const struct save_session *session, const char *name,
                          struct kept_contents *kept, const struct write_orders *orders,
                          const struct shard_source *sources, struct write_results *results,
                          const char *path)
{
    size_t pieces = 0;
    for (size_t i = 0; i < orders->count; i++) {
        const struct write_order *order = &orders->orders[i];
        const struct metadata_piece *piece =
            find_piece(kept, sources[order->item].item, order, path != NULL);
        if (!piece)
            return refuse(session, name, "holds something else");
        if (path)
            results->results[i] = (struct write_result){.path = path,
                                                        .offset = piece->offset,
                                                        .length = piece->length,
                                                        .zstd = piece->zstd};
    }
    for (size_t i = 0; i < kept->contents->count; i++)
        pieces += kept->contents->entries[i].piece_count;
    return pieces == orders->count ? DCP_OK : refuse(session, name, "holds more");
}

dcp_status shard_file_check_kept(const struct save_session *session, int rank,
                                 const struct write_orders *orders,
                                 const struct shard_source *sources, bool zstd,
                                 struct write_results *results)
{
    char name[SHARD_NAME_MAX];
    const char *path = NULL;
    struct footer footer;
    *results = (struct write_results){0};
    arena_init(&results->arena, 0);
    shard_name(name, rank, 0, session->generation);
    RETURN_IF_ERROR(read_footer(session, name, &footer));
    struct kept_contents kept = {.contents = &footer.contents};
    kept.taken = memory_allocate_zeroed(footer.contents.count, sizeof *kept.taken);
    dcp_status status = kept.taken ? DCP_OK
                                   : error_no_memory(footer.contents.count * sizeof *kept.taken,
                                                     "what a footer lists");
    if (status == DCP_OK && zstd)
        status = start_results(results, orders->count, name, &path);
    if (status == DCP_OK)
        status = compare(session, name, &kept, orders, sources, results, path);
    memory_release(kept.taken);
    footer_free(&footer);
    return status;
}
