/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file checkpoint.h
 * @brief A view of a stored checkpoint: what is in it, and random access to it without a state
 * tree.
 */
#ifndef DCP_CHECKPOINT_H
#define DCP_CHECKPOINT_H

#include "load.h"
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
    size_t chunk_count;          /**< stored pieces; 1 for objects */
    bool requires_grad;          /**< tensors; informative */
} dcp_entry;

/** Where one stored piece lies. All pointers are borrowed from the checkpoint. */
typedef struct dcp_stored_chunk {
    const int64_t *offsets; /**< tensors: the box; NULL for objects */
    const int64_t *sizes;
    const char *file; /**< relative to the checkpoint's directory, or an absolute member's file */
    uint64_t offset;  /**< first byte of the stream in the file */
    uint64_t length;  /**< bytes of the stream as stored */

    /** How a tensor of a `.pt` file lies in its storage, which begins at `offset`: tensors for
     * which `file` and `offset` are the same share it. NULL, as what follows is 0, in other forms.
     */
    const int64_t *strides;
    int64_t storage_offset; /**< of the first element, in elements */
    uint64_t storage_bytes; /**< of the whole storage */
    bool altered; /**< the elements are other than the storage's bytes: big-endian, or to be
                     conjugated or negated */
} dcp_stored_chunk;

/** How a checkpoint is opened or verified. All zero is the sensible default. */
typedef struct dcp_open_options {
    /** Where the path is (dcp/storage.h); NULL: in the file system. */
    const dcp_storage *storage;
    /** Several directories whose union is the checkpoint: see dcp_load_options::members. What
     * several members hold is compared, which reads it, but for tensors whose records carry
     * checksums. Members that do not begin with "/" are relative to the path. */
    const char *const *members;
    size_t member_count;
} dcp_open_options;

/** Opens what dcp_load() can load: reads and checks the metadata, not the data. The directory is
 * opened once: what is read later is read from that one, wherever the process goes and whatever
 * comes to be at the path; only the members of a union that the options name are opened by their
 * paths, absolute since this call, when something in them is read. @param options
 * NULL: all defaults. @param checkpoint owned by the caller. */
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
 * Describes several entries in one call, for callers whose calls are slow (Python).
 * @param entries room for @p count of them, each of @p entry_size bytes. After a failure some may
 * be filled in.
 * Errors: DCP_ERR_ARGUMENT if there are not so many.
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
 * @return what a custom save planner has stored for all of the checkpoint (PyTorch's
 * Metadata.planner_data), as an object; borrowed from the checkpoint. NULL if there is nothing, as
 * for unions, or nothing but the paths that PyTorch and this library store there, which are
 * dcp_entry::path.
 */
DCP_API const dcp_state *dcp_checkpoint_planner_data(const dcp_checkpoint *checkpoint);

/** Describes stored piece @p chunk of entry @p entry. */
DCP_API dcp_status dcp_checkpoint_chunk_sized(const dcp_checkpoint *checkpoint, size_t entry,
                                              size_t chunk, dcp_stored_chunk *stored,
                                              size_t stored_size);

static inline dcp_status dcp_checkpoint_chunk(const dcp_checkpoint *checkpoint, size_t entry,
                                              size_t chunk, dcp_stored_chunk *stored)
{
    return dcp_checkpoint_chunk_sized(checkpoint, entry, chunk, stored, sizeof *stored);
}

/** What `metadata.json` says of the save that made a checkpoint. */
typedef struct dcp_save_info {
    bool found;    /**< there is one of this save; else what follows but `stale` is all zero */
    bool stale;    /**< there is one, but of another save, which was interrupted, say: ignored */
    bool has_step; /**< the save was given dcp_save_options::step */
    bool has_info; /**< and dcp_save_options::info */
    int64_t step;
    int64_t unix_time;   /**< when the checkpoint was saved, in seconds; 0: unknown */
    int32_t world_size;  /**< ranks that saved; 0: unknown */
    const char *save_id; /**< borrowed from the checkpoint; also if nothing was found; NULL: the
                            checkpoint has none */
} dcp_save_info;

