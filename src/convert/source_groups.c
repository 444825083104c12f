/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/source_groups.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "format/json/json_reader.h"

/* More than millions of tensors take, the most ranks, and keys of a dict that is no list of names.
 */
#define METADATA_BYTES_MAX (INT64_C(4) << 30)
enum { WORLD_SIZE_MAX = 1 << 20, ITEMS_MAX = 4096, KEYS_MAX = 64 };

static dcp_status malformed(const char *what)
{
    return dcp_error_set(DCP_ERR_FORMAT, "metadata.pkl: %s", what);
}

/* The value of a key of a small dict: one dict may stand in many places, and is searched in each.
 */
static const struct pickle_value *get(const struct pickle_value *dict, const char *key)
{
    return dict && dict->kind == PICKLE_DICT && dict->as.sequence.count <= 2 * KEYS_MAX
               ? pickle_dict_get(dict, key)
               : NULL;
}

static dcp_status read_file(const char *directory, struct arena *arena, void **bytes, size_t *size)
{
    struct stat about;
    size_t length = strlen(directory) + sizeof "/metadata.pkl";
    char *path = arena_allocate(arena, length);
    if (!path)
        return error_no_memory(length, "a path");
    snprintf(path, length, "%s/metadata.pkl", directory);
    FILE *file = fopen(path, "rb");
    if (!file)
        return dcp_error_set(DCP_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    dcp_status status = DCP_OK;
    if (fstat(fileno(file), &about) != 0 || about.st_size > METADATA_BYTES_MAX)
        status = dcp_error_set(DCP_ERR_FORMAT, "%s: has no size that is possible", path);
    if (status == DCP_OK) {
        *size = (size_t)about.st_size;
        *bytes = memory_allocate(*size);
        if (!*bytes)
            status = error_no_memory(*size, path);
        else if (fread(*bytes, 1, *size, file) != *size)
            status = dcp_error_set(DCP_ERR_IO, "%s: cannot be read", path);
    }
    fclose(file);
    return status;
}

/* A JSON list of keys and positions, as a name; item: of the first of them apart (NULL: there is
 * none such). */
static dcp_status read_path(struct arena *arena, const struct pickle_value *key, const char **item,
                            const char **name)
{
    struct json_reader json;
    struct json_text text;
    struct buffer joined;
    bool more = false, first = true, whole;
    buffer_init(&joined, 0);
    json_init(&json, "metadata.pkl: a path", key->as.text.bytes, key->as.text.length, arena);
    dcp_status status = json_enter_array(&json);
    if (status == DCP_OK)
        status = json_next_element(&json, &more);
    while (status == DCP_OK && more) {
        status = json_peek(&json) == JSON_STRING ? json_string(&json, &text)
                                                 : json_number(&json, &text, &whole);
        if (status != DCP_OK)
            break;
        if (item && !*item) {
            *item = arena_copy_text(arena, text.bytes, text.length);
            if (!*item)
                status = error_no_memory(text.length, "a name");
        } else {
            buffer_append(&joined, ".", first ? 0 : 1);
            buffer_append(&joined, text.bytes, text.length);
            first = false;
        }
        if (status == DCP_OK)
            status = json_next_element(&json, &more);
    }
    if (status == DCP_OK)
        status = json_end(&json);
    if (status == DCP_OK)
        status = buffer_status(&joined);
    if (status == DCP_OK) {
        const char *bytes = joined.size > 0 ? (const char *)joined.data : "";
        *name = arena_copy_text(arena, bytes, joined.size);
        if (!*name)
            status = error_no_memory(joined.size, "a name");
        else if (strlen(*name) != joined.size)
            status = malformed("a path with a NUL");
    }
    buffer_free(&joined);
    return status;
}

static dcp_status read_paths(struct groups *groups, struct groups_item *item,
                             const struct pickle_value *paths)
{
    size_t count = paths->as.sequence.count / 2;
    item->groups = arena_allocate_array(groups->arena, count, sizeof *item->groups);
    if (!item->groups)
        return error_no_memory(count * sizeof *item->groups, "parts of tensors");
    for (size_t i = 0; i < count; i++) {
        const struct pickle_value *key = paths->as.sequence.items[2 * i];
        const char *name;
        uint64_t index = i;
        bool existing;
        if (key->kind != PICKLE_STRING)
            return malformed("a path is not a string");
        item->groups[item->group_count++] = paths->as.sequence.items[2 * i + 1];
        RETURN_IF_ERROR(read_path(groups->arena, key, NULL, &name));
        RETURN_IF_ERROR(name_table_add(&item->paths, name, strlen(name), &index, &existing));
        if (existing)
            return dcp_error_set(DCP_ERR_DUPLICATE, "metadata.pkl: \"%s\" is there twice", name);
    }
    return DCP_OK;
}

/* ---- version 1.0: a path is that of the item and that in its files ---- */

static dcp_status find_item(struct groups *groups, const char *name, struct groups_item **found)
{
    for (size_t i = groups->count; i > 0; i--) /* mostly the last one */
        if (strcmp(groups->items[i - 1].name, name) == 0) {
            *found = &groups->items[i - 1];
            return DCP_OK;
        }
    if (groups->count == ITEMS_MAX)
        return malformed("more items than there can be");
    *found = &groups->items[groups->count++];
    **found = (struct groups_item){.name = name};
    name_table_init(&(*found)->paths);
    return DCP_OK;
}

static dcp_status read_flat(struct groups *groups, const struct pickle_value *paths)
{
    const struct pickle_value *layouts = get(groups->document.root, "rank_to_layout_info_mappings");
    size_t count = paths->as.sequence.count / 2;
    const struct pickle_value **all = arena_allocate_array(groups->arena, count, sizeof *all);
    groups->items = arena_allocate_array(groups->arena, ITEMS_MAX, sizeof *groups->items);
    if (!all || !groups->items)
        return error_no_memory(count * sizeof *all, "parts of tensors");
    if (!layouts || layouts->kind != PICKLE_DICT)
        return malformed("rank_to_layout_info_mappings is not a dict");
    groups->flat = true;
    for (size_t i = 0; i < count; i++) {
        const struct pickle_value *key = paths->as.sequence.items[2 * i];
        const char *item = NULL, *name;
        struct groups_item *read;
        uint64_t index = i;
        bool existing;
        all[i] = paths->as.sequence.items[2 * i + 1];
        if (key->kind != PICKLE_STRING)
            return malformed("a path is not a string");
        RETURN_IF_ERROR(read_path(groups->arena, key, &item, &name));
        if (!item)
            return malformed("a path without an item");
        RETURN_IF_ERROR(find_item(groups, item, &read));
        read->layouts = layouts;
        read->groups = all;
        read->group_count = i + 1;
        RETURN_IF_ERROR(name_table_add(&read->paths, name, strlen(name), &index, &existing));
        if (existing)
            return dcp_error_set(DCP_ERR_DUPLICATE, "metadata.pkl: \"%s\" is there twice", name);
    }
    return DCP_OK;
}

/* ---- version 2.0 ---- */

static dcp_status read_items(struct groups *groups, const struct pickle_value *items)
{
    size_t count = items->as.sequence.count / 2, paths_left = groups->size;
    if (count > ITEMS_MAX)
        return malformed("more items than there can be");
    groups->items = arena_allocate_array(groups->arena, count, sizeof *groups->items);
    if (!groups->items)
        return error_no_memory(count * sizeof *groups->items, "items");
    for (size_t i = 0; i < count; i++) {
        const struct pickle_value *name = items->as.sequence.items[2 * i];
        const struct pickle_value *item = items->as.sequence.items[2 * i + 1];
        const struct pickle_value *paths = get(item, "nested_path_to_metadata");
        struct groups_item *read = &groups->items[groups->count];
        *read = (struct groups_item){.layouts = get(item, "rank_to_layout_info")};
        name_table_init(&read->paths);
        groups->count++;
        if (name->kind != PICKLE_STRING || !paths || paths->kind != PICKLE_DICT || !read->layouts ||
            read->layouts->kind != PICKLE_DICT)
            return malformed("an item is not described as items are");
        read->name = arena_copy_text(groups->arena, name->as.text.bytes, name->as.text.length);
        if (!read->name)
            return error_no_memory(name->as.text.length, "a name");
        /* A dict may stand for many items, and each of its names would take memory for each. */
        if (paths->as.sequence.count > paths_left)
            return malformed("more names than it has bytes");
        paths_left -= paths->as.sequence.count;
        RETURN_IF_ERROR(read_paths(groups, read, paths));
    }
    return DCP_OK;
}

static dcp_status read_root(struct groups *groups)
{
    const struct pickle_value *root = groups->document.root;
    const struct pickle_value *version = get(root, "version");
    const struct pickle_value *world = get(root, "world_size");
    const struct pickle_value *metadata = get(root, "metadata");
    bool flat = !version || pickle_text_is(version, "1.0");
    if (!flat && !pickle_text_is(version, "2.0"))
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "metadata.pkl: its version is neither \"1.0\" nor \"2.0\"");
    if (!world || world->kind != PICKLE_INT || world->as.integer < 1 ||
        world->as.integer > WORLD_SIZE_MAX)
        return malformed("world_size is no number of ranks");
    if (!metadata || metadata->kind != PICKLE_DICT)
        return malformed("metadata is not a dict");
    groups->world_size = (size_t)world->as.integer;
    return flat ? read_flat(groups, metadata) : read_items(groups, metadata);
}

