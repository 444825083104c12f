/* SPDX-License-Identifier: BSD-3-Clause */
/* A stand-in for a device, for machines that have none. Its memory is addresses that nobody may
 * touch: they are mapped without access, so that the program crashes where it takes device memory
 * for its own. What is "on the device" lies elsewhere, and only the device's own copies get there.
 * Each of them must stay inside of one block, on the device that the block is of. */
#ifndef DEVICE_STAND_IN_H
#define DEVICE_STAND_IN_H

#include "dcp/device.h"

dcp_device stand_in(int32_t index);

/* A block that the test owns, filled from host bytes unless they are NULL. */
void *stand_in_new(int32_t index, const void *bytes, size_t size);
void stand_in_free(void *memory);
/* What lies on the device at an address; borrowed, for looking and changing behind the library's
 * back. */
unsigned char *stand_in_bytes(void *memory);
/* The block that an address is in. */
void *stand_in_block(const void *memory);

struct stand_in_figures {
    long copies; /* both ways, since the last reset */
    long rows;
    size_t largest; /* bytes of one copy */
    long blocks;    /* allocated now */
};

struct stand_in_figures stand_in_figures(void);
/* Figures begin anew, and the n-th copy or allocation from here on fails (0: none). */
void stand_in_reset(long failing_copy, long failing_allocation);

#endif
