/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a model's safetensors files are all there, and no others, by the numbers in their names.
 */
#ifndef STORAGE_OPEN_MODEL_FILES_H
#define STORAGE_OPEN_MODEL_FILES_H

#include "format/safetensors/safetensors_index.h"
#include "storage/open/directory.h"

/* Of files "PREFIX-0000I-of-0000N.safetensors" all N must be there, if no index says what is in
 * them; those that belong to the files of an index (NULL: none) must be in it, and there must be no
 * model.safetensors beside them, which transformers would read instead. Files of ranks
 * ("shard-...") are not counted by their names. path: for messages. DCP_ERR_FORMAT names the file.
 */
dcp_status model_files_check(const char *path, const struct directory *listing,
                             const struct safetensors_index *index);

#endif
