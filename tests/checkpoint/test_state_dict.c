/* SPDX-License-Identifier: BSD-3-Clause */
/* Whole states of sharded ones and back, without a checkpoint. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "device/stand_in.h"
#include "fault/failing_allocator.h"
#include "format/streams/item.h"
#include "group/collective.h"
#include "group/group.h"
#include "state/device_memory.h"

enum { TENSORS = 4, ELEMENTS = 2048 };

static const int64_t shapes[TENSORS][2] = {{7, 5}, {4, 6}, {3, 1}, {600, 3}};
static const char *const keys[TENSORS] = {"w", "b", "norm", "large"};

/* How tensor t lies on a rank of a mesh of two dimensions (size x 1, or 2 x size / 2). */
static dcp_tensor chunk_of(int t, int rank, int size)
{
    dcp_tensor tensor = {.dtype = DCP_I32, .ndim = 2};
    dcp_mesh mesh = {.ndim = 2, .shape = {size, 1}, .rank = rank};
    dcp_placement placements[] = {t == 2 ? dcp_replicate() : dcp_shard(0), dcp_shard(1)};
    memcpy(tensor.global_shape, shapes[t], sizeof shapes[t]);
    if (size % 2 == 0) {
        mesh.shape[0] = 2;
        mesh.shape[1] = size / 2;
    }
    if (t == 2)
        placements[1] = dcp_replicate();
    must(dcp_mesh_shard(&mesh, &tensor, placements));
    return tensor;
}

static int32_t value_of(int t, const dcp_tensor *chunk, int64_t index)
{
    int64_t row = chunk->offsets[0] + index / chunk->sizes[1];
    return (int32_t)(10000 * (t + 1) + row * chunk->global_shape[1] + chunk->offsets[1] +
                     index % chunk->sizes[1]);
}

struct memory {
    int32_t elements[TENSORS][ELEMENTS];
    dcp_tensor chunks[TENSORS];
};

/* Tensor 1 lies transposed in memory. */
static void build(dcp_state *root, struct memory *memory, int rank, int size, bool filled)
{
    dcp_state *layer = dcp_state_dict(dcp_state_list(root, "layers"), NULL);
    for (int t = 0; t < TENSORS; t++) {
        dcp_tensor chunk = chunk_of(t, rank, size);
        chunk.strided = true;
        chunk.strides[0] = t == 1 ? 1 : chunk.sizes[1];
        chunk.strides[1] = t == 1 ? chunk.sizes[0] : 1;
        chunk.data = memory->elements[t];
        for (int64_t i = 0; i < chunk.sizes[0] * chunk.sizes[1]; i++)
            memory->elements[t][i / chunk.sizes[1] * chunk.strides[0] +
                                i % chunk.sizes[1] * chunk.strides[1]] =
                filled ? value_of(t, &chunk, i) : -1;
        memory->chunks[t] = chunk;
        dcp_state_tensor(layer, keys[t], &chunk);
    }
    dcp_state *tuple = dcp_state_tuple(root, "settings");
    dcp_state_int(tuple, NULL, filled ? 5 : 0);
}

static dcp_status check_chunk(int t, const dcp_tensor *chunk)
{
    const int32_t *data = chunk->data;
    for (int64_t i = 0; i < chunk->sizes[0] * chunk->sizes[1]; i++) {
        int32_t found =
            data[i / chunk->sizes[1] * chunk->strides[0] + i % chunk->sizes[1] * chunk->strides[1]];
        if (found != value_of(t, chunk, i))
            return dcp_error_set(DCP_ERR_INTERNAL, "%s: element %d is %d, expected %d", keys[t],
                                 (int)i, found, value_of(t, chunk, i));
    }
    return DCP_OK;
}

