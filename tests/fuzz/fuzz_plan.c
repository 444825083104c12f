/* SPDX-License-Identifier: BSD-3-Clause */
/* The messages that ranks send each other while they plan. Input: two bytes of length, a save plan
 * of that length, and write orders for it, a joint plan, or load differences. What is decoded must
 * survive encoding, what a merge makes of a plan must be accepted by the rank that sent it, and
 * what it makes of a joint plan must be whole. */
#include <stdlib.h>
#include <string.h>

#include "fuzz_target.h"
#include "plan/load/load_plan.h"
#include "plan/save/save_plan.h"

enum { RANKS = 3, ITEMS_MAX = 1000 };

static void require(bool condition)
{
    if (!condition)
        abort();
}

static dcp_status layout(dcp_dtype dtype, int32_t ndim, const int64_t *sizes, uint64_t *data_offset,
                         uint64_t *length)
{
    uint64_t bytes;
    require(shape_bytes(ndim, sizes, dtype, &bytes));
    *data_offset = 640;
    if (bytes > INT64_MAX - 4096)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "a stream of more than 2^63 bytes");
    *length = bytes + 1536;
    return DCP_OK;
}

static void check_plan_again(const struct save_plan *plan)
{
    struct buffer first, second;
    struct save_plan again;
    buffer_init(&first, 0);
    buffer_init(&second, 0);
    require(save_plan_encode(plan, &first) == DCP_OK);
    require(save_plan_decode(first.data, first.size, &again) == DCP_OK);
    require(again.count == plan->count);
    require(save_plan_encode(&again, &second) == DCP_OK);
    require(first.size == second.size && memcmp(first.data, second.data, first.size) == 0);
    save_plan_free(&again);
    buffer_free(&second);
    buffer_free(&first);
}

static void check_orders_again(const struct write_orders *orders, const struct save_plan *plan)
{
    struct buffer bytes;
    struct write_orders again;
    buffer_init(&bytes, 0);
    require(write_orders_encode(orders, &bytes) == DCP_OK);
    require(write_orders_decode(bytes.data, bytes.size, plan, &again) == DCP_OK);
    require(again.count == orders->count);
    write_orders_free(&again);
    buffer_free(&bytes);
}

/* All ranks hold the same. */
static void merge(const struct save_plan *plan, dcp_replicas replicas)
{
    struct save_plan plans[RANKS] = {*plan, *plan, *plan};
    struct write_orders orders[RANKS];
    struct metadata metadata;
    struct save_plan_options options = {.replicas = replicas, .thread_count = 2, .layout = layout};
    if (save_plan_merge(plans, RANKS, &options, 0, orders, &metadata) == DCP_OK) {
        for (size_t i = 0; i < metadata.count; i++)
            require(metadata_check_entry(&metadata.entries[i]) == DCP_OK);
        for (int rank = 0; rank < RANKS; rank++)
            check_orders_again(&orders[rank], plan);
    }
    for (int rank = 0; rank < RANKS; rank++)
        write_orders_free(&orders[rank]);
    metadata_free(&metadata);
}

static void check_differences(const uint8_t *data, size_t size)
{
    struct load_differences differences, again;
    struct buffer bytes;
    if (load_differences_decode(data, size, &differences) == DCP_OK) {
        buffer_init(&bytes, 0);
        require(load_differences_encode(&differences, &bytes) == DCP_OK);
        require(load_differences_decode(bytes.data, bytes.size, &again) == DCP_OK);
        require(again.count == differences.count);
        load_differences_free(&again);
        buffer_free(&bytes);
    }
    load_differences_free(&differences);
}

static dcp_status ignore_orders(void *context, uint32_t rank, const struct write_orders *orders)
{
    (void)context;
    (void)rank;
    (void)orders;
    return DCP_OK;
}

/* A few bytes may tell of very many items. */
static void merge_joint(const struct joint_plan *joint)
{
    struct metadata metadata;
    struct merge *merge;
    struct save_plan_options options = {.thread_count = 2, .layout = layout};
    struct order_sink sink = {.take = ignore_orders};
    if (joint_plan_items(joint) > ITEMS_MAX)
        return;
    if (joint_plan_merge(joint, &options, &metadata, &merge) == DCP_OK &&
        merge_order_all(merge, 0, &sink) == DCP_OK)
        for (size_t i = 0; i < metadata.count; i++)
            require(metadata_check_entry(&metadata.entries[i]) == DCP_OK);
    merge_free(merge);
    metadata_free(&metadata);
}

static void check_joint_plan(const uint8_t *data, size_t size)
{
    struct joint_plan joint, again;
    struct buffer bytes;
    if (joint_plan_decode(data, size, RANKS, &joint) == DCP_OK) {
        buffer_init(&bytes, 0);
        require(joint_plan_encode(&joint, &bytes) == DCP_OK);
        require(joint_plan_decode(bytes.data, bytes.size, RANKS, &again) == DCP_OK);
        require(again.count == joint.count);
        require(joint_plan_items(&again) == joint_plan_items(&joint));
        joint_plan_free(&again);
        buffer_free(&bytes);
        merge_joint(&joint);
    }
    joint_plan_free(&joint);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct save_plan plan;
    if (size < 2)
        return 0;
    size_t length = (size_t)data[0] | (size_t)data[1] << 8;
    if (length > size - 2)
        length = size - 2;
    const uint8_t *rest = data + 2 + length;
    size_t rest_size = size - 2 - length;
    if (save_plan_decode(data + 2, length, &plan) == DCP_OK) {
        struct write_orders orders;
        check_plan_again(&plan);
        for (int replicas = DCP_REPLICAS_SLICE; replicas <= DCP_REPLICAS_LOWEST; replicas++)
            merge(&plan, (dcp_replicas)replicas);
        if (write_orders_decode(rest, rest_size, &plan, &orders) == DCP_OK)
            check_orders_again(&orders, &plan);
        write_orders_free(&orders);
    }
    save_plan_free(&plan);
    check_joint_plan(rest, rest_size);
    check_differences(rest, rest_size);
    return 0;
}
