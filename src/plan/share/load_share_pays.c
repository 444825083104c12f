/* SPDX-License-Identifier: BSD-3-Clause */
/* The model of costs: reading again what another rank reads as well, against being sent it.
 *
 * A file system over a network serves all ranks together at one rate, however many they are, so
 * bytes that are read again cost all of them time, and so does a disk that is read around the page
 * cache. A local file system serves what the page cache holds to each rank at the rate of a copy,
 * which is faster than most groups, and than the memory of a host: that is written before it is
 * read. Small reads cost a network's file system a round trip each,
 * which ranks wait for side by side. If both ways take as long, what is sent is sent while other
 * bytes are read. */
#include "plan/share/load_share.h"

/* Bytes a second: of a network's file system or a disk for all ranks, and of the page cache for
 * each. */
#define SHARED_STORAGE_RATE ((double)((uint64_t)2 << 30))
#define PAGE_CACHE_RATE     ((double)((uint64_t)4 << 30))
/* From one rank of a host to another. */
#define HOST_RATE ((double)((uint64_t)3 << 30))
/* Seconds of a round trip. */
#define SHARED_STORAGE_LATENCY 0.0005
/* Bytes, or reads of each rank, that must be saved for the planning to be worth it. */
#define SAVED_MIN       ((uint64_t)64 << 20)
#define SAVED_READS_MIN 32

static uint64_t difference(uint64_t all, uint64_t distinct)
{
    return all > distinct ? all - distinct : 0;
}

/* To another host a byte is sent once. */
static double seconds_of_exchange(const struct share_costs *costs)
{
    double ranks = costs->rank_count, hosts = costs->host_count;
    double rate = (double)(costs->group_rate != 0 ? costs->group_rate : SHARE_GROUP_RATE);
    double exchanged = (double)costs->exchanged, sent = (double)costs->distinct * (hosts - 1);
    if (costs->broadcasts && hosts > 1)
        return (double)costs->distinct / rate;
    sent = sent < exchanged ? sent : exchanged;
    return sent / (ranks * rate) + (exchanged - sent) / (ranks * HOST_RATE);
}

bool load_share_pays(const struct share_costs *costs)
{
    uint64_t bytes = difference(costs->wanted, costs->distinct);
    uint64_t reads =
        costs->storage_is_shared ? difference(costs->reads_wanted, costs->reads_distinct) : 0;
    double ranks = costs->rank_count;
    if (bytes < SAVED_MIN && (double)reads < ranks * SAVED_READS_MIN)
        return false;
    double storage_rate = costs->storage_is_shared ? SHARED_STORAGE_RATE : ranks * PAGE_CACHE_RATE;
    double reading_again =
        (double)bytes / storage_rate + (double)reads / ranks * SHARED_STORAGE_LATENCY;
    return seconds_of_exchange(costs) <= reading_again;
}
