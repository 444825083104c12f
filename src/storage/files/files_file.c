/* SPDX-License-Identifier: BSD-3-Clause */
/* Files of the file system: opened through the page cache, and around it where that is worth it. */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "storage/files/files.h"
#include "storage/files/sync_beside.h"

/* From here on a file is worth direct transfers that write it, and sending on what the page cache
 * holds. */
#define LARGE_FILE ((uint64_t)4 << 20)
/* And from here on such that read it: none of these waits for a sync of the device. */
#define LARGE_READ ((uint64_t)1 << 20)

/* What is missing is missing for all files: it is said once. */
static void say_not_direct(const char *why)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&said))
        log_line(DCP_LOG_INFO, "files go through the page cache: %s", why);
}

/* From now on the file uses the page cache. */
static void refuse_direct(struct files_file *file)
{
    atomic_store_explicit(&file->direct_refused, true, memory_order_relaxed);
    say_not_direct("the file system refuses direct transfers");
}

/* Opens the second descriptor, for direct transfers, if that is demanded, or allowed and worth it
 * for a file of that size. */
static dcp_status open_direct(struct files_file *file, const struct file_directory *directory,
                              const char *name, uint32_t io, uint64_t size, unsigned flags)
{
    uint64_t least = flags & FILE_WRITE ? LARGE_FILE : LARGE_READ;
    file->direct_demanded = io & DCP_IO_DIRECT;
    if (io & DCP_IO_BUFFERED || (!(io & DCP_IO_DIRECT) && size < least))
        return DCP_OK;
    dcp_status status = file_open_direct(&file->file, directory, name, flags);
    if (status != DCP_ERR_UNSUPPORTED || io & DCP_IO_DIRECT)
        return status;
    say_not_direct(dcp_error_message());
    return DCP_OK;
}

static void release(struct files_file *file)
{
    struct saved_error error;
    error_save(&error);
    file_close(&file->file);
    error_restore(&error);
    memory_release(file->name);
    memory_release(file);
}

static void hand_out(struct files_file *file, uint64_t size, dcp_storage_file *opened)
{
    *opened = (dcp_storage_file){
        .handle = file, .size = size, .alignment = file->file.direct >= 0 ? MEMORY_PAGE : 0};
}

/* Opens the directory that holds a file whose name has slashes. Each directory of the path is
 * opened without following symbolic links, which could lead anywhere. *last: the rest of the
 * name. */
static dcp_status open_way(const struct file_directory *directory, char *name,
                           struct file_directory *way, const char **last)
{
    *way = (struct file_directory){directory->ops, FILE_NO_DIRECTORY, ""};
    for (char *slash = strchr(name, '/'); slash; slash = strchr(name, '/')) {
        struct file_directory next;
        bool first = way->descriptor == FILE_NO_DIRECTORY;
        *slash = '\0';
        dcp_status status =
            file_directory_open(&next, first ? directory : way, name, FILE_NO_FOLLOW);
        file_directory_close(way);
        RETURN_IF_ERROR(status);
        *way = next;
        name = slash + 1;
    }
    *last = name;
    return DCP_OK;
}

/* name is cut. */
static dcp_status open_untrusted(struct files_file *file, const struct file_directory *directory,
                                 char *name, const dcp_storage_access *access, uint64_t *size)
{
    struct file_directory way;
    const char *last;
    RETURN_IF_ERROR(open_way(directory, name, &way, &last));
    const struct file_directory *in = way.descriptor == FILE_NO_DIRECTORY ? directory : &way;
    dcp_status status = file_open(&file->file, in, last, FILE_NO_FOLLOW);
    if (status == DCP_OK)
        status = file_size(&file->file, size);
    if (status == DCP_OK)
        status = open_direct(file, in, last, access->io, *size, FILE_NO_FOLLOW);
    file_directory_close(&way);
    return status;
}

