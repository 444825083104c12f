/* SPDX-License-Identifier: BSD-3-Clause */
/* The state of one rank that save_matrix saves, and its description in a manifest. */
#ifndef INTEROP_MATRIX_STATE_H
#define INTEROP_MATRIX_STATE_H

#include <cjson/cJSON.h>

#include <dcp.h>

enum { MOST_BLOCKS = 512 };

struct matrix_state {
    dcp_mesh mesh; /* rank is -1 on a rank outside */
    int rank, ranks;
    const char *directory; /* for the files of the manifest */
    cJSON *entries;        /* of the manifest, NULL on ranks that write none */
    dcp_state *root;
    void *blocks[MOST_BLOCKS]; /* memory of the tensors */
    size_t block_count;
};

void matrix_state_build(struct matrix_state *state);
void matrix_state_free(struct matrix_state *state);

/* Objects of every kind, and parameter groups. */
void matrix_add_objects(struct matrix_state *state);
/* Adds "PARENT.KEY" to the manifest; the rest of the entry is up to the caller. */
cJSON *matrix_describe(struct matrix_state *state, const char *parent, const char *key,
                       const char *type);

#endif
