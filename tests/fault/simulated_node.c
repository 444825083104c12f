/* SPDX-License-Identifier: BSD-3-Clause */
#include "fault/simulated_node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *simulated_allocate(void *block, size_t count, size_t size)
{
    void *result = reallocarray(block, count + (count == 0), size);
    if (result == NULL) {
        fprintf(stderr, "no memory for the simulated file system\n");
        abort();
    }
    return result;
}

char *simulated_copy_text(const char *text)
{
    size_t size = strlen(text) + 1;
    return memcpy(simulated_allocate(NULL, size, 1), text, size);
}

struct node *simulated_node_new(struct simulated_file_system *fs, enum file_kind kind,
                                const char *path)
{
    struct node *node = simulated_allocate(NULL, 1, sizeof *node);
    *node = (struct node){.next = fs->nodes, .kind = kind, .path = simulated_copy_text(path)};
    fs->nodes = node;
    return node;
}

static void content_store(struct content *content, size_t stored)
{
    if (stored <= content->stored)
        return;
    content->bytes = simulated_allocate(content->bytes, stored, 1);
    memset(content->bytes + content->stored, 0, stored - content->stored);
    content->stored = stored;
}

struct entry *entries_find(const struct entries *entries, const char *name)
{
    for (size_t i = 0; i < entries->count; i++)
        if (strcmp(entries->list[i].name, name) == 0)
            return &entries->list[i];
    return NULL;
}

static void entries_set(struct entries *entries, const char *name, struct node *node)
{
    struct entry *entry = entries_find(entries, name);
    if (entry == NULL) {
        entries->list =
            simulated_allocate(entries->list, entries->count + 1, sizeof *entries->list);
        entry = &entries->list[entries->count++];
        entry->name = simulated_copy_text(name);
    }
    entry->node = node;
}

/* Only if the name stands for that node: part of the changes before may be missing. */
static void entries_remove(struct entries *entries, const char *name, const struct node *node)
{
    struct entry *entry = entries_find(entries, name);
    if (entry == NULL || entry->node != node)
        return;
    free(entry->name);
    *entry = entries->list[--entries->count];
}

void change_apply_size(const struct change *change, struct view *view)
{
    if (change->size <= view->content.size)
        return;
    content_store(&view->content, change->size);
    view->content.size = change->size;
}

void change_apply_bytes(const struct change *change, size_t from, size_t to, struct view *view)
{
    if (from >= to)
        return;
    content_store(&view->content, change->offset + to);
    memcpy(view->content.bytes + change->offset + from, change->bytes + from, to - from);
}

void change_apply_name(const struct change *change, struct view *view)
{
    if (change->kind == CHANGE_ADD)
        entries_set(&view->entries, change->name, change->child);
    else if (change->kind == CHANGE_REMOVE)
        entries_remove(&view->entries, change->name, change->child);
    else if (change->kind == CHANGE_RENAME) {
        entries_remove(&view->entries, change->former, change->child);
        entries_set(&view->entries, change->name, change->child);
    }
}

static void change_apply(const struct change *change, struct view *view)
{
    change_apply_size(change, view);
    change_apply_bytes(change, 0, change->length, view);
    change_apply_name(change, view);
}

static void change_free(struct change *change)
{
    free(change->bytes);
    free(change->name);
    free(change->former);
}

void change_make(struct simulated_file_system *fs, struct change change)
{
    change_apply(&change, &change.node->seen);
    fs->changes = simulated_allocate(fs->changes, fs->change_count + 1, sizeof *fs->changes);
    fs->changes[fs->change_count++] = change;
}

void simulated_node_sync(struct simulated_file_system *fs, struct node *node, bool lose)
{
    size_t kept = 0;
    for (size_t i = 0; i < fs->change_count; i++) {
        struct change *change = &fs->changes[i];
        if (change->node != node) {
            fs->changes[kept++] = *change;
            continue;
        }
        if (!lose)
            change_apply(change, &node->durable);
        else if (change->length != 0)
            node->lost_bytes = true;
        change_free(change);
    }
    fs->change_count = kept;
}

struct file_information simulated_node_information(const struct node *node)
{
    return (struct file_information){
        .kind = node->kind, .size = node->seen.content.size, .number = (uintptr_t)node};
}

bool simulated_node_is_pending(const struct simulated_file_system *fs, const struct node *node)
{
    for (size_t i = 0; i < fs->change_count; i++)
        if (fs->changes[i].node == node)
            return true;
    return false;
}

static void view_free(struct view *view)
{
    free(view->content.bytes);
    for (size_t i = 0; i < view->entries.count; i++)
        free(view->entries.list[i].name);
    free(view->entries.list);
}

void nodes_free(struct simulated_file_system *fs)
{
    while (fs->nodes != NULL) {
        struct node *node = fs->nodes;
        fs->nodes = node->next;
        view_free(&node->seen);
        view_free(&node->durable);
        free(node->path);
        free(node);
    }
    for (size_t i = 0; i < fs->change_count; i++)
        change_free(&fs->changes[i]);
    free(fs->changes);
}

void simulated_nodes_shrink(struct simulated_file_system *fs)
{
    for (struct node *node = fs->nodes; node != NULL; node = node->next)
        if (node->kind == FILE_REGULAR)
            node->seen.content.size /= 2;
}
