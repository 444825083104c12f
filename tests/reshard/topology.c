/* SPDX-License-Identifier: BSD-3-Clause */
#include "reshard/topology.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"

/* Where a rank is in each dimension. */
struct place {
    const struct topology *topology;
    int stage, replicate, shard, context, tensor, expert, expert_shard;
};

static int at_least_one(int size)
{
    return size > 0 ? size : 1;
}

int topology_stage_size(const struct topology *topology)
{
    return at_least_one(topology->replicate) * at_least_one(topology->shard) *
           at_least_one(topology->context) * at_least_one(topology->tensor);
}

int topology_stages(const struct topology *topology)
{
    return at_least_one(topology->pipeline);
}

int topology_size(const struct topology *topology)
{
    return topology_stages(topology) * topology_stage_size(topology);
}

static struct place place_of(const struct topology *topology, int rank)
{
    int in_stage = rank % topology_stage_size(topology), left = in_stage;
    int expert = at_least_one(topology->expert);
    struct place place = {.topology = topology, .stage = rank / topology_stage_size(topology)};
    place.tensor = left % at_least_one(topology->tensor);
    left /= at_least_one(topology->tensor);
    place.context = left % at_least_one(topology->context);
    left /= at_least_one(topology->context);
    place.shard = left % at_least_one(topology->shard);
    place.replicate = left / at_least_one(topology->shard);
    place.expert = in_stage % expert;
    place.expert_shard = in_stage / expert;
    return place;
}

/* The mesh of a stage, or of it as experts divide it. */
static dcp_mesh stage_mesh(const struct place *place)
{
    const struct topology *t = place->topology;
    dcp_mesh mesh = {.ndim = 4,
                     .shape = {at_least_one(t->replicate), at_least_one(t->shard),
                               at_least_one(t->context), at_least_one(t->tensor)}};
    mesh.rank =
        ((place->replicate * mesh.shape[1] + place->shard) * mesh.shape[2] + place->context) *
            mesh.shape[3] +
        place->tensor;
    return mesh;
}

static dcp_mesh expert_mesh(const struct place *place)
{
    int64_t expert = at_least_one(place->topology->expert);
    dcp_mesh mesh = {.ndim = 2, .shape = {topology_stage_size(place->topology) / expert, expert}};
    mesh.rank = place->expert_shard * expert + place->expert;
    return mesh;
}

/* The parameter and its two moments, which lie as it does; "step" is a scalar on every rank. */
static void add(struct holdings *holdings, const char *name, const dcp_tensor *tensor, int64_t rows)
{
    static const char *const forms[] = {"model.%s", "optimizer.state.%s.exp_avg",
                                        "optimizer.state.%s.exp_avg_sq", "optimizer.state.%s.step"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct placed *placed = &holdings->items[holdings->count++];
        assert_true(holdings->count <= TENSORS_MAX);
        *placed = (struct placed){.tensor = *tensor, .rows = rows};
        if (i == 3)
            placed->tensor = (dcp_tensor){.dtype = DCP_I32};
        /* The forms are the four above. */
        const char *star = strstr(forms[i], "%s");
        snprintf(placed->name, sizeof placed->name, "%.*s%s%s", (int)(star - forms[i]), forms[i],
                 name, star + 2);
    }
}

static dcp_tensor shaped(int32_t ndim, int64_t first, int64_t second, int64_t third)
{
    return (dcp_tensor){.dtype = DCP_I32, .ndim = ndim, .global_shape = {first, second, third}};
}

/* Divided over data-parallel ranks by rows, and over tensor-parallel ranks by tensor_dim (-1: not
 * at all): by rows again, that is FSDP2's strided placement. */
