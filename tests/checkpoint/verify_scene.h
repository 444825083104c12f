/* SPDX-License-Identifier: BSD-3-Clause */
/* A checkpoint of one file on a simulated disk, which is damaged and checked. */
#ifndef TESTS_CHECKPOINT_VERIFY_SCENE_H
#define TESTS_CHECKPOINT_VERIFY_SCENE_H

#include <stdbool.h>
#include <stdint.h>

#include "dcp.h"
#include "fault/simulated_file_system.h"

#define VERIFY_SCENE       "run/scene" /* a checkpoint, or a file that is one */
#define VERIFY_SCENE_SHARD VERIFY_SCENE "/__0_0.distcp"

/* Files as PyTorch writes them: no footers, an id that promises none, and no second copy of the
 * metadata. */
void verify_scene_make_bare(struct simulated_file_system *fs);
/* Puts a file on the disk, in a directory of its own. */
void verify_scene_put(struct simulated_file_system *fs, const void *bytes, size_t size);
/* Changes a bit of a file. */
void verify_scene_damage(struct simulated_file_system *fs, const char *path, uint64_t at);

struct scene_faults {
    uint64_t blocks, records;
};

/* Counts faults of blocks and of records. context: of type scene_faults. */
void verify_scene_fault(void *context, const char *file, uint64_t offset, const char *name,
                        const char *fault);
/* Requests cost time from now on, and what they read goes into one place. */
void verify_scene_make_costly(dcp_storage *storage);
#define VERIFY_SCENE_REQUEST ((size_t)3 << 19) /* bytes of one */
/* Has each operation fail, or one of TRIAL_STEP, once or from then on; fails the test if a check
 * does not notice. */
void verify_scene_fail_each(struct simulated_file_system *fs, const dcp_storage *storage,
                            bool from_then_on);
/* The same of allocations: that is no fault, and an error unless it was for reading ahead. */
void verify_scene_fail_each_allocation(const dcp_storage *storage);

#endif
