/* SPDX-License-Identifier: BSD-3-Clause */
/* A storage of one's own whose bytes can be asked for by offset: checkpoints inside of tar archives
 * that nobody unpacks, under ids that begin with "tar://". An object store is no different: what
 * stored_size asks for is the head of an object, and read_range gets a range of it. Two hooks are
 * enough for the library to do all else, and to read no more of the archive than it would of files.
 */
#include <dcp.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 512, FILES = 64, ROWS = 2048, COLUMNS = 1024 };

/* A file in the archive. */
struct member {
    char name[101];
    uint64_t offset, size;
};

struct archive {
    int descriptor; /* -1: none is open */
    struct member members[FILES];
    int count;
};

/* ---- the archive ---- */

/* Of the header of POSIX's ustar; "./" in front of a name says nothing. */
static struct member describe(const char header[BLOCK], uint64_t offset)
{
    struct member member = {.offset = offset, .size = strtoull(header + 124, NULL, 8)};
    const char *name = strncmp(header, "./", 2) == 0 ? header + 2 : header;
    snprintf(member.name, sizeof member.name, "%.*s", (int)(header + 100 - name), name);
    return member;
}

static dcp_status list_members(struct archive *archive, const char *path)
{
    char header[BLOCK];
    uint64_t offset = 0;
    archive->count = 0;
    while (archive->count < FILES &&
           pread(archive->descriptor, header, BLOCK, (off_t)offset) == BLOCK && header[0]) {
        if (memcmp(header + 257, "ustar", 5) != 0)
            return dcp_error_set(DCP_ERR_FORMAT, "%s is no tar archive", path);
        struct member member = describe(header, offset + BLOCK);
        archive->members[archive->count++] = member;
        offset = member.offset + (member.size + BLOCK - 1) / BLOCK * BLOCK;
    }
    return DCP_OK;
}

static const struct member *find(const struct archive *archive, const char *name)
{
    for (int i = 0; i < archive->count; i++)
        if (strcmp(name, archive->members[i].name) == 0)
            return &archive->members[i];
    dcp_error_set(DCP_ERR_NOT_FOUND, "the archive has no %s", name);
    return NULL;
}

/* ---- the reader ---- */

static bool takes(void *context, const char *id)
{
    (void)context;
    return strncmp(id, "tar://", strlen("tar://")) == 0;
}

/* A load begins. */
static dcp_status reset(void *context, const char *id)
{
    struct archive *archive = context;
    const char *path = id + strlen("tar://");
    if (archive->descriptor >= 0)
        close(archive->descriptor);
    archive->descriptor = open(path, O_RDONLY);
    return archive->descriptor < 0 ? dcp_error_set(DCP_ERR_NOT_FOUND, "cannot open %s", path)
                                   : list_members(archive, path);
}

static dcp_status stored_size(void *context, const char *location, uint64_t *size)
{
    const struct member *member = find(context, location);
    if (!member)
        return DCP_ERR_NOT_FOUND;
    *size = member->size;
    return DCP_OK;
}

/* Several threads may be here. */
static dcp_status read_range(void *context, const char *location, uint64_t offset, size_t size,
                             void *bytes, size_t *done)
{
    const struct archive *archive = context;
    const struct member *member = find(archive, location);
    if (!member)
        return DCP_ERR_NOT_FOUND;
    ssize_t result = pread(archive->descriptor, bytes, size, (off_t)(member->offset + offset));
    if (result < 0)
        return dcp_error_set(DCP_ERR_IO, "cannot read %s in the archive", location);
    *done = (size_t)result;
    return DCP_OK;
}

/* ---- a program that uses it ---- */

/* Saves a matrix, element i of which is i, and packs the checkpoint. */
static dcp_status save_and_pack(const char *directory, const char *tar)
{
    float *matrix = malloc(sizeof(float) * ROWS * COLUMNS);
    char command[1100];
    if (!matrix)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for the matrix");
    for (int i = 0; i < ROWS * COLUMNS; i++)
        matrix[i] = (float)i;
    const dcp_tensor tensor = {
        .dtype = DCP_F32, .ndim = 2, .data = matrix, .global_shape = {ROWS, COLUMNS}};
    const dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE};
    dcp_state *state = dcp_state_new();
    dcp_state_tensor(state, "matrix", &tensor);
    dcp_status status = dcp_save(state, directory, &options);
    dcp_state_free(state);
    free(matrix);
    snprintf(command, sizeof command, "tar -C '%s' --format=ustar -cf '%s' .", directory, tar);
    if (status == DCP_OK && system(command) != 0)
        return dcp_error_set(DCP_ERR_IO, "cannot make %s", tar);
    return status;
}

/* Some rows from the middle, as one of many ranks would want them. */
static dcp_status load_rows(const dcp_storage_reader *reader, const char *id, dcp_figures *figures)
{
    static float rows[256 * COLUMNS];
    const dcp_tensor tensor = {.dtype = DCP_F32,
                               .ndim = 2,
                               .sharded = true,
                               .data = rows,
                               .global_shape = {ROWS, COLUMNS},
                               .offsets = {1000, 0},
                               .sizes = {256, COLUMNS}};
    const dcp_load_options options = {
        .storage_readers = &reader, .storage_reader_count = 1, .figures = figures};
    dcp_state *state = dcp_state_new();
    dcp_state_tensor(state, "matrix", &tensor);
    dcp_status status = dcp_load(state, id, &options, NULL);
    dcp_state_free(state);
    for (int i = 0; status == DCP_OK && i < 256 * COLUMNS; i++)
        if (rows[i] != (float)(1000 * COLUMNS + i))
            return dcp_error_set(DCP_ERR_INTERNAL, "element %d is wrong", i);
    return status;
}

int main(int argc, char **argv)
{
    struct archive archive = {.descriptor = -1};
    dcp_figures figures = {.size_of = sizeof figures};
    const dcp_storage_reader reader = {.size_of = sizeof reader,
                                       .context = &archive,
                                       .validate_checkpoint_id = takes,
                                       .reset = reset,
                                       .stored_size = stored_size,
                                       .read_range = read_range};
    char tar[512], id[520];
    if (argc != 2) {
        fprintf(stderr, "usage: archive_storage DIRECTORY\n");
        return 2;
    }
    snprintf(tar, sizeof tar, "%s.tar", argv[1]);
    snprintf(id, sizeof id, "tar://%s", tar);
    dcp_status status = save_and_pack(argv[1], tar);
    if (status == DCP_OK)
        status = load_rows(&reader, id, &figures);
    if (archive.descriptor >= 0)
        close(archive.descriptor);
    if (status == DCP_OK && figures.bytes_read > figures.bytes_wanted * 3 / 2)
        status = dcp_error_set(DCP_ERR_INTERNAL, "%zu bytes were read for %zu",
                               (size_t)figures.bytes_read, (size_t)figures.bytes_wanted);
    if (status != DCP_OK) {
        fprintf(stderr, "%s\n", dcp_error_message());
        return 1;
    }
    printf("%zu bytes read from %s for %zu that were wanted\n", (size_t)figures.bytes_read, tar,
           (size_t)figures.bytes_wanted);
    return 0;
}