/**
 * Reads dcp_save_options::step and dcp_save_options::info back from `metadata.json`. Checkpoints of
 * PyTorch, unions and other forms have no such file: then nothing is found, which is no error.
 *
 * Info comes back as dcp_state_to_json() wrote it: ints of up to 4096 digits and floats are what
 * they were, also those that are not finite; tuples are lists; what JSON lacks otherwise stays a
 * dict whose first key starts with "$".
 *
 * @param parent info is added to it under @p key, as when building a tree, if there is any. NULL:
 * it is not wanted.
 * Errors: DCP_ERR_FORMAT if the file is there and cannot be read as such a text (at most 16 MiB,
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

/** An extra file of a checkpoint (dcp_save_options::extra_files). Texts are borrowed from it. */
typedef struct dcp_extra_file_info {
    const char *name; /**< of a union "MEMBER/NAME" */
    const char *file; /**< that holds it, relative to the checkpoint's directory */
    uint64_t size;    /**< in bytes */
    uint64_t xxh3;    /**< XXH3 (64 bits) of its bytes */
} dcp_extra_file_info;

/** @return number of extra files: of all ranks, and of a union of all members. */
DCP_API size_t dcp_checkpoint_extra_file_count(const dcp_checkpoint *checkpoint);

/** Describes extra file @p index, by ranks. Errors: DCP_ERR_ARGUMENT. */
DCP_API dcp_status dcp_checkpoint_extra_file_sized(const dcp_checkpoint *checkpoint, size_t index,
                                                   dcp_extra_file_info *info, size_t info_size);

static inline dcp_status dcp_checkpoint_extra_file(const dcp_checkpoint *checkpoint, size_t index,
                                                   dcp_extra_file_info *info)
{
    return dcp_checkpoint_extra_file_sized(checkpoint, index, info, sizeof *info);
}

/** Finds an extra file by its name. Ranks that have saved without_collectives may have given the
 * same name, which dcp_verify() reports: then the lowest rank's is found. Errors:
 * DCP_ERR_NOT_FOUND. */
DCP_API dcp_status dcp_checkpoint_find_extra_file(const dcp_checkpoint *checkpoint,
                                                  const char *name, size_t *index);

/**
 * Reads an extra file as a whole, and checks it.
 * @param bytes gets dcp_extra_file_info::size bytes, which @p size must be.
 * Errors: DCP_ERR_ARGUMENT, DCP_ERR_CHECKSUM, DCP_ERR_FORMAT if the file has another size,
 * DCP_ERR_NOT_FOUND, DCP_ERR_BUSY if the checkpoint was replaced meanwhile, and those of the
 * storage. After a failure the bytes mean nothing.
 */
DCP_API dcp_status dcp_checkpoint_read_extra_file(dcp_checkpoint *checkpoint, size_t index,
                                                  void *bytes, size_t size);

/** How a tensor is read or mapped. All zero is the sensible default. */
typedef struct dcp_read_options {
    dcp_verification verification;
    /** As dcp_load_options::convert: elements are converted between any two real dtypes, as PyTorch
     * does it. Otherwise, and for complex and packed dtypes (#DCP_F4_E2M1FN_X2) in any case, a
     * destination of another dtype than the entry's is DCP_ERR_DTYPE. */
    bool convert;
} dcp_read_options;

/**
 * Reads any box of a tensor into memory. Ndim and global_shape of @p destination must be the
 * entry's, and its dtype, too, unless elements are to be converted; the rest is as for a tensor to
 * load. Without `sharded`, the whole tensor is read.
 *
 * What is checked is as for a load (dcp_verification): of files that this library wrote, every
 * block of 4 KiB that the box lies in. Of a compressed chunk all is decompressed, in bounded
 * memory, and checked when a box of it is read. The chunks that were read last, up to eight, stay
 * open until dcp_checkpoint_close(), with the windows of their frames (2 MiB each as a rule):
 * reading on behind the box that was read before goes on there, without beginning anew.
 *
 * @param options NULL: all defaults.
 * Errors: DCP_ERR_KIND for objects, DCP_ERR_SHAPE, DCP_ERR_DTYPE (dcp_read_options::convert),
 * DCP_ERR_CHECKSUM, DCP_ERR_FORMAT, DCP_ERR_IO and others. When the failure came while reading, the
 * destination may be changed.
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
 * Reads of the storage that a tensor of a `.pt` file is a view of, whatever tensors see of it.
 * @param first, count elements of the entry's dtype, from the beginning of the storage; there are
 * dcp_stored_chunk::storage_bytes of it. Errors: DCP_ERR_UNSUPPORTED for other forms and for a
 * storage that is `altered`, DCP_ERR_ARGUMENT beyond its end, and those of
 * dcp_checkpoint_read_tensor().
 */
