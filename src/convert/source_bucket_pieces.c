/* SPDX-License-Identifier: BSD-3-Clause */
/* The buckets of a checkpoint, what ranks have of the model's tensors, and digests of both. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "convert/source_buckets.h"

/* Pieces of all ranks: far more than any model has. */
enum { PIECES_MAX = 1 << 18 };

/* Of what is longer, a digest takes so many elements at the beginning, in the middle and at the
 * end. */
enum { WINDOW = 1 << 14 };

const char *megatron_behind_layers(const char *name)
{
    const char *found = strstr(name, ".layers.");
    return found && !isdigit((unsigned char)found[8]) ? found + 8 : NULL;
}

bool megatron_is_optimizer(const char *name, uint64_t *chain)
{
    *chain = 0;
    if (strncmp(name, "chained_", 8) == 0 && isdigit((unsigned char)name[8])) {
        char *rest;
        *chain = strtoull(name + 8, &rest, 10);
        name = *rest == '.' ? rest + 1 : name;
    }
    return strncmp(name, "optimizer.", 10) == 0;
}

/* ---- buckets ---- */

/* The number behind a text in a name. */
static bool number_behind(const char *name, const char *text, uint64_t *number)
{
    const char *found = strstr(name, text);
    if (!found || !isdigit((unsigned char)found[strlen(text)]))
        return false;
    *number = strtoull(found + strlen(text), NULL, 10);
    return true;
}

static bool is_bucket(const dcp_entry *entry, struct bucket *bucket)
{
    size_t length = strlen(entry->name), suffix = strlen(".param");
    return entry->is_tensor && entry->dtype == DCP_F32 && entry->ndim == 1 && length > suffix &&
           strcmp(entry->name + length - suffix, ".param") == 0 &&
           megatron_is_optimizer(entry->name, &bucket->chain) &&
           number_behind(entry->name, ".dp_group_idx_", &bucket->group) &&
           number_behind(entry->name, ".gbuf_idx_", &bucket->buffer) &&
           number_behind(entry->name, ".bucket_idx_", &bucket->number);
}

static int compare_borders(const void *one, const void *other)
{
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

static dcp_status read_borders(const struct buckets *buckets, const dcp_entry *entry,
                               struct bucket *bucket)
{
    size_t count = entry->chunk_count;
    bucket->length = entry->global_shape[0];
    bucket->borders = arena_allocate_array(buckets->arena, count + 1, sizeof *bucket->borders);
    if (!bucket->borders)
        return error_no_memory((count + 1) * sizeof *bucket->borders, "borders in a bucket");
    for (size_t i = 0; i < count; i++) {
        dcp_stored_chunk chunk;
        RETURN_IF_ERROR(dcp_checkpoint_chunk(buckets->checkpoint, bucket->entry, i, &chunk));
        bucket->borders[i] = chunk.offsets[0];
    }
    bucket->borders[count] = bucket->length;
    bucket->border_count = count + 1;
    qsort(bucket->borders, count + 1, sizeof *bucket->borders, compare_borders);
    return DCP_OK;
}

static int compare_buckets(const void *one, const void *other)
{
    const struct bucket *a = one, *b = other;
    if (a->chain != b->chain)
        return a->chain < b->chain ? -1 : 1;
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    if (a->buffer != b->buffer)
        return a->buffer < b->buffer ? -1 : 1;
    if (a->number != b->number)
        return a->number < b->number ? -1 : 1;
    return a->entry < b->entry ? -1 : 1;
}

dcp_status buckets_list(struct buckets *buckets)
{
    size_t count = dcp_checkpoint_count(buckets->checkpoint), found = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < count; i++) {
            struct bucket bucket = {.entry = i};
            dcp_entry entry;
            RETURN_IF_ERROR(dcp_checkpoint_entry(buckets->checkpoint, i, &entry));
            if (!is_bucket(&entry, &bucket))
                continue;
            found++;
            if (pass == 0)
                continue;
            RETURN_IF_ERROR(read_borders(buckets, &entry, &bucket));
            buckets->buckets[buckets->count++] = bucket;
        }
        if (found == 0 || pass == 1)
            break;
        buckets->buckets = arena_allocate_array(buckets->arena, found, sizeof *buckets->buckets);
        if (!buckets->buckets)
            return error_no_memory(found * sizeof *buckets->buckets, "buckets");
    }
    if (buckets->count > 1)
        qsort(buckets->buckets, buckets->count, sizeof *buckets->buckets, compare_buckets);
    return DCP_OK;
}

/* ---- digests ---- */

