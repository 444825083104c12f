/* SPDX-License-Identifier: BSD-3-Clause */
/* The footer at the end of each shard file that we write: what is in the file, checksums per block,
 * the save's id.
 *
 * PyTorch never looks there. From the footers of all files .metadata can be rebuilt, a shard of
 * another save is recognized, a truncated file is known as such, and a partial read can be verified
 * by block. The sums of blocks lie in pages in front of the body, which has a checksum of each page
 * and is all that opening reads. Layout: format/README.md. */
#ifndef FORMAT_FOOTER_FOOTER_H
#define FORMAT_FOOTER_FOOTER_H

#include "base/buffer.h"
#include "base/byte_source.h"
#include "state/metadata.h"

#define FOOTER_BLOCK_SIZE 4096u /* bytes of the file under one checksum */
#define FOOTER_PAGE_SUMS  512u  /* checksums of blocks under one checksum of the body */

struct footer {
    char save_id[40];
    uint64_t content_length; /* bytes in front of the footer: what the blocks cover */
    uint32_t block_size;
    uint64_t block_count;  /* the sums of blocks lie behind the content, 8 bytes each */
    const uint64_t *pages; /* XXH3-64 of each page of these; the last one may be short */
    size_t page_count;
    struct metadata contents; /* entries of this file alone, global shapes and paths included */
};

/* The number of blocks of the content; the last one may be short. */
uint64_t footer_block_count(uint64_t content_length, uint32_t block_size);
/* The number of pages of so many sums. */
uint64_t footer_page_count(uint64_t block_count);
/* Converts the sums of blocks (XXH3-64; the last block may be short) in place to the form of the
 * file, and computes the checksum of each page of them. */
void footer_seal_sums(uint64_t *sums, size_t count, uint64_t *pages);
/* Appends body and trailer, which follow the sums of blocks. contents->files has only this file.
 * pages: checksums of the pages of sums. */
dcp_status footer_encode(struct buffer *out, const char *save_id, uint64_t content_length,
                         uint32_t block_size, const uint64_t *pages, size_t page_count,
                         const struct metadata *contents);
/* If the file does not end in a footer (as when PyTorch wrote it), *found is false, without an
 * error. A damaged footer is DCP_ERR_CHECKSUM or DCP_ERR_FORMAT, one of another version
 * DCP_ERR_UNSUPPORTED, with *found true. Usually takes one read, without the sums of blocks. On
 * failure there is nothing to free. */
dcp_status footer_decode(struct byte_source file, struct footer *footer, bool *found);
void footer_free(struct footer *footer);
/* Bytes at the end of a file that decoding reads first. */
size_t footer_tail(uint64_t file_size);

#endif
