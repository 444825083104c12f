/* SPDX-License-Identifier: BSD-3-Clause */
/* Fp32 weights of Megatron-Core's dp_reshardable optimizer, which are found in its buckets by their
 * values and order: with tensor parallelism, SwiGLU, rounded values that are equal, weights that
 * are frozen, and where they cannot be told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "convert/convert_scene.h"

enum { HIDDEN = 24, FEED = 40, WORDS = 96, LAYERS = 3, BUCKET_MAX = 1 << 16, CHUNKS_MAX = 64 };

enum kind {
    RANDOM,
    ONES, /* and a little more, which bf16 does not show */
    ZEROS /* likewise */
};

/* A parameter of each layer, or of none. axis: that tensor parallelism divides; -1: each rank has
 * all. */
static const struct parameter {
    const char *name;
    bool stacked;
    int64_t rows, columns; /* 0: of one dimension */
    int axis;
    bool gated;
    enum kind kind;
} parameters[] = {
    {"embedding.word_embeddings.weight", false, WORDS, HIDDEN, 0, false, RANDOM},
    {"decoder.layers.self_attention.linear_qkv.layer_norm_weight", true, HIDDEN, 0, -1, false,
     ONES},
    {"decoder.layers.self_attention.linear_proj.weight", true, HIDDEN, HIDDEN, 1, false, RANDOM},
    {"decoder.layers.self_attention.linear_proj.bias", true, HIDDEN, 0, -1, false, ZEROS},
    {"decoder.layers.mlp.linear_fc1.layer_norm_bias", true, HIDDEN, 0, -1, false, ZEROS},
    {"decoder.layers.mlp.linear_fc1.weight", true, 2 * FEED, HIDDEN, 0, true, RANDOM},
    {"decoder.layers.mlp.linear_fc2.weight", true, HIDDEN, FEED, 1, false, RANDOM},
    {"decoder.final_layernorm.weight", false, HIDDEN, 0, -1, false, ONES},
};
enum { PARAMETERS = sizeof parameters / sizeof *parameters, FINAL = PARAMETERS - 1, FC1 = 5 };

/* What a checkpoint is made of. */
struct scene {
    const char *chain; /* in front of the optimizer's names */
    int tp;
    int64_t cut; /* elements of a data-parallel rank in a bucket */
    dcp_dtype dtype;
    bool frozen;                /* the last norm */
    bool swapped;               /* in the buckets two layers' weights are not in their order */
    bool zstd;                  /* streams are compressed */
    bool lost;                  /* the embedding is of other values than in the buckets */
    float *masters[PARAMETERS]; /* whole tensors */
};

static int64_t volume_of(const struct parameter *parameter)
{
    int64_t one = parameter->rows * (parameter->columns ? parameter->columns : 1);
    return parameter->stacked ? LAYERS * one : one;
}

static uint16_t round_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void make_masters(struct scene *scene)
{
    uint32_t random = 4711;
    for (int p = 0; p < PARAMETERS; p++) {
        int64_t count = volume_of(&parameters[p]);
        scene->masters[p] = malloc((size_t)count * sizeof(float));
        assert_non_null(scene->masters[p]);
        for (int64_t i = 0; i < count; i++) {
            random = random * 1664525u + 1013904223u;
            float unit = (float)(random >> 8) / (float)(1 << 24);
            scene->masters[p][i] = parameters[p].kind == ONES    ? 1 + unit / 1000
                                   : parameters[p].kind == ZEROS ? 0
                                                                 : unit - 0.5f;
            if (parameters[p].kind == ZEROS) /* denormal in bf16 as well: all are rounded to 0 */
                memcpy(&scene->masters[p][i], &(uint32_t){random >> 18}, sizeof(float));
        }
    }
}