static dcp_status check_whole(const dcp_state *root, unsigned left_out)
{
    const dcp_state *layer = dcp_state_at(dcp_state_find(root, "layers"), 0);
    int64_t value = 0;
    for (int t = 0; t < TENSORS; t++) {
        dcp_tensor chunk;
        const dcp_state *node = dcp_state_find(layer, keys[t]);
        if (left_out >> t & 1) {
            assert_null(node);
            continue;
        }
        if (!node || dcp_state_chunk_count(node) != 1 || dcp_state_chunk(node, 0, &chunk) != DCP_OK)
            return dcp_error_set(DCP_ERR_INTERNAL, "%s is missing", keys[t]);
        if (memcmp(chunk.sizes, shapes[t], sizeof shapes[t]) != 0)
            return dcp_error_set(DCP_ERR_INTERNAL, "%s is not whole", keys[t]);
        dcp_status status = check_chunk(t, &chunk);
        if (status != DCP_OK)
            return status;
    }
    dcp_status status = dcp_state_as_int(dcp_state_at(dcp_state_find(root, "settings"), 0), &value);
    return status == DCP_OK && value != 5 ? DCP_ERR_INTERNAL : status;
}

struct job {
    dcp_gather_state_options get;
    dcp_distribute_state_options set;
    unsigned left_out;
    int broken_rank;      /* from 1; 0: none */
    bool counted;         /* what goes over the group, of four */
    bool derived;         /* the group has broadcasts only */
    _Atomic size_t sent;  /* by all ranks, from rank to rank */
    _Atomic size_t spent; /* in what goes to everyone */
};

static struct job *counting; /* operations get the group's context alone */
static dcp_group_operations real;

static dcp_status count_all_to_all(void *context, const dcp_collective *call, const void *send,
                                   const size_t *send_sizes, const size_t *send_offsets,
                                   void *receive, const size_t *receive_sizes,
                                   const size_t *receive_offsets)
{
    for (size_t i = 0; i < 4; i++)
        counting->sent += send_sizes[i];
    return real.all_to_all(context, call, send, send_sizes, send_offsets, receive, receive_sizes,
                           receive_offsets);
}

static dcp_status count_broadcast(void *context, const dcp_collective *call, int root, void *data,
                                  size_t bytes)
{
    counting->spent += bytes;
    return real.broadcast(context, call, root, data, bytes);
}

static void arrange_group(struct rank *self, struct job *job)
{
    if (job->derived)
        self->group->operations.all_to_all = NULL;
    if (!job->counted)
        return;
    if (self->rank == 0) {
        counting = job;
        real = self->group->operations;
    }
    must(group_agree(self->group, &(dcp_collective){"counting", 30}, DCP_OK));
    self->group->operations.all_to_all = count_all_to_all;
    self->group->operations.broadcast = count_broadcast;
}

static dcp_status get_body(struct rank *self)
{
    struct job *job = self->context;
    dcp_gather_state_options options = job->get;
    arrange_group(self, job);
    struct memory *memory = calloc(1, sizeof *memory);
    dcp_state *root = dcp_state_new(), *into = dcp_state_new();
    build(root, memory, self->rank, self->size, true);
    options.group = self->group;
    options.timeout_seconds = 30;
    bool broken = job->broken_rank == self->rank + 1;
    dcp_status status = dcp_gather_state(broken ? NULL : root, &options, into);
    if (status == DCP_OK && options.cpu_offload && self->rank > 0)
        status = dcp_state_count(into) == 0 ? DCP_OK : DCP_ERR_INTERNAL;
    else if (status == DCP_OK)
        status = check_whole(into, job->left_out);
    dcp_state_free(root);
    free(memory); /* what was gathered needs neither */
    if (status == DCP_OK && dcp_state_count(into) > 0)
        status = check_whole(into, job->left_out);
    dcp_state_free(into);
    return status;
}

static void test_gathers_whole_tensors(void **state)
{
    (void)state;
    static const dcp_parameter parameters[] = {{"layers.0.w", 0, false}, {"layers.0.b", 0, true}};
    for (int size = 1; size <= 6; size++)
        for (int way = 0; way < 8; way++) {
            struct job job = {.derived = way & 4,
                              .get = {.full_state_dict = true,
                                      .cpu_offload = way & 1,
                                      .ignore_frozen_params = way & 2,
                                      .parameters = parameters,
                                      .parameter_count = 2},
                              .left_out = way & 2 ? 1U << 1 : 0};
            ranks_must(size, "", get_body, &job);
        }
}

