/* SPDX-License-Identifier: BSD-3-Clause */
/* Our side of `compare plan`: plans a save with simulated ranks in one process, and a load of one
 * rank. The tensors come in lines of standard input, each a name and its shape; every rank holds
 * rows of each of them (FSDP): bench_plan RANKS weights|optimizer
 *
 * One line per figure goes out: its name, seconds, bytes or a count, and the unit. */
#include <err.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/memory.h"
#include "dcp/mesh.h"
#include "format/metadata_codec.h"
#include "format/stream.h"
#include "plan/load_plan.h"
#include "plan/save_plan.h"
#include "state/flatten.h"

enum { LINE = 4096, STATES = 4 };

struct tensor {
    char *name;
    int32_t ndim;
    int64_t shape[DCP_MAX_DIMS];
};

struct model {
    struct tensor *tensors;
    size_t count;
    bool optimizer; /* two moments and a step for each tensor as well */
};

static void check(dcp_status status)
{
    if (status != DCP_OK)
        errx(1, "%s: %s", dcp_status_string(status), dcp_error_message());
}

static void *checked(void *memory)
{
    if (memory == NULL)
        errx(1, "no memory");
    return memory;
}

static double seconds_since(int64_t start)
{
    return (double)(clock_monotonic_ns() - start) * 1e-9;
}

static void report(const char *measure, double value, const char *unit)
{
    printf("%s %.9g %s\n", measure, value, unit);
}

static void read_model(struct model *model)
{
    char line[LINE];
    while (fgets(line, sizeof line, stdin) != NULL) {
        model->tensors = checked(
            memory_reallocate_array(model->tensors, model->count + 1, sizeof *model->tensors));
        struct tensor *tensor = &model->tensors[model->count++];
        char *rest;
        const char *name = strtok_r(line, " \n", &rest);
        if (name == NULL)
            errx(1, "line %zu has no name", model->count);
        *tensor = (struct tensor){.name = checked(memory_copy_text(name))};
        for (const char *size; (size = strtok_r(NULL, " \n", &rest)) != NULL;)
            tensor->shape[tensor->ndim++] = strtoll(size, NULL, 10);
    }
}

/* Rows as torch.chunk divides them. */
static void shard(dcp_tensor *tensor, int rank, int ranks)
{
    dcp_mesh mesh = {.ndim = 1, .shape = {ranks}, .rank = rank};
    dcp_placement rows = dcp_shard(0);
    check(dcp_mesh_shard(&mesh, tensor, &rows));
}

/* The tree of one rank. Nothing is in memory. */
static dcp_state *make_tree(const struct model *model, int rank, int ranks)
{
    static float step;
    static const char *const moments[] = {"exp_avg", "exp_avg_sq"};
    dcp_state *root = checked(dcp_state_new());
    dcp_state *weights = dcp_state_dict(root, "model");
    dcp_state *states =
        model->optimizer ? dcp_state_dict(dcp_state_dict(root, "optim"), "state") : NULL;
    for (size_t i = 0; i < model->count; i++) {
        const struct tensor *from = &model->tensors[i];
        dcp_tensor tensor = {.dtype = DCP_BF16, .ndim = from->ndim};
        memcpy(tensor.global_shape, from->shape, sizeof from->shape);
        shard(&tensor, rank, ranks);
        dcp_state_tensor(weights, from->name, &tensor);
        if (!model->optimizer)
            continue;
        dcp_state *state = dcp_state_dict(states, from->name);
        tensor.dtype = DCP_F32;
        for (size_t k = 0; k < 2; k++)
            dcp_state_tensor(state, moments[k], &tensor);
        dcp_state_tensor(state, "step", &(dcp_tensor){.dtype = DCP_F32, .data = &step});
    }
    check(dcp_state_status(root));
    return root;
}

static dcp_status layout(dcp_dtype dtype, int32_t ndim, const int64_t *sizes, uint64_t *data_offset,
                         uint64_t *length)
{
    struct stream_layout stream;
    dcp_status status = stream_tensor_layout(dtype, ndim, sizes, &stream);
    *data_offset = stream.data_offset;
    *length = stream.length;
    return status;
}