/* The element of the whole tensor that rank `tp` has at a place of its part. */
static int64_t whole_index(const struct scene *scene, const struct parameter *parameter,
                           int64_t layer, int rank, int64_t at)
{
    int64_t columns = parameter->columns ? parameter->columns : 1;
    int64_t rows = parameter->rows, row, column, width = columns;
    if (parameter->axis == 1)
        width /= scene->tp;
    row = at / width;
    column = at % width + (parameter->axis == 1 ? rank * width : 0);
    if (parameter->axis == 0 && parameter->gated) {
        int64_t half = rows / 2, part = half / scene->tp;
        row = row < part ? rank * part + row : half + rank * part + row - part;
    } else if (parameter->axis == 0) {
        row += rank * (rows / scene->tp);
    }
    return layer * rows * columns + row * columns + column;
}

static int64_t part_volume(const struct scene *scene, const struct parameter *parameter)
{
    int64_t one = parameter->rows * (parameter->columns ? parameter->columns : 1);
    return parameter->axis < 0 ? one : one / scene->tp;
}

/* ---- the buckets ---- */

struct filled {
    float *elements;
    int64_t length;
    int64_t borders[256];
    size_t count;
};

static void place(const struct scene *scene, int rank, int p, int64_t layer, struct filled *bucket)
{
    const struct parameter *parameter = &parameters[p];
    int64_t volume = part_volume(scene, parameter), start = (bucket->length + 63) / 64 * 64;
    assert_true(start + volume <= BUCKET_MAX && bucket->count + 2 < 256);
    bucket->borders[bucket->count++] = start;
    for (int64_t i = 0; i < volume; i++)
        bucket->elements[start + i] =
            scene->masters[p][whole_index(scene, parameter, layer, rank, i)];
    bucket->length = start + volume;
    bucket->borders[bucket->count++] = bucket->length;
}

/* Reverse order of definition. */
static void fill(const struct scene *scene, int rank, struct filled *bucket)
{
    for (int64_t i = 0; i < BUCKET_MAX; i++)
        bucket->elements[i] = 77.7f; /* in the gaps */
    if (!scene->frozen)
        place(scene, rank, FINAL, 0, bucket);
    for (int64_t layer = LAYERS - 1; layer >= 0; layer--)
        for (int p = FINAL - 1; p > 0; p--)
            place(scene, rank, p,
                  scene->swapped && layer < 2 && parameters[p].kind == RANDOM ? 1 - layer : layer,
                  bucket);
    place(scene, rank, 0, 0, bucket);
    for (int64_t at = 0; at < bucket->length; at += scene->cut)
        bucket->borders[bucket->count++] = at;
    bucket->borders[bucket->count++] = bucket->length;
}