/* Each rank has names that no other rank has, as stages of a pipeline do. */
static dcp_status stage_body(struct rank *self)
{
    dcp_gather_state_options options = {
        .group = self->group, .timeout_seconds = 30, .full_state_dict = true};
    dcp_state *root = dcp_state_new(), *into = dcp_state_new();
    int32_t value = 70 + self->rank;
    dcp_tensor tensor = {.dtype = DCP_I32, .data = &value}, found;
    char name[32];
    snprintf(name, sizeof name, "stage%d", self->rank);
    dcp_state_tensor(dcp_state_dict(root, name), "w", &tensor);
    dcp_status status = dcp_gather_state(root, &options, into);
    for (int r = 0; r < self->size && status == DCP_OK; r++) {
        snprintf(name, sizeof name, "stage%d", r);
        status = dcp_state_chunk(dcp_state_find(dcp_state_find(into, name), "w"), 0, &found);
        if (status == DCP_OK && *(const int32_t *)found.data != 70 + r)
            status = DCP_ERR_INTERNAL;
    }
    dcp_state_free(into);
    dcp_state_free(root);
    return status;
}

static void test_gathers_names_of_some_ranks(void **state)
{
    (void)state;
    ranks_must(4, "", stage_body, NULL);
}

static void test_copies_without_gathering(void **state)
{
    (void)state;
    static const dcp_parameter parameters[] = {{"layers.0.norm", 0, true}};
    dcp_gather_state_options options = {
        .ignore_frozen_params = true, .parameters = parameters, .parameter_count = 1};
    struct memory *memory = calloc(1, sizeof *memory);
    dcp_state *root = dcp_state_new(), *into = dcp_state_new();
    dcp_tensor chunk;
    build(root, memory, 1, 2, true);
    must(dcp_gather_state(root, &options, into));
    const dcp_state *layer = dcp_state_at(dcp_state_find(into, "layers"), 0);
    assert_null(dcp_state_find(layer, "norm"));
    must(dcp_state_chunk(dcp_state_find(layer, "b"), 0, &chunk));
    assert_ptr_equal(chunk.data, memory->elements[1]);
    must_fail(dcp_gather_state(root, &options, into), DCP_ERR_DUPLICATE, "already exists");
    must_fail(dcp_gather_state(root, &options, root), DCP_ERR_ARGUMENT, "another tree");
    dcp_state_free(root);
    dcp_state_free(into);
    free(memory);
}

static dcp_status set_body(struct rank *self)
{
    struct job *job = self->context;
    dcp_distribute_state_options options = job->set;
    arrange_group(self, job);
    struct memory *memory = calloc(1, sizeof *memory), *whole = calloc(1, sizeof *whole);
    dcp_state *root = dcp_state_new(), *source = dcp_state_new();
    bool has_source = !options.broadcast_from_rank0 || self->rank == 0;
    build(root, memory, self->rank, self->size, false);
    build(source, whole, 0, 1, true);
    options.group = self->group;
    options.timeout_seconds = 30;
    bool broken = job->broken_rank == self->rank + 1;
    dcp_status status =
        dcp_distribute_state(broken ? NULL : root, has_source ? source : NULL, &options, NULL);
    for (int t = 0; t < TENSORS && status == DCP_OK; t++)
        status = check_chunk(t, &memory->chunks[t]);
    int64_t value = 0;
    if (status == DCP_OK)
        status = dcp_state_as_int(dcp_state_at(dcp_state_find(root, "settings"), 0), &value);
    dcp_state_free(source);
    dcp_state_free(root);
    free(whole);
    free(memory);
    return status == DCP_OK && value != 5 ? DCP_ERR_INTERNAL : status;
}

static void test_sets_from_whole_states(void **state)
{
    (void)state;
    for (int size = 1; size <= 6; size++)
        for (int way = 0; way < 3; way++) {
            struct job job = {
                .derived = way == 2,
                .set = {.broadcast_from_rank0 = way > 0, .strictness = DCP_STRICT_RAISE_ALL}};
            ranks_must(size, "", set_body, &job);
        }
}

/* Bytes of the whole state: elements, and the one object's stream. */
static size_t whole_bytes(size_t *object)
{
    size_t bytes = 0;
    struct buffer stream;
    dcp_state *root = dcp_state_new();
    buffer_init(&stream, 0);
    dcp_state_int(root, "value", 5);
    must(item_encode_stream(dcp_state_find(root, "value"), &stream));
    *object = stream.size;
    for (int t = 0; t < TENSORS; t++)
        bytes += (size_t)(shapes[t][0] * shapes[t][1]) * sizeof(int32_t);
    buffer_free(&stream);
    dcp_state_free(root);
    return bytes + *object;
}

