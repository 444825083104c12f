/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/convert_order.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "convert/source_parts.h"

/* Where the first element of a run lies. */
struct place {
    struct convert_run *run;
    bool compressed; /* else the rest is not filled in */
    size_t file, entry;
    int64_t first; /* of the entry's elements */
};

static int compare_places(const void *one, const void *other)
{
    const struct place *a = one, *b = other;
    if (a->compressed != b->compressed)
        return a->compressed ? 1 : -1;
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    if (a->entry != b->entry)
        return a->entry < b->entry ? -1 : 1;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return (a->run > b->run) - (a->run < b->run);
}

static dcp_status look_at_entry(dcp_checkpoint *checkpoint, size_t index, bool *compressed)
{
    dcp_entry entry;
    dcp_stored_chunk chunk;
    RETURN_IF_ERROR(dcp_checkpoint_entry(checkpoint, index, &entry));
    if (!entry.is_tensor || entry.chunk_count == 0)
        return DCP_OK;
    RETURN_IF_ERROR(dcp_checkpoint_chunk(checkpoint, index, 0, &chunk));
    *compressed = chunk.compressed;
    return DCP_OK;
}

/* In .pt files, of which there may be thousands, nothing is compressed as a whole. */
static bool is_pt_file(const char *path)
{
    size_t length = strlen(path);
    return length > 3 && strcmp(path + length - 3, ".pt") == 0;
}

static dcp_status find_part(struct source_parts *parts, size_t tensor, struct place *place)
{
    const struct source_tensor *read = &parts->tensors[tensor];
    const struct source_part *part = read->parts;
    dcp_checkpoint *checkpoint;
    if (read->part_count == 0 || is_pt_file(parts->files.files[part->file].path))
        return DCP_OK;
    RETURN_IF_ERROR(source_files_take(&parts->files, part->file, &checkpoint));
    dcp_status status = look_at_entry(checkpoint, part->entry, &place->compressed);
    source_files_give(&parts->files, part->file);
    place->file = part->file;
    place->entry = part->entry;
    place->first += part->first;
    return status;
}

static dcp_status find_place(const struct convert_source *source, struct place *place)
{
    const struct convert_item *item = place->run->item;
    while (item && item->recipe) {
        place->first += item->recipe->first;
        item = item->recipe->input;
    }
    if (!item || !item->name)
        return DCP_OK;
    if (source->parts)
        return find_part(source->parts, item->entry, place);
    place->entry = item->entry;
    return look_at_entry(source->checkpoint, item->entry, &place->compressed);
}

/* What is not compressed stays in its order, whatever else is known of its place. */
static void forget_place(struct place *place)
{
    place->file = place->entry = 0;
    place->first = 0;
}

dcp_status convert_order(const struct convert_source *source, struct convert_run *runs,
                         size_t count, struct convert_run **order)
{
    struct place *places = memory_allocate_array(count, sizeof *places);
    dcp_status status =
        places ? DCP_OK : error_no_memory(count * sizeof *places, "the order of a conversion");
    for (size_t i = 0; i < count && status == DCP_OK; i++) {
        places[i] = (struct place){.run = &runs[i]};
        status = find_place(source, &places[i]);
        if (!places[i].compressed)
            forget_place(&places[i]);
    }
    if (status == DCP_OK && count > 1)
        qsort(places, count, sizeof *places, compare_places);
    for (size_t i = 0; i < count && status == DCP_OK; i++)
        order[i] = places[i].run;
    memory_release(places);
    return status;
}
