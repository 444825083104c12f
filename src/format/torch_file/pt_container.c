/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "format/streams/tensor_pickle.h"
#include "format/torch_file/pt_file.h"

enum container_mark { MARK_UNKNOWN, MARK_LEAF, MARK_ENTERED, MARK_OPEN };

/* A list that is being looked at, inside of the one before. */
struct open_list {
    const struct pickle_value *list;
    uint32_t next;
};

struct list_stack {
    struct open_list *items;
    size_t count;
    size_t capacity;
};

struct pickle_sequence pt_container_parts(const struct pickle_value *value, bool *is_dict)
{
    *is_dict = value->kind == PICKLE_DICT;
    if (*is_dict || value->kind == PICKLE_LIST)
        return value->as.sequence;
    if (value->kind != PICKLE_CALL)
        return (struct pickle_sequence){0};
    const struct pickle_call *call = value->as.call;
    const struct pickle_sequence *arguments = &call->arguments->as.sequence;
    *is_dict = call->items.count == 0;
    if (pickle_is_call(value, "collections", "OrderedDict") && arguments->count == 0)
        return call->pairs;
    if (pickle_is_call(value, "collections", "defaultdict") && arguments->count <= 1)
        return call->pairs;
    if (pickle_is_call(value, "collections", "Counter") && arguments->count == 1 &&
        arguments->items[0]->kind == PICKLE_DICT && call->pairs.count == 0)
        return arguments->items[0]->as.sequence;
    *is_dict = false;
    return (struct pickle_sequence){0};
}

/* Tensors of every sort, sparse and quantized ones too. */
static bool is_tensor(const struct pickle_value *value)
{
    static const char prefix[] = "_rebuild_";
    if (value->kind != PICKLE_CALL || value->as.call->callable->kind != PICKLE_GLOBAL)
        return false;
    const struct pickle_value *callable = value->as.call->callable;
    return tensor_pickle_is_tensor(value) ||
           (callable->as.global.module_length == strlen("torch._utils") &&
            memcmp(callable->as.global.module, "torch._utils", strlen("torch._utils")) == 0 &&
            callable->as.global.name_length > strlen(prefix) &&
            memcmp(callable->as.global.name, prefix, strlen(prefix)) == 0);
}

static enum container_mark mark_of_dict(struct pickle_sequence pairs)
{
    for (uint32_t i = 0; i < pairs.count; i += 2)
        if (!pt_key_has_text(pairs.items[i]))
            return MARK_LEAF;
    return MARK_ENTERED;
}

static dcp_status push_list(struct pt_containers *containers, struct list_stack *stack,
                            const struct pickle_value *list)
{
    if (stack->count == stack->capacity) {
        size_t capacity = stack->capacity == 0 ? 16 : stack->capacity * 2;
        struct open_list *grown = memory_reallocate_array(stack->items, capacity, sizeof *grown);
        if (grown == NULL)
            return error_no_memory(capacity * sizeof *grown, "nested lists");
        stack->items = grown;
        stack->capacity = capacity;
    }
    stack->items[stack->count++] = (struct open_list){.list = list};
    containers->marks[list->serial] = MARK_OPEN;
    return DCP_OK;
}

/* All open lists contain what was found. */
static void mark_open_lists(struct pt_containers *containers, const struct list_stack *stack)
{
    for (size_t i = stack->count; i > 0; i--) {
        unsigned char *mark = &containers->marks[stack->items[i - 1].list->serial];
        if (*mark == MARK_ENTERED)
            break;
        *mark = MARK_ENTERED;
    }
}

/* Looks at each list once, however often it is contained. */
static dcp_status search_lists(struct pt_containers *containers, struct list_stack *stack)
{
    while (stack->count > 0) {
        struct open_list *top = &stack->items[stack->count - 1];
        unsigned char *mark = &containers->marks[top->list->serial];
        if (top->next == top->list->as.sequence.count) {
            if (*mark == MARK_OPEN)
                *mark = MARK_LEAF;
            stack->count--;
            continue;
        }
        const struct pickle_value *element = top->list->as.sequence.items[top->next++];
        const struct pickle_value *placement;
        bool is_dict;
        if (containers->local_parts)
            element = pt_local_part(element, &placement);
        pt_container_parts(element, &is_dict);
        bool is_list = element->kind == PICKLE_LIST;
        if (is_dict || is_tensor(element) ||
            (is_list && containers->marks[element->serial] == MARK_ENTERED))
            mark_open_lists(containers, stack);
        else if (is_list && containers->marks[element->serial] == MARK_UNKNOWN)
            RETURN_IF_ERROR(push_list(containers, stack, element));
    }
    return DCP_OK;
}

dcp_status pt_container_is_entered(struct pt_containers *containers,
                                   const struct pickle_value *value, bool *entered)
{
    bool is_dict;
    struct pickle_sequence parts = pt_container_parts(value, &is_dict);
    unsigned char *mark = &containers->marks[value->serial];
    dcp_status status = DCP_OK;
    if (is_dict && *mark == MARK_UNKNOWN)
        *mark = (unsigned char)mark_of_dict(parts);
    if (value->kind == PICKLE_LIST && *mark == MARK_UNKNOWN) {
        struct list_stack stack = {0};
        status = push_list(containers, &stack, value);
        if (status == DCP_OK)
            status = search_lists(containers, &stack);
        memory_release(stack.items);
    }
    *entered = *mark == MARK_ENTERED;
    return status;
}