/* What rank 0 of four has of tensors that are cut, and the whole of the one that is not. */
static size_t own_bytes(void)
{
    size_t bytes = 0;
    for (int t = 0; t < TENSORS; t++) {
        dcp_tensor chunk = chunk_of(t, 0, 4);
        bytes += (size_t)(chunk.sizes[0] * chunk.sizes[1]) * sizeof(int32_t);
    }
    return bytes;
}

/* Each byte goes from the rank that has it to those that want it, and nowhere else; segments of a
 * message are aligned. Between hosts: */
static void test_bytes_go_straight(void **state)
{
    (void)state;
    setenv("RANKS_APART", "-1", 1);
    enum { ROOM = 16 * 3 * (TENSORS * 4 + 1) };
    size_t object, whole = whole_bytes(&object), own = own_bytes();
    struct job job = {.counted = true, .get = {.full_state_dict = true}};
    ranks_must(4, "", get_body, &job);
    assert_in_range(job.sent, 3 * whole, 3 * whole + ROOM);
    assert_in_range(job.spent, 1, 4 * 4096); /* plans and statuses */
    job = (struct job){.counted = true, .get = {.full_state_dict = true, .cpu_offload = true}};
    ranks_must(4, "", get_body, &job);
    assert_in_range(job.sent, whole - own - object, whole - own - object + ROOM);
    job = (struct job){.counted = true, .set = {.broadcast_from_rank0 = true}};
    ranks_must(4, "", set_body, &job);
    /* Everyone wants the object and the replicated tensor, and its own part of the others. */
    size_t replicated = (size_t)(shapes[2][0] * shapes[2][1]) * sizeof(int32_t);
    size_t expected = 3 * object + 3 * replicated + whole - object - own;
    assert_in_range(job.sent, expected, expected + ROOM);
    unsetenv("RANKS_APART");
}

static void test_a_failing_rank_is_everyones(void **state)
{
    (void)state;
    struct rank ranks[RANKS_MAX];
    for (int way = 0; way < 4; way++) {
        struct job job = {.get = {.full_state_dict = true, .cpu_offload = way == 1},
                          .set = {.broadcast_from_rank0 = way == 3},
                          .broken_rank = 3};
        ranks_run(ranks, 4, "", way < 2 ? get_body : set_body, &job);
        for (int r = 0; r < 4; r++) {
            assert_int_equal(ranks[r].status, DCP_ERR_ARGUMENT);
            assert_non_null(strstr(ranks[r].message, "rank 2"));
        }
    }
}

/* Rank r wants the names that are its own, and lacks what rank 0 has besides. */
static dcp_status strict_body(struct rank *self)
{
    dcp_distribute_state_options options = *(const dcp_distribute_state_options *)self->context;
    dcp_state *root = dcp_state_new(), *source = dcp_state_new();
    dcp_load_report *report = NULL;
    static const char *const wanted[] = {"a", "b", "absent"};
    options.group = self->group;
    options.timeout_seconds = 30;
    dcp_state_int(source, "a", 1);
    dcp_state_int(source, "b", 2);
    dcp_state_int(source, "extra", 3);
    dcp_state_int(root, wanted[self->rank], 0);
    dcp_status status = dcp_distribute_state(root, source, &options, &report);
    dcp_report_line missing, extra;
    if (dcp_load_report_line(report, 0, &missing) != DCP_OK ||
        dcp_load_report_line(report, 1, &extra) != DCP_OK || dcp_load_report_count(report) != 2 ||
        strcmp(missing.name, "absent") != 0 || strcmp(extra.name, "extra") != 0)
        status = dcp_error_set(DCP_ERR_INTERNAL, "the report has %zu lines",
                               dcp_load_report_count(report));
    dcp_load_report_free(report);
    dcp_state_free(source);
    dcp_state_free(root);
    return status;
}

static void test_strictness(void **state)
{
    (void)state;
    static const struct {
        dcp_strictness strictness;
        dcp_status status;
    } cases[] = {{DCP_STRICT_MISSING, DCP_ERR_MISSING_KEY},
                 {DCP_STRICT_RAISE_ALL, DCP_ERR_MISSING_KEY},
                 {DCP_STRICT_PARTIAL, DCP_OK}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rank ranks[RANKS_MAX];
        dcp_distribute_state_options options = {.broadcast_from_rank0 = true,
                                                .strictness = cases[i].strictness};
        ranks_run(ranks, 3, "", strict_body, &options);
        for (int r = 0; r < 3; r++)
            assert_int_equal(ranks[r].status, cases[i].status);
    }
}

