/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/open/model_files.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define WHOLE_NAME "model.safetensors"
#define END        "-00000-of-00000.safetensors"
enum { DIGITS = 5, END_LENGTH = sizeof END - 1 };

/* A name of a set of files. */
struct numbered {
    size_t prefix; /* its length */
    unsigned number, count;
};

static unsigned read_digits(const char *digits)
{
    unsigned number = 0;
    for (int i = 0; i < DIGITS; i++)
        number = 10 * number + (unsigned)(digits[i] - '0');
    return number;
}

static bool parse(const char *name, struct numbered *numbered)
{
    size_t length = strlen(name);
    if (length < END_LENGTH || length > NAME_MAX || strncmp(name, "shard-", strlen("shard-")) == 0)
        return false;
    const char *end = name + length - END_LENGTH;
    for (size_t i = 0; i < END_LENGTH; i++)
        if (END[i] == '0' ? end[i] < '0' || end[i] > '9' : end[i] != END[i])
            return false;
    *numbered = (struct numbered){.prefix = length - END_LENGTH,
                                  .number = read_digits(end + 1),
                                  .count = read_digits(end + 1 + DIGITS + strlen("-of-"))};
    return true;
}

static int compare_listed(const void *name, const void *listed)
{
    return strcmp(name, ((const struct directory_name *)listed)->name);
}

static int compare_indexed(const void *name, const void *indexed)
{
    return strcmp(name, *(const char *const *)indexed);
}

static bool is_listed(const struct directory *listing, const char *name)
{
    size_t count = directory_count(listing, DIRECTORY_SAFETENSORS);
    return count > 0 && bsearch(name, &listing->names[listing->first[DIRECTORY_SAFETENSORS]], count,
                                sizeof *listing->names, compare_listed);
}

/* Another file of a set: all are there if each that is there has those before and behind it. */
static dcp_status check_neighbour(const char *path, const struct directory *listing,
                                  const char *name, const struct numbered *numbered,
                                  unsigned number)
{
    char file[NAME_MAX + 1];
    if (number < 1 || number > numbered->count)
        return DCP_OK;
    snprintf(file, sizeof file, "%.*s-%05u%s", (int)numbered->prefix, name, number,
             name + numbered->prefix + 1 + DIGITS);
    return is_listed(listing, file)
               ? DCP_OK
               : dcp_error_set(DCP_ERR_FORMAT,
                               "%s: there is no %s, which belongs to the files there, and no index "
                               "that would say what is in them",
                               path, file);
}

/* A file that no index names. */
static dcp_status check_unnamed(const char *path, const char *name,
                                const struct safetensors_index *index)
{
    struct numbered first, numbered;
    const char *indexed = index->files[0];
    bool sets = parse(indexed, &first) && parse(name, &numbered);
    bool same = sets && first.prefix == numbered.prefix && first.count == numbered.count &&
                memcmp(indexed, name, first.prefix) == 0;
    if (bsearch(name, index->files, index->file_count, sizeof *index->files, compare_indexed))
        return DCP_OK;
    if (strcmp(name, WHOLE_NAME) == 0)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "%s: there is " WHOLE_NAME " beside an index of other files: one of "
                             "them is of another model; remove it",
                             path);
    return same ? dcp_error_set(DCP_ERR_FORMAT,
                                "%s: there is %s, which " SAFETENSORS_INDEX_NAME " does not name",
                                path, name)
                : DCP_OK;
}

dcp_status model_files_check(const char *path, const struct directory *listing,
                             const struct safetensors_index *index)
{
    struct numbered numbered;
    if (index && index->file_count == 0 && directory_count(listing, DIRECTORY_SAFETENSORS) > 0)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: " SAFETENSORS_INDEX_NAME " names no file", path);
    for (size_t i = 0; i < directory_count(listing, DIRECTORY_SAFETENSORS); i++) {
        const char *name = listing->names[listing->first[DIRECTORY_SAFETENSORS] + i].name;
        if (index) {
            RETURN_IF_ERROR(check_unnamed(path, name, index));
        } else if (parse(name, &numbered)) {
            RETURN_IF_ERROR(check_neighbour(path, listing, name, &numbered, numbered.number - 1));
            RETURN_IF_ERROR(check_neighbour(path, listing, name, &numbered, numbered.number + 1));
        }
    }
    return DCP_OK;
}
