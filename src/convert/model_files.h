/* SPDX-License-Identifier: BSD-3-Clause */
/* What is beside the weights of a Hugging Face directory. */
#ifndef CONVERT_MODEL_FILES_H
#define CONVERT_MODEL_FILES_H

#include "convert/target_safetensors.h"

/* Adds a small file as a whole. */
dcp_status model_files_add(struct safetensors_output *files, const char *name, const void *bytes,
                           size_t size);
/* Copies the files of a source that is such a directory, but for weights; config.json with the
 * dtype that tensors are converted to. */
dcp_status model_files_carry(struct convert_source *source, struct safetensors_output *files);

#endif
