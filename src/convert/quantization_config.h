/* SPDX-License-Identifier: BSD-3-Clause */
/* What config.json says of how a model's weights are quantized. */
#ifndef CONVERT_QUANTIZATION_CONFIG_H
#define CONVERT_QUANTIZATION_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "dcp/status.h"

/* A module name, a class of modules, or "re:" and a regular expression. */
struct quantization_target {
    const char *text;
    const struct quantization_target *next;
};

/* One of compressed-tensors' config_groups. Texts are NULL, numbers 0 where nothing is said. */
struct quantization_group {
    const char *name;
    const char *format;
    const struct quantization_target *targets;
    bool has_weights;     /* else it is for activations alone */
    const char *type;     /* "int" or "float" */
    const char *strategy; /* which elements share a scale */
    uint64_t bits;
    uint64_t group_size;
    uint64_t block[2];
    struct quantization_group *next;
};

struct quantization_config {
    const char *method;                /* NULL: none */
    const char *format;                /* compressed-tensors */
    const char *version;               /* of it; NULL: none is given */
    struct quantization_group *groups; /* in their order */
    uint64_t block[2];                 /* fp8: weight_block_size; 0: none is given */
};

/* Reads quantization_config, also that of text_config. Everything lives in the arena.
 * DCP_ERR_FORMAT for what is no JSON object. */
dcp_status quantization_config_read(const char *text, size_t size, struct arena *arena,
                                    struct quantization_config *config);
/* The group of a module with weights: the only one there is, or the one that compressed-tensors
 * takes, by names before expressions before classes, each in the order of their texts.
 * DCP_ERR_FORMAT: none, DCP_ERR_UNSUPPORTED: an expression beyond POSIX's. */
dcp_status quantization_config_find(const struct quantization_config *config, const char *module,
                                    const struct quantization_group **group);

#endif
