/* SPDX-License-Identifier: BSD-3-Clause */
/* Checkpoints of torch_checkpointing: a file for each item, which is a key of the outermost dict,
 * and rank. metadata.pkl says where ranks' parts lie; without it, .pt files of DTensors do. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "convert/source_dtensor.h"
#include "convert/source_groups.h"
#include "convert/source_training.h"
#include "convert/source_values.h"

enum { ITEMS_MAX = 4096, RANKS_MAX = 1 << 20 };

struct item {
    const char *name;
    const char *suffix; /* of its files; NULL: metadata.pkl tells them */
    const struct groups_item *described;
    size_t ranks;
    size_t files_seen;
    size_t file; /* of rank 0 */
};

struct items {
    struct convert_source *source;
    struct source_parts *parts;
    struct groups groups;
    struct item *items;
    size_t count;
    size_t others; /* names that are no item's */
    struct arena *arena;
};

/* What a tensor is looked for by, in the files of an item's ranks. */
struct search {
    struct source_parts *parts;
    const struct item *item;
    const char *name;
};

/* ---- which items there are ---- */

/* "ITEM_RANK.pt" and so on. */
static bool split_name(const char *name, size_t *length, uint64_t *rank, const char **suffix)
{
    static const char *const suffixes[] = {".pt", ".json", ".bin"};
    const char *dot = strrchr(name, '.'), *digits = dot;
    *suffix = NULL;
    for (size_t i = 0; dot && i < sizeof suffixes / sizeof *suffixes; i++)
        if (strcmp(dot, suffixes[i]) == 0)
            *suffix = suffixes[i];
    while (digits && digits > name && isdigit((unsigned char)digits[-1]))
        digits--;
    if (!*suffix || digits == dot || digits - name < 2 || digits[-1] != '_' || dot - digits > 7)
        return false;
    *rank = strtoull(digits, NULL, 10);
    *length = (size_t)(digits - name) - 1;
    return true;
}

static struct item *find_item(const struct items *items, const char *name, size_t length)
{
    for (size_t i = 0; i < items->count; i++)
        if (strlen(items->items[i].name) == length &&
            memcmp(items->items[i].name, name, length) == 0)
            return &items->items[i];
    return NULL;
}

static dcp_status add_item(struct items *items, const char *name, size_t length,
                           struct item **added)
{
    if (items->count == ITEMS_MAX)
        return dcp_error_set(DCP_ERR_FORMAT, "more than %d items", ITEMS_MAX);
    struct item *item = &items->items[items->count];
    *item = (struct item){.name = arena_copy_text(items->arena, name, length)};
    if (!item->name)
        return error_no_memory(length, "a name");
    items->count++;
    *added = item;
    return DCP_OK;
}

static dcp_status take_name(struct items *items, const char *name)
{
    const char *suffix;
    size_t length;
    uint64_t rank;
    if (name[0] == '.' || strcmp(name, "metadata.pkl") == 0)
        return DCP_OK;
    if (!split_name(name, &length, &rank, &suffix)) {
        items->others++;
        return DCP_OK;
    }
    struct item *item = find_item(items, name, length);
    if (item && item->described)
        return DCP_OK;
    if (!item)
        RETURN_IF_ERROR(add_item(items, name, length, &item));
    if (item->suffix && item->suffix != suffix) {
        items->others++;
        return DCP_OK;
    }
    item->suffix = suffix;
    item->files_seen++;
    if (rank >= item->ranks)
        item->ranks = (size_t)rank + 1;
    return DCP_OK;
}

static int compare_items(const void *one, const void *other)
{
    return strcmp(((const struct item *)one)->name, ((const struct item *)other)->name);
}

static dcp_status list_items(struct items *items, const char *path)
{
    DIR *directory = opendir(path);
    if (!directory)
        return dcp_error_set(DCP_ERR_IO, "%s: cannot be listed: %s", path, strerror(errno));
    dcp_status status = DCP_OK;
    for (struct dirent *entry; status == DCP_OK && (entry = readdir(directory)) != NULL;)
        status = take_name(items, entry->d_name);
    closedir(directory);
    qsort(items->items, items->count, sizeof *items->items, compare_items);
    return status;
}