static void add_dense(struct holdings *holdings, const struct place *place, const char *name,
                      dcp_tensor tensor, int32_t tensor_dim)
{
    dcp_mesh mesh = stage_mesh(place);
    dcp_placement placements[] = {
        dcp_replicate(), tensor_dim == 0 ? dcp_strided_shard(0, mesh.shape[3]) : dcp_shard(0),
        dcp_replicate(), tensor_dim < 0 ? dcp_replicate() : dcp_shard(tensor_dim)};
    must(dcp_mesh_shard(&mesh, &tensor, placements));
    add(holdings, name, &tensor, tensor.ndim > 0 ? tensor.sizes[0] : 1);
}

/* Rows of a vocabulary over tensor-parallel ranks, who each hold as many, a multiple of 4. What is
 * beyond the vocabulary is padding, of which the checkpoint has nothing. */
static void add_padded(struct holdings *holdings, const struct place *place, const char *name,
                       int64_t vocabulary)
{
    int64_t ranks = at_least_one(place->topology->tensor);
    int64_t rows = (vocabulary + 4 * ranks - 1) / (4 * ranks) * 4;
    int64_t first = place->tensor * rows;
    dcp_tensor tensor = shaped(2, vocabulary, 3, 0);
    tensor.sharded = true;
    tensor.offsets[0] = first < vocabulary ? first : vocabulary;
    tensor.sizes[0] = first + rows <= vocabulary ? rows : vocabulary - tensor.offsets[0];
    tensor.sizes[1] = 3;
    add(holdings, name, &tensor, rows);
}

static void add_experts(struct holdings *holdings, const struct place *place, int layer)
{
    char name[40];
    dcp_mesh mesh = expert_mesh(place);
    dcp_placement stacked[] = {dcp_shard(1), dcp_shard(0)}, one[] = {dcp_shard(0)};
    dcp_tensor tensor = shaped(3, EXPERTS, 5, 2);
    must(dcp_mesh_shard(&mesh, &tensor, stacked));
    snprintf(name, sizeof name, "layers.%d.experts.w1", layer);
    add(holdings, name, &tensor, tensor.sizes[0]);

    /* As names of their own, which each rank has some of. */
    dcp_mesh within = {.ndim = 1, .shape = {mesh.shape[0]}, .rank = place->expert_shard};
    for (int e = 0; e < EXPERTS; e++) {
        if (e * at_least_one(place->topology->expert) / EXPERTS != place->expert)
            continue;
        dcp_tensor alone = shaped(2, 4, 3, 0);
        must(dcp_mesh_shard(&within, &alone, one));
        snprintf(name, sizeof name, "layers.%d.expert.%d.w2", layer, e);
        add(holdings, name, &alone, alone.sizes[0]);
    }
}

static void add_layer(struct holdings *holdings, const struct place *place, int layer)
{
    static const struct {
        const char *name;
        int32_t ndim;
        int64_t rows, columns;
        int32_t tensor_dim;
    } parameters[] = {
        {"attention.wq", 2, 12, 5, 0},
        {"attention.wo", 2, 5, 12, 1},
        {"norm", 1, 7, 0, -1},
    };
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++) {
        char name[40];
        snprintf(name, sizeof name, "layers.%d.%s", layer, parameters[i].name);
        add_dense(holdings, place, name,
                  shaped(parameters[i].ndim, parameters[i].rows, parameters[i].columns, 0),
                  parameters[i].tensor_dim);
    }
    if (layer == 1 || layer == 3)
        add_experts(holdings, place, layer);
}

void topology_place(const struct topology *topology, int rank, struct holdings *holdings)
{
    struct place place = place_of(topology, rank);
    int stages = topology_stages(topology);
    int parts = stages * at_least_one(topology->virtual_stages);
    holdings->count = 0;
    for (int layer = 0; layer < LAYERS; layer++)
        if (layer * parts / LAYERS % stages == place.stage)
            add_layer(holdings, &place, layer);
    bool last = place.stage == stages - 1;
    if (place.stage == 0)
        add_padded(holdings, &place, "embedding", 13);
    if (last)
        add_padded(holdings, &place, "head", 17);
    if (place.stage == 0 || last)
        add_dense(holdings, &place, "tied", shaped(2, 9, 2, 0), 0);
}