dcp_status groups_decode(struct groups *groups, const void *bytes, size_t size, struct arena *arena)
{
    *groups = (struct groups){.arena = arena, .size = size};
    RETURN_IF_ERROR(pickle_read(bytes, size, false, &groups->document));
    return read_root(groups);
}

dcp_status groups_read(struct groups *groups, const char *directory, struct arena *arena)
{
    void *bytes = NULL;
    size_t size = 0;
    *groups = (struct groups){.arena = arena};
    dcp_status status = read_file(directory, arena, &bytes, &size);
    if (status == DCP_OK)
        status = groups_decode(groups, bytes, size, arena);
    groups->bytes = bytes;
    return status == DCP_OK ? DCP_OK : error_prefix(status, "%s", directory);
}

void groups_free(struct groups *groups)
{
    for (size_t i = 0; i < groups->count; i++)
        name_table_free(&groups->items[i].paths);
    if (groups->document.root)
        pickle_free(&groups->document);
    memory_release(groups->layouts);
    memory_release(groups->bytes);
}

/* A relative path without a way out of the directory. */
static bool is_inside(const char *path)
{
    if (*path == '/' || *path == '\0')
        return false;
    for (const char *part = path; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0'))
            return false;
    }
    return true;
}

static int compare_layouts(const void *one, const void *other)
{
    const struct groups_layout *a = one, *b = other;
    int order = (a->rank > b->rank) - (a->rank < b->rank);
    return order != 0 ? order : (a->at > b->at) - (a->at < b->at);
}

