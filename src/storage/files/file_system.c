/* SPDX-License-Identifier: BSD-3-Clause */
/* struct file_ops over the system calls. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "storage/files/file.h"
#include "storage/files/file_ring.h"

/* Whether a file has no place but the page cache: then O_DIRECT is taken and does nothing. */
static bool is_memory(int descriptor)
{
    struct statfs status;
    return fstatfs(descriptor, &status) == 0 && status.f_type == TMPFS_MAGIC;
}

static int at(int directory)
{
    return directory == FILE_NO_DIRECTORY ? AT_FDCWD : directory;
}

/* A directory that may be passed through and not be read serves as well, for all but listing and
 * syncing. */
static int open_directory(int directory, const char *name, int mode, int *descriptor)
{
    mode |= O_DIRECTORY | O_CLOEXEC;
    int opened = openat(at(directory), name, mode | O_RDONLY);
    if (opened < 0 && errno == EACCES)
        opened = openat(at(directory), name, mode | O_PATH);
    if (opened < 0)
        return errno;
    *descriptor = opened;
    return 0;
}

static int system_open(void *context, int directory, const char *name, unsigned flags,
                       int *descriptor)
{
    (void)context;
    int mode = flags & FILE_NO_FOLLOW ? O_NOFOLLOW : 0;
    if (flags & FILE_AS_DIRECTORY)
        return open_directory(directory, name, mode, descriptor);
    /* Without O_NONBLOCK, a FIFO in place of a file would hang the open. */
    mode |= flags & FILE_CREATE_NEW ? O_WRONLY | O_CREAT | O_EXCL
            : flags & FILE_WRITE    ? O_WRONLY
                                    : O_RDONLY | O_NONBLOCK;
    mode |= O_CLOEXEC | O_NOCTTY | (flags & FILE_DIRECT ? O_DIRECT : 0);
    int opened = openat(at(directory), name, mode, 0666);
    if (opened < 0)
        return errno;
    if (flags & FILE_DIRECT && is_memory(opened)) {
        close(opened);
        return EINVAL;
    }
    *descriptor = opened;
    return 0;
}

static int system_close(void *context, int descriptor)
{
    (void)context;
    /* Linux releases the descriptor in any case; closing again could hit another thread's. */
    return close(descriptor) == 0 || errno == EINTR ? 0 : errno;
}

static int system_pread(void *context, int descriptor, void *bytes, size_t size, uint64_t offset,
                        size_t *done)
{
    (void)context;
    if (offset > INT64_MAX)
        return EOVERFLOW;
    ssize_t result = pread(descriptor, bytes, size, (off_t)offset);
    if (result < 0)
        return errno;
    *done = (size_t)result;
    return 0;
}

static int system_pwrite(void *context, int descriptor, const void *bytes, size_t size,
                         uint64_t offset, size_t *done)
{
    (void)context;
    if (offset > INT64_MAX)
        return EFBIG;
    ssize_t result = pwrite(descriptor, bytes, size, (off_t)offset);
    if (result < 0)
        return errno;
    *done = (size_t)result;
    return 0;
}

static int system_allocate(void *context, int descriptor, uint64_t size)
{
    (void)context;
    if (size > INT64_MAX)
        return EFBIG;
    /* There it would be half the work of writing, and not in the background. */
    if (is_memory(descriptor))
        return EOPNOTSUPP;
    return fallocate(descriptor, 0, 0, (off_t)size) == 0 ? 0 : errno;
}

/* Since Linux 6.5, and under this number everywhere; headers of C libraries may be older. */
#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

/* Whether the page cache has the page at an offset. */
static int count_cached(int descriptor, uint64_t offset, bool *cached)
{
    struct {
        uint64_t offset, length;
    } range = {offset, MEMORY_PAGE};
    struct {
        uint64_t cached, dirty, written_back, evicted, recently_evicted;
    } pages = {0};
    if (syscall(SYS_cachestat, descriptor, &range, &pages, 0) != 0)
        return errno;
    *cached = pages.cached != 0;
    return 0;
}

/* The same on older kernels, for several pages. Mapping takes a lock on the memory of the whole
 * process, for which other threads wait. The mapping is only queried, never accessed, so a file
 * that shrinks does no harm. For a file that we neither own nor may write, the kernel reports every
 * page as cached. */
