/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save/save_preparing.h"

#include "checkpoint/save/saving.h"

/* From here on, encoding takes longer than a thread takes to begin. */
#define BESIDE_PIECES 4096

static dcp_status prepare(struct dcp_saving *saving)
{
    return save_coordinator_prepare(&saving->coordinator, &saving->session, &saving->options);
}

static void *prepare_beside(void *argument)
{
    struct save_preparing *preparing = argument;
    preparing->status = prepare(preparing->saving);
    if (preparing->status != DCP_OK) {
        error_save(&preparing->error);
        preparing->error.status = preparing->status;
    }
    return NULL;
}

/* Within a memory limit, what preparing takes is free before writing begins. */
static bool goes_beside(const struct dcp_saving *saving)
{
    const struct metadata *metadata = &saving->coordinator.metadata;
    size_t pieces = 0;
    for (size_t i = 0; i < metadata->count && pieces < BESIDE_PIECES; i++)
        pieces += metadata->entries[i].piece_count;
    return pieces >= BESIDE_PIECES && saving->options.memory_limit == 0;
}

dcp_status save_preparing_begin(struct save_preparing *preparing, struct dcp_saving *saving)
{
    *preparing = (struct save_preparing){.saving = saving};
    preparing->beside =
        goes_beside(saving) && thread_start(&preparing->thread, prepare_beside, preparing) == 0;
    return preparing->beside ? DCP_OK : prepare(saving);
}

dcp_status save_preparing_end(struct save_preparing *preparing, dcp_status status)
{
    if (!preparing->beside)
        return status;
    thread_join(&preparing->thread);
    if (status != DCP_OK || preparing->status == DCP_OK)
        return status;
    return error_restore(&preparing->error);
}
