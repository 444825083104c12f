/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a model's files are all there, by the numbers in their names. */
#ifndef CONVERT_MODEL_NUMBERS_H
#define CONVERT_MODEL_NUMBERS_H

#include "convert/convert_source.h"
#include "format/safetensors/safetensors_index.h"

/* Of the files "PREFIX-0000I-of-0000N.safetensors" of a directory, those that an index does not
 * name must not be there; without one (NULL) all that belong to `name` must be, if it is such a
 * name. Ranks' files ("shard-...") are not counted by their names. DCP_ERR_FORMAT names the file.
 */
dcp_status model_numbers_check(const struct convert_source *source, const char *name,
                               const struct safetensors_index *index);

#endif