static int look_through_mapping(int descriptor, uint64_t offset, size_t size, size_t step,
                                bool *cached)
{
    unsigned char *range = mmap(NULL, size, PROT_READ, MAP_SHARED, descriptor, (off_t)offset);
    if (range == MAP_FAILED)
        return errno;
    int result = 0;
    *cached = true;
    for (size_t at = 0; at < size && *cached && result == 0; at += step) {
        unsigned char resident = 0;
        result = mincore(range + at, 1, &resident) == 0 ? 0 : errno;
        *cached = resident & 1;
    }
    munmap(range, size);
    return result;
}

static int system_cached(void *context, int descriptor, uint64_t offset, size_t size, bool *cached)
{
    enum { SAMPLES = 8 };
    size_t step = (size / SAMPLES & ~(MEMORY_PAGE - 1)) + MEMORY_PAGE;
    (void)context;
    if (offset > INT64_MAX || size > INT64_MAX - offset)
        return EOVERFLOW;
    *cached = true;
    for (size_t at = 0; at < size && *cached; at += step) {
        if (count_cached(descriptor, offset + at, cached) != 0)
            return look_through_mapping(descriptor, offset, size, step, cached);
    }
    return 0;
}

/* Mappings begin at pages. */
static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static int system_map(void *context, int descriptor, uint64_t offset, size_t size,
                      const void **bytes)
{
    (void)context;
    size_t before = (size_t)(offset % page_size());
    if (offset > INT64_MAX || size > SIZE_MAX - before)
        return EOVERFLOW;
    const unsigned char *mapped =
        mmap(NULL, before + size, PROT_READ, MAP_SHARED, descriptor, (off_t)(offset - before));
    if (mapped == MAP_FAILED)
        return errno;
    *bytes = mapped + before;
    return 0;
}

static void system_unmap(void *context, const void *bytes, size_t size)
{
    (void)context;
    size_t before = (uintptr_t)bytes % page_size();
    munmap((void *)((uintptr_t)bytes - before), before + size);
}

static int system_will_need(void *context, int descriptor, uint64_t offset, size_t size)
{
    (void)context;
    if (offset > INT64_MAX || size > INT64_MAX)
        return EOVERFLOW;
    return posix_fadvise(descriptor, (off_t)offset, (off_t)size, POSIX_FADV_WILLNEED);
}

static int system_write_back(void *context, int descriptor, uint64_t offset, size_t size)
{
    (void)context;
    if (offset > INT64_MAX || size > INT64_MAX)
        return EFBIG;
    int result = sync_file_range(descriptor, (off_t)offset, (off_t)size, SYNC_FILE_RANGE_WRITE);
    return result == 0 ? 0 : errno;
}

static int system_drop(void *context, int descriptor)
{
    (void)context;
    return posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
}

static int system_sync(void *context, int descriptor)
{
    (void)context;
    return fsync(descriptor) == 0 ? 0 : errno;
}

static int system_sync_directory(void *context, int directory)
{
    (void)context;
    int result = fsync(directory) == 0 ? 0 : errno;
    if (result == EBADF)
        return EACCES; /* one that may not be read */
    /* File systems whose directories are always durable refuse with EINVAL. */
    return result == EINVAL ? 0 : result;
}

static struct file_information information_of(const struct stat *status)
{
    return (struct file_information){
        .kind = S_ISREG(status->st_mode)   ? FILE_REGULAR
                : S_ISDIR(status->st_mode) ? FILE_DIRECTORY
                                           : FILE_OTHER,
        .size = (uint64_t)status->st_size,
        .device = status->st_dev,
        .number = status->st_ino,
    };
}

static int system_information(void *context, int directory, const char *name,
                              struct file_information *information)
{
    (void)context;
    struct stat status;
    if (fstatat(at(directory), name, &status, 0) != 0)
        return errno;
    *information = information_of(&status);
    return 0;
}

static int system_descriptor_information(void *context, int descriptor,
                                         struct file_information *information)
{
    (void)context;
    struct stat status;
    if (fstat(descriptor, &status) != 0)
        return errno;
    *information = information_of(&status);
    return 0;
}

static int system_rename(void *context, int directory, const char *from, const char *to)
{
    (void)context;
    return renameat(at(directory), from, at(directory), to) == 0 ? 0 : errno;
}

