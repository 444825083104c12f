/* SPDX-License-Identifier: BSD-3-Clause */
#include "samples.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ITEMS_MAX = 8192 };

void samples_init(struct samples *samples, int count)
{
    *samples = (struct samples){.count = count};
    for (int rank = 0; rank < count; rank++) {
        struct save_plan *plan = &samples->plans[rank];
        arena_init(&plan->arena, 0);
        plan->items = arena_allocate_array(&plan->arena, ITEMS_MAX, sizeof *plan->items);
        assert_non_null(plan->items);
    }
}

void samples_free(struct samples *samples)
{
    for (int rank = 0; rank < samples->count; rank++)
        save_plan_free(&samples->plans[rank]);
}

static void cut_path(struct arena *arena, struct write_item *item)
{
    dcp_path_part *path = arena_allocate_array(arena, strlen(item->name) + 1, sizeof *path);
    const char *start = item->name;
    assert_non_null(path);
    item->path = path;
    item->path_length = 0;
    for (;;) {
        size_t length = strcspn(start, ".");
        char *key = arena_copy_text(arena, start, length);
        char *end;
        long position = strtol(key, &end, 10);
        bool is_position = length > 0 && *end == '\0' && item->path_length > 0;
        path[item->path_length++] =
            is_position ? (dcp_path_part){NULL, position} : (dcp_path_part){key, 0};
        if (start[length] == '\0')
            return;
        start += length + 1;
    }
}

static struct write_item *add_item(struct samples *samples, int rank, const char *name)
{
    struct save_plan *plan = &samples->plans[rank];
    assert_true(plan->count < ITEMS_MAX);
    struct write_item *item = &plan->items[plan->count++];
    const struct write_item *before = plan->count > 1 ? item - 1 : NULL;
    *item = (struct write_item){0};
    if (before != NULL && strcmp(before->name, name) == 0) {
        item->name = before->name;
        item->path = before->path;
        item->path_length = before->path_length;
        return item;
    }
    item->name = arena_copy_text(&plan->arena, name, strlen(name));
    cut_path(&plan->arena, item);
    return item;
}

static const int64_t *copy_numbers(struct arena *arena, const int64_t *numbers, int32_t count)
{
    const int64_t *copy = arena_copy(arena, numbers, (size_t)count * sizeof *numbers);
    assert_non_null(copy);
    return copy;
}

void sample_tensor(struct samples *samples, int rank, const char *name, dcp_dtype dtype,
                   struct box box, const int64_t *shape)
{
    struct arena *arena = &samples->plans[rank].arena;
    struct write_item *item = add_item(samples, rank, name);
    item->is_tensor = true;
    item->dtype = dtype;
    item->ndim = box.ndim;
    item->global_shape = copy_numbers(arena, shape, box.ndim);
    item->box = (struct box){box.ndim, copy_numbers(arena, box.offsets, box.ndim),
                             copy_numbers(arena, box.sizes, box.ndim)};
}

void sample_object(struct samples *samples, int rank, const char *name, uint64_t length)
{
    add_item(samples, rank, name)->object_length = length;
}

dcp_status sample_layout(dcp_dtype dtype, int32_t ndim, const int64_t *sizes, uint64_t *data_offset,
                         uint64_t *length)
{
    uint64_t bytes;
    assert_true(shape_bytes(ndim, sizes, dtype, &bytes));
    *data_offset = 640 + 64 * ((uint64_t)ndim / 8);
    *length = *data_offset + bytes + 873 + (bytes != 0 ? 64 - bytes % 64 : 0);
    return DCP_OK;
}

struct save_plan_options sample_options(dcp_replicas replicas)
{
    return (struct save_plan_options){
        .replicas = replicas, .thread_count = 1, .layout = sample_layout};
}

dcp_status samples_merge(const struct samples *samples, const struct save_plan_options *options,
                         struct merged *merged)
{
    merged->count = samples->count;
    return save_plan_merge(samples->plans, samples->count, options, SAMPLE_GENERATION,
                           merged->orders, &merged->metadata);
}

void merged_free(struct merged *merged)
{
    for (int rank = 0; rank < merged->count; rank++)
        write_orders_free(&merged->orders[rank]);
    metadata_free(&merged->metadata);
}

uint64_t orders_bytes(const struct write_orders *orders)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < orders->count; i++)
        bytes += orders->orders[i].length;
    return bytes;
}

