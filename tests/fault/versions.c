/* SPDX-License-Identifier: BSD-3-Clause */
#include "fault/versions.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory_available.h"
#include "fault/at_path.h"
#include "fault/version_hooks.h"
#include "group/collective.h"

#define ROWS  6
#define RANKS 3

/* The state of one rank: half or all of a matrix, a scalar, two objects. */
struct content {
    float *matrix;
    int64_t scalar;
    dcp_state *root;
};

/* Of the machine that has the disk; what the real one has takes many system calls to find out. */
uint64_t __wrap_memory_available(const char *root);
uint64_t __wrap_memory_available(const char *root)
{
    (void)root;
    return (uint64_t)1 << 30;
}

static int64_t columns = 5;

void version_widen(int64_t matrix_columns)
{
    columns = matrix_columns > 0 ? matrix_columns : 5;
}

static float element(int version, int64_t index)
{
    return (float)(version * 1000 + index);
}

static void content_init(struct content *content, int version, int rank, int size)
{
    content->matrix =
        aligned_alloc(4096, ((size_t)(ROWS * columns) * sizeof(float) / 4096 + 1) * 4096);
    assert_non_null(content->matrix);
    dcp_tensor matrix = {.dtype = DCP_F32,
                         .ndim = 2,
                         .sharded = true,
                         .global_shape = {ROWS, columns},
                         .offsets = {ROWS / size * rank, 0},
                         .sizes = {ROWS / size, columns},
                         .data = content->matrix};
    dcp_tensor scalar = {.dtype = DCP_I64, .data = &content->scalar};
    for (int64_t i = 0; i < ROWS / size * columns; i++)
        content->matrix[i] = version ? element(version, ROWS / size * rank * columns + i) : -1;
    content->scalar = version;
    content->root = dcp_state_new();
    dcp_state_tensor(content->root, "matrix", &matrix);
    dcp_state_tensor(content->root, "scalar", &scalar);
    dcp_state_int(content->root, "version", version);
    dcp_state_string(content->root, "name", "a name of some length");
}

static void content_free(struct content *content)
{
    dcp_state_free(content->root);
    free(content->matrix);
}

static uint32_t save_io, load_io;

void version_save_by(uint32_t io)
{
    save_io = io;
}

void version_load_by(uint32_t io)
{
    load_io = io;
}

static bool save_compressed;

void version_compress(bool compress)
{
    save_compressed = compress;
}

static enum version_course save_course;

void version_save_course(enum version_course course)
{
    save_course = course;
}

static enum version_hooked save_hooked, load_hooked;

void version_save_hooked(enum version_hooked how)
{
    save_hooked = how;
}

void version_load_hooked(enum version_hooked how)
{
    load_hooked = how;
}

static bool files_given;

void version_give_files(bool give)
{
    files_given = give;
}

int version_given_files(int version, int size)
{
    return files_given ? size + version % 2 : 0;
}

/* One rank of a save or load. */
struct part {
    const struct file_ops *ops;
    dcp_group *group;
    int version; /* loads: that was found */
    int rank, size;
    bool loads;
    dcp_status status;
    char message[512];
};

/* ---- extra files ---- */

enum { GIVEN_MAX = 4096, GIVEN_FILES = 2 };

/* What a rank gives. */
struct given {
    char names[GIVEN_FILES][32];
    char bytes[GIVEN_FILES][GIVEN_MAX];
    dcp_extra_file files[GIVEN_FILES];
};

/* A line that says whose it is, over and over: longer with each version. */
static size_t describe(int version, int rank, int size, char bytes[GIVEN_MAX])
{
    size_t length = 0;
    for (int i = 0; i < 10 + 5 * version; i++)
        length += (size_t)snprintf(bytes + length, GIVEN_MAX - length,
                                   "version %d, rank %d of %d\n", version, rank, size);
    return length;
}

