/* SPDX-License-Identifier: BSD-3-Clause */
#include <err.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "compare_value.h"

enum { MOST_RANKS = 5 };

/* How all tensors are divided: dimension 0, the last one, both, or not at all. */
static const struct topology {
    const char *name;
    int ranks;
    dcp_mesh mesh;
    bool first, last;
    bool allocated; /* by the library */
    dcp_reading reading;
} topologies[] = {
    {"1 rank", 1, {.ndim = 1, .shape = {1}}, false, false, true, DCP_READING_DIRECT},
    {"3 ranks by rows", 3, {.ndim = 1, .shape = {3}}, true, false, false, DCP_READING_DIRECT},
    {"5 ranks by the last dimension",
     5,
     {.ndim = 1, .shape = {5}},
     false,
     true,
     true,
     DCP_READING_DIRECT},
    {"2 x 2 ranks", 4, {.ndim = 2, .shape = {2, 2}}, true, true, false, DCP_READING_DIRECT},
    {"3 ranks that read for each other",
     3,
     {.ndim = 1, .shape = {3}},
     false,
     false,
     false,
     DCP_READING_COOPERATIVE},
    {"2 x 2 ranks that read for each other",
     4,
     {.ndim = 2, .shape = {2, 2}},
     false,
     true,
     true,
     DCP_READING_COOPERATIVE},
};

struct rank {
    const struct manifest *manifest;
    const struct topology *topology;
    dcp_group *group;
    pthread_t thread;
};

static dcp_tensor rank_chunk(const struct rank *rank, const struct manifest_entry *entry)
{
    dcp_tensor chunk = entry->whole;
    dcp_mesh mesh = rank->topology->mesh;
    dcp_placement placements[2] = {dcp_replicate(), dcp_replicate()};

    mesh.rank = dcp_group_rank(rank->group);
    if (chunk.ndim > 0 && rank->topology->first)
        placements[0] = dcp_shard(0);
    if (chunk.ndim > 0 && rank->topology->last)
        placements[mesh.ndim - 1] = dcp_shard(-1);
    if (dcp_mesh_shard(&mesh, &chunk, placements) != DCP_OK)
        errx(1, "%s", dcp_error_message());

    chunk.data = NULL;
    if (!rank->topology->allocated) {
        size_t bytes = dcp_dtype_size(chunk.dtype);
        for (int32_t d = 0; d < chunk.ndim; d++)
            bytes *= (size_t)chunk.sizes[d];
        chunk.data = malloc(bytes + 1);
        if (!chunk.data)
            err(1, "no memory");
        memset(chunk.data, 0xa5, bytes + 1);
    }
    return chunk;
}

/* Compares a dense chunk with its box of the whole tensor, row by row of the last dimension. */
static bool box_matches(const dcp_tensor *chunk, const dcp_tensor *whole)
{
    int64_t position[DCP_MAX_DIMS] = {0};
    int32_t last = whole->ndim - 1;
    size_t size = dcp_dtype_size(whole->dtype);
    size_t row = size * (size_t)(last < 0 ? 1 : chunk->sizes[last]);
    const char *found = chunk->data;

    for (int32_t d = 0; d < whole->ndim; d++)
        if (chunk->sizes[d] == 0)
            return true;
    for (;;) {
        int64_t start = 0;
        for (int32_t d = 0; d <= last; d++)
            start = start * whole->global_shape[d] + chunk->offsets[d] + position[d];
        if (memcmp(found, (const char *)whole->data + (size_t)start * size, row) != 0)
            return false;
        found += row;
        int32_t d = last - 1;
        while (d >= 0 && ++position[d] == chunk->sizes[d])
            position[d--] = 0;
        if (d < 0)
            return true;
    }
}

static void check_rank(const struct rank *rank, const dcp_state *state)
{
    const char *topology = rank->topology->name;

    for (size_t i = 0; i < rank->manifest->count; i++) {
        const struct manifest_entry *entry = &rank->manifest->entries[i];
        const dcp_state *node = dcp_state_find(state, entry->name);
        dcp_tensor chunk;
        if (!entry->is_tensor && !value_matches(node, entry->value, rank->manifest->directory))
            check_failed(entry->name, "%s: is another value", topology);
        if (entry->is_tensor &&
            (dcp_state_chunk(node, 0, &chunk) != DCP_OK || !box_matches(&chunk, &entry->whole)))
            check_failed(entry->name, "%s: has other contents", topology);
    }
}

static void *load_rank(void *context)
{
    const struct rank *rank = context;
    const struct manifest *manifest = rank->manifest;
    dcp_load_options options = {.group = rank->group,
                                .strictness = DCP_STRICT_RAISE_ALL,
                                .reading = rank->topology->reading};
    dcp_state *state = dcp_state_new();
    void **memory = calloc(manifest->count + 1, sizeof *memory);

    for (size_t i = 0; memory && i < manifest->count; i++) {
        const struct manifest_entry *entry = &manifest->entries[i];
        if (entry->is_tensor) {
            dcp_tensor chunk = rank_chunk(rank, entry);
            memory[i] = chunk.data;
            dcp_state_tensor(state, entry->name, &chunk);
        } else {
            dcp_state_none(state, entry->name);
        }
    }
    if (dcp_load(state, manifest->checkpoint, &options, NULL) == DCP_OK)
        check_rank(rank, state);
    else
        check_failed("load", "%s: %s", rank->topology->name, dcp_error_message());
    dcp_state_free(state);
    for (size_t i = 0; memory && i < manifest->count; i++)
        free(memory[i]);
    free(memory);
    return NULL;
}

static void check_topology(const struct manifest *manifest, const struct topology *topology)
{
    dcp_group *groups[MOST_RANKS];
    struct rank ranks[MOST_RANKS];

    if (dcp_group_new_threads(topology->ranks, groups) != DCP_OK)
        errx(1, "%s", dcp_error_message());
    for (int r = 0; r < topology->ranks; r++) {
        ranks[r] = (struct rank){.manifest = manifest, .topology = topology, .group = groups[r]};
        if (pthread_create(&ranks[r].thread, NULL, load_rank, &ranks[r]) != 0)
            errx(1, "no thread");
    }
    for (int r = 0; r < topology->ranks; r++) {
        pthread_join(ranks[r].thread, NULL);
        dcp_group_free(groups[r]);
    }
}

void check_loads(const struct manifest *manifest)
{
    for (size_t i = 0; i < sizeof topologies / sizeof *topologies; i++)
        check_topology(manifest, &topologies[i]);
}
