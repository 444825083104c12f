/* SPDX-License-Identifier: BSD-3-Clause */
#include "preload/failing_calls.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

static struct {
    atomic_bool armed;
    enum call_kind kind;
    long n;
    bool from_then_on;
    int failure;
    atomic_long calls[CALL_KIND_COUNT];
    atomic_long failed;
} plan;

static struct {
    pthread_mutex_t mutex;
    char path[512];
} unsynced = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void failing_calls_arm(enum call_kind kind, long n, bool from_then_on, int failure)
{
    plan.kind = kind;
    plan.n = n;
    plan.from_then_on = from_then_on;
    plan.failure = failure;
    for (int i = 0; i < CALL_KIND_COUNT; i++)
        atomic_store(&plan.calls[i], 0);
    atomic_store(&plan.failed, 0);
    unsynced.path[0] = 0;
    atomic_store(&plan.armed, true);
}

long failing_calls_disarm(void)
{
    atomic_store(&plan.armed, false);
    return atomic_load(&plan.failed);
}

long failing_calls_count(enum call_kind kind)
{
    return atomic_load(&plan.calls[kind]);
}

/* 0: this call goes on. */
static int failure_of(enum call_kind kind)
{
    if (!atomic_load(&plan.armed))
        return 0;
    long number = atomic_fetch_add(&plan.calls[kind], 1) + 1;
    if (kind != plan.kind || plan.n == 0 ||
        (plan.from_then_on ? number < plan.n : number != plan.n))
        return 0;
    if (plan.failure == FAILURE_KILL)
        raise(SIGKILL);
    atomic_fetch_add(&plan.failed, 1);
    return plan.failure;
}

static void *next(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL) {
        fprintf(stderr, "failing_calls: there is no %s\n", name);
        _exit(1);
    }
    return found;
}

/* ISO C has no conversion from an object pointer to a function pointer, POSIX demands one. */
#define REAL(name)                                                                                 \
    __typeof__(&(name)) real;                                                                      \
    *(void **)&real = next(#name)

/* What a call of an int becomes: `call` where it goes on, and -1 with errno where it fails. */
#define INT_CALL(kind, call)                                                                       \
    int failure = failure_of(kind);                                                                \
    if (failure > 0) {                                                                             \
        errno = failure;                                                                           \
        return -1;                                                                                 \
    }                                                                                              \
    int result = call;                                                                             \
    if (failure == FAILURE_LATE && result == 0) {                                                  \
        errno = EIO;                                                                               \
        return -1;                                                                                 \
    }                                                                                              \
    return result

/* Files are opened in directories; what is opened by its path alone is in /proc. */
int openat(int directory, const char *name, int flags, ...)
{
    REAL(openat);
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    INT_CALL(CALL_OPEN, real(directory, name, flags, mode));
}

int close(int descriptor)
{
    REAL(close);
    int failure = failure_of(CALL_CLOSE);
    int result = real(descriptor);
    if (failure == 0)
        return result;
    errno = failure > 0 ? failure : EIO;
    return -1;
}

/* Of aligned transfers, that stay aligned as long as they can. */
static size_t half(size_t size)
{
    size_t some = size / 2;
    if (size == 1)
        return 1;
    return some >= 4096 ? some & ~(size_t)4095 : some;
}

ssize_t pread(int descriptor, void *bytes, size_t size, off_t offset)
{
    REAL(pread);
    int failure = failure_of(CALL_PREAD);
    if (failure > 0) {
        errno = failure;
        return -1;
    }
    return real(descriptor, bytes, failure == FAILURE_SHORT ? half(size) : size, offset);
}

ssize_t pwrite(int descriptor, const void *bytes, size_t size, off_t offset)
{
    REAL(pwrite);
    int failure = failure_of(CALL_PWRITE);
    if (failure > 0) {
        errno = failure;
        return -1;
    }
    return real(descriptor, bytes, failure == FAILURE_SHORT ? half(size) : size, offset);
}

static void note_unsynced(int descriptor)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    pthread_mutex_lock(&unsynced.mutex);
    ssize_t size = readlink(link, unsynced.path, sizeof unsynced.path - 1);
    unsynced.path[size > 0 ? size : 0] = 0;
    pthread_mutex_unlock(&unsynced.mutex);
}

bool failing_calls_unsynced(const char *name)
{
    pthread_mutex_lock(&unsynced.mutex);
    bool found = strstr(unsynced.path, name) != NULL;
    pthread_mutex_unlock(&unsynced.mutex);
    return found;
}

int fsync(int descriptor)
{
    REAL(fsync);
    int failure = failure_of(CALL_FSYNC);
    if (failure == 0)
        return real(descriptor);
    note_unsynced(descriptor);
    if (failure == FAILURE_LATE)
        real(descriptor);
    errno = failure > 0 ? failure : EIO;
    return -1;
}

int fallocate(int descriptor, int mode, off_t offset, off_t size)
{
    REAL(fallocate);
    INT_CALL(CALL_FALLOCATE, real(descriptor, mode, offset, size));
}

int fstat(int descriptor, struct stat *status)
{
    REAL(fstat);
    INT_CALL(CALL_FSTAT, real(descriptor, status));
}

int fstatat(int directory, const char *restrict name, struct stat *restrict status, int flags)
{
    REAL(fstatat);
    INT_CALL(CALL_STAT, real(directory, name, status, flags));
}

