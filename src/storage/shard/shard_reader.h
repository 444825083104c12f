/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading checkpoints: finding the metadata in any of its forms, and reading pieces of it. */
#ifndef STORAGE_SHARD_SHARD_READER_H
#define STORAGE_SHARD_SHARD_READER_H

#include "base/buffer.h"
#include "base/progress.h"
#include "dcp/storage.h"
#include "dcp/types.h"
#include "device/device_lane.h"
#include "state/metadata.h"
#include "state/node.h"
#include "storage/storage.h"

/* What is to be opened. */
struct storage_location {
    const char *path;
    const char *const *members; /* directories, relative to path, whose union is read; none: path
                                   itself */
    size_t member_count;
    bool local_parts; /* dcp_open_options::local_parts */
    dcp_take take;    /* dcp_open_options::take */
};

static inline struct storage_location storage_at(const char *path)
{
    return (struct storage_location){.path = path};
}

/* What a path turned out to be. */
enum storage_form {
    STORAGE_DCP,
    STORAGE_RANK_LOCAL,
    STORAGE_SAFETENSORS,
    STORAGE_PT,
    STORAGE_TRAINING, /* the files of another framework: state/training_form.h */
    STORAGE_UNION     /* of several directories of the first three forms */
};

/* An open checkpoint directory or file. Files are opened when first read and stay open; several
 * threads may read. */
struct shard_reader;

/* Reads and decodes the metadata of any form: .metadata, else __*.metadata united, else the
 * *.safetensors of a directory, else the union of its stages pp0, pp1 and so on, else of what other
 * frameworks divide a checkpoint into, else what another framework has left; of a file that ends in
 * .safetensors, else of a .pt file. The reader refers to *metadata, which must stay where
 * it is and outlive it, but for objects of .pt files, which need both. On failure metadata is empty
 * and *reader NULL. Errors: DCP_ERR_NOT_FOUND says what was looked for, and whether a save was
 * interrupted there. */
dcp_status storage_read_metadata(const dcp_storage *storage, struct storage_location location,
                                 enum storage_form *form, struct metadata *metadata,
                                 struct shard_reader **reader);
/* Appends the bytes of .metadata, of all members of a union, to raw, to be sent to other ranks.
 * DCP_ERR_NOT_FOUND for other forms, which every rank reads itself. opened: the directory that was
 * read, for a reader of this rank; the caller closes it. Not open for a union whose members were
 * chosen, and after a failure. */
dcp_status storage_read_raw(const dcp_storage *storage, struct storage_location location,
                            struct buffer *raw, struct storage_directory *opened);
/* What that gives for the bytes of a .metadata that came from elsewhere. */
void storage_wrap_raw(const void *metadata, size_t size, struct buffer *raw);
/* The compact form of metadata in bytes that storage_read_raw() gave; NULL: there is none. */
dcp_status storage_find_compact(const char *path, const struct buffer *raw, const void **compact,
                                size_t *size);
/* As storage_read_metadata(), from bytes that storage_read_raw() gave on some rank. */
dcp_status storage_decode_raw(const dcp_storage *storage, const char *path, const void *raw,
                              size_t size, struct metadata *metadata, struct shard_reader **reader);
/* Has what storage_read_metadata() gave say all that another rank needs, which may not see the
 * files: objects of a .pt file as streams in memory, and the sizes of files. DCP_ERR_UNSUPPORTED:
 * an object that cannot be written; the metadata is still good. */
dcp_status storage_make_portable(struct shard_reader *reader, struct metadata *metadata);
/* A reader for such metadata of a form that is not of a .metadata. The files need not be there. */
dcp_status storage_read_described(const dcp_storage *storage, const char *path,
                                  enum storage_form form, const struct metadata *metadata,
                                  struct shard_reader **reader);
/* Whether a file is there, of the size that the metadata says. Sets no error. */
bool shard_reader_sees(struct shard_reader *reader, uint32_t file);
/* Ranges from here on are read around the page cache where it lacks them. */
#define SHARD_LARGE ((uint64_t)1 << 20)
/* Whether what is at a place in a file would be read around the page cache, if it is large: from
 * the disk by each rank that reads it. No for a file that cannot be opened; sets no error. */
