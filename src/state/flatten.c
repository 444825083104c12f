/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/flatten.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/name_table.h"
#include "state/flatten_key.h"
#include "state/flatten_list.h"
#include "state/flatten_whole.h"

/* PyTorch recurses, and Python stops it at about this depth. */
#define NESTING_MAX 1000
/* Loaded objects may share containers so that visiting each way to them would take forever: this is
 * how often containers may be visited again. */
#define REVISITS_MAX  (1u << 20)
#define PATH_TEXT_MAX 256

/* A container that is being visited; the part of the path that leads to its current child is
 * parts[number of the frame]. */
struct frame {
    dcp_state *node;
    size_t next;
    size_t name_length; /* of the container's own name */
    uint32_t walk;      /* of the tree that the container is in */
};

struct flattening {
    struct flat_state *flat;
    const struct flatten_rules *rules;
    size_t entry_capacity;
    size_t stateful_capacity;
    struct frame *frames;
    dcp_path_part *parts;
    size_t depth;
    size_t revisits;
    struct buffer name;
    struct buffer key;
    struct name_table names; /* name -> index of its entry */
};

static void path_format(const dcp_path_part *path, size_t length, char text[PATH_TEXT_MAX])
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < length && used < PATH_TEXT_MAX - 1; i++) {
        int written =
            path[i].key
                ? snprintf(text + used, PATH_TEXT_MAX - used, "[\"%s\"]", path[i].key)
                : snprintf(text + used, PATH_TEXT_MAX - used, "[%" PRId64 "]", path[i].position);
        used += written > 0 ? (size_t)written : 0;
    }
}

/* The current path and name, copied. */
static dcp_status copy_path(struct flattening *flattening, const dcp_path_part **path,
                            const char **name)
{
    struct arena *arena = &flattening->flat->arena;
    RETURN_IF_ERROR(buffer_status(&flattening->name));
    *path = arena_copy(arena, flattening->parts, flattening->depth * sizeof **path);
    *name = arena_copy_text(arena, (const char *)flattening->name.data, flattening->name.size);
    if (!*path || !*name)
        return error_no_memory(flattening->name.size, "names");
    return DCP_OK;
}

/* Makes room for one more element of an array. */
static dcp_status reserve_one(void **array, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return DCP_OK;
    size_t more = *capacity * 2 + 8;
    void *grown = memory_reallocate_array(*array, more, size);
    if (!grown)
        return error_no_memory(more * size, "flattened entries");
    *array = grown;
    *capacity = more;
    return DCP_OK;
}

static dcp_status duplicate_error(const struct flattening *flattening, uint64_t existing)
{
    const struct flat_entry *other = &flattening->flat->entries[existing];
    char first[PATH_TEXT_MAX];
    char second[PATH_TEXT_MAX];
    path_format(other->path, other->path_length, first);
    path_format(flattening->parts, flattening->depth, second);
    return dcp_error_set(DCP_ERR_DUPLICATE, "duplicated flatten key %s: of %s and of %s",
                         other->name, first, second);
}

static dcp_status add_entry(struct flattening *flattening, dcp_state *node,
                            struct state_child *place)
{
    struct flat_state *flat = flattening->flat;
    struct flat_entry entry = {.path_length = flattening->depth, .node = node, .place = place};
    uint64_t index = flat->count;
    bool existing;
    void *entries = flat->entries;
    RETURN_IF_ERROR(reserve_one(&entries, flat->count, &flattening->entry_capacity, sizeof entry));
    flat->entries = entries;
    RETURN_IF_ERROR(copy_path(flattening, &entry.path, &entry.name));
    RETURN_IF_ERROR(
        name_table_add(&flattening->names, entry.name, flattening->name.size, &index, &existing));
    if (existing)
        return duplicate_error(flattening, index);
    flat->entries[flat->count++] = entry;
    return DCP_OK;
}

static dcp_status enter(struct flattening *flattening, dcp_state *node, uint32_t walk)
{
    char text[PATH_TEXT_MAX];
    for (size_t i = 0; i < flattening->depth; i++)
        if (flattening->frames[i].node == node) {
            path_format(flattening->parts, flattening->depth, text);
            return dcp_error_set(DCP_ERR_ARGUMENT, "the %s at %s contains itself",
                                 node_kind_name(node->kind), text);
        }
    if (flattening->depth == NESTING_MAX) {
        path_format(flattening->parts, flattening->depth, text);
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "containers are nested more than %d deep at %s",
                             NESTING_MAX, text);
    }
    if (node_mark(node, walk) == MARK_VISITED && ++flattening->revisits > REVISITS_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "dicts and lists are shared more than %u times in all", REVISITS_MAX);
    node_set_mark(node, walk, MARK_VISITED);
    flattening->frames[flattening->depth++] = (struct frame){node, 0, flattening->name.size, walk};
    return DCP_OK;
}

/* Whatever a callback returns gets the entry's name in front. */
static dcp_status ask(const struct flat_stateful *asked)
{
    error_clear();
    dcp_status status = error_checked(
        asked->stateful->state_dict(asked->stateful->context, asked->dict), "state_dict");
    if (status == DCP_OK)
        status = dcp_state_status(asked->subtree);
    return status == DCP_OK ? DCP_OK : error_prefix(status, "%s", asked->name);
}