static int compare(const void *one, const void *other)
{
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

static void add_chunk(dcp_state *root, const char *name, const dcp_tensor *chunk)
{
    dcp_state *node = (dcp_state *)(uintptr_t)dcp_state_find(root, name);
    if (node)
        must(dcp_state_add_chunk(node, chunk));
    else
        assert_non_null(dcp_state_tensor(root, name, chunk));
}

static void add_bucket(const struct scene *scene, int rank, dcp_state *root, float *elements)
{
    struct filled bucket = {.elements = elements};
    char name[160];
    snprintf(name, sizeof name,
             "%soptimizer.distributed.dp_group_idx_%d.gbuf_idx_0.dtype_(torch.bfloat16, "
             "torch.bfloat16).bucket_idx_0.param",
             scene->chain, rank);
    fill(scene, rank, &bucket);
    qsort(bucket.borders, bucket.count, sizeof *bucket.borders, compare);
    for (size_t i = 0; i + 1 < bucket.count; i++) {
        int64_t from = bucket.borders[i], end = bucket.borders[i + 1];
        dcp_tensor chunk = {.dtype = DCP_F32,
                            .ndim = 1,
                            .global_shape = {bucket.length},
                            .sharded = true,
                            .offsets = {from},
                            .sizes = {end - from},
                            .data = elements + from};
        if (end > from)
            add_chunk(root, name, &chunk);
    }
}

/* ---- the model ---- */

/* The rounded elements of a box of rows and columns of a layer. */
static void add_box(const struct scene *scene, int p, dcp_state *root, int64_t layer,
                    const int64_t box[4], void *out)
{
    const struct parameter *parameter = &parameters[p];
    int64_t columns = parameter->columns ? parameter->columns : 1, count = 0;
    int32_t skip = parameter->stacked ? 1 : 0;
    for (int64_t row = box[0]; row < box[0] + box[1]; row++)
        for (int64_t column = box[2]; column < box[2] + box[3]; column++) {
            float value = scene->masters[p][(layer * parameter->rows + row) * columns + column];
            value += scene->lost && p == 0 ? 1 : 0;
            if (scene->dtype == DCP_F32)
                ((float *)out)[count++] = value;
            else
                ((uint16_t *)out)[count++] = round_bf16(value);
        }
    dcp_tensor chunk = {.dtype = scene->dtype, .ndim = 1 + skip + (parameter->columns ? 1 : 0)};
    const int64_t shape[] = {LAYERS, parameter->rows, parameter->columns};
    const int64_t offsets[] = {layer, box[0], box[2]}, sizes[] = {1, box[1], box[3]};
    for (int32_t d = 0; d < chunk.ndim; d++) {
        chunk.global_shape[d] = shape[d + 1 - skip];
        chunk.offsets[d] = offsets[d + 1 - skip];
        chunk.sizes[d] = sizes[d + 1 - skip];
    }
    chunk.sharded = true;
    chunk.data = out;
    add_chunk(root, parameter->name, &chunk);
}

static unsigned char *add_parameter(const struct scene *scene, int p, dcp_state *root,
                                    unsigned char *out)
{
    const struct parameter *parameter = &parameters[p];
    int parts = parameter->axis < 0 ? 1 : parameter->gated ? 2 * scene->tp : scene->tp;
    int64_t columns = parameter->columns ? parameter->columns : 1;
    for (int64_t layer = 0; layer < (parameter->stacked ? LAYERS : 1); layer++)
        for (int part = 0; part < parts; part++) {
            int64_t rows = parameter->rows, wide = columns;
            *(parameter->axis == 1 ? &wide : &rows) /= parts;
            const int64_t box[] = {parameter->axis == 1 ? 0 : part * rows, rows,
                                   parameter->axis == 1 ? part * wide : 0, wide};
            add_box(scene, p, root, layer, box, out);
            out += rows * wide * (int64_t)sizeof(float);
        }
    return out;
}

static void save(void **state, const struct scene *scene, const char *name)
{
    const char *path = path_in(state, name);
    dcp_state *root = dcp_state_new();
    unsigned char *room = malloc(1 << 20), *next = room;
    float *elements = malloc((size_t)scene->tp * BUCKET_MAX * sizeof *elements);
    assert_non_null(room);
    assert_non_null(elements);
    for (int p = 0; p < PARAMETERS; p++)
        next = add_parameter(scene, p, root, next);
    for (int rank = 0; rank < scene->tp; rank++)
        add_bucket(scene, rank, root, elements + (size_t)rank * BUCKET_MAX);
    must(dcp_save(root, path,
                  &(dcp_save_options){.compression =
                                          scene->zstd ? DCP_COMPRESSION_ZSTD : DCP_COMPRESSION_NONE,
                                      .skip_sync = true}));
    scene_write(path, "metadata.json", "{\"sharded_backend\": \"torch_dist\"}");
    dcp_state_free(root);
    free(room);
    free(elements);
}

static void expect_values(const struct scene *scene, const char *path, dcp_take take, bool unstack)
{
    dcp_checkpoint *checkpoint;
    must(dcp_checkpoint_open(path, &(dcp_open_options){.take = take}, &checkpoint));
    for (int p = 0; p < PARAMETERS; p++) {
        int64_t layers = unstack && parameters[p].stacked ? LAYERS : 1,
                each = volume_of(&parameters[p]) / layers;
        for (int64_t layer = 0; layer < layers; layer++) {
            char key[160];
            dcp_entry entry;
            size_t index;
            if (layers == 1)
                snprintf(key, sizeof key, "%s", parameters[p].name);
            else
                snprintf(key, sizeof key, "decoder.layers.%d.%s", (int)layer,
                         parameters[p].name + strlen("decoder.layers."));
            must(dcp_checkpoint_find(checkpoint, key, &index));
            must(dcp_checkpoint_entry(checkpoint, index, &entry));
            bool frozen = p == FINAL && scene->frozen;
            /* In place tensors keep the dtype that they have. */
            assert_int_equal(entry.dtype,
                             frozen && take != DCP_TAKE_MODEL ? scene->dtype : DCP_F32);
            entry.dtype = DCP_F32;
            entry.bytes = (uint64_t)each * sizeof(float);
            float *found = scene_elements(checkpoint, index, &entry);
            for (int64_t i = 0; i < each; i++) {
                float expected = scene->masters[p][layer * each + i];
                assert_true(found[i] == (frozen ? 1.0f : expected));
            }
            free(found);
        }
    }
    dcp_checkpoint_close(checkpoint);
}

static void expect_masters(void **state, const struct scene *scene, const char *name, bool unstack)
{
    const dcp_convert_options options = {
        .take = DCP_TAKE_MASTERS, .unstack = unstack, .skip_sync = true};
    const char *to = path_in(state, unstack ? "layers.safetensors" : "masters.safetensors");
    unlink(to);
    must(dcp_convert(path_in(state, name), to, &options, NULL));
    expect_values(scene, to, DCP_TAKE_MODEL, unstack);
}

/* In the checkpoint itself, whose footers have other names for what is read. */
static void expect_in_place(void **state, const struct scene *scene, const char *name)
{
    const dcp_open_options options = {.take = DCP_TAKE_MASTERS};
    const char *path = path_in(state, name);
    const char *converted = path_in(state, "masters.safetensors");
    uint64_t faults;
    expect_values(scene, path, DCP_TAKE_MASTERS, false);
    for (int32_t dim = 0; dim < 3; dim++)
        scene_ranks_load(
            3, path, converted,
            &(dcp_load_options){.take = DCP_TAKE_MASTERS,
                                .reading = dim == 1 ? DCP_READING_DIRECT : DCP_READING_COOPERATIVE},
            dim);
    must(dcp_verify(path, &options, NULL, NULL, &faults));
    assert_int_equal(faults, 0);
}

static void free_masters(struct scene *scene)
{
    for (int p = 0; p < PARAMETERS; p++)
        free(scene->masters[p]);
}

static void weights_are_found(void **state)
{
    static const struct scene scenes[] = {
        {.chain = "", .tp = 1, .cut = BUCKET_MAX, .dtype = DCP_BF16},
        {.chain = "", .tp = 1, .cut = 640, .dtype = DCP_BF16},
        {.chain = "", .tp = 2, .cut = 1024, .dtype = DCP_BF16},
        {.chain = "chained_0.", .tp = 4, .cut = 333, .dtype = DCP_BF16},
        {.chain = "", .tp = 2, .cut = 512, .dtype = DCP_BF16, .frozen = true},
        {.chain = "", .tp = 2, .cut = 512, .dtype = DCP_F32},
        {.chain = "", .tp = 2, .cut = 333, .dtype = DCP_BF16, .zstd = DCP_HAVE_ZSTD},
    };
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        struct scene scene = scenes[i];
        char name[16];
        snprintf(name, sizeof name, "run%zu", i);
        make_masters(&scene);
        save(state, &scene, name);
        expect_masters(state, &scene, name, false);
        expect_masters(state, &scene, name, true);
        expect_in_place(state, &scene, name);
        free_masters(&scene);
    }
}

