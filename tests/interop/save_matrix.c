/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves the same kinds of state at many topologies and in every form of file, each with a manifest:
 * save_matrix DIRECTORY [FORMS], of which each topology meets two, or FORMS. Ranks are threads. */
#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "matrix_state.h"

enum { MOST_RANKS = 8 };

static const struct topology {
    int ranks;
    dcp_mesh mesh;
} topologies[] = {
    {1, {.ndim = 1, .shape = {1}}},    {2, {.ndim = 1, .shape = {2}}},
    {3, {.ndim = 1, .shape = {3}}},    {4, {.ndim = 1, .shape = {4}}},
    {5, {.ndim = 1, .shape = {5}}},    {2, {.ndim = 2, .shape = {1, 2}}},
    {2, {.ndim = 2, .shape = {2, 1}}}, {4, {.ndim = 2, .shape = {2, 2}}},
    {5, {.ndim = 2, .shape = {2, 2}}}, /* the last rank is not part of the mesh */
    {8, {.ndim = 2, .shape = {2, 4}}}, /* with a dimension that replicates: HYBRID_SHARD */
};

static const struct form {
    const char *name;
    dcp_save_options options;
    bool twice; /* over an earlier checkpoint */
} forms[] = {
    {"default", {.replicas = DCP_REPLICAS_SLICE}, false},
    {"whole_3_files",
     {.replicas = DCP_REPLICAS_WHOLE, .thread_count = 3, .has_step = true, .step = 12},
     false},
    {"lowest_file_per_item",
     {.replicas = DCP_REPLICAS_LOWEST, .files = DCP_FILE_PER_ITEM, .skip_sync = true},
     false},
    {"replaced", {.overwrite = DCP_OVERWRITE_REPLACE, .coordinator = -1, .thread_count = 2}, true},
#if DCP_HAVE_ZSTD
    {"compressed", {.compression = DCP_COMPRESSION_ZSTD}, false},
    {"compressed_3_files",
     {.compression = DCP_COMPRESSION_ZSTD,
      .compression_level = 12,
      .compression_threads = 7,
      .thread_count = 3,
      .replicas = DCP_REPLICAS_WHOLE},
     false},
    {"compressed_replaced",
     {.compression = DCP_COMPRESSION_ZSTD,
      .compression_level = -5,
      .overwrite = DCP_OVERWRITE_REPLACE,
      .files = DCP_FILE_PER_ITEM,
      .coordinator = -1},
     true},
#endif
};

struct rank {
    const struct topology *topology;
    const struct form *form;
    const char *directory;
    dcp_group *group;
    cJSON *entries;
    pthread_t thread;
};

static void *save_rank(void *context)
{
    const struct rank *rank = context;
    int number = dcp_group_rank(rank->group);
    struct matrix_state state = {
        .mesh = rank->topology->mesh,
        .rank = number,
        .ranks = rank->topology->ranks,
        .directory = rank->directory,
        .entries = rank->entries,
    };
    dcp_save_options options = rank->form->options;
    char path[4096];

    state.mesh.rank = number < state.mesh.shape[0] * (state.mesh.ndim > 1 ? state.mesh.shape[1] : 1)
                          ? number
                          : -1;
    snprintf(path, sizeof path, "%s/ckpt", rank->directory);
    options.group = rank->group;
    if (options.coordinator < 0)
        options.coordinator = state.ranks - 1;
    matrix_state_build(&state);

    dcp_status status = DCP_OK;
    if (rank->form->twice) {
        dcp_state *earlier = dcp_state_new();
        dcp_state_int(earlier, "earlier", 1);
        status = dcp_save(earlier, path, &options);
        dcp_state_free(earlier);
    }
    if (status == DCP_OK)
        status = dcp_save(state.root, path, &options);
    if (status != DCP_OK)
        errx(1, "%s: rank %d: %s", path, number, dcp_error_message());
    matrix_state_free(&state);
    return NULL;
}

static void write_json(const char *directory, const char *name, const cJSON *document)
{
    char path[4096];
    char *text = cJSON_PrintUnformatted(document);

    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *out = fopen(path, "w");
    if (!text || !out || fputs(text, out) < 0 || fclose(out) != 0)
        err(1, "%s", path);
    free(text);
}

static void save_one(const char *directory, const struct topology *topology,
                     const struct form *form)
{
    dcp_group *groups[MOST_RANKS];
    struct rank ranks[MOST_RANKS];
    cJSON *manifest = cJSON_CreateObject();
    cJSON *entries = cJSON_CreateArray();

    if (dcp_group_new_threads(topology->ranks, groups) != DCP_OK)
        errx(1, "%s", dcp_error_message());
    for (int r = 0; r < topology->ranks; r++) {
        ranks[r] = (struct rank){.topology = topology,
                                 .form = form,
                                 .directory = directory,
                                 .group = groups[r],
                                 .entries = r == 0 ? entries : NULL};
        if (pthread_create(&ranks[r].thread, NULL, save_rank, &ranks[r]) != 0)
            errx(1, "no thread");
    }
    for (int r = 0; r < topology->ranks; r++) {
        pthread_join(ranks[r].thread, NULL);
        dcp_group_free(groups[r]);
    }
    cJSON_AddStringToObject(manifest, "kind", "dcp");
    cJSON_AddStringToObject(manifest, "case", strrchr(directory, '/') + 1);
    cJSON_AddStringToObject(manifest, "checkpoint", "ckpt");
    cJSON_AddItemToObject(manifest, "entries", entries);
    write_json(directory, "expected.json", manifest);
    cJSON_Delete(manifest);
}

static void name_case(char *name, size_t size, const struct topology *topology,
                      const struct form *form)
{
    int used = snprintf(name, size, "ranks%d_mesh", topology->ranks);

    for (int32_t d = 0; d < topology->mesh.ndim; d++)
        used += snprintf(name + used, size - (size_t)used, "%s%d", d > 0 ? "x" : "",
                         (int)topology->mesh.shape[d]);
    snprintf(name + used, size - (size_t)used, "_%s", form->name);
}

int main(int argc, char **argv)
{
    cJSON *index = cJSON_CreateObject();
    cJSON *cases = cJSON_AddArrayToObject(index, "cases");
    size_t form_count = sizeof forms / sizeof *forms;
    char name[100], path[4096];

    size_t met = argc == 3 ? strtoul(argv[2], NULL, 10) : 2;
    if (argc < 2 || argc > 3 || met == 0 || met > form_count)
        errx(2, "usage: save_matrix DIRECTORY [FORMS]");
    mkdir(argv[1], 0777);
    for (size_t t = 0; t < sizeof topologies / sizeof *topologies; t++) {
        /* Two forms for each topology, so that each form meets both kinds of meshes. */
        for (size_t f = t; f < t + met; f++) {
            const struct topology *topology = &topologies[t];
            const struct form *form = &forms[f % form_count];
            name_case(name, sizeof name, topology, form);
            snprintf(path, sizeof path, "%s/%s", argv[1], name);
            mkdir(path, 0777);
            save_one(path, topology, form);
            strcat(name, "/expected.json");
            cJSON *row = cJSON_CreateObject();
            cJSON_AddStringToObject(row, "expected", name);
            cJSON_AddItemToArray(cases, row);
        }
    }
    write_json(argv[1], "index.json", index);
    cJSON_Delete(index);
    return 0;
}
