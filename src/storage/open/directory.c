/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/open/directory.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/safetensors/safetensors_index.h"
#include "state/extra_file.h"
#include "state/write_plan.h"

/* PREFIX, a number, SUFFIX, with the number as PyTorch writes it: decimal, no sign, no leading
 * zeros. */
static bool parse_numbered(const char *name, const char *prefix, const char *suffix, int *number)
{
    size_t length = strlen(prefix);
    if (strncmp(name, prefix, length) != 0)
        return false;
    const char *digits = name + length;
    if (*digits < '0' || *digits > '9' || (*digits == '0' && strcmp(digits + 1, suffix) != 0))
        return false;
    char *end;
    errno = 0;
    long value = strtol(digits, &end, 10);
    if (errno != 0 || value > INT_MAX || strcmp(end, suffix) != 0)
        return false;
    *number = (int)value;
    return true;
}

static bool ends_in(const char *name, const char *suffix)
{
    size_t length = strlen(name), suffix_length = strlen(suffix);
    return length > suffix_length && strcmp(name + length - suffix_length, suffix) == 0;
}

void directory_metadata_name(int rank, char name[SMALL_NAME_MAX])
{
    if (rank == ALL_RANKS)
        snprintf(name, SMALL_NAME_MAX, METADATA_NAME);
    else
        snprintf(name, SMALL_NAME_MAX, "__%d" METADATA_NAME, rank);
}

void directory_owner_name(int rank, char name[SMALL_NAME_MAX])
{
    if (rank == ALL_RANKS)
        snprintf(name, SMALL_NAME_MAX, OWNER_NAME);
    else
        snprintf(name, SMALL_NAME_MAX, OWNER_NAME ".%d", rank);
}

/* Whether something is one of the small files that saves publish. */
static bool is_small_file(const char *name, int *rank)
{
    *rank = ALL_RANKS;
    return strcmp(name, METADATA_NAME) == 0 || strcmp(name, JSON_NAME) == 0 ||
           strcmp(name, OWNER_NAME) == 0 || parse_numbered(name, "__", METADATA_NAME, rank) ||
           parse_numbered(name, OWNER_NAME ".", "", rank);
}

/* NAME.DIGITS.tmp or NAME.DIGITS.commit.tmp, as files/files_publish.c makes them up; the shorter
 * .metadata.tmp is PyTorch's. */
static bool is_temporary(const char *name, int *rank)
{
    enum { DIGITS = 16 };
    char target[SMALL_NAME_MAX];
    size_t length = strlen(name), end = ends_in(name, ".commit.tmp") ? 11 : 4;
    if (!ends_in(name, ".tmp") || length < end + DIGITS + 1)
        return false;
    const char *digits = name + length - end - DIGITS;
    size_t target_length = (size_t)(digits - 1 - name);
    if (strspn(digits, "0123456789abcdef") != DIGITS || digits[-1] != '.' ||
        target_length >= sizeof target)
        return false;
    memcpy(target, name, target_length);
    target[target_length] = '\0';
    return is_small_file(target, rank);
}

static struct directory_name classify(const char *name)
{
    struct directory_name entry = {.kind = DIRECTORY_OTHER, .name = name};
    const char *extra;
    uint32_t file;
    int rank;
    if (strcmp(name, METADATA_NAME) == 0)
        entry.kind = DIRECTORY_METADATA;
    else if (parse_numbered(name, "__", ".metadata", &entry.rank))
        entry.kind = DIRECTORY_RANK_LOCAL;
    else if (shard_name_parse(name, &entry.rank, &file, &entry.generation))
        entry.kind = DIRECTORY_SHARD;
    else if (extra_file_parse(name, &entry.rank, &entry.generation, &extra))
        entry.kind = DIRECTORY_EXTRA;
    else if (ends_in(name, ".safetensors"))
        entry.kind = DIRECTORY_SAFETENSORS;
    else if (strcmp(name, SAFETENSORS_INDEX_NAME) == 0)
        entry.kind = DIRECTORY_INDEX;
    else if (parse_numbered(name, "pp", "", &entry.rank))
        entry.kind = DIRECTORY_STAGE;
    else if (strcmp(name, OWNER_NAME) == 0)
        entry.kind = DIRECTORY_OWNER;
    else if (parse_numbered(name, OWNER_NAME ".", "", &entry.rank))
        entry.kind = DIRECTORY_RANK_OWNER;
    else if (is_temporary(name, &rank))
        entry = (struct directory_name){DIRECTORY_TEMPORARY, name, rank, 0};
    return entry;
}