static dcp_status items_begin(struct items *items, struct arena *arena)
{
    *items = (struct items){.arena = arena};
    items->items = memory_allocate_array(ITEMS_MAX, sizeof *items->items);
    return items->items ? DCP_OK : error_no_memory(ITEMS_MAX * sizeof *items->items, "items");
}

dcp_status torch_checkpointing_look(const char *directory, bool *found)
{
    struct arena arena;
    struct items items;
    bool tensors = false;
    arena_init(&arena, 0);
    *found = false;
    dcp_status status = items_begin(&items, &arena);
    if (status == DCP_OK)
        status = list_items(&items, directory);
    bool fits = status == DCP_OK && items.others == 0 && items.count > 0;
    for (size_t i = 0; fits && i < items.count; i++) {
        fits = items.items[i].files_seen == items.items[i].ranks &&
               items.items[i].ranks == items.items[0].ranks;
        tensors = tensors || strcmp(items.items[i].suffix, ".pt") == 0;
    }
    *found = fits && tensors;
    memory_release(items.items);
    arena_free(&arena);
    return status;
}

/* Adds the files of all ranks, each of which must be there. */
static dcp_status add_files(struct items *items, struct item *item)
{
    char made[4096];
    item->file = items->parts->files.count;
    for (size_t rank = 0; rank < item->ranks; rank++) {
        const char *name = made;
        size_t file;
        if (item->described)
            RETURN_IF_ERROR(groups_file(&items->groups, item->described, rank, &name));
        else
            snprintf(made, sizeof made, "%s_%zu%s", item->name, rank, item->suffix);
        if (!name)
            return dcp_error_set(DCP_ERR_FORMAT,
                                 "%s/metadata.pkl: says nothing of the file of rank %zu of \"%s\"",
                                 items->source->training, rank, item->name);
        RETURN_IF_ERROR(
            source_files_add(&items->parts->files, items->source->training, name, &file));
        if (access(items->parts->files.files[file].path, F_OK) != 0)
            return dcp_error_set(DCP_ERR_NOT_FOUND,
                                 "%s: the file of rank %zu of \"%s\" is missing: the checkpoint is "
                                 "of %zu ranks",
                                 items->parts->files.files[file].path, rank, item->name,
                                 item->ranks);
    }
    return DCP_OK;
}

/* ---- what an item has ---- */

static dcp_status find_entry(void *context, size_t rank, size_t *file, size_t *entry, bool *found)
{
    const struct search *search = context;
    dcp_checkpoint *checkpoint;
    *found = false;
    if (rank >= search->item->ranks)
        return dcp_error_set(DCP_ERR_FORMAT, "\"%s\": rank %zu of a mesh, of %zu", search->name,
                             rank, search->item->ranks);
    *file = search->item->file + rank;
    RETURN_IF_ERROR(source_files_take(&search->parts->files, *file, &checkpoint));
    *found = source_entry_find(checkpoint, search->name, entry);
    source_files_give(&search->parts->files, *file);
    return DCP_OK;
}

/* The path of an entry, below the item if all items are taken. */
static dcp_status make_path(const struct items *items, const struct item *item,
                            const dcp_entry *entry, dcp_path_part **path, size_t *length)
{
    size_t skip = items->source->options->take == DCP_TAKE_ALL ? 1 : 0;
    bool whole = entry->path_length == 1 && entry->path[0].key && !*entry->path[0].key;
    *length = whole ? 1 : entry->path_length + skip;
    *path = arena_allocate_array(items->arena, *length + 1, sizeof **path);
    if (!*path)
        return error_no_memory(*length * sizeof **path, "a name");
    (*path)[0] = (dcp_path_part){.key = item->name};
    if (!whole)
        memcpy(*path + skip, entry->path, entry->path_length * sizeof **path);
    return DCP_OK;
}

