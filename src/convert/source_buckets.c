/* SPDX-License-Identifier: BSD-3-Clause */
/* Which parameter lies where in the buckets: first what only one place can be, then the rest by the
 * order between those. */
#include "convert/source_buckets.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

/* Where parameters begin, and ranges that are compared: as many times all elements as this, and so
 * many more. */
enum { ALIGNMENT = 64, COMPARED_TIMES = 64 };
#define COMPARED_BASE (INT64_C(1) << 26)

static int compare_orders(const struct bucket_order *a, const struct bucket_order *b)
{
    if (a->section != b->section)
        return a->section < b->section ? -1 : 1;
    if (a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

/* By what is compared; 0: they are equal. */
static int compare_values(const struct bucket_piece *a, const struct bucket_piece *b)
{
    if (a->length != b->length)
        return a->length < b->length ? -1 : 1;
    if (a->dtype != b->dtype)
        return a->dtype < b->dtype ? -1 : 1;
    return (a->digest > b->digest) - (a->digest < b->digest);
}

static int compare_pieces(const void *one, const void *other)
{
    const struct bucket_piece *a = one, *b = other;
    int order = compare_values(a, b);
    return order != 0 ? order : compare_orders(&a->order, &b->order);
}

static int compare_places(const void *one, const void *other)
{
    const struct bucket_place *a = one, *b = other;
    if (a->bucket != b->bucket)
        return a->bucket < b->bucket ? -1 : 1;
    return (a->at > b->at) - (a->at < b->at);
}

static int64_t place_length(const struct buckets *buckets, const struct bucket_place *place)
{
    return buckets->pieces[place->first].length;
}

/* ---- candidates ---- */

/* The first piece that is not before. */
static size_t find_piece(const struct buckets *buckets, const struct bucket_piece *like)
{
    size_t low = 0, high = buckets->piece_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_values(&buckets->pieces[middle], like) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_border(const struct bucket *bucket, int64_t at)
{
    size_t low = 0, high = bucket->border_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (bucket->borders[middle] < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low < bucket->border_count && bucket->borders[low] == at;
}

static dcp_status add_place(struct buckets *buckets, const struct bucket_place *place)
{
    if (buckets->place_count == buckets->place_capacity) {
        size_t capacity = buckets->place_capacity == 0 ? 64 : buckets->place_capacity * 2;
        struct bucket_place *grown =
            memory_reallocate_array(buckets->places, capacity, sizeof *grown);
        if (!grown)
            return error_no_memory(capacity * sizeof *grown, "places in buckets");
        buckets->places = grown;
        buckets->place_capacity = capacity;
    }
    buckets->places[buckets->place_count++] = *place;
    return DCP_OK;
}

/* Whether pieces of a length and dtype lie at a border. */
static dcp_status try_place(struct buckets *buckets, size_t number, int64_t at,
                            const struct bucket_piece *like)
{
    const struct bucket *bucket = &buckets->buckets[number];
    struct bucket_piece wanted = *like;
    struct bucket_place place = {.bucket = number, .at = at};
    RETURN_IF_ERROR(bucket_digest(buckets, bucket, at, like->length, like->dtype, &wanted.digest));
    place.first = place.end = find_piece(buckets, &wanted);
    while (place.end < buckets->piece_count &&
           compare_values(&buckets->pieces[place.end], &wanted) == 0)
        place.end++;
    if (place.end == place.first)
        return DCP_OK;
    RETURN_IF_ERROR(bucket_digest(buckets, bucket, at, like->length, DCP_F32, &place.bits));
    return add_place(buckets, &place);
}

static dcp_status find_places(struct buckets *buckets)
{
    int64_t left = COMPARED_BASE;
    for (size_t b = 0; b < buckets->count; b++)
        left += COMPARED_TIMES * (buckets->buckets[b].length & INT32_MAX);
    for (size_t b = 0; b < buckets->count; b++) {
        const struct bucket *bucket = &buckets->buckets[b];
        for (size_t i = 0; i + 1 < bucket->border_count; i++) {
            int64_t at = bucket->borders[i];
            for (size_t p = 0; p < buckets->piece_count && at % ALIGNMENT == 0; p++) {
                const struct bucket_piece *piece = &buckets->pieces[p];
                bool seen =
                    p > 0 && piece[-1].length == piece->length && piece[-1].dtype == piece->dtype;
                if (seen || piece->length > bucket->length - at ||
                    !is_border(bucket, at + piece->length))
                    continue;
                left -= piece->length < INT32_MAX ? piece->length : INT32_MAX;
                if (left < 0)
                    return dcp_error_set(DCP_ERR_UNSUPPORTED,
                                         "%s: its buckets have more borders than parameters",
                                         buckets->directory);
                RETURN_IF_ERROR(try_place(buckets, b, at, piece));
            }
        }
    }
    if (buckets->place_count > 1)
        qsort(buckets->places, buckets->place_count, sizeof *buckets->places, compare_places);
    return DCP_OK;
}

/* ---- what is certain ---- */

static int compare_candidates(const void *one, const void *other, void *context)
{
    const struct buckets *buckets = context;
    const struct bucket_place *a = &buckets->places[*(const size_t *)one];
    const struct bucket_place *b = &buckets->places[*(const size_t *)other];
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return compare_places(a, b);
}

/* Takes the places of pieces with the same values: where all of them have the same fp32 weights, as
 * those of ranks that hold the same do, any place will do for each. */
static void take_equal(struct buckets *buckets, const size_t *candidates, size_t count)
{
    struct bucket_place *first = &buckets->places[candidates[0]];
    for (size_t i = 1; i < count; i++)
        if (buckets->places[candidates[i]].bits != first->bits)
            return;
    for (size_t p = first->first; p < first->end; p++)
        buckets->pieces[p].place = candidates[0];
    for (size_t i = 0; i < count; i++) {
        buckets->places[candidates[i]].given = true;
        buckets->places[candidates[i]].certain = first->end - first->first == 1;
    }
}

/* Drops what overlaps a place that is certain: values that happen to be there. */
static void drop_overlapped(struct buckets *buckets)
{
    for (int direction = 0; direction < 2; direction++) {
        const struct bucket_place *last = NULL;
        for (size_t i = 0; i < buckets->place_count; i++) {
            struct bucket_place *place =
                &buckets->places[direction == 0 ? i : buckets->place_count - 1 - i];
            bool overlaps = last && last->bucket == place->bucket &&
                            (direction == 0 ? place->at < last->at + place_length(buckets, last)
                                            : last->at < place->at + place_length(buckets, place));
            if (place->certain)
                last = place;
            else if (overlaps)
                place->dropped = true;
        }
    }
}

/* ---- the rest, by the order ---- */

/* Whether the certain places of a sequence of buckets are in the reverse order of the names. */
static bool is_in_order(const struct buckets *buckets, size_t first, size_t end)
{
    const struct bucket_piece *before = NULL;
    for (size_t i = first; i < end; i++) {
        const struct bucket_place *place = &buckets->places[i];
        if (!place->certain)
            continue;
        const struct bucket_piece *piece = &buckets->pieces[place->first];
        if (before && compare_orders(&piece->order, &before->order) >= 0)
            return false;
        before = piece;
    }
    return true;
}

/* The pieces of a class that are in order between two certain places (SIZE_MAX: none). */
static void find_between(const struct buckets *buckets, const struct bucket_place *place,
                         size_t before, size_t behind, size_t *low, size_t *high)
{
    *low = place->first;
    *high = place->end;
    while (*low < *high && behind != SIZE_MAX &&
           compare_orders(&buckets->pieces[*low].order,
                          &buckets->pieces[buckets->places[behind].first].order) < 0)
        *low += 1;
    while (*low < *high && before != SIZE_MAX &&
           compare_orders(&buckets->pieces[*high - 1].order,
                          &buckets->pieces[buckets->places[before].first].order) > 0)
        *high -= 1;
}

/* Gives places of one class between two certain ones to as many pieces, in the reverse order. */
static void give(struct buckets *buckets, const size_t *candidates, size_t count, size_t before,
                 size_t behind)
{
    size_t low, high;
    find_between(buckets, &buckets->places[candidates[0]], before, behind, &low, &high);
    for (size_t i = 0; i < count && high - low == count; i++) {
        struct bucket_piece *piece = &buckets->pieces[high - 1 - i];
        buckets->places[candidates[i]].given = true;
        if (piece->place == SIZE_MAX)
            piece->place = candidates[i];
    }
}

/* All that is not certain of one interval. */
static void give_interval(struct buckets *buckets, size_t *sorted, size_t first, size_t end,
                          size_t before, size_t behind)
{
    size_t count = 0;
    for (size_t i = first; i < end; i++)
        if (!buckets->places[i].dropped && !buckets->places[i].given)
            sorted[count++] = i;
    if (count > 1)
        qsort_r(sorted, count, sizeof *sorted, compare_candidates, buckets);
    for (size_t i = 0, next; i < count; i = next) {
        next = i + 1;
        while (next < count &&
               buckets->places[sorted[next]].first == buckets->places[sorted[i]].first)
            next++;
        give(buckets, sorted + i, next - i, before, behind);
    }
}

static bool same_sequence(const struct buckets *buckets, size_t one, size_t other)
{
    const struct bucket *a = &buckets->buckets[buckets->places[one].bucket];
    const struct bucket *b = &buckets->buckets[buckets->places[other].bucket];
    return a->chain == b->chain && a->group == b->group && a->buffer == b->buffer;
}

static void give_by_order(struct buckets *buckets, size_t *sorted)
{
    for (size_t first = 0, end; first < buckets->place_count; first = end) {
        size_t before = SIZE_MAX;
        for (end = first + 1; end < buckets->place_count && same_sequence(buckets, first, end);)
            end++;
        if (!is_in_order(buckets, first, end))
            continue;
        for (size_t i = first, next; i < end; i = next) {
            next = i;
            while (next < end && !buckets->places[next].certain)
                next++;
            give_interval(buckets, sorted, i, next, before, next < end ? next : SIZE_MAX);
            before = next < end ? next++ : before;
        }
    }
}

/* ---- what came of it ---- */

static dcp_status untold(const struct buckets *buckets, size_t tensor)
{
    dcp_entry entry;
    RETURN_IF_ERROR(dcp_checkpoint_entry(buckets->checkpoint, tensor, &entry));
    return dcp_error_set(DCP_ERR_UNSUPPORTED,
                         "%s: the fp32 weights of \"%s\" are in buckets (dp_reshardable), of which "
                         "no file says which parameter lies where, and its values do not tell",
                         buckets->directory, entry.name);
}

/* Whether the parameters that were found leave no room for others. */
static bool is_explained(const struct buckets *buckets)
{
    size_t next = 0;
    for (size_t b = 0; b < buckets->count; b++) {
        int64_t end = 0;
        for (; next < buckets->place_count && buckets->places[next].bucket == b; next++) {
            const struct bucket_place *place = &buckets->places[next];
            if (!place->given)
                continue;
            if (place->at - end >= ALIGNMENT)
                return false;
            if (place->at + place_length(buckets, place) > end)
                end = place->at + place_length(buckets, place);
        }
        if (buckets->buckets[b].length - end >= ALIGNMENT)
            return false;
    }
    return true;
}

/* Chooses for each tensor whether its chunks lie there by themselves or in pairs. Where all buckets
 * are explained, a tensor that is not there is a frozen one. */
static dcp_status choose_ways(struct buckets *buckets)
{
    size_t count = dcp_checkpoint_count(buckets->checkpoint);
    int64_t *known = arena_allocate_array(buckets->arena, 2 * count, sizeof *known);
    buckets->ways = arena_allocate_array(buckets->arena, count, sizeof *buckets->ways);
    if (!known || !buckets->ways)
        return error_no_memory(2 * count * sizeof *known, "places of parameters");
    memset(known, 0, 2 * count * sizeof *known);
    memset(buckets->ways, 0, count);
    for (size_t p = 0; p < buckets->piece_count; p++) {
        const struct bucket_piece *piece = &buckets->pieces[p];
        if (piece->place != SIZE_MAX)
            known[2 * piece->tensor + piece->boxes - 1] += piece->length;
    }
    bool explained = is_explained(buckets);
    for (size_t p = 0; p < buckets->piece_count; p++) {
        const struct bucket_piece *piece = &buckets->pieces[p];
        const int64_t *found = known + 2 * piece->tensor;
        int64_t elements = 0;
        shape_volume(piece->ndim, piece->shape, &elements);
        if (found[0] == elements || found[1] == elements)
            buckets->ways[piece->tensor] = found[1] == elements ? 2 : 1;
        else if (found[0] > 0 || found[1] > 0 || !explained)
            return untold(buckets, piece->tensor);
    }
    return DCP_OK;
}

static dcp_status tell_places(struct buckets *buckets)
{
    size_t count = buckets->place_count;
    size_t *sorted = memory_allocate_array(count + 1, sizeof *sorted);
    if (!sorted)
        return error_no_memory(count * sizeof *sorted, "places in buckets");
    for (size_t i = 0; i < count; i++)
        sorted[i] = i;
    if (count > 1)
        qsort_r(sorted, count, sizeof *sorted, compare_candidates, buckets);
    for (size_t i = 0, next; i < count; i = next) {
        next = i + 1;
        while (next < count &&
               buckets->places[sorted[next]].first == buckets->places[sorted[i]].first)
            next++;
        take_equal(buckets, sorted + i, next - i);
    }
    drop_overlapped(buckets);
    give_by_order(buckets, sorted);
    memory_release(sorted);
    return choose_ways(buckets);
}

dcp_status buckets_find(struct buckets *buckets, dcp_checkpoint *checkpoint, const char *directory,
                        struct arena *arena)
{
    *buckets = (struct buckets){.checkpoint = checkpoint, .directory = directory, .arena = arena};
    RETURN_IF_ERROR(buckets_list(buckets));
    if (buckets->count == 0)
        return DCP_OK;
    RETURN_IF_ERROR(buckets_list_pieces(buckets));
    if (buckets->piece_count > 1)
        qsort(buckets->pieces, buckets->piece_count, sizeof *buckets->pieces, compare_pieces);
    RETURN_IF_ERROR(find_places(buckets));
    return tell_places(buckets);
}

void buckets_free(struct buckets *buckets)
{
    memory_release(buckets->pieces);
    memory_release(buckets->places);
    buckets->pieces = NULL;
    buckets->places = NULL;
}

bool buckets_have(const struct buckets *buckets, size_t tensor)
{
    return buckets->ways && buckets->ways[tensor] != 0;
}

dcp_status buckets_add(const struct buckets *buckets, size_t tensor, int64_t layer,
                       struct source_parts *parts, size_t file)
{
    int32_t skip = layer >= 0 ? 1 : 0;
    for (size_t p = 0; p < buckets->piece_count; p++) {
        const struct bucket_piece *piece = &buckets->pieces[p];
        if (piece->tensor != tensor || piece->boxes != buckets->ways[tensor])
            continue;
        const struct bucket_place *place = &buckets->places[piece->place];
        int64_t each = piece->length / (int64_t)piece->boxes;
        for (size_t i = 0; i < piece->boxes && (layer < 0 || piece->order.layer == layer); i++) {
            const struct box box = {piece->ndim - skip, piece->offsets[i] + skip,
                                    piece->sizes + skip};
            RETURN_IF_ERROR(source_parts_add_box(parts, file, buckets->buckets[place->bucket].entry,
                                                 box, NULL, place->at + (int64_t)i * each));
        }
    }
    return DCP_OK;
}
