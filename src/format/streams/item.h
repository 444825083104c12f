/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening stored items: tensors as views of bytes, objects as nodes of a state tree. */
#ifndef FORMAT_STREAMS_ITEM_H
#define FORMAT_STREAMS_ITEM_H

#include "base/byte_source.h"
#include "format/pickle/pickle.h"
#include "state/metadata.h"

/* Reads the stream's directory and data.pkl and says where the elements lie. sizes and strides come
 * from arena. Checked: the element range lies inside the storage, the record has the storage's
 * size, the opcodes and globals are the known ones. Whether dtype and sizes are those of the
 * metadata is checked by item_check_view(). */
dcp_status item_open_tensor(struct byte_source stream, struct arena *arena,
                            struct tensor_view *view);
dcp_status item_check_view(const struct tensor_view *view, dcp_dtype dtype, int32_t ndim,
                           const int64_t *sizes);
/* The same from only the beginning of a stream, if records are in torch.save's order. *known is
 * false if they are not, or if the beginning ends before the elements. The result is a prediction
 * without a CRC: compare it with item_open_tensor() before relying on it. */
dcp_status item_foresee_tensor(const void *beginning, size_t size, struct arena *arena,
                               struct tensor_view *view, bool *known);
/* Whether both views agree on place, dtype and shape, ignoring CRCs. */
bool item_same_view(const struct tensor_view *a, const struct tensor_view *b);

/* Decodes an object's stream into nodes of the pool; tensors inside are views of blocks that the
 * pool owns, one for each storage. Sharing and cycles are kept. Unknown classes become opaque
 * nodes. Their children are the arguments and, if present, the state, a list of appended items and
 * a dict of set items. */
dcp_status item_read_object(struct byte_source stream, struct state_pool *pool, dcp_state **object);

/* Encodes an object (anything flatten calls a leaf) as a protocol-2 pickle that PyTorch reads with
 * weights_only=True, frozensets excepted. Errors: DCP_ERR_UNSUPPORTED for nodes that cannot be
 * encoded (opaque ones, tensors), DCP_ERR_ARGUMENT for cycles; the message says where. */
dcp_status item_encode_object(const dcp_state *object, struct buffer *pickle);

/* Appends the whole stream of an object, as torch.save writes it. Tensors in it must be whole, and
 * are copied; those of one block share a storage. An object given as a stored stream is checked and
 * appended unchanged. */
dcp_status item_encode_stream(const dcp_state *object, struct buffer *stream);
/* The same in parts, for elements that are not in memory: appends the pickle, and returns which
 * storages its records "data/0", "data/1" ... are: those of the blocks of tensors (block), or the
 * elements of one tensor, row-major. storages: memory_release(), also after a failure. */
struct item_storage {
    const dcp_state *tensor; /* the first one that looks at it */
    const struct state_block *block;
    uint64_t size;
};
dcp_status item_encode_parts(const dcp_state *object, struct buffer *pickle,
                             struct item_storage **storages, size_t *count);
/* Checks that a stream is a file of torch.save, without reading its pickle: a zip archive with
 * data.pkl, whose records match their CRC-32s, if they have them. */
dcp_status item_check_stream(struct byte_source stream);
/* As item_encode_object(), but as a value in a pickle of protocol 4 that is being written and has
 * memo_count values in its memo. */
dcp_status item_put_object(const dcp_state *object, uint32_t *memo_count, struct buffer *pickle);

#endif
