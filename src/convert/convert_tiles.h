/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of tensors that are costly to read in small pieces, such as columns of a matrix: they are
 * read a tile at a time, and the last ones are kept, as targets ask for what is next to it. */
#ifndef CONVERT_CONVERT_TILES_H
#define CONVERT_CONVERT_TILES_H

#include <stddef.h>
#include <stdint.h>

#include "dcp/status.h"

/* Most bytes of a tile. */
#define CONVERT_TILE ((size_t)4 << 20)

struct convert_tiles;
struct convert_tile;

/* Reads a tile. */
typedef dcp_status convert_tile_load(void *context, int64_t number, unsigned char *bytes);

/* With places for so many tiles. */
dcp_status convert_tiles_new(size_t count, struct convert_tiles **tiles);
void convert_tiles_free(struct convert_tiles *tiles); /* NULL is allowed */
/* The tile of this number; whoever wants one that another thread reads waits for it. *tile:
 * convert_tiles_give() when its bytes are not needed any more; NULL: all places are in use, and
 * nothing was read. */
dcp_status convert_tiles_take(struct convert_tiles *tiles, const void *of, int64_t number,
                              convert_tile_load *load, void *context, struct convert_tile **tile,
                              const unsigned char **bytes);
void convert_tiles_give(struct convert_tiles *tiles, struct convert_tile *tile);

#endif