int fstatfs(int descriptor, struct statfs *status)
{
    REAL(fstatfs);
    INT_CALL(CALL_STATFS, real(descriptor, status));
}

int fstatvfs(int descriptor, struct statvfs *status)
{
    REAL(fstatvfs);
    INT_CALL(CALL_STATFS, real(descriptor, status));
}

int renameat(int from_directory, const char *from, int to_directory, const char *to)
{
    REAL(renameat);
    INT_CALL(CALL_RENAME, real(from_directory, from, to_directory, to));
}

int renameat2(int from_directory, const char *from, int to_directory, const char *to,
              unsigned flags)
{
    REAL(renameat2);
    INT_CALL(CALL_RENAME, real(from_directory, from, to_directory, to, flags));
}

int linkat(int from_directory, const char *from, int to_directory, const char *to, int flags)
{
    REAL(linkat);
    INT_CALL(CALL_LINK, real(from_directory, from, to_directory, to, flags));
}

int unlinkat(int directory, const char *name, int flags)
{
    REAL(unlinkat);
    INT_CALL(flags & AT_REMOVEDIR ? CALL_RMDIR : CALL_UNLINK, real(directory, name, flags));
}

int mkdirat(int directory, const char *name, mode_t mode)
{
    REAL(mkdirat);
    INT_CALL(CALL_MKDIR, real(directory, name, mode));
}

DIR *fdopendir(int descriptor)
{
    REAL(fdopendir);
    int failure = failure_of(CALL_OPENDIR);
    if (failure == 0)
        return real(descriptor);
    errno = failure;
    return NULL;
}

struct dirent *readdir(DIR *directory)
{
    REAL(readdir);
    int failure = failure_of(CALL_READDIR);
    if (failure == 0)
        return real(directory);
    errno = failure;
    return NULL;
}

void *mmap(void *address, size_t size, int protection, int flags, int descriptor, off_t offset)
{
    REAL(mmap);
    int failure = failure_of(CALL_MMAP);
    if (failure == 0)
        return real(address, size, protection, flags, descriptor, offset);
    errno = failure;
    return MAP_FAILED;
}

int madvise(void *address, size_t size, int advice)
{
    REAL(madvise);
    INT_CALL(CALL_ADVISE, real(address, size, advice));
}

int posix_fadvise(int descriptor, off_t offset, off_t size, int advice)
{
    REAL(posix_fadvise);
    int failure = failure_of(CALL_ADVISE);
    return failure != 0 ? failure : real(descriptor, offset, size, advice);
}

int sync_file_range(int descriptor, off64_t offset, off64_t size, unsigned flags)
{
    REAL(sync_file_range);
    INT_CALL(CALL_ADVISE, real(descriptor, offset, size, flags));
}

#define CACHESTAT 451

long syscall(long number, ...)
{
    REAL(syscall);
    long values[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        values[i] = va_arg(arguments, long);
    va_end(arguments);
    int failure = number == CACHESTAT ? failure_of(CALL_CACHESTAT) : 0;
    if (failure == 0)
        return real(number, values[0], values[1], values[2], values[3], values[4], values[5]);
    errno = failure;
    return -1;
}

ssize_t getrandom(void *bytes, size_t size, unsigned flags)
{
    REAL(getrandom);
    int failure = failure_of(CALL_RANDOM);
    if (failure > 0) {
        errno = failure;
        return -1;
    }
    return real(bytes, failure == FAILURE_SHORT ? half(size) : size, flags);
}

int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes,
                   void *(*start)(void *), void *restrict argument)
{
    REAL(pthread_create);
    int failure = failure_of(CALL_THREAD);
    return failure != 0 ? failure : real(thread, attributes, start, argument);
}

#if DCP_HAVE_URING
#include <liburing.h>

int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
    REAL(io_uring_queue_init);
    int failure = failure_of(CALL_RING_OPEN);
    return failure != 0 ? -failure : real(entries, ring, flags);
}

struct io_uring_probe *io_uring_get_probe_ring(struct io_uring *ring)
{
    REAL(io_uring_get_probe_ring);
    return failure_of(CALL_RING_PROBE) != 0 ? NULL : real(ring);
}

/* The transfer that was put into the ring last, which the kernel has not seen yet. */
static void spoil_transfer(struct io_uring *ring)
{
    struct io_uring_sqe *entry = &ring->sq.sqes[(ring->sq.sqe_tail - 1) & ring->sq.ring_mask];
    if (entry->opcode != IORING_OP_READ && entry->opcode != IORING_OP_WRITE)
        return;
    int failure = failure_of(CALL_RING_TRANSFER);
    if (failure == FAILURE_SHORT)
        entry->len = (unsigned)half(entry->len);
    else if (failure != 0)
        entry->fd = -1;
}

int io_uring_submit(struct io_uring *ring)
{
    REAL(io_uring_submit);
    int failure = failure_of(CALL_RING_SUBMIT);
    if (failure != 0)
        return -failure;
    spoil_transfer(ring);
    return real(ring);
}

int __io_uring_get_cqe(struct io_uring *ring, struct io_uring_cqe **entry, unsigned submit,
                       unsigned wait, sigset_t *signals)
{
    REAL(__io_uring_get_cqe);
    int failure = failure_of(CALL_RING_WAIT);
    return failure != 0 ? -failure : real(ring, entry, submit, wait, signals);
}
#endif
