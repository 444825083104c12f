/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies the tables of hooks, and compares them between ranks. */
#include "checkpoint/hooks/save_hooks.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/hooks/hooks_choose.h"
#include "checkpoint/save/saving.h"

/* ---- which hooks there are ---- */

enum { HOOKS = 16 };

static const char *const hook_names[HOOKS] = {
    "set_up_planner",
    "create_local_plan",
    "create_global_plan",
    "finish_plan",
    "resolve_data",
    "lookup_object",
    "transform_object",
    "validate_checkpoint_id",
    "reset",
    "storage_meta",
    "set_up_storage_writer",
    "prepare_local_plan",
    "prepare_global_plan",
    "write_data",
    "finish",
    "abandon",
};

static uint32_t hooks_present(const struct save_hooks *hooks)
{
    const dcp_save_planner *planner = &hooks->planner;
    const dcp_storage_writer *writer = &hooks->writer;
    const bool present[HOOKS] = {
        planner->set_up_planner != NULL,
        planner->create_local_plan != NULL,
        planner->create_global_plan != NULL,
        planner->finish_plan != NULL,
        planner->resolve_data != NULL,
        planner->lookup_object != NULL,
        planner->transform_object != NULL,
        writer->validate_checkpoint_id != NULL,
        writer->reset != NULL,
        writer->storage_meta != NULL,
        writer->set_up_storage_writer != NULL,
        writer->prepare_local_plan != NULL,
        writer->prepare_global_plan != NULL,
        writer->write_data != NULL,
        writer->finish != NULL,
        writer->abandon != NULL,
    };
    uint32_t mask = UINT32_C(1) << HOOKS;
    for (int i = 0; i < HOOKS; i++)
        mask |= (uint32_t)present[i] << i;
    return mask;
}

dcp_status save_hooks_compare(struct hooks_kind first, struct hooks_kind other, int rank)
{
    uint64_t differing = first.present ^ other.present;
    if ((differing >> HOOKS & 1) != 0)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "rank %d has %s save planner or storage writer, unlike rank 0: all "
                             "ranks must pass the same",
                             rank, other.present != 0 ? "a" : "no");
    for (int i = 0; i < HOOKS; i++)
        if ((differing >> i & 1) != 0)
            return dcp_error_set(
                DCP_ERR_ARGUMENT,
                "rank %d has %s hook %s, but rank 0 has %s: all ranks must have the same hooks",
                rank, other.present >> i & 1 ? "a" : "no", hook_names[i],
                first.present >> i & 1 ? "one" : "none");
    if (first.storage != other.storage)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "rank %d has another storage writer than rank 0: all ranks must pass "
                             "the same",
                             rank);
    return DCP_OK;
}

/* ---- the tables ---- */

static dcp_status takes_id(const void *table, const char *id, bool *takes)
{
    dcp_storage_writer writer;
    if (!table)
        return dcp_error_set(DCP_ERR_ARGUMENT, "one of the storage writers is NULL");
    RETURN_IF_ERROR(hooks_take(&writer, sizeof writer, table, "dcp_storage_writer"));
    *takes = writer.validate_checkpoint_id && writer.validate_checkpoint_id(writer.context, id);
    return DCP_OK;
}

/* A rank without a path uses the coordinator's, which must then be a directory. */
static dcp_status choose_writer(const dcp_saving *saving, struct save_hooks *hooks,
                                const void **table, uint64_t *number)
{
    const dcp_save_options *options = &saving->options;
    const struct hooks_choices choices = {
        .passed = options->storage_writer,
        .several = (const void *const *)options->storage_writers,
        .count = options->storage_writer_count,
        .takes = takes_id,
    };
    *table = choices.passed;
    *number = choices.passed ? HOOKS_PASSED : HOOKS_NONE;
    if (saving->path && *saving->path)
        RETURN_IF_ERROR(hooks_choose(&choices, saving->path, table, number));
    return hooks_take(&hooks->writer, sizeof hooks->writer, *table, "dcp_storage_writer");
}

static struct save_hooks *hooks_new(void)
{
    struct save_hooks *hooks = memory_allocate_zeroed(1, sizeof *hooks);
    if (!hooks)
        return NULL;
    save_plan_view_init(&hooks->plan);
    save_plan_view_init(&hooks->finished);
    name_table_init(&hooks->names);
    pthread_mutex_init(&hooks->mutex, NULL);
    return hooks;
}

static void hooks_free(struct save_hooks *hooks)
{
    save_hooks_forget_results(hooks);
    memory_release(hooks->stream_offsets);
    pthread_mutex_destroy(&hooks->mutex);
    name_table_free(&hooks->names);
    save_plan_view_free(&hooks->finished);
    memory_release(hooks->order_of);
    save_plan_view_free(&hooks->plan);
    memory_release(hooks);
}

static void free_hooks(dcp_saving *saving)
{
    hooks_free(saving->hooks);
    saving->hooks = NULL;
}

static const struct save_steps save_steps_hooked = {
    .needs_state = true,
    .set_up = save_hooks_set_up,
    .plan_local = save_hooks_plan_local,
    .set_up_again = save_hooks_set_up_again,
    .plan_global = save_hooks_plan_global,
    .reuse_plan = save_hooks_reuse_plan,
    .write = save_hooks_write,
    .abandon = save_hooks_abandon,
    .free = free_hooks,
    .begin = save_hooks_begin,
    .describe = save_hooks_describe,
    .take_results = save_hooks_take_results,
    .commit = save_hooks_commit,
    .set_up_dry = save_hooks_set_up_dry,
};

/* Sets what depends on the writer's hooks. */
static void note_writer(dcp_saving *saving, uint64_t number)
{
    const dcp_storage_writer *writer = &saving->hooks->writer;
    bool compressed = saving->options.compression != DCP_COMPRESSION_NONE;
    saving->kind = (struct hooks_kind){number, hooks_present(saving->hooks)};
    saving->as_planned = !compressed && !writer->write_data;
    saving->gathers_results = !saving->as_planned || writer->finish;
}

dcp_status save_hooks_choose(dcp_saving *saving)
{
    const dcp_save_options *options = &saving->options;
    const void *writer = NULL;
    uint64_t number;
    if (!options->planner && !options->storage_writer && options->storage_writer_count == 0)
        return DCP_OK;
    struct save_hooks *hooks = hooks_new();
    if (!hooks)
        return error_no_memory(sizeof *hooks, "hooks of a save");
    dcp_status status = choose_writer(saving, hooks, &writer, &number);
    if (status == DCP_OK)
        status = hooks_take(&hooks->planner, sizeof hooks->planner, options->planner,
                            "dcp_save_planner");
    bool later = saving->may_fall_back && options->storage_writer_count > 0;
    if (status != DCP_OK || (!options->planner && !writer && !later)) {
        hooks_free(hooks);
        return status;
    }
    saving->hooks = hooks;
    saving->steps = save_steps_hooked;
    note_writer(saving, number);
    return DCP_OK;
}

dcp_status save_hooks_choose_again(dcp_saving *saving)
{
    const void *writer;
    uint64_t number;
    RETURN_IF_ERROR(choose_writer(saving, saving->hooks, &writer, &number));
    note_writer(saving, number);
    return DCP_OK;
}