static dcp_status open_trusted(struct files_file *file, const struct file_directory *directory,
                               const char *name, const dcp_storage_access *access, uint64_t *size)
{
    RETURN_IF_ERROR(file_open(&file->file, directory, name, FILE_READ));
    RETURN_IF_ERROR(file_size(&file->file, size));
    return open_direct(file, directory, name, access->io, *size, FILE_READ);
}

static dcp_status make_file(const char *name, struct files_file **file)
{
    struct files_file *made = memory_allocate_zeroed(1, sizeof *made);
    char *copy = memory_copy_text(name);
    if (!made || !copy) {
        memory_release(made);
        memory_release(copy);
        return error_no_memory(strlen(name) + 1, "an open file");
    }
    made->file.descriptor = -1;
    made->name = copy;
    *file = made;
    return DCP_OK;
}

dcp_status files_open_file(void *context, void *opened_directory, const char *name,
                           const dcp_storage_access *access, dcp_storage_file *opened)
{
    const struct files_directory *directory = opened_directory;
    struct files_file *file;
    uint64_t size = 0;
    (void)context;
    RETURN_IF_ERROR(make_file(name, &file));
    dcp_status status = access->trusted
                            ? open_trusted(file, &directory->at, name, access, &size)
                            : open_untrusted(file, &directory->at, file->name, access, &size);
    memory_release(file->name);
    file->name = NULL;
    if (status == DCP_OK)
        hand_out(file, size, opened);
    else
        release(file);
    return status;
}

void files_close_file(void *context, dcp_storage_file *file)
{
    (void)context;
    release(file->handle);
}

static uint32_t choose_io(const dcp_storage_access *access)
{
    /* Who does not wait for the disk wants the page cache, unless nothing is to be left in it. */
    bool through = access->page_cache == DCP_PAGE_CACHE_KEPT ||
                   (!access->durable && access->page_cache != DCP_PAGE_CACHE_DROPPED);
    return access->io | (through && !(access->io & DCP_IO_DIRECT) ? DCP_IO_BUFFERED : 0u);
}

dcp_status files_create(void *context, void *opened_directory, const char *name,
                        const dcp_storage_access *access, dcp_storage_file *opened)
{
    struct files_directory *directory = opened_directory;
    const struct file_ops *ops = context;
    struct files_file *file;
    RETURN_IF_ERROR(make_file(name, &file));
    file->directory = directory;
    dcp_status status = file_open(&file->file, &directory->at, name, FILE_CREATE_NEW);
    bool made = status == DCP_OK;
    if (status == DCP_OK)
        status = open_direct(file, &directory->at, name, choose_io(access), access->size,
                             FILE_WRITE | FILE_NO_FOLLOW);
    if (status == DCP_OK && !access->estimated)
        status = file_preallocate(&file->file, access->size);
    file->durable = access->durable;
    file->drop = access->page_cache == DCP_PAGE_CACHE_DROPPED;
    file->write_back = access->durable && access->size >= LARGE_FILE;
    if (status == DCP_OK) {
        atomic_fetch_add(&directory->changes, 1);
        hand_out(file, 0, opened);
        return DCP_OK;
    }
    release(file);
    if (made)
        ops->unlink(ops->context, directory->at.descriptor, name);
    return status;
}

static bool is_aligned(const void *bytes, size_t size, uint64_t offset)
{
    return (((uintptr_t)bytes | size | offset) & (MEMORY_PAGE - 1)) == 0;
}

int files_descriptor(const struct files_file *file, const void *bytes, size_t size, uint64_t offset)
{
    return files_is_direct(file) && is_aligned(bytes, size, offset) ? file->file.direct
                                                                    : file->file.descriptor;
}

void files_write_back(const struct files_file *file, int descriptor, uint64_t offset, size_t size)
{
    const struct file_ops *ops = file->file.ops;
    /* A hint: whether the bytes arrive is said by the sync. */
    if (file->write_back && descriptor == file->file.descriptor && ops->write_back)
        ops->write_back(ops->context, descriptor, offset, size);
}

