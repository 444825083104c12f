/* SPDX-License-Identifier: BSD-3-Clause */
/* The files of an open checkpoint: opened when first read, checked once, kept open up to a limit.
 */
#ifndef STORAGE_SHARD_SHARD_FILE_H
#define STORAGE_SHARD_SHARD_FILE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/byte_source.h"
#include "base/error.h"
#include "base/memory.h"
#include "device/device_lane.h"
#include "storage/shard/shard_reader.h"
#include "storage/shard/shard_sums.h"
#include "storage/storage_queue.h"

enum footer_state { FOOTER_NONE, FOOTER_GOOD, FOOTER_DAMAGED };

/* The most groups of a file that are remembered as being in the page cache. */
enum { SHARD_CACHED = 16 };

/* An open file of a checkpoint. */
struct shard_file {
    struct storage_file file;
    const char *name; /* relative to the checkpoint's directory; borrowed from the metadata */
    struct shard_reader *reader;
    const char *save_id;     /* borrowed likewise; NULL: the file is none of a save */
    pthread_mutex_t reading; /* while the footer is read */
    atomic_bool ready;       /* it was: what follows is known */
    enum footer_state footer;
    uint64_t content_length; /* what pieces may lie in: up to the footer, or the whole file */
    uint32_t block_size;     /* the rest only with a good footer */
    uint64_t block_count;
    struct shard_sums sums;
    uint64_t *pieces; /* digests of the pieces that the footer lists, ascending */
    size_t piece_count;
    atomic_uint_fast64_t cached[SHARD_CACHED]; /* ends of groups that the page cache had */
    uint64_t memory; /* memory that it takes while it is open; known if one thread reads */
    size_t users;    /* the rest is guarded by the reader's mutex */
    uint32_t index;
    struct shard_file *newer, *older; /* open files in order of use */
};

static inline uint64_t shard_file_size(const struct shard_file *file)
{
    return file->file.file.size;
}

static inline const char *shard_file_path(const struct shard_file *file)
{
    return file->file.path;
}

/* Compressed pieces that stay open at a time, of readers that keep them. */
enum { SHARD_KEPT = 8 };

struct read_lane; /* what reading ahead takes */

struct shard_reader {
    const dcp_storage *storage;
    char *id;                           /* of the checkpoint's directory */
    struct storage_directory directory; /* opened when it is first needed; the mutex guards that */
    struct saved_error *refused;        /* why it could not be opened; NULL: it was not tried */
    struct storage_directory *members;  /* those of a union that the caller chose, likewise */
    size_t member_count;
    uint32_t io; /* flags of dcp_io */
    struct storage_manners manners;
    struct shard_read_how how;
    size_t rank_count;         /* that read the checkpoint at the same time */
    struct progress *progress; /* NULL: not reported */
    enum storage_form form;
    const struct metadata *metadata; /* where the caller keeps it */
    pthread_mutex_t mutex;           /* over what follows */
    struct shard_file **files;       /* by index of metadata->files; NULL: not open */
    size_t file_count;
    size_t open_count;
    struct shard_file *newest, *oldest;
    struct read_lane *lanes;              /* that are not in use at present */
    struct window_room *rooms;            /* the same of windows */
    struct shard_piece *kept[SHARD_KEPT]; /* compressed ones that were read last; some NULL */
    bool keeps_streams;
    bool checks_last; /* of those: a piece with the read of its last elements */
    struct device_lanes
        device_lanes;          /* kept while regions are read, not from one load to another */
    struct shard_file *pinned; /* a .pt file, which the metadata continues to read */
    atomic_uint_fast64_t bytes_read;
    atomic_uint_fast64_t files_opened;
    atomic_uint_fast64_t bytes_checked; /* of tensors' elements, as they are stored */
    atomic_uint_fast64_t bytes_unchecked;
    atomic_uint_fast64_t bytes_bare; /* of these, what has no checksum at all */
    atomic_bool direct;
    atomic_bool ring;
};

/* Whether the caller demands a way of reading that the page cache is not. */
static inline bool shard_reader_demands(const struct shard_reader *reader)
{
    return (reader->io & ~(uint32_t)DCP_IO_BUFFERED) != 0;
}

/* Where what is read around the page cache begins: at a page, and at a block, as these are checked
 * as a whole. */
static inline uint64_t shard_file_unit(const struct shard_file *file)
{
    return file->footer == FOOTER_GOOD && file->block_size > MEMORY_PAGE ? file->block_size
                                                                         : MEMORY_PAGE;
}

/* The storage must stay valid. The directory is not read yet. */
dcp_status shard_reader_new(const dcp_storage *storage, const char *id, enum storage_form form,
                            struct shard_reader **reader);
/* Takes over the list of files. */
dcp_status shard_reader_bind(struct shard_reader *reader, const struct metadata *metadata);

