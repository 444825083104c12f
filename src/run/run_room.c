/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/run_room.h"

#include "base/error.h"
#include "base/log.h"
#include "run/run_tell.h"

/* The longest wait for a removal; other ranks wait for rank 0 meanwhile. */
#define LONGEST_WAIT    600.0
#define DEFAULT_TIMEOUT 1800.0

/* At rank 0, by any thread. */
static bool wait_for_removal(dcp_run *run)
{
    double timeout = run->save.timeout_seconds > 0 ? run->save.timeout_seconds : DEFAULT_TIMEOUT;
    double seconds = timeout / 2 < LONGEST_WAIT ? timeout / 2 : LONGEST_WAIT;
    return run->rank == 0 &&
           run_background_has_removed(&run->background, &run->removed_before, seconds);
}

static bool make_room(void *context)
{
    dcp_run *run = context;
    const dcp_save_chain_options *own = &run->chain_options;
    return wait_for_removal(run) || (own->make_room && own->make_room(own->make_room_context));
}

void run_room_prepare(dcp_run *run, dcp_save_chain_options *options)
{
    /* With a limit there may be no copy of the whole state that another attempt could take. */
    if (!run->options.keep || options->staging_limit > 0 || run->save.memory_limit > 0)
        return;
    options->make_room = make_room;
    options->make_room_context = run;
}

void run_room_begin(dcp_run *run)
{
    run_background_has_removed(&run->background, &run->removed_before, 0);
}

bool run_room_found(dcp_run *run, dcp_status status)
{
    struct saved_error error;
    uint8_t found = 0;
    if (status != DCP_ERR_NO_SPACE || !run->options.keep)
        return false;
    error_save(&error);
    if (run->rank == 0)
        found = wait_for_removal(run);
    if (run_broadcast(run, &found, sizeof found) != DCP_OK)
        found = 0;
    error_restore(&error);
    if (found && run->rank == 0)
        log_line(DCP_LOG_WARNING,
                 "saving to %s/%s failed, trying again as an old checkpoint has been removed: %s",
                 run->root, run->saving_name, error.text);
    return found != 0;
}
