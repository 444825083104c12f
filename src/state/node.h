/* SPDX-License-Identifier: BSD-3-Clause */
/* Inside of the state tree, for the rooms that fill it (format), flatten it (this room) and walk it
 * (checkpoint).
 *
 * Nodes come from arenas: one of the root, and one for each object that a load put into the tree,
 * so that the object can be replaced and its memory given back. Graphs inside an arena may share
 * nodes and contain themselves; nothing recurses over them, and freeing is freeing arenas. */
#ifndef STATE_NODE_H
#define STATE_NODE_H

#include "base/arena.h"
#include "base/error.h"
#include "base/name_table.h"
#include "dcp/state.h"

/* A pair of a dict, or an element of a list. key is NULL in lists, tuples and sets. */
struct state_child {
    struct dcp_state *key; /* any kind; mostly strings */
    struct dcp_state *value;
};

struct state_index;

struct state_children {
    struct state_child *items;
    size_t count;
    size_t capacity;
    struct state_index *index; /* of a dict or set; NULL while it is small */
    /* Of a dict that is more than its pairs (a defaultdict, attributes): an opaque node that says
     * how it is made, without them. NULL: a plain one. Nothing but saving looks at it. */
    struct dcp_state *making;
};

/* One chunk that this rank holds; arrays have ndim values each, in the arena. */
struct state_chunk {
    int64_t *offsets;
    int64_t *sizes;
    int64_t *strides; /* always filled in */
    void *data;
    dcp_device device;               /* where data is */
    const struct state_block *block; /* of a tree, that data lies in, perhaps with that of other
                                        chunks; NULL: the caller's memory */
};

struct state_tensor {
    dcp_dtype dtype;
    int32_t ndim;
    int64_t *global_shape;
    bool requires_grad;
    bool parameter; /* inside of an object: a torch.nn.Parameter */
    bool sharded;   /* some chunk may be less than the whole */
    struct state_chunk *chunks;
    size_t chunk_count;
    size_t chunk_capacity;
    struct chunk_index *index; /* of many chunks; NULL while they are few */
    const dcp_layout *layout;  /* of the first chunk; NULL: unknown */
    const char *key;           /* that it was added with, for messages; NULL: none */
};

/* A pair of a dict that is being built. */
struct state_pair {
    struct dcp_state *dict;
    struct dcp_state *key;   /* NULL: not yet added */
    struct dcp_state *next;  /* in the root's list of pairs without a value */
    struct dcp_state **link; /* what points to this one there; NULL: in no list, it has its value */
    struct dcp_state *next_in_pool;
};

struct dcp_state {
    dcp_kind kind;
    uint32_t mark;              /* of the walk that last came here, see node_walk_begin() */
    struct state_root *root;    /* the tree that owns this node */
    struct state_pool *pool;    /* where this node lives */
    struct state_pool *content; /* the loaded object that what follows is from; NULL if none */
    union {
        bool boolean;
        struct {
            uint64_t bits;    /* as int64_t, unless is_unsigned */
            char *digits;     /* made on demand, unless is_big */
            bool is_unsigned; /* beyond INT64_MAX */
            bool is_big;      /* beyond both: digits alone */
        } integer;
        double number;
        struct {
            double real, imaginary;
        } complex;
        struct {
            char *bytes; /* NUL-terminated */
            size_t length;
        } text;                         /* string, bytes, bytearray, device, stream */
        struct state_children children; /* list, tuple, dict, ordered dict, set, frozenset, size */
        struct state_pair pair;
        struct state_tensor *tensor;
        dcp_stateful stateful;
        dcp_dtype dtype;
        struct state_opaque *opaque;
    } as;
};

/* What an opaque node stands for in a pickle. */
enum opaque_form {
    OPAQUE_LOST = 0, /* something of it was not kept: it cannot be saved */
    OPAQUE_NAME,     /* a class or function itself */
    OPAQUE_CALL,     /* what a function returned */
    OPAQUE_OBJECT,   /* an object of a class */
    OPAQUE_STRING,   /* a str that is not UTF-8: its bytes are the only child */
    OPAQUE_INTEGER   /* an int beyond what digits are kept of: two's complement, the only child */
};

/* Calls and objects have these children, in this order: what is called if that is no name,
 * arguments, state, a list of what was appended, a dict of what was set. */
struct state_opaque {
    char *name;           /* "module.name" */
    size_t module_length; /* of the module in it */
    enum opaque_form form;
    bool has_callable, has_state, has_items, has_pairs; /* as children */
    uint32_t argument_count;
    struct state_children children;
};

/* Memory that the tree owns: of a chunk that a load allocated, or a storage of PyTorch's, which
 * tensors of one object share. It lives as long as its pool. */
struct state_block {
    void *data;
    uint64_t size; /* in bytes */
    dcp_device device;
    struct state_block *next;
};

