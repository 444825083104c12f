/* SPDX-License-Identifier: BSD-3-Clause */
/* Several directories as one checkpoint: their metadata, read and united. */
#ifndef STORAGE_OPEN_UNION_H
#define STORAGE_OPEN_UNION_H

#include "storage/open/storage_open.h"

/* Reads, decodes and unites what the members of a place hold; the result is checked. */
dcp_status union_decode(const struct storage_place *place, struct metadata *metadata);
/* The members' .metadata for other ranks, which read rank-local metadata of members themselves. */
dcp_status union_append_raw(const struct storage_place *place, struct buffer *raw);
dcp_status union_decode_raw(const dcp_storage *storage, const char *id, struct reader *message,
                            struct metadata *metadata);

#endif
