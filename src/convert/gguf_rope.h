/* SPDX-License-Identifier: BSD-3-Clause */
/* Rotary embeddings that are scaled as Llama 3.1's are. */
#ifndef CONVERT_GGUF_ROPE_H
#define CONVERT_GGUF_ROPE_H

#include "convert/convert_source.h"
#include "convert/gguf_config.h"

/* Puts the factors of the frequencies before all other tensors, as llama.cpp's converter does;
 * nothing if the embeddings are not scaled in this way. DCP_ERR_FORMAT: the heads have no size that
 * is possible. */
dcp_status gguf_rope_add(struct convert_source *source, const struct gguf_config *config);

#endif
