/* SPDX-License-Identifier: BSD-3-Clause */
/* What a GGUF file says of a model, from its config.json. */
#ifndef CONVERT_GGUF_CONFIG_H
#define CONVERT_GGUF_CONFIG_H

#include <stdbool.h>

#include "base/arena.h"
#include "dcp/status.h"

/* Numbers are 0 where nothing is said. */
struct gguf_config {
    const char *model_type;
    const char *rope_type; /* NULL: as usual */
    bool has_head_dim;
    uint64_t layers, context, hidden, intermediate, heads, key_value_heads, head_dim, vocabulary;
    uint64_t experts, experts_used;
    double rope_theta, rms_epsilon, rope_factor;
    double rope_low, rope_high, rope_context; /* of the scaling "llama3" */
};

/* Reads a config.json of Llama, Mistral or Mixtral, and puts defaults where it is silent. Texts are
 * in the arena. DCP_ERR_UNSUPPORTED: of another model; DCP_ERR_FORMAT: something is missing. */
dcp_status gguf_config_read(const char *path, const char *text, size_t size, struct arena *arena,
                            struct gguf_config *config);

#endif
