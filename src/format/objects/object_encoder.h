/* SPDX-License-Identifier: BSD-3-Clause */
/* Inside of the object writer: a pickle in the making, and its memo. */
#ifndef FORMAT_OBJECTS_OBJECT_ENCODER_H
#define FORMAT_OBJECTS_OBJECT_ENCODER_H

#include "format/pickle/pickle.h"
#include "state/node.h"

/* Names that pickles refer to; dtypes come behind, in the order of dcp_dtype. */
enum encoder_global {
    GLOBAL_GETATTR,
    GLOBAL_ENCODE,
    GLOBAL_BYTEARRAY,
    GLOBAL_COMPLEX,
    GLOBAL_SET,
    GLOBAL_FROZENSET,
    GLOBAL_SIZE,
    GLOBAL_DEVICE,
    GLOBAL_ORDERED_DICT,
    GLOBAL_REBUILD_TYPED,
    GLOBAL_REBUILD_UNTYPED,
    GLOBAL_REBUILD_PARAMETER,
    GLOBAL_UNTYPED_STORAGE,
    GLOBAL_DTYPES,
    GLOBAL_STORAGES = GLOBAL_DTYPES + DCP_BITS4X2 + 1, /* classes of typed ones, by dtype */
    GLOBAL_COUNT = GLOBAL_STORAGES + DCP_BITS4X2 + 1
};

/* What is known of a node, or a block, that was met. */
struct encoder_slot {
    const void *identity; /* NULL: free */
    uint32_t index;       /* in the pickle's memo; of blocks: of the storage */
    bool open;            /* a container whose children are being written */
};

/* A container or a call that is being written. */
struct encoder_frame {
    const dcp_state *node; /* a container, or the opaque node that says how something is made */
    const dcp_state *made; /* calls: what is made: the node itself, or a dict */
    bool given;            /* a container whose parts are added to the value on top of the stack */
    size_t position;       /* of the next child; dicts count keys and values; calls: step */
};

/* A storage that tensors look at. */
struct encoder_storage {
    const struct state_block *block; /* NULL: the elements of one tensor, row-major */
    const dcp_state *tensor;         /* the first one */
    uint64_t size;                   /* in bytes */
    dcp_dtype dtype;                 /* of its class; bytes where that is UntypedStorage */
    uint32_t memo_of_key;            /* plus one; 0: not yet written */
};

struct encoder {
    struct buffer *out;
    bool modern; /* protocol 3 or later, which uses Python 3's name of the module builtins */
    struct encoder_slot *slots;
    size_t slot_count, slot_capacity;
    struct encoder_frame *frames;
    size_t depth, frame_capacity;
    uint32_t memo_count;
    uint32_t memo_of_global[GLOBAL_COUNT]; /* plus one; 0: not yet written */
    uint32_t memo_of_latin1;               /* likewise, as what follows */
    uint32_t memo_of_storage;
    uint32_t memo_of_cpu;
    struct name_table names; /* "module.name" of opaque nodes -> index in the memo */

    bool takes_tensors; /* else they are refused */
    struct encoder_storage *storages;
    size_t storage_count, storage_capacity;
};

/* Writes a value with all below it. In the end encoder_free(). */
dcp_status encoder_walk(struct encoder *encoder, const dcp_state *object);
void encoder_free(struct encoder *encoder);
/* Writes a tensor. Its storage is added unless it was added for another tensor. */
dcp_status encoder_put_tensor(struct encoder *encoder, const dcp_state *node);

/* The slot of a node, taken for it if it is new; valid until the next call. */
dcp_status encoder_take_slot(struct encoder *encoder, const dcp_state *node,
                             struct encoder_slot **slot, bool *existing);
/* Likewise of a block, whose index is that of its storage. */
dcp_status encoder_take_block(struct encoder *encoder, const struct state_block *block,
                              struct encoder_slot **slot, bool *existing);
/* The slot of a node that was met before. */
struct encoder_slot *encoder_find_slot(const struct encoder *encoder, const dcp_state *node);
/* Memoizes what was written last and returns its index. Values that Python has and the tree has not
 * take an index, too. */
uint32_t encoder_put_memo(struct encoder *encoder);

void encoder_put_global(struct encoder *encoder, enum encoder_global global);
void encoder_put_dtype(struct encoder *encoder, dcp_dtype dtype);
/* The class of a dtype's storages. */
void encoder_put_storage_class(struct encoder *encoder, dcp_dtype dtype);
/* Makes a tuple of the last count values (of all above the mark if more than three). */
void encoder_put_tuple(struct encoder *encoder, size_t count);
/* Likewise, and calls with it what lies below. */
void encoder_put_reduce(struct encoder *encoder, size_t count);

/* A value, or the beginning of one that encoder_walk() will write. */
dcp_status encoder_put_value(struct encoder *encoder, const dcp_state *node);
dcp_status encoder_push_frame(struct encoder *encoder, struct encoder_frame frame);
/* The next step of the call on top of the frames, which is taken off with the last one. */
dcp_status encoder_step_call(struct encoder *encoder);
/* What an opaque node is called by. It is memoized. */
dcp_status encoder_put_opaque_name(struct encoder *encoder, const struct state_opaque *opaque);
/* Texts and ints in Python's own form. *known is false for other opaque nodes. */
dcp_status encoder_put_opaque_leaf(struct encoder *encoder, const dcp_state *node, bool *known);

/* Writes a shareable value without children, or a torch.Size, which the caller memoizes. *known is
 * false for other kinds. */
dcp_status encoder_put_leaf(struct encoder *encoder, const dcp_state *node, bool *known);
dcp_status encoder_put_integer(struct encoder *encoder, const dcp_state *node);

#endif
