/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save/save_page_cache.h"

#include "group/group.h"

/* Ranks that may be on one machine: as many as it has accelerators. */
enum { NEIGHBOURS_MOST = 8 };

dcp_page_cache save_page_cache_decide(const dcp_save_options *options, uint64_t bytes,
                                      uint64_t available)
{
    if (options->page_cache != DCP_PAGE_CACHE_AUTO)
        return options->page_cache;
    int size = dcp_group_size(options->group);
    uint64_t ranks = size < NEIGHBOURS_MOST ? (uint64_t)size : NEIGHBOURS_MOST;
    /* As much again is left to others. */
    bool plenty = bytes <= available / 2 / ranks;
    return plenty && available > 0 && !(options->io & DCP_IO_DIRECT) ? DCP_PAGE_CACHE_KEPT
                                                                     : DCP_PAGE_CACHE_DROPPED;
}
