/* SPDX-License-Identifier: BSD-3-Clause */
/* What reading takes from a shard file's footer: whose file it is, and the checksums of its blocks.
 */
#ifndef STORAGE_SHARD_FOOTER_H
#define STORAGE_SHARD_FOOTER_H

#include "format/footer.h"
#include "storage/shard_file.h"

/* Sets the footer's fields of an open file. A footer of another save is DCP_ERR_FOREIGN (save_id ""
 * is not compared); one that is damaged is no error here. */
dcp_status shard_footer_read(struct shard_file *file, const char *save_id);
/* Decodes a damaged footer again, for its story. */
dcp_status shard_footer_blame(struct shard_file *file);
/* What decoding does not know: the footer describes a file of this length, in blocks that can be
 * held. */
dcp_status shard_footer_check(const struct shard_file *file, const struct footer *footer);
/* DCP_ERR_FOREIGN, naming both, if both are known and differ. */
dcp_status shard_footer_check_save(const struct shard_file *file, const struct footer *footer,
                                   const char *save_id);

#endif
