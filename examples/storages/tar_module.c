/* SPDX-License-Identifier: BSD-3-Clause */
/* The archive as a module of the command, which knows nothing of archives:
 *
 *     dcp --storage ./libtar_storage.so ls tar://run/step_1000
 */
#include "storages.h"

DCP_API const dcp_storage *dcp_storage_module(const char *argument);

const dcp_storage *dcp_storage_module(const char *argument)
{
    if (*argument == '\0')
        return &tar_storage;
    dcp_error_set(DCP_ERR_ARGUMENT, "this storage takes no argument, and was given \"%s\"",
                  argument);
    return NULL;
}