/* Elements of a box of a tensor, row-major. */
static dcp_status read_box(dcp_checkpoint *checkpoint, size_t entry, const dcp_tensor *whole,
                           struct box box, int64_t first, int64_t count, unsigned char *elements)
{
    int64_t offsets[DCP_MAX_DIMS], sizes[DCP_MAX_DIMS];
    const dcp_read_options options = {.convert = true};
    for (int64_t end = first + count; first < end;) {
        dcp_tensor tensor = *whole;
        int64_t taken =
            box.ndim == 0 ? 1 : shape_next_box(box.ndim, box.sizes, first, end, offsets, sizes);
        tensor.sharded = true;
        tensor.data = elements;
        for (int32_t d = 0; d < box.ndim; d++) {
            tensor.offsets[d] = box.offsets[d] + offsets[d];
            tensor.sizes[d] = sizes[d];
        }
        RETURN_IF_ERROR(dcp_checkpoint_read_tensor(checkpoint, entry, &tensor, &options));
        elements += (size_t)taken * dcp_dtype_size(whole->dtype);
        first += taken;
    }
    return DCP_OK;
}

struct range {
    const struct buckets *buckets;
    const struct bucket_piece *piece; /* NULL: of the bucket */
    const struct bucket *bucket;
    int64_t at;
    dcp_dtype dtype;
};

/* Elements of a piece, over its boxes, or of a bucket. */
static dcp_status read_elements(const struct range *range, int64_t first, int64_t count,
                                unsigned char *elements)
{
    dcp_checkpoint *checkpoint = range->buckets->checkpoint;
    dcp_tensor whole = {.dtype = range->dtype, .ndim = 1};
    if (!range->piece) {
        int64_t start = 0;
        whole.global_shape[0] = range->bucket->length;
        const struct box box = {1, &start, &range->bucket->length};
        return read_box(checkpoint, range->bucket->entry, &whole, box, range->at + first, count,
                        elements);
    }
    const struct bucket_piece *piece = range->piece;
    int64_t each = piece->length / (int64_t)piece->boxes;
    whole.ndim = piece->ndim;
    memcpy(whole.global_shape, piece->shape, (size_t)piece->ndim * sizeof *piece->shape);
    while (count > 0) {
        int64_t inside = first % each, taken = each - inside < count ? each - inside : count;
        const struct box box = {piece->ndim, piece->offsets[first / each], piece->sizes};
        RETURN_IF_ERROR(read_box(checkpoint, piece->tensor, &whole, box, inside, taken, elements));
        elements += (size_t)taken * dcp_dtype_size(range->dtype);
        first += taken;
        count -= taken;
    }
    return DCP_OK;
}

static dcp_status digest_range(const struct range *range, int64_t length, uint64_t *digest)
{
    int64_t most = 3 * WINDOW, taken = length < most ? length : most;
    size_t size = (size_t)taken * dcp_dtype_size(range->dtype);
    unsigned char *elements = memory_allocate(size);
    if (!elements)
        return error_no_memory(size, "elements of a parameter");
    dcp_status status = DCP_OK;
    if (length <= most) {
        status = read_elements(range, 0, length, elements);
    } else {
        const int64_t starts[] = {0, length / 2 - WINDOW / 2, length - WINDOW};
        for (int i = 0; i < 3 && status == DCP_OK; i++)
            status = read_elements(range, starts[i], WINDOW, elements + (size_t)i * size / 3);
    }
    if (status == DCP_OK)
        *digest = xxh3_64(elements, size);
    memory_release(elements);
    return status;
}

dcp_status bucket_digest(const struct buckets *buckets, const struct bucket *bucket, int64_t at,
                         int64_t length, dcp_dtype dtype, uint64_t *digest)
{
    const struct range range = {.buckets = buckets, .bucket = bucket, .at = at, .dtype = dtype};
    return digest_range(&range, length, digest);
}

/* ---- pieces ---- */

static dcp_status add_piece(struct buckets *buckets, const struct bucket_piece *piece)
{
    if (buckets->piece_count == buckets->piece_capacity) {
        size_t capacity = buckets->piece_capacity == 0 ? 64 : buckets->piece_capacity * 2;
        struct bucket_piece *grown =
            capacity <= PIECES_MAX
                ? memory_reallocate_array(buckets->pieces, capacity, sizeof *grown)
                : NULL;
        if (!grown)
            return capacity <= PIECES_MAX
                       ? error_no_memory(capacity * sizeof *grown, "parts of parameters")
                       : dcp_error_set(DCP_ERR_UNSUPPORTED, "more than %d parts of parameters",
                                       PIECES_MAX);
        buckets->pieces = grown;
        buckets->piece_capacity = capacity;
    }
    struct bucket_piece *added = &buckets->pieces[buckets->piece_count++];
    *added = *piece;
    const struct range range = {.buckets = buckets, .piece = added, .dtype = added->dtype};
    return digest_range(&range, added->length, &added->digest);
}

static int compare_boxes(const void *one, const void *other, void *ndim)
{
    const struct bucket_piece *a = one, *b = other;
    for (int32_t d = 0; d < *(const int32_t *)ndim; d++)
        if (a->offsets[0][d] != b->offsets[0][d])
            return a->offsets[0][d] < b->offsets[0][d] ? -1 : 1;
    return 0;
}

static bool same_sizes(const struct bucket_piece *a, const struct bucket_piece *b)
{
    return memcmp(a->sizes, b->sizes, (size_t)a->ndim * sizeof *a->sizes) == 0;
}