/* Ranks are ints, in version 1.0 also their digits. */
static bool read_rank(const struct pickle_value *key, int64_t *rank)
{
    *rank = key->kind == PICKLE_INT ? key->as.integer : 0;
    if (key->kind != PICKLE_STRING)
        return key->kind == PICKLE_INT;
    for (size_t i = 0; i < key->as.text.length; i++) {
        int digit = key->as.text.bytes[i] - '0';
        if (digit < 0 || digit > 9 || *rank > WORLD_SIZE_MAX)
            return false;
        *rank = 10 * *rank + digit;
    }
    return key->as.text.length > 0;
}

/* Sorts an item's layouts by rank: a run has thousands of ranks. */
static dcp_status sort_layouts(struct groups *groups, const struct groups_item *item)
{
    struct pickle_sequence pairs = item->layouts->as.sequence;
    size_t room = pairs.count / 2 + 1;
    if (groups->sorted == item)
        return DCP_OK;
    memory_release(groups->layouts);
    groups->sorted = NULL;
    groups->layout_count = 0;
    groups->layouts = memory_allocate_array(room, sizeof *groups->layouts);
    if (!groups->layouts)
        return error_no_memory(room * sizeof *groups->layouts, "ranks of an item");
    for (uint32_t i = 0; i + 1 < pairs.count; i += 2) {
        int64_t rank;
        if (read_rank(pairs.items[i], &rank))
            groups->layouts[groups->layout_count++] = (struct groups_layout){rank, i};
    }
    qsort(groups->layouts, groups->layout_count, sizeof *groups->layouts, compare_layouts);
    groups->sorted = item;
    return DCP_OK;
}

