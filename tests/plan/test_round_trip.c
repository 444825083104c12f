/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves of random boxes on some ranks and loads of other boxes on other ranks, with the bytes moved
 * as the plans say: every element wanted arrives, once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan/load/load_plan.h"
#include "samples.h"
#include "state/flatten.h"

enum { TENSORS = 5, BOXES_MAX = 40, DIMS_MAX = 4, STREAMS_MAX = 4096 };

struct tensor {
    char name[32];
    int32_t ndim;
    int64_t shape[DIMS_MAX];
    int32_t number;
};

/* A tree of one rank whose chunks have memory. */
struct rank {
    dcp_state *root;
    struct flat_state flat;
    int32_t *memory[TENSORS * BOXES_MAX];
    size_t memory_count;
};

struct stream {
    char file[SHARD_NAME_MAX];
    uint64_t offset;
    int32_t *elements;
};

struct world {
    struct tensor tensors[TENSORS];
    struct stream streams[STREAMS_MAX];
    size_t stream_count;
    uint64_t seed;
    bool sliced; /* the first tensor is large, and every saving rank holds all of it */
};

/* Cuts the whole into boxes by repeated random cuts. */
static size_t cut_boxes(uint64_t *seed, const struct tensor *tensor, struct box_storage *boxes)
{
    size_t count = 1;
    size_t wanted = 1 + random_below(seed, BOXES_MAX / 2);
    memset(&boxes[0], 0, sizeof boxes[0]);
    memcpy(boxes[0].sizes, tensor->shape, sizeof tensor->shape);
    for (size_t tries = 0; tries < 100 && count < wanted && tensor->ndim > 0; tries++) {
        struct box_storage *box = &boxes[random_below(seed, count)];
        int32_t dim = (int32_t)random_below(seed, (uint64_t)tensor->ndim);
        if (box->sizes[dim] < 2)
            continue;
        int64_t at = 1 + (int64_t)random_below(seed, (uint64_t)box->sizes[dim] - 1);
        boxes[count] = *box;
        boxes[count].offsets[dim] += at;
        boxes[count].sizes[dim] -= at;
        box->sizes[dim] = at;
        count++;
    }
    return count;
}

static int32_t value_at(const struct tensor *tensor, const int64_t *index)
{
    int64_t linear = 0;
    for (int32_t dim = 0; dim < tensor->ndim; dim++)
        linear = linear * tensor->shape[dim] + index[dim];
    return (int32_t)(linear * TENSORS + tensor->number + 1);
}

/* Steps through a box in row-major order; false after its last element. */
static bool step(struct box box, int64_t *index)
{
    for (int32_t dim = box.ndim - 1; dim >= 0; dim--) {
        if (++index[dim] < box.offsets[dim] + box.sizes[dim])
            return true;
        index[dim] = box.offsets[dim];
    }
    return false;
}

static int64_t place_in(struct box box, const int64_t *index)
{
    int64_t linear = 0;
    for (int32_t dim = 0; dim < box.ndim; dim++)
        linear = linear * box.sizes[dim] + index[dim] - box.offsets[dim];
    return linear;
}

static void start(struct box box, int64_t *index)
{
    memcpy(index, box.offsets, (size_t)box.ndim * sizeof *index);
}

static void make_tensors(struct world *world)
{
    for (int32_t i = 0; i < TENSORS; i++) {
        struct tensor *tensor = &world->tensors[i];
        *tensor = (struct tensor){.number = i};
        snprintf(tensor->name, sizeof tensor->name, "layers.%d.w", i);
        tensor->ndim = (int32_t)random_below(&world->seed, DIMS_MAX + 1);
        for (int32_t dim = 0; dim < tensor->ndim; dim++)
            tensor->shape[dim] =
                (int64_t)random_below(&world->seed, 10) + (random_below(&world->seed, 20) != 0);
    }
    if (world->sliced) {
        world->tensors[0].ndim = 3;
        memcpy(world->tensors[0].shape, DIMS(2, 3, 60000), 3 * sizeof(int64_t));
    }
}

