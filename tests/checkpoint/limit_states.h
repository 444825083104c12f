/* SPDX-License-Identifier: BSD-3-Clause */
/* States of several kinds, for looking at what a save or load takes. */
#ifndef TESTS_LIMIT_STATES_H
#define TESTS_LIMIT_STATES_H

#include "dcp.h"

enum { STATE_KINDS = 5 };
/* One more, of which every rank holds everything: many small tensors and objects. */
enum { STATE_REPLICAS = STATE_KINDS };

/* This rank's part of a state. Destroyed with limit_state_free(). */
struct limit_state {
    dcp_state *root;
    void *data;   /* of all tensors, one after the other */
    int64_t used; /* of that */
};

void limit_state_make(struct limit_state *made, int kind, int rank, int size);
void limit_state_free(struct limit_state *made);

#endif
