/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file checkpoint.h
 * @brief A view of a stored checkpoint: its contents, and random access to them without a state
 * tree.
 */
#ifndef DCP_CHECKPOINT_H
#define DCP_CHECKPOINT_H

#include "load.h"
#include "progress.h"
#include "state.h"
#include "storage.h"
#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** An open checkpoint. Threading: any number of threads may read at the same time. */
typedef struct dcp_checkpoint dcp_checkpoint;

/** One stored name. All pointers are borrowed from the checkpoint. */
typedef struct dcp_entry {
    const char *name;
    const dcp_path_part *path; /**< `path_length` parts */
    size_t path_length;
    bool is_tensor; /**< else an object */

    dcp_dtype dtype;             /**< tensors */
    int32_t ndim;                /**< tensors */
    const int64_t *global_shape; /**< tensors: `ndim` values */
    uint64_t bytes;              /**< tensors: of the whole tensor */
    size_t chunk_count;          /**< stored chunks; 1 for objects */
    bool requires_grad;          /**< tensors; informative */
} dcp_entry;

/** Where one stored chunk lies. All pointers are borrowed from the checkpoint. */
typedef struct dcp_stored_chunk {
    const int64_t *offsets; /**< tensors: the box; NULL for objects */
    const int64_t *sizes;
    const char *file; /**< relative to the checkpoint's directory, or an absolute member's file */
    uint64_t offset;  /**< first byte of the stream in the file */
    uint64_t length;  /**< bytes of the stream as stored */

    /** The layout of a tensor of a `.pt` file in its storage, which begins at `offset`. Tensors
     * with the same `file` and `offset` share the storage. In other forms this is NULL, and the
     * fields below are 0.
     */
    const int64_t *strides;
    int64_t storage_offset; /**< of the first element, in elements */
    uint64_t storage_bytes; /**< of the whole storage */
    bool altered; /**< the elements differ from the bytes of the storage: they are big-endian, or
                     must be conjugated or negated */

    bool deflated;  /**< `length` stored bytes inflate to the storage; `.pt` files */
    bool has_crc32; /**< the file has a checksum of the storage; `.pt` files */
    uint32_t crc32; /**< that, of the `storage_bytes` */
    bool is_stream; /**< a stream of torch.save; otherwise elements, or an object of a `.pt` file */
    bool compressed; /**< the stream is compressed as a whole, by zstd */
    bool is_range;   /**< some of the elements of a tensor in a stream, which is at `offset`: of a
                        training checkpoint whose optimizer is flat. `is_stream` is false */
} dcp_stored_chunk;

/** Options for opening or verifying a checkpoint. All zero is the default. */
typedef struct dcp_open_options {
    /** Where the path is (dcp/storage.h); NULL: in the file system. */
    const dcp_storage *storage;
    /** Several directories whose union is the checkpoint: see dcp_load_options::members. Values
     * that several members hold are read and compared; of tensors whose records carry checksums,
     * only the checksums are compared. Members that do not begin with "/" are relative to the
     * path. */
    const char *const *members;
    size_t member_count;
    /** Of `.pt` files: a DTensor is the tensor that the file has of it, the part of the rank that
     * saved it. dcp_checkpoint_read_object() of such an entry gives its DTensorSpec, which says
     * where the part lies. Otherwise a DTensor is an object. */
    bool local_parts;
    /** Of dcp_verify() alone: called while it reads, with #DCP_PHASE_READING and bytes to read, of
     * unions those of the members that it has come to. A false ends it: DCP_ERR_CANCELLED. */
    dcp_progress_function progress;
    void *progress_context;
    /** Of training checkpoints of other frameworks: as dcp_load_options::take. */
    dcp_take take;
    /** For callers who read all of a tensor in parts, in order: of a compressed chunk, the read of
     * its last elements tells whether all was right, so that it is decompressed once. Until then
     * nothing proves what the reads before have given. False: each read does, and the first one
     * decompresses the whole chunk for that. */
    bool check_last;
} dcp_open_options;

/** Opens any checkpoint that dcp_load() can load. Reads and checks the metadata, not the data. A
 * `.metadata` that this library wrote has two things behind the pickle that PyTorch reads: the same
 * in a compact form, which is read in place of it, and a checksum of both, which is compared. The
 * directory is opened once: later reads use the open directory, even if the process changes its
 * working directory or the path names another directory by then. The exception are members of a
 * union that the options name: their paths are made absolute by this call, and opened when data in
 * them is read. @param options NULL: all defaults. @param checkpoint owned by the caller. */