/* The layout of a rank, the last one as in Python; NULL: there is none. */
static const struct pickle_value *find_layout(const struct groups *groups,
                                              const struct groups_item *item, size_t rank)
{
    size_t low = 0, high = groups->layout_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (groups->layouts[middle].rank > (int64_t)rank)
            high = middle;
        else
            low = middle + 1;
    }
    return low > 0 && groups->layouts[low - 1].rank == (int64_t)rank
               ? item->layouts->as.sequence.items[groups->layouts[low - 1].at + 1]
               : NULL;
}

dcp_status groups_file(struct groups *groups, const struct groups_item *item, size_t rank,
                       const char **name)
{
    *name = NULL;
    RETURN_IF_ERROR(sort_layouts(groups, item));
    const struct pickle_value *layout = find_layout(groups, item, rank);
    size_t size = strlen(item->name) + 32;
    if (!layout)
        return DCP_OK;
    bool usual = layout->kind == PICKLE_NONE;
    if (groups->flat) {
        layout = get(layout, item->name);
        usual = !layout || layout->kind == PICKLE_NONE;
    }
    const struct pickle_value *path = get(layout, "file_path");
    if (usual) {
        char *made = arena_allocate(groups->arena, size);
        if (!made)
            return error_no_memory(size, "a path");
        snprintf(made, size, "%s_%zu.pt", item->name, rank);
        *name = made;
    } else if (path && path->kind == PICKLE_STRING) {
        *name = arena_copy_text(groups->arena, path->as.text.bytes, path->as.text.length);
        if (!*name)
            return error_no_memory(path->as.text.length, "a path");
    } else {
        return malformed("a layout without a path");
    }
    return is_inside(*name) ? DCP_OK : malformed("a path that leaves the directory");
}

/* Ints of a list or tuple. */
static bool read_ints(const struct pickle_value *value, int64_t *numbers, int32_t most,
                      int32_t *count)
{
    *count = 0;
    if (!value || (value->kind != PICKLE_LIST && value->kind != PICKLE_TUPLE) ||
        value->as.sequence.count > (uint32_t)most)
        return false;
    for (uint32_t i = 0; i < value->as.sequence.count; i++) {
        if (value->as.sequence.items[i]->kind != PICKLE_INT ||
            value->as.sequence.items[i]->as.integer < 0)
            return false;
        numbers[(*count)++] = value->as.sequence.items[i]->as.integer;
    }
    return true;
}

static const struct pickle_value *data_of(const struct pickle_value *group)
{
    return get(get(group, "sharding_metadata"), "data");
}

dcp_status groups_shape(const struct pickle_value *list, int64_t shape[DCP_MAX_DIMS], int32_t *ndim)
{
    const struct pickle_value *data = list->kind == PICKLE_LIST && list->as.sequence.count > 0
                                          ? data_of(list->as.sequence.items[0])
                                          : NULL;
    return read_ints(get(data, "global_shape"), shape, DCP_MAX_DIMS, ndim)
               ? DCP_OK
               : malformed("a tensor without a shape");
}

static bool read_placement(const struct pickle_value *value, dcp_placement *placement)
{
    const struct pickle_value *type = get(value, "type");
    const struct pickle_value *dim = get(value, "dim");
    const struct pickle_value *factor = get(value, "split_factor");
    bool strided = pickle_text_is(type, "StridedShard");
    *placement = dcp_replicate();
    if (pickle_text_is(type, "Replicate"))
        return true;
    if ((!strided && !pickle_text_is(type, "Shard")) || !dim || dim->kind != PICKLE_INT ||
        dim->as.integer < 0 || dim->as.integer >= DCP_MAX_DIMS ||
        (strided && (!factor || factor->kind != PICKLE_INT)))
        return false;
    *placement = strided ? dcp_strided_shard((int32_t)dim->as.integer, factor->as.integer)
                         : dcp_shard((int32_t)dim->as.integer);
    return true;
}

static dcp_status read_layout(const struct pickle_value *data, dcp_layout *layout)
{
    const struct pickle_value *spec = get(data, "mesh_spec");
    const struct pickle_value *placements = get(data, "placements");
    *layout = (dcp_layout){0};
    if (!read_ints(get(spec, "mesh_shape"), layout->mesh.shape, DCP_MAX_MESH_DIMS,
                   &layout->mesh.ndim) ||
        !placements || (placements->kind != PICKLE_LIST && placements->kind != PICKLE_TUPLE) ||
        placements->as.sequence.count != (uint32_t)layout->mesh.ndim)
        return malformed("a mesh and placements that do not fit");
    for (int32_t i = 0; i < layout->mesh.ndim; i++)
        if (!read_placement(placements->as.sequence.items[i], &layout->placements[i]))
            return malformed("a placement that is not known");
    return DCP_OK;
}