/* Memory for nodes: that of the root, or of a loaded object. */
struct state_pool {
    struct state_root *root;
    struct arena arena;
    struct state_index *indexes;
    dcp_state *pairs; /* that were begun */
    struct state_block *blocks;
    struct state_pool *objects; /* put in places of this pool; they die with it */
    struct state_pool *next;    /* in the list of objects that this pool is in */
    struct state_pool **link;   /* what points to this pool there; NULL: in no list */
};

struct state_root {
    dcp_state node; /* the dict that the caller sees */
    struct state_pool own;
    struct saved_error failure;  /* the first one */
    dcp_state *open_pairs;       /* without a value */
    struct state_index *watched; /* of containers that dcp_state_status() checks */
    uint32_t walk;               /* number of the last walk */
};

/* Starts an object: a pool that is not yet part of the tree. */
struct state_pool *state_pool_new(struct state_root *root);
/* Abandons it, with all nodes made from it. NULL is allowed. */
void state_pool_free(struct state_pool *pool);

/* Node makers for decoders. Texts and bytes are copied. NULL: no memory, with the message set.
 * Nodes of kinds whose value is plain (none, bool, float, complex, dtype) are filled in by the
 * caller. */
dcp_state *node_new(struct state_pool *pool, dcp_kind kind);
/* string, bytes, bytearray, device, stream; opaque: its "module.name" */
dcp_state *node_text(struct state_pool *pool, dcp_kind kind, const char *bytes, size_t length);
dcp_state *node_int(struct state_pool *pool, int64_t value);
dcp_state *node_uint(struct state_pool *pool, uint64_t value);
dcp_state *node_digits(struct state_pool *pool, const char *digits); /* an int of any size */
/* A tensor of one chunk. block: what its elements lie in, all of them; NULL: the caller's memory.
 * Errors: as dcp_state_tensor(). */
dcp_state *node_tensor(struct state_pool *pool, const dcp_tensor *tensor,
                       const struct state_block *block);
/* A tensor without chunks, which node_add_chunk() adds. */
dcp_state *node_tensor_empty(struct state_pool *pool, const dcp_tensor *tensor);
dcp_status node_add_chunk(dcp_state *tensor_node, const dcp_tensor *chunk);
/* See dcp_state_flat_range(). */
dcp_state *node_flat_range(struct state_pool *pool, const dcp_tensor *whole, int64_t start,
                           int64_t length, void *data);
/* key: NULL for sequences and sets. As in Python, the value of an existing key is replaced, and an
 * existing element of a set stays. Keys and elements with parts, which may be added later, are
 * appended without a comparison; node_settle() compares them. */
dcp_status node_append(struct state_pool *pool, dcp_state *container, dcp_state *key,
                       dcp_state *value);

/* A copy of a node with all below it; the memory of tensors is borrowed, see dcp_state_copy(). */
dcp_status node_copy(struct state_pool *pool, const dcp_state *node, dcp_state **copy);
/* The same of a dict, as a separate tree. */
dcp_status state_copy_root(const dcp_state *dict, dcp_state **copy);

/* The children of a container or an opaque node; NULL for leaves. */
const struct state_children *node_children(const dcp_state *node);
bool node_is_dict(const dcp_state *node);
bool node_is_set(const dcp_state *node);
/* The position of a string key in a dict; false if it is not there. */
bool node_find(const dcp_state *dict, const char *key, size_t length, size_t *position);
/* "list", "torch.Size", for messages. */
const char *node_kind_name(dcp_kind kind);

/* Puts a finished object where target is and makes its pool part of the tree; the pool of an object
 * that was there before is freed. target keeps its address: its contents become the object's.
 * DCP_ERR_ARGUMENT if they are of different trees or target is a root; the pool is the caller's
 * then. */
dcp_status node_replace(dcp_state *target, struct state_pool *pool, dcp_state *object);
/* Adds an object as a child. status: of making it; nothing is added if that has failed. The pool is
 * freed after any failure. */
dcp_status node_add_object(dcp_status status, dcp_state *parent, const char *key,
                           struct state_pool *pool, dcp_state *object);

/* Gives a chunk dense memory that the tree owns, on its device; host memory aligned to 64 bytes. */
dcp_status node_chunk_allocate(dcp_state *tensor_node, size_t chunk_index);

/* Walks over graphs that may share nodes and contain themselves. Each walk has its own marks,
 * from 0 to 7: 0 for every node that the walk has not marked yet. */
uint32_t node_walk_begin(dcp_state *node);
unsigned node_mark(const dcp_state *node, uint32_t walk);
void node_set_mark(dcp_state *node, uint32_t walk, unsigned mark);

/* Checks what a caller says about a whole tensor: dtype, device, shape. */
dcp_status tensor_check_shape(const dcp_tensor *tensor);
/* That what a caller says cannot mean two things, and that no dcp_mesh_shard() failed for it. */
dcp_status tensor_check_given(const dcp_tensor *tensor);

#endif
