/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/model_numbers.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

#define END "-00000-of-00000.safetensors"
enum { DIGITS = 5, END_LENGTH = sizeof END - 1 };

static int compare_names(const void *name, const void *listed)
{
    return strcmp(name, *(const char *const *)listed);
}

/* What a name says of the number of files, and where its own number is; 0: nothing. */
static unsigned parse_count(const char *name, size_t *prefix)
{
    size_t length = strlen(name);
    unsigned count = 0;
    if (length < END_LENGTH || strncmp(name, "shard-", strlen("shard-")) == 0)
        return 0;
    *prefix = length - END_LENGTH;
    for (size_t i = 0; i < END_LENGTH; i++) {
        char expected = END[i], found = name[*prefix + i];
        if (expected == '0' ? found < '0' || found > '9' : found != expected)
            return 0;
        if (expected == '0' && i > 1 + DIGITS)
            count = 10 * count + (unsigned)(found - '0');
    }
    return count;
}

static dcp_status check_number(const struct convert_source *source, const char *file,
                               const struct safetensors_index *index)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", source->path, file);
    bool named = index && bsearch(file, index->files, index->file_count, sizeof *index->files,
                                  compare_names);
    bool exists = length > 0 && (size_t)length < sizeof path && access(path, F_OK) == 0;
    if (index && exists && !named)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "%s: there is %s, which " SAFETENSORS_INDEX_NAME " does not name",
                             source->path, file);
    return index || exists ? DCP_OK
                           : dcp_error_set(DCP_ERR_FORMAT,
                                           "%s: there is no %s, which belongs to the files there, "
                                           "and no index that would say what is in them",
                                           source->path, file);
}

dcp_status model_numbers_check(const struct convert_source *source, const char *name,
                               const struct safetensors_index *index)
{
    size_t prefix = 0;
    unsigned count = parse_count(name, &prefix);
    char file[NAME_MAX + 1];
    for (unsigned number = 1; number <= count && strlen(name) <= NAME_MAX; number++) {
        snprintf(file, sizeof file, "%.*s-%05u%s", (int)prefix, name, number,
                 name + prefix + 1 + DIGITS);
        RETURN_IF_ERROR(check_number(source, file, index));
    }
    return DCP_OK;
}