DCP_API dcp_status dcp_checkpoint_open_sized(const char *path, const dcp_open_options *options,
                                             size_t options_size, dcp_checkpoint **checkpoint);

static inline dcp_status dcp_checkpoint_open(const char *path, const dcp_open_options *options,
                                             dcp_checkpoint **checkpoint)
{
    return dcp_checkpoint_open_sized(path, options, sizeof *options, checkpoint);
}

DCP_API void dcp_checkpoint_close(dcp_checkpoint *checkpoint);

/** @return number of names. */
DCP_API size_t dcp_checkpoint_count(const dcp_checkpoint *checkpoint);

/** Describes entry @p index, in the order of the metadata. Errors: DCP_ERR_ARGUMENT. */
DCP_API dcp_status dcp_checkpoint_entry_sized(const dcp_checkpoint *checkpoint, size_t index,
                                              dcp_entry *entry, size_t entry_size);

static inline dcp_status dcp_checkpoint_entry(const dcp_checkpoint *checkpoint, size_t index,
                                              dcp_entry *entry)
{
    return dcp_checkpoint_entry_sized(checkpoint, index, entry, sizeof *entry);
}

/**
 * Describes several entries in one call, for languages in which each call is slow (Python).
 * @param entries array of @p count structs of @p entry_size bytes. After a failure some may be
 * filled in. Errors: DCP_ERR_ARGUMENT if the checkpoint has fewer entries.
 */
DCP_API dcp_status dcp_checkpoint_entries_sized(const dcp_checkpoint *checkpoint, size_t first,
                                                size_t count, dcp_entry *entries,
                                                size_t entry_size);

static inline dcp_status dcp_checkpoint_entries(const dcp_checkpoint *checkpoint, size_t first,
                                                size_t count, dcp_entry *entries)
{
    return dcp_checkpoint_entries_sized(checkpoint, first, count, entries, sizeof *entries);
}

/** Finds an entry by its name. Errors: DCP_ERR_NOT_FOUND. */
DCP_API dcp_status dcp_checkpoint_find(const dcp_checkpoint *checkpoint, const char *name,
                                       size_t *index);

/**
 * @return the planner data of the checkpoint (PyTorch's Metadata.planner_data) that a custom save
 * planner has set, as an object; borrowed from the checkpoint. NULL if there is none, as in unions,
 * or if it only holds the paths that PyTorch and this library store there (dcp_entry::path).
 */
DCP_API const dcp_state *dcp_checkpoint_planner_data(const dcp_checkpoint *checkpoint);

/** Describes stored chunk @p chunk of entry @p entry. */
DCP_API dcp_status dcp_checkpoint_chunk_sized(const dcp_checkpoint *checkpoint, size_t entry,
                                              size_t chunk, dcp_stored_chunk *stored,
                                              size_t stored_size);

static inline dcp_status dcp_checkpoint_chunk(const dcp_checkpoint *checkpoint, size_t entry,
                                              size_t chunk, dcp_stored_chunk *stored)
{
    return dcp_checkpoint_chunk_sized(checkpoint, entry, chunk, stored, sizeof *stored);
}

/** Information about the save that made a checkpoint, from `metadata.json`. */
typedef struct dcp_save_info {
    bool found;    /**< the file exists and belongs to this save; otherwise the fields below, except
                        `stale`, are zero */
    bool stale;    /**< the file exists but names another save, for example an interrupted one; it
                        is ignored, as is a file of another framework */
    bool has_step; /**< dcp_save_options::step was set */
    bool has_info; /**< dcp_save_options::info was set */
    int64_t step;
    int64_t unix_time;   /**< when the checkpoint was saved, in seconds; 0: unknown */
    int32_t world_size;  /**< number of ranks that saved; 0: unknown */
    const char *save_id; /**< borrowed from the checkpoint; set even if nothing was found; NULL: the
                            checkpoint has none */
} dcp_save_info;

