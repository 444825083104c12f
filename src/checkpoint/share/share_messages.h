/* SPDX-License-Identifier: BSD-3-Clause */
/* Moves the windows of a round between ranks. Those of one host read them in each other's memory;
 * between hosts they are messages, which come into memory that the receiver's host reads, too. */
#ifndef CHECKPOINT_SHARE_SHARE_MESSAGES_H
#define CHECKPOINT_SHARE_SHARE_MESSAGES_H

#include "checkpoint/share/share_round.h"
#include "group/host_memory.h"

struct share_messages {
    const struct load_exchange *exchange;
    const struct share_round *round;
    struct host_memory *memory; /* through which the ranks of this host exchange windows */
    uint64_t *notes;            /* of ranks of this host: where their windows are in their memory */
    uint64_t *tables;           /* and where they say where windows are that they have received */
    uint64_t *table;            /* of this rank, by reader; NULL: it receives none for others */
    unsigned char *received;
    void *allocated; /* NULL: that is in the host's memory */
    void *scratch;
};

uint64_t share_messages_memory(const struct load_exchange *exchange);
/* Bytes of the memory of a host that those of other hosts take on this rank at most. */
size_t share_messages_between(const struct load_exchange *exchange);
/* Close it in either case; that does not close the memory. */
dcp_status share_messages_open(const struct load_exchange *exchange,
                               const struct share_round *round, struct share_messages *messages);
/* Once it is known which ranks share memory. */
dcp_status share_messages_start(struct share_messages *messages, struct host_memory *memory);
void share_messages_close(struct share_messages *messages);

/* Sends and receives the windows of the round. note: where this rank's own is in its memory; own:
 * it, for other hosts. The ranks of this host have read by then what came in the round before.
 * Only failures of the group are returned. */
dcp_status share_messages_send(struct share_messages *messages, const struct dcp_collective *call,
                               uint64_t note, const unsigned char *own);
/* Finds a window that has come from another rank. */
dcp_status share_messages_find(const struct share_messages *messages, uint32_t rank,
                               const unsigned char **bytes);

#endif
