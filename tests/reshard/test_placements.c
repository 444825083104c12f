/* SPDX-License-Identifier: BSD-3-Clause */
/* Every placement over every mesh of one and two dimensions loads as every other, and so do boxes
 * that follow no mesh. Elements are their own positions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"

enum { LAYOUTS_MAX = 64, SHAPES = 3, BOXES = 24 };

/* The first is PyTorch's own; the last has fewer rows than most meshes have ranks. */
static const int64_t shapes[SHAPES][2] = {{4, 4}, {13, 7}, {3, 9}};

/* How all tensors lie: over a mesh, or in boxes that are dealt out in turn. */
struct layout {
    char name[64];
    dcp_mesh mesh;
    dcp_placement placements[2];
    int ranks;
    bool boxes;
    uint32_t seed;
};

struct job {
    const struct layout *layout;
    bool saves;
    dcp_reading reading;
};

static void add_placements(struct layout *layouts, int *count, int first, int second)
{
    /* Replicate; rows; columns; rows and columns in the order that FSDP2 with TP has them. */
    for (int kind = 0; kind < (second > 0 ? 11 : 3); kind++) {
        struct layout *layout = &layouts[(*count)++];
        assert_true(*count <= LAYOUTS_MAX);
        *layout = (struct layout){.mesh = {.ndim = second > 0 ? 2 : 1, .shape = {first, second}},
                                  .ranks = first * (second > 0 ? second : 1)};
        for (int d = 0; d < 2; d++) {
            int what = d == 0 ? kind % 3 : kind / 3;
            layout->placements[d] = what == 0 ? dcp_replicate() : dcp_shard(what - 1);
        }
        if (kind >= 9) {
            layout->placements[0] = dcp_strided_shard(kind - 9, second);
            layout->placements[1] = dcp_shard(kind - 9);
        }
        snprintf(layout->name, sizeof layout->name, "mesh %dx%d, placements %d", first, second,
                 kind);
    }
}

static int make_layouts(struct layout layouts[LAYOUTS_MAX])
{
    static const int meshes[][2] = {{1, 0}, {2, 0}, {3, 0}, {4, 0}, {8, 0},
                                    {2, 2}, {2, 3}, {4, 2}, {2, 4}};
    int count = 0;
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
        add_placements(layouts, &count, meshes[m][0], meshes[m][1]);
    return count;
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525U + 1013904223U;
    return *state >> 8;
}

struct area {
    int64_t offsets[2], sizes[2];
};

/* Cuts the shape into boxes, again and again one of them in two. */
static int cut(const int64_t shape[2], uint32_t seed, struct area areas[BOXES])
{
    int count = 1;
    areas[0] = (struct area){{0, 0}, {shape[0], shape[1]}};
    for (int tries = 0; tries < 40 && count < BOXES; tries++) {
        struct area *area = &areas[next_random(&seed) % (uint32_t)count];
        int d = (int)(next_random(&seed) % 2);
        if (area->sizes[d] < 2)
            continue;
        int64_t size = 1 + next_random(&seed) % (area->sizes[d] - 1);
        areas[count] = *area;
        areas[count].offsets[d] += size;
        areas[count++].sizes[d] -= size;
        area->sizes[d] = size;
    }
    return count;
}

static int32_t value_of(const dcp_tensor *chunk, int64_t index)
{
    int64_t row = chunk->offsets[0] + index / chunk->sizes[1],
            column = chunk->offsets[1] + index % chunk->sizes[1];
    return (int32_t)(1 + row * chunk->global_shape[1] + column);
}

/* Memory of all chunks of a rank, one after another; the state has each where it lies. */
struct memory {
    dcp_tensor chunks[SHAPES * BOXES];
    int32_t elements[SHAPES * 128];
    int64_t used;
    int count;
};

static void add_chunk(dcp_state *root, dcp_state **node, const char *name, struct memory *memory,
                      dcp_tensor chunk, bool filled)
{
    int64_t volume = chunk.sizes[0] * chunk.sizes[1];
    int32_t *data = memory->elements + memory->used;
    memory->used += volume;
    assert_true(memory->used <= (int64_t)(sizeof memory->elements / sizeof *memory->elements));
    for (int64_t i = 0; i < volume; i++)
        data[i] = filled ? value_of(&chunk, i) : -1;
    chunk.data = data;
    memory->chunks[memory->count++] = chunk;
    if (*node)
        dcp_state_add_chunk(*node, &chunk);
    else
        *node = dcp_state_tensor(root, name, &chunk);
}

