/* SPDX-License-Identifier: BSD-3-Clause */
/* What memory transfers use, on their way to file operations below: a caller's, or buffers. */
#ifndef FAULT_TRANSFER_WATCH_H
#define FAULT_TRANSFER_WATCH_H

#include "storage/files/file.h"

/* What one kind of transfers came to. */
struct transfer_count {
    long count;
    long callers;        /* from or to the caller's memory */
    size_t largest;      /* bytes */
    uintptr_t addresses; /* all of them, joined bit by bit */
    uintptr_t lowest;
};

/* File operations over others, for one watch at a time: counting begins anew. */
const struct file_ops *transfer_watch(const struct file_ops *below);
/* What is the caller's memory from here on. */
void transfer_watch_memory(const void *memory, size_t size);
/* Around the page cache, or through it. */
struct transfer_count transfer_watch_count(bool direct);
/* Transfers that were under way in one ring at a time, at most. */
long transfer_watch_at_once(void);
/* How often nothing was under way any more in a ring. */
long transfer_watch_pauses(void);
/* The same of all rings together. */
long transfer_watch_idle(void);
/* Rings by which something was transferred. */
int transfer_watch_rings(void);
/* Reads through the page cache behind which, in the same file or in one of which none had been read
 * before, a direct transfer had been begun. */
long transfer_watch_overtaken(void);
/* Files of which something was announced before anything was read. */
long transfer_watch_foreseen(void);
/* Bytes of the largest range that was announced, to be read into the page cache. */
uint64_t transfer_watch_announced(void);

#endif
