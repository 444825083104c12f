/* SPDX-License-Identifier: BSD-3-Clause */
/* Internal to metadata_decode(): data that its steps share. */
#ifndef FORMAT_METADATA_METADATA_DECODING_H
#define FORMAT_METADATA_METADATA_DECODING_H

#include "format/metadata/metadata_codec.h"
#include "format/metadata/metadata_digest.h"
#include "format/pickle/pickle.h"

struct metadata_decoding {
    struct metadata *metadata;
    struct pickle_document document;
    struct arena scratch;
    struct metadata_digester digester;
    const struct digested_tensor **tensors; /* of each entry; NULL: it is an object */
};

/* The name, dtype and shape of each entry, and what its chunks are, from state_dict_metadata. */
dcp_status metadata_decode_entries(struct metadata_decoding *decoding,
                                   const struct pickle_value *state_dict);
/* The path of each entry, from planner_data. Ignores values that are not paths by PyTorch's rules;
 * *only_paths: there are none. */
dcp_status metadata_decode_paths(struct metadata_decoding *decoding,
                                 const struct pickle_value *planner_data, bool *only_paths);
/* planner_data as an object, as custom planners have stored it. pickle_size: of the document.
 * Values that cannot be represented are logged and ignored. */
dcp_status metadata_decode_planner(struct metadata_decoding *decoding, size_t pickle_size,
                                   const struct pickle_value *planner_data);
/* The description of the save, from storage_meta. pickle_size: of the document. */
dcp_status metadata_decode_storage_meta(struct metadata_decoding *decoding, size_t pickle_size,
                                        const struct pickle_value *storage_meta);
/* The extra files. NULL: there are none. */
dcp_status metadata_decode_extra_files(struct metadata_decoding *decoding,
                                       const struct pickle_value *list);
/* The pieces of each entry, and the files, from the chunks and storage_data. */
dcp_status metadata_decode_pieces(struct metadata_decoding *decoding,
                                  const struct pickle_value *storage_data);

/* Puts "metadata, \"NAME\": " in front of the message. */
dcp_status metadata_prefix_name(dcp_status status, const char *name, size_t length);

#endif