/* What every rank does before it talks; the slowest one counts. */
static void encode_plans(const struct model *model, int ranks, struct buffer *messages)
{
    double slowest = 0;
    size_t bytes = 0;
    uint64_t *lengths = checked(memory_allocate_zeroed(model->count * STATES, sizeof *lengths));
    for (int rank = 0; rank < ranks; rank++) {
        dcp_state *root = make_tree(model, rank, ranks);
        struct flat_state flat;
        struct save_plan plan;
        int64_t start = clock_monotonic_ns();
        check(flatten_state(root, &flat));
        check(save_plan_local(&flat, lengths, &plan));
        buffer_init(&messages[rank], 0);
        check(save_plan_encode(&plan, &messages[rank]));
        double seconds = seconds_since(start);
        slowest = seconds > slowest ? seconds : slowest;
        bytes = messages[rank].size > bytes ? messages[rank].size : bytes;
        save_plan_free(&plan);
        flatten_free(&flat);
        dcp_state_free(root);
    }
    memory_release(lengths);
    report("local-plan", slowest, "s");
    report("plan-message", (double)bytes, "bytes");
}

/* What the coordinator does between the plans of all ranks and the orders to all. */
static void merge_plans(int ranks, struct buffer *messages, struct metadata *metadata)
{
    struct save_plan_options options = {.thread_count = 1, .layout = layout};
    struct save_plan *plans = checked(memory_allocate_zeroed((size_t)ranks, sizeof *plans));
    struct write_orders *orders = checked(memory_allocate_zeroed((size_t)ranks, sizeof *orders));
    size_t items = 0;
    int64_t start = clock_monotonic_ns();
    for (int rank = 0; rank < ranks; rank++) {
        check(save_plan_decode(messages[rank].data, messages[rank].size, &plans[rank]));
        items += plans[rank].count;
    }
    check(save_plan_merge(plans, ranks, &options, orders, metadata));
    for (int rank = 0; rank < ranks; rank++) {
        buffer_clear(&messages[rank]);
        check(write_orders_encode(&orders[rank], &messages[rank]));
    }
    report("coordinator", seconds_since(start), "s");
    report("items", (double)items, "items");
    for (int rank = 0; rank < ranks; rank++) {
        write_orders_free(&orders[rank]);
        save_plan_free(&plans[rank]);
        buffer_free(&messages[rank]);
    }
    memory_release(orders);
    memory_release(plans);
}

static void pass_metadata(const struct metadata *metadata, struct metadata *decoded)
{
    struct buffer encoded;
    buffer_init(&encoded, 0);
    int64_t start = clock_monotonic_ns();
    check(metadata_encode(metadata, &encoded));
    report("encode", seconds_since(start), "s");
    report("metadata-bytes", (double)encoded.size, "bytes");
    start = clock_monotonic_ns();
    check(metadata_decode(encoded.data, encoded.size, decoded));
    report("decode", seconds_since(start), "s");
    buffer_free(&encoded);
}

/* One rank of a job of another size finds out what to read. */
static void plan_load(const struct model *model, int ranks, const struct metadata *metadata)
{
    dcp_state *root = make_tree(model, ranks / 3, ranks / 2 + 1);
    struct flat_state flat;
    struct load_plan plan;
    struct load_differences differences;
    check(flatten_state(root, &flat));
    int64_t start = clock_monotonic_ns();
    check(load_plan_make(&flat, metadata, NULL, false, &plan, &differences));
    report("load-plan", seconds_since(start), "s");
    load_plan_free(&plan);
    load_differences_free(&differences);
    flatten_free(&flat);
    dcp_state_free(root);
}

int main(int argument_count, char **arguments)
{
    struct model model = {0};
    int ranks = argument_count == 3 ? atoi(arguments[1]) : 0;
    if (ranks < 1)
        errx(2, "usage: bench_plan RANKS weights|optimizer < TENSORS");
    model.optimizer = strcmp(arguments[2], "optimizer") == 0;
    read_model(&model);
    struct buffer *messages = checked(memory_allocate_zeroed((size_t)ranks, sizeof *messages));
    struct metadata metadata, decoded;
    encode_plans(&model, ranks, messages);
    merge_plans(ranks, messages, &metadata);
    memory_release(messages);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    report("coordinator-memory", (double)usage.ru_maxrss * 1024, "bytes");
    pass_metadata(&metadata, &decoded);
    metadata_free(&metadata);
    getrusage(RUSAGE_SELF, &usage);
    report("memory", (double)usage.ru_maxrss * 1024, "bytes");
    plan_load(&model, ranks, &decoded);
    metadata_free(&decoded);
    for (size_t i = 0; i < model.count; i++)
        memory_release(model.tensors[i].name);
    memory_release(model.tensors);
    return EXIT_SUCCESS;
}
