/* SPDX-License-Identifier: BSD-3-Clause */
/* Sets of files of torch.save, one for each model-parallel (and data-parallel) rank. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/path.h"
#include "dcp/checkpoint.h"
#include "run/run_check.h"

/* How many ranks names have, in up to three directions. */
struct grid {
    int64_t sizes[3];
    int64_t found;
};

static void grid_take(struct grid *grid, const struct run_numbers *numbers)
{
    const int64_t ranks[3] = {numbers->step, numbers->epoch, numbers->version};
    grid->found++;
    for (int i = 0; i < 3; i++)
        if (ranks[i] < RUN_RANKS_MAX && ranks[i] >= grid->sizes[i])
            grid->sizes[i] = ranks[i] + 1;
}

static bool grid_is_full(const struct grid *grid)
{
    int64_t product;
    return !__builtin_mul_overflow(grid->sizes[0], grid->sizes[1], &product) &&
           !__builtin_mul_overflow(product, grid->sizes[2], &product) && product == grid->found;
}

/* What a check does with the path of one name. */
typedef dcp_status (*path_check)(struct run_check *check, const char *path);

/* Takes all names of a pattern into the grid. */
static dcp_status take_names(struct run_check *check, const struct run_contents *contents,
                             const char *pattern, path_check do_check, struct grid *grid)
{
    for (size_t i = 0; i < contents->names.count; i++) {
        struct run_numbers numbers;
        const char *name = contents->names.names[i];
        if (!run_name_match(pattern, name, &numbers))
            continue;
        grid_take(grid, &numbers);
        char *path = run_contents_path(contents, name);
        dcp_status status = path ? do_check(check, path) : DCP_ERR_NO_MEMORY;
        memory_release(path);
        if (status != DCP_OK)
            return status;
    }
    return DCP_OK;
}

/* ---- Megatron ---- */

static dcp_status check_rank_file(struct run_check *check, const char *folder, const char *name)
{
    char *path = path_join(folder, name);
    dcp_status status = path ? run_check_torch(check, path) : DCP_ERR_NO_MEMORY;
    memory_release(path);
    return status;
}

static dcp_status check_model_rank(struct run_check *check, const char *folder)
{
    return check_rank_file(check, folder, "model_optim_rng.pt");
}

static dcp_status check_optimizer_rank(struct run_check *check, const char *folder)
{
    return check_rank_file(check, folder, "distrib_optim.pt");
}

dcp_status run_check_model_parallel(struct run_check *check)
{
    /* Tensor-parallel, pipeline and expert ranks. */
    static const char ranks[] = "mp_rank_#[_@][_~]";
    struct grid grid = {.sizes = {1, 1, 1}}, again = grid;
    bool distributed;
    dcp_status status = take_names(check, &check->contents, ranks, check_model_rank, &grid);
    if (status == DCP_OK && !grid_is_full(&grid))
        run_check_fault(check,
                        "%" PRId64 " folders mp_rank_..., but their numbers make %" PRId64
                        " x %" PRId64 " x %" PRId64 " ranks",
                        grid.found, grid.sizes[0], grid.sizes[1], grid.sizes[2]);
    if (status == DCP_OK)
        status = run_contents_show(&check->contents, "mp_rank_*/distrib_optim.pt", &distributed);
    if (status == DCP_OK && distributed)
        status = take_names(check, &check->contents, ranks, check_optimizer_rank, &again);
    return status;
}

/* ---- DeepSpeed ---- */

/* A whole number that a file of torch.save holds under a name; 0: it does not, or cannot be read.
 */
static dcp_status read_number(const struct run_check *check, const char *path, const char *name,
                              int64_t *number)
{
    const dcp_open_options options = {.storage = check->place->storage};
    dcp_checkpoint *checkpoint = NULL;
    size_t index;
    *number = 0;
    char *id = run_place_id(check->place, path);
    dcp_state *value = dcp_state_new();
    dcp_status status =
        id && value ? dcp_checkpoint_open(id, &options, &checkpoint) : DCP_ERR_NO_MEMORY;
    if (status == DCP_OK)
        status = dcp_checkpoint_find(checkpoint, name, &index);
    if (status == DCP_OK)
        status = dcp_checkpoint_read_object(checkpoint, index, value, name, NULL);
    if (status == DCP_OK && dcp_state_as_int(dcp_state_find(value, name), number) != DCP_OK)
        *number = 0;
    dcp_checkpoint_close(checkpoint);
    dcp_state_free(value);
    memory_release(id);
    return run_place_gives_up(status) ? status : DCP_OK;
}

/* What the model's file of the first rank says of the numbers of ranks. */
static dcp_status take_world(struct run_check *check, const struct run_contents *contents,
                             struct grid *grid)
{
    static const char *const names[2] = {"mp_world_size", "dp_world_size"};
    char *path = run_contents_path(contents, "mp_rank_00_model_states.pt");
    dcp_status status = path ? DCP_OK : DCP_ERR_NO_MEMORY;
    for (int i = 0; i < 2 && status == DCP_OK; i++) {
        int64_t size;
        status = read_number(check, path, names[i], &size);
        if (size > 0 && size < RUN_RANKS_MAX && size > grid->sizes[i])
            grid->sizes[i] = size;
    }
    memory_release(path);
    return status;
}

static dcp_status expect_full(struct run_check *check, const struct grid *grid, const char *what)
{
    return grid_is_full(grid) ? DCP_OK
                              : run_check_fault(check,
                                                "%" PRId64 " of %s, expected %" PRId64
                                                " model-parallel x %" PRId64 " data-parallel ranks",
                                                grid->found, what, grid->sizes[0], grid->sizes[1]);
}

static dcp_status check_zero(struct run_check *check, const struct run_contents *contents)
{
    struct grid models = {.sizes = {1, 1, 1}}, parts = models, optimizers = models;
    dcp_status status =
        take_names(check, contents, "mp_rank_#_model_states.pt", run_check_torch, &models);
    if (status == DCP_OK)
        status = take_names(check, contents, "*zero_pp_rank_@_mp_rank_#_model_states.pt",
                            run_check_torch, &parts);
    if (status == DCP_OK)
        status = take_names(check, contents, "*zero_pp_rank_@_mp_rank_#_optim_states.pt",
                            run_check_torch, &optimizers);
    if (status == DCP_OK)
        status = take_world(check, contents, &optimizers);
    if (status != DCP_OK)
        return status;
    models.sizes[0] = parts.sizes[0] = optimizers.sizes[0];
    parts.sizes[1] = optimizers.sizes[1];
    if (parts.found > 0) /* stage 3: the model is divided as well */
        expect_full(check, &parts, "the model's files");
    else
        expect_full(check, &models, "the model's files");
    return optimizers.found > 0 || optimizers.sizes[1] > 1
               ? expect_full(check, &optimizers, "the optimizer's files")
               : DCP_OK;
}

dcp_status run_check_zero(struct run_check *check, const char *path)
{
    struct run_contents contents = {.place = check->place, .path = path};
    bool found;
    dcp_status status = run_place_list(check->place, path, &contents.names, &found);
    if (status == DCP_OK)
        status = check_zero(check, &contents);
    run_names_free(&contents.names);
    return status;
}
