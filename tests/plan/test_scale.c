/* SPDX-License-Identifier: BSD-3-Clause */
/* Planning of many ranks with many items, timed: test_plan_scale [RANKS [TENSORS]]. Without
 * arguments it is small enough for every test run; 256 4548 is a 405-billion-parameter model with
 * its optimizer. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "plan/save/save_plan.h"

enum { ROWS_PER_RANK = 64, COLUMNS = 4096 };

static void require(dcp_status status)
{
    if (status == DCP_OK)
        return;
    fprintf(stderr, "%s\n", dcp_error_message());
    exit(EXIT_FAILURE);
}

static dcp_status layout(dcp_dtype dtype, int32_t ndim, const int64_t *sizes, uint64_t *data_offset,
                         uint64_t *length)
{
    uint64_t bytes;
    shape_bytes(ndim, sizes, dtype, &bytes);
    *data_offset = 704;
    *length = *data_offset + bytes + 900;
    return DCP_OK;
}

struct model {
    int ranks;
    int tensors;
    bool replicated; /* all ranks hold all of it */
};

/* What one rank holds: every tensor's rows, or all of them. */
static void make_plan(const struct model *model, int rank, struct save_plan *plan)
{
    static const char *const kinds[] = {"model.layers", "optim.state.layers"};
    static const char *const names[] = {"attention.wq.weight", "attention.wo.weight",
                                        "feed_forward.w1.weight", "feed_forward.w2.weight"};
    *plan = (struct save_plan){0};
    arena_init(&plan->arena, 0);
    plan->items = arena_allocate_array(&plan->arena, (size_t)model->tensors, sizeof *plan->items);
    int64_t *shape = arena_allocate_array(&plan->arena, 6, sizeof *shape);
    shape[0] = (int64_t)ROWS_PER_RANK * model->ranks;
    shape[1] = shape[5] = COLUMNS;
    shape[2] = model->replicated ? 0 : (int64_t)ROWS_PER_RANK * rank;
    shape[3] = 0;
    shape[4] = model->replicated ? shape[0] : ROWS_PER_RANK;
    for (int i = 0; i < model->tensors; i++) {
        char text[128];
        dcp_path_part *path = arena_allocate_array(&plan->arena, 2, sizeof *path);
        const char *kind = kinds[i % 2];
        snprintf(text, sizeof text, "%s.%d.%s", kind, i / 8, names[i / 2 % 4]);
        char *name = arena_copy_text(&plan->arena, text, strlen(text));
        path[0] = (dcp_path_part){i % 2 != 0 ? "optim" : "model", 0};
        path[1] = (dcp_path_part){strchr(name, '.') + 1, 0};
        plan->items[plan->count++] = (struct write_item){.name = name,
                                                         .path = path,
                                                         .path_length = 2,
                                                         .is_tensor = true,
                                                         .dtype = DCP_BF16,
                                                         .ndim = 2,
                                                         .global_shape = shape,
                                                         .box = {2, shape + 2, shape + 4}};
    }
}

static double seconds_since(int64_t start)
{
    return (double)(clock_monotonic_ns() - start) * 1e-9;
}

static void time_model(const struct model *model)
{
    size_t ranks = (size_t)model->ranks, sent = 0, returned = 0;
    struct save_plan *plans = memory_allocate_zeroed(ranks, sizeof *plans);
    struct buffer *messages = memory_allocate_zeroed(ranks, sizeof *messages);
    struct write_orders *orders = memory_allocate_zeroed(ranks, sizeof *orders);
    struct save_plan_options options = {.thread_count = 4, .layout = layout};
    struct metadata metadata;
    for (size_t rank = 0; rank < ranks; rank++) {
        struct save_plan plan;
        make_plan(model, (int)rank, &plan);
        buffer_init(&messages[rank], 0);
        require(save_plan_encode(&plan, &messages[rank]));
        save_plan_free(&plan);
        sent += messages[rank].size;
    }
    int64_t start = clock_monotonic_ns();
    for (size_t rank = 0; rank < ranks; rank++)
        require(save_plan_decode(messages[rank].data, messages[rank].size, &plans[rank]));
    double decoding = seconds_since(start);
    start = clock_monotonic_ns();
    require(save_plan_merge(plans, model->ranks, &options, 0, orders, &metadata));
    double merging = seconds_since(start);
    start = clock_monotonic_ns();
    for (size_t rank = 0; rank < ranks; rank++) {
        buffer_clear(&messages[rank]);
        require(write_orders_encode(&orders[rank], &messages[rank]));
        returned += messages[rank].size;
    }
    double encoding = seconds_since(start);
    printf("%d ranks x %d tensors, %s: decode %.3f s, merge %.3f s, encode %.3f s; "
           "%zu and %zu bytes a rank\n",
           model->ranks, model->tensors, model->replicated ? "replicated" : "sharded", decoding,
           merging, encoding, sent / ranks, returned / ranks);
    for (size_t rank = 0; rank < ranks; rank++) {
        write_orders_free(&orders[rank]);
        save_plan_free(&plans[rank]);
        buffer_free(&messages[rank]);
    }
    metadata_free(&metadata);
    memory_release(orders);
    memory_release(messages);
    memory_release(plans);
}

int main(int argument_count, char **arguments)
{
    struct model model = {.ranks = argument_count > 1 ? atoi(arguments[1]) : 16,
                          .tensors = argument_count > 2 ? atoi(arguments[2]) : 1000};
    if (model.ranks < 1 || model.tensors < 1)
        return EXIT_FAILURE;
    time_model(&model);
    model.replicated = true;
    time_model(&model);
    return EXIT_SUCCESS;
}
