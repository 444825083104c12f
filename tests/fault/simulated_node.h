/* SPDX-License-Identifier: BSD-3-Clause */
/* Inside the simulated file system: files, directories, and what is pending between their two
 * views. */
#ifndef FAULT_SIMULATED_NODE_H
#define FAULT_SIMULATED_NODE_H

#include <pthread.h>

#include "fault/simulated_file_system.h"

/* Bytes may lie beyond the size: written before a size that is pending still. */
struct content {
    unsigned char *bytes;
    size_t stored;
    size_t size;
};

struct entry {
    char *name;
    struct node *node;
};

struct entries {
    struct entry *list;
    size_t count;
};

/* One view of a file or directory. */
struct view {
    struct content content;
    struct entries entries;
};

struct node {
    struct node *next; /* of all nodes */
    struct node *twin; /* in a copy that is being made */
    enum file_kind kind;
    char *path;      /* it was made under, for messages */
    bool removed;    /* it has no name any more, though it may be open */
    bool lost_bytes; /* a sync failed: what is visible will never be durable */
    struct view seen;
    struct view durable;
};

enum change_kind { CHANGE_WRITE, CHANGE_SIZE, CHANGE_ADD, CHANGE_REMOVE, CHANGE_RENAME };

/* Something that has been done to the view that the process sees and not yet to the durable one. */
struct change {
    enum change_kind kind;
    struct node *node; /* the file, or the directory whose entry changes */
    size_t offset;     /* CHANGE_WRITE */
    unsigned char *bytes;
    size_t length;
    size_t size;  /* the file grows to this; 0: it does not grow */
    char *name;   /* names: the entry; CHANGE_RENAME: its new name */
    char *former; /* CHANGE_RENAME: its old name */
    struct node *child;
};

struct open_file {
    struct node *node; /* NULL: free */
    bool writable;
    bool direct;
};

/* Transfers that were submitted to a queue and are not complete. */
struct simulated_queue {
    struct file_transfer *under_way;
    size_t count;
    size_t depth;
};

struct simulated_file_system {
    struct file_ops ops;
    dcp_storage storage; /* over the operations */
    pthread_mutex_t mutex;
    struct node *nodes;
    struct node *root;
    struct change *changes; /* pending, in order */
    size_t change_count;
    struct open_file *open_files;
    size_t open_capacity;

    void (*watcher)(void *context);
    void *watching;

    struct simulated_fault fault;
    bool reached;
    long operations;
    char **operation_names;

    uint64_t capacity;
    bool allow_early_commits;
    char *early_commit;
    bool refuse_direct;
    bool hide_free_space;
    int open_queues;
    int open_mappings;
};

/* Of a test: they abort rather than fail. */
void *simulated_allocate(void *block, size_t count, size_t size);
char *simulated_copy_text(const char *text);

/* Begins an operation: takes the lock and counts. Returns what it shall fail with, or 0. */
int operation_begin(struct simulated_file_system *fs, const char *what, const char *path);
/* As above, of an open file; NULL if it is none. */
int operation_begin_file(struct simulated_file_system *fs, const char *what, int descriptor,
                         struct open_file **file);
/* As above, of a name in an open directory, which *base is; the root if the name is a path. Fails
 * as well if there is no such directory open. */
int operation_begin_name(struct simulated_file_system *fs, const char *what, int directory,
                         const char *name, struct node **base);
/* Counts, with the lock held; returns what the operation shall fail with, or 0. */
int operation_count(struct simulated_file_system *fs, const char *what, const char *path);
/* Releases the lock; returns result. */
int operation_end(struct simulated_file_system *fs, int result);

struct node *simulated_node_new(struct simulated_file_system *fs, enum file_kind kind,
                                const char *path);
/* The entry of a name, or NULL. */
struct entry *entries_find(const struct entries *entries, const char *name);
/* Applies a change to one view of its node. */
void change_apply_size(const struct change *change, struct view *view);
void change_apply_bytes(const struct change *change, size_t from, size_t to, struct view *view);
void change_apply_name(const struct change *change, struct view *view);
/* Makes a change seen, and pending. Takes the change's memory over. */
void change_make(struct simulated_file_system *fs, struct change change);
/* Makes everything pending of a node durable; lose: the bytes among it never will be. */
void simulated_node_sync(struct simulated_file_system *fs, struct node *node, bool lose);
/* What SIMULATED_SHRINK and SIMULATED_VANISH do. */
void simulated_nodes_shrink(struct simulated_file_system *fs);
void names_vanish(struct simulated_file_system *fs);
bool simulated_node_is_pending(const struct simulated_file_system *fs, const struct node *node);
struct file_information simulated_node_information(const struct node *node);
void nodes_free(struct simulated_file_system *fs);

/* Errno values. */
int names_find(struct node *base, const char *path, struct node **node);
int names_add(struct simulated_file_system *fs, struct node *base, const char *path,
              enum file_kind kind, struct node **node);
/* The whole path of a name in a directory. */
char *names_join(const struct node *base, const char *path);

/* The operations of struct file_ops. */
int simulated_files_open(void *context, int directory, const char *name, unsigned flags,
                         int *descriptor);
int simulated_files_close(void *context, int descriptor);
int simulated_files_pread(void *context, int descriptor, void *bytes, size_t size, uint64_t offset,
                          size_t *done);
int simulated_files_pwrite(void *context, int descriptor, const void *bytes, size_t size,
                           uint64_t offset, size_t *done);
int simulated_files_free_space(void *context, int directory, uint64_t *bytes);
int simulated_files_allocate(void *context, int descriptor, uint64_t size);
int simulated_files_cached(void *context, int descriptor, uint64_t offset, size_t size,
                           bool *cached);
int simulated_files_map(void *context, int descriptor, uint64_t offset, size_t size,
                        const void **bytes);
void simulated_files_unmap(void *context, const void *bytes, size_t size);
int simulated_files_will_need(void *context, int descriptor, uint64_t offset, size_t size);
int simulated_files_write_back(void *context, int descriptor, uint64_t offset, size_t size);
int simulated_files_sync(void *context, int descriptor);
int simulated_files_descriptor_information(void *context, int descriptor,
                                           struct file_information *information);
int simulated_files_queue_open(void *context, unsigned depth, void **queue);
int simulated_files_queue_submit(void *context, void *queue, const struct file_transfer *transfer);
size_t simulated_files_queue_take(void *context, void *queue, struct file_completion *completions,
                                  size_t room, bool wait);
void simulated_files_queue_close(void *context, void *queue);
int names_sync_directory(void *context, int directory);
int names_information(void *context, int directory, const char *name,
                      struct file_information *information);
int names_rename(void *context, int directory, const char *from, const char *to);
int names_rename_new(void *context, int directory, const char *from, const char *to);
int names_unlink(void *context, int directory, const char *name);
int names_make_directory(void *context, int directory, const char *name);
int names_remove_directory(void *context, int directory, const char *name);
int names_list(void *context, int directory, file_visitor visitor, void *visitor_context);

#endif