/**
 * Reads dcp_save_options::step and dcp_save_options::info back from `metadata.json`. Checkpoints of
 * PyTorch, unions and other forms have no such file. That is not an error: `found` is false.
 *
 * Info is returned as dcp_state_to_json() wrote it. Ints of up to 4096 digits and all floats,
 * infinities and NaN included, keep their values. Tuples become lists. Other values that JSON does
 * not have stay dicts whose first key starts with "$".
 *
 * @param parent receives info under @p key, as when building a tree, if there is any. NULL: not
 * wanted. Errors: DCP_ERR_FORMAT if the file exists but is not such a text (of at most 16 MiB,
 * nested at most 64 deep).
 */
DCP_API dcp_status dcp_checkpoint_info_sized(const dcp_checkpoint *checkpoint, dcp_state *parent,
                                             const char *key, dcp_save_info *info,
                                             size_t info_size);

static inline dcp_status dcp_checkpoint_info(const dcp_checkpoint *checkpoint, dcp_state *parent,
                                             const char *key, dcp_save_info *info)
{
    return dcp_checkpoint_info_sized(checkpoint, parent, key, info, sizeof *info);
}

/** An extra file of a checkpoint (dcp_save_options::extra_files). Strings are borrowed from the
 * checkpoint. */
typedef struct dcp_extra_file_info {
    const char *name; /**< in a union "MEMBER/NAME" */
    const char *file; /**< the file that holds it, relative to the checkpoint's directory */
    uint64_t size;    /**< in bytes */
    uint64_t xxh3;    /**< XXH3 (64 bits) of its bytes */
} dcp_extra_file_info;

/** @return number of extra files of all ranks; in a union, of all members. */
DCP_API size_t dcp_checkpoint_extra_file_count(const dcp_checkpoint *checkpoint);

/** Describes extra file @p index; they are sorted by rank. Errors: DCP_ERR_ARGUMENT. */
DCP_API dcp_status dcp_checkpoint_extra_file_sized(const dcp_checkpoint *checkpoint, size_t index,
                                                   dcp_extra_file_info *info, size_t info_size);

static inline dcp_status dcp_checkpoint_extra_file(const dcp_checkpoint *checkpoint, size_t index,
                                                   dcp_extra_file_info *info)
{
    return dcp_checkpoint_extra_file_sized(checkpoint, index, info, sizeof *info);
}

/** Finds an extra file by its name. If ranks that saved with `without_collectives` used the same
 * name (a fault that dcp_verify() reports), the file of the lowest rank is found. Errors:
 * DCP_ERR_NOT_FOUND. */
DCP_API dcp_status dcp_checkpoint_find_extra_file(const dcp_checkpoint *checkpoint,
                                                  const char *name, size_t *index);

/** Options for reading or mapping data. All zero is the default. */
typedef struct dcp_read_options {
    dcp_verification verification; /**< which checksums are compared */
    /** For dcp_checkpoint_read_tensor() only, DCP_ERR_ARGUMENT for other calls. As
     * dcp_load_options::convert: elements are converted between any two real dtypes, as PyTorch
     * does it. Otherwise, and for complex and packed dtypes (#DCP_F4_E2M1FN_X2) in any case, a
     * destination of another dtype than the entry's is DCP_ERR_DTYPE. */
    bool convert;
} dcp_read_options;

/**
 * Reads a whole extra file.
 * @param bytes receives the file; @p size must be dcp_extra_file_info::size.
 * @param options NULL: all defaults. The checksum of the file is compared unless `verification` is
 * #DCP_VERIFY_NONE.
 * Errors: DCP_ERR_ARGUMENT, DCP_ERR_CHECKSUM, DCP_ERR_FORMAT if the file has another size,
 * DCP_ERR_NOT_FOUND, DCP_ERR_BUSY if the checkpoint was replaced meanwhile, and those of the
 * storage. After a failure the bytes mean nothing.
 */
DCP_API dcp_status dcp_checkpoint_read_extra_file_sized(dcp_checkpoint *checkpoint, size_t index,
                                                        void *bytes, size_t size,
                                                        const dcp_read_options *options,
                                                        size_t options_size);

static inline dcp_status dcp_checkpoint_read_extra_file(dcp_checkpoint *checkpoint, size_t index,
                                                        void *bytes, size_t size,
                                                        const dcp_read_options *options)
{
    return dcp_checkpoint_read_extra_file_sized(checkpoint, index, bytes, size, options,
                                                sizeof *options);
}

