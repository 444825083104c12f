/* SPDX-License-Identifier: BSD-3-Clause */
/* The ways in which shard files are written: what tests of writing run on, one by one. */
#ifndef FAULT_IO_WAYS_H
#define FAULT_IO_WAYS_H

#include <stdint.h>

#define IO_WAY_COUNT 5

/* Flags of dcp_io. The first one leaves the choice. A real system may not have the others:
 * DCP_ERR_UNSUPPORTED. */
extern const uint32_t io_ways[IO_WAY_COUNT];

#endif