bool shard_reader_bypasses_cache(struct shard_reader *reader, uint32_t file, uint64_t offset);
/* A reader for metadata that is known already, of a .metadata or of a union of such. */
dcp_status storage_read_known(const dcp_storage *storage, const char *path,
                              const struct metadata *metadata, struct shard_reader **reader);
/* Reads values that several members of a union hold and compares them: DCP_ERR_DUPLICATE names the
 * members that differ. If records have checksums, these are compared instead. */
dcp_status storage_check_replicas(struct shard_reader *reader);
/* One of them; the message is the same. */
dcp_status storage_check_replica(struct shard_reader *reader,
                                 const struct metadata_replica *replica);

/* Files are read from this directory, which becomes the reader's, if it is open; nothing was opened
 * before. */
void shard_reader_take_directory(struct shard_reader *reader, struct storage_directory *opened);
/* Opens the directory while its id names it; a failure is reported when a file is read.
 */
void shard_reader_open_directory(struct shard_reader *reader);

/* Appends a small file of the checkpoint's directory, as storage_read_whole() does.
 * DCP_ERR_NOT_FOUND also if the checkpoint is not one directory with a .metadata. */
dcp_status shard_reader_read_beside(struct shard_reader *reader, const char *name, uint64_t limit,
                                    struct buffer *bytes);

/* Opens a file of the checkpoint that is no shard, of a member of a union if it is one. */
dcp_status shard_reader_open_extra(struct shard_reader *reader, const struct extra_file *extra,
                                   struct storage_file *file);

/* Sets how files that are opened from now on are read: flags of dcp_io and the priority of reading
 * threads; and which progress counts the stored bytes of tensors. */
void shard_reader_set_io(struct shard_reader *reader, uint32_t io, dcp_io_priority priority,
                         struct progress *progress);

/* How many ranks read the checkpoint at the same time, this one included; 1 in the beginning. What
 * they probably read as well comes into the page cache. */
void shard_reader_set_rank_count(struct shard_reader *reader, size_t rank_count);

/* Whether reads go over a network, as far as is known. NULL: no reader. */
bool shard_reader_is_far(struct shard_reader *reader);

/* What reading may take of memory. */
struct shard_read_how {
    size_t thread_count;
    size_t buffer_bytes; /* of what is scattered, converted or only checked, for each thread */
    size_t open_files;   /* that are kept open at a time; more are while more are in use */
    bool plain;          /* each read at its turn, through the page cache */
};
/* What a reader begins with. */
struct shard_read_how shard_read_how_usual(void);
/* Applies from now on; there must be no reads during the call. The caller manages threads. */
void shard_reader_set_how(struct shard_reader *reader, const struct shard_read_how *how);
/* Memory of a lane to a device, and of what is packed and converted beside it. */
#define SHARD_READER_LANE_MEMORY (DEVICE_LANE_MEMORY + 2 * (uint64_t)DEVICE_LANE_BUFFER)
/* Lanes that there may be from now on. A reader that is opened under a limit of memory begins with
 * none, other ones with as many as threads take. */
void shard_reader_allow_device_lanes(struct shard_reader *reader, size_t most);

/* Reads the region (in the tensor's coordinates) of one piece into the memory of target, whose
 * elements are of dtype. Converts where dtypes differ. Checks lengths against the file, the item
 * against the metadata, the footer's save id, and checksums as the verification says. Memory in
 * addition to the target: one buffer of at most shard_read_how::buffer_bytes, for a device four of
 * them (or a lane), buffers to read ahead, and for a compressed piece the window of zstd and about
 * 600 KiB. After a failure part of the region may be filled. */
dcp_status shard_read_tensor(struct shard_reader *reader, const struct metadata_entry *entry,
                             const struct metadata_piece *piece, struct box region, dcp_dtype dtype,
                             const struct state_chunk *target, dcp_verification verification);

/* From now on the few compressed pieces that were read last stay open, with their decompressors, so
 * that regions that follow each other do not have them decompressed from the beginning each time.
 */
void shard_reader_keep_streams(struct shard_reader *reader);
/* And from now on such a piece is checked when its last elements are read, instead of by the first
 * read, which would decompress all of it for that. */
void shard_reader_check_last(struct shard_reader *reader);

/* A piece of a tensor, open, to be read part after part: checksums hold as if parts that follow
 * each other had been read at once. For one thread. Tells no progress. */