/* For a file of that save that could not be opened: DCP_ERR_BUSY instead of DCP_ERR_NOT_FOUND if
 * the checkpoint was replaced meanwhile. member: the member of a union that has the file, or
 * NULL. */
dcp_status shard_file_explain_missing(const struct shard_reader *reader,
                                      const struct metadata_member *member, const char *save_id,
                                      dcp_status status);

/* Opens a file by the name that the metadata has. member: as above. */
dcp_status shard_reader_open_name(struct shard_reader *reader, const char *name,
                                  const struct metadata_member *member, struct storage_file *file);
/* Opens a file of the reader that is not in its list yet (a .pt file), to stay open. */
dcp_status shard_reader_pin(struct shard_reader *reader, const char *name);

/* The file, open, in use until it is released. With verification, a footer that is damaged is an
 * error; one of another save always is. */
dcp_status shard_file_acquire(struct shard_reader *reader, uint32_t index,
                              dcp_verification verification, struct shard_file **file);
/* Opens a file, if it is not open yet, and announces its end, so that who acquires it need not wait
 * for the footer. */
dcp_status shard_file_foresee(struct shard_reader *reader, uint32_t index);
/* Another user of a file that is in use. */
void shard_file_retain(struct shard_file *file);
void shard_file_release(struct shard_reader *reader, struct shard_file *file);

/* Reads, and counts what was read. Threads need no lock. */
dcp_status shard_file_read(struct shard_file *file, void *bytes, size_t size, uint64_t offset);
/* Counts what was read otherwise. */
void shard_file_count(struct shard_file *file, uint64_t bytes);
/* A range of a file. */
struct shard_range {
    struct shard_file *file; /* in use; NULL: not open */
    uint64_t offset;
    uint64_t size;
};

/* Reads, and calls visit for piece after piece, in order. Of a large range that the page cache does
 * not hold, the next pieces are got meanwhile, around the cache if there is a way, through 8 MiB of
 * buffers. Pieces are of 512 KiB at most, and all but the first begin at a page, and at a block if
 * the range does. bytes NULL: they are only visited. next: NULL, or what the thread will read after
 * that, from a file that is open, of which pieces are got as well when all of this range is under
 * way. */
typedef dcp_status (*shard_piece_visitor)(void *context, uint64_t position,
                                          const unsigned char *bytes, size_t size);
dcp_status shard_file_read_ahead(struct shard_file *file, void *bytes, size_t size, uint64_t offset,
                                 shard_piece_visitor visit, void *context,
                                 const struct shard_range *next);
/* Waits for what was read ahead of a range that nobody has asked for. */
void shard_reader_settle(struct shard_reader *reader);
/* What was found out about a part of a file. start: UINT64_MAX in the beginning. */
struct cached_group {
    uint64_t start;
    bool cached;
};

/* Whether the page cache has the data at a position and near it; true if that is unknown. */
bool shard_file_is_cached(struct shard_file *file, struct cached_group *group, uint64_t position);
/* Whether a large range from there on is read around the page cache. demanded: if it can be. */
bool shard_file_bypasses_cache(struct shard_file *file, struct cached_group *group,
                               uint64_t position, bool demanded);
/* Announces a range that will be read, so that it is read into the page cache unless it is
 * there. */
void shard_file_expect(struct shard_file *file, struct cached_group *group, uint64_t offset,
                       size_t size);
/* Of a stream, up to where its data begins, and from where it ends. */
#define SHARD_STREAM_HEAD ((uint64_t)2 * MEMORY_PAGE)
#define SHARD_STREAM_TAIL ((uint64_t)2048)
/* A stream that will be read: the same of its ends, with the blocks that its data begins and ends
 * in. */
void shard_file_expect_stream(struct shard_file *file, uint64_t offset, uint64_t length);
/* The same of a piece that is one, if it is large, and of its checksums. */
void shard_file_expect_piece(struct shard_file *file, const struct metadata_piece *piece,
                             dcp_verification verification);
/* A range that will be read in parts: all of it, and if it is large what is near it, so that it
 * counts as being in the page cache. */
void shard_file_expect_group(struct shard_file *file, uint64_t start, uint64_t end);
/* Memory that the reading of large ranges ahead of their turn takes, for each thread. */
uint64_t shard_read_ahead_memory(uint32_t io);
/* Frees what reading ahead has left for later reads. */
void shard_reader_free_lanes(struct shard_reader *reader);
/* byte_source_read_ranges() of a file. */
dcp_status shard_file_read_ranges(struct shard_file *file, const struct byte_range *ranges,
                                  size_t count, unsigned char *room, byte_range_visitor visit,
                                  void *visiting);
/* The whole file, footer and all. */
struct byte_source shard_file_source(struct shard_file *file);

#endif