static dcp_status end_tensor(const struct items *items)
{
    dcp_status status = source_parts_end(items->parts);
    return status == DCP_OK ? DCP_OK : error_prefix(status, "%s", items->source->training);
}

/* A DTensor of files without metadata.pkl: all ranks' parts, as each of them says. */
static dcp_status add_dtensor(const struct items *items, struct search *search,
                              const dcp_path_part *path, size_t length,
                              const struct dtensor *tensor, dcp_dtype dtype)
{
    struct source_parts *parts = items->parts;
    RETURN_IF_ERROR(source_parts_tensor(parts, path, length, dtype, tensor->ndim, tensor->shape));
    for (size_t rank = 0; rank < search->item->ranks && !source_parts_are_complete(parts); rank++) {
        struct dtensor other;
        dcp_checkpoint *checkpoint;
        size_t file, entry;
        bool found;
        RETURN_IF_ERROR(find_entry(search, rank, &file, &entry, &found));
        if (!found)
            continue;
        RETURN_IF_ERROR(source_files_take(&parts->files, file, &checkpoint));
        dcp_status status = dtensor_read(checkpoint, entry, &other, &found);
        source_files_give(&parts->files, file);
        if (status == DCP_OK &&
            (!found || other.ndim != tensor->ndim ||
             memcmp(other.shape, tensor->shape, (size_t)other.ndim * sizeof *other.shape) != 0))
            status = dcp_error_set(DCP_ERR_SHAPE,
                                   "\"%s\" is of another shape than in another rank's file",
                                   search->name);
        if (status != DCP_OK)
            return error_prefix(status, "%s", parts->files.files[file].path);
        RETURN_IF_ERROR(source_parts_add_placed(parts, file, entry, &other.layout));
    }
    return end_tensor(items);
}

static dcp_status add_described(const struct items *items, struct search *search,
                                const dcp_path_part *path, size_t length,
                                const struct pickle_value *list, dcp_dtype dtype)
{
    int64_t shape[DCP_MAX_DIMS];
    int32_t ndim;
    RETURN_IF_ERROR(groups_shape(list, shape, &ndim));
    RETURN_IF_ERROR(source_parts_tensor(items->parts, path, length, dtype, ndim, shape));
    RETURN_IF_ERROR(groups_add(list, items->parts, find_entry, search));
    return end_tensor(items);
}

static dcp_status add_entry(const struct items *items, const struct item *item, size_t file,
                            dcp_checkpoint *checkpoint, size_t index, const dcp_entry *entry)
{
    struct search search = {items->parts, item, entry->name};
    struct dtensor tensor;
    dcp_path_part *path;
    size_t length;
    uint64_t group;
    bool found = false;
    RETURN_IF_ERROR(make_path(items, item, entry, &path, &length));
    if (item->described && entry->is_tensor &&
        name_table_find(&item->described->paths, entry->name, strlen(entry->name), &group))
        return add_described(items, &search, path, length, item->described->groups[group],
                             entry->dtype);
    if (entry->is_tensor)
        RETURN_IF_ERROR(dtensor_read(checkpoint, index, &tensor, &found));
    if (found)
        return add_dtensor(items, &search, path, length, &tensor, entry->dtype);
    return source_parts_copy(items->parts, path, length, file, index, DCP_DTYPE_NONE);
}

/* Describes what the file of a rank has and no lower rank's. */
static dcp_status add_rank(const struct items *items, const struct item *item, size_t rank,
                           struct name_table *seen)
{
    bool objects = items->source->options->take == DCP_TAKE_ALL;
    dcp_checkpoint *checkpoint;
    RETURN_IF_ERROR(source_files_take(&items->parts->files, item->file + rank, &checkpoint));
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < dcp_checkpoint_count(checkpoint) && status == DCP_OK; i++) {
        dcp_entry entry;
        uint64_t index = i;
        bool existing = false;
        status = dcp_checkpoint_entry(checkpoint, i, &entry);
        if (status != DCP_OK || (!entry.is_tensor && !objects) ||
            name_table_find(seen, entry.name, strlen(entry.name), &index))
            continue;
        const char *name = arena_copy_text(items->arena, entry.name, strlen(entry.name));
        status = name ? name_table_add(seen, name, strlen(name), &index, &existing)
                      : error_no_memory(strlen(entry.name), "a name");
        if (status == DCP_OK)
            status = add_entry(items, item, item->file + rank, checkpoint, i, &entry);
    }
    source_files_give(&items->parts->files, item->file + rank);
    return status;
}

