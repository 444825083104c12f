/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/opened.h"

#include <stdlib.h>
#include <string.h>

dcp_status opened_open(struct opened *opened, const struct file_ops *ops, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *id = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
    opened->storage = files_storage(ops);
    opened->name = slash ? slash + 1 : path;
    if (!id)
        abort();
    dcp_status status = storage_directory_open(&opened->directory, &opened->storage, id, 0, NULL);
    free(id);
    return status;
}

void opened_close(struct opened *opened)
{
    storage_directory_close(&opened->directory);
}
