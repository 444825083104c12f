/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file dcp.h
 * @brief Everything of libdcp that needs no other library.
 *
 * The concepts, in the order in which a program meets them:
 *
 * 1. A *status* is what calls return; dcp_error_message() has the words (status.h).
 * 2. A *tensor* (dcp_tensor) is one chunk of a global tensor and the memory that holds it. A *mesh*
 *    and *placements* say how ranks divide a tensor; dcp_mesh_shard() computes the chunk of this
 *    rank (tensor.h, mesh.h, placement.h).
 * 3. A *state* is a tree of dicts and lists with tensors and plain values as leaves: what to save,
 *    or where to load (state.h).
 * 4. A *group* is the ranks that save or load together; NULL is this process alone (group.h).
 * 5. dcp_save() writes a state as a *checkpoint*, a directory; dcp_load() fills a state from one,
 * on any number of ranks with any division (save.h, load.h).
 * 6. dcp_save_async() does so while training goes on, and gives a *future*; a *chain* keeps what
 *    its saves share (async.h).
 * 7. dcp_checkpoint_open() shows what a checkpoint holds and reads parts of it without a state;
 *    dcp_verify() checks all of it (checkpoint.h).
 *
 * Which header is for whom:
 *
 * | headers | for |
 * | --- | --- |
 * | status.h, tensor.h, mesh.h, placement.h | a first program |
 * | state.h, save.h, load.h | a first program, too |
 * | group.h, async.h, checkpoint.h | ranks, saving beside training, looking into checkpoints |
 * | estimate.h, figures.h, progress.h, environment.h | when needed |
 * | optimizer.h, whole_state.h, version.h | when needed |
 * | save_planner.h, load_planner.h, plan_item.h | hooks alone: PyTorch's planners |
 * | storage_writer.h, storage_reader.h | hooks alone: PyTorch's storage writers and readers |
 * | storage.h, device.h, #dcp_group_operations | those who provide storages, devices, groups |
 * | shard_file.h | tools that write single shard files or rebuild metadata |
 * | run.h | a training run: saving when it is due, resuming |
 * | run_list.h, run_prune.h | finding the checkpoints of a run, and removing old ones |
 * | run_mirror.h, checkpoint_copy.h | copies of a run's checkpoints elsewhere, and of one |
 * | convert.h | converting a checkpoint into another form |
 * | packed.h | bindings to other languages |
 * | types.h | included by the others |
 *
 * Naming: `dcp_VERB` is collective or works on a path (dcp_save(), dcp_load(), dcp_verify(),
 * dcp_gather_state()); `dcp_NOUN_...` works on a handle (dcp_state_..., dcp_checkpoint_...,
 * dcp_future_...). Functions ending in `_sized` take the size of the struct that they are passed,
 * so that structs can grow; call the inline function without that ending. All-zero options are the
 * defaults.
 *
 * `dcp/dcp.hpp` is the same for C++17: types that own their handles, and exceptions.
 *
 * `dcp/cuda.h`, `dcp/mpi.h` and `dcp/nccl.h` (libdcp_cuda, libdcp_mpi, libdcp_nccl) are not
 * included here, because they include the headers of other libraries.
 */
#ifndef DCP_H
#define DCP_H

#include "dcp/async.h"
#include "dcp/checkpoint.h"
#include "dcp/checkpoint_copy.h"
#include "dcp/convert.h"
#include "dcp/device.h"
#include "dcp/environment.h"
#include "dcp/estimate.h"
#include "dcp/figures.h"
#include "dcp/group.h"
#include "dcp/load.h"
#include "dcp/load_planner.h"
#include "dcp/mesh.h"
#include "dcp/optimizer.h"
#include "dcp/packed.h"
#include "dcp/placement.h"
#include "dcp/plan_item.h"
#include "dcp/progress.h"
#include "dcp/run.h"
#include "dcp/run_list.h"
#include "dcp/run_mirror.h"
#include "dcp/run_prune.h"
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