static void test_what_does_not_fit(void **state)
{
    (void)state;
    float half[2] = {0.5F, 1.5F};
    double wide[2] = {0, 0};
    dcp_tensor from = {.dtype = DCP_F32, .ndim = 1, .global_shape = {2}, .data = half},
               to = {.dtype = DCP_F64, .ndim = 1, .global_shape = {2}, .data = wide},
               part = {.dtype = DCP_F32,
                       .ndim = 1,
                       .sharded = true,
                       .global_shape = {2},
                       .sizes = {1},
                       .data = half};
    dcp_distribute_state_options options = {0};
    dcp_state *source = dcp_state_new(), *root = dcp_state_new(), *partial = dcp_state_new();
    dcp_state_tensor(source, "x", &from);
    dcp_state_tensor(root, "x", &to);
    dcp_state_tensor(partial, "x", &part);
    must_fail(dcp_distribute_state(root, source, &options, NULL), DCP_ERR_DTYPE, "float32");
    options.convert = true;
    must(dcp_distribute_state(root, source, &options, NULL));
    assert_true(wide[1] == 1.5);
    must_fail(dcp_distribute_state(root, partial, &options, NULL), DCP_ERR_COVERAGE, "x");
    must_fail(dcp_distribute_state(root, NULL, &options, NULL), DCP_ERR_ARGUMENT, "NULL");
    options.timeout_seconds = -1;
    must_fail(dcp_distribute_state(root, source, &options, NULL), DCP_ERR_ARGUMENT, "timeout");
    options = (dcp_distribute_state_options){.strictness = (dcp_strictness)7};
    must_fail(dcp_distribute_state(root, source, &options, NULL), DCP_ERR_ARGUMENT, "strictness");
    dcp_state_free(partial);
    dcp_state_free(source);
    dcp_state_free(root);
}

static void test_devices(void **state)
{
    (void)state;
    static const int32_t values[6] = {1, 2, 3, 4, 5, 6}, zeros[6] = {0};
    void *memory = stand_in_new(1, values, sizeof values),
         *other = stand_in_new(0, zeros, sizeof zeros);
    dcp_tensor tensor = {.dtype = DCP_I32,
                         .ndim = 1,
                         .global_shape = {6},
                         .device = stand_in(1),
                         .data = memory},
               found;
    dcp_state *source = dcp_state_new(), *root = dcp_state_new();
    dcp_state_tensor(source, "x", &tensor);
    tensor.device = stand_in(0);
    tensor.data = other;
    dcp_state_tensor(root, "x", &tensor);
    for (int way = 0; way < 4; way++) {
        dcp_gather_state_options options = {.full_state_dict = way & 1, .cpu_offload = way & 2};
        dcp_state *into = dcp_state_new();
        must(dcp_gather_state(source, &options, into));
        must(dcp_state_chunk(dcp_state_find(into, "x"), 0, &found));
        assert_int_equal(found.device.operations == NULL, way >= 2);
        assert_int_equal(found.data == memory, way == 0);
        assert_memory_equal(way >= 2 ? found.data : stand_in_bytes(found.data), values,
                            sizeof values);
        dcp_state_free(into);
    }
    for (int broadcast = 0; broadcast < 2; broadcast++) {
        dcp_distribute_state_options options = {.broadcast_from_rank0 = broadcast};
        memset(stand_in_bytes(other), 0, sizeof values);
        must(dcp_distribute_state(root, source, &options, NULL));
        assert_memory_equal(stand_in_bytes(other), values, sizeof values);
        stand_in_reset(1, 0);
        must_fail(dcp_distribute_state(root, source, &options, NULL), DCP_ERR_DEVICE, "x");
        stand_in_reset(0, 0);
    }
    dcp_state_free(root);
    dcp_state_free(source);
    stand_in_free(other);
    stand_in_free(memory);
}

enum { DEVICE_ROWS = 30011 };

