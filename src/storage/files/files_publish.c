/* SPDX-License-Identifier: BSD-3-Clause */
/* Small files that appear at once and whole: written under a temporary name, then renamed. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "storage/files/files.h"

#define TEMPORARY_SUFFIX ".tmp"

struct files_publication {
    const struct file_directory *directory;
    char *name;
    char *temporary;
};

static void publication_free(struct files_publication *publication)
{
    memory_release(publication->name);
    memory_release(publication->temporary);
    memory_release(publication);
}

static dcp_status publication_new(const struct files_directory *directory, const char *name,
                                  struct files_publication **made)
{
    struct files_publication *publication = memory_allocate_zeroed(1, sizeof *publication);
    char *copy = memory_copy_text(name);
    char *temporary = copy ? memory_allocate(strlen(name) + sizeof TEMPORARY_SUFFIX) : NULL;
    if (!publication || !temporary) {
        memory_release(publication);
        memory_release(copy);
        memory_release(temporary);
        return error_no_memory(strlen(name) + sizeof TEMPORARY_SUFFIX, "a name");
    }
    size_t length = strlen(name);
    memcpy(temporary, name, length);
    memcpy(temporary + length, TEMPORARY_SUFFIX, sizeof TEMPORARY_SUFFIX);
    *publication = (struct files_publication){&directory->at, copy, temporary};
    *made = publication;
    return DCP_OK;
}

/* An interrupted save may have left a file of that name behind. */
dcp_status files_prepare(void *context, void *opened, const char *name, const void *bytes,
                         size_t size, bool durable, void **prepared)
{
    struct files_publication *publication;
    (void)context;
    RETURN_IF_ERROR(publication_new(opened, name, &publication));
    dcp_status status = file_unlink(publication->directory, publication->temporary, true);
    if (status == DCP_OK)
        status =
            file_write_whole(publication->directory, publication->temporary, bytes, size, durable);
    if (status == DCP_OK)
        *prepared = publication;
    else
        publication_free(publication);
    return status;
}

/* Whether it is certain that nothing is there. */
static bool is_gone(const struct file_directory *directory, const char *name)
{
    struct file_information information;
    return file_look(directory, name, &information) == DCP_ERR_NOT_FOUND;
}

dcp_status files_publish(void *context, void *prepared, dcp_storage_condition condition,
                         bool *visible)
{
    struct files_publication *publication = prepared;
    struct error_story story;
    (void)context;
    dcp_status status =
        condition == DCP_PUBLISH_IF_ABSENT
            ? file_rename_new(publication->directory, publication->temporary, publication->name)
            : file_rename(publication->directory, publication->temporary, publication->name);
    /* Over a network a rename can be reported as failed and have happened all the same. */
    *visible = status == DCP_OK || is_gone(publication->directory, publication->temporary);
    if (status != DCP_OK) {
        error_save(&story);
        file_unlink(publication->directory, publication->temporary, true);
        error_restore(&story);
    }
    publication_free(publication);
    return status;
}

void files_retract(void *context, void *prepared)
{
    struct files_publication *publication = prepared;
    (void)context;
    file_unlink(publication->directory, publication->temporary, true);
    publication_free(publication);
}