/* JSON or bytes, of rank 0. */
static dcp_status add_text(const struct items *items, const struct item *item)
{
    struct convert_source *source = items->source;
    const dcp_path_part path = {.key = item->name};
    const char *name = items->parts->files.files[item->file].path, *text;
    size_t size;
    RETURN_IF_ERROR(convert_read_text(source, name + strlen(source->path) + 1, &text, &size));
    if (!text)
        return dcp_error_set(DCP_ERR_NOT_FOUND, "%s: is missing", name);
    return source_parts_text(items->parts, &path, 1, text, size,
                             strcmp(item->suffix, ".json") == 0);
}

static dcp_status add_one(struct items *items, struct item *item)
{
    struct name_table seen;
    dcp_status status = add_files(items, item);
    if (status != DCP_OK)
        return status;
    if (item->suffix && strcmp(item->suffix, ".pt") != 0)
        return items->source->options->take == DCP_TAKE_ALL ? add_text(items, item) : DCP_OK;
    name_table_init(&seen);
    for (size_t rank = 0; rank < item->ranks && status == DCP_OK; rank++)
        status = add_rank(items, item, rank, &seen);
    name_table_free(&seen);
    return status;
}

/* The item that is the model. */
static dcp_status find_model(const struct items *items, struct item **model)
{
    static const char *const names[] = {"model", "module", "state_dict", "model_state_dict",
                                        "network"};
    *model = items->count == 1 ? items->items : NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !*model; i++)
        *model = find_item(items, names[i], strlen(names[i]));
    return *model ? DCP_OK
                  : dcp_error_set(DCP_ERR_UNSUPPORTED,
                                  "%s: none of its %zu items is called \"model\", \"module\", "
                                  "\"state_dict\", \"model_state_dict\" or \"network\": take all, "
                                  "and choose by include",
                                  items->source->training, items->count);
}

static dcp_status find_items(struct items *items)
{
    const char *directory = items->source->training;
    char path[4096];
    struct item *item;
    snprintf(path, sizeof path, "%s/metadata.pkl", directory);
    if (access(path, F_OK) != 0)
        return list_items(items, directory);
    RETURN_IF_ERROR(groups_read(&items->groups, directory, items->arena));
    for (size_t i = 0; i < items->groups.count; i++) {
        const struct groups_item *described = &items->groups.items[i];
        RETURN_IF_ERROR(add_item(items, described->name, strlen(described->name), &item));
        item->described = described;
        item->ranks = items->groups.world_size;
    }
    return list_items(items, directory);
}

dcp_status torch_checkpointing_open(struct convert_source *source)
{
    struct items items;
    struct item *model;
    if (source->options->take == DCP_TAKE_MASTERS)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "%s: %s has no fp32 weights beside the model's",
                             source->path, source->text);
    dcp_status status = items_begin(&items, &source->arena);
    items.source = source;
    items.parts = source->parts;
    items.parts->files.local_parts = true;
    if (status == DCP_OK)
        status = find_items(&items);
    if (status == DCP_OK && source->options->take == DCP_TAKE_MODEL) {
        status = find_model(&items, &model);
        if (status == DCP_OK)
            status = add_one(&items, model);
    } else {
        for (size_t i = 0; i < items.count && status == DCP_OK; i++)
            status = add_one(&items, &items.items[i]);
    }
    groups_free(&items.groups);
    memory_release(items.items);
    return status;
}
