/* SPDX-License-Identifier: BSD-3-Clause */
/* Writing a checkpoint directory: the coordinator begins and commits, every rank writes its shard
 * files in between.
 *
 * Nothing half-written is ever visible: .metadata appears last, by a rename, after every shard and
 * its directory entry is durable. Files are never synced again after a failed sync. */
#ifndef STORAGE_SHARD_SHARD_WRITER_H
#define STORAGE_SHARD_SHARD_WRITER_H

#include "base/progress.h"
#include "dcp/types.h"
#include "device/staging.h"
#include "state/metadata.h"
#include "state/node.h"
#include "state/write_plan.h"
#include "storage/storage_queue.h"

/* A save into one directory; the same on every rank but for the coordinator's duties. */
struct save_session {
    struct storage_directory directory; /* open from the session's beginning until it is freed */
    char *path;
    char save_id[40];
    uint32_t generation;
    bool sync;
    bool of_one_rank; /* the part of a rank that saves separately, as... */
    int rank;         /* ... this one */
    bool expelled;    /* at the coordinator: the stale mark of a save of another kind was removed */
    bool made_directory;      /* at the coordinator: the directory was not there before */
    bool replaces;            /* at the coordinator: the directory holds a checkpoint already */
    struct save_owner *owner; /* at the coordinator: the directory is this save's */
    char replaced[DCP_STORAGE_IDENTITY]; /* at the coordinator: the metadata that was there when
                                            the save began; "": none */
};

/* Coordinator, before planning: refuses or accepts an existing checkpoint, makes the directory,
 * becomes its owner (commit/save_owner.h; DCP_ERR_BUSY), picks the generation (one more than any
 * file there has) and a random save id. What a save left that was interrupted is no checkpoint. On
 * failure nothing is left and session->path is NULL. */
dcp_status save_session_begin(struct save_session *session, const dcp_storage *storage,
                              const char *path, dcp_overwrite overwrite, bool sync,
                              double takeover_seconds);
/* The same for the part of one rank that saves separately. Files of other ranks are neither
 * replaced nor removed. DCP_ERR_EXISTS if there is a checkpoint of all ranks. */
dcp_status save_session_begin_rank(struct save_session *session, const dcp_storage *storage,
                                   const char *path, int rank, dcp_overwrite overwrite, bool sync,
                                   double takeover_seconds);
/* Every other rank: the session that the coordinator has begun. */
dcp_status save_session_join(struct save_session *session, const dcp_storage *storage,
                             const char *path);

/* A directory for single files, outside of a save and without an owner. It is created if it does
 * not exist. save_id: NULL for a new one; else shorter than SAVE_ID_SIZE. */
dcp_status save_session_single(struct save_session *session, const dcp_storage *storage,
                               const char *path, bool sync, const char *save_id);

/* The coordinator, then: files may be written by others, without footers. */
void save_session_promise_nothing(struct save_session *session);

/* The rank that the session publishes small files for, or ALL_RANKS of open/directory.h. */
static inline int save_session_rank(const struct save_session *session)
{
    return session->of_one_rank ? session->rank : -1;
}

/* Whether the session has a directory: one that was begun or joined does. */
static inline bool save_session_is_open(const struct save_session *session)
{
    return session->directory.table != NULL;
}

/* As save_session_begin(), but nothing is made, an existing checkpoint is accepted, and the save id
 * is none. */
dcp_status save_session_imagine(struct save_session *session, const dcp_storage *storage,
                                const char *path, bool sync);

/* Coordinator, before anything is written: DCP_ERR_NO_SPACE if the file system reports less free
 * space than this many bytes. */
dcp_status save_session_check_space(const struct save_session *session, uint64_t bytes);

/* The elements of a box, got when they are about to be written. */
struct shard_resolved {
    struct state_chunk chunk; /* its numbers may be in what follows */
    int64_t strides[DCP_MAX_DIMS];
    dcp_dtype dtype;
    void (*release)(void *owner); /* NULL: nothing to be released */
    void *owner;
};

/* Who gets them; called by any thread, several at a time. */
struct shard_resolver {
    dcp_status (*resolve)(void *context, const struct write_item *item, struct box box,
                          struct shard_resolved *resolved);
    void *context;
};

/* Where the data of an order comes from. */
struct shard_source {
    const struct write_item *item;
    const struct state_chunk *chunk; /* tensors */
    const void *stream;              /* objects: the whole stream */
    dcp_dtype dtype; /* of the chunk's elements, which are converted; DCP_DTYPE_NONE: the item's */
    const struct shard_resolver *resolver; /* produces the chunk when it is needed; NULL: it is in
                                              memory */
    struct staging *staging; /* tensors, if not NULL: the elements of an order's box come from
                                there; each order has a separate source */
    size_t staged;           /* which of its sources */
};

/* What writing took, as far as it came. */
struct shard_write_figures {
    uint64_t bytes_written; /* footers included */
    uint32_t files;         /* made */
    double syncing_seconds; /* the mean of the threads, and of the directory */
    bool direct;            /* some file went around the page cache */
    bool ring;
};

