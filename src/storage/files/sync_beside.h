/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for the disk to keep something small, beside other work.
 *
 * How long that takes is up to the device, which empties its cache: from microseconds to tens of
 * milliseconds. A save waits several times, so that small checkpoints take as long as all of that.
 * Where it is long, a thread waits; where it is not, that would take longer. What the last ones
 * took decides. */
#ifndef STORAGE_FILES_SYNC_BESIDE_H
#define STORAGE_FILES_SYNC_BESIDE_H

#include "base/thread.h"
#include "storage/files/file.h"

/* Must stay where it is from its start to its end. */
struct sync_beside {
    const struct file_ops *ops;
    int descriptor; /* which stays open until the end */
    bool of_directory;
    bool runs; /* on a thread */
    int result;
    struct thread thread;
};

/* Whether to start one is worth it. */
bool sync_beside_pays(void);
/* Begins to wait, if that is worth it. */
void sync_beside_start(struct sync_beside *sync, const struct file_ops *ops, int descriptor,
                       bool of_directory);
/* Waits, also if nothing was begun. An errno value. */
int sync_beside_end(struct sync_beside *sync);
/* Ends it if it was begun, without a result. */
void sync_beside_drop(struct sync_beside *sync);

#endif