struct shard_piece;
struct read_batch; /* read_batch.h */
/* batch: NULL, or what has been read ahead, until another one is used. region: what will be read,
 * in parts that follow each other row-major. partly: not all of it, so that blocks at the ends are
 * read whole to be checked. */
dcp_status shard_piece_open(struct shard_reader *reader, const struct metadata_entry *entry,
                            const struct metadata_piece *piece, struct box region, bool partly,
                            dcp_verification verification, struct read_batch *batch,
                            struct shard_piece **opened);
/* The checksum of a part of a record; other ranks read the other parts. */
struct shard_part_sum {
    bool known; /* false: the part was checked separately, has no checksum, or is not in the order
                   of its record */
    uint32_t crc;
    uint64_t size;
    uint32_t expected; /* that of the whole record */
    uint64_t place;    /* of the record in the file */
    bool together; /* set before: the other parts are read as well, and a failure of one is one of
                      all */
};
/* The same for elements from to end - 1 of the whole piece, which are all read, in order: then the
 * sum is known, if the record's checksum is all that there is. */
dcp_status shard_piece_open_part(struct shard_reader *reader, const struct metadata_entry *entry,
                                 const struct metadata_piece *piece, int64_t from, int64_t end,
                                 dcp_verification verification, struct read_batch *batch,
                                 struct shard_part_sum *sum, struct shard_piece **opened);
/* From now on bytes come from this batch, as far as it has them; NULL: none. */
void shard_piece_use(struct shard_piece *opened, struct read_batch *batch);
/* Combines the checksums of all parts of a record, in order, and compares the result with that of
 * the record. */
dcp_status shard_join_sums(const struct shard_reader *reader, const struct metadata_entry *entry,
                           const struct metadata_piece *piece, const struct shard_part_sum *sums,
                           size_t count);
/* Puts name and place in front of the message of what went wrong with a piece. */
dcp_status shard_reader_blame(const struct shard_reader *reader, const struct metadata_entry *entry,
                              const struct metadata_piece *piece, dcp_status status);
/* Reads a region into dense memory, in the stored dtype. */
dcp_status shard_piece_read(struct shard_piece *opened, struct box region, void *elements);
/* The same of a region's elements from to end - 1, row-major: at once, if they lie so in the file.
 */
dcp_status shard_piece_read_span(struct shard_piece *opened, struct box region, int64_t from,
                                 int64_t end, void *elements);
/* Gets bytes part after part, in order, while they are in a core's cache. */
typedef dcp_status (*byte_taker)(void *context, const unsigned char *bytes, size_t size);
/* Reads a span as above, and gives its bytes to `take` instead of bringing them to one place. room:
 * for SHARD_PASS_ROOM bytes, of what cannot be given from where it was read to. */
#define SHARD_PASS_ROOM ((size_t)1 << 20)
dcp_status shard_piece_pass_span(struct shard_piece *opened, struct box region, int64_t from,
                                 int64_t end, void *room, byte_taker take, void *taking);
/* Says what is read after the next span: elements from to end - 1 of that piece, row-major, or of
 * another one, perhaps in another file, which is opened. It begins meanwhile, if it is large. */
void shard_piece_foresee(struct shard_piece *opened, const struct metadata_entry *entry,
                         const struct metadata_piece *piece, int64_t from, int64_t end);
/* Reads what a request about the piece wants, as shard_read_tensor(). */
struct shard_request;
dcp_status shard_piece_fill(struct shard_piece *opened, const struct shard_request *request);
/* Whether it is that piece, and was opened so. */
bool shard_piece_is_of(const struct shard_piece *opened, const struct metadata_piece *piece,
                       dcp_verification verification);
/* How many bytes must be decompressed before the elements of a region of it. */
uint64_t shard_piece_way(const struct shard_piece *opened, struct box region);
/* Whether reading one part after the other costs no more than reading them at once. */
bool shard_piece_flows(const struct shard_piece *opened);
/* After the last part: what was read can be trusted. Reads the rest of a compressed piece. bytes:
 * that were read, as elements are stored, for the figures. */
dcp_status shard_piece_end(struct shard_piece *opened, uint64_t bytes);
/* NULL is allowed. */
void shard_piece_close(struct shard_piece *opened);

