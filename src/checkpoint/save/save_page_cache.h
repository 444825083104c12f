/* SPDX-License-Identifier: BSD-3-Clause */
/* What a save leaves of its files in the page cache. */
#ifndef CHECKPOINT_SAVE_SAVE_PAGE_CACHE_H
#define CHECKPOINT_SAVE_SAVE_PAGE_CACHE_H

#include "dcp/save.h"

/* Decides DCP_PAGE_CACHE_AUTO; other values stay. bytes: that this rank writes. available: memory
 * that it may still take; 0: not known, and not plenty. */
dcp_page_cache save_page_cache_decide(const dcp_save_options *options, uint64_t bytes,
                                      uint64_t available);

#endif
