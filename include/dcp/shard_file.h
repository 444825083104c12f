/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file shard_file.h
 * @brief Shard files one by one: writing one without a plan, seeing what the files of a directory
 * say of themselves, and rebuilding `.metadata` from that.
 *
 * The shard files that this library writes end in a footer, which says what is in the file: names,
 * paths, dtypes, shapes, boxes, where each stream lies, checksums of all blocks, and the id of the
 * save. PyTorch does not look there. So a PyTorch storage writer can be built on a dcp_shard_writer
 * (its write_data() returns dcp_shard_writer_location() of each item), and a checkpoint whose
 * `.metadata` was lost, or never written, can be put together again.
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

/** Bytes of a save id, the NUL at its end among them. */
#define DCP_SAVE_ID_SIZE 40

/** Makes a new save id, for several files that belong together. It says that all files of the save
 * have footers, so that a file that has lost its own is noticed. */
DCP_API dcp_status dcp_save_id_make(char id[DCP_SAVE_ID_SIZE]);

/* ---- writing one file ---- */

/** One shard file that is being made. Threading: one thread at a time. */
typedef struct dcp_shard_writer dcp_shard_writer;

/** How a shard file is written. All zero is the default. */
typedef struct dcp_shard_writer_options {
    /** Where the directory is; NULL: in the file system. The table is copied; what its context
     * points to stays until dcp_shard_writer_free(). */
    const dcp_storage *storage;
    /** Text of less than #DCP_SAVE_ID_SIZE bytes, the same for all files of a save; NULL: a new
     * one. A reader refuses files whose id is not the one in `.metadata`. */
    const char *save_id;
    bool skip_sync; /**< as dcp_save_options::skip_sync */
    uint32_t io;    /**< of #dcp_io */
    dcp_compression compression;
    int32_t compression_level;   /**< as dcp_save_options::compression_level */
    int32_t compression_threads; /**< as dcp_save_options::compression_threads */
    uint64_t write_rate;         /**< bytes per second at most; 0: any number */
    int32_t io_threads;          /**< as dcp_save_options::io_threads */
    dcp_io_priority io_priority;
    /** Half of it is how long what devices had to do before is waited for; 0 means 1800. */
    double timeout_seconds;
    /** As dcp_save_options::page_cache; #DCP_PAGE_CACHE_AUTO counts this file alone. */
    dcp_page_cache page_cache;
} dcp_shard_writer_options;

/** What an item is called. */
typedef struct dcp_shard_name {
    const char *name; /**< the FQN: UTF-8 */
    /** Where it is in the nested state; NULL: the name is the only key. Where the FQN of PyTorch
     * was joined from parts ("model.layer.w"), the parts make the rebuilt metadata equal to that of
     * a save. */
    const dcp_path_part *path;
    size_t path_length;
} dcp_shard_name;

/**
 * Begins a shard file. The directory is made if it is not there; nothing is written before
 * dcp_shard_writer_seal(). Nobody owns the directory meanwhile: whoever writes single files sees to
 * it that no save writes to the same directory.
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
 * Adds a chunk of a tensor, or the whole of one. The elements are borrowed: they stay, and do not
 * change, until the file is sealed. All else is copied.
 * Errors: DCP_ERR_ARGUMENT; DCP_ERR_UNSUPPORTED for dtypes that cannot be saved; DCP_ERR_STATE when
 * the file is sealed. After a failure the item is not there, and others can be added.
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

/** Adds an object, which is encoded at once. Errors as above, and those of values that have no form
 * in a checkpoint. */
DCP_API dcp_status dcp_shard_writer_add_object(dcp_shard_writer *writer, const dcp_shard_name *name,
                                               const dcp_state *object);

/** Adds an object that is encoded already: the bytes of one torch.save() file, which are copied and
 * not looked at. */
DCP_API dcp_status dcp_shard_writer_add_stream(dcp_shard_writer *writer, const dcp_shard_name *name,
                                               const void *bytes, size_t size);

/** @return number of items. */
DCP_API size_t dcp_shard_writer_count(const dcp_shard_writer *writer);

/** @return the save id of the file; borrowed from the writer. */
DCP_API const char *dcp_shard_writer_save_id(const dcp_shard_writer *writer);

/**
 * Writes the file: the streams as a save lays them out, data of tensors at multiples of 64 bytes of
 * the file, that of large ones at multiples of 4096, and the footer. Once only.
 * Errors: DCP_ERR_EXISTS if there is a file of that name, DCP_ERR_DUPLICATE for an object or box
 * that was added twice, or for chunks of one name that differ in dtype or shape; those of the
 * storage. After a failure there is no file.
 */
DCP_API dcp_status dcp_shard_writer_seal(dcp_shard_writer *writer);

/** Tells where item @p index lies, in the order of adding. `path` is the file's name, borrowed from
 * the writer. Errors: DCP_ERR_STATE before the file is sealed, DCP_ERR_ARGUMENT. */
