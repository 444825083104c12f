/* SPDX-License-Identifier: BSD-3-Clause */
/* Save, load and open over given file operations: what the public calls are thin covers of, and
 * what tests run over a simulated file system. */
#ifndef CHECKPOINT_CONDUCTOR_H
#define CHECKPOINT_CONDUCTOR_H

#include "base/file.h"
#include "dcp/async.h"
#include "dcp/checkpoint.h"
#include "dcp/estimate.h"
#include "dcp/load.h"
#include "dcp/save.h"

dcp_status checkpoint_save(const struct file_ops *ops, dcp_state *state, const char *path,
                           const dcp_save_options *options);
dcp_status checkpoint_save_estimate(const struct file_ops *ops, dcp_state *state, const char *path,
                                    const dcp_save_options *options, dcp_estimate *estimate);
dcp_status checkpoint_save_async(const struct file_ops *ops, dcp_state *state, const char *path,
                                 const dcp_save_options *options, dcp_future **future);
dcp_status checkpoint_load(const struct file_ops *ops, dcp_state *state, const char *path,
                           const dcp_load_options *options, dcp_load_report **report);
dcp_status checkpoint_open(const struct file_ops *ops, const char *path,
                           dcp_checkpoint **checkpoint);

#endif