/* The ranks of a mesh, one after another. */
static dcp_status add_mesh(const struct pickle_value *data, struct source_parts *parts,
                           groups_find find, void *context)
{
    const struct pickle_value *ranks = get(get(data, "mesh_spec"), "mesh_data");
    dcp_layout layout;
    RETURN_IF_ERROR(read_layout(data, &layout));
    if (!ranks || (ranks->kind != PICKLE_TUPLE && ranks->kind != PICKLE_LIST))
        return malformed("a mesh without ranks");
    for (uint32_t i = 0; i < ranks->as.sequence.count; i++) {
        const struct pickle_value *rank = ranks->as.sequence.items[i];
        size_t file, entry;
        bool found;
        if (rank->kind != PICKLE_INT || rank->as.integer < 0)
            return malformed("a mesh of what are no ranks");
        RETURN_IF_ERROR(find(context, (size_t)rank->as.integer, &file, &entry, &found));
        layout.mesh.rank = i;
        if (found)
            RETURN_IF_ERROR(source_parts_add_placed(parts, file, entry, &layout));
        if (source_parts_are_complete(parts))
            break;
    }
    return DCP_OK;
}

/* Boxes that are listed, of the ranks of a group. */
static dcp_status add_listed(const struct pickle_value *group, struct source_parts *parts,
                             groups_find find, void *context)
{
    static const char *const keys[] = {"global_offsets", "local_sizes", "local_offsets"};
    const struct source_tensor *tensor = &parts->tensors[parts->count - 1];
    const struct pickle_value *data = data_of(group), *ranks = get(group, "ranks");
    const struct pickle_value *lists[3];
    int64_t numbers[3][DCP_MAX_DIMS];
    size_t file, entry;
    bool found;
    for (int k = 0; k < 3; k++) {
        lists[k] = get(data, keys[k]);
        if (!lists[k] || lists[k]->kind != PICKLE_LIST ||
            lists[k]->as.sequence.count != lists[0]->as.sequence.count)
            return malformed("boxes that are no lists of as many");
    }
    if (!ranks || (ranks->kind != PICKLE_TUPLE && ranks->kind != PICKLE_LIST) ||
        ranks->as.sequence.count == 0 || ranks->as.sequence.items[0]->kind != PICKLE_INT)
        return malformed("a group without ranks");
    RETURN_IF_ERROR(
        find(context, (size_t)ranks->as.sequence.items[0]->as.integer, &file, &entry, &found));
    for (uint32_t i = 0; found && i < lists[0]->as.sequence.count; i++) {
        for (int k = 0; k < 3; k++) {
            int32_t count;
            if (!read_ints(lists[k]->as.sequence.items[i], numbers[k], DCP_MAX_DIMS, &count) ||
                count != tensor->ndim)
                return malformed("a box of another number of dimensions");
        }
        const struct box box = {tensor->ndim, numbers[0], numbers[1]};
        if (!box_check(box, tensor->shape))
            return malformed("a box outside of its tensor");
        if (box_volume(box) > 0)
            RETURN_IF_ERROR(source_parts_add_once(parts, file, entry, box, numbers[2]));
    }
    return DCP_OK;
}

dcp_status groups_add(const struct pickle_value *list, struct source_parts *parts, groups_find find,
                      void *context)
{
    for (uint32_t i = 0; i < list->as.sequence.count; i++) {
        const struct pickle_value *group = list->as.sequence.items[i];
        const struct pickle_value *type = get(get(group, "sharding_metadata"), "type");
        if (source_parts_are_complete(parts))
            break;
        if (pickle_text_is(type, "DTensorShardingMetadata"))
            RETURN_IF_ERROR(add_mesh(data_of(group), parts, find, context));
        else if (pickle_text_is(type, "default_tensor_v1"))
            RETURN_IF_ERROR(add_listed(group, parts, find, context));
        else
            return malformed("a tensor whose parts are described in a way that is not known");
    }
    return DCP_OK;
}