DCP_API dcp_status dcp_shard_writer_location_sized(const dcp_shard_writer *writer, size_t index,
                                                   dcp_storage_location *location,
                                                   size_t location_size);

static inline dcp_status dcp_shard_writer_location(const dcp_shard_writer *writer, size_t index,
                                                   dcp_storage_location *location)
{
    return dcp_shard_writer_location_sized(writer, index, location, sizeof *location);
}

/** @return bytes of the sealed file, footer included; 0 before. */
DCP_API uint64_t dcp_shard_writer_file_size(const dcp_shard_writer *writer);

/** Removes the file if it was sealed, and the directory if dcp_shard_writer_open() made it and it
 * is empty. Then the writer can only be freed. NULL is allowed. */
DCP_API void dcp_shard_writer_abandon(dcp_shard_writer *writer);

/** Ends a writer. A file that was not sealed is not there; one that was sealed stays. NULL is
 * allowed. */
DCP_API void dcp_shard_writer_free(dcp_shard_writer *writer);

/* ---- what the files of a directory say ---- */

/** The shard files of a directory and what their footers say. Threading: any number of threads may
 * look at the same time. */
typedef struct dcp_shard_list dcp_shard_list;

/** One shard file. Pointers are borrowed from the list. */
typedef struct dcp_shard_info {
    const char *file; /**< its name */
    uint64_t size;    /**< in bytes */
    /** DCP_OK; DCP_ERR_NOT_FOUND: it has no footer, as PyTorch writes files, or it was cut short;
     * DCP_ERR_FOREIGN: the footer is that of a file of another name; else what is wrong with it. */
    dcp_status status;
    const char *problem; /**< the message of `status`; "" for DCP_OK */
    const char *save_id; /**< "" without a good footer, as what follows */
    size_t item_count;
} dcp_shard_info;

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
} dcp_shard_list_options;

/**
 * Reads the footers of all files "*.distcp" in a directory. Data is not read; dcp_verify() checks
 * that. A file that has no good footer is listed with what is wrong with it. No symbolic link is
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

/** @return number of files, by rank and name. */
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

DCP_API void dcp_shard_list_free(dcp_shard_list *list);

/* ---- rebuilding the metadata ---- */

/** What is to be rebuilt. All zero is the default. */
typedef struct dcp_rebuild_options {
    /** The save whose files count; NULL: the complete one of the latest generation, as file names
     * tell it. Two complete ones of the same generation are DCP_ERR_DUPLICATE. */
    const char *save_id;
    /** Files that the save is known to have; 0: not known. */
    size_t file_count;
    /** Of "__R_N.distcp", a missing rank R or number N below others means that a file is missing:
     * what lay only there would not be noticed otherwise. True: such gaps are accepted, as they are
     * where ranks had nothing to write. */
    bool allow_gaps;
    dcp_fault_function report; /**< is given each fault of each save that is tried; NULL: nobody */
    void *report_context;
} dcp_rebuild_options;

/**
 * Unites what the footers of one save say into a checkpoint that can be read, encoded
 * (dcp_checkpoint_encode()) and published. Files of other saves, and those without a good footer,
 * are left alone. What is not in footers is not in the rebuilt metadata either: planner data other
 * than paths, the fields of storage_meta other than the save id, `metadata.json`, extra files. A
 * tensor or object that lay in lost files alone cannot be noticed by its name; see
 * dcp_rebuild_options::file_count and allow_gaps.
 *
 * Errors: DCP_ERR_COVERAGE names the tensor, a box that no file holds, and how many elements are
 * missing; DCP_ERR_NOT_FOUND: there is no file of such a save, or one is missing; DCP_ERR_FORMAT,
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

/** How metadata is published. All zero is the default. */
typedef struct dcp_publish_options {
    const dcp_storage *storage; /**< where the directory is; NULL: in the file system */
    dcp_overwrite overwrite;    /**< whether a `.metadata` that is there is replaced */
    bool skip_sync;             /**< as dcp_save_options::skip_sync */
    double takeover_seconds;    /**< as dcp_save_options::takeover_seconds */
    /** Extra files to write and to name (dcp_save_options::extra_files), beside those that the
     * checkpoint has, which are in the directory. A name that it has is DCP_ERR_DUPLICATE. They are
     * called as those of rank 0. Those of metadata that is replaced stay unless they are named. */
    const dcp_extra_file *extra_files;
    size_t extra_file_count;
} dcp_publish_options;

/**
 * Publishes a checkpoint's metadata as the `.metadata` of a directory, at once and whole: that
 * makes the shard files there a checkpoint. Meanwhile the directory is owned as by a save.
 * Errors: DCP_ERR_EXISTS if there is one, DCP_ERR_BUSY if a save is going on there,
 * DCP_ERR_UNSUPPORTED as dcp_checkpoint_encode(), and those of the storage.
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