struct listing {
    struct directory *directory;
    size_t capacity;
};

static dcp_status take_name(void *context, const char *name)
{
    struct listing *listing = context;
    struct directory *directory = listing->directory;
    if (directory->count == listing->capacity) {
        size_t capacity = listing->capacity ? listing->capacity * 2 : 64;
        struct directory_name *names =
            memory_reallocate_array(directory->names, capacity, sizeof *names);
        if (!names)
            return error_no_memory(capacity * sizeof *names, "names of a directory");
        directory->names = names;
        listing->capacity = capacity;
    }
    size_t length = strcspn(name, "/"); /* a storage may give names that lie in subdirectories */
    const char *copy = arena_copy_text(&directory->arena, name, length);
    if (!copy)
        return error_no_memory(length + 1, "names of a directory");
    directory->names[directory->count++] = classify(copy);
    return DCP_OK;
}

static int compare_names(const void *left, const void *right)
{
    const struct directory_name *a = left, *b = right;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* A storage may give a name several times. */
static void sort_names(struct directory *directory)
{
    struct directory_name *names = directory->names;
    size_t kept = 0;
    if (directory->count > 1)
        qsort(names, directory->count, sizeof *names, compare_names);
    for (size_t i = 0; i < directory->count; i++)
        if (kept == 0 || strcmp(names[i].name, names[kept - 1].name) != 0)
            names[kept++] = names[i];
    directory->count = kept;
}

dcp_status directory_read(const struct storage_directory *of, struct directory *directory)
{
    *directory = (struct directory){0};
    arena_init(&directory->arena, 0);
    struct listing listing = {.directory = directory};
    dcp_status status = storage_directory_list(of, take_name, &listing);
    if (status != DCP_OK) {
        directory_free(directory);
        return status;
    }
    sort_names(directory);
    size_t next = 0;
    for (size_t kind = 0; kind <= DIRECTORY_KINDS; kind++) {
        while (next < directory->count && directory->names[next].kind < kind)
            next++;
        directory->first[kind] = next;
    }
    return DCP_OK;
}

/* Debris of interrupted saves counts as well, so that nothing that exists is ever written to. */
dcp_status directory_next_generation(const struct directory *directory, const char *path, int rank,
                                     uint32_t *generation)
{
    *generation = 0;
    for (size_t i = 0; i < directory->count; i++) {
        const struct directory_name *name = &directory->names[i];
        if ((name->kind != DIRECTORY_SHARD && name->kind != DIRECTORY_EXTRA) ||
            (rank != ALL_RANKS && name->rank != rank))
            continue;
        if (name->generation == UINT32_MAX)
            return dcp_error_set(DCP_ERR_UNSUPPORTED,
                                 "%s/%s has the highest generation possible: remove it, or save to "
                                 "another directory",
                                 path, name->name);
        if (name->generation >= *generation)
            *generation = name->generation + 1;
    }
    return DCP_OK;
}

size_t directory_count(const struct directory *directory, enum directory_kind kind)
{
    return directory->first[kind + 1] - directory->first[kind];
}

void directory_free(struct directory *directory)
{
    memory_release(directory->names);
    arena_free(&directory->arena);
    *directory = (struct directory){0};
}
