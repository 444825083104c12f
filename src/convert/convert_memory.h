/* SPDX-License-Identifier: BSD-3-Clause */
/* A device whose memory is the source: tensors on it are saved without being in memory as a whole,
 * as a save copies what it writes block by block. */
#ifndef CONVERT_CONVERT_MEMORY_H
#define CONVERT_CONVERT_MEMORY_H

#include "convert/convert_source.h"

struct convert_windows;

struct convert_memory {
    const struct convert_source *source;
    dcp_device_operations operations;
    uintptr_t *begins;               /* of the items, and behind the last */
    struct convert_windows *windows; /* NULL: elements are read as they are wanted */
};

dcp_status convert_memory_open(struct convert_memory *memory, const struct convert_source *source);
/* From now on tensors are read in windows: for one thread that wants all of them, one by one. */
dcp_status convert_memory_use_windows(struct convert_memory *memory);
/* All of them have been read: from now on nobody reads in the background. */
void convert_memory_stop_ahead(struct convert_memory *memory);
void convert_memory_close(struct convert_memory *memory);
/* A tensor item as a whole. */
void convert_memory_tensor(struct convert_memory *memory, const struct convert_item *item,
                           dcp_tensor *tensor);
/* The item that an address is of. */
const struct convert_item *convert_memory_item(const struct convert_memory *memory,
                                               const void *address);

#endif
