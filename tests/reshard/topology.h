/* SPDX-License-Identifier: BSD-3-Clause */
/* A model under every kind of parallelism: which rank holds which chunk of which parameter. */
#ifndef TESTS_RESHARD_TOPOLOGY_H
#define TESTS_RESHARD_TOPOLOGY_H

#include "dcp.h"

/* Sizes of the dimensions, 0 meaning 1. Ranks are numbered row-major over (pipeline, replicate,
 * shard, context, tensor). */
struct topology {
    const char *name;
    int pipeline;
    int virtual_stages; /* of each pipeline rank, interleaved */
    int replicate;      /* data-parallel ranks that hold the same (HSDP, DDP) */
    int shard;          /* data-parallel ranks that share (FSDP, ZeRO) */
    int context;        /* ranks that hold the same parameters */
    int tensor;
    int expert; /* of the ranks of a stage, of which it is a divisor */
};

enum { LAYERS = 5, EXPERTS = 6, TENSORS_MAX = 128 };

/* One parameter, or moment of it, on one rank. */
struct placed {
    char name[64];
    dcp_tensor tensor;
    int64_t rows; /* of the memory, padding included; the chunk is what comes first */
};

/* Everything that a rank holds. */
struct holdings {
    struct placed items[TENSORS_MAX];
    int count;
};

int topology_size(const struct topology *topology);
/* The ranks of one stage are together: stage s begins at rank s * topology_stage_size(). */
int topology_stage_size(const struct topology *topology);
int topology_stages(const struct topology *topology);
void topology_place(const struct topology *topology, int rank, struct holdings *holdings);

#endif
