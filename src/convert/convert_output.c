/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/convert_output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/random.h"

/* For more at a time the page cache takes larger pages, which the system may not have at hand, and
 * other threads wait for the file meanwhile. */
#define WRITTEN_AT_ONCE ((size_t)512 << 10)

static dcp_status fail(const char *path, const char *what)
{
    int number = errno;
    dcp_status status = number == ENOSPC || number == EDQUOT   ? DCP_ERR_NO_SPACE
                        : number == EEXIST                     ? DCP_ERR_EXISTS
                        : number == EMFILE || number == ENFILE ? DCP_ERR_FILE_LIMIT
                                                               : DCP_ERR_IO;
    return dcp_error_set(status, "%s: %s: %s", path, what, strerror(number));
}

static char *join(struct arena *arena, const char *a, const char *between, const char *b)
{
    size_t size = strlen(a) + strlen(between) + strlen(b) + 1;
    char *text = arena_allocate(arena, size);
    if (text)
        snprintf(text, size, "%s%s%s", a, between, b);
    return text;
}

static bool is_empty_directory(const char *path)
{
    DIR *directory = opendir(path);
    bool empty = directory != NULL;
    for (struct dirent *entry; empty && (entry = readdir(directory)) != NULL;)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    if (directory)
        closedir(directory);
    return empty;
}

static dcp_status check_absent(const char *path, bool is_directory)
{
    struct stat about;
    if (lstat(path, &about) != 0)
        return errno == ENOENT ? DCP_OK : fail(path, "cannot be looked at");
    if (is_directory && is_empty_directory(path))
        return DCP_OK;
    return dcp_error_set(DCP_ERR_EXISTS, "%s: is there already; nothing is overwritten", path);
}

/* A name that no other conversion has, or that which the journal is for. */
static dcp_status name_temporary(struct convert_output *output, char **temporary)
{
    uint64_t number;
    char suffix[40];
    if (output->journal) {
        *temporary = join(&output->arena, output->journal->directory, "/", "data");
    } else {
        RETURN_IF_ERROR(random_bytes(&number, sizeof number, "a temporary name"));
        snprintf(suffix, sizeof suffix, "%016" PRIx64 ".tmp", number);
        *temporary = join(&output->arena, output->path, ".", suffix);
    }
    return *temporary ? DCP_OK : error_no_memory(strlen(output->path), "a path");
}

dcp_status convert_output_begin(struct convert_output *output, const char *path, bool is_directory,
                                bool skip_sync, struct convert_journal *journal)
{
    char *temporary;
    *output = (struct convert_output){
        .journal = journal, .is_directory = is_directory, .skip_sync = skip_sync};
    arena_init(&output->arena, 0);
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    char *copy = arena_copy_text(&output->arena, path, length);
    if (!copy)
        return error_no_memory(length, "a path");
    output->path = copy;
    RETURN_IF_ERROR(check_absent(output->path, is_directory));
    RETURN_IF_ERROR(name_temporary(output, &temporary));
    if (is_directory && mkdir(temporary, 0777) != 0 && !(journal && errno == EEXIST))
        return fail(path, "cannot be made");
    output->temporary = temporary;
    return DCP_OK;
}

static dcp_status reserve(struct convert_output *output)
{
    if (output->count < output->capacity)
        return DCP_OK;
    size_t capacity = 2 * output->capacity + 8;
    int *files = memory_reallocate_array(output->files, capacity, sizeof *files);
    if (files)
        output->files = files;
    char **names = memory_reallocate_array(output->names, capacity, sizeof *names);
    if (names)
        output->names = names;
    uint64_t *found = memory_reallocate_array(output->found, capacity, sizeof *found);
    if (found)
        output->found = found;
    if (!files || !names || !found)
        return error_no_memory(capacity * sizeof *names, "files to write");
    output->capacity = capacity;
    return DCP_OK;
}

/* A file of a journal may be there; its size becomes what it will be. */
static dcp_status open_file(const struct convert_output *output, const char *path, uint64_t size,
                            int *file, uint64_t *found)
{
    int how = output->journal ? O_NOFOLLOW : O_EXCL;
    struct stat about;
    *found = 0;
    *file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | how, 0666);
    if (*file < 0)
        return fail(output->is_directory ? path : output->path, "cannot be made");
    if (!output->journal)
        return DCP_OK;
    if (fstat(*file, &about) != 0 || ftruncate(*file, (off_t)size) != 0) {
        dcp_status status = fail(path, "cannot be continued");
        close(*file);
        return status;
    }
    *found = (uint64_t)about.st_size;
    return DCP_OK;
}

