/* SPDX-License-Identifier: BSD-3-Clause */
/* The footer at the end of each shard file that we write: what is in the file, checksums per block,
 * the save's id.
 *
 * PyTorch never looks there. From the footers of all files .metadata can be rebuilt, a shard of
 * another save is recognized, a truncated file is known as such, and a partial read can be verified
 * by block. Layout: format/README.md. */
#ifndef FORMAT_FOOTER_H
#define FORMAT_FOOTER_H

#include "base/buffer.h"
#include "base/byte_source.h"
#include "state/metadata.h"

#define FOOTER_BLOCK_SIZE (64u << 10) /* bytes of the file under one checksum */

struct footer {
    char save_id[40];
    uint64_t content_length; /* bytes in front of the footer: what the blocks cover */
    uint32_t block_size;
    const uint64_t *blocks; /* XXH3-64 of each block; the last one may be short */
    size_t block_count;
    struct metadata contents; /* entries of this file alone, global shapes and paths included */
};

/* contents->files names this file alone. blocks: of content_length bytes. Appends the footer. */
dcp_status footer_encode(struct buffer *out, const char *save_id, uint64_t content_length,
                         uint32_t block_size, const uint64_t *blocks, size_t block_count,
                         const struct metadata *contents);
/* *found is false, without an error, if the file does not end in a footer (PyTorch wrote it). A
 * footer that is there but damaged is DCP_ERR_CHECKSUM or DCP_ERR_FORMAT, one of a later version
 * DCP_ERR_UNSUPPORTED; *found is true then. Usually takes one read. On failure there is nothing to
 * free. */
dcp_status footer_decode(struct byte_source file, struct footer *footer, bool *found);
void footer_free(struct footer *footer);

#endif
