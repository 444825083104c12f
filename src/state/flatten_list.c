/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/flatten_list.h"

#include "base/memory.h"

/* The lists that are being examined, each inside the previous one. */
struct list_stack {
    struct open_list {
        dcp_state *list;
        size_t next;
    } * items;
    size_t count;
    size_t capacity;
};

static dcp_status stack_push(struct list_stack *stack, dcp_state *list, uint32_t walk)
{
    if (stack->count == stack->capacity) {
        size_t capacity = stack->capacity * 2 + 16;
        struct open_list *items =
            memory_reallocate_array(stack->items, capacity, sizeof *stack->items);
        if (!items)
            return error_no_memory(capacity * sizeof *items, "nested lists");
        stack->items = items;
        stack->capacity = capacity;
    }
    stack->items[stack->count++] = (struct open_list){list, 0};
    node_set_mark(list, walk, MARK_OPEN);
    return DCP_OK;
}

/* Something to enter for: all open lists contain it. */
static void mark_entered(struct list_stack *stack, uint32_t walk)
{
    for (size_t i = stack->count; i > 0; i--) {
        if (node_mark(stack->items[i - 1].list, walk) == MARK_ENTERED)
            break;
        node_set_mark(stack->items[i - 1].list, walk, MARK_ENTERED);
    }
}

static dcp_status stack_run(struct list_stack *stack, uint32_t walk)
{
    while (stack->count > 0) {
        struct open_list *top = &stack->items[stack->count - 1];
        if (top->next == top->list->as.children.count) {
            if (node_mark(top->list, walk) == MARK_OPEN)
                node_set_mark(top->list, walk, MARK_LEAF);
            stack->count--;
            continue;
        }
        dcp_state *element = top->list->as.children.items[top->next++].value;
        unsigned mark = node_mark(element, walk);
        if (element->kind == DCP_KIND_TENSOR || node_is_dict(element) || mark == MARK_ENTERED ||
            mark == MARK_VISITED)
            mark_entered(stack, walk);
        else if (element->kind == DCP_KIND_LIST && mark == MARK_NONE)
            RETURN_IF_ERROR(stack_push(stack, element, walk));
    }
    return DCP_OK;
}

dcp_status list_is_entered(dcp_state *list, uint32_t walk, bool *entered)
{
    struct list_stack stack = {0};
    dcp_status status = DCP_OK;
    if (node_mark(list, walk) == MARK_NONE) {
        status = stack_push(&stack, list, walk);
        if (status == DCP_OK)
            status = stack_run(&stack, walk);
        memory_release(stack.items);
    }
    *entered = node_mark(list, walk) >= MARK_ENTERED;
    return status;
}