dcp_status convert_output_add(struct convert_output *output, const char *name, uint64_t size,
                              size_t *file)
{
    int opened;
    RETURN_IF_ERROR(reserve(output));
    char *path = output->is_directory ? join(&output->arena, output->temporary, "/", name)
                                      : output->temporary;
    if (!path)
        return error_no_memory(strlen(name), "a path");
    if (size > INT64_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "%s: a file of more than 2^63 bytes", path);
    RETURN_IF_ERROR(open_file(output, path, size, &opened, &output->found[output->count]));
    output->files[output->count] = opened;
    output->names[output->count] = path;
    *file = output->count++;
    if (size > 0 && fallocate(opened, 0, 0, (off_t)size) != 0 &&
        (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
        return dcp_error_set(errno == EFBIG ? DCP_ERR_IO : DCP_ERR_NO_SPACE,
                             "%s: there is no room for a file of %" PRIu64 " bytes: %s",
                             output->path, size, strerror(errno));
    return DCP_OK;
}

dcp_status convert_output_write(const struct convert_output *output, size_t file, const void *bytes,
                                size_t size, uint64_t offset)
{
    const char *next = bytes;
    while (size > 0) {
        size_t piece = size < WRITTEN_AT_ONCE ? size : WRITTEN_AT_ONCE;
        ssize_t written = pwrite(output->files[file], next, piece, (off_t)offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return fail(output->names[file], "cannot be written");
        next += written;
        offset += (uint64_t)written;
        size -= (size_t)written;
    }
    return DCP_OK;
}

dcp_status convert_output_sync(const struct convert_output *output)
{
    for (size_t i = 0; i < output->count && !output->skip_sync; i++)
        if (output->files[i] >= 0 && fdatasync(output->files[i]) != 0)
            return fail(output->names[i], "cannot be made durable");
    return DCP_OK;
}

dcp_status convert_output_seal(struct convert_output *output, size_t file)
{
    dcp_status status = DCP_OK;
    if (!output->skip_sync && fsync(output->files[file]) != 0)
        status = fail(output->names[file], "cannot be made durable");
    if (close(output->files[file]) != 0 && status == DCP_OK && errno != EINTR)
        status = fail(output->names[file], "cannot be closed");
    output->files[file] = -1;
    return status;
}

static dcp_status sync_directory(const struct convert_output *output, const char *path)
{
    if (output->skip_sync)
        return DCP_OK;
    int opened = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (opened < 0)
        return fail(path, "cannot be opened");
    dcp_status status =
        fsync(opened) == 0 || errno == EINVAL ? DCP_OK : fail(path, "cannot be made durable");
    close(opened);
    return status;
}

/* The directory that the output is in. */
static dcp_status sync_parent(struct convert_output *output)
{
    const char *slash = strrchr(output->path, '/');
    if (!slash)
        return sync_directory(output, ".");
    char *parent = arena_copy_text(&output->arena, output->path,
                                   slash == output->path ? 1 : (size_t)(slash - output->path));
    return parent ? sync_directory(output, parent) : error_no_memory(strlen(slash), "a path");
}

/* A directory takes the place of an empty one, and of nothing else; a file that of nothing. */
static int rename_output(const struct convert_output *output)
{
    if (output->is_directory)
        return rename(output->temporary, output->path);
    if (renameat2(AT_FDCWD, output->temporary, AT_FDCWD, output->path, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    if (link(output->temporary, output->path) != 0)
        return -1;
    return unlink(output->temporary);
}

dcp_status convert_output_commit(struct convert_output *output, const struct convert_source *source,
                                 struct progress *progress)
{
    RETURN_IF_ERROR(convert_source_check(source));
    RETURN_IF_ERROR(progress_enter(progress, DCP_PHASE_COMMIT, progress->reported.bytes_total));
    if (output->is_directory)
        RETURN_IF_ERROR(sync_directory(output, output->temporary));
    if (rename_output(output) != 0) {
        if (errno == ENOTEMPTY || errno == ENOTDIR)
            errno = EEXIST;
        return fail(output->path, "cannot be put in place");
    }
    output->temporary = NULL;
    if (output->journal)
        output->journal->committed = true;
    return sync_parent(output);
}

void convert_output_end(struct convert_output *output)
{
    bool kept = output->journal && convert_journal_is_kept(output->journal);
    for (size_t i = 0; i < output->count; i++) {
        if (output->files[i] >= 0)
            close(output->files[i]);
        if (output->temporary && !kept)
            unlink(output->names[i]);
    }
    if (output->temporary && output->is_directory && !kept)
        rmdir(output->temporary);
    memory_release(output->files);
    memory_release(output->names);
    memory_release(output->found);
    arena_free(&output->arena);
    *output = (struct convert_output){0};
}
