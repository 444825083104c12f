/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables and directories. */
#include "storage/storage.h"

#include <limits.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/memory_account.h"
#include "base/sized.h"
#include "storage/call_status.h"

/* Functions that every storage must have. */
static bool is_complete(const dcp_storage *table)
{
    return table->list && table->remove && table->open_file && table->read && table->close_file &&
           table->create && table->write && table->seal;
}

/* Groups of functions that must be complete or missing. */
static bool is_paired(const dcp_storage *table)
{
    bool queue = table->queue_open != NULL, prepares = table->prepare != NULL;
    return (!table->open) == (!table->close) && (!table->map) == (!table->unmap) &&
           (table->publish != NULL) == prepares && (table->retract != NULL) == prepares &&
           (table->publish_over != NULL) == (prepares && table->identify) &&
           (table->queue_start != NULL) == queue && (table->queue_finish != NULL) == queue &&
           (table->queue_close != NULL) == queue;
}

dcp_status storage_take(dcp_storage *ours, const dcp_storage *theirs)
{
    if (!theirs) {
        *ours = *dcp_storage_files();
        return DCP_OK;
    }
    RETURN_IF_ERROR(sized_read(ours, sizeof *ours, theirs, theirs->size_of, "dcp_storage"));
    ours->size_of = sizeof *ours;
    if (!is_complete(ours))
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "the storage lacks a required function (dcp/storage.h)");
    if (!is_paired(ours))
        return dcp_error_set(
            DCP_ERR_ARGUMENT,
            "the storage has only some functions of a group that must be complete (dcp/storage.h)");
    return DCP_OK;
}

dcp_status storage_choose(const dcp_storage *table, const char *id, const dcp_storage **chosen)
{
    const dcp_storage *files = dcp_storage_files();
    *chosen = table;
    if (!*id)
        return dcp_error_set(DCP_ERR_ARGUMENT, "no path was given");
    if (!table->takes || table->takes(table->context, id))
        return DCP_OK;
    *chosen = files;
    if (files->takes(files->context, id))
        return DCP_OK;
    return dcp_error_set(DCP_ERR_UNSUPPORTED,
                         "no storage takes \"%s\": neither the one that was given, nor the file "
                         "system, which takes no \"scheme://\"",
                         id);
}

bool storage_is_files(const dcp_storage *table)
{
    const dcp_storage *files = dcp_storage_files();
    return table->open_file == files->open_file && table->context == files->context;
}

static dcp_status keep_id(const dcp_storage *table, const char *id, char **kept)
{
    size_t size = strlen(id) + 1 + (table->absolute ? PATH_MAX + 1 : 0);
    char *text = memory_allocate(size);
    *kept = NULL;
    if (!text)
        return error_no_memory(size, "a path");
    memcpy(text, id, strlen(id) + 1);
    error_clear();
    dcp_status status = DCP_OK;
    if (table->absolute)
        status = call_status(table->absolute(table->context, id, text, size), "absolute", id);
    if (status == DCP_OK)
        *kept = text;
    else
        memory_release(text);
    return status;
}

/* Not charged to the account, like an open directory. */
dcp_status storage_keep_id(const dcp_storage *table, const char *id, char **kept)
{
    struct memory_account *account = memory_account_enter(NULL);
    dcp_status status = keep_id(table, id, kept);
    memory_account_enter(account);
    return status;
}

/* Without open(), the id itself stands for the directory. */
static void cut_slashes(char *id)
{
    for (size_t length = strlen(id); length > 1 && id[length - 1] == '/'; length--)
        id[length - 1] = '\0';
}

static dcp_status open_directory(struct storage_directory *directory, const dcp_storage *table,
                                 const char *id, uint32_t flags, bool *created)
{
    dcp_status status = DCP_OK;
    char *copy = memory_copy_text(id);
    if (!copy)
        return error_no_memory(strlen(id) + 1, "a path");
    if (table->open) {
        error_clear();
        status = call_status(table->open(table->context, id, flags, &directory->handle, created),
                             "open", id);
    } else {
        cut_slashes(copy);
        directory->handle = copy;
        /* An empty directory means nothing there, so none is to be left. */
        *created = flags & DCP_OPEN_CREATE;
    }
    if (status != DCP_OK) {
        memory_release(copy);
        return status;
    }
    directory->table = table;
    directory->id = copy;
    directory->traits.size_of = sizeof directory->traits;
    if (table->describe)
        table->describe(table->context, directory->handle, &directory->traits);
    return DCP_OK;
}

/* The memory of an open directory is not charged to the account: it is little, and the time when
 * it is taken differs between ranks, and between a save and its estimate. */
dcp_status storage_directory_open(struct storage_directory *directory, const dcp_storage *table,
                                  const char *id, uint32_t flags, bool *created)
{
    bool made = false;
    *directory = (struct storage_directory){0};
    struct memory_account *account = memory_account_enter(NULL);
    dcp_status status = open_directory(directory, table, id, flags, &made);
    memory_account_enter(account);
    if (created)
        *created = status == DCP_OK && made;
    return status;
}

void storage_directory_withdraw(const struct storage_directory *directory)
{
    const dcp_storage *table = directory->table;
    struct saved_error error;
    if (!table || !table->remove_directory)
        return;
    error_save(&error);
    error_clear();
    if (call_status(table->remove_directory(table->context, directory->handle), "remove_directory",
                    directory->id) != DCP_OK)
        log_line(DCP_LOG_WARNING, "%s stays: %s", directory->id, dcp_error_message());
    error_restore(&error);
}

void storage_directory_close(struct storage_directory *directory)
{
    struct saved_error error;
    if (!directory->table)
        return;
    error_save(&error);
    if (directory->table->close)
        directory->table->close(directory->table->context, directory->handle);
    error_restore(&error);
    memory_release(directory->id);
    *directory = (struct storage_directory){0};
}

dcp_status storage_directory_list(const struct storage_directory *directory,
                                  dcp_storage_visitor visitor, void *context)
{
    const dcp_storage *table = directory->table;
    error_clear();
    return call_status(table->list(table->context, directory->handle, visitor, context), "list",
                       directory->id);
}

dcp_status storage_directory_remove(const struct storage_directory *directory, const char *name)
{
    const dcp_storage *table = directory->table;
    error_clear();
    dcp_status status = table->remove(table->context, directory->handle, name);
    return status == DCP_ERR_NOT_FOUND ? DCP_OK : call_status(status, "remove", name);
}

dcp_status storage_directory_sync(const struct storage_directory *directory)
{
    const dcp_storage *table = directory->table;
    if (!table->sync)
        return DCP_OK;
    error_clear();
    return call_status(table->sync(table->context, directory->handle), "sync", directory->id);
}

dcp_status storage_directory_space(const struct storage_directory *directory, uint64_t *bytes)
{
    const dcp_storage *table = directory->table;
    *bytes = UINT64_MAX;
    if (!table->free_space)
        return DCP_OK;
    error_clear();
    return call_status(table->free_space(table->context, directory->handle, bytes), "free_space",
                       directory->id);
}
