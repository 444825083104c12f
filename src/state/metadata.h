/* SPDX-License-Identifier: BSD-3-Clause */
/* What a checkpoint contains, in memory: every name with its dtype, shape and pieces, and where
 * each piece lies.
 *
 * The save planner makes it and format/ encodes it; format/ decodes it and the load planner and
 * storage/ use it. It lives in this room because all of them share it. Everything points into the
 * arena. */
#ifndef STATE_METADATA_H
#define STATE_METADATA_H

#include "base/arena.h"
#include "base/name_table.h"
#include "state/box.h"
#include "state/extra_file.h"
#include "state/flatten.h"

/* How the bytes of a piece are to be understood. */
enum piece_encoding {
    PIECE_STREAM = 0, /* a torch.save stream of one tensor or object */
    PIECE_RAW = 1,    /* row-major little-endian elements (safetensors) */
    PIECE_VIEW = 2,   /* a view of a storage inside a .pt file: see view */
    PIECE_HELD = 3,   /* an object's stream, in memory: see object */
    PIECE_RANGE = 4   /* some elements of a tensor in a torch.save stream: see range */
};

/* Where the elements of a stored tensor lie: the result of opening a piece of any encoding. Offsets
 * count from the start of the byte source that was opened (the piece's own bytes; for views and raw
 * pieces the file). */
struct tensor_view {
    dcp_dtype dtype;
    int32_t ndim;
    const int64_t *sizes;
    const int64_t *strides; /* elements, never negative */
    int64_t storage_offset; /* elements */
    bool conjugate;         /* elements are to be conjugated */
    bool negative;          /* elements are to be negated */
    bool swapped;           /* stored big-endian */
    bool deflated;          /* data_length stored bytes inflate to storage_bytes */
    bool has_crc;
    uint32_t crc; /* of the storage_bytes, uncompressed */
    uint64_t data_offset;
    uint64_t data_length;
    uint64_t storage_bytes;
};

/* Which elements of the tensor in a stream a piece is: as many as it has, consecutive, row-major in
 * the tensor and in the piece. */
struct stream_range {
    int32_t ndim; /* of the tensor in the stream */
    const int64_t *sizes;
    int64_t first;
};

/* A stored chunk of a tensor, or an object. */
struct metadata_piece {
    const int64_t *offsets; /* ndim values; NULL for objects */
    const int64_t *sizes;
    uint32_t file; /* index into metadata.files */
    uint8_t encoding;
    bool zstd; /* the stream is compressed as a whole */
    uint64_t offset;
    uint64_t length;
    const struct tensor_view *view;   /* PIECE_VIEW, PIECE_RAW */
    const struct stream_range *range; /* PIECE_RANGE */
    const void *object; /* PIECE_VIEW objects: private to format/; PIECE_HELD: length bytes */
};

struct metadata_entry {
    const char *name;
    const dcp_path_part *path;
    size_t path_length;
    bool is_tensor;
    bool requires_grad;
    dcp_dtype dtype;
    int32_t ndim;
    const int64_t *global_shape;
    struct metadata_piece *pieces; /* objects have exactly one */
    size_t piece_count;
};

/* One of the directories that a checkpoint is the union of. */
struct metadata_member {
    const char *name; /* what the names of its files begin with, before a slash */
    bool chosen;      /* by the caller, who may name any directory; else found on disk */
    const char *save_id;
};

/* What a member holds of an entry that another member holds as well, and that is read from there:
 * both must be equal. */
struct metadata_replica {
    size_t entry;
    struct metadata_piece piece;
};

struct metadata {
    struct metadata_entry *entries;
    size_t count;
    const char **files; /* relative to the checkpoint's directory; checked: no way out of it */
    size_t file_count;
    const uint64_t *file_sizes;      /* as another rank found them; NULL: not known */
    struct metadata_member *members; /* of a union; none otherwise */
    size_t member_count;
    uint32_t *file_members; /* of a union: by file */
    struct metadata_replica *replicas;
    size_t replica_count;
    struct name_table by_name;     /* name -> index of entry */
    bool has_paths;                /* planner_data was there: paths are more than [name] */
    const char *save_id;           /* "" if unknown */
    const dcp_state *planner_data; /* data that a planner stored instead of paths; NULL: none */
    dcp_state *planner_root; /* the tree that contains planner_data, if the metadata owns it */
    /* What else storage_meta says; NULL: nothing. */
    const char *checkpoint_id;
    const char *load_id;
    const char *const *modules;
    size_t module_count;
    const struct extra_file *extra_files;
    size_t extra_file_count;
    struct arena arena;
    void *attachment; /* kept alive for PIECE_VIEW objects; private to format/ */
    void (*free_attachment)(void *attachment);
};

void metadata_init(struct metadata *metadata);
void metadata_free(struct metadata *metadata);
/* Fills by_name; DCP_ERR_DUPLICATE if a name occurs twice. */
dcp_status metadata_index(struct metadata *metadata);
/* The same for one entry of a known length of its name, after those before it; count is known. */
dcp_status metadata_index_entry(struct metadata *metadata, size_t index, size_t name_length);
const struct metadata_entry *metadata_find(const struct metadata *metadata, const char *name);
/* The member of a union that a file is in; NULL if the checkpoint is one directory. */
const struct metadata_member *metadata_file_member(const struct metadata *metadata, uint32_t file);
/* Whether a piece's bytes are a torch.save stream, of all that is in it or of a range. */
bool metadata_is_in_stream(const struct metadata_piece *piece);
/* The shape of the tensor in such a piece's stream, and the bytes of its elements; false: they
 * overflow. Of other pieces: their own. */
struct metadata_shape {
    int32_t ndim;
    const int64_t *sizes;
};
struct metadata_shape metadata_stream_shape(const struct metadata_entry *entry,
                                            const struct metadata_piece *piece);
bool metadata_stream_bytes(const struct metadata_entry *entry, const struct metadata_piece *piece,
                           uint64_t *bytes);
/* Whether the tensor in the stream of a PIECE_RANGE has all of its elements. */
bool metadata_range_fits(const struct metadata_entry *entry, const struct metadata_piece *piece);
/* Chunks inside their tensor, disjoint, and covering it; the message names entry, chunk and box.
 * One entry. */
dcp_status metadata_check_entry(const struct metadata_entry *entry);
/* How many elements of a tensor no chunk holds, if its chunks are inside of it and disjoint. */
int64_t metadata_count_missing(const struct metadata_entry *entry);
/* The same of all tensors. */
struct metadata_missing {
    uint64_t tensors;
    uint64_t elements;
};
struct metadata_missing metadata_sum_missing(const struct metadata *metadata);
/* "[0:4, 3:9], [8:9, 0:3]": the first boxes that no chunk of a tensor holds, which lacks some. */
enum { METADATA_MISSING_TEXT = 512 };
dcp_status metadata_format_missing(const struct metadata_entry *entry,
                                   char text[METADATA_MISSING_TEXT]);

#endif
