/* SPDX-License-Identifier: BSD-3-Clause */
/* Safetensors files that are being written. */
#ifndef CONVERT_TARGET_SAFETENSORS_H
#define CONVERT_TARGET_SAFETENSORS_H

#include "convert/convert_copy.h"
#include "convert/convert_target.h"
#include "convert/safetensors_write.h"

struct safetensors_output {
    struct convert_output output;
    struct convert_run *runs;
    size_t run_count, run_capacity;
};

/* Adds a file with its header; items are sorted. */
dcp_status safetensors_output_add(struct safetensors_output *files, const char *name,
                                  const struct convert_item **items, size_t count);
/* Writes the tensors of all files, and seals these. */
dcp_status safetensors_output_copy(struct safetensors_output *files,
                                   const struct convert_source *source, struct progress *progress);
void safetensors_output_end(struct safetensors_output *files);

#endif
