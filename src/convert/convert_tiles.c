/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/convert_tiles.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/memory.h"

struct convert_tile {
    const void *of; /* NULL: nothing is in it */
    int64_t number;
    unsigned char *bytes; /* CONVERT_TILE of them, when it is used first */
    size_t users;
    uint64_t used; /* when it was taken last */
    bool loading;
};

struct convert_tiles {
    uint64_t clock;
    pthread_mutex_t mutex;
    pthread_cond_t loaded;
    size_t count;
    struct convert_tile tiles[];
};

dcp_status convert_tiles_new(size_t count, struct convert_tiles **tiles)
{
    size_t size = sizeof **tiles + count * sizeof *(*tiles)->tiles;
    *tiles = memory_allocate_zeroed(1, size);
    if (!*tiles)
        return error_no_memory(size, "places for tiles");
    (*tiles)->count = count;
    pthread_mutex_init(&(*tiles)->mutex, NULL);
    pthread_cond_init(&(*tiles)->loaded, NULL);
    return DCP_OK;
}

void convert_tiles_free(struct convert_tiles *tiles)
{
    if (!tiles)
        return;
    for (size_t i = 0; i < tiles->count; i++)
        memory_release(tiles->tiles[i].bytes);
    pthread_mutex_destroy(&tiles->mutex);
    pthread_cond_destroy(&tiles->loaded);
    memory_release(tiles);
}

/* The place that has the tile, or the one that was not used for longest. NULL: all are in use. */
static struct convert_tile *find_place(struct convert_tiles *tiles, const void *of, int64_t number)
{
    struct convert_tile *oldest = NULL;
    for (size_t i = 0; i < tiles->count; i++) {
        struct convert_tile *tile = &tiles->tiles[i];
        if (tile->of == of && tile->number == number)
            return tile;
        if (tile->users == 0 && (!oldest || tile->used < oldest->used))
            oldest = tile;
    }
    return oldest;
}

static dcp_status fill(struct convert_tile *tile, convert_tile_load *load, void *context,
                       int64_t number)
{
    if (!tile->bytes)
        tile->bytes = memory_allocate(CONVERT_TILE);
    return tile->bytes ? load(context, number, tile->bytes)
                       : error_no_memory(CONVERT_TILE, "a tile");
}

/* Called with the mutex, which is free while the tile is read. */
static dcp_status load_tile(struct convert_tiles *tiles, struct convert_tile *tile, const void *of,
                            int64_t number, convert_tile_load *load, void *context)
{
    tile->of = of;
    tile->number = number;
    tile->loading = true;
    pthread_mutex_unlock(&tiles->mutex);
    dcp_status status = fill(tile, load, context, number);
    pthread_mutex_lock(&tiles->mutex);
    tile->loading = false;
    if (status != DCP_OK)
        tile->of = NULL;
    pthread_cond_broadcast(&tiles->loaded);
    return status;
}

dcp_status convert_tiles_take(struct convert_tiles *tiles, const void *of, int64_t number,
                              convert_tile_load *load, void *context, struct convert_tile **tile,
                              const unsigned char **bytes)
{
    dcp_status status = DCP_OK;
    pthread_mutex_lock(&tiles->mutex);
    struct convert_tile *place = find_place(tiles, of, number);
    if (place) {
        place->users++;
        place->used = ++tiles->clock;
        while (place->loading)
            pthread_cond_wait(&tiles->loaded, &tiles->mutex);
        /* Whoever was reading it may have failed: then the first that comes reads it again. */
        if (place->of != of || place->number != number)
            status = load_tile(tiles, place, of, number, load, context);
        if (status != DCP_OK)
            place->users--;
    }
    pthread_mutex_unlock(&tiles->mutex);
    *tile = status == DCP_OK ? place : NULL;
    *bytes = place ? place->bytes : NULL;
    return status;
}

void convert_tiles_give(struct convert_tiles *tiles, struct convert_tile *tile)
{
    pthread_mutex_lock(&tiles->mutex);
    tile->users--;
    pthread_mutex_unlock(&tiles->mutex);
}