static void give(const struct part *part, struct given *given, dcp_save_options *options)
{
    options->extra_files = given->files;
    options->extra_file_count = part->rank == 0 && part->version % 2 != 0 ? 2 : 1;
    snprintf(given->names[0], sizeof given->names[0], "rank_%d.txt", part->rank);
    snprintf(given->names[1], sizeof given->names[1], "odd.txt");
    for (int i = 0; i < GIVEN_FILES; i++) {
        size_t size = describe(part->version, part->rank, part->size, given->bytes[i]);
        given->files[i] = (dcp_extra_file){.size_of = sizeof given->files[i],
                                           .name = given->names[i],
                                           .bytes = given->bytes[i],
                                           .size = size};
    }
}

static bool is_given(dcp_checkpoint *checkpoint, const char *name, int version, int rank, int size)
{
    char expected[GIVEN_MAX], found[GIVEN_MAX];
    dcp_extra_file_info info;
    size_t index, length = describe(version, rank, size, expected);
    return dcp_checkpoint_find_extra_file(checkpoint, name, &index) == DCP_OK &&
           dcp_checkpoint_extra_file(checkpoint, index, &info) == DCP_OK && info.size == length &&
           dcp_checkpoint_read_extra_file(checkpoint, index, found, length, NULL) == DCP_OK &&
           memcmp(found, expected, length) == 0;
}

/* Whether a version's files are there, all of them and no others. */
static bool are_given(dcp_checkpoint *checkpoint, int version)
{
    size_t count = dcp_checkpoint_extra_file_count(checkpoint);
    int size = (int)count - version % 2;
    for (int rank = 0; rank < size; rank++) {
        char name[32];
        snprintf(name, sizeof name, "rank_%d.txt", rank);
        if (!is_given(checkpoint, name, version, rank, size))
            return false;
    }
    return size >= 1 && (version % 2 == 0 || is_given(checkpoint, "odd.txt", version, 0, size));
}

static int check_given(struct simulated_file_system *fs, int version)
{
    dcp_storage files = files_storage(simulated_ops(fs));
    dcp_open_options options = {.storage = &files};
    dcp_checkpoint *checkpoint;
    if (dcp_checkpoint_open(VERSIONS_PATH, &options, &checkpoint) != DCP_OK)
        return VERSION_CORRUPT;
    bool whole = are_given(checkpoint, version);
    dcp_checkpoint_close(checkpoint);
    if (!whole)
        print_error("the extra files are not those of version %d: %s\n", version,
                    dcp_error_message());
    return whole ? version : VERSION_CORRUPT;
}

/* What is saved changes as soon as it may. */
static dcp_status save_asynchronously(const struct part *part, const struct content *content,
                                      dcp_save_options *options)
{
    dcp_save_chain_options how = {.group = part->group, .timeout_seconds = 60, .exit_seconds = 60};
    dcp_future *future = NULL;
    if (part->group && save_course == VERSION_COMMITS_WHEN_WAITED)
        part->group->operations.duplicate = NULL;
    dcp_status status = dcp_save_chain_new(&how, &options->chain);
    if (status != DCP_OK)
        return status;
    status = dcp_save_async(content->root, VERSIONS_PATH, options, &future);
    if (status == DCP_OK) {
        for (size_t i = 0; i < options->extra_file_count; i++)
            memset((void *)(uintptr_t)options->extra_files[i].bytes, '?',
                   options->extra_files[i].size);
        memset(content->matrix, 0xff, (size_t)(ROWS / part->size * columns) * sizeof(float));
        status = dcp_future_wait(future, 120);
    }
    dcp_future_free(future);
    dcp_save_chain_free(options->chain);
    return status;
}

static dcp_status save_part(const struct part *part, const struct content *content)
{
    dcp_save_options options = {.group = part->group,
                                .overwrite = DCP_OVERWRITE_REPLACE,
                                .timeout_seconds = 60,
                                .io = save_io};
    if (save_compressed) {
        options.compression = DCP_COMPRESSION_ZSTD;
        options.compression_threads = 2;
    }
    struct version_hooks hooks;
    struct given given;
    if (files_given)
        give(part, &given, &options);
    version_hooks_init(&hooks, part->ops, part->rank);
    version_hooks_save(&hooks, save_hooked, &options);
    dcp_status status = save_course == VERSION_AT_ONCE
                            ? dcp_save(content->root, VERSIONS_PATH, &options)
                            : save_asynchronously(part, content, &options);
    version_hooks_free(&hooks);
    return status;
}

