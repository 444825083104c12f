/* SPDX-License-Identifier: BSD-3-Clause */
/* The model of costs: reading again what another rank reads as well, against being sent it.
 *
 * A file system over a network serves all ranks together at one rate, however many they are, so
 * bytes that are read again cost all of them time. A local one serves bytes that are read again
 * from the page cache, to each rank at the rate of a copy, which is faster than most groups. */
#include "plan/load_share.h"

/* Bytes a second: of a network's file system for all ranks, and of the page cache for each. */
#define SHARED_STORAGE_RATE ((double)((uint64_t)2 << 30))
#define PAGE_CACHE_RATE     ((double)((uint64_t)4 << 30))
/* Bytes that must be saved for the planning to be worth it. */
#define SAVED_MIN ((uint64_t)64 << 20)

bool load_share_pays(const struct share_costs *costs)
{
    if (costs->wanted <= costs->distinct || costs->wanted - costs->distinct < SAVED_MIN)
        return false;
    double ranks = costs->rank_count;
    double group_rate = (double)(costs->group_rate != 0 ? costs->group_rate : SHARE_GROUP_RATE);
    double storage_rate = costs->storage_is_shared ? SHARED_STORAGE_RATE : ranks * PAGE_CACHE_RATE;
    double reading_again = (double)(costs->wanted - costs->distinct) / storage_rate;
    return (double)costs->exchanged / (ranks * group_rate) < reading_again;
}
