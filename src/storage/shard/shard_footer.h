/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of a shard file's footer that reading needs: the save and name of the file, and the
 * checksums of its blocks.
 */
#ifndef STORAGE_SHARD_SHARD_FOOTER_H
#define STORAGE_SHARD_SHARD_FOOTER_H

#include "format/footer/footer.h"
#include "storage/shard/shard_file.h"

/* Sets the footer's fields of an open file. A footer of another save is DCP_ERR_FOREIGN (save_id ""
 * is not compared); one that is damaged, or missing where save_id promises one, is no error here.
 */
dcp_status shard_footer_read(struct shard_file *file, const char *save_id);
/* That its blocks are of a size that can be read. */
dcp_status shard_footer_check_blocks(const struct footer *footer);
/* Whether a good footer lists the piece at this place. If it does not, the metadata was damaged, or
 * another file of the same save has this name: DCP_ERR_FORMAT. */
bool shard_footer_has_piece(const struct shard_file *file, const struct metadata_entry *entry,
                            const struct metadata_piece *piece);
dcp_status shard_footer_unlisted(const struct shard_file *file, const struct metadata_piece *piece);
/* Decodes a damaged footer again, to say what is wrong with it; or it is missing. */
dcp_status shard_footer_blame(struct shard_file *file);

#endif