static int loaded_version(const struct part *part, const struct content *content)
{
    int64_t version = VERSION_CORRUPT;
    int64_t count = ROWS / part->size * columns;
    dcp_state_as_int(dcp_state_find(content->root, "version"), &version);
    for (int64_t i = 0; i < count; i++)
        if (content->matrix[i] != element((int)version, part->rank * count + i))
            return VERSION_CORRUPT;
    return content->scalar == version ? (int)version : VERSION_CORRUPT;
}

static dcp_status load_part(struct part *part, const struct content *content)
{
    dcp_load_options options = {.group = part->group, .timeout_seconds = 60, .io = load_io};
    struct version_hooks hooks;
    version_hooks_init(&hooks, part->ops, part->rank);
    version_hooks_load(&hooks, load_hooked, &options);
    dcp_status status = dcp_load(content->root, VERSIONS_PATH, &options, NULL);
    version_hooks_free(&hooks);
    part->version = status == DCP_OK              ? loaded_version(part, content)
                    : status == DCP_ERR_NOT_FOUND ? VERSION_NONE
                                                  : VERSION_CORRUPT;
    return status;
}

static void *run_part(void *argument)
{
    struct part *part = argument;
    struct content content = {.root = NULL};
    content_init(&content, part->loads ? 0 : part->version, part->rank, part->size);
    if (!content.root)
        part->status = DCP_ERR_NO_MEMORY;
    else
        part->status = part->loads ? load_part(part, &content) : save_part(part, &content);
    snprintf(part->message, sizeof part->message, "%s", dcp_error_message());
    content_free(&content);
    return NULL;
}

/* All ranks must end alike, with the same message. */
static struct part run_parts(struct simulated_file_system *fs, bool loads, int version, int size)
{
    dcp_group *groups[RANKS] = {NULL};
    struct part parts[RANKS];
    pthread_t threads[RANKS];

    if (size > 1)
        assert_int_equal(dcp_group_new_threads(size, groups), DCP_OK);
    for (int r = 0; r < size; r++)
        parts[r] = (struct part){.ops = simulated_ops(fs),
                                 .group = groups[r],
                                 .version = version,
                                 .rank = r,
                                 .size = size,
                                 .loads = loads};
    for (int r = 1; r < size; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, run_part, &parts[r]), 0);
    run_part(&parts[0]);
    for (int r = 1; r < size; r++)
        assert_int_equal(pthread_join(threads[r], NULL), 0);
    for (int r = 0; r < size; r++) {
        assert_int_equal(parts[r].status, parts[0].status);
        assert_int_equal(parts[r].version, parts[0].version);
        if (parts[0].status != DCP_OK)
            assert_string_equal(parts[r].message, parts[0].message);
        dcp_group_free(groups[r]);
    }
    if (parts[0].status != DCP_OK)
        dcp_error_set(parts[0].status, "%s", parts[0].message);
    return parts[0];
}

dcp_status version_save(struct simulated_file_system *fs, int version, int size)
{
    return run_parts(fs, false, version, size).status;
}

int version_load_ranks(struct simulated_file_system *fs, int size, dcp_status *status)
{
    struct part part = run_parts(fs, true, VERSION_NONE, size);
    *status = part.status;
    return part.version;
}

int version_load(struct simulated_file_system *fs, dcp_status *status)
{
    return version_load_ranks(fs, 1, status);
}

int version_find(struct simulated_file_system *fs)
{
    dcp_status status;
    int version = version_load(fs, &status);
    if (version > VERSION_NONE && files_given)
        version = check_given(fs, version);
    if (version == VERSION_CORRUPT)
        print_error("found: %s: %s\n", dcp_status_string(status), dcp_error_message());
    return version;
}

static int count_one(void *context, const char *name)
{
    size_t length = strlen(name);
    int *count = context;
    *count += (length > 7 && strcmp(name + length - 7, ".distcp") == 0) ||
              strstr(name, ".extra.") || (length > 4 && strcmp(name + length - 4, ".tmp") == 0);
    return 0;
}

int version_count_files(struct simulated_file_system *fs)
{
    const struct file_ops *ops = simulated_ops(fs);
    int count = 0;
    list_at_path(ops, VERSIONS_PATH, count_one, &count);
    return count;
}
