/* SPDX-License-Identifier: BSD-3-Clause */
/* Does with states in memory what PyTorch's functions of the same purpose do with a model and its
 * optimizer, whose ranks are threads here:
 *
 *   state_dict get RANKS STORED OUT OPTION,... GROUP:FROZEN:NAME ...
 *       a sharded state is loaded, got with the options full, offload, frozen and flat, and saved:
 *       whole ones by each rank that has one, as OUT/0, OUT/1 and so on
 *   state_dict set RANKS FULL OUT own|broadcast
 *       a whole state is set into a sharded one, which is saved
 *   state_dict strict SOURCE DESTINATION OUT all|partial
 *       one state is set into another one of other names; prints what differs and how it ended
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dcp.h"

enum { PARAMETERS = 64, RANKS = 8 };

struct job {
    dcp_group *group;
    int rank, size;
    int argc;
    char **argv;
};

static void must(dcp_status status, const char *what)
{
    if (status == DCP_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, dcp_error_message());
    exit(1);
}

/* ---- trees like what is stored ---- */

/* The node that a part of a path leads to, which is made if it is not there: a container if there
 * is a next part. */
static dcp_state *follow(dcp_state *parent, const dcp_path_part *part, const dcp_path_part *next)
{
    dcp_state *found = part->key ? dcp_state_find(parent, part->key)
                                 : dcp_state_at(parent, (size_t)part->position);
    if (found)
        return found;
    return next->key ? dcp_state_dict(parent, part->key) : dcp_state_list(parent, part->key);
}

/* Rows as PyTorch divides them: all ranks but the last ones have equally many. */
static dcp_tensor describe(const dcp_entry *entry, int rank, int size)
{
    dcp_tensor tensor = {.dtype = entry->dtype, .ndim = entry->ndim};
    for (int32_t d = 0; d < entry->ndim; d++)
        tensor.global_shape[d] = tensor.sizes[d] = entry->global_shape[d];
    if (entry->ndim == 0 || size == 1)
        return tensor;
    int64_t rows = tensor.global_shape[0], share = (rows + size - 1) / size;
    tensor.sharded = true;
    tensor.offsets[0] = rank * share < rows ? rank * share : rows;
    tensor.sizes[0] = rows - tensor.offsets[0] < share ? rows - tensor.offsets[0] : share;
    return tensor;
}

/* Wants all that is stored: tensors without memory, objects as None. */
static dcp_state *tree_of(const char *path, int rank, int size)
{
    dcp_checkpoint *checkpoint;
    dcp_state *root = dcp_state_new();
    must(dcp_checkpoint_open(path, NULL, &checkpoint), "opening");
    for (size_t i = 0; i < dcp_checkpoint_count(checkpoint); i++) {
        dcp_entry entry;
        must(dcp_checkpoint_entry(checkpoint, i, &entry), "an entry");
        dcp_state *parent = root;
        for (size_t p = 0; p + 1 < entry.path_length; p++)
            parent = follow(parent, &entry.path[p], &entry.path[p + 1]);
        const char *key = entry.path[entry.path_length - 1].key;
        dcp_tensor tensor = describe(&entry, rank, size);
        if (entry.is_tensor)
            dcp_state_tensor(parent, key, &tensor);
        else
            dcp_state_none(parent, key);
    }
    dcp_checkpoint_close(checkpoint);
    must(dcp_state_status(root), "building a tree");
    return root;
}

/* Loaded by each rank for itself. */
static dcp_state *load(const char *path, int rank, int size)
{
    dcp_state *root = tree_of(path, rank, size);
    must(dcp_load(root, path, NULL, NULL), "loading");
    return root;
}

static void save(dcp_state *root, const char *path, dcp_group *group)
{
    const dcp_save_options options = {.group = group};
    must(dcp_save(root, path, &options), "saving");
}

/* ---- getting ---- */

static size_t read_parameters(const struct job *job, dcp_parameter parameters[PARAMETERS])
{
    size_t count = 0;
    for (int i = 6; i < job->argc && count < PARAMETERS; i++) {
        int group = 0, frozen = 0, end = 0;
        if (sscanf(job->argv[i], "%d:%d:%n", &group, &frozen, &end) != 2 || !end)
            exit(2);
        parameters[count++] = (dcp_parameter){job->argv[i] + end, (size_t)group, frozen != 0};
    }
    return count;
}

