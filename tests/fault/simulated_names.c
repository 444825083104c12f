/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations on names, and the check of a commit's order. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault/simulated_node.h"

/* Cuts the next component off a path; false at its end. */
static bool next_component(const char **path, char name[NAME_MAX + 1], int *error)
{
    for (;;) {
        *path += strspn(*path, "/");
        size_t length = strcspn(*path, "/");
        if (length == 0)
            return false;
        if (length > NAME_MAX) {
            *error = ENAMETOOLONG;
            return false;
        }
        memcpy(name, *path, length);
        name[length] = '\0';
        *path += length;
        if (strcmp(name, "..") == 0) {
            *error = EINVAL;
            return false;
        }
        if (strcmp(name, ".") != 0)
            return true;
    }
}

/* Finds the directory that holds (or would hold) the last component, and that component; for the
 * base, name is "". */
static int find_parent(struct node *base, const char *path, struct node **parent,
                       char name[NAME_MAX + 1])
{
    char next[NAME_MAX + 1];
    int error = 0;
    *parent = base;
    name[0] = '\0';
    while (next_component(&path, next, &error)) {
        if (name[0] != '\0') {
            struct entry *entry = entries_find(&(*parent)->seen.entries, name);
            if (entry == NULL)
                return ENOENT;
            if (entry->node->kind != FILE_DIRECTORY)
                return ENOTDIR;
            *parent = entry->node;
        }
        memcpy(name, next, sizeof next);
    }
    return error;
}

int names_find(struct node *base, const char *path, struct node **node)
{
    char name[NAME_MAX + 1];
    int error = find_parent(base, path, node, name);
    if (error != 0 || name[0] == '\0')
        return error;
    struct entry *entry = entries_find(&(*node)->seen.entries, name);
    if (entry == NULL)
        return ENOENT;
    *node = entry->node;
    return 0;
}

/* As names_find(), also giving the directory and the name; the base is refused. */
static int find_entry(struct node *base, const char *path, struct node **parent,
                      char name[NAME_MAX + 1], struct node **node)
{
    int error = find_parent(base, path, parent, name);
    if (error == 0 && name[0] == '\0')
        error = EBUSY;
    if (error != 0)
        return error;
    struct entry *entry = entries_find(&(*parent)->seen.entries, name);
    *node = entry != NULL ? entry->node : NULL;
    return entry != NULL ? 0 : ENOENT;
}

int names_add(struct simulated_file_system *fs, struct node *base, const char *path,
              enum file_kind kind, struct node **node)
{
    struct node *parent;
    char name[NAME_MAX + 1];
    int error = find_parent(base, path, &parent, name);
    if (error != 0)
        return error;
    if (parent->removed)
        return ENOENT;
    if (name[0] == '\0' || entries_find(&parent->seen.entries, name) != NULL)
        return EEXIST;
    char *whole = names_join(base, path);
    *node = simulated_node_new(fs, kind, whole);
    free(whole);
    change_make(fs, (struct change){.kind = CHANGE_ADD,
                                    .node = parent,
                                    .name = simulated_copy_text(name),
                                    .child = *node});
    return 0;
}

char *names_join(const struct node *base, const char *path)
{
    size_t size = strlen(base->path) + strlen(path) + 2;
    char *whole = simulated_allocate(NULL, size, 1);
    const char *above = strcmp(base->path, "/") == 0 ? "" : base->path;
    snprintf(whole, size, "%s%s%s", above, *path == '/' ? "" : "/", path);
    return whole;
}

int operation_begin_name(struct simulated_file_system *fs, const char *what, int directory,
                         const char *name, struct node **base)
{
    pthread_mutex_lock(&fs->mutex);
    bool whole = directory == FILE_NO_DIRECTORY || *name == '/';
    bool open = directory >= 0 && (size_t)directory < fs->open_capacity;
    *base = whole ? fs->root : open ? fs->open_files[directory].node : NULL;
    int error = *base == NULL ? EBADF : (*base)->kind != FILE_DIRECTORY ? ENOTDIR : 0;
    char *path = error != 0 || whole ? simulated_copy_text(name) : names_join(*base, name);
    int fault = operation_count(fs, what, path);
    free(path);
    return fault != 0 ? fault : error;
}

