/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save/save_beside.h"

#include "checkpoint/save/saving.h"

/* Items of a rank, and pieces of all, from which on a step takes longer than a thread takes to
 * begin. */
#define BESIDE_ITEMS  1024
#define BESIDE_PIECES 4096

static void *run(void *argument)
{
    struct save_beside *beside = argument;
    beside->status = beside->step(beside->saving);
    if (beside->status != DCP_OK) {
        error_save(&beside->error);
        beside->error.status = beside->status;
    }
    return NULL;
}

void save_beside_start(struct save_beside *beside, struct dcp_saving *saving, save_beside_step step)
{
    *beside = (struct save_beside){.saving = saving, .step = step};
    beside->runs = thread_start(&beside->thread, run, beside) == 0;
}

dcp_status save_beside_join(struct save_beside *beside)
{
    thread_join(&beside->thread);
    beside->runs = false;
    return beside->status == DCP_OK ? DCP_OK : error_restore(&beside->error);
}

dcp_status save_beside_end(struct save_beside *beside, dcp_status status)
{
    struct saved_error error;
    if (!beside->runs)
        return status;
    if (status == DCP_OK)
        return save_beside_join(beside);
    error_save(&error);
    save_beside_join(beside);
    error_restore(&error);
    return status;
}

/* Within a memory limit, one step's memory is free before the next one begins. */
static bool may_go_beside(const struct dcp_saving *saving)
{
    return saving->coordinates && saving->options.memory_limit == 0;
}

bool save_begins_beside(const struct dcp_saving *saving)
{
    return may_go_beside(saving) && saving->local.plan.count >= BESIDE_ITEMS;
}

/* Others need the metadata before all is written: they add to it, read it, or keep it, which must
 * be whole even if the save fails. */
bool save_describes_beside(const struct dcp_saving *saving)
{
    return may_go_beside(saving) && !saving->gathers_results && !saving->planning.cache &&
           !saving->planning.extra_files && !saving->options.allow_partial &&
           saving->local.plan.count >= BESIDE_ITEMS;
}

bool save_prepares_beside(const struct dcp_saving *saving)
{
    const struct metadata *metadata = &saving->coordinator.metadata;
    size_t pieces = 0;
    if (!may_go_beside(saving) || saving->gathers_results)
        return false;
    if (saving->planning.describes_beside)
        return true;
    for (size_t i = 0; i < metadata->count && pieces < BESIDE_PIECES; i++)
        pieces += metadata->entries[i].piece_count;
    return pieces >= BESIDE_PIECES;
}
