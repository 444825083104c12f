/* SPDX-License-Identifier: BSD-3-Clause */
/* What the conductor asks of a process group: exchanges in which statuses travel with the payload.
 *
 * Each rank brings its own status. A failure on any rank, of memory for the exchange too, becomes
 * the same failure on every rank, with a story that names the rank ("rank 3: ..."), because it
 * rides along: a rank that failed takes part all the same. If several failed, the lowest is heard.
 * The name of the rank is added once: a failure that all ranks share already passes through later
 * exchanges unchanged. If the group itself fails (DCP_ERR_TIMEOUT, DCP_ERR_GROUP, DCP_ERR_STATE), a
 * rank that had failed before returns its own failure.
 *
 * A NULL group is one process. On failure what would be received is empty. */
#ifndef GROUP_GROUP_H
#define GROUP_GROUP_H

#include "base/buffer.h"
#include "dcp/group.h"

/* What the calls that follow belong to, such as "dcp_save" (static storage): ranks of which one is
 * in another operation, or in another phase of it, fail at their next exchange, all alike, with a
 * message that names both. */
void group_enter(dcp_group *group, const char *operation);

/* Messages of all ranks, at the root. */
struct group_messages {
    unsigned char *bytes;
    size_t *offsets; /* size + 1 of them */
    int count;
};

void group_messages_free(struct group_messages *messages);

/* Brings every rank's payload to the root. all: filled at the root, empty elsewhere. */
dcp_status group_gather(dcp_group *group, const struct dcp_collective *call, int root,
                        dcp_status mine, const void *payload, size_t size,
                        struct group_messages *all);

/* Deals out payloads[r] (at the root) to rank r. */
dcp_status group_scatter(dcp_group *group, const struct dcp_collective *call, int root,
                         dcp_status mine, const struct buffer *payloads, struct buffer *received);

/* The same payload for all. At the root received is filled as well. */
dcp_status group_broadcast(dcp_group *group, const struct dcp_collective *call, int root,
                           dcp_status mine, const void *payload, size_t size,
                           struct buffer *received);

/* One message of each rank, each of which goes to some of the others at the same time, over the
 * group that carries bulk bytes if there is one. Every rank knows the sizes of all. Moves bytes and
 * nothing else: a rank that has failed takes part with the sizes that it had promised, and says so
 * at the next group_agree(). So does a rank for which this itself fails, which takes no part in
 * further ones: where another group carries the bytes, all ranks can still hear of it. */
struct group_multicast {
    const size_t *sizes; /* of every rank's message; 0: it has none */
    const void *send;    /* this rank's */
    const bool *to;      /* which ranks get it */
    const bool *from;    /* whose messages this rank gets: at the ranks' places in received */
    unsigned char *received;
    const size_t *places;
    void *scratch; /* group_multicast_scratch() bytes */
};

/* Bytes that a rank needs besides, where no message is larger than largest. */
size_t group_multicast_scratch(const dcp_group *group, size_t largest);
dcp_status group_multicast(dcp_group *group, const struct dcp_collective *call,
                           const struct group_multicast *multicast);

/* Most bytes of a record of group_share(). */
enum { GROUP_RECORD_MAX = 96 };
/* Brings a record of every rank to every rank, in one collective. records: one after the other,
 * valid until the group is used again. */
dcp_status group_share(dcp_group *group, const struct dcp_collective *call, dcp_status mine,
                       const void *record, size_t size, const unsigned char **records);

/* Nothing but the statuses. */
dcp_status group_agree(dcp_group *group, const struct dcp_collective *call, dcp_status mine);

/* Whether ranks can send to each other without everyone's taking part in every message. */
bool group_can_pass(const dcp_group *group);
/* Each rank passes its payload on to another one, or none (to < 0); nobody gets more than one. */
dcp_status group_pass(dcp_group *group, const struct dcp_collective *call, dcp_status mine, int to,
                      const void *payload, size_t size, struct buffer *received);

#endif