/**
 * Reads any box of a tensor into memory. Ndim and global_shape of @p destination must be those of
 * the entry, and so must its dtype unless elements are converted. The other fields are as for a
 * tensor to load. If `sharded` is false, the whole tensor is read.
 *
 * Checksums are compared as in a load (dcp_verification): in files that this library wrote, those
 * of every block of 4 KiB that the box touches. Contiguous parts of a large tensor that has a
 * single checksum (PyTorch's files), or of a storage that tensors of a `.pt` file share, are joined
 * unless they overlap, in whatever order and by whichever thread they are read: the read after
 * which all of it has been read compares it. Other parts are checked with #DCP_VERIFY_RECORDS
 * alone. Reading a box of a compressed chunk decompresses and checks the whole chunk, in bounded
 * memory. Up to eight chunks that were read last stay open until dcp_checkpoint_close(), with the
 * windows of their frames (usually 2 MiB each), so that a read that continues after the previous
 * box does not start from the beginning.
 *
 * @param options NULL: all defaults.
 * Errors: DCP_ERR_KIND for objects, DCP_ERR_SHAPE, DCP_ERR_DTYPE (dcp_read_options::convert),
 * DCP_ERR_ARGUMENT if the first or last byte of the memory cannot be written, DCP_ERR_CHECKSUM,
 * DCP_ERR_FORMAT, DCP_ERR_IO and others. A failure during reading may leave the destination
 * changed.
 */
DCP_API dcp_status dcp_checkpoint_read_tensor_sized(dcp_checkpoint *checkpoint, size_t entry,
                                                    const dcp_tensor *destination,
                                                    size_t tensor_size,
                                                    const dcp_read_options *options,
                                                    size_t options_size);

static inline dcp_status dcp_checkpoint_read_tensor(dcp_checkpoint *checkpoint, size_t entry,
                                                    const dcp_tensor *destination,
                                                    const dcp_read_options *options)
{
    return dcp_checkpoint_read_tensor_sized(checkpoint, entry, destination, sizeof *destination,
                                            options, sizeof *options);
}

/**
 * Reads from the storage that a tensor of a `.pt` file is a view of, including the elements that
 * no tensor uses.
 * @param first, count elements of the entry's dtype, from the beginning of the storage, which has
 * dcp_stored_chunk::storage_bytes.
 * @param options NULL: all defaults.
 * Errors: DCP_ERR_UNSUPPORTED for other forms and for a storage that is `altered`,
 * DCP_ERR_ARGUMENT beyond its end, and those of dcp_checkpoint_read_tensor().
 */
DCP_API dcp_status dcp_checkpoint_read_storage_sized(dcp_checkpoint *checkpoint, size_t entry,
                                                     int64_t first, int64_t count, void *elements,
                                                     const dcp_read_options *options,
                                                     size_t options_size);

static inline dcp_status dcp_checkpoint_read_storage(dcp_checkpoint *checkpoint, size_t entry,
                                                     int64_t first, int64_t count, void *elements,
                                                     const dcp_read_options *options)
{
    return dcp_checkpoint_read_storage_sized(checkpoint, entry, first, count, elements, options,
                                             sizeof *options);
}

/** A stored chunk that is mapped into memory; see dcp_checkpoint_map_chunk(). */
typedef struct dcp_mapping dcp_mapping;

/** The contents of a mapping. All pointers are borrowed from it. */
typedef struct dcp_mapped_chunk {
    const void *data; /**< the chunk's first element; NULL if it has none. Read-only */
    size_t bytes;     /**< from `data` to the end of the chunk's last element */
    size_t alignment; /**< of `data`: a power of two up to 4096. In some files of PyTorch it is less
                         than the size of an element; then elements must be copied out */
    const int64_t *offsets; /**< the chunk's box in the tensor; `ndim` values in each of these
                                 arrays */
    const int64_t *sizes;
    const int64_t *strides; /**< of `data`, in elements; row-major in files of this library */
} dcp_mapped_chunk;

