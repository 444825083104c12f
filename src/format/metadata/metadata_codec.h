/* SPDX-License-Identifier: BSD-3-Clause */
/* Encoding and decoding struct metadata: .metadata pickles, .pt files, safetensors directories. */
#ifndef FORMAT_METADATA_METADATA_CODEC_H
#define FORMAT_METADATA_METADATA_CODEC_H

#include "base/buffer.h"
#include "base/byte_source.h"
#include "state/metadata.h"

/* Decodes a .metadata file: its pickle, or the compact form behind it if it has one, and its
 * checksum likewise. Checked: everything that
 * section 18 of the format's facts lists, file sizes excepted (storage/ has them). *metadata is
 * initialized by the call, and empty on failure; nothing of the bytes is needed afterwards. */
dcp_status metadata_decode(const void *bytes, size_t size, struct metadata *metadata);
/* The same for a __R.metadata pickle, which has the chunks of one rank only. Does not check that
 * chunks cover their tensor and do not overlap. */
dcp_status metadata_decode_part(const void *bytes, size_t size, struct metadata *metadata);
/* The compact form in a .metadata file, whose checksum is compared; NULL: it has none. And the same
 * as metadata_decode() of that alone. */
dcp_status metadata_find_compact(const void *bytes, size_t size, const void **compact,
                                 size_t *compact_size);
dcp_status metadata_decode_compact(const void *bytes, size_t size, struct metadata *metadata);
/* That the pickle of a .metadata file says the same as the compact form behind it, if that is
 * there. Errors: DCP_ERR_FORMAT. */
dcp_status metadata_compare_forms(const void *bytes, size_t size);
/* metadata_check_entry() for all entries. */
dcp_status metadata_check_chunks(const struct metadata *metadata);
/* Makes decoded metadata a member of a union: puts the member's name in front of the names of
 * files, so that messages name the member. */
dcp_status metadata_set_member(struct metadata *part, const char *name, bool chosen);
/* Unites metadata of rank-local saves, parts[r] being rank r's, or of the members of a union.
 * Kinds, sizes and dtypes must agree. Of a tensor's chunks at equal offsets and of objects, the
 * first part's is taken; what another member has of the same becomes a replica, and so does a
 * tensor that members hold whole in different chunks. The result is checked as by
 * metadata_decode(), but not that replicas are equal. Takes nothing from the parts; they can be
 * freed afterwards. *whole is initialized by the call. */
dcp_status metadata_unite(const struct metadata *parts, size_t count, struct metadata *whole);
/* The same without checking that chunks cover their tensors and do not overlap. */
dcp_status metadata_unite_unchecked(const struct metadata *parts, size_t count,
                                    struct metadata *whole);
/* The step in between, for the result of that: makes replicas of tensors that members hold
 * completely in different chunks. */
dcp_status metadata_settle_members(struct metadata *whole);
/* Appends whole metadata as a .metadata file: a pickle of protocol 4, readable by PyTorch 2.4 to
 * 2.15, the compact form, if there is one, and a checksum; version
 * "1.0.0", storage_meta with save_id, planner_data if there is any, else the paths where has_paths.
 * The same metadata gives the same bytes. Errors: DCP_ERR_ARGUMENT for names that are not UTF-8,
 * DCP_ERR_UNSUPPORTED for pieces that are no streams. */
dcp_status metadata_encode(const struct metadata *metadata, struct buffer *out);

/* Reads a torch.save file as a checkpoint of one file: a zip archive, or as before PyTorch 1.6;
 * source is borrowed for the metadata's life (it is read when objects with tensors inside are asked
 * for). Names are those of flattening, but dicts with keys whose text is not known stay one object.
 * Tar and TorchScript files are refused by name. *metadata is initialized by the call, and empty on
 * failure. */
dcp_status pt_decode(struct byte_source source, const char *file_name, struct metadata *metadata);
/* Likewise; local_parts: a DTensor is the tensor that the file has of it, the part of one rank, and
 * as an object where that lies in the whole (DTensorSpec). */
dcp_status pt_decode_parts(struct byte_source source, const char *file_name, bool local_parts,
                           struct metadata *metadata);
/* Whether such a file is a zip archive, whose records may have checksums. */
dcp_status pt_has_records(struct byte_source source, bool *has);
/* Reads an object entry of a .pt checkpoint as nodes. */
dcp_status pt_read_object(const struct metadata *metadata, const struct metadata_piece *piece,
                          struct state_pool *pool, dcp_state **object);

/* Adds one file of a safetensors directory to an initialized metadata. Call for each file in order
 * of names, then safetensors_finish(), which computes global shapes and checks. */
dcp_status safetensors_add(struct byte_source source, const char *file_name,
                           struct metadata *metadata);
dcp_status safetensors_finish(struct metadata *metadata);

#endif
