/* SPDX-License-Identifier: BSD-3-Clause */
/* Digests of the small objects of a .metadata pickle, one per tensor and chunk. They are made while
 * the pickle is read, so that the memory of each object's own values is reused for the next. */
#ifndef FORMAT_METADATA_METADATA_DIGEST_H
#define FORMAT_METADATA_METADATA_DIGEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "dcp/tensor.h"
#include "format/pickle/pickle.h"

/* A dtype as it was last found: most tensors fetch it from the same place of the input. */
struct found_dtype {
    const char *module, *name;
    uint32_t module_length, name_length;
    dcp_dtype dtype;
};

struct metadata_digester {
    struct arena *boxes; /* shapes, and offsets and sizes of chunks, which the metadata keeps */
    struct arena *rest;
    struct found_dtype found;
};

/* ChunkStorageMetadata. */
struct digested_chunk {
    int32_t ndim;
    const int64_t *offsets;
    const int64_t *sizes;
};

/* TensorStorageMetadata. */
struct digested_tensor {
    dcp_dtype dtype;
    bool requires_grad;
    int32_t ndim;
    uint32_t chunk_count;
    const int64_t *shape;
    const struct pickle_sequence
        *list;                /* its chunks, if they are used elsewhere as well; or NULL */
    const int64_t *offsets[]; /* else of each chunk, with its sizes behind them */
};

/* MetadataIndex. */
struct digested_index {
    const char *name; /* in the input; any text */
    uint32_t name_length;
    int32_t ndim;  /* of the offset; -1: it has none */
    uint64_t hint; /* its index, which is not compared and may be wrong; UINT64_MAX: none */
    int64_t offset[];
};

/* _StorageInfo. */
struct digested_storage {
    const char *path; /* in the input; any text */
    uint32_t path_length;
    bool zstd;
    uint64_t offset;
    uint64_t length; /* offset + length fits int64_t */
};

/* For pickle_digester.digest; context is a struct metadata_digester. */
dcp_status metadata_digest(void *context, const struct pickle_value *value, uint16_t *tag,
                           const void **digest, bool *taken);

/* The digest of a value; if there is none, DCP_ERR_FORMAT (DCP_ERR_UNSUPPORTED for an unknown
 * transform) with the reason. */
dcp_status metadata_chunk(const struct metadata_digester *digester,
                          const struct pickle_value *value, struct digested_chunk *chunk);
dcp_status metadata_tensor(struct metadata_digester *digester, const struct pickle_value *value,
                           const struct digested_tensor **tensor);
dcp_status metadata_tensor_chunk(const struct metadata_digester *digester,
                                 const struct digested_tensor *tensor, uint32_t index,
                                 struct digested_chunk *chunk);
dcp_status metadata_index_key(const struct metadata_digester *digester,
                              const struct pickle_value *value,
                              const struct digested_index **index);
dcp_status metadata_storage(const struct metadata_digester *digester,
                            const struct pickle_value *value,
                            const struct digested_storage **storage);

/* Tags: the kind of a digest, for chunks with the number of dimensions below it. */
enum digest_kind {
    DIGEST_CHUNK = 0x100,
    DIGEST_INDEX = 0x200,
    DIGEST_STORAGE = 0x300,
    DIGEST_TENSOR = 0x400
};

/* What a TensorStorageMetadata with these fields says. It refers to none of them unless
 * (*tensor)->list is set. */
dcp_status metadata_parse_tensor(struct metadata_digester *digester,
                                 const struct pickle_value *state,
                                 const struct digested_tensor **tensor);
/* Whether a callable is a class of PyTorch's metadata module, at its place in any version. */
bool metadata_is_class(const struct pickle_value *callable, const char *name);
/* The numbers of a torch.Size, tuple or list: at most DCP_MAX_DIMS integers >= 0. what: for the
 * message. */
dcp_status metadata_size(const struct pickle_value *value, const char *what,
                         int64_t numbers[DCP_MAX_DIMS], int32_t *ndim);

#endif
