/* SPDX-License-Identifier: BSD-3-Clause */
/* Builds the nodes of a state tree from the values of a pickle.
 *
 * Each value becomes one node, however many others refer to it, so sharing and cycles are
 * preserved. Values that are copied, although the pickle holds them once (the elements of a list
 * from which two sets are made), are counted, so that the number of nodes stays in proportion to
 * the pickle.
 */
#ifndef FORMAT_OBJECTS_OBJECT_BUILDER_H
#define FORMAT_OBJECTS_OBJECT_BUILDER_H

#include "format/objects/object_tensor.h"
#include "format/pickle/pickle.h"
#include "state/node.h"

/* A container node that is being filled: from a sequence (dicts: key, value, key, value ...), or
 * from what a call was made of and given. */
struct builder_frame {
    dcp_state *node;
    struct pickle_sequence children;
    const struct pickle_call *call; /* NULL: children */
    uint32_t position;
    dcp_state *key;    /* waits for its value */
    bool is_unsettled; /* a dict or set that is in the builder's list */
};

/* A dict with keys, or a set with elements, that have parts: they are compared in the end. */
struct builder_unsettled {
    dcp_state *container;
    struct builder_unsettled *next;
};

struct builder {
    struct state_pool *pool;
    struct object_tensors tensors;
    dcp_state ***pages; /* nodes by serial of the value, in pages that are made when needed */
    struct arena page_arena;
    struct builder_frame *frames;
    size_t depth, capacity;
    uint64_t allowance; /* children and bytes that may still be taken */
    struct builder_unsettled *unsettled;
};

/* Converts a whole graph. pickle_size: bytes that the document was read from. *object lives in the
 * pool. */
dcp_status object_build(const struct pickle_value *root, const struct pickle_document *document,
                        size_t pickle_size, const struct zip_archive *archive,
                        struct state_pool *pool, dcp_state **object);

/* The node of a value, perhaps still without its children. */
dcp_status builder_value(struct builder *builder, const struct pickle_value *value,
                         dcp_state **node);
/* Makes the node of a value that has none yet. */
dcp_status builder_new(struct builder *builder, const struct pickle_value *value, dcp_state **node);
/* Likewise, of a CALL or OBJECT. */
dcp_status builder_call(struct builder *builder, const struct pickle_value *value,
                        dcp_state **node);

/* Has a container filled from a sequence. */
dcp_status builder_fill(struct builder *builder, dcp_state *node, struct pickle_sequence children);
/* Has an opaque node filled from a call. */
dcp_status builder_fill_opaque(struct builder *builder, dcp_state *node,
                               const struct pickle_call *call);
/* A new container that will be filled. */
dcp_status builder_container(struct builder *builder, dcp_kind kind,
                             struct pickle_sequence children, dcp_state **node);
/* Takes from the allowance; DCP_ERR_FORMAT when it is spent. */
dcp_status builder_charge(struct builder *builder, uint64_t amount);
/* Has the dict know what else than its pairs it is made of; call is copied. */
dcp_status builder_make_dict(struct builder *builder, dcp_state *dict,
                             const struct pickle_call *call);
/* Names an opaque node that something is called by, and says what its children will be. */
dcp_status builder_name_opaque(struct builder *builder, const struct pickle_call *call,
                               bool is_object, dcp_state *node);
/* The status of a function that makes a node: DCP_OK, or the error that was set if it returned
 * NULL. */
dcp_status builder_made(const dcp_state *node);

#endif
