/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/commit/save_extra.h"

#include "base/error.h"

dcp_status save_extra_write(const struct storage_directory *directory, const char *file,
                            const void *bytes, size_t size, bool durable)
{
    const dcp_storage_access access = {.size_of = sizeof access, .durable = durable, .size = size};
    struct storage_file made;
    RETURN_IF_ERROR(storage_file_create(&made, directory, file, &access));
    dcp_status status = storage_file_write(&made, bytes, size, 0);
    if (status == DCP_OK)
        return storage_file_seal(&made, size);
    storage_file_abandon(&made);
    return status;
}
