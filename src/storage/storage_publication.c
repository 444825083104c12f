/* SPDX-License-Identifier: BSD-3-Clause */
/* Small files that appear atomically, and their identities. */
#include <string.h>

#include "base/content_identity.h"
#include "base/error.h"
#include "storage/call_status.h"
#include "storage/storage.h"

static dcp_status read_part(void *context, void *bytes, size_t size, uint64_t offset)
{
    return storage_file_read(context, bytes, size, offset);
}

dcp_status storage_directory_digest(const struct storage_directory *directory, const char *name,
                                    char identity[DCP_STORAGE_IDENTITY])
{
    const dcp_storage_access access = {.size_of = sizeof access, .trusted = true};
    struct storage_file file;
    RETURN_IF_ERROR(storage_file_open(&file, directory, name, &access));
    dcp_status status = content_identify(read_part, &file, file.file.size, identity);
    storage_file_close(&file);
    return status;
}

dcp_status storage_directory_identify(const struct storage_directory *directory, const char *name,
                                      char identity[DCP_STORAGE_IDENTITY])
{
    const dcp_storage *table = directory->table;
    memset(identity, 0, DCP_STORAGE_IDENTITY);
    if (!table->identify)
        return storage_directory_digest(directory, name, identity);
    error_clear();
    dcp_status status = call_status(
        table->identify(table->context, directory->handle, name, identity), "identify", name);
    identity[DCP_STORAGE_IDENTITY - 1] = '\0';
    if (status == DCP_OK && !*identity)
        return dcp_error_set(DCP_ERR_CALLBACK, "identify gave %s no identity", name);
    return status;
}

/* ---- by create(), write() and seal() ---- */

static void abandon(struct storage_publication *publication)
{
    const dcp_storage *table = publication->directory->table;
    struct saved_error error;
    error_save(&error);
    (table->abandon ? table->abandon : table->close_file)(table->context, &publication->file);
    error_restore(&error);
}

static dcp_status write_file(struct storage_publication *publication, const void *bytes,
                             const dcp_storage_access *access)
{
    const struct storage_directory *directory = publication->directory;
    const dcp_storage *table = directory->table;
    size_t size = (size_t)publication->size;
    content_identify_bytes(bytes, size, publication->digest);
    error_clear();
    RETURN_IF_ERROR(call_status(table->create(table->context, directory->handle, publication->name,
                                              access, &publication->file),
                                "create", publication->name));
    if (size == 0)
        return DCP_OK;
    error_clear();
    dcp_status status =
        call_status(table->write(table->context, &publication->file, bytes, size, 0), "write",
                    publication->name);
    if (status != DCP_OK)
        abandon(publication);
    return status;
}

/* Whether the file has appeared in spite of a failure, as far as its content shows. */
static bool has_appeared(const struct storage_publication *publication)
{
    char found[DCP_STORAGE_IDENTITY];
    struct saved_error error;
    error_save(&error);
    bool there =
        storage_directory_digest(publication->directory, publication->name, found) == DCP_OK &&
        strcmp(found, publication->digest) == 0;
    error_restore(&error);
    return there;
}

static dcp_status seal(struct storage_publication *publication, dcp_storage_condition condition,
                       const char *identity, bool *visible)
{
    const struct storage_directory *directory = publication->directory;
    const dcp_storage *table = directory->table;
    error_clear();
    dcp_status status = call_status(
        table->seal(table->context, &publication->file, publication->size, condition, identity),
        "seal", publication->name);
    *visible = status == DCP_OK || has_appeared(publication);
    *publication = (struct storage_publication){0};
    return status;
}

/* ---- by either way ---- */

dcp_status storage_publication_prepare(struct storage_publication *publication,
                                       const struct storage_directory *directory, const char *name,
                                       const void *bytes, size_t size, bool durable)
{
    const dcp_storage *table = directory->table;
    const dcp_storage_access access = {
        .size_of = sizeof access, .durable = durable, .size = size, .published = !table->prepare};
    *publication = (struct storage_publication){.directory = directory, .size = size};
    if (strlen(name) >= sizeof publication->name) {
        *publication = (struct storage_publication){0};
        return dcp_error_set(DCP_ERR_ARGUMENT, "%s: a name too long to be published", name);
    }
    memcpy(publication->name, name, strlen(name) + 1);
    error_clear();
    dcp_status status =
        table->prepare ? call_status(table->prepare(table->context, directory->handle, name, bytes,
                                                    size, &access, &publication->handle),
                                     "prepare", name)
                       : write_file(publication, bytes, &access);
    if (status != DCP_OK)
        *publication = (struct storage_publication){0};
    return status;
}

dcp_status storage_publication_publish(struct storage_publication *publication,
                                       dcp_storage_condition condition, bool *visible)
{
    const struct storage_directory *directory = publication->directory;
    const dcp_storage *table = directory->table;
    if (!table->prepare)
        return seal(publication, condition, NULL, visible);
    *visible = false;
    error_clear();
    dcp_status status = table->publish(table->context, publication->handle, condition, visible);
    *publication = (struct storage_publication){0};
    *visible = *visible || status == DCP_OK;
    return call_status(status, "publish", directory->id);
}

/* For a storage that cannot compare and replace in one step. */
static dcp_status compare_and_publish(struct storage_publication *publication, const char *identity,
                                      bool *visible)
{
    char found[DCP_STORAGE_IDENTITY];
    const struct storage_directory *directory = publication->directory;
    *visible = false;
    dcp_status status = storage_directory_identify(directory, publication->name, found);
    if (status == DCP_ERR_NOT_FOUND || (status == DCP_OK && strcmp(found, identity) != 0))
        status =
            dcp_error_set(DCP_ERR_BUSY, "%s/%s has changed meanwhile: it was %s", directory->id,
                          publication->name, status == DCP_OK ? "replaced" : "removed");
    if (status == DCP_OK)
        return storage_publication_publish(publication, DCP_PUBLISH_ALWAYS, visible);
    storage_publication_retract(publication);
    return status;
}

dcp_status storage_publication_publish_over(struct storage_publication *publication,
                                            const char *identity, bool *visible)
{
    const struct storage_directory *directory = publication->directory;
    const dcp_storage *table = directory->table;
    if (!table->identify)
        return compare_and_publish(publication, identity, visible);
    if (!table->prepare)
        return seal(publication, DCP_PUBLISH_OVER, identity, visible);
    *visible = false;
    error_clear();
    dcp_status status = table->publish_over(table->context, publication->handle, identity, visible);
    *publication = (struct storage_publication){0};
    *visible = *visible || status == DCP_OK;
    return call_status(status, "publish_over", directory->id);
}

void storage_publication_retract(struct storage_publication *publication)
{
    struct saved_error error;
    if (!publication->directory)
        return;
    const dcp_storage *table = publication->directory->table;
    error_save(&error);
    if (table->prepare)
        table->retract(table->context, publication->handle);
    else
        abandon(publication);
    error_restore(&error);
    *publication = (struct storage_publication){0};
}
