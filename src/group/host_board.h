/* SPDX-License-Identifier: BSD-3-Clause */
/* How far a rank is in an exchange, told to the other ranks of its host through memory that they
 * map, and waiting for it: a futex of Linux instead of a message. */
#ifndef GROUP_HOST_BOARD_H
#define GROUP_HOST_BOARD_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/clock.h"
#include "dcp/group.h"

/* Written by its rank alone, read by the others. The steps of an exchange, counted from 1 on, are
 * rounds, and agreements of the group. Zero: none has begun. */
struct host_board {
    _Atomic uint32_t state; /* the step that the rank has begun, of which kind it is, whether the
                               rank has left */
    uint64_t notes[2];      /* of that step and the one before */
};

/* Begins a round, with a note for the others. */
void host_board_begin(struct host_board *board, uint32_t step, uint64_t note);
/* Begins an agreement, in which all ranks take part. */
void host_board_agree(struct host_board *board, uint32_t step);
/* The note of a round that its rank has begun; valid until it begins the next step but one. */
uint64_t host_board_note(const struct host_board *board, uint32_t step);
/* The rank begins no more steps: who waits for them is told. */
void host_board_leave(struct host_board *board);

/* Another rank. */
struct host_rank {
    int rank;
    int process; /* a descriptor of its process; -1: none, so it is not noticed when that ends */
    const struct host_board *board;
};

/* Waits until a rank has begun a round. agreed: the step of this rank's last agreement. Errors:
 * DCP_ERR_TIMEOUT; DCP_ERR_GROUP if it has left, if its process has ended, or if it is in an
 * agreement, in which it would wait for this rank. */
dcp_status host_board_wait(const struct host_rank *other, uint32_t step, uint32_t agreed,
                           const dcp_collective *call, struct deadline deadline);

#endif
