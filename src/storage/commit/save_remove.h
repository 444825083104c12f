/* SPDX-License-Identifier: BSD-3-Clause */
/* Removing a checkpoint, in an order in which nothing that is half removed looks whole. */
#ifndef STORAGE_COMMIT_SAVE_REMOVE_H
#define STORAGE_COMMIT_SAVE_REMOVE_H

#include "storage/storage.h"

struct save_removal {
    uint64_t removed; /* files */
    uint64_t foreign; /* names that are no checkpoint's, and stay */
};

/* Owns the directory meanwhile: DCP_ERR_BUSY if a save does. DCP_ERR_NOT_FOUND if nothing in it is
 * of a checkpoint. visitor: is given the foreign names when all is done; NULL: nobody. */
dcp_status save_remove(const struct storage_directory *directory, double takeover_seconds,
                       dcp_storage_visitor visitor, void *context, struct save_removal *removal);

#endif