bool files_is_direct(const struct files_file *file)
{
    return file->file.direct >= 0 &&
           !atomic_load_explicit(&file->direct_refused, memory_order_relaxed);
}

int files_attempt(const struct files_file *file, const struct file_transfer *what, size_t *done)
{
    const struct file_ops *ops = file->file.ops;
    if (!what->write)
        return ops->pread(ops->context, what->descriptor, what->bytes, what->size, what->offset,
                          done);
    int error =
        ops->pwrite(ops->context, what->descriptor, what->bytes, what->size, what->offset, done);
    if (error == 0)
        files_write_back(file, what->descriptor, what->offset, *done);
    return error;
}

dcp_status files_settle(struct files_file *of, const struct file_transfer *what, int error,
                        size_t done)
{
    struct file *file = &of->file;
    bool direct = what->descriptor != file->descriptor;
    if (error == EINVAL && direct && !of->direct_demanded)
        refuse_direct(of);
    else if (error != 0 && error != EINTR && error != EAGAIN)
        return file_transfer_error(error, what->write ? "write" : "read", file->path, what->size,
                                   what->offset);
    size_t moved = error == 0 ? done : 0;
    unsigned char *rest = (unsigned char *)what->bytes + moved;
    return what->write ? file_write(file, rest, what->size - moved, what->offset + moved)
                       : file_read(file, rest, what->size - moved, what->offset + moved);
}

/* Through the page cache: what is to go around it comes by a queue. */
static dcp_status transfer(struct files_file *file, const struct file_transfer *what)
{
    size_t done = 0;
    int error = files_attempt(file, what, &done);
    return files_settle(file, what, error, done);
}

dcp_status files_read(void *context, dcp_storage_file *opened, void *bytes, size_t size,
                      uint64_t offset)
{
    struct files_file *file = opened->handle;
    struct file_transfer what = {
        .descriptor = file->file.descriptor, .bytes = bytes, .size = size, .offset = offset};
    (void)context;
    return transfer(file, &what);
}

dcp_status files_write(void *context, dcp_storage_file *opened, const void *bytes, size_t size,
                       uint64_t offset)
{
    struct files_file *file = opened->handle;
    struct file_transfer what = {.descriptor = file->file.descriptor,
                                 .write = true,
                                 .bytes = (void *)bytes,
                                 .size = size,
                                 .offset = offset};
    (void)context;
    return transfer(file, &what);
}

/* The first file of a directory is mostly the only one: its name is made durable beside its bytes.
 */
static dcp_status make_durable(struct files_file *file)
{
    struct files_directory *directory = file->directory;
    const struct file_directory *at = &directory->at;
    unsigned changes = atomic_load(&directory->changes);
    struct sync_beside names = {0};
    if (sync_beside_pays() && !atomic_exchange(&directory->synced_early, true))
        sync_beside_start(&names, at->ops, at->descriptor, true);
    bool early = names.runs;
    dcp_status status = file_sync(&file->file);
    int result = early ? sync_beside_end(&names) : 0;
    if (status == DCP_OK && result != 0)
        status = file_error(result, "sync directory", at->path);
    if (early && status == DCP_OK)
        atomic_store(&directory->durable, changes);
    return status;
}

/* Its name was made exclusively. */
dcp_status files_seal(void *context, dcp_storage_file *opened, uint64_t size,
                      dcp_storage_condition condition, const char *identity)
{
    const struct file_ops *ops = context;
    struct files_file *file = opened->handle;
    (void)size, (void)condition, (void)identity;
    dcp_status status = file->durable ? make_durable(file) : DCP_OK;
    if (status == DCP_OK && file->drop && ops->drop)
        ops->drop(ops->context, file->file.descriptor);
    if (status == DCP_OK)
        status = file_close(&file->file);
    release(file);
    return status;
}

void files_abandon(void *context, dcp_storage_file *opened)
{
    const struct file_ops *ops = context;
    struct files_file *file = opened->handle;
    ops->unlink(ops->context, file->directory->at.descriptor, file->name);
    release(file);
}
