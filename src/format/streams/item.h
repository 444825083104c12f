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
/* The same from the beginning of a stream alone, where records lie in the order in which torch.save
 * writes them; *known is false where they do not, or it is cut off in front of the elements. What
 * it says is to be compared with item_open_tensor() before it is trusted. It knows no CRC. */
dcp_status item_foresee_tensor(const void *beginning, size_t size, struct arena *arena,
                               struct tensor_view *view, bool *known);
/* Whether both say the same of where elements lie and what they are; CRCs aside. */
bool item_same_view(const struct tensor_view *a, const struct tensor_view *b);

/* Decodes an object's stream into nodes of the pool; tensors inside are views of blocks that the
 * pool owns, one for each storage. Sharing and cycles are kept. Unknown classes become opaque
 * nodes, whose children are the arguments, then, where they are there, the state, a list of what
 * was appended, a dict of what was set. */
dcp_status item_read_object(struct byte_source stream, struct state_pool *pool, dcp_state **object);

/* Encodes an object (anything flatten calls a leaf) as a protocol-2 pickle that PyTorch reads with
 * weights_only=True, frozensets excepted. Errors: DCP_ERR_UNSUPPORTED for nodes that have no such
 * form (opaque ones, tensors), DCP_ERR_ARGUMENT for cycles; the story says where. */
dcp_status item_encode_object(const dcp_state *object, struct buffer *pickle);

/* Appends the whole stream of an object, as torch.save writes it. Tensors inside of it, which must
 * be whole, are copied there; those of one block share a storage. One that is given as a stored
 * stream is checked and appended as it is. */
dcp_status item_encode_stream(const dcp_state *object, struct buffer *stream);
/* That a stream is a file of torch.save as far as can be told without its pickle: a zip archive
 * with data.pkl, whose records agree with the CRC-32s that they have. */
dcp_status item_check_stream(struct byte_source stream);
/* As item_encode_object(), as a value inside of a pickle of protocol 4 that is being written, of
 * which memo_count values are in the memo. */
dcp_status item_put_object(const dcp_state *object, uint32_t *memo_count, struct buffer *pickle);

#endif