int names_sync_directory(void *context, int directory)
{
    struct simulated_file_system *fs = context;
    struct open_file *file;
    int error = operation_begin_file(fs, "sync_directory", directory, &file);
    if (error == 0 && file == NULL)
        error = EBADF;
    if (error == 0 && file->node->kind != FILE_DIRECTORY)
        error = ENOTDIR;
    if (error == 0)
        simulated_node_sync(fs, file->node, false);
    return operation_end(fs, error);
}

int names_information(void *context, int directory, const char *name,
                      struct file_information *information)
{
    struct simulated_file_system *fs = context;
    struct node *base, *node;
    int error = operation_begin_name(fs, "information", directory, name, &base);
    if (error == 0)
        error = names_find(base, name, &node);
    if (error == 0)
        *information = simulated_node_information(node);
    return operation_end(fs, error);
}

static bool is_durable(const struct simulated_file_system *fs, const struct node *node)
{
    return !node->lost_bytes && !simulated_node_is_pending(fs, node);
}

static bool entry_is_durable(const struct node *directory, const struct entry *entry)
{
    const struct entry *durable = entries_find(&directory->durable.entries, entry->name);
    return durable != NULL && durable->node == entry->node;
}

/* The entry of a node in the directory that holds it; NULL: none does, as it was removed. */
static const struct entry *find_above(const struct simulated_file_system *fs,
                                      const struct node *node, const struct node **above)
{
    for (*above = fs->nodes; *above != NULL; *above = (*above)->next)
        for (size_t i = 0; i < (*above)->seen.entries.count; i++)
            if ((*above)->seen.entries.list[i].node == node)
                return &(*above)->seen.entries.list[i];
    return NULL;
}

/* What a commit in this directory would be too early for; text is filled. */
static bool find_early(const struct simulated_file_system *fs, const struct node *directory,
                       const struct node *committed, char *text, size_t size)
{
    if (!is_durable(fs, committed)) {
        snprintf(text, size, "bytes of .metadata itself");
        return true;
    }
    const struct node *above, *node = directory;
    const struct entry *of;
    for (; (of = find_above(fs, node, &above)) != NULL; node = above) {
        if (!entry_is_durable(above, of)) {
            snprintf(text, size, "the name of directory %s", of->name);
            return true;
        }
    }
    for (size_t i = 0; i < directory->seen.entries.count; i++) {
        const struct entry *entry = &directory->seen.entries.list[i];
        const char *suffix = strrchr(entry->name, '.');
        if (suffix == NULL || strcmp(suffix, ".distcp") != 0)
            continue;
        bool bytes = is_durable(fs, entry->node);
        if (!bytes || !entry_is_durable(directory, entry)) {
            snprintf(text, size, "%s of %s", bytes ? "the name" : "bytes", entry->name);
            return true;
        }
    }
    return false;
}

static void check_commit(struct simulated_file_system *fs, const char *path,
                         const struct node *directory, const struct node *committed)
{
    char early[NAME_MAX + 64];
    if (fs->early_commit != NULL || !find_early(fs, directory, committed, early, sizeof early))
        return;
    size_t size = strlen(path) + sizeof early + 64;
    fs->early_commit = simulated_allocate(NULL, size, 1);
    snprintf(fs->early_commit, size, "operation %ld renames onto %s before %s is durable",
             fs->operations, path, early);
    if (!fs->allow_early_commits) {
        fprintf(stderr, "%s\n", fs->early_commit);
        abort();
    }
}

static int rename_entry(struct simulated_file_system *fs, struct node *base, const char *from,
                        const char *to)
{
    struct node *from_parent, *to_parent, *node, *replaced;
    char former[NAME_MAX + 1], name[NAME_MAX + 1];
    int error = find_entry(base, from, &from_parent, former, &node);
    if (error != 0)
        return error;
    error = find_parent(base, to, &to_parent, name);
    if (error != 0)
        return error;
    if (from_parent != to_parent)
        return EXDEV;
    error = find_entry(base, to, &to_parent, name, &replaced);
    if (error == 0 && replaced == node)
        return 0;
    if (error == 0 && replaced->kind == FILE_DIRECTORY)
        return EISDIR;
    if (error != 0 && error != ENOENT)
        return error;
    char *whole = names_join(base, to);
    if (strcmp(name, ".metadata") == 0)
        check_commit(fs, whole, to_parent, node);
    free(whole);
    change_make(fs, (struct change){.kind = CHANGE_RENAME,
                                    .node = to_parent,
                                    .name = simulated_copy_text(name),
                                    .former = simulated_copy_text(former),
                                    .child = node});
    return 0;
}

