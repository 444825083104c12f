/* SPDX-License-Identifier: BSD-3-Clause */
/* What a footer says of its file: the entries of the file alone, made from what is written to it.
 */
#ifndef STORAGE_SHARD_SHARD_CONTENTS_H
#define STORAGE_SHARD_SHARD_CONTENTS_H

#include "storage/shard/shard_writer.h"

/* orders: those of the file. results: theirs, NULL if all lies as it was ordered. contents borrows
 * from orders and sources. */
dcp_status shard_contents_make(const char *file_name, const struct write_order *orders,
                               const struct write_result *results, size_t count,
                               const struct shard_source *sources, struct metadata *contents);

#endif
