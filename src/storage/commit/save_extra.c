/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/commit/save_extra.h"

dcp_status save_extra_write(const struct save_session *session, const char *file, const void *bytes,
                            size_t size)
{
    const dcp_storage_access access = {
        .size_of = sizeof access, .durable = session->sync, .size = size};
    struct storage_file made;
    RETURN_IF_ERROR(storage_file_create(&made, &session->directory, file, &access));
    dcp_status status = storage_file_write(&made, bytes, size, 0);
    if (status == DCP_OK)
        return storage_file_seal(&made, size);
    storage_file_abandon(&made);
    return status;
}