static void what_cannot_be_told_is_refused(void **state)
{
    struct scene swapped = {.chain = "", .tp = 1, .cut = 640, .dtype = DCP_BF16, .swapped = true};
    struct scene lost = {.chain = "", .tp = 2, .cut = 640, .dtype = DCP_BF16, .lost = true};
    const dcp_convert_options options = {.take = DCP_TAKE_MASTERS};
    make_masters(&swapped);
    save(state, &swapped, "swapped");
    must_fail(dcp_convert(path_in(state, "swapped"), path_in(state, "a.pt"), &options, NULL),
              DCP_ERR_UNSUPPORTED, "norm");
    make_masters(&lost);
    save(state, &lost, "lost");
    must_fail(dcp_convert(path_in(state, "lost"), path_in(state, "b.pt"), &options, NULL),
              DCP_ERR_UNSUPPORTED, "embedding.word_embeddings.weight");
    dcp_checkpoint *checkpoint;
    must_fail(dcp_checkpoint_open(path_in(state, "lost"),
                                  &(dcp_open_options){.take = DCP_TAKE_MASTERS}, &checkpoint),
              DCP_ERR_UNSUPPORTED, "embedding.word_embeddings.weight");
    free_masters(&swapped);
    free_masters(&lost);
}

/* names: every other one is a tensor's. */
static void expect_two(const char *path, dcp_take take, const char *const *names,
                       const float *masters)
{
    dcp_checkpoint *checkpoint;
    must(dcp_checkpoint_open(path, &(dcp_open_options){.take = take}, &checkpoint));
    assert_int_equal(dcp_checkpoint_count(checkpoint), 2);
    for (size_t i = 0; i < 2; i++) {
        dcp_entry entry;
        size_t index;
        must(dcp_checkpoint_find(checkpoint, names[2 * i], &index));
        must(dcp_checkpoint_entry(checkpoint, index, &entry));
        assert_int_equal(entry.dtype, DCP_F32);
        float *found = scene_elements(checkpoint, index, &entry);
        assert_true(*found == masters[i]);
        free(found);
    }
    dcp_checkpoint_close(checkpoint);
}

