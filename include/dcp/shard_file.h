/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file shard_file.h
 * @brief Single shard files: writing one without a plan, reading the footers of the files in a
 * directory, and rebuilding `.metadata` from them.
 *
 * The shard files that this library writes end in a footer, which describes the file: names, paths,
 * dtypes, shapes, boxes, the position of each stream, checksums of all blocks, and the id of the
 * save. PyTorch ignores it. So a PyTorch storage writer can be built on a dcp_shard_writer (its
 * write_data() returns dcp_shard_writer_location() of each item), and a `.metadata` that was lost
 * or never written can be rebuilt.
 */
#ifndef DCP_SHARD_FILE_H
#define DCP_SHARD_FILE_H

#include "checkpoint.h"
#include "plan_item.h"
#include "save.h"
#include "storage.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Size of a save id in bytes, including the terminating NUL. */
#define DCP_SAVE_ID_SIZE 40

/** Makes a new save id, for several files that belong together. The id indicates that all files of
 * the save have footers, so that a file without one is detected. */
DCP_API dcp_status dcp_save_id_make(char id[DCP_SAVE_ID_SIZE]);

/* ---- writing one file ---- */

/** Writes one shard file. Threading: one thread at a time. */
typedef struct dcp_shard_writer dcp_shard_writer;

/** Options for writing a shard file. All zero is the default. */
typedef struct dcp_shard_writer_options {
    /** Where the directory is; NULL: in the file system. The table is copied; its context must stay
     * valid until dcp_shard_writer_free(). */
    const dcp_storage *storage;
    /** Text of less than #DCP_SAVE_ID_SIZE bytes, the same for all files of a save; NULL: a new
     * one. A reader refuses files whose id is not the one in `.metadata`. */
    const char *save_id;
    bool skip_sync; /**< as dcp_save_options::skip_sync */
    uint32_t io;    /**< of #dcp_io */
    dcp_compression compression;
    int32_t compression_level;   /**< as dcp_save_options::compression_level */
    int32_t compression_threads; /**< as dcp_save_options::compression_threads */
    uint64_t write_rate;         /**< maximum bytes per second; 0: no limit */
    int32_t io_threads;          /**< as dcp_save_options::io_threads */
    dcp_io_priority io_priority;
    /** Half of it is the deadline for earlier work of devices; 0 means 1800. */
    double timeout_seconds;
    /** As dcp_save_options::page_cache; #DCP_PAGE_CACHE_AUTO counts this file alone. */
    dcp_page_cache page_cache;
} dcp_shard_writer_options;

/** The name of an item. */
typedef struct dcp_shard_name {
    const char *name; /**< the FQN: UTF-8 */
    /** Its path in the nested state; NULL: the name is the only key. If PyTorch joined the FQN from
     * parts ("model.layer.w"), pass these parts, so that rebuilt metadata equals that of a save. */
    const dcp_path_part *path;
    size_t path_length;
} dcp_shard_name;

/**
 * Begins a shard file. The directory is created if it does not exist; the file is written by
 * dcp_shard_writer_seal(). The directory is not owned: the caller must make sure that no save
 * writes to it at the same time.
 * @param file without slashes, ending in ".distcp" ("__0_0.distcp").
 * @param options NULL: all defaults.
 * @param writer owned by the caller: dcp_shard_writer_free().
 */
DCP_API dcp_status dcp_shard_writer_open_sized(const char *directory, const char *file,
                                               const dcp_shard_writer_options *options,
                                               size_t options_size, dcp_shard_writer **writer);

static inline dcp_status dcp_shard_writer_open(const char *directory, const char *file,
                                               const dcp_shard_writer_options *options,
                                               dcp_shard_writer **writer)
{
    return dcp_shard_writer_open_sized(directory, file, options, sizeof *options, writer);
}

/**
 * Adds a tensor or a chunk of one. The elements are borrowed, and must not change until the file is
 * sealed. Everything else is copied. Errors: DCP_ERR_ARGUMENT; DCP_ERR_UNSUPPORTED for dtypes that
 * cannot be saved; DCP_ERR_STATE if the file is sealed. After a failure the item was not added;
 * others can be.
 */
DCP_API dcp_status dcp_shard_writer_add_tensor_sized(dcp_shard_writer *writer,
                                                     const dcp_shard_name *name,
                                                     const dcp_tensor *tensor, size_t tensor_size);

static inline dcp_status dcp_shard_writer_add_tensor(dcp_shard_writer *writer,
                                                     const dcp_shard_name *name,
                                                     const dcp_tensor *tensor)
{
    return dcp_shard_writer_add_tensor_sized(writer, name, tensor, sizeof *tensor);
}

