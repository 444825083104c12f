/* SPDX-License-Identifier: BSD-3-Clause */
/* Updates the metadata of a plan with the places where streams were written. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/save/save_plan.h"

/* All pieces, in the order of the ranks and of their orders. */
struct placement {
    struct metadata *metadata;
    struct metadata_piece **pieces;
    size_t count;
    struct name_table files;
    size_t file_capacity; /* of metadata->files */
};

static int compare_places(const void *left, const void *right)
{
    const struct metadata_piece *a = *(struct metadata_piece *const *)left;
    const struct metadata_piece *b = *(struct metadata_piece *const *)right;
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static dcp_status list_pieces(struct placement *placement)
{
    struct metadata *metadata = placement->metadata;
    size_t total = 0;
    for (size_t i = 0; i < metadata->count; i++)
        total += metadata->entries[i].piece_count;
    placement->pieces = memory_allocate_array(total, sizeof *placement->pieces);
    if (placement->pieces == NULL)
        return error_no_memory(total * sizeof *placement->pieces, "pieces of a checkpoint");
    for (size_t i = 0; i < metadata->count; i++)
        for (size_t p = 0; p < metadata->entries[i].piece_count; p++)
            placement->pieces[placement->count++] = &metadata->entries[i].pieces[p];
    if (total > 1)
        qsort(placement->pieces, total, sizeof *placement->pieces, compare_places);
    return DCP_OK;
}

static dcp_status list_files(struct placement *placement)
{
    struct metadata *metadata = placement->metadata;
    placement->file_capacity = metadata->file_count;
    for (size_t i = 0; i < metadata->file_count; i++) {
        const char *name = metadata->files[i];
        uint64_t index = i;
        bool existing;
        RETURN_IF_ERROR(name_table_add(&placement->files, name, strlen(name), &index, &existing));
    }
    return DCP_OK;
}

static dcp_status add_file(struct placement *placement, const char *path)
{
    struct metadata *metadata = placement->metadata;
    if (metadata->file_count == placement->file_capacity) {
        size_t capacity = 2 * placement->file_capacity + 16;
        const char **files = arena_allocate_array(&metadata->arena, capacity, sizeof *files);
        if (files == NULL)
            return error_no_memory(capacity * sizeof *files, "names of files");
        if (metadata->file_count > 0)
            memcpy(files, metadata->files, metadata->file_count * sizeof *files);
        metadata->files = files;
        placement->file_capacity = capacity;
    }
    const char *copy = arena_copy_text(&metadata->arena, path, strlen(path));
    if (copy == NULL)
        return error_no_memory(strlen(path) + 1, "names of files");
    metadata->files[metadata->file_count++] = copy;
    return DCP_OK;
}

static dcp_status find_file(struct placement *placement, const char *path, uint32_t *file)
{
    uint64_t index = placement->metadata->file_count;
    bool existing;
    RETURN_IF_ERROR(name_table_add(&placement->files, path, strlen(path), &index, &existing));
    if (!existing)
        RETURN_IF_ERROR(add_file(placement, path));
    *file = (uint32_t)index;
    return DCP_OK;
}

static dcp_status place_rank(struct placement *placement, int rank,
                             const struct write_results *results, size_t *next)
{
    uint32_t file = 0;
    if (results->count > placement->count - *next)
        return dcp_error_set(DCP_ERR_GROUP,
                             "rank %d reports %zu written streams, expected at most %zu", rank,
                             results->count, placement->count - *next);
    for (size_t i = 0; i < results->count; i++) {
        const struct write_result *result = &results->results[i];
        struct metadata_piece *piece = placement->pieces[(*next)++];
        if (i == 0 || result->path != result[-1].path)
            RETURN_IF_ERROR(find_file(placement, result->path, &file));
        piece->file = file;
        piece->offset = result->offset;
        piece->length = result->length;
        piece->zstd = result->zstd;
    }
    return DCP_OK;
}

dcp_status save_plan_place(const struct write_results *results, int rank_count,
                           struct metadata *metadata)
{
    struct placement placement = {.metadata = metadata};
    size_t next = 0;
    name_table_init(&placement.files);
    dcp_status status = list_pieces(&placement);
    if (status == DCP_OK)
        status = list_files(&placement);
    for (int rank = 0; rank < rank_count && status == DCP_OK; rank++)
        status = place_rank(&placement, rank, &results[rank], &next);
    if (status == DCP_OK && next != placement.count)
        status = dcp_error_set(DCP_ERR_GROUP, "ranks report %zu written streams, expected %zu",
                               next, placement.count);
    name_table_free(&placement.files);
    memory_release(placement.pieces);
    return status;
}

/* ---- places of a kept plan ---- */

dcp_status save_plan_places_take(const struct metadata *metadata, struct planned_places *places)
{
    size_t total = 0;
    save_plan_places_free(places);
    for (size_t i = 0; i < metadata->count; i++)
        total += metadata->entries[i].piece_count;
    places->pieces = memory_allocate_array(total, sizeof *places->pieces);
    if (places->pieces == NULL)
        return error_no_memory(total * sizeof *places->pieces, "places of a plan");
    for (size_t i = 0; i < metadata->count; i++)
        for (size_t p = 0; p < metadata->entries[i].piece_count; p++)
            places->pieces[places->count++] = metadata->entries[i].pieces[p];
    places->file_count = metadata->file_count;
    return DCP_OK;
}

void save_plan_places_restore(struct planned_places *places, struct metadata *metadata)
{
    size_t next = 0;
    if (places->pieces == NULL)
        return;
    for (size_t i = 0; i < metadata->count; i++)
        for (size_t p = 0; p < metadata->entries[i].piece_count; p++)
            metadata->entries[i].pieces[p] = places->pieces[next++];
    metadata->file_count = places->file_count;
    save_plan_places_free(places);
}

void save_plan_places_free(struct planned_places *places)
{
    memory_release(places->pieces);
    *places = (struct planned_places){0};
}
