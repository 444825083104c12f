/* SPDX-License-Identifier: BSD-3-Clause */
#include "formula.h"

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

size_t tensor_elements(int32_t ndim, const int64_t *sizes)
{
    size_t elements = 1;

    for (int32_t d = 0; d < ndim; d++)
        elements *= (size_t)sizes[d];
    return elements;
}

static void fill_element(uint64_t seed, dcp_dtype dtype, int64_t position, unsigned char *element)
{
    size_t size = dcp_dtype_size(dtype);
    uint64_t random = 0;

    for (size_t i = 0; i < size; i++, random >>= 8) {
        if (i % 8 == 0)
            random = mix(seed + (uint64_t)position * 2 + i / 8);
        element[i] = (unsigned char)(dtype == DCP_BOOL ? random & 1 : random);
    }
}

void formula_fill(const char *name, const dcp_tensor *chunk)
{
    const int64_t *sizes = chunk->sharded ? chunk->sizes : chunk->global_shape;
    int64_t position[DCP_MAX_DIMS] = {0};
    size_t elements = tensor_elements(chunk->ndim, sizes);
    size_t size = dcp_dtype_size(chunk->dtype);
    uint64_t seed = 14695981039346656037U;

    for (; *name; name++)
        seed = (seed ^ (unsigned char)*name) * 1099511628211U;
    for (size_t i = 0; i < elements; i++) {
        int64_t in_tensor = 0, in_memory = 0;
        for (int32_t d = 0; d < chunk->ndim; d++) {
            int64_t offset = chunk->sharded ? chunk->offsets[d] : 0;
            in_tensor = in_tensor * chunk->global_shape[d] + offset + position[d];
            in_memory = chunk->strided ? in_memory + position[d] * chunk->strides[d]
                                       : in_memory * sizes[d] + position[d];
        }
        fill_element(seed, chunk->dtype, in_tensor,
                     (unsigned char *)chunk->data + in_memory * (int64_t)size);
        for (int32_t d = chunk->ndim - 1; d >= 0 && ++position[d] == sizes[d]; d--)
            position[d] = 0;
    }
}
