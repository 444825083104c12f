/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves random trees in random ways, each with a manifest: fuzz_save DIRECTORY SEED CASES. Ranks
 * are threads, which build the same tree from the same seed. */
#include <err.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formula.h"
#include "fuzz_tree.h"

enum { MOST_RANKS = 4 };

struct rank {
    struct fuzz_tree tree;
    const dcp_save_options *options;
    const char *path;
    dcp_group *group;
    pthread_t thread;
};

static void *save_rank(void *context)
{
    struct rank *rank = context;
    dcp_save_options options = *rank->options;

    options.group = rank->group;
    fuzz_tree_build(&rank->tree);
    if (dcp_save(rank->tree.root, rank->path, &options) != DCP_OK)
        errx(1, "%s: rank %d: %s", rank->path, rank->tree.rank, dcp_error_message());
    return NULL;
}

static void write_json(const char *directory, const char *name, cJSON *document)
{
    char path[4096];
    char *text = cJSON_PrintUnformatted(document);

    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *out = fopen(path, "w");
    if (!text || !out || fputs(text, out) < 0 || fclose(out) != 0)
        err(1, "%s", path);
    free(text);
    cJSON_Delete(document);
}

static dcp_save_options random_options(struct fuzz_random *random, int ranks)
{
    return (dcp_save_options){
        .coordinator = (int32_t)fuzz_below(random, (uint64_t)ranks),
        .replicas = (dcp_replicas)fuzz_below(random, 3),
        .files = (dcp_file_layout)fuzz_below(random, 2),
        .thread_count = (int32_t)fuzz_below(random, 4),
        .overwrite = (dcp_overwrite)fuzz_below(random, 2),
        .skip_sync = true,
    };
}

static void save_case(const char *directory, const char *name, uint64_t seed)
{
    struct fuzz_random random = {seed};
    int ranks = 1 + (int)fuzz_below(&random, MOST_RANKS);
    dcp_save_options options = random_options(&random, ranks);
    dcp_group *groups[MOST_RANKS];
    struct rank each[MOST_RANKS];
    cJSON *manifest = cJSON_CreateObject();
    char path[4096];

    snprintf(path, sizeof path, "%s/ckpt", directory);
    if (dcp_group_new_threads(ranks, groups) != DCP_OK)
        errx(1, "%s", dcp_error_message());
    for (int r = 0; r < ranks; r++) {
        each[r] = (struct rank){.tree = {.random = random, .rank = r, .ranks = ranks},
                                .options = &options,
                                .path = path,
                                .group = groups[r]};
        if (pthread_create(&each[r].thread, NULL, save_rank, &each[r]) != 0)
            errx(1, "no thread");
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(each[r].thread, NULL);
    cJSON_AddStringToObject(manifest, "kind", "dcp");
    cJSON_AddStringToObject(manifest, "case", name);
    cJSON_AddStringToObject(manifest, "checkpoint", "ckpt");
    cJSON_AddItemToObject(manifest, "entries", fuzz_tree_describe(&each[0].tree, directory));
    write_json(directory, "expected.json", manifest);
    for (int r = 0; r < ranks; r++) {
        fuzz_tree_free(&each[r].tree);
        dcp_group_free(groups[r]);
    }
}

int main(int argc, char **argv)
{
    cJSON *index = cJSON_CreateObject();
    cJSON *cases = cJSON_AddArrayToObject(index, "cases");
    char name[100], path[4096];

    if (argc != 4)
        errx(2, "usage: fuzz_save DIRECTORY SEED CASES");
    mkdir(argv[1], 0777);
    for (uint64_t i = 0, seed = strtoull(argv[2], NULL, 10); i < strtoull(argv[3], NULL, 10); i++) {
        snprintf(name, sizeof name, "seed%llu", (unsigned long long)(seed + i));
        snprintf(path, sizeof path, "%s/%s", argv[1], name);
        mkdir(path, 0777);
        save_case(path, name, seed + i);
        strcat(name, "/expected.json");
        cJSON *row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "expected", name);
        cJSON_AddItemToArray(cases, row);
    }
    write_json(argv[1], "index.json", index);
    return 0;
}