static dcp_status enter_stateful(struct flattening *flattening, dcp_state *node)
{
    struct flat_state *flat = flattening->flat;
    struct flat_stateful asked = {.stateful = &node->as.stateful,
                                  .path_length = flattening->depth,
                                  .first_entry = flat->count};
    void *statefuls = flat->statefuls;
    RETURN_IF_ERROR(reserve_one(&statefuls, flat->stateful_count, &flattening->stateful_capacity,
                                sizeof asked));
    flat->statefuls = statefuls;
    RETURN_IF_ERROR(copy_path(flattening, &asked.path, &asked.name));
    asked.subtree = dcp_state_new();
    if (!asked.subtree)
        return DCP_ERR_NO_MEMORY;
    /* What is loaded as a whole is replaced, which a root cannot be. */
    bool whole = flattening->rules->top_only;
    asked.dict = whole ? dcp_state_dict(asked.subtree, "state") : asked.subtree;
    flat->statefuls[flat->stateful_count++] = asked;
    if (!asked.dict)
        return dcp_state_status(asked.subtree);
    RETURN_IF_ERROR(ask(&asked));
    if (whole)
        return add_entry(flattening, asked.dict, NULL);
    return enter(flattening, asked.subtree, node_walk_begin(asked.subtree));
}

static dcp_status visit(struct flattening *flattening, struct state_child *place, uint32_t walk)
{
    dcp_state *node = place->value;
    const struct flatten_rules *rules = flattening->rules;
    const char *name = (const char *)flattening->name.data;
    bool entered = node_is_dict(node);
    if (node->kind == DCP_KIND_STATEFUL)
        return enter_stateful(flattening, node);
    if (rules->top_only)
        return add_entry(flattening, node, place);
    RETURN_IF_ERROR(buffer_status(&flattening->name));
    if (entered && rules->is_whole && rules->is_whole(rules->context, name, flattening->name.size))
        RETURN_IF_ERROR(dict_has_tensors(node, &entered));
    if (node->kind == DCP_KIND_LIST)
        RETURN_IF_ERROR(list_is_entered(node, walk, &entered));
    return entered ? enter(flattening, node, walk) : add_entry(flattening, node, place);
}

/* Makes the path's last part from a dict's key. Strings are borrowed. */
static dcp_status key_part(struct flattening *flattening, const dcp_state *key, dcp_path_part *part)
{
    if (key->kind == DCP_KIND_STRING) {
        part->key = key->as.text.bytes;
    } else {
        buffer_clear(&flattening->key);
        RETURN_IF_ERROR(key_append(&flattening->key, key));
        part->key = arena_copy_text(&flattening->flat->arena, (const char *)flattening->key.data,
                                    flattening->key.size);
        if (!part->key)
            return error_no_memory(flattening->key.size, "a key");
    }
    if (strlen(part->key) !=
        (key->kind == DCP_KIND_STRING ? key->as.text.length : flattening->key.size))
        return dcp_error_set(DCP_ERR_ARGUMENT, "the key that begins with \"%s\" has a NUL inside",
                             part->key);
    buffer_append(&flattening->name, part->key, strlen(part->key));
    return DCP_OK;
}

static dcp_status run(struct flattening *flattening)
{
    while (flattening->depth > 0) {
        size_t level = flattening->depth - 1;
        struct frame *frame = &flattening->frames[level];
        dcp_path_part *part = &flattening->parts[level];
        if (frame->next == frame->node->as.children.count) {
            flattening->depth--;
            continue;
        }
        struct state_child *child = &frame->node->as.children.items[frame->next];
        flattening->name.size = frame->name_length;
        if (level > 0)
            buffer_append(&flattening->name, ".", 1);
        *part = (dcp_path_part){NULL, (int64_t)frame->next++};
        if (child->key)
            RETURN_IF_ERROR(key_part(flattening, child->key, part));
        else
            buffer_append_format(&flattening->name, "%" PRId64, part->position);
        RETURN_IF_ERROR(visit(flattening, child, frame->walk));
    }
    return DCP_OK;
}

dcp_status flatten_by_rules(dcp_state *root, const struct flatten_rules *rules,
                            struct flat_state *flat)
{
    *flat = (struct flat_state){0};
    arena_init(&flat->arena, 0);
    if (!root || !node_is_dict(root))
        return dcp_error_set(DCP_ERR_ARGUMENT, "the state is %s, expected a dict",
                             root ? node_kind_name(root->kind) : "NULL");
    RETURN_IF_ERROR(dcp_state_status(root));
    struct flattening flattening = {.flat = flat, .rules = rules};
    flattening.frames = memory_allocate_array(NESTING_MAX, sizeof *flattening.frames);
    flattening.parts = memory_allocate_array(NESTING_MAX, sizeof *flattening.parts);
    dcp_status status = DCP_OK;
    if (!flattening.frames || !flattening.parts)
        status = error_no_memory(NESTING_MAX * sizeof *flattening.frames, "nested containers");
    if (status == DCP_OK)
        status = enter(&flattening, root, node_walk_begin(root));
    if (status == DCP_OK)
        status = run(&flattening);
    name_table_free(&flattening.names);
    buffer_free(&flattening.name);
    buffer_free(&flattening.key);
    memory_release(flattening.frames);
    memory_release(flattening.parts);
    if (status != DCP_OK)
        flatten_free(flat);
    return status;
}

dcp_status flatten_state(dcp_state *root, struct flat_state *flat)
{
    static const struct flatten_rules rules = {0};
    return flatten_by_rules(root, &rules, flat);
}

void flatten_free(struct flat_state *flat)
{
    for (size_t i = 0; i < flat->stateful_count; i++)
        dcp_state_free(flat->statefuls[i].subtree);
    memory_release(flat->entries);
    memory_release(flat->statefuls);
    arena_free(&flat->arena);
    *flat = (struct flat_state){0};
}
