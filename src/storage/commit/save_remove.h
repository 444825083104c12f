/* SPDX-License-Identifier: BSD-3-Clause */
/* Removes a checkpoint, in an order in which a half-removed one never looks complete. */
#ifndef STORAGE_COMMIT_SAVE_REMOVE_H
#define STORAGE_COMMIT_SAVE_REMOVE_H

#include "storage/storage.h"

struct save_removal {
    uint64_t removed; /* files */
    uint64_t foreign; /* names that do not belong to a checkpoint, and stay */
};

/* Owns the directory meanwhile: DCP_ERR_BUSY if a save does. DCP_ERR_NOT_FOUND if it holds no
 * checkpoint. Removes the directory, too, if it is empty then. visitor: receives the foreign names
 * at the end; may be NULL. */
dcp_status save_remove(const struct storage_directory *directory, double takeover_seconds,
                       dcp_storage_visitor visitor, void *context, struct save_removal *removal);

#endif