/** Adds an object, which is encoded at once. Errors: as above, and DCP_ERR_UNSUPPORTED for values
 * that cannot be stored. */
DCP_API dcp_status dcp_shard_writer_add_object(dcp_shard_writer *writer, const dcp_shard_name *name,
                                               const dcp_state *object);

/** Adds an encoded object: the bytes of one torch.save() file, which are copied without a check. */
DCP_API dcp_status dcp_shard_writer_add_stream(dcp_shard_writer *writer, const dcp_shard_name *name,
                                               const void *bytes, size_t size);

/**
 * Adds any number of items in one call, for languages whose calls into C are slow.
 * @param bytes a packed list (dcp/packed.h) with two values for each item: its name, which is its
 * only key, as a string; and a tensor of one chunk, whose elements are borrowed as by
 * dcp_shard_writer_add_tensor(), or bytes, which are an encoded object as for
 * dcp_shard_writer_add_stream(). @param size in bytes.
 * Errors: DCP_ERR_FORMAT for what is no such list, DCP_ERR_UNSUPPORTED for a name with a NUL, and
 * those of the calls for single items. After a failure none of them was added; others can be.
 */
DCP_API dcp_status dcp_shard_writer_add_packed(dcp_shard_writer *writer, const void *bytes,
                                               size_t size);

/** @return number of items. */
DCP_API size_t dcp_shard_writer_count(const dcp_shard_writer *writer);

/** @return the save id of the file; borrowed from the writer. */
DCP_API const char *dcp_shard_writer_save_id(const dcp_shard_writer *writer);

/**
 * Writes the file: the streams in the layout of a save, with tensor data at multiples of 64 bytes
 * of the file, that of large tensors at multiples of 4096, and the footer. May be called once.
 * Errors: DCP_ERR_EXISTS if a file of that name exists, DCP_ERR_DUPLICATE for an object or box that
 * was added twice, or for chunks of one name that differ in dtype or shape; those of the storage.
 * After a failure there is no file.
 */
DCP_API dcp_status dcp_shard_writer_seal(dcp_shard_writer *writer);

/** Gets the location of item @p index, in the order of adding. `path` is the file's name, borrowed
 * from the writer. Errors: DCP_ERR_STATE before the file is sealed, DCP_ERR_ARGUMENT. */
DCP_API dcp_status dcp_shard_writer_location_sized(const dcp_shard_writer *writer, size_t index,
                                                   dcp_storage_location *location,
                                                   size_t location_size);

static inline dcp_status dcp_shard_writer_location(const dcp_shard_writer *writer, size_t index,
                                                   dcp_storage_location *location)
{
    return dcp_shard_writer_location_sized(writer, index, location, sizeof *location);
}

/** Gets the locations of all items in one call. @param places filled with two numbers for each
 * item, in the order of adding: offset and length of its stream, in bytes. @param count of items,
 * which must be dcp_shard_writer_count(). Errors: DCP_ERR_STATE before the file is sealed,
 * DCP_ERR_ARGUMENT. */
DCP_API dcp_status dcp_shard_writer_locations(const dcp_shard_writer *writer, uint64_t *places,
                                              size_t count);

/** @return bytes of the sealed file, footer included; 0 before. */
DCP_API uint64_t dcp_shard_writer_file_size(const dcp_shard_writer *writer);

/** Removes the file if it was sealed, and the directory if dcp_shard_writer_open() created it and
 * it is empty. After that the writer can only be freed. NULL is allowed. */
DCP_API void dcp_shard_writer_abandon(dcp_shard_writer *writer);

/** Frees a writer. A sealed file stays; one that was not sealed is not written. NULL is allowed. */
DCP_API void dcp_shard_writer_free(dcp_shard_writer *writer);

/* ---- the footers of a directory ---- */

/** The shard files of a directory and the contents of their footers. Threading: any number of
 * threads may read at the same time. */
typedef struct dcp_shard_list dcp_shard_list;

/** One shard file. Pointers are borrowed from the list. */
typedef struct dcp_shard_info {
    const char *file; /**< its name */
    uint64_t size;    /**< in bytes */
    /** DCP_OK; DCP_ERR_NOT_FOUND: it has no footer (a file of PyTorch), or it was truncated;
     * DCP_ERR_FOREIGN: the footer belongs to a file of another name; other values: what is wrong
     * with it. */
    dcp_status status;
    const char *problem; /**< the message of `status`; "" for DCP_OK */
    const char *save_id; /**< "" without a valid footer; `item_count` is then 0 */
    size_t item_count;
    size_t stream_count; /**< without a valid footer, with dcp_shard_list_options::streams */
} dcp_shard_info;

