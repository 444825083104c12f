/* SPDX-License-Identifier: BSD-3-Clause */
/* The header of one safetensors file, checked by itself. */
#ifndef FORMAT_SAFETENSORS_SAFETENSORS_HEADER_H
#define FORMAT_SAFETENSORS_SAFETENSORS_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/byte_source.h"
#include "base/name_table.h"
#include "dcp/tensor.h"

struct safetensors_tensor {
    const char *name; /* NUL-terminated, without a NUL inside */
    dcp_dtype dtype;
    int32_t ndim;
    const int64_t *shape;   /* shape of the part in the file */
    const int64_t *offsets; /* offsets of the part in the whole tensor */
    uint64_t begin, end;    /* bytes of the file */
};

struct safetensors_header {
    struct safetensors_tensor *tensors; /* in the header's order */
    size_t count;
    size_t capacity;
    struct name_table by_name;
    uint64_t data_offset; /* of the first byte after the header */
    struct arena arena;
};

/* Reads and checks the header: known dtypes, bytes that agree with dtype and shape, and that follow
 * each other to the end of the file without a hole or an overlap; where there is a
 * DCP_SHARDING_INFO, offsets for every tensor. Safe to free after a failure. */
dcp_status safetensors_header_read(struct byte_source source, const char *file_name,
                                   struct safetensors_header *header);
void safetensors_header_free(struct safetensors_header *header);

#endif
