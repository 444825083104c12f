/* SPDX-License-Identifier: BSD-3-Clause */
#include "fault/io_ways.h"

#include "dcp/environment.h"

const uint32_t io_ways[IO_WAY_COUNT] = {
    DCP_IO_AUTO,
    DCP_IO_RING | DCP_IO_DIRECT,
    DCP_IO_RING | DCP_IO_BUFFERED,
    DCP_IO_POOL | DCP_IO_DIRECT,
    DCP_IO_POOL | DCP_IO_BUFFERED,
};