/** A stream in a shard file without a footer, as it describes itself: it has no name. Or bytes that
 * belong to none. Pointers are borrowed from the list. */
typedef struct dcp_shard_stream {
    uint64_t offset;     /**< first byte in the file */
    uint64_t length;     /**< bytes as stored */
    const char *problem; /**< "": a stream; else why these bytes are none, and no more is known */
    bool compressed;     /**< the stream is compressed with zstd */
    bool is_tensor;      /**< else an object, which was not decoded */
    dcp_dtype dtype;     /**< tensors, as what follows */
    int32_t ndim;
    const int64_t *sizes;   /**< of the chunk; nothing says of which tensor it is one */
    const int64_t *strides; /**< in elements, in the stored storage */
} dcp_shard_stream;

/** One chunk or object in a shard file. Pointers are borrowed from the list. */
typedef struct dcp_shard_item {
    const char *name;
    const dcp_path_part *path; /**< `path_length` parts */
    size_t path_length;
    bool is_tensor;     /**< else an object */
    bool requires_grad; /**< tensors, as what follows to `sizes` */
    dcp_dtype dtype;
    int32_t ndim;
    const int64_t *global_shape;
    const int64_t *offsets; /**< of the chunk's box; NULL for objects */
    const int64_t *sizes;
    uint64_t offset; /**< first byte of the stream in the file */
    uint64_t length; /**< bytes of the stream as stored */
    bool compressed; /**< the stream is compressed with zstd */
} dcp_shard_item;

/** Where shard files are listed. All zero is the default. */
typedef struct dcp_shard_list_options {
    const dcp_storage *storage; /**< where the directory is; NULL: in the file system. Copied */
    /** Look for streams in files without a valid footer, as PyTorch writes them. Reads little of
     * tensors, but all of a file that is damaged. */
    bool streams;
} dcp_shard_list_options;

/**
 * Reads the footers of all files "*.distcp" in a directory. The data is not read; dcp_verify()
 * checks it. A file without a valid footer is listed with the problem. Symbolic links are not
 * followed.
 * @param options NULL: all defaults.
 * @param list owned by the caller: dcp_shard_list_free().
 */
DCP_API dcp_status dcp_shard_list_read_sized(const char *directory,
                                             const dcp_shard_list_options *options,
                                             size_t options_size, dcp_shard_list **list);

static inline dcp_status dcp_shard_list_read(const char *directory,
                                             const dcp_shard_list_options *options,
                                             dcp_shard_list **list)
{
    return dcp_shard_list_read_sized(directory, options, sizeof *options, list);
}

/** @return number of files. They are sorted by rank and name. */
DCP_API size_t dcp_shard_list_count(const dcp_shard_list *list);

/** Describes a file. Errors: DCP_ERR_ARGUMENT. */
DCP_API dcp_status dcp_shard_list_file_sized(const dcp_shard_list *list, size_t file,
                                             dcp_shard_info *info, size_t info_size);

static inline dcp_status dcp_shard_list_file(const dcp_shard_list *list, size_t file,
                                             dcp_shard_info *info)
{
    return dcp_shard_list_file_sized(list, file, info, sizeof *info);
}

/** Describes an item of a file. Errors: DCP_ERR_ARGUMENT. */
DCP_API dcp_status dcp_shard_list_item_sized(const dcp_shard_list *list, size_t file, size_t index,
                                             dcp_shard_item *item, size_t item_size);

static inline dcp_status dcp_shard_list_item(const dcp_shard_list *list, size_t file, size_t index,
                                             dcp_shard_item *item)
{
    return dcp_shard_list_item_sized(list, file, index, item, sizeof *item);
}

/** Describes a stream of a file without a footer. They are in the order of the file. Errors:
 * DCP_ERR_ARGUMENT. */
DCP_API dcp_status dcp_shard_list_stream_sized(const dcp_shard_list *list, size_t file,
                                               size_t index, dcp_shard_stream *stream,
                                               size_t stream_size);

static inline dcp_status dcp_shard_list_stream(const dcp_shard_list *list, size_t file,
                                               size_t index, dcp_shard_stream *stream)
{
    return dcp_shard_list_stream_sized(list, file, index, stream, sizeof *stream);
}

DCP_API void dcp_shard_list_free(dcp_shard_list *list);

/* ---- rebuilding the metadata ---- */