/**
 * Maps the elements of a stored chunk into memory without copying them. Pages are read from the
 * file when they are accessed, and are shared with other processes.
 *
 * DCP_ERR_UNSUPPORTED if the elements do not lie in the file as they are: the chunk is compressed,
 * big-endian, or must be conjugated or negated. Read those with dcp_checkpoint_read_tensor(). A
 * storage that cannot map files is DCP_ERR_UNSUPPORTED as well.
 *
 * If a mapped file is truncated or its disk fails, an access to the lost pages ends the process
 * with SIGBUS. Only map files that no other process changes.
 *
 * @param options NULL: all defaults. With DCP_VERIFY_NONE only the head of the chunk is read.
 * Otherwise the whole chunk is read and compared with its checksums before this call returns.
 * @param mapping owned by the caller: dcp_mapping_free(). It stays valid when the checkpoint is
 * closed or a later save replaces the file. Errors: DCP_ERR_KIND for objects, DCP_ERR_ARGUMENT,
 * DCP_ERR_CHECKSUM, DCP_ERR_FORMAT, DCP_ERR_IO and others.
 */
DCP_API dcp_status dcp_checkpoint_map_chunk_sized(dcp_checkpoint *checkpoint, size_t entry,
                                                  size_t chunk, const dcp_read_options *options,
                                                  size_t options_size, dcp_mapping **mapping,
                                                  dcp_mapped_chunk *mapped, size_t mapped_size);

static inline dcp_status dcp_checkpoint_map_chunk(dcp_checkpoint *checkpoint, size_t entry,
                                                  size_t chunk, const dcp_read_options *options,
                                                  dcp_mapping **mapping, dcp_mapped_chunk *mapped)
{
    return dcp_checkpoint_map_chunk_sized(checkpoint, entry, chunk, options, sizeof *options,
                                          mapping, mapped, sizeof *mapped);
}

/** Frees a mapping. NULL is allowed. */
DCP_API void dcp_mapping_free(dcp_mapping *mapping);

/**
 * Reads an object and adds it to @p parent under @p key, as when building a tree.
 * @param options NULL: all defaults.
 * Errors: DCP_ERR_KIND for tensors, DCP_ERR_ARGUMENT, DCP_ERR_CHECKSUM, DCP_ERR_FORMAT, DCP_ERR_IO
 * and others.
 */
DCP_API dcp_status dcp_checkpoint_read_object_sized(dcp_checkpoint *checkpoint, size_t entry,
                                                    dcp_state *parent, const char *key,
                                                    const dcp_read_options *options,
                                                    size_t options_size);

static inline dcp_status dcp_checkpoint_read_object(dcp_checkpoint *checkpoint, size_t entry,
                                                    dcp_state *parent, const char *key,
                                                    const dcp_read_options *options)
{
    return dcp_checkpoint_read_object_sized(checkpoint, entry, parent, key, options,
                                            sizeof *options);
}

/**
 * Passes the stored stream of an object, or of chunk @p chunk of a tensor, to @p sink: a file of
 * torch.save, decompressed if it is compressed. Its bytes are not changed, so that
 * dcp_state_stream() can save an object again whose class this library does not know.
 *
 * The whole stream is checked before the sink receives its first byte, as dcp_state_stream()
 * describes. In addition, a tensor's stream must have the chunk's dtype and shape, and the blocks
 * of files that this library wrote must match their checksums. The objects of a `.pt` file share
 * one pickle; each is encoded anew as a stream.
 *
 * The stream is read twice. Memory: some MiB if it is not compressed, otherwise as much as the
 * stream.
 * @param chunk 0 for objects.
 * @param options NULL: all defaults. #DCP_VERIFY_NONE leaves out the checksums of blocks; the other
 * checks are made in any case.
 * Errors: DCP_ERR_UNSUPPORTED for tensors that have no stream (safetensors, `.pt` files, ranges),
 * DCP_ERR_CHECKSUM, DCP_ERR_FORMAT, and the sink's.
 */
DCP_API dcp_status dcp_checkpoint_read_stream_sized(dcp_checkpoint *checkpoint, size_t entry,
                                                    size_t chunk, dcp_sink sink, void *context,
                                                    const dcp_read_options *options,
                                                    size_t options_size);

static inline dcp_status dcp_checkpoint_read_stream(dcp_checkpoint *checkpoint, size_t entry,
                                                    size_t chunk, dcp_sink sink, void *context,
                                                    const dcp_read_options *options)
{
    return dcp_checkpoint_read_stream_sized(checkpoint, entry, chunk, sink, context, options,
                                            sizeof *options);
}

/**
 * Encodes an object as torch.save does, with the same bytes as in shard files. dcp_object_decode()
 * is the reverse. Tensors inside the object are written with their elements. Tensors that a load
 * made views of one storage are written as views of one storage. Each tensor in the caller's memory
 * gets a separate storage.
 * @param value a leaf, or a container with its contents. Errors: as for saving the value, and the
 * sink's.
 */
