/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of objects share: reading a pickle that was made for the purpose. */
#ifndef TEST_OBJECT_READING_H
#define TEST_OBJECT_READING_H

#include "base/byte_source.h"
#include "state/node.h"

/* An object that was read, in a tree of its own. */
struct object {
    dcp_state *root;
    struct state_pool *pool;
    dcp_state *node;
};

struct record {
    const char *name;
    const void *bytes;
    size_t size;
    bool deflated;
};

dcp_status object_open(struct object *object, struct byte_source stream);
void object_close(struct object *object);
/* Reads a pickle in a container with further records. */
dcp_status object_open_pickle(struct object *object, const void *pickle, size_t size,
                              const struct record *records, size_t record_count);

#define READ(object, text) object_open_pickle(object, text, sizeof(text) - 1, NULL, 0)

dcp_state *object_child(const struct object *object, size_t index);

#endif
