/* SPDX-License-Identifier: BSD-3-Clause */
/* From the state tree to named items, by PyTorch's rules
 * (torch.distributed.checkpoint._nested_dict, 2.4 and newer). */
#ifndef STATE_FLATTEN_H
#define STATE_FLATTEN_H

#include "base/arena.h"
#include "state/node.h"

struct flat_entry {
    const char *name; /* path parts joined by "." */
    const dcp_path_part *path;
    size_t path_length;
    dcp_state *node;           /* a tensor, or an object of any other kind */
    struct state_child *place; /* the container that holds the node; NULL: a callback returned the
                                  whole */
    bool left_out;             /* a load does not touch it */
};

/* A stateful entry whose state_dict was called; its load_state_dict is called after a load. */
struct flat_stateful {
    const dcp_stateful *stateful;
    dcp_state *subtree; /* a separate root */
    dcp_state *dict;    /* the dict to fill: the subtree, or a dict in it */
    const char *name;   /* path parts joined by "." */
    const dcp_path_part *path;
    size_t path_length;
    size_t first_entry; /* the entries below it, if any, begin here and are together */
};

struct flat_state {
    struct flat_entry *entries; /* in flattening order; names are unique */
    size_t count;
    struct flat_stateful *statefuls;
    size_t stateful_count;
    bool host_only; /* known to have no tensor on a device */
    struct arena arena;
};

/* What else than tensors and plain values becomes one entry. */
struct flatten_rules {
    bool top_only; /* every value of the root becomes one entry, also containers of tensors
                      (flatten_state_dict=False) */
    /* NULL, or whether a dict of this name without tensors is one object, as PyTorch stored them
     * until 2.4. */
    bool (*is_whole)(const void *context, const char *name, size_t length);
    const void *context;
};

/* Calls the state_dict of stateful entries (at any depth of dicts) and flattens a dict. Paths and
 * nodes are borrowed from the tree. Errors: DCP_ERR_DUPLICATE for names that collide,
 * DCP_ERR_ARGUMENT for containers that contain themselves, the tree's sticky error, and the
 * failures of callbacks (prefixed with the name). On failure flat is empty. */
dcp_status flatten_state(dcp_state *root, struct flat_state *flat);
/* The same by other rules. With top_only only stateful entries of the root are called. */
dcp_status flatten_by_rules(dcp_state *root, const struct flatten_rules *rules,
                            struct flat_state *flat);
/* Before a load: objects that are one node in several places become one for each. root: the tree
 * that was flattened. */
dcp_status flatten_own_objects(dcp_state *root, struct flat_state *flat);
/* Before a load, of chunks that have memory, but for what is left out: they must not overlap
 * themselves in it, and it must be writable, as far as the system says (DCP_ERR_ARGUMENT). Finds
 * out whether all are in the host's memory. */
dcp_status flatten_check_destinations(struct flat_state *flat);
/* The parts of it. The second reads the list of the process's mappings, which takes longer than to
 * read a small tensor. */
dcp_status flatten_check_layout(struct flat_state *flat);
dcp_status flatten_check_writable(const struct flat_state *flat);
/* For a small read, right before it: changes the first and the last byte of each chunk. */
dcp_status flatten_try_writable(const struct flat_state *flat);
/* Ranks of a mesh; INT64_MAX: more than that. */
int64_t mesh_size(const dcp_mesh *mesh);
/* Before a save or load with a group of this size: checks that no tensor has a mesh with more ranks
 * (DCP_ERR_ARGUMENT). */
dcp_status flatten_check_meshes(const struct flat_state *flat, int ranks);
/* Before tensors are copied while the caller waits: waits for the work in the queues of their
 * devices, if the device supports it. DCP_ERR_TIMEOUT after half of the given time, so that the
 * ranks that wait for this one receive the failure in time. */
dcp_status flatten_await_devices(const struct flat_state *flat, double timeout_seconds);
/* After a load: calls load_state_dict of each stateful entry, in order, except those of which
 * everything was left out. */
dcp_status flatten_notify(const struct flat_state *flat);
void flatten_free(struct flat_state *flat);

#endif
