/* SPDX-License-Identifier: BSD-3-Clause */
/* Our side of `compare plan`: plans a save with simulated ranks in one process, and a load of one
 * rank. The tensors come in lines of standard input, each a name and its shape; every rank holds
 * rows of each of them (FSDP): bench_plan RANKS weights|optimizer [processor]
 *
 * processor: seconds are those of the processor, which do not depend on who else uses it.
 *
 * One line per figure goes out: its name, seconds, bytes or a count, and the unit. */
#include <err.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/memory.h"
#include "checkpoint/save/save_plan_cache.h"
#include "dcp/mesh.h"
#include "format/metadata/metadata_codec.h"
#include "format/streams/stream.h"
#include "plan/load/load_plan.h"
#include "plan/save/save_plan.h"
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

static clockid_t clock_used = CLOCK_MONOTONIC;

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(clock_used, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static double seconds_since(int64_t start)
{
    return (double)(now() - start) * 1e-9;
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

/* A rank's tree, its items, and what it holds. */
struct held {
    dcp_state *root;
    struct flat_state flat;
    struct save_plan plan;
};

static void held_new(const struct model *model, int rank, int ranks, struct held *held)
{
    uint64_t *lengths = checked(memory_allocate_zeroed(model->count * STATES, sizeof *lengths));
    held->root = make_tree(model, rank, ranks);
    check(flatten_state(held->root, &held->flat));
    check(save_plan_local(&held->flat, lengths, &held->plan));
    memory_release(lengths);
}

static void held_free(struct held *held)
{
    save_plan_free(&held->plan);
    flatten_free(&held->flat);
    dcp_state_free(held->root);
}

/* Seconds of each rank until it has nothing left to do, if all work at the same time. */
struct tree {
    const struct model *model;
    int ranks;
    double coordinator; /* what rank 0 does itself */
    double path;        /* what rank 0 has to wait for besides */
    size_t largest;     /* message */
};

/* The plans of ranks first to end - 1, united at rank first as in a save: *seconds is when. */
static void climb(struct tree *tree, int first, int end, int step, struct buffer *message,
                  double *seconds);

/* What rank `first` has of the ranks from first on, when those before step have been united. */
static void unite(struct tree *tree, int first, int end, int step, struct joint_plan *joint,
                  struct joint_plan *parts, size_t *part_count, double *seconds)
{
    double own = 0;
    *seconds = 0;
    for (int at = 1; at < step && first + at < end; at *= 2) {
        struct buffer message;
        double ready;
        climb(tree, first + at, end, at, &message, &ready);
        *seconds = ready > *seconds ? ready : *seconds;
        int64_t start = now();
        struct joint_plan *part = &parts[(*part_count)++];
        check(joint_plan_decode(message.data, message.size, (uint32_t)tree->ranks, part));
        check(joint_plan_unite(joint, part));
        double took = seconds_since(start);
        *seconds += took;
        own += took;
        buffer_free(&message);
    }
    if (first == 0)
        tree->coordinator += own;
}

static void climb(struct tree *tree, int first, int end, int step, struct buffer *message,
                  double *seconds)
{
    struct held held;
    struct joint_plan joint, parts[32];
    size_t part_count = 0;
    if (first + step < end)
        end = first + step;
    held_new(tree->model, first, tree->ranks, &held);
    joint_plan_init(&joint, (uint32_t)tree->ranks);
    check(joint_plan_add(&joint, &held.plan, (uint32_t)first));
    unite(tree, first, end, step, &joint, parts, &part_count, seconds);
    buffer_init(message, 0);
    int64_t start = now();
    check(joint_plan_encode(&joint, message));
    *seconds += seconds_since(start);
    tree->largest = message->size > tree->largest ? message->size : tree->largest;
    joint_plan_free(&joint);
    while (part_count > 0)
        joint_plan_free(&parts[--part_count]);
    held_free(&held);
}

static dcp_status encode_orders(void *context, uint32_t rank, const struct write_orders *orders)
{
    struct buffer *assignments = context;
    buffer_init(&assignments[rank], 0);
    return write_orders_encode(orders, &assignments[rank]);
}

/* Until the orders of all ranks are ready to be sent. */
static void merge_plans(const struct joint_plan *joint, struct metadata *metadata)
{
    struct buffer *assignments =
        checked(memory_allocate_zeroed(joint->rank_count, sizeof *assignments));
    struct save_plan_options options = {.thread_count = 1, .layout = layout};
    struct order_sink sink = {.take = encode_orders, .context = assignments};
    struct merge *merge;
    check(joint_plan_merge(joint, &options, metadata, &merge));
    check(merge_order_all(merge, 0, &sink));
    merge_free(merge);
    for (uint32_t rank = 0; rank < joint->rank_count; rank++)
        buffer_free(&assignments[rank]);
    memory_release(assignments);
}

/* A save in which plans are gathered along the tree. */
static void plan_gathered(const struct model *model, int ranks, struct metadata *metadata)
{
    struct tree tree = {.model = model, .ranks = ranks};
    struct held held;
    struct joint_plan joint, parts[32];
    size_t part_count = 0;
    held_new(model, 0, ranks, &held);
    int64_t start = now();
    joint_plan_init(&joint, (uint32_t)ranks);
    check(joint_plan_add(&joint, &held.plan, 0));
    tree.coordinator = seconds_since(start);
    unite(&tree, 0, ranks, ranks, &joint, parts, &part_count, &tree.path);
    start = now();
    merge_plans(&joint, metadata);
    double merging = seconds_since(start);
    report("coordinator", tree.coordinator + merging, "s");
    report("tree", tree.path, "s");
    report("items", (double)joint_plan_items(&joint), "items");
    report("plan-message", (double)tree.largest, "bytes");
    joint_plan_free(&joint);
    while (part_count > 0)
        joint_plan_free(&parts[--part_count]);
    held_free(&held);
}

static dcp_status encode_own(void *context, uint32_t rank, const struct write_orders *orders)
{
    (void)rank;
    return write_orders_encode(orders, context);
}

/* What a rank does from the second save of the same structure on, before and after the one small
 * exchange. */
static void plan_again(const struct held *held, const struct buffer *own)
{
    dcp_save_options options = {.thread_count = 1};
    const struct plan_extras extras = {0};
    struct write_orders orders;
    dcp_save_plan_cache *cache;
    uint64_t id;
    bool grown;
    check(dcp_save_plan_cache_new(&cache));
    check(write_orders_decode(own->data, own->size, &held->plan, &orders));
    check(save_plan_cache_keep(cache, 1, &options, &held->plan, &orders, own->data, own->size));
    write_orders_free(&orders);
    int64_t start = now();
    check(save_plan_cache_look(cache, &options, &extras, &held->plan, &id, &orders, &grown));
    report("again", seconds_since(start), "s");
    if (id != 1)
        errx(1, "the plan was not known again");
    write_orders_free(&orders);
    dcp_save_plan_cache_free(cache);
}

/* A save that a rank plans alone, and the next one, whose plan is the same. */
static void plan_alone(const struct model *model, int ranks)
{
    uint32_t rank = ranks > 1;
    struct held held;
    struct joint_plan joint;
    struct buffer own;
    struct save_plan_options options = {.thread_count = 1, .layout = layout};
    struct order_sink sink = {.take = encode_own, .context = &own};
    struct merge *merge;
    bool implies;
    uint64_t digest, lengths;
    buffer_init(&own, 0);
    held_new(model, (int)rank, ranks, &held);
    int64_t start = now();
    check(save_plan_implies_all(&held.plan, rank, (uint32_t)ranks, &implies, &digest, &lengths));
    joint_plan_init(&joint, (uint32_t)ranks);
    check(joint_plan_add_all(&joint, &held.plan));
    check(joint_plan_merge(&joint, &options, NULL, &merge));
    check(merge_order_rank(merge, rank, &sink));
    report("alone", seconds_since(start), "s");
    if (!implies)
        errx(1, "the plan of one rank does not imply what all hold");
    merge_free(merge);
    joint_plan_free(&joint);
    plan_again(&held, &own);
    buffer_free(&own);
    held_free(&held);
}

static void pass_metadata(const struct metadata *metadata, struct metadata *decoded)
{
    struct buffer encoded;
    buffer_init(&encoded, 0);
    int64_t start = now();
    check(metadata_encode(metadata, &encoded));
    report("encode", seconds_since(start), "s");
    report("metadata-bytes", (double)encoded.size, "bytes");
    start = now();
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
    int64_t start = now();
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
    bool processor = argument_count == 4 && strcmp(arguments[3], "processor") == 0;
    int ranks = argument_count == 3 || processor ? (int)strtol(arguments[1], NULL, 10) : 0;
    if (ranks < 1)
        errx(2, "usage: bench_plan RANKS weights|optimizer [processor] < TENSORS");
    if (processor)
        clock_used = CLOCK_PROCESS_CPUTIME_ID;
    model.optimizer = strcmp(arguments[2], "optimizer") == 0;
    read_model(&model);
    struct metadata metadata, decoded;
    plan_gathered(&model, ranks, &metadata);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    report("coordinator-memory", (double)usage.ru_maxrss * 1024, "bytes");
    pass_metadata(&metadata, &decoded);
    metadata_free(&metadata);
    getrusage(RUSAGE_SELF, &usage);
    report("memory", (double)usage.ru_maxrss * 1024, "bytes");
    plan_load(&model, ranks, &decoded);
    metadata_free(&decoded);
    plan_alone(&model, ranks);
    for (size_t i = 0; i < model.count; i++)
        memory_release(model.tensors[i].name);
    memory_release(model.tensors);
    return EXIT_SUCCESS;
}