/* Ranks hold rows of a tensor of several windows, each on its own device. */
static dcp_tensor rows_on_device(struct rank *self, bool whole, bool filled)
{
    dcp_mesh mesh = {.ndim = 1, .shape = {self->size}, .rank = self->rank};
    dcp_placement placement = whole ? dcp_replicate() : dcp_shard(0);
    dcp_tensor tensor = {.dtype = DCP_I32, .ndim = 2, .global_shape = {DEVICE_ROWS, 100}};
    must(dcp_mesh_shard(&mesh, &tensor, &placement));
    size_t count = (size_t)tensor.sizes[0] * 100;
    tensor.device = stand_in(self->rank);
    tensor.data = stand_in_new(self->rank, NULL, count * sizeof(int32_t));
    int32_t *elements = (int32_t *)(void *)stand_in_bytes(tensor.data);
    for (size_t i = 0; i < count; i++)
        elements[i] = filled ? (int32_t)(tensor.offsets[0] * 100 + (int64_t)i) : -1;
    return tensor;
}

static dcp_status check_rows(const dcp_tensor *tensor)
{
    const int32_t *elements = device_is_host(&tensor->device)
                                  ? tensor->data
                                  : (int32_t *)(void *)stand_in_bytes(tensor->data);
    for (int64_t i = 0; i < tensor->sizes[0] * 100; i++)
        if (elements[i] != tensor->offsets[0] * 100 + i)
            return dcp_error_set(DCP_ERR_INTERNAL, "element %d is %d", (int)i, elements[i]);
    return DCP_OK;
}

static dcp_status get_rows(struct rank *self)
{
    const struct job *job = self->context;
    dcp_gather_state_options options = job->get;
    dcp_tensor tensor = rows_on_device(self, false, true), found;
    dcp_state *root = dcp_state_new(), *into = dcp_state_new();
    options.group = self->group;
    options.timeout_seconds = 30;
    dcp_state_tensor(root, "x", &tensor);
    dcp_status status = dcp_gather_state(root, &options, into);
    if (status == DCP_OK && (!options.cpu_offload || self->rank == 0))
        status = dcp_state_chunk(dcp_state_find(into, "x"), 0, &found);
    if (status == DCP_OK && (!options.cpu_offload || self->rank == 0))
        status =
            found.sizes[0] == DEVICE_ROWS && device_is_host(&found.device) == options.cpu_offload
                ? check_rows(&found)
                : DCP_ERR_INTERNAL;
    dcp_state_free(into);
    dcp_state_free(root);
    stand_in_free(tensor.data);
    return status;
}

static dcp_status set_rows(struct rank *self)
{
    const dcp_distribute_state_options options = {
        .group = self->group, .timeout_seconds = 30, .broadcast_from_rank0 = true};
    dcp_tensor whole = rows_on_device(self, true, true), mine = rows_on_device(self, false, false);
    dcp_state *source = dcp_state_new(), *root = dcp_state_new();
    dcp_state_tensor(source, "x", &whole);
    dcp_state_tensor(root, "x", &mine);
    dcp_status status = dcp_distribute_state(root, self->rank == 0 ? source : NULL, &options, NULL);
    if (status == DCP_OK)
        status = check_rows(&mine);
    dcp_state_free(root);
    dcp_state_free(source);
    stand_in_free(mine.data);
    stand_in_free(whole.data);
    return status;
}

/* From device to device, through windows; a copy that fails is everyone's failure. */
static void test_devices_of_ranks(void **state)
{
    (void)state;
    struct rank ranks[RANKS_MAX];
    for (int way = 0; way < 3; way++) {
        struct job job = {.get = {.full_state_dict = true, .cpu_offload = way == 1}};
        rank_body body = way < 2 ? get_rows : set_rows;
        ranks_must(3, "", body, &job);
        for (long n = 1; n <= 3; n++) {
            stand_in_reset(n, 0);
            ranks_run(ranks, 3, "", body, &job);
            stand_in_reset(0, 0);
            for (int r = 0; r < 3; r++) {
                assert_int_equal(ranks[r].status, DCP_ERR_DEVICE);
                assert_non_null(strstr(ranks[r].message, "x: "));
                assert_string_equal(ranks[r].message, ranks[0].message);
            }
        }
    }
}

