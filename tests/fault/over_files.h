/* SPDX-License-Identifier: BSD-3-Clause */
/* The public calls over given file operations: a simulated file system's, or the system's with
 * some replaced. */
#ifndef FAULT_OVER_FILES_H
#define FAULT_OVER_FILES_H

#include "dcp.h"
#include "storage/files/files.h"

/* For file_ops::remote: every file is on a network. */
static inline bool over_network(void *context, int directory)
{
    (void)context, (void)directory;
    return true;
}

static inline dcp_status save_over(const struct file_ops *ops, dcp_state *state, const char *path,
                                   const dcp_save_options *options)
{
    const dcp_storage storage = files_storage(ops);
    dcp_save_options with = options ? *options : (dcp_save_options){0};
    with.storage = &storage;
    return dcp_save(state, path, &with);
}

static inline dcp_status save_async_over(const struct file_ops *ops, dcp_state *state,
                                         const char *path, const dcp_save_options *options,
                                         dcp_future **future)
{
    const dcp_storage storage = files_storage(ops);
    dcp_save_options with = options ? *options : (dcp_save_options){0};
    with.storage = &storage;
    return dcp_save_async(state, path, &with, future);
}

static inline dcp_status load_over(const struct file_ops *ops, dcp_state *state, const char *path,
                                   const dcp_load_options *options, dcp_load_report **report)
{
    const dcp_storage storage = files_storage(ops);
    dcp_load_options with = options ? *options : (dcp_load_options){0};
    with.storage = &storage;
    return dcp_load(state, path, &with, report);
}

static inline dcp_status open_over(const struct file_ops *ops, const char *path,
                                   dcp_checkpoint **checkpoint)
{
    const dcp_storage storage = files_storage(ops);
    const dcp_open_options options = {.storage = &storage};
    return dcp_checkpoint_open(path, &options, checkpoint);
}

#endif
