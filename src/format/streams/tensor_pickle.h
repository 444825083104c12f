/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensors in pickles: reads and writes the call by which Python rebuilds one. */
#ifndef FORMAT_STREAMS_TENSOR_PICKLE_H
#define FORMAT_STREAMS_TENSOR_PICKLE_H

#include "format/pickle/pickle.h"
#include "format/zip/zip.h"
#include "state/metadata.h"

/* The contents of a rebuild call. Sizes, strides and the offset count elements; strides are not
 * negative, and every element is inside the storage. */
struct tensor_pickle {
    const char *storage_key; /* of the record "data/KEY"; borrowed from the pickle's input, not
                                NUL-terminated */
    size_t storage_key_length;
    uint64_t storage_bytes;
    int64_t storage_offset;
    dcp_dtype dtype;
    int32_t ndim;
    const int64_t *sizes;
    const int64_t *strides;
    bool conjugate;
    bool negative;
    bool requires_grad;
    bool parameter; /* a torch.nn.Parameter */
};

/* Whether the value is a tensor or parameter whose elements lie in a storage. Other calls, sparse
 * and quantized tensors among them, are not. */
bool tensor_pickle_is_tensor(const struct pickle_value *value);
/* The key, dtype and bytes of a storage, from the persistent id that stands for it. */
dcp_status tensor_pickle_storage(const struct pickle_value *value, struct tensor_pickle *tensor);
/* DCP_ERR_FORMAT if the value is not a tensor, or malformed. sizes and strides come from the
 * arena. */
dcp_status tensor_pickle_parse(const struct pickle_value *value, struct arena *arena,
                               struct tensor_pickle *tensor);
/* Finds the tensor's storage among the archive's records and says where the elements lie; sizes and
 * strides are shared with the tensor. */
dcp_status tensor_pickle_view(const struct tensor_pickle *tensor, const struct zip_archive *archive,
                              struct tensor_view *view);

/* A tensor may repeat its elements (expand), but what it claims to have must not be absurd:
 * DCP_ERR_FORMAT beyond 64 MiB and 1024 times its storage. */
dcp_status tensor_pickle_check_expansion(const struct tensor_view *view);

/* Appends the data.pkl of a dense row-major tensor, as torch.save writes it. The dtype must be one,
 * and the bytes of the shape must fit int64_t. */
void tensor_pickle_write(struct buffer *out, dcp_dtype dtype, int32_t ndim, const int64_t *sizes);
/* The bytes that tensor_pickle_write() appends. */
size_t tensor_pickle_size(dcp_dtype dtype, int32_t ndim, const int64_t *sizes);

#endif
