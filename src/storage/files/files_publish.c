/* SPDX-License-Identifier: BSD-3-Clause */
/* Small files that appear at once and whole: written under a temporary name, then renamed. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/path.h"
#include "storage/files/files.h"

#define TEMPORARY_SUFFIX ".tmp"

struct files_publication {
    const struct file_ops *ops;
    char *path;
    char *temporary;
};

static void publication_free(struct files_publication *publication)
{
    memory_release(publication->path);
    memory_release(publication->temporary);
    memory_release(publication);
}

static dcp_status publication_new(const struct files_directory *directory, const char *name,
                                  struct files_publication **made)
{
    struct files_publication *publication = memory_allocate_zeroed(1, sizeof *publication);
    char *path = path_join(directory->path, name);
    char *temporary = path ? memory_allocate(strlen(path) + sizeof TEMPORARY_SUFFIX) : NULL;
    if (!publication || !temporary) {
        memory_release(publication);
        memory_release(path);
        memory_release(temporary);
        return error_no_memory(strlen(directory->path) + strlen(name) + 2, "a path");
    }
    size_t length = strlen(path);
    memcpy(temporary, path, length);
    memcpy(temporary + length, TEMPORARY_SUFFIX, sizeof TEMPORARY_SUFFIX);
    *publication = (struct files_publication){directory->ops, path, temporary};
    *made = publication;
    return DCP_OK;
}

/* An interrupted save may have left a file of that name behind. */
dcp_status files_prepare(void *context, void *opened, const char *name, const void *bytes,
                         size_t size, bool durable, void **prepared)
{
    struct files_publication *publication;
    RETURN_IF_ERROR(publication_new(opened, name, &publication));
    dcp_status status = file_unlink(context, publication->temporary, true);
    if (status == DCP_OK)
        status = file_write_whole(context, publication->temporary, bytes, size, durable);
    if (status == DCP_OK)
        *prepared = publication;
    else
        publication_free(publication);
    return status;
}

/* Whether it is certain that nothing is there. */
static bool is_gone(const struct file_ops *ops, const char *path)
{
    struct file_information information;
    return file_look(ops, path, &information) == DCP_ERR_NOT_FOUND;
}

dcp_status files_publish(void *context, void *prepared, dcp_storage_condition condition,
                         bool *visible)
{
    struct files_publication *publication = prepared;
    struct error_story story;
    dcp_status status = condition == DCP_PUBLISH_IF_ABSENT
                            ? file_rename_new(context, publication->temporary, publication->path)
                            : file_rename(context, publication->temporary, publication->path);
    /* Over a network a rename can be reported as failed and have happened all the same. */
    *visible = status == DCP_OK || is_gone(context, publication->temporary);
    if (status != DCP_OK) {
        error_save(&story);
        file_unlink(context, publication->temporary, true);
        error_restore(&story);
    }
    publication_free(publication);
    return status;
}

void files_retract(void *context, void *prepared)
{
    struct files_publication *publication = prepared;
    file_unlink(context, publication->temporary, true);
    publication_free(publication);
}