static dcp_status build(dcp_state *root, const struct rank *self, struct memory *memory)
{
    const struct job *job = self->context;
    const struct layout *layout = job->layout;
    for (int s = 0; s < SHAPES; s++) {
        dcp_tensor chunk = {.dtype = DCP_I32, .ndim = 2, .sharded = true};
        dcp_state *node = NULL;
        char name[16];
        snprintf(name, sizeof name, "t%d", s);
        memcpy(chunk.global_shape, shapes[s], sizeof shapes[s]);
        if (layout->boxes) {
            struct area areas[BOXES];
            int count = cut(shapes[s], layout->seed + (uint32_t)s, areas);
            for (int a = self->rank; a < count; a += self->size) {
                memcpy(chunk.offsets, areas[a].offsets, sizeof areas[a].offsets);
                memcpy(chunk.sizes, areas[a].sizes, sizeof areas[a].sizes);
                add_chunk(root, &node, name, memory, chunk, job->saves);
            }
        } else {
            dcp_mesh mesh = layout->mesh;
            mesh.rank = self->rank;
            must(dcp_mesh_shard(&mesh, &chunk, layout->placements));
            add_chunk(root, &node, name, memory, chunk, job->saves);
        }
    }
    return dcp_state_status(root);
}

static dcp_status body(struct rank *self)
{
    const struct job *job = self->context;
    dcp_save_options save = {.group = self->group, .timeout_seconds = 60};
    dcp_load_options load = {.group = self->group, .timeout_seconds = 60, .reading = job->reading};
    struct memory *memory = calloc(1, sizeof *memory);
    dcp_state *root = dcp_state_new();
    dcp_status status = build(root, self, memory);
    if (status == DCP_OK)
        status = job->saves ? dcp_save(root, self->path, &save)
                            : dcp_load(root, self->path, &load, NULL);
    for (int c = 0; c < memory->count && status == DCP_OK; c++) {
        const dcp_tensor *chunk = &memory->chunks[c];
        const int32_t *data = chunk->data;
        for (int64_t i = 0; i < chunk->sizes[0] * chunk->sizes[1]; i++)
            if (data[i] != value_of(chunk, i))
                status = dcp_error_set(DCP_ERR_INTERNAL, "%s: chunk %d, element %d is %d",
                                       job->layout->name, c, (int)i, data[i]);
    }
    dcp_state_free(root);
    free(memory);
    return status;
}

static void save(const struct layout *layout, const char *path)
{
    struct job job = {.layout = layout, .saves = true};
    ranks_must(layout->ranks, path, body, &job);
}

/* Each rank reading by itself, and ranks reading for each other. */
static void load(const struct layout *layout, const char *path)
{
    struct job job = {.layout = layout, .reading = DCP_READING_DIRECT};
    ranks_must(layout->ranks, path, body, &job);
    job.reading = DCP_READING_COOPERATIVE;
    ranks_must(layout->ranks, path, body, &job);
}

/* The argument of the program: loads as each so many-th layout alone, another one first each time.
 */
static int stride = 1;

static void test_all_pairs(void **state)
{
    static struct layout layouts[LAYOUTS_MAX];
    int count = make_layouts(layouts);
    for (int from = 0; from < count; from++) {
        const char *path = path_in(state, layouts[from].name);
        save(&layouts[from], path);
        for (int to = from % stride; to < count; to += stride)
            load(&layouts[to], path);
    }
}

static struct layout boxes(uint32_t seed, int ranks)
{
    struct layout layout = {.boxes = true, .seed = seed, .ranks = ranks};
    snprintf(layout.name, sizeof layout.name, "boxes of seed %u over %d", seed, ranks);
    return layout;
}

static void test_boxes(void **state)
{
    static struct layout layouts[LAYOUTS_MAX];
    int count = make_layouts(layouts);
    for (uint32_t seed = 0; seed < 12; seed++) {
        struct layout from = boxes(seed, 1 + (int)seed % 8),
                      other = boxes(seed + 1, 8 - from.ranks + 1);
        const char *path = path_in(state, from.name);
        save(&from, path);
        load(&from, path);
        load(&other, path);
        load(&layouts[seed * 5 % (uint32_t)count], path);
    }
}

#define directory_test(test)                                                                       \
    cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(int count, char **arguments)
{
    stride = count > 1 ? atoi(arguments[1]) : 1;
    assert_true(stride > 0);
    const struct CMUnitTest tests[] = {
        directory_test(test_all_pairs),
        directory_test(test_boxes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
