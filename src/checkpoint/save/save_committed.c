/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save/save_committed.h"

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/hooks/hooks.h"
#include "checkpoint/save/saving.h"
#include "dcp/checkpoint.h"
#include "format/metadata/metadata_codec.h"

static dcp_status make_view(const struct metadata *metadata, dcp_checkpoint **view)
{
    struct buffer encoded;
    buffer_init(&encoded, 0);
    dcp_status status = metadata_encode(metadata, &encoded);
    if (status == DCP_OK)
        status = dcp_checkpoint_decode(encoded.data, encoded.size, NULL, view);
    buffer_free(&encoded);
    return status;
}

/* It is the caller's and outlives the save, so the save's memory limit does not count it. */
dcp_status save_committed_prepare(dcp_saving *saving)
{
    if (!saving->options.metadata || !saving->coordinates)
        return DCP_OK;
    struct memory_account *account = memory_account_enter(NULL);
    dcp_status status = make_view(&saving->coordinator.metadata, &saving->committed);
    memory_account_enter(account);
    return status;
}

static void call_after_commit(const dcp_saving *saving)
{
    const dcp_save_options *options = &saving->options;
    const char *path = saving->session.path;
    struct memory_account *account = memory_account_enter(NULL);
    error_clear();
    dcp_status status = hook_status(
        options->after_commit(options->after_commit_context, path, saving->session.save_id),
        "after_commit");
    if (status != DCP_OK)
        log_line(DCP_LOG_WARNING, "%s: the checkpoint is committed, but a later step failed: %s",
                 path, dcp_error_message());
    error_clear();
    memory_account_enter(account);
}

void save_committed_notify(dcp_saving *saving)
{
    if (saving->committed) {
        *saving->options.metadata = saving->committed;
        saving->committed = NULL;
    }
    if (saving->options.after_commit)
        call_after_commit(saving);
}

void save_committed_drop(dcp_saving *saving)
{
    dcp_checkpoint_close(saving->committed);
    saving->committed = NULL;
}
