/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/flatten_whole.h"

#include "base/memory.h"

/* Containers that were met, each once, to be looked into. */
struct container_list {
    dcp_state **items;
    size_t count;
    size_t capacity;
};

static dcp_status list_add(struct container_list *list, dcp_state *container, uint32_t walk)
{
    if (node_mark(container, walk) != 0)
        return DCP_OK;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity * 2 + 16;
        dcp_state **items = memory_reallocate_array(list->items, capacity, sizeof *items);
        if (!items)
            return error_no_memory(capacity * sizeof *items, "nested containers");
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = container;
    node_set_mark(container, walk, 1);
    return DCP_OK;
}

static dcp_status search(struct container_list *list, uint32_t walk, bool *found)
{
    *found = false;
    for (size_t next = 0; next < list->count; next++) {
        const struct state_children *children = &list->items[next]->as.children;
        for (size_t i = 0; i < children->count; i++) {
            dcp_state *child = children->items[i].value;
            if (child->kind == DCP_KIND_TENSOR || child->kind == DCP_KIND_STATEFUL) {
                *found = true;
                return DCP_OK;
            }
            if (node_is_dict(child) || child->kind == DCP_KIND_LIST)
                RETURN_IF_ERROR(list_add(list, child, walk));
        }
    }
    return DCP_OK;
}

dcp_status dict_has_tensors(dcp_state *dict, bool *has)
{
    struct container_list list = {0};
    uint32_t walk = node_walk_begin(dict);
    dcp_status status = list_add(&list, dict, walk);
    if (status == DCP_OK)
        status = search(&list, walk, has);
    memory_release(list.items);
    return status;
}
