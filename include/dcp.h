/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file dcp.h
 * @brief The front door: everything of libdcp that needs no other library.
 *
 * `dcp/cuda.h`, `dcp/mpi.h` and `dcp/nccl.h` (libdcp_cuda, libdcp_mpi, libdcp_nccl) are apart,
 * because they pull in the headers of others.
 */
#ifndef DCP_H
#define DCP_H

#include "dcp/async.h"
#include "dcp/checkpoint.h"
#include "dcp/device.h"
#include "dcp/environment.h"
#include "dcp/estimate.h"
#include "dcp/figures.h"
#include "dcp/group.h"
#include "dcp/load.h"
#include "dcp/load_planner.h"
#include "dcp/mesh.h"
#include "dcp/optimizer.h"
#include "dcp/placement.h"
#include "dcp/plan_item.h"
#include "dcp/progress.h"
#include "dcp/save.h"
#include "dcp/save_planner.h"
#include "dcp/shard_file.h"
#include "dcp/state.h"
#include "dcp/status.h"
#include "dcp/storage.h"
#include "dcp/storage_reader.h"
#include "dcp/storage_writer.h"
#include "dcp/tensor.h"
#include "dcp/types.h"
#include "dcp/version.h"
#include "dcp/whole_state.h"

#endif
