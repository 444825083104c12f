/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard/shard_footer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "storage/commit/save_id.h"

/* What is read at a time, and what is held, is made of whole blocks. */
#define BLOCK_SIZE_MIN (UINT32_C(512))
#define BLOCK_SIZE_MAX (UINT32_C(64) << 10)

dcp_status shard_footer_check_blocks(const struct footer *footer)
{
    uint32_t size = footer->block_size;
    if (size >= BLOCK_SIZE_MIN && size <= BLOCK_SIZE_MAX && (size & (size - 1)) == 0)
        return DCP_OK;
    return dcp_error_set(DCP_ERR_FORMAT, "the footer has blocks of %" PRIu32 " bytes", size);
}

static dcp_status check_save(const struct shard_file *file, const struct footer *footer,
                             const char *save_id)
{
    bool known = save_id[0] != '\0' && footer->save_id[0] != '\0';
    if (strcmp(save_id, footer->save_id) == 0 || (!known && !save_id_promises_footers(save_id)))
        return DCP_OK;
    return dcp_error_set(DCP_ERR_FOREIGN, "%s belongs to save %s, the checkpoint is save %s",
                         shard_file_path(file), footer->save_id, save_id);
}

static dcp_status take_blocks(struct shard_file *file, const struct footer *footer)
{
    RETURN_IF_ERROR(shard_sums_init(&file->sums, footer));
    file->block_count = footer->block_count;
    file->block_size = footer->block_size;
    file->content_length = footer->content_length;
    file->footer = FOOTER_GOOD;
    return DCP_OK;
}

/* What the metadata and the footer must agree on for a piece to be the one that is meant. */
static uint64_t piece_digest(const struct metadata_entry *entry, const struct metadata_piece *piece)
{
    int64_t key[5 + 2 * DCP_MAX_DIMS] = {(int64_t)xxh3_64(entry->name, strlen(entry->name)),
                                         (int64_t)piece->offset, (int64_t)piece->length};
    size_t count = 5, ndim = entry->is_tensor ? (size_t)entry->ndim : 0;
    key[3] = entry->is_tensor ? entry->ndim : -1;
    key[4] = entry->is_tensor ? entry->dtype : 0;
    for (size_t i = 0; i < ndim; i++) {
        key[count++] = piece->offsets[i];
        key[count++] = piece->sizes[i];
    }
    return xxh3_64(key, count * sizeof *key);
}

static int compare_digests(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static void sort_few(uint64_t *digests, size_t count)
{
    enum { FEW = 64 };
    if (count > FEW) {
        qsort(digests, count, sizeof *digests, compare_digests);
        return;
    }
    for (size_t i = 1; i < count; i++) {
        uint64_t digest = digests[i];
        size_t at = i;
        for (; at > 0 && digests[at - 1] > digest; at--)
            digests[at] = digests[at - 1];
        digests[at] = digest;
    }
}

/* Digests are evenly distributed, so that by their first bytes they are dealt into small ranges, in
 * place. Of others, qsort() has more to do. */
static void sort_digests(uint64_t *digests, size_t count)
{
    enum { RANGES = 256, SHIFT = 56 };
    size_t start[RANGES + 1] = {0}, next[RANGES];
    for (size_t i = 0; i < count; i++)
        start[(digests[i] >> SHIFT) + 1]++;
    for (size_t range = 0; range < RANGES; range++) {
        next[range] = start[range];
        start[range + 1] += start[range];
    }
    for (size_t range = 0; range < RANGES; range++)
        while (next[range] < start[range + 1]) {
            size_t from = next[range];
            uint64_t digest = digests[from];
            size_t to = next[digest >> SHIFT]++;
            digests[from] = digests[to];
            digests[to] = digest;
        }
    for (size_t range = 0; range < RANGES; range++)
        sort_few(digests + start[range], start[range + 1] - start[range]);
}

static dcp_status take_pieces(struct shard_file *file, const struct metadata *contents)
{
    size_t total = 0;
    for (size_t i = 0; i < contents->count; i++)
        total += contents->entries[i].piece_count;
    file->pieces = memory_allocate_array(total, sizeof *file->pieces);
    if (!file->pieces)
        return error_no_memory(total * sizeof *file->pieces, "a list of pieces");
    for (size_t i = 0; i < contents->count; i++) {
        const struct metadata_entry *entry = &contents->entries[i];
        for (size_t p = 0; p < entry->piece_count; p++)
            file->pieces[file->piece_count++] = piece_digest(entry, &entry->pieces[p]);
    }
    sort_digests(file->pieces, total);
    return DCP_OK;
}

/* Digests are evenly distributed, so the position of one can be estimated. The search begins there
 * with steps that double. It finds a digest among millions almost at once, and takes at most twice
 * as long as a binary search if an attacker has chosen them. */
static bool has_digest(const uint64_t *digests, size_t count, uint64_t digest)
{
    size_t from = (size_t)((digest >> 32) * count >> 32), end = from, step = 4;
    for (; from > 0 && digests[from] > digest; step *= 2)
        from = from > step ? from - step : 0;
    for (step = 4; end < count && digests[end] < digest; step *= 2)
        end = count - end > step ? end + step : count;
    if (end < count)
        end++;
    return count > 0 &&
           bsearch(&digest, digests + from, end - from, sizeof *digests, compare_digests);
}

bool shard_footer_has_piece(const struct shard_file *file, const struct metadata_entry *entry,
                            const struct metadata_piece *piece)
{
    return has_digest(file->pieces, file->piece_count, piece_digest(entry, piece));
}

dcp_status shard_footer_unlisted(const struct shard_file *file, const struct metadata_piece *piece)
{
    return dcp_error_set(DCP_ERR_FORMAT,
                         "the footer of %s has no such piece of %" PRIu64 " bytes at this place",
                         shard_file_path(file), piece->length);
}

static bool is_damage(dcp_status status)
{
    return status == DCP_ERR_FORMAT || status == DCP_ERR_CHECKSUM;
}

/* *found: footer is to be freed. */
static dcp_status decode(struct shard_file *file, struct footer *footer, bool *found)
{
    *found = false;
    dcp_status status = footer_decode(shard_file_source(file), footer, found);
    if (status != DCP_OK)
        *found = false;
    if (!*found)
        return status;
    return shard_footer_check_blocks(footer);
}

dcp_status shard_footer_read(struct shard_file *file, const char *save_id)
{
    struct footer footer;
    bool found;
    dcp_status status = decode(file, &footer, &found);
    if (is_damage(status) || (status == DCP_OK && !found && save_id_promises_footers(save_id))) {
        file->footer = FOOTER_DAMAGED;
        status = DCP_OK;
    } else if (status == DCP_OK && found) {
        status = check_save(file, &footer, save_id);
        if (status == DCP_OK)
            status = take_pieces(file, &footer.contents);
        if (status == DCP_OK)
            status = take_blocks(file, &footer);
    }
    if (found)
        footer_free(&footer);
    return status;
}

dcp_status shard_footer_blame(struct shard_file *file)
{
    struct footer footer;
    bool found;
    dcp_status status = decode(file, &footer, &found);
    if (found)
        footer_free(&footer);
    if (status == DCP_OK)
        status = dcp_error_set(DCP_ERR_FORMAT, "no footer, but all files of its save have one");
    return error_prefix(status, "%s", shard_file_path(file));
}
