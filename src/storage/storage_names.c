/* SPDX-License-Identifier: BSD-3-Clause */
/* Listing and removing for callers of the library. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "format/metadata/relative_path.h"
#include "storage/call_status.h"
#include "storage/open/directory.h"

/* ours: a place for the table, as long as the directory is open. */
static dcp_status open_directory(const dcp_storage *storage, const char *id, dcp_storage *ours,
                                 struct storage_directory *directory)
{
    const dcp_storage *chosen;
    RETURN_IF_ERROR(storage_take(ours, storage));
    RETURN_IF_ERROR(storage_choose(ours, id, &chosen));
    return storage_directory_open(directory, chosen, id, 0, NULL);
}

static int compare_names(const void *left, const void *right)
{
    const struct directory_name *a = left, *b = right;
    return strcmp(a->name, b->name);
}

dcp_status dcp_storage_list(const dcp_storage *storage, const char *id, dcp_storage_visitor visitor,
                            void *context)
{
    dcp_storage ours;
    struct storage_directory opened;
    struct directory listed;
    if (!id || !visitor)
        return dcp_error_set(DCP_ERR_ARGUMENT, "listing needs a directory and a visitor");
    RETURN_IF_ERROR(open_directory(storage, id, &ours, &opened));
    dcp_status status = directory_read(&opened, &listed);
    storage_directory_close(&opened);
    RETURN_IF_ERROR(status);
    if (listed.count > 1)
        qsort(listed.names, listed.count, sizeof *listed.names, compare_names);
    for (size_t i = 0; i < listed.count && status == DCP_OK; i++)
        status = error_checked(visitor(context, listed.names[i].name), "a visitor");
    directory_free(&listed);
    return status;
}

dcp_status dcp_storage_remove(const dcp_storage *storage, const char *id, const char *name)
{
    dcp_storage ours;
    struct storage_directory opened;
    if (!id || !name)
        return dcp_error_set(DCP_ERR_ARGUMENT, "removing a file needs its directory and name");
    if (relative_path_check(name, strlen(name)) != DCP_OK)
        return dcp_error_set(DCP_ERR_ARGUMENT, "\"%s\" is not the name of a file inside %s", name,
                             id);
    RETURN_IF_ERROR(open_directory(storage, id, &ours, &opened));
    error_clear();
    dcp_status status = call_status(
        opened.table->remove(opened.table->context, opened.handle, name), "remove", name);
    if (status == DCP_OK)
        status = storage_directory_sync(&opened);
    storage_directory_close(&opened);
    return status;
}