int names_rename(void *context, int directory, const char *from, const char *to)
{
    struct simulated_file_system *fs = context;
    struct node *base;
    int error = operation_begin_name(fs, "rename", directory, from, &base);
    return operation_end(fs, error != 0 ? error : rename_entry(fs, base, from, to));
}

int names_rename_new(void *context, int directory, const char *from, const char *to)
{
    struct simulated_file_system *fs = context;
    struct node *base, *parent, *node;
    char name[NAME_MAX + 1];
    int error = operation_begin_name(fs, "rename_new", directory, from, &base);
    if (error == 0 && find_entry(base, to, &parent, name, &node) == 0)
        error = EEXIST;
    return operation_end(fs, error != 0 ? error : rename_entry(fs, base, from, to));
}

static int remove_entry(struct simulated_file_system *fs, struct node *base, const char *path,
                        enum file_kind kind)
{
    struct node *parent, *node;
    char name[NAME_MAX + 1];
    int error = find_entry(base, path, &parent, name, &node);
    if (error != 0)
        return error;
    if (node->kind != kind)
        return kind == FILE_DIRECTORY ? ENOTDIR : EISDIR;
    if (node->seen.entries.count != 0)
        return ENOTEMPTY;
    change_make(fs, (struct change){.kind = CHANGE_REMOVE,
                                    .node = parent,
                                    .name = simulated_copy_text(name),
                                    .child = node});
    node->removed = true;
    return 0;
}

int names_unlink(void *context, int directory, const char *name)
{
    struct simulated_file_system *fs = context;
    struct node *base;
    int error = operation_begin_name(fs, "unlink", directory, name, &base);
    return operation_end(fs, error != 0 ? error : remove_entry(fs, base, name, FILE_REGULAR));
}

int names_remove_directory(void *context, int directory, const char *name)
{
    struct simulated_file_system *fs = context;
    struct node *base;
    int error = operation_begin_name(fs, "remove_directory", directory, name, &base);
    return operation_end(fs, error != 0 ? error : remove_entry(fs, base, name, FILE_DIRECTORY));
}

static bool holds_files(const struct node *node)
{
    for (size_t i = 0; i < node->seen.entries.count; i++)
        if (node->seen.entries.list[i].node->kind == FILE_REGULAR)
            return true;
    return false;
}

static void vanish(struct simulated_file_system *fs, struct node *directory)
{
    while (directory->seen.entries.count > 0) {
        const struct entry *entry = &directory->seen.entries.list[0];
        change_make(fs, (struct change){.kind = CHANGE_REMOVE,
                                        .node = directory,
                                        .name = simulated_copy_text(entry->name),
                                        .child = entry->node});
    }
    remove_entry(fs, fs->root, directory->path, FILE_DIRECTORY);
}

void names_vanish(struct simulated_file_system *fs)
{
    for (struct node *node = fs->nodes; node != NULL; node = node->next)
        if (holds_files(node))
            vanish(fs, node);
}

int names_make_directory(void *context, int directory, const char *name)
{
    struct simulated_file_system *fs = context;
    struct node *base, *made;
    int error = operation_begin_name(fs, "make_directory", directory, name, &base);
    return operation_end(fs, error != 0 ? error : names_add(fs, base, name, FILE_DIRECTORY, &made));
}

/* The visitor may use the file system, so it is called without the lock. */
int names_list(void *context, int directory, file_visitor visitor, void *visitor_context)
{
    struct simulated_file_system *fs = context;
    struct open_file *file;
    int error = operation_begin_file(fs, "list", directory, &file);
    if (error == 0 && file == NULL)
        error = EBADF;
    if (error == 0 && file->node->kind != FILE_DIRECTORY)
        error = ENOTDIR;
    const struct node *node = error == 0 ? file->node : NULL;
    size_t count = error == 0 ? node->seen.entries.count : 0;
    char **names = simulated_allocate(NULL, count, sizeof *names);
    for (size_t i = 0; i < count; i++)
        names[i] = simulated_copy_text(node->seen.entries.list[i].name);
    operation_end(fs, 0);
    for (size_t i = 0; i < count; i++) {
        if (error == 0)
            error = visitor(visitor_context, names[i]);
        free(names[i]);
    }
    free(names);
    return error;
}