DCP_API dcp_status dcp_checkpoint_read_storage(dcp_checkpoint *checkpoint, size_t entry,
                                               int64_t first, int64_t count, void *elements);

/** A stored chunk in memory; see dcp_checkpoint_map_chunk(). */
typedef struct dcp_mapping dcp_mapping;

/** What a mapping shows. All pointers are borrowed from it. */
typedef struct dcp_mapped_chunk {
    const void *data; /**< the chunk's first element; NULL if it has none. Read-only */
    size_t bytes;     /**< from there to the end of its last element */
    size_t alignment; /**< of `data`: a power of two up to 4096; less than an element's own size
                         in some files of PyTorch, so that elements must be copied out */
    const int64_t *offsets; /**< the chunk's box in the tensor, `ndim` values as all of these */
    const int64_t *sizes;
    const int64_t *strides; /**< of `data`, in elements; row-major in what this library writes */
} dcp_mapped_chunk;

/**
 * Maps a stored chunk's elements into memory, without copying them: pages are read from the file
 * when they are touched, and shared with other processes.
 *
 * Only what lies in the file as it is can be mapped: a chunk that is compressed, stored big-endian,
 * or to be conjugated or negated on the way is DCP_ERR_UNSUPPORTED; dcp_checkpoint_read_tensor()
 * reads those. So is a file system without such a way.
 *
 * A file that is cut short while it is mapped, or whose disk fails, ends the process with SIGBUS
 * when the lost pages are touched: that is how mappings work. Map what nobody else changes.
 *
 * @param options NULL: all defaults. With DCP_VERIFY_NONE nothing beyond the chunk's head is read.
 * Otherwise all of the chunk is read once and checked against the checksums that the file has for
 * it, before this returns. dcp_read_options::convert is DCP_ERR_ARGUMENT: a mapping shows elements
 * as they are stored.
 * @param mapping owned by the caller, dcp_mapping_free(). It stays valid when the checkpoint is
 * closed and when the file is replaced by a later save.
 * Errors: DCP_ERR_KIND for objects, DCP_ERR_ARGUMENT, DCP_ERR_CHECKSUM, DCP_ERR_FORMAT, DCP_ERR_IO
 * and others.
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

/** Ends a mapping. NULL is fine. */
DCP_API void dcp_mapping_free(dcp_mapping *mapping);

/** Reads an object and adds it to @p parent under @p key (as when building a tree). */
DCP_API dcp_status dcp_checkpoint_read_object(dcp_checkpoint *checkpoint, size_t entry,
                                              dcp_state *parent, const char *key);

/**
 * Gives the stream that an object, or chunk @p chunk of a tensor, is stored as: a file of
 * torch.save, decompressed if it is compressed. It is the same byte by byte, whatever is in it, so
 * that dcp_state_stream() can save an object again of which this library knows nothing.
 *
 * All of it is checked before the sink sees its first byte, as dcp_state_stream() says; blocks of
 * files that this library wrote are checked as they are read, and that a tensor's stream is of the
 * chunk's dtype and shape is, too. An object of a `.pt` file, where all share one pickle, gets a
 * stream of its own.
 *
 * It is read twice for that. Memory: some MiB for one that is not compressed, else as much as the
 * stream.
 * @param chunk 0 for objects.
 * Errors: DCP_ERR_UNSUPPORTED for tensors that have no stream (safetensors, `.pt` files),
 * DCP_ERR_CHECKSUM, DCP_ERR_FORMAT, and the sink's.
 */
DCP_API dcp_status dcp_checkpoint_read_stream(dcp_checkpoint *checkpoint, size_t entry,
                                              size_t chunk, dcp_sink sink, void *context);

/**
 * Gives the bytes that torch.save would make of an object, the same as in shard files.
 * dcp_object_decode() is the reverse. Tensors inside of it are written with their elements; those
 * that a load made views of one storage are views of one storage again, which is written once. Of
 * tensors in the caller's memory each has a storage of its own.
 * @param value anything that is one object: a leaf, or a container with all that is in it.
 * Errors: as for saving the value, and the sink's.
 */