DCP_API dcp_status dcp_object_encode(const dcp_state *value, dcp_sink sink, void *context);

/**
 * Encodes a tensor as torch.save does, with the same bytes as in shard files. If it is `sharded`,
 * its chunk is encoded as a tensor of the chunk's shape. Elements on a device are copied from
 * there. Memory: some MiB. Errors: as for saving the tensor, DCP_ERR_ARGUMENT if `data` is NULL,
 * and the sink's.
 */
DCP_API dcp_status dcp_tensor_encode_sized(const dcp_tensor *tensor, size_t tensor_size,
                                           dcp_sink sink, void *context);

static inline dcp_status dcp_tensor_encode(const dcp_tensor *tensor, dcp_sink sink, void *context)
{
    return dcp_tensor_encode_sized(tensor, sizeof *tensor, sink, context);
}

/**
 * Encodes the metadata as a `.metadata` file that PyTorch reads, for storage writers that keep it
 * elsewhere. Errors: DCP_ERR_UNSUPPORTED for a checkpoint without DCP streams (a `.pt` file,
 * safetensors), and the sink's.
 */
DCP_API dcp_status dcp_checkpoint_encode(const dcp_checkpoint *checkpoint, dcp_sink sink,
                                         void *context);

/** How bytes are decoded. All zero is the default. */
typedef struct dcp_decode_options {
    /** The most memory that the call may take, in bytes, with what it returns; 0: no limit. Beyond
     * it the result is DCP_ERR_NO_MEMORY. The bytes need not be trusted, and a few of them can
     * describe a value that takes much more. */
    uint64_t memory_limit;
} dcp_decode_options;

/**
 * Decodes a `.metadata` file, whose bytes need not be trusted. The checkpoint has metadata only.
 * @param options NULL: all defaults.
 * @param checkpoint owned by the caller, to be freed with dcp_checkpoint_close(). Reading data from
 * it is DCP_ERR_STATE.
 */
DCP_API dcp_status dcp_checkpoint_decode_sized(const void *bytes, size_t size,
                                               const dcp_decode_options *options,
                                               size_t options_size, dcp_checkpoint **checkpoint);

static inline dcp_status dcp_checkpoint_decode(const void *bytes, size_t size,
                                               const dcp_decode_options *options,
                                               dcp_checkpoint **checkpoint)
{
    return dcp_checkpoint_decode_sized(bytes, size, options, sizeof *options, checkpoint);
}

/**
 * Decodes the stored stream of an object and adds the value to @p parent under @p key (as when
 * building a tree). The bytes need not be trusted. @param options NULL: all defaults.
 */
DCP_API dcp_status dcp_object_decode_sized(const void *bytes, size_t size, dcp_state *parent,
                                           const char *key, const dcp_decode_options *options,
                                           size_t options_size);

static inline dcp_status dcp_object_decode(const void *bytes, size_t size, dcp_state *parent,
                                           const char *key, const dcp_decode_options *options)
{
    return dcp_object_decode_sized(bytes, size, parent, key, options, sizeof *options);
}

/** Options for owning a directory. All zero is the default. */
typedef struct dcp_owner_options {
    /** Where the path is (dcp/storage.h); NULL: in the file system. */
    const dcp_storage *storage;
    /** As dcp_save_options::takeover_seconds, with the same default for 0. */
    double takeover_seconds;
} dcp_owner_options;

/** A directory that no other process changes; see dcp_owner_take(). */
typedef struct dcp_owner dcp_owner;

/**
 * Owns a directory as a save does (@ref dcp_save_owner "one owner at a time"), for programs that
 * change a checkpoint's files by themselves: saves, copies, removals and repairs that begin there
 * meanwhile are #DCP_ERR_BUSY. The directory is created if it does not exist.
 * @param owner to be given up with dcp_owner_release(). NULL after a failure. Errors: DCP_ERR_BUSY
 * if another process owns the directory, DCP_ERR_ARGUMENT, DCP_ERR_KIND for a file, and the
 * storage's.
 */
DCP_API dcp_status dcp_owner_take_sized(const char *path, const dcp_owner_options *options,
                                        size_t options_size, dcp_owner **owner);

static inline dcp_status dcp_owner_take(const char *path, const dcp_owner_options *options,
                                        dcp_owner **owner)
{
    return dcp_owner_take_sized(path, options, sizeof *options, owner);
}