/* Uses a link if the file system has no exclusive rename, then removes `from`. */
static int system_rename_new(void *context, int directory, const char *from, const char *to)
{
    (void)context;
    if (renameat2(at(directory), from, at(directory), to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    if (linkat(at(directory), from, at(directory), to, 0) != 0)
        return errno;
    unlinkat(at(directory), from, 0);
    return 0;
}

static int system_unlink(void *context, int directory, const char *name)
{
    (void)context;
    return unlinkat(at(directory), name, 0) == 0 ? 0 : errno;
}

static int system_make_directory(void *context, int directory, const char *name)
{
    (void)context;
    return mkdirat(at(directory), name, 0777) == 0 ? 0 : errno;
}

static int system_remove_directory(void *context, int directory, const char *name)
{
    (void)context;
    return unlinkat(at(directory), name, AT_REMOVEDIR) == 0 ? 0 : errno;
}

static int system_free_space(void *context, int directory, uint64_t *bytes)
{
    (void)context;
    struct statvfs status;
    if (fstatvfs(directory, &status) != 0)
        return errno;
    /* File systems without a fixed size report 0 blocks. */
    if (status.f_blocks == 0 ||
        __builtin_mul_overflow((uint64_t)status.f_bavail, (uint64_t)status.f_frsize, bytes))
        *bytes = UINT64_MAX;
    return 0;
}

/* File systems that reach for their bytes over a network, by the numbers that statfs(2) gives them;
 * FUSE is among them, as what is mounted by it for checkpoints is mostly object storage. */
static bool system_remote(void *context, int directory)
{
    static const uint32_t numbers[] = {
        0x6969,     /* NFS */
        0x0bd00bd0, /* Lustre */
        0x47504653, /* GPFS */
        0x00c36400, /* Ceph */
        0x19830326, /* BeeGFS */
        0x18031977, /* WekaFS */
        0xaad7aaea, /* PanFS */
        0x20030528, /* OrangeFS */
        0x517b,     /* SMB */
        0xff534d42, /* CIFS */
        0xfe534d42, /* SMB2 */
        0x5346414f, /* AFS */
        0x01161970, /* GFS2 */
        0x7461636f, /* OCFS2 */
        0x01021997, /* 9P */
        0x65735546, /* FUSE */
    };
    struct statfs status;
    (void)context;
    if (fstatfs(directory, &status) != 0)
        return false;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if ((uint32_t)status.f_type == numbers[i])
            return true;
    return false;
}

/* Opened again: duplicated descriptors would share their position in the listing. */
static int system_list(void *context, int directory, file_visitor visitor, void *visitor_context)
{
    (void)context;
    int opened;
    do
        opened = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (opened < 0 && errno == EINTR);
    if (opened < 0)
        return errno;
    DIR *stream = fdopendir(opened);
    if (stream == NULL) {
        int error = errno;
        close(opened);
        return error;
    }
    int result = 0;
    while (result == 0) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (entry == NULL) {
            result = errno;
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            result = visitor(visitor_context, entry->d_name);
    }
    closedir(stream);
    return result;
}

static int system_working_directory(void *context, char *path, size_t size)
{
    (void)context;
    if (getcwd(path, size) == NULL)
        return errno;
    return *path == '/' ? 0 : ENOENT; /* "(unreachable)" */
}

const struct file_ops file_ops_system = {
    .open = system_open,
    .close = system_close,
    .pread = system_pread,
    .pwrite = system_pwrite,
    .allocate = system_allocate,
    .cached = system_cached,
    .map = system_map,
    .unmap = system_unmap,
    .will_need = system_will_need,
    .write_back = system_write_back,
    .drop = system_drop,
    .sync = system_sync,
    .sync_directory = system_sync_directory,
    .information = system_information,
    .descriptor_information = system_descriptor_information,
    .rename = system_rename,
    .rename_new = system_rename_new,
    .unlink = system_unlink,
    .make_directory = system_make_directory,
    .remove_directory = system_remove_directory,
    .free_space = system_free_space,
    .remote = system_remote,
    .list = system_list,
    .working_directory = system_working_directory,
#if DCP_HAVE_URING
    .queue_open = file_ring_open,
    .queue_submit = file_ring_submit,
    .queue_take = file_ring_take,
    .queue_close = file_ring_close,
#endif
};