static void test_every_failed_allocation(void **state)
{
    (void)state;
    struct memory *memory = calloc(1, sizeof *memory), *other = calloc(1, sizeof *other);
    dcp_state *source = dcp_state_new();
    build(source, memory, 0, 1, true);
    for (int way = 0; way < 4; way++) {
        dcp_status status = DCP_ERR_NO_MEMORY;
        for (long n = 1; status != DCP_OK; n++) {
            dcp_gather_state_options get = {.full_state_dict = way == 1};
            dcp_distribute_state_options set = {.broadcast_from_rank0 = way == 3};
            dcp_state *into = dcp_state_new();
            if (way >= 2)
                build(into, other, 0, 1, false);
            failing_allocator_install(n, false);
            status = way < 2 ? dcp_gather_state(source, &get, into)
                             : dcp_distribute_state(into, source, &set, NULL);
            bool reached = failing_allocator_reached();
            failing_allocator_remove();
            assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
            dcp_state_free(into);
        }
    }
    dcp_state_free(source);
    free(other);
    free(memory);
}

struct member {
    dcp_group *group;
    dcp_state *root;
    dcp_state *other; /* from which, or into which */
    int way;
    struct memory memory;
    struct memory whole;
    dcp_status status;
    pthread_t thread;
};

enum { GET_ALL, GET_AT_ONE, SET, WAYS };

static void *run_member(void *argument)
{
    struct member *member = argument;
    const dcp_gather_state_options get = {.group = member->group,
                                          .timeout_seconds = 30,
                                          .full_state_dict = true,
                                          .cpu_offload = member->way == GET_AT_ONE};
    const dcp_distribute_state_options set = {
        .group = member->group, .timeout_seconds = 30, .broadcast_from_rank0 = true};
    member->status = member->way == SET
                         ? dcp_distribute_state(member->root, member->other, &set, NULL)
                         : dcp_gather_state(member->root, &get, member->other);
    return NULL;
}

/* On two ranks, of which the n-th allocation by either fails; *reached: there was one. */
static dcp_status run_pair(struct member members[2], int way, long n, bool *reached)
{
    dcp_group *groups[2];
    must(dcp_group_new_threads(2, groups));
    for (int r = 0; r < 2; r++) {
        members[r].way = way;
        members[r].group = groups[r];
        members[r].root = dcp_state_new();
        members[r].other = dcp_state_new();
        build(members[r].root, &members[r].memory, r, 2, way != SET);
        if (way == SET)
            build(members[r].other, &members[r].whole, 0, 1, true);
    }
    failing_allocator_install(n, false);
    for (int r = 0; r < 2; r++)
        assert_int_equal(pthread_create(&members[r].thread, NULL, run_member, &members[r]), 0);
    for (int r = 0; r < 2; r++)
        assert_int_equal(pthread_join(members[r].thread, NULL), 0);
    *reached = failing_allocator_reached();
    failing_allocator_remove();
    for (int r = 0; r < 2; r++) {
        dcp_state_free(members[r].root);
        dcp_state_free(members[r].other);
        dcp_group_free(groups[r]);
    }
    assert_int_equal(members[0].status, members[1].status);
    return members[0].status;
}

/* What succeeds all the same did without a thread. */
static void test_every_failed_allocation_of_a_pair(void **state)
{
    (void)state;
    struct member *members = calloc(2, sizeof *members);
    for (int way = 0; way < WAYS; way++) {
        long failures = 0;
        bool reached = true;
        for (long n = 1; reached; n++) {
            dcp_status status = run_pair(members, way, n, &reached);
            assert_true(status == DCP_OK || (reached && status == DCP_ERR_NO_MEMORY));
            failures += status != DCP_OK;
        }
        assert_true(failures > 50);
    }
    free(members);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gathers_whole_tensors),
        cmocka_unit_test(test_gathers_names_of_some_ranks),
        cmocka_unit_test(test_copies_without_gathering),
        cmocka_unit_test(test_sets_from_whole_states),
        cmocka_unit_test(test_bytes_go_straight),
        cmocka_unit_test(test_a_failing_rank_is_everyones),
        cmocka_unit_test(test_strictness),
        cmocka_unit_test(test_what_does_not_fit),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_devices_of_ranks),
        cmocka_unit_test(test_every_failed_allocation),
        cmocka_unit_test(test_every_failed_allocation_of_a_pair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