/* Of the chunks of a layer, sorted, the first half is also taken together with the second: the rows
 * of gates, and those behind them. */
static dcp_status add_pairs(struct buckets *buckets, const struct bucket_piece *chunks,
                            size_t count)
{
    for (size_t i = 0; count % 2 == 0 && i < count / 2; i++) {
        struct bucket_piece pair = chunks[i];
        if (!same_sizes(&chunks[i], &chunks[i + count / 2]))
            continue;
        pair.boxes = 2;
        pair.offsets[1] = chunks[i + count / 2].offsets[0];
        pair.length *= 2;
        RETURN_IF_ERROR(add_piece(buckets, &pair));
    }
    return DCP_OK;
}

static dcp_status read_chunks(const struct buckets *buckets, const dcp_entry *entry,
                              const struct bucket_piece *like, struct bucket_piece *chunks)
{
    size_t bytes = (size_t)entry->ndim * sizeof(int64_t);
    for (size_t i = 0; i < entry->chunk_count; i++) {
        dcp_stored_chunk chunk;
        chunks[i] = *like;
        RETURN_IF_ERROR(dcp_checkpoint_chunk(buckets->checkpoint, like->tensor, i, &chunk));
        chunks[i].offsets[0] = arena_copy(buckets->arena, chunk.offsets, bytes);
        chunks[i].sizes = arena_copy(buckets->arena, chunk.sizes, bytes);
        if (!chunks[i].offsets[0] || !chunks[i].sizes)
            return error_no_memory(2 * bytes, "a part of a parameter");
        shape_volume(entry->ndim, chunks[i].sizes, &chunks[i].length);
        if (like->order.section % 2 == 1)
            chunks[i].order.layer = chunks[i].offsets[0][0];
    }
    int32_t ndim = entry->ndim;
    qsort_r(chunks, entry->chunk_count, sizeof *chunks, compare_boxes, &ndim);
    return DCP_OK;
}

static dcp_status add_chunks(struct buckets *buckets, const dcp_entry *entry,
                             const struct bucket_piece *like)
{
    size_t count = entry->chunk_count;
    struct bucket_piece *chunks = memory_allocate_array(count + 1, sizeof *chunks);
    if (!chunks)
        return error_no_memory(count * sizeof *chunks, "parts of a parameter");
    dcp_status status = read_chunks(buckets, entry, like, chunks);
    for (size_t i = 0; i < count && status == DCP_OK; i++)
        if (chunks[i].length > 0)
            status = add_piece(buckets, &chunks[i]);
    for (size_t first = 0, end; first < count && status == DCP_OK; first = end) {
        for (end = first + 1; end < count && chunks[end].order.layer == chunks[first].order.layer;)
            end++;
        if (chunks[first].length > 0)
            status = add_pairs(buckets, chunks + first, end - first);
    }
    memory_release(chunks);
    return status;
}

/* The section that a name is in, from that of the name before: each stack of layers is one (odd),
 * and so are the names before and behind it. */
struct sections {
    int section;
    const char *stack; /* the name of the layers, up to ".layers." */
    size_t length;
};

static int next_section(struct sections *sections, const char *name, bool stacked)
{
    size_t length = stacked ? (size_t)(megatron_behind_layers(name) - name) : 0;
    bool same = stacked && sections->stack && length == sections->length &&
                memcmp(name, sections->stack, length) == 0;
    if (!stacked)
        sections->section += sections->section % 2;
    else if (!same)
        sections->section += sections->section % 2 == 0 ? 1 : 2;
    sections->stack = name;
    sections->length = length;
    return sections->section;
}

dcp_status buckets_list_pieces(struct buckets *buckets)
{
    struct sections sections = {0};
    for (size_t i = 0; i < dcp_checkpoint_count(buckets->checkpoint); i++) {
        dcp_entry entry;
        uint64_t chain;
        RETURN_IF_ERROR(dcp_checkpoint_entry(buckets->checkpoint, i, &entry));
        if (!entry.is_tensor || megatron_is_optimizer(entry.name, &chain) ||
            (entry.dtype != DCP_F32 && entry.dtype != DCP_BF16 && entry.dtype != DCP_F16))
            continue;
        bool stacked = megatron_behind_layers(entry.name) && entry.ndim > 0;
        int64_t *shape = arena_copy(buckets->arena, entry.global_shape,
                                    (size_t)entry.ndim * sizeof *entry.global_shape);
        if (!shape)
            return error_no_memory(sizeof *shape, entry.name);
        const struct bucket_piece like = {
            .tensor = i,
            .dtype = entry.dtype,
            .ndim = entry.ndim,
            .shape = shape,
            .boxes = 1,
            .order = {next_section(&sections, entry.name, stacked), 0, i},
            .place = SIZE_MAX};
        RETURN_IF_ERROR(add_chunks(buckets, &entry, &like));
    }
    return DCP_OK;
}