static void add_chunk(struct rank *rank, dcp_state **node, dcp_state *parent,
                      const struct tensor *tensor, const struct box_storage *storage)
{
    dcp_tensor chunk = {.dtype = DCP_I32, .ndim = tensor->ndim, .sharded = true};
    struct box box = box_of(tensor->ndim, storage);
    memcpy(chunk.global_shape, tensor->shape, sizeof tensor->shape);
    memcpy(chunk.offsets, storage->offsets, sizeof chunk.offsets);
    memcpy(chunk.sizes, storage->sizes, sizeof chunk.sizes);
    int32_t *memory = calloc((size_t)box_volume(box) + 1, sizeof *memory);
    assert_non_null(memory);
    rank->memory[rank->memory_count++] = memory;
    chunk.data = memory;
    if (*node == NULL)
        *node = dcp_state_tensor(parent, tensor->name + strlen("layers."), &chunk);
    else
        assert_int_equal(dcp_state_add_chunk(*node, &chunk), DCP_OK);
    assert_non_null(*node);
}

static void rank_free(struct rank *rank)
{
    for (size_t i = 0; i < rank->memory_count; i++)
        free(rank->memory[i]);
    flatten_free(&rank->flat);
    dcp_state_free(rank->root);
}

/* Ranks get the boxes of one partition of each tensor, each box on one rank or on several. With
 * every_box, each box is on some rank. */
static void make_ranks(struct world *world, struct rank *ranks, int count, bool every_box)
{
    dcp_state *parents[SAMPLE_RANKS_MAX];
    for (int r = 0; r < count; r++) {
        ranks[r] = (struct rank){.root = dcp_state_new()};
        parents[r] = dcp_state_dict(ranks[r].root, "layers");
    }
    for (int32_t i = 0; i < TENSORS; i++) {
        struct box_storage boxes[BOXES_MAX];
        dcp_state *nodes[SAMPLE_RANKS_MAX] = {NULL};
        size_t box_count = cut_boxes(&world->seed, &world->tensors[i], boxes);
        bool replicated = random_below(&world->seed, 3) == 0;
        bool everywhere = world->sliced && i == 0 && every_box;
        if (everywhere) {
            memset(boxes[0].offsets, 0, sizeof boxes[0].offsets);
            memcpy(boxes[0].sizes, world->tensors[i].shape, sizeof world->tensors[i].shape);
            box_count = 1;
        }
        for (size_t k = 0; k < box_count; k++) {
            int keeper = (int)random_below(&world->seed, (uint64_t)count);
            for (int r = 0; r < count; r++) {
                bool holds =
                    every_box ? r == keeper || replicated : random_below(&world->seed, 2) == 0;
                if (everywhere ||
                    (holds && (!replicated || r == keeper || random_below(&world->seed, 3) != 0)))
                    add_chunk(&ranks[r], &nodes[r], parents[r], &world->tensors[i], &boxes[k]);
            }
        }
    }
    for (int r = 0; r < count; r++) {
        dcp_state_int(ranks[r].root, "step", 1);
        assert_int_equal(flatten_state(ranks[r].root, &ranks[r].flat), DCP_OK);
    }
}

static const struct tensor *tensor_of(const struct world *world, const char *name)
{
    for (int32_t i = 0; i < TENSORS; i++)
        if (strcmp(world->tensors[i].name, name) == 0)
            return &world->tensors[i];
    fail_msg("no tensor \"%s\"", name);
    return NULL;
}

static void fill_chunks(const struct world *world, const struct rank *rank)
{
    for (size_t i = 0; i < rank->flat.count; i++) {
        const struct flat_entry *entry = &rank->flat.entries[i];
        if (entry->node->kind != DCP_KIND_TENSOR)
            continue;
        const struct state_tensor *node = entry->node->as.tensor;
        for (size_t k = 0; k < node->chunk_count; k++) {
            struct box box = {node->ndim, node->chunks[k].offsets, node->chunks[k].sizes};
            int64_t index[DIMS_MAX];
            int32_t *next = node->chunks[k].data;
            if (box_volume(box) == 0)
                continue;
            start(box, index);
            do
                *next++ = value_at(tensor_of(world, entry->name), index);
            while (step(box, index));
        }
    }
}

