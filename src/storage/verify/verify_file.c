/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "storage/shard/shard_footer.h"
#include "storage/verify/verification.h"

dcp_status verify_file(struct verification *verification, uint32_t index, bool *usable)
{
    const char *name = verification->reader->metadata->files[index];
    struct shard_file *file;
    *usable = false;
    dcp_status status = shard_file_acquire(verification->reader, index, DCP_VERIFY_NONE, &file);
    if (status != DCP_OK)
        return verification_judge(verification, status, name, 0, "");
    *usable = true;
    if (file->footer == FOOTER_DAMAGED)
        status = verification_judge(verification, shard_footer_blame(file), name,
                                    file->content_length, "");
    shard_file_release(verification->reader, file);
    return status;
}

static bool piece_equal(const struct metadata_piece *a, const struct metadata_piece *b,
                        int32_t ndim)
{
    size_t bytes = (size_t)ndim * sizeof(int64_t);
    return a->offset == b->offset && a->length == b->length &&
           (bytes == 0 ||
            (memcmp(a->offsets, b->offsets, bytes) == 0 && memcmp(a->sizes, b->sizes, bytes) == 0));
}

static bool entry_equal(const struct metadata_entry *a, const struct metadata_entry *b)
{
    if (a->is_tensor != b->is_tensor)
        return false;
    return !a->is_tensor ||
           (a->dtype == b->dtype && a->ndim == b->ndim &&
            (a->ndim == 0 || memcmp(a->global_shape, b->global_shape,
                                    (size_t)a->ndim * sizeof *a->global_shape) == 0));
}

/* Both usually list the pieces of a file in the same order: *next is where the search begins. */
static bool entry_has_piece(const struct metadata_entry *entry, uint32_t file,
                            const struct metadata_piece *piece, size_t *next)
{
    for (size_t i = 0; i < entry->piece_count; i++) {
        size_t place = (*next + i) % entry->piece_count;
        const struct metadata_piece *candidate = &entry->pieces[place];
        if (candidate->file != file ||
            !piece_equal(candidate, piece, entry->is_tensor ? entry->ndim : 0))
            continue;
        *next = place + 1;
        return true;
    }
    return false;
}

static void verify_contents(struct verification *verification, const struct shard_file *file,
                            uint32_t index, const struct footer *footer, size_t piece_count)
{
    size_t listed = 0;
    for (size_t i = 0; i < footer->contents.count; i++) {
        const struct metadata_entry *recorded = &footer->contents.entries[i];
        const struct metadata_entry *entry = metadata_find(verification->metadata, recorded->name);
        listed += recorded->piece_count;
        if (!entry || !entry_equal(recorded, entry)) {
            verification_fault(
                verification, file->name, footer->content_length, recorded->name,
                entry ? "the kind, dtype or shape in the footer differs from the metadata"
                      : "in the footer, but not in the metadata");
            continue;
        }
        for (size_t p = 0, next = 0; p < recorded->piece_count; p++) {
            if (!entry_has_piece(entry, index, &recorded->pieces[p], &next))
                verification_fault(
                    verification, file->name, recorded->pieces[p].offset, recorded->name,
                    "a piece of %" PRIu64 " bytes is in the footer, but not in the metadata",
                    recorded->pieces[p].length);
        }
    }
    if (listed != piece_count)
        verification_fault(verification, file->name, footer->content_length, "",
                           "the metadata has %zu pieces in this file, but its footer has %zu",
                           piece_count, listed);
}

/* Bytes behind the last piece that are not a footer are the rest of a damaged one; but some
 * compressors leave a few bytes. */
static void verify_end(struct verification *verification, const struct shard_file *file,
                       const struct placed_piece *placed, size_t count)
{
    uint64_t end = 0;
    bool compressed = false;
    for (size_t i = 0; i < count; i++) {
        const struct metadata_piece *piece = placed[i].piece;
        compressed |= piece->zstd;
        if (piece->offset > shard_file_size(file) ||
            piece->length > shard_file_size(file) - piece->offset)
            return; /* the file is truncated: pieces outside it will be reported */
        if (piece->offset + piece->length > end)
            end = piece->offset + piece->length;
    }
    if (end < shard_file_size(file) && !compressed)
        verification_fault(verification, file->name, end, "",
                           "%" PRIu64 " bytes behind the last piece are not a footer",
                           shard_file_size(file) - end);
}

dcp_status verify_account(struct verification *verification, uint32_t index,
                          const struct placed_piece *placed, size_t count)
{
    struct shard_file *file;
    struct footer footer;
    bool found = false;
    RETURN_IF_ERROR(shard_file_acquire(verification->reader, index, DCP_VERIFY_NONE, &file));
    dcp_status status = DCP_OK;
    if (file->footer == FOOTER_GOOD) {
        verification->some_footers = true;
        status = footer_decode(shard_file_source(file), &footer, &found);
        if (status == DCP_OK && found) {
            verify_contents(verification, file, index, &footer, count);
            footer_free(&footer);
        }
    } else if (file->footer == FOOTER_NONE) {
        verification->bare[index] = true;
        verify_end(verification, file, placed, count);
    }
    status = verification_judge(verification, status, file->name, 0, "");
    shard_file_release(verification->reader, file);
    return status;
}

void verify_bare_files(struct verification *verification)
{
    const struct metadata *metadata = verification->metadata;
    for (size_t i = 0; i < metadata->file_count && verification->some_footers; i++) {
        if (verification->bare[i])
            verification_fault(verification, metadata->files[i], 0, "",
                               "no footer, although other files of the checkpoint have one");
    }
}
