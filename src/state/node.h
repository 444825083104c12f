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
#include "dcp/state.h"

/* A pair of a dict, or an element of a list. key is NULL in lists, tuples and sets. */
struct state_child {
    struct dcp_state *key; /* any kind; mostly strings */
    struct dcp_state *value;
};

struct state_children {
    struct state_child *items;
    size_t count;
    size_t capacity;
    struct name_table *index; /* of string keys, made when a dict grows beyond a few pairs */
};

/* One chunk that this rank holds; arrays have ndim values each, in the arena. */
struct state_chunk {
    int64_t *offsets;
    int64_t *sizes;
    int64_t *strides; /* always filled in */
    void *data;
    bool owned; /* allocated by a load; freed with the root */
};

struct state_tensor {
    dcp_dtype dtype;
    int32_t ndim;
    int64_t *global_shape;
    bool requires_grad;
    bool sharded; /* some chunk may be less than the whole */
    dcp_device device;
    struct state_chunk *chunks;
    size_t chunk_count;
    size_t chunk_capacity;
};

struct dcp_state {
    dcp_kind kind;
    struct state_root *root; /* the tree that owns this node */
    union {
        bool boolean;
        struct {
            bool is_unsigned; /* value beyond INT64_MAX is in bits as uint64_t */
            uint64_t bits;
            char *digits; /* if it fits neither; or made on demand */
        } integer;
        double number;
        struct {
            double real, imaginary;
        } complex;
        struct {
            char *bytes; /* NUL-terminated */
            size_t length;
        } text; /* string, bytes, bytearray, device, opaque's "module.name" is in opaque */
        struct state_children children; /* list, tuple, dict, ordered dict, set, frozenset, size */
        struct state_tensor *tensor;
        dcp_stateful stateful;
        dcp_dtype dtype;
        struct {
            char *name; /* "module.name" */
            struct state_children children;
        } opaque;
    } as;
};

/* A place where nodes come from: the root's own arena, or one of a loaded object. */
struct state_pool {
    struct state_root *root;
    struct arena arena;
    struct state_pool *next;
};

struct state_root {
    dcp_state node; /* the dict that the caller sees */
    struct state_pool own;
    struct state_pool *objects; /* pools of loaded objects */
    struct dcp_state_error *error;
};

/* Starts an object: a pool that is not yet part of the tree. */
struct state_pool *state_pool_new(struct state_root *root);
/* Abandons it, with all nodes made from it. */
void state_pool_free(struct state_pool *pool);

/* Node makers for decoders. Texts and bytes are copied. NULL: no memory, with the story set. */
dcp_state *node_new(struct state_pool *pool, dcp_kind kind);
dcp_state *node_text(struct state_pool *pool, dcp_kind kind, const char *bytes, size_t length);
dcp_state *node_int(struct state_pool *pool, int64_t value);
dcp_state *node_uint(struct state_pool *pool, uint64_t value);
dcp_state *node_digits(struct state_pool *pool, const char *digits); /* an int beyond 64 bits */
dcp_state *node_tensor(struct state_pool *pool, const dcp_tensor *tensor,
                       bool owned); /* owned: data is freed with it */
/* key: NULL for sequences and sets. Dict keys may be any node; a key that is there already has its
 * value replaced, as in Python, if it is a string; others are appended. */
dcp_status node_append(struct state_pool *pool, dcp_state *container, dcp_state *key,
                       dcp_state *value);

/* Puts a finished object where target is, or under key/at the end of a container, and makes its
 * pool part of the tree; the pool of an object that was there before is freed. target keeps its
 * address: its contents become the object's. */
dcp_status node_replace(dcp_state *target, struct state_pool *pool, dcp_state *object);

/* Gives a chunk memory (aligned to 64 bytes, dense) that the tree owns. */
dcp_status node_chunk_allocate(dcp_state *tensor_node, size_t chunk_index);

/* The chunk as a dcp_tensor would describe it is made by dcp_state_chunk_sized(). */

#endif