DCP_API dcp_status dcp_object_encode(const dcp_state *value, dcp_sink sink, void *context);

/**
 * Gives the bytes that torch.save would make of a tensor, the same as in shard files: of one that
 * is `sharded` its chunk, as a tensor of the chunk's shape. Elements on a device are copied from
 * there. Memory: some MiB.
 * Errors: as for saving it, DCP_ERR_ARGUMENT if it has no memory, and the sink's.
 */
DCP_API dcp_status dcp_tensor_encode_sized(const dcp_tensor *tensor, size_t tensor_size,
                                           dcp_sink sink, void *context);

static inline dcp_status dcp_tensor_encode(const dcp_tensor *tensor, dcp_sink sink, void *context)
{
    return dcp_tensor_encode_sized(tensor, sizeof *tensor, sink, context);
}

/**
 * Gives the bytes of the checkpoint's `.metadata`, as PyTorch reads it, for storages that keep it
 * in a place of their own. Errors: DCP_ERR_UNSUPPORTED for a checkpoint that is not made of DCP
 * streams (a `.pt` file, safetensors), and the sink's.
 */
DCP_API dcp_status dcp_checkpoint_encode(const dcp_checkpoint *checkpoint, dcp_sink sink,
                                         void *context);

/**
 * The reverse: metadata without a storage, from the bytes of a `.metadata`, which may be hostile.
 * @param checkpoint owned by the caller, to be freed with dcp_checkpoint_close(). Reading data from
 * it is DCP_ERR_STATE.
 */
DCP_API dcp_status dcp_checkpoint_decode(const void *bytes, size_t size,
                                         dcp_checkpoint **checkpoint);

/** How a checkpoint is removed. All zero is the sensible default. */
typedef struct dcp_remove_options {
    /** Where the path is (dcp/storage.h); NULL: in the file system. */
    const dcp_storage *storage;
    /** As dcp_save_options::takeover_seconds: 0 means the same. */
    double takeover_seconds;
    /** Called with each name in the directory that is not a checkpoint's and stays; optional. */
    dcp_storage_visitor foreign;
    void *foreign_context;
} dcp_remove_options;

/** What dcp_checkpoint_remove() has done. */
typedef struct dcp_removal {
    uint64_t removed; /**< files that were removed */
    uint64_t foreign; /**< names that are no checkpoint's */
} dcp_removal;

/**
 * Removes the checkpoint that a directory holds: `.metadata` first and durably, then metadata of
 * single ranks and `metadata.json`, and after these the shards, extra files and what interrupted
 * saves have left.
 * If it is interrupted, no whole checkpoint is left, and another call removes the rest.
 *
 * Only files with the names that saves give them are removed. All others stay: other files,
 * safetensors, and subdirectories, those of a union's members among them, which are checkpoints by
 * themselves. If nothing stays, the directory goes as well, where the storage can remove one
 * (dcp_storage::remove_directory), but not those above it, nor one whose path ends in a symbolic
 * link. A save that begins there at that moment makes it anew.
 *
 * The directory is owned meanwhile, as by a save (dcp/save.h): if a save is going on there, the
 * result is DCP_ERR_BUSY and nothing is removed; a stale mark is taken over. Whoever has the
 * checkpoint open finds out when a file is missing.
 *
 * @param removal what was done, also after a failure; may be NULL.
 * Errors: DCP_ERR_NOT_FOUND if there is no such directory or nothing of a checkpoint in it,
 * DCP_ERR_KIND for a file, DCP_ERR_BUSY, and the storage's.
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
 * Checks a whole checkpoint: every file there, every length right, every zip record's CRC-32 and
 * every footer block right, every tensor completely covered and nothing overlapping, every extra
 * file as it was saved. Of a union:
 * each member by itself, and then what they are together. What has no checksum (safetensors files,
 * records without a CRC-32) has its lengths checked, and is logged (DCP_LOG_INFO).
 *
 * @param path as for dcp_checkpoint_open(); also checkpoints that dcp_checkpoint_open() refuses are
 * checked as far as possible.
 * @param faults number of faults reported.
 * @return DCP_OK when the check could be made, whatever it found. What keeps it from being made is
 * no fault of the checkpoint, and ends it: DCP_ERR_NO_MEMORY, DCP_ERR_FILE_LIMIT.
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