/* The piece that an order writes. */
static void check_order_is_stored(const struct merged *merged, const char *file,
                                  const struct write_item *item, const struct write_order *order)
{
    const struct metadata_entry *entry = metadata_find(&merged->metadata, item->name);
    assert_non_null(entry);
    assert_int_equal(entry->is_tensor, item->is_tensor);
    for (size_t i = 0; i < entry->piece_count; i++) {
        const struct metadata_piece *piece = &entry->pieces[i];
        if (piece->offset != order->offset ||
            strcmp(merged->metadata.files[piece->file], file) != 0)
            continue;
        assert_int_equal(piece->length, order->length);
        assert_int_equal(piece->encoding, PIECE_STREAM);
        if (item->is_tensor)
            assert_true(box_equal(order->box, BOX(entry->ndim, piece->offsets, piece->sizes)));
        else
            assert_null(piece->offsets);
        return;
    }
    fail_msg("no piece of \"%s\" at %s:%llu", item->name, file, (unsigned long long)order->offset);
}

static void check_order(const struct write_item *item, const struct write_order *order)
{
    if (!item->is_tensor) {
        assert_int_equal(order->length, item->object_length);
        assert_int_equal(order->data_offset, 0);
        return;
    }
    uint64_t data_offset, length;
    sample_layout(item->dtype, item->ndim, order->box.sizes, &data_offset, &length);
    assert_int_equal(order->data_offset, data_offset);
    assert_int_equal(order->length, length);
    assert_int_equal((order->offset + data_offset) % 64, 0);
    if ((uint64_t)box_volume(order->box) * dcp_dtype_size(item->dtype) >= 64 * 1024)
        assert_int_equal((order->offset + data_offset) % 4096, 0);
    struct box_storage common;
    if (box_volume(order->box) == 0)
        return;
    assert_true(box_intersect(order->box, item->box, &common));
    assert_true(box_equal(order->box, box_of(item->ndim, &common)));
}

static size_t check_rank(const struct samples *samples, const struct merged *merged, int rank)
{
    const struct write_orders *orders = &merged->orders[rank];
    uint64_t end = 0;
    for (size_t i = 0; i < orders->count; i++) {
        const struct write_order *order = &orders->orders[i];
        char file[SHARD_NAME_MAX];
        assert_true(order->item < samples->plans[rank].count);
        assert_true(order->file < orders->file_count);
        if (i > 0) {
            assert_true(order->file >= orders->orders[i - 1].file);
            if (order->file == orders->orders[i - 1].file)
                assert_true(order->offset >= end);
        }
        end = order->offset + order->length;
        const struct write_item *item = &samples->plans[rank].items[order->item];
        check_order(item, order);
        shard_name(file, rank, order->file, SAMPLE_GENERATION);
        check_order_is_stored(merged, file, item, order);
    }
    return orders->count;
}

void check_merged(const struct samples *samples, const struct merged *merged)
{
    const struct metadata *metadata = &merged->metadata;
    size_t written = 0, stored = 0;
    for (int rank = 0; rank < merged->count; rank++)
        written += check_rank(samples, merged, rank);
    for (size_t i = 0; i < metadata->count; i++) {
        const struct metadata_entry *entry = &metadata->entries[i];
        stored += entry->piece_count;
        assert_int_equal(metadata_check_entry(entry), DCP_OK);
        for (size_t a = 0; a < entry->piece_count && entry->piece_count < 64; a++)
            for (size_t b = 0; b < a && entry->is_tensor; b++)
                assert_memory_not_equal(entry->pieces[a].offsets, entry->pieces[b].offsets,
                                        (size_t)entry->ndim * sizeof(int64_t));
    }
    assert_int_equal(written, stored);
    unsigned char *used = calloc(metadata->file_count + 1, 1);
    assert_non_null(used);
    for (size_t i = 0; i < metadata->count; i++)
        for (size_t k = 0; k < metadata->entries[i].piece_count; k++) {
            assert_true(metadata->entries[i].pieces[k].file < metadata->file_count);
            used[metadata->entries[i].pieces[k].file] = 1;
        }
    for (size_t i = 0; i < metadata->file_count; i++)
        assert_true(used[i]);
    free(used);
}

uint64_t random_next(uint64_t *seed)
{
    *seed += 0x9e3779b97f4a7c15u;
    uint64_t value = *seed;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}

uint64_t random_below(uint64_t *seed, uint64_t bound)
{
    return random_next(seed) % bound;
}

void sample_same_joint_plan(const struct joint_plan *a, const struct joint_plan *b)
{
    struct buffer first, second;
    buffer_init(&first, 0);
    buffer_init(&second, 0);
    assert_int_equal(joint_plan_encode(a, &first), DCP_OK);
    assert_int_equal(joint_plan_encode(b, &second), DCP_OK);
    assert_int_equal(first.size, second.size);
    assert_memory_equal(first.data, second.data, first.size);
    buffer_free(&first);
    buffer_free(&second);
}