/* How a rank writes its files. */
struct shard_write_options {
    uint32_t thread_count;     /* files that are written side by side, each by a thread */
    uint32_t io;               /* flags of dcp_io */
    dcp_page_cache page_cache; /* decided: not DCP_PAGE_CACHE_AUTO */
    struct storage_manners manners;
    bool zstd;                 /* compress each stream separately */
    int32_t zstd_level;        /* which format/item_compress.h has checked */
    uint32_t zstd_threads;     /* of all files together, at least 1 */
    size_t buffer_bytes;       /* of each file that is being written; SHARD_FILES_BUFFERS in all */
    uint32_t record_threads;   /* of each file, for a large record; 0 is 1 */
    bool plain;                /* without queues, unless io demands one */
    uint32_t lanes;            /* of device_lane.h, at most */
    struct staging *staging;   /* of the sources; is stopped when writing fails; NULL: none */
    struct progress *progress; /* counts the content as it is written; NULL: not counted */
};

/* The number of threads for the large records of each file if this many files are written in
 * parallel. Each of several files has one thread; otherwise half of the processors are used,
 * because other ranks may run on the machine. limit: maximum; 0: none. */
uint32_t shard_files_record_threads(uint32_t thread_count, uint32_t limit);

/* Bytes that the buffers of all files take together, as far as they are useful. */
#define SHARD_FILES_BUFFERS ((size_t)32 << 20)

/* Bytes of a rank's files, each up to its footer; if they are to be compressed, before that. */
uint64_t shard_files_content(const struct write_orders *orders, bool zstd);

/* Every rank: writes and syncs its files and the directory, footers included. Takes memory as
 * shard_needs.h says. sources[i] belongs to plan item i; orders have been checked against the plan
 * when they were decoded. A file without orders holds a footer alone. results:
 * write_results_free(); where compressed streams lie, as that is known only now; without
 * compression none. On failure the files made here are removed again. */
dcp_status shard_files_write(const struct save_session *session, int rank,
                             const struct write_orders *orders, const struct shard_source *sources,
                             const struct shard_write_options *options,
                             struct write_results *results, struct shard_write_figures *figures);
/* The same for one file with a given name; all orders are for file 0. */
dcp_status shard_file_write(const struct save_session *session, const char *name,
                            const struct write_orders *orders, const struct shard_source *sources,
                            const struct shard_write_options *options,
                            struct write_results *results, struct shard_write_figures *figures);
/* Gives the stream of an order's item and box, as it would be in a file, to a sink. */
dcp_status shard_stream_write(const struct shard_source *source, const struct write_order *order,
                              dcp_sink sink, void *context);
/* Every rank, when the save failed elsewhere: removes its complete files, those whose footer has
 * this save's id; the message is kept. */
void shard_files_discard(const struct save_session *session, int rank, uint32_t file_count);

/* A commit in progress; all zero at first. */
struct save_commit {
    const struct save_session *session; /* NULL: nothing is prepared */
    struct storage_publication metadata;
    struct storage_publication json; /* nothing if there is none */
    /* Of their contents, as storage_directory_digest() gives them. */
    char metadata_digest[DCP_STORAGE_IDENTITY], json_digest[DCP_STORAGE_IDENTITY];
};

/* Coordinator, as soon as the contents of .metadata and metadata.json (json may be NULL) are known:
 * writes them under temporary names, durably. On failure nothing is prepared, and no file is
 * left. */
dcp_status save_commit_prepare(struct save_commit *commit, const struct save_session *session,
                               const void *metadata, size_t metadata_size, const char *json);
bool save_commit_is_prepared(const struct save_commit *commit);
/* When all ranks have written: metadata.json, then .metadata by rename; durable. DCP_ERR_BUSY if
 * the directory is not this save's any more, or .metadata not the one that was there when it began;
 * then both stay as they are. From the rename on without allocating anything. *visible: whether the
 * rename happened, also when a failure followed it (the directory could not be synced): then the
 * shard files must stay, and so must those of the checkpoint before, which may come back after a
 * power cut. Nothing is left prepared, and no temporary file, in any case. */
dcp_status save_commit_publish(struct save_commit *commit, bool *visible);
/* Removes prepared files, if any; the message is kept. */
void save_commit_drop(struct save_commit *commit);
/* Coordinator, after a commit: removes what earlier saves left and the new metadata does not name:
 * shard files of earlier generations, the rank-local metadata of a checkpoint that was replaced,
 * temporary files. Then the directory is this save's no longer. Failures are logged, not reported:
 * the checkpoint is whole. */
void save_session_sweep(const struct save_session *session, const struct metadata *metadata);
/* Coordinator, after a failure and when all ranks have discarded: the directory is this save's no
 * longer, and is removed if this save made it and it is empty; the message is kept. */
void save_session_abandon(const struct save_session *session);
void save_session_free(struct save_session *session);

#endif
