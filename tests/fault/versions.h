/* SPDX-License-Identifier: BSD-3-Clause */
/* Small checkpoints over a simulated file system, of which a number tells every byte: what the
 * loops over faults save, and what they find afterwards. */
#ifndef FAULT_VERSIONS_H
#define FAULT_VERSIONS_H

#include "dcp.h"
#include "fault/simulated_file_system.h"

#define VERSIONS_PATH "run/c"

/* Found instead of a version. */
#define VERSION_NONE    0  /* there is no checkpoint */
#define VERSION_CORRUPT -1 /* there is something, and it is no version: always a bug */

/* How the saves that follow write: flags of dcp_io. */
void version_save_by(uint32_t io);
/* How loads read. */
void version_load_by(uint32_t io);
/* Columns of the matrix of six rows of float32; 0: a few. */
void version_widen(int64_t matrix_columns);
/* Whether they compress. */
void version_compress(bool compress);
/* Whether they go on behind the caller's back, and who commits. */
enum version_course { VERSION_AT_ONCE, VERSION_IN_BACKGROUND, VERSION_COMMITS_WHEN_WAITED };
void version_save_course(enum version_course course);
/* What takes part in them: nobody; every hook that there is; a storage writer that makes files of
 * its own (saves); a storage of one's own. */
enum version_hooked {
    VERSION_WITHOUT_HOOKS,
    VERSION_BY_HOOKS,
    VERSION_OWN_FILES,
    VERSION_OWN_STORAGE
};
void version_save_hooked(enum version_hooked how);
void version_load_hooked(enum version_hooked how);
/* Whether each rank gives an extra file, and rank 0 of odd versions another one. What is found then
 * has those of its version, and no others. */
void version_give_files(bool give);
/* How many a version has that was saved on so many ranks. */
int version_given_files(int version, int size);
/* Saves a version over any that is there. On ranks of a thread group if size is more than 1: all
 * must end alike. */
dcp_status version_save(struct simulated_file_system *fs, int version, int size);
/* Loads, compares every byte, and tells which version it is; status: how the load ended. */
int version_load(struct simulated_file_system *fs, dcp_status *status);
/* The same on ranks of a thread group, which must all end alike, with the same message. */
int version_load_ranks(struct simulated_file_system *fs, int size, dcp_status *status);
/* As version_load(), where only a whole checkpoint or none can be. */
int version_find(struct simulated_file_system *fs);
/* Number of shard files, extra files and temporary files in the directory. */
int version_count_files(struct simulated_file_system *fs);

#endif
