/* SPDX-License-Identifier: BSD-3-Clause */
/* Internal to the .pt reader: an open file, and which of its containers flattening enters. */
#ifndef FORMAT_TORCH_FILE_PT_FILE_H
#define FORMAT_TORCH_FILE_PT_FILE_H

#include "base/buffer.h"
#include "format/pickle/pickle.h"
#include "format/zip/zip.h"
#include "state/metadata.h"

/* What stays open for as long as the metadata is used. */
struct pt_file {
    struct zip_archive archive;
    const struct zip_record *record; /* data.pkl */
    uint64_t record_offset;          /* of its stored bytes */
    void *pickle;
    struct pickle_document document;
    bool local_parts; /* a DTensor is the tensor that the file has of it */
};

/* Refuses, by name, files that are neither zip archives nor of the legacy form. *magic_size: of the
 * pickle by which a legacy file is recognized; 0: it is a zip archive. */
dcp_status pt_recognize(const struct byte_source *source, size_t *magic_size);
/* Opens a legacy file: fills in archive, pickle, document and record. Also after a failure, all of
 * them are to be given back. */
dcp_status pt_legacy_open(struct byte_source source, size_t magic_size, struct pt_file *file);
/* Fills in entries and files of the metadata. */
dcp_status pt_flatten(const struct pt_file *file, const char *file_name, struct metadata *metadata);

/* The local tensor of a DTensor, and where it lies in the whole (NULL: not said); every other value
 * is returned as it is. */
const struct pickle_value *pt_local_part(const struct pickle_value *value,
                                         const struct pickle_value **placement);

/* Remembers what was found out about each container; all zero at first. */
struct pt_containers {
    unsigned char *marks; /* by serial */
    bool local_parts;     /* as pt_file */
};

/* The parts of a container: keys and values, or elements. Empty for everything else. */
struct pickle_sequence pt_container_parts(const struct pickle_value *value, bool *is_dict);
/* Whether flattening enters a value: a dict whose keys all have a text, or a list that contains a
 * tensor, a dict, or (at any depth of lists) such a list. */
dcp_status pt_container_is_entered(struct pt_containers *containers,
                                   const struct pickle_value *value, bool *entered);

/* Whether a dict's key can be a part of a name: a string, number, bool or None, or a tuple of them,
 * whose text is a name. */
bool pt_key_has_text(const struct pickle_value *key);
/* Appends Python's str(key) of such a key. */
dcp_status pt_key_append(struct buffer *out, const struct pickle_value *key);

#endif