static void get(const struct job *job)
{
    const char *words = job->argv[5];
    dcp_parameter parameters[PARAMETERS];
    dcp_gather_state_options options = {.group = job->group,
                                        .full_state_dict = strstr(words, "full") != NULL,
                                        .cpu_offload = strstr(words, "offload") != NULL,
                                        .ignore_frozen_params = strstr(words, "frozen") != NULL,
                                        .parameters = parameters,
                                        .parameter_count = read_parameters(job, parameters)};
    dcp_optimizer_options named = {.parameters = parameters,
                                   .parameter_count = options.parameter_count};
    dcp_state *root = load(job->argv[3], job->rank, job->size), *flat = dcp_state_new();
    dcp_state *optimizer = dcp_state_find(root, "optimizer"), *out = dcp_state_new();
    if (strstr(words, "flat")) {
        must(dcp_optimizer_convert(optimizer, &named, DCP_OPTIMIZER_FLAT, flat), "flattening");
        optimizer = flat;
    }
    dcp_state *model_out = dcp_state_dict(out, "model");
    dcp_state *optimizer_out = dcp_state_dict(out, "optimizer");
    must(dcp_gather_state(dcp_state_find(root, "model"), &options, model_out), "the model");
    must(dcp_gather_state(optimizer, &options, optimizer_out), "the optimizer");
    if (!options.full_state_dict) {
        save(out, job->argv[4], job->group);
    } else if (job->rank == 0 || !options.cpu_offload) {
        char path[512];
        snprintf(path, sizeof path, "%s/%d", job->argv[4], job->rank);
        save(out, path, NULL);
    } else if (dcp_state_count(model_out) + dcp_state_count(optimizer_out) > 0) {
        fprintf(stderr, "rank %d has a state, too\n", job->rank);
        exit(1);
    }
    dcp_state_free(out);
    dcp_state_free(flat);
    dcp_state_free(root);
}

/* ---- setting ---- */

static void set(const struct job *job)
{
    bool broadcast = strcmp(job->argv[5], "broadcast") == 0;
    const dcp_distribute_state_options options = {.group = job->group,
                                                  .broadcast_from_rank0 = broadcast};
    static const char *const parts[] = {"model", "optimizer"};
    dcp_state *whole = job->rank == 0 || !broadcast ? load(job->argv[3], 0, 1) : NULL;
    dcp_state *root = tree_of(job->argv[3], job->rank, job->size);
    for (size_t i = 0; i < 2; i++)
        must(dcp_distribute_state(dcp_state_find(root, parts[i]),
                                  whole ? dcp_state_find(whole, parts[i]) : NULL, &options, NULL),
             parts[i]);
    save(root, job->argv[4], job->group);
    dcp_state_free(root);
    dcp_state_free(whole);
}

static void set_strictly(char **argv)
{
    static const char *const kinds[] = {"missing", "unexpected", "converted", "mismatched",
                                        "unused"};
    const dcp_distribute_state_options options = {
        .strictness = strcmp(argv[5], "all") == 0 ? DCP_STRICT_RAISE_ALL : DCP_STRICT_PARTIAL};
    dcp_state *source = load(argv[2], 0, 1), *destination = load(argv[3], 0, 1);
    dcp_load_report *report = NULL;
    dcp_status status = dcp_distribute_state(destination, source, &options, &report);
    if (status != DCP_OK)
        printf("failed %s\n", dcp_error_message());
    for (size_t i = 0; i < dcp_load_report_count(report); i++) {
        dcp_report_line line;
        if (dcp_load_report_line(report, i, &line) == DCP_OK)
            printf("%s %s\n", kinds[line.difference], line.name);
    }
    dcp_load_report_free(report);
    save(destination, argv[4], NULL);
    dcp_state_free(source);
    dcp_state_free(destination);
}

static void *run(void *argument)
{
    const struct job *job = argument;
    if (strcmp(job->argv[1], "get") == 0)
        get(job);
    else
        set(job);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[RANKS];
    dcp_group *groups[RANKS];
    struct job jobs[RANKS];
    if (argc < 6)
        return 2;
    if (strcmp(argv[1], "strict") == 0) {
        set_strictly(argv);
        return 0;
    }
    int size = atoi(argv[2]);
    if (size < 1 || size > RANKS)
        return 2;
    must(dcp_group_new_threads(size, groups), "a group");
    for (int r = 0; r < size; r++) {
        jobs[r] = (struct job){groups[r], r, size, argc, argv};
        if (pthread_create(&threads[r], NULL, run, &jobs[r]) != 0)
            abort();
    }
    for (int r = 0; r < size; r++) {
        pthread_join(threads[r], NULL);
        dcp_group_free(groups[r]);
    }
    return 0;
}
