/* SPDX-License-Identifier: BSD-3-Clause */
/* What a model's config.json says that a conversion needs to know, or changes. */
#ifndef CONVERT_MODEL_CONFIG_H
#define CONVERT_MODEL_CONFIG_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "dcp/tensor.h"

struct model_config {
    const char *quant_method; /* NULL: not quantized */
    bool tied;                /* tie_word_embeddings, also of text_config */
};

/* Texts live in the arena. DCP_ERR_FORMAT for what is no JSON object. */
dcp_status model_config_read(const char *text, size_t size, struct arena *arena,
                             struct model_config *config);
/* The string under a key of the outermost object; NULL: there is none. */
dcp_status model_config_find(const char *text, size_t size, const char *key, struct arena *arena,
                             const char **value);
/* Appends the text with another dtype under "dtype" and "torch_dtype", also of the objects whose
 * key ends in "_config". */
dcp_status model_config_retype(const char *text, size_t size, dcp_dtype dtype, struct buffer *out);
/* Appends the text without "quantization_config", also that of text_config; and with the dtype of
 * what was computed, as model_config_retype() has it, or under "dtype" where none is said. */
dcp_status model_config_dequantize(const char *text, size_t size, dcp_dtype dtype,
                                   struct buffer *out);

#endif