static void write_stream(struct world *world, const struct rank *rank, int number,
                         const struct write_item *item, const struct write_order *order)
{
    struct stream *stream = &world->streams[world->stream_count++];
    assert_true(world->stream_count <= STREAMS_MAX);
    shard_name(stream->file, number, order->file, SAMPLE_GENERATION);
    stream->offset = order->offset;
    stream->elements = NULL;
    if (!item->is_tensor || box_volume(order->box) == 0)
        return;
    const struct state_chunk *chunk =
        &rank->flat.entries[item->entry].node->as.tensor->chunks[item->chunk];
    struct box held = {order->box.ndim, chunk->offsets, chunk->sizes};
    int32_t *next = malloc((size_t)box_volume(order->box) * sizeof *next);
    int64_t index[DIMS_MAX];
    assert_non_null(next);
    stream->elements = next;
    start(order->box, index);
    do
        *next++ = ((const int32_t *)chunk->data)[place_in(held, index)];
    while (step(order->box, index));
}

/* Plans of the ranks, through messages and back, and all that they order. */
static void save(struct world *world, const struct rank *ranks, int count,
                 const struct save_plan_options *options, struct metadata *metadata)
{
    struct save_plan local[SAMPLE_RANKS_MAX];
    struct samples sent = {.count = count};
    struct merged merged;
    for (int r = 0; r < count; r++) {
        uint64_t lengths[64] = {0};
        struct buffer message;
        lengths[ranks[r].flat.count - 1] = 1261;
        buffer_init(&message, 0);
        assert_int_equal(save_plan_local(&ranks[r].flat, lengths, &local[r]), DCP_OK);
        assert_int_equal(save_plan_encode(&local[r], &message), DCP_OK);
        assert_int_equal(save_plan_decode(message.data, message.size, &sent.plans[r]), DCP_OK);
        buffer_free(&message);
    }
    assert_int_equal(samples_merge(&sent, options, &merged), DCP_OK);
    check_merged(&sent, &merged);
    for (int r = 0; r < count; r++) {
        struct write_orders orders;
        struct buffer message;
        buffer_init(&message, 0);
        assert_int_equal(write_orders_encode(&merged.orders[r], &message), DCP_OK);
        assert_int_equal(write_orders_decode(message.data, message.size, &local[r], &orders),
                         DCP_OK);
        for (size_t i = 0; i < orders.count; i++)
            write_stream(world, &ranks[r], r, &local[r].items[orders.orders[i].item],
                         &orders.orders[i]);
        write_orders_free(&orders);
        buffer_free(&message);
        save_plan_free(&local[r]);
    }
    *metadata = merged.metadata;
    metadata_init(&merged.metadata);
    merged_free(&merged);
    samples_free(&sent);
}

static const struct stream *find_stream(const struct world *world, const char *file,
                                        uint64_t offset)
{
    for (size_t i = 0; i < world->stream_count; i++)
        if (world->streams[i].offset == offset && strcmp(world->streams[i].file, file) == 0)
            return &world->streams[i];
    fail_msg("nothing was written to %s at %llu", file, (unsigned long long)offset);
    return NULL;
}

static void read_region(const struct world *world, const struct rank *rank,
                        const struct metadata *metadata, const struct read_item *item)
{
    const struct metadata_entry *entry = &metadata->entries[item->entry];
    const struct metadata_piece *piece = &entry->pieces[item->piece];
    const struct stream *stream = find_stream(world, metadata->files[piece->file], piece->offset);
    if (!entry->is_tensor)
        return;
    const struct state_chunk *chunk =
        &rank->flat.entries[item->wanted].node->as.tensor->chunks[item->chunk];
    struct box stored = {entry->ndim, piece->offsets, piece->sizes};
    struct box wanted = {entry->ndim, chunk->offsets, chunk->sizes};
    int64_t index[DIMS_MAX];
    start(item->region, index);
    do {
        int32_t *element = (int32_t *)chunk->data + place_in(wanted, index);
        assert_int_equal(*element, 0); /* not written before */
        *element = stream->elements[place_in(stored, index)];
    } while (step(item->region, index));
}

