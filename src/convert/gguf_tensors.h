/* SPDX-License-Identifier: BSD-3-Clause */
/* A model's tensors as GGUF files have them: names, layouts and types. */
#ifndef CONVERT_GGUF_TENSORS_H
#define CONVERT_GGUF_TENSORS_H

#include "convert/convert_source.h"

/* ggml's numbers. */
enum gguf_tensor_type { GGUF_F32 = 0, GGUF_F16 = 1, GGUF_Q8_0 = 8, GGUF_BF16 = 30 };

struct gguf_tensor {
    struct convert_item item; /* its bytes, as the file has them */
    enum gguf_tensor_type type;
    int32_t ndim;
    const int64_t *shape; /* of elements, outermost first */
    uint64_t offset;      /* in the data */
};

/* Gives the source's items their names and layouts in a GGUF file, by a table of rules. */
dcp_status gguf_tensors_name(struct convert_source *source, uint64_t heads,
                             uint64_t key_value_heads);
/* Lists them with types and offsets, in the arena. *type: DCP_GGUF_AUTO becomes one. */
dcp_status gguf_tensors_list(struct convert_source *source, dcp_gguf_type *type,
                             struct gguf_tensor **tensors);

/* The next multiple of the alignment of data. */
uint64_t gguf_align(uint64_t offset);
/* An item whose elements are bytes of Q8_0 blocks of another one's, of float32. */
dcp_status gguf_quantize(struct arena *arena, const struct convert_item *input,
                         struct convert_item *item);

#endif
