/* SPDX-License-Identifier: BSD-3-Clause */
/* What the rest of the library needs of a process group: exchanges that carry statuses along with
 * the payload.
 *
 * Each rank passes its own status; a rank that has failed takes part all the same. A failure on any
 * rank (also of memory for the exchange) becomes the same failure on every rank, with a message
 * that names the rank ("rank 3: ..."). If several ranks failed, the lowest one is reported. The
 * rank is named once: a failure that all ranks share already passes through later exchanges
 * unchanged. If the group itself fails (DCP_ERR_TIMEOUT, DCP_ERR_GROUP, DCP_ERR_STATE), a rank that
 * had failed before returns its own failure.
 *
 * A NULL group is a single process. On failure, received payloads are empty. */
#ifndef GROUP_GROUP_H
#define GROUP_GROUP_H

#include "base/buffer.h"
#include "dcp/group.h"

/* Sets the operation that the following exchanges belong to, such as "dcp_save" (static storage).
 * If ranks are in different operations, or in different phases of one, their next exchange fails on
 * all of them, with a message that names both. */
void group_enter(dcp_group *group, const char *operation);

/* Messages of all ranks, at the root. */
struct group_messages {
    unsigned char *bytes;
    size_t *offsets; /* size + 1 of them */
    int count;
};

void group_messages_free(struct group_messages *messages);

/* Gathers every rank's payload at the root. all: filled at the root, empty elsewhere. */
dcp_status group_gather(dcp_group *group, const struct dcp_collective *call, int root,
                        dcp_status mine, const void *payload, size_t size,
                        struct group_messages *all);

/* Sends payloads[r] of the root to rank r. */
dcp_status group_scatter(dcp_group *group, const struct dcp_collective *call, int root,
                         dcp_status mine, const struct buffer *payloads, struct buffer *received);

/* Sends the root's payload to all ranks. `received` is filled at the root as well. */
dcp_status group_broadcast(dcp_group *group, const struct dcp_collective *call, int root,
                           dcp_status mine, const void *payload, size_t size,
                           struct buffer *received);

/* Sends one message of each rank to some of the others, all at the same time, over the group that
 * carries bulk bytes if there is one. Every rank knows all sizes. Only bytes move, no statuses: a
 * rank that has failed takes part with the sizes that it announced, and reports the failure at the
 * next group_agree(). A rank whose multicast fails takes no part in further ones and reports it in
 * the same way, which works if another group carries the bytes. */
struct group_multicast {
    const size_t *sizes;          /* of every rank's message; 0: it has none */
    const void *send;             /* this rank's message */
    const bool *to;               /* which ranks receive it */
    const bool *from;             /* whose messages this rank receives, at the ranks' places */
    unsigned char *const *places; /* by rank; where nothing is received, it is not looked at */
    void *scratch;                /* group_multicast_scratch() bytes */
};

/* Whether a message goes only to the ranks that receive it; else it is sent to all. */
bool group_multicast_is_direct(const dcp_group *group);
/* Scratch bytes that a rank needs if no message is larger than `largest`. */
size_t group_multicast_scratch(const dcp_group *group, size_t largest);
dcp_status group_multicast(dcp_group *group, const struct dcp_collective *call,
                           const struct group_multicast *multicast);

/* Most bytes of a record of group_share(). */
enum { GROUP_RECORD_MAX = 96 };
/* Shares a record of every rank with every rank, in one collective. records: adjacent in rank
 * order, valid until the group is used again. */
dcp_status group_share(dcp_group *group, const struct dcp_collective *call, dcp_status mine,
                       const void *record, size_t size, const unsigned char **records);

/* Exchanges only statuses. */
dcp_status group_agree(dcp_group *group, const struct dcp_collective *call, dcp_status mine);

/* Whether two ranks can exchange a message without all others taking part. */
bool group_can_pass(const dcp_group *group);
/* Each rank sends its payload to one other rank, or to none (to < 0). No rank may receive more than
 * one. */
dcp_status group_pass(dcp_group *group, const struct dcp_collective *call, dcp_status mine, int to,
                      const void *payload, size_t size, struct buffer *received);

#endif