static void check_chunks(const struct world *world, const struct rank *rank, uint64_t bytes)
{
    for (size_t i = 0; i < rank->flat.count; i++) {
        const struct flat_entry *entry = &rank->flat.entries[i];
        if (entry->node->kind != DCP_KIND_TENSOR)
            continue;
        const struct state_tensor *node = entry->node->as.tensor;
        for (size_t k = 0; k < node->chunk_count; k++) {
            struct box box = {node->ndim, node->chunks[k].offsets, node->chunks[k].sizes};
            const int32_t *next = node->chunks[k].data;
            int64_t index[DIMS_MAX];
            bytes -= (uint64_t)box_volume(box) * sizeof *next;
            if (box_volume(box) == 0)
                continue;
            start(box, index);
            do
                assert_int_equal(*next++, value_at(tensor_of(world, entry->name), index));
            while (step(box, index));
        }
    }
    assert_int_equal(bytes, 0);
}

static void load(const struct world *world, struct rank *rank, const struct metadata *metadata)
{
    struct load_plan plan;
    struct load_differences differences;
    assert_int_equal(load_plan_make(&rank->flat, metadata, NULL, false, &plan, &differences),
                     DCP_OK);
    assert_int_equal(differences.count, 0);
    for (size_t i = 0; i < plan.count; i++) {
        const struct read_item *item = &plan.items[i];
        const struct metadata_piece *piece = &metadata->entries[item->entry].pieces[item->piece];
        if (i > 0) {
            const struct read_item *before = &plan.items[i - 1];
            const struct metadata_piece *last =
                &metadata->entries[before->entry].pieces[before->piece];
            assert_true(last->file < piece->file ||
                        (last->file == piece->file && last->offset <= piece->offset));
        }
        read_region(world, rank, metadata, item);
    }
    check_chunks(world, rank, plan.bytes_wanted);
    load_plan_free(&plan);
    load_differences_free(&differences);
}

static void travel(uint64_t seed, bool sliced)
{
    static struct world world;
    static struct rank ranks[SAMPLE_RANKS_MAX];
    struct metadata metadata;
    struct save_plan_options options = sample_options((dcp_replicas)(seed % 3));
    world.seed = seed;
    world.stream_count = 0;
    world.sliced = sliced;
    options.thread_count = 1 + (uint32_t)random_below(&world.seed, 3);
    options.files = random_below(&world.seed, 4) == 0 ? DCP_FILE_PER_ITEM : DCP_FILES_PER_RANK;
    make_tensors(&world);
    int savers = 1 + (int)random_below(&world.seed, 8);
    if (sliced) {
        options.replicas = DCP_REPLICAS_SLICE;
        savers++;
    }
    int loaders = 1 + (int)random_below(&world.seed, 8);
    make_ranks(&world, ranks, savers, true);
    for (int r = 0; r < savers; r++)
        fill_chunks(&world, &ranks[r]);
    save(&world, ranks, savers, &options, &metadata);
    if (sliced)
        assert_true(metadata_find(&metadata, "layers.0.w")->piece_count > 1);
    for (int r = 0; r < savers; r++)
        rank_free(&ranks[r]);
    make_ranks(&world, ranks, loaders, false);
    for (int r = 0; r < loaders; r++) {
        load(&world, &ranks[r], &metadata);
        rank_free(&ranks[r]);
    }
    for (size_t i = 0; i < world.stream_count; i++)
        free(world.streams[i].elements);
    metadata_free(&metadata);
}

static void every_element_arrives_once(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 600; seed++)
        travel(seed, false);
}

static void slices_arrive_too(void **state)
{
    (void)state;
    for (uint64_t seed = 1000; seed < 1012; seed++)
        travel(seed, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_arrives_once),
        cmocka_unit_test(slices_arrive_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