/** DCP_ERR_BUSY if another process has taken the directory over, because it took this one for dead:
 * to be called before a step that must not mix with what the other one does. */
DCP_API dcp_status dcp_owner_check(const dcp_owner *owner);

/** Removes the mark, and a directory that dcp_owner_take() created and that is still empty. Keeps
 * the thread's error. NULL is allowed. */
DCP_API void dcp_owner_release(dcp_owner *owner);

/** Options for removing a checkpoint. All zero is the default. */
typedef struct dcp_remove_options {
    /** Where the path is (dcp/storage.h); NULL: in the file system. */
    const dcp_storage *storage;
    /** As dcp_save_options::takeover_seconds, with the same default for 0. */
    double takeover_seconds;
    /** Called for each file in the directory that is not part of a checkpoint and therefore stays;
     * optional. */
    dcp_storage_visitor foreign;
    void *foreign_context;
} dcp_remove_options;

/** The result of dcp_checkpoint_remove(). */
typedef struct dcp_removal {
    uint64_t removed; /**< number of files that were removed */
    uint64_t foreign; /**< number of names that are not part of a checkpoint */
} dcp_removal;

/**
 * Removes the checkpoint in a directory: first `.metadata`, durably, then the metadata of single
 * ranks and `metadata.json`, then the shards, the extra files and files of interrupted saves. If
 * the call is interrupted, what is left is not a checkpoint, and another call removes it.
 *
 * Only files with names that saves use are removed. All others stay: other files, safetensors, and
 * subdirectories, including the members of a union, which are checkpoints themselves. If nothing is
 * left, the directory is removed too if the storage can do that (dcp_storage::remove_directory).
 * Directories above it stay, and so does a directory whose path ends in a symbolic link. A save
 * that begins there at the same time creates the directory again.
 *
 * The call owns the directory as a save does (dcp/save.h). If a save is running there, the result
 * is DCP_ERR_BUSY and nothing is removed; a stale mark is taken over. A process that has the
 * checkpoint open gets an error when it reads a removed file.
 *
 * @param removal receives the result, also after a failure; may be NULL. Errors: DCP_ERR_NOT_FOUND
 * if the directory does not exist or holds no part of a checkpoint, DCP_ERR_KIND for a file,
 * DCP_ERR_BUSY, and the storage's.
 */
DCP_API dcp_status dcp_checkpoint_remove_sized(const char *path, const dcp_remove_options *options,
                                               size_t options_size, dcp_removal *removal,
                                               size_t removal_size);

static inline dcp_status dcp_checkpoint_remove(const char *path, const dcp_remove_options *options,
                                               dcp_removal *removal)
{
    return dcp_checkpoint_remove_sized(path, options, sizeof *options, removal, sizeof *removal);
}

/**
 * Checks a whole checkpoint: every file exists and has the right length; the CRC-32 of every zip
 * record, the checksum of every block and that of `.metadata` match; what PyTorch reads there says
 * the same as what this library reads; chunks cover every tensor and do not overlap; extra files
 * are unchanged. In a union, each member is checked, then the whole. Data without checksums
 * (safetensors files, records without a CRC-32) has its lengths checked, and is logged
 * (DCP_LOG_INFO). Large checkpoints are read by several threads; the functions that are called are
 * called on the calling thread, with faults in the order of the files.
 *
 * @param path as for dcp_checkpoint_open(). Checkpoints that dcp_checkpoint_open() refuses are
 * checked as far as possible.
 * @param faults number of faults reported.
 * @return DCP_OK if the check was completed, with or without faults. Conditions that prevent the
 * check are not faults of the checkpoint, and end it: DCP_ERR_NO_MEMORY, DCP_ERR_FILE_LIMIT,
 * DCP_ERR_CANCELLED (dcp_open_options::progress).
 */
DCP_API dcp_status dcp_verify_sized(const char *path, const dcp_open_options *options,
                                    size_t options_size, dcp_fault_function report, void *context,
                                    uint64_t *faults);

static inline dcp_status dcp_verify(const char *path, const dcp_open_options *options,
                                    dcp_fault_function report, void *context, uint64_t *faults)
{
    return dcp_verify_sized(path, options, sizeof *options, report, context, faults);
}

#ifdef __cplusplus
}
#endif

#endif