/* Of several optimizers, as there are with experts, each has names of its own. */
static void optimizers_in_a_chain_are_found(void **state)
{
    static const char *const names[] = {"a.weight", "chained_0.optimizer.state.fp32_param.a.weight",
                                        "b.weight", "chained_1.optimizer.state.param.b.weight"};
    static const float masters[] = {1.001f, -2.003f};
    uint16_t weights[] = {round_bf16(masters[0]), round_bf16(masters[1])};
    const char *path = path_in(state, "run"), *to = path_in(state, "masters.safetensors");
    dcp_state *root = dcp_state_new();
    for (int i = 0; i < 4; i++) {
        dcp_tensor tensor = {.dtype = i % 2 ? DCP_F32 : DCP_BF16, .ndim = 1, .global_shape = {1}};
        tensor.data = i % 2 ? (void *)(uintptr_t)&masters[i / 2] : &weights[i / 2];
        assert_non_null(dcp_state_tensor(root, names[i], &tensor));
    }
    must(dcp_save(root, path, &(dcp_save_options){.skip_sync = true}));
    dcp_state_free(root);
    scene_write(path, "metadata.json", "{\"sharded_backend\": \"torch_dist\"}");
    must(dcp_convert(path, to, &(dcp_convert_options){.take = DCP_TAKE_MASTERS}, NULL));
    expect_two(to, DCP_TAKE_MODEL, names, masters);
    expect_two(path, DCP_TAKE_MASTERS, names, masters);
}

static void every_allocation_may_fail(void **state)
{
    struct scene scene = {.chain = "", .tp = 2, .cut = 640, .dtype = DCP_BF16};
    const dcp_convert_options options = {
        .take = DCP_TAKE_MASTERS, .thread_count = 1, .skip_sync = true};
    make_masters(&scene);
    save(state, &scene, "run");
    scene_allocations_fail(state, path_in(state, "run"), "safetensors", &options,
                           (struct scene_trials){7, 100, 97});
    free_masters(&scene);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)
    const struct CMUnitTest tests[] = {
        TEST(weights_are_found),
        TEST(what_cannot_be_told_is_refused),
        TEST(optimizers_in_a_chain_are_found),
        TEST(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