/* The way from such memory, which holds the box `held`, to where shard_read_tensor() would have put
 * the region, which lies in it. */
dcp_status shard_place_region(const struct metadata_entry *entry, struct box held,
                              const void *elements, struct box region, dcp_dtype dtype,
                              const struct state_chunk *target);

/* A region that is wanted; what it points to is borrowed. */
struct shard_request {
    const struct metadata_entry *entry;
    const struct metadata_piece *piece;
    struct box region;
    dcp_dtype dtype;
    const struct state_chunk *target;
    struct shard_part_sum *sum; /* NULL; or all zero: gets the checksum of the region, elements
                                   that follow each other in the piece, and only they are read */
};

/* As shard_read_tensor(), of many, on at most thread_count threads. They are best in the order in
 * which they lie in the files: small neighbours are then read at once. Large ones are read in
 * parts. Memory: for each thread what one takes, and 256 KiB. moved: bytes that were put into
 * targets. */
dcp_status shard_read_tensors(struct shard_reader *reader, const struct shard_request *requests,
                              size_t count, size_t thread_count, dcp_verification verification,
                              uint64_t *moved);
dcp_status shard_read_object(struct shard_reader *reader, const struct metadata_entry *entry,
                             const struct metadata_piece *piece, dcp_verification verification,
                             struct state_pool *pool, dcp_state **object);
/* Reads bytes of an object's stored stream, checked by blocks unless the verification is
 * DCP_VERIFY_NONE. shard_take_object() then takes the whole stream, on the rank that wants it. */
dcp_status shard_read_stored(struct shard_reader *reader, const struct metadata_entry *entry,
                             const struct metadata_piece *piece, dcp_verification verification,
                             uint64_t from, size_t size, void *bytes);
dcp_status shard_take_object(const struct shard_reader *reader, const struct metadata_entry *entry,
                             const struct metadata_piece *piece, const void *bytes, size_t size,
                             struct state_pool *pool, dcp_state **object);

/* The stream of a piece that another rank or a hook has read: as it is stored, or decompressed. */
struct stream_bytes {
    const void *bytes;
    size_t size;
};

/* Reads the box of the target, which lies inside of the piece, from a stream. The record's checksum
 * is checked, but not with DCP_VERIFY_NONE. */
dcp_status shard_take_tensor(struct shard_reader *reader, const struct metadata_entry *entry,
                             const struct metadata_piece *piece, struct stream_bytes stream,
                             const struct state_chunk *target, dcp_dtype dtype,
                             dcp_verification verification);
/* An object's stream, decompressed; appended to out. First from its file (of an object in a .pt
 * file one is made), then as it was given. */
dcp_status shard_read_stream(struct shard_reader *reader, const struct metadata_entry *entry,
                             const struct metadata_piece *piece, dcp_verification verification,
                             struct buffer *out);
/* The stream of any piece, checked as a whole before the first byte of it is given: it is read
 * twice, in parts, unless it is compressed. */
dcp_status shard_pass_stream(struct shard_reader *reader, const struct metadata_entry *entry,
                             const struct metadata_piece *piece, dcp_verification verification,
                             dcp_sink sink, void *context);
dcp_status shard_take_stream(const struct shard_reader *reader, const struct metadata_entry *entry,
                             const struct metadata_piece *piece, struct stream_bytes stream,
                             struct buffer *out);

/* Whether a file carries checksums of its blocks. Not known: no. */
bool shard_reader_has_blocks(struct shard_reader *reader, uint32_t file);

struct shard_read_figures {
    uint64_t bytes_read; /* from the files that the metadata names, footers included */
    /* Of tensors' elements, as they are stored; and of those, what has no checksum at all. */
    uint64_t bytes_checked, bytes_unchecked, bytes_bare;
    uint64_t files_opened; /* of these; again when closed in between */
    bool direct;           /* some file was read around the page cache */
    bool ring;
};
/* Bytes of elements that were read. */
struct shard_tally {
    uint64_t checked, unchecked; /* held to a checksum, or not */
    uint64_t bare;               /* of the latter, what has none */
};
/* Adds them to the figures. */
void shard_reader_count(struct shard_reader *reader, const struct shard_tally *tally);
void shard_reader_figures(const struct shard_reader *reader, struct shard_read_figures *figures);
void shard_reader_free(struct shard_reader *reader);

#endif