/** Options for rebuilding metadata. All zero is the default. */
typedef struct dcp_rebuild_options {
    /** The save whose files are used; NULL: the complete save of the latest generation, by file
     * names. Two complete saves of the same generation are DCP_ERR_DUPLICATE. */
    const char *save_id;
    /** Number of files of the save; 0: not known. */
    size_t file_count;
    /** A gap in the ranks R or numbers N of the names "__R_N.distcp" means that a file is missing;
     * otherwise the loss of data that only this file had would not be noticed. True: gaps are
     * accepted, because ranks had nothing to write. */
    bool allow_gaps;
    dcp_fault_function report; /**< called for each fault of each save that is tried; optional */
    void *report_context;
    /** Another checkpoint of the same job, whose names, shapes and places hold here too, because
     * the same ranks saved the same state in the same way: for files without footers, which say no
     * names. The list must have been read with dcp_shard_list_options::streams. Of each tensor all
     * streams are there, at the same places and as long, with its dtype and the shapes of its
     * chunks, and objects can be decoded; anything else is a fault. Two tensors that are alike, and
     * have changed places, cannot be told apart. The options above are not used, and a file with a
     * valid footer is DCP_ERR_STATE. Borrowed for the call. */
    const dcp_checkpoint *like;
    /** With `like`: tensors and objects with a fault are left out, if any other is there. False:
     * the first fault is the result. */
    bool leave_out;
} dcp_rebuild_options;

/**
 * Makes a checkpoint from the footers of one save, which can be read, encoded
 * (dcp_checkpoint_encode()) and published. Files of other saves, and files without a valid footer,
 * are ignored. The rebuilt metadata lacks everything that footers do not contain: planner data
 * other than paths, the fields of storage_meta other than the save id, `metadata.json`, and extra
 * files. The loss of a tensor or object that only lost files had cannot be detected by its name;
 * see dcp_rebuild_options::file_count and allow_gaps.
 *
 * Errors: DCP_ERR_COVERAGE, with the tensor, a box that no file holds, and the number of missing
 * elements; DCP_ERR_NOT_FOUND if no file belongs to the save, or one is missing; DCP_ERR_FORMAT,
 * DCP_ERR_OVERLAP and others for files that contradict each other.
 * @param checkpoint owned by the caller: dcp_checkpoint_close(). Does not need the list.
 */
DCP_API dcp_status dcp_shard_list_rebuild_sized(const dcp_shard_list *list,
                                                const dcp_rebuild_options *options,
                                                size_t options_size, dcp_checkpoint **checkpoint);

static inline dcp_status dcp_shard_list_rebuild(const dcp_shard_list *list,
                                                const dcp_rebuild_options *options,
                                                dcp_checkpoint **checkpoint)
{
    return dcp_shard_list_rebuild_sized(list, options, sizeof *options, checkpoint);
}

/** Options for publishing metadata. All zero is the default. */
typedef struct dcp_publish_options {
    const dcp_storage *storage; /**< where the directory is; NULL: in the file system */
    dcp_overwrite overwrite;    /**< whether an existing `.metadata` is replaced */
    bool skip_sync;             /**< as dcp_save_options::skip_sync */
    double takeover_seconds;    /**< as dcp_save_options::takeover_seconds */
    /** Extra files to write (dcp_save_options::extra_files), in addition to those of the
     * checkpoint, which are in the directory. A name that the checkpoint already has is
     * DCP_ERR_DUPLICATE. They are stored as files of rank 0. Extra files of replaced metadata stay
     * only if they are named. */
    const dcp_extra_file *extra_files;
    size_t extra_file_count;
} dcp_publish_options;

/**
 * Publishes a checkpoint's metadata as the `.metadata` of a directory, atomically. This makes the
 * shard files there a checkpoint. The call owns the directory as a save does. Errors:
 * DCP_ERR_EXISTS if there is one, DCP_ERR_BUSY if a save is running there, DCP_ERR_UNSUPPORTED as
 * dcp_checkpoint_encode(), and those of the storage.
 */
DCP_API dcp_status dcp_checkpoint_publish_sized(const dcp_checkpoint *checkpoint,
                                                const char *directory,
                                                const dcp_publish_options *options,
                                                size_t options_size);

static inline dcp_status dcp_checkpoint_publish(const dcp_checkpoint *checkpoint,
                                                const char *directory,
                                                const dcp_publish_options *options)
{
    return dcp_checkpoint_publish_sized(checkpoint, directory, options, sizeof *options);
}

#ifdef __cplusplus
}
#endif

#endif
