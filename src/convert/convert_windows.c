/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/convert_windows.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "convert/convert_blocks.h"
#include "convert/convert_tiles.h"

/* Tensors that share a window begin at multiples. */
#define ALIGNMENT ((uint64_t)64)
/* That of the caller, that which is read meanwhile, and one before. */
#define TILES 3

/* A part of a large tensor, or all of some small ones. */
struct window {
    size_t group;
    int64_t number; /* of the parts, if the group is one tensor */
};

struct convert_windows {
    const struct convert_source *source;
    struct convert_tiles *tiles;
    size_t *starts; /* the first item of each group, and behind the last */
    size_t group_count;
    /* Reads ahead. */
    struct thread thread;
    bool started, ending;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct window latest; /* that was taken */
    bool waiting;         /* what follows it is to be read */
    int64_t *taken;       /* of each group, how many windows from the first on */
};

/* ---- which items share a window ---- */

static uint64_t padded(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static bool is_shared(const struct convert_source *source, size_t item)
{
    return source->items[item].bytes < CONVERT_GROUPED_SIZE &&
           convert_is_plain(source, &source->items[item]);
}

static dcp_status make_groups(struct convert_windows *windows)
{
    const struct convert_source *source = windows->source;
    uint64_t bytes = 0; /* of the latest group */
    size_t first = 0;
    bool open = false; /* others may join it */
    windows->starts = memory_allocate_array(source->count + 1, sizeof *windows->starts);
    if (!windows->starts)
        return error_no_memory((source->count + 1) * sizeof *windows->starts, "tensors to read");
    for (size_t i = 0; i < source->count; i++) {
        bool shared = is_shared(source, i);
        uint64_t more = shared ? padded(source->items[i].bytes) : 0;
        if (!shared || !open || more > CONVERT_TILE - bytes || i - first == CONVERT_GROUP_MOST) {
            windows->starts[windows->group_count++] = first = i;
            bytes = 0;
        }
        bytes += more;
        open = shared;
    }
    windows->starts[windows->group_count] = source->count;
    windows->taken = memory_allocate_zeroed(windows->group_count + 1, sizeof *windows->taken);
    return windows->taken ? DCP_OK
                          : error_no_memory((windows->group_count + 1) * sizeof *windows->taken,
                                            "tensors to read");
}

static const struct convert_item *first_item(const struct convert_windows *windows, size_t group)
{
    return &windows->source->items[windows->starts[group]];
}

static size_t item_count(const struct convert_windows *windows, size_t group)
{
    return windows->starts[group + 1] - windows->starts[group];
}

/* To the window behind one. False: there is none. */
static bool window_next(const struct convert_windows *windows, struct window *window)
{
    uint64_t bytes = first_item(windows, window->group)->bytes;
    bool within = item_count(windows, window->group) == 1 && bytes > 0 &&
                  (bytes - 1) / CONVERT_TILE > (uint64_t)window->number;
    if (!within && window->group + 1 == windows->group_count)
        return false;
    *window = within ? (struct window){window->group, window->number + 1}
                     : (struct window){window->group + 1, 0};
    return first_item(windows, window->group)->is_tensor;
}

/* ---- reading ---- */

struct loading {
    const struct convert_windows *windows;
    size_t group;
};

static dcp_status load_shared(const struct convert_windows *windows, size_t group,
                              unsigned char *bytes)
{
    struct convert_whole wholes[CONVERT_GROUP_MOST];
    const struct convert_item *items = first_item(windows, group);
    size_t count = 0;
    for (size_t i = 0; i < item_count(windows, group); i++) {
        if (items[i].bytes > 0)
            wholes[count++] = (struct convert_whole){&items[i], bytes};
        bytes += padded(items[i].bytes);
    }
    return count > 0 ? convert_read_wholes(windows->source, wholes, count) : DCP_OK;
}

static dcp_status load_window(void *context, int64_t number, unsigned char *bytes)
{
    const struct loading *loading = context;
    const struct convert_item *item = first_item(loading->windows, loading->group);
    if (item_count(loading->windows, loading->group) > 1)
        return load_shared(loading->windows, loading->group, bytes);
    int64_t element = (int64_t)dcp_dtype_size(item->dtype), most = (int64_t)CONVERT_TILE / element;
    int64_t left = (int64_t)item->bytes / element - number * most;
    return convert_read(loading->windows->source, item, number * most, left < most ? left : most,
                        bytes);
}

static dcp_status take_window(struct convert_windows *windows, struct window window,
                              struct convert_tile **tile, const unsigned char **bytes)
{
    struct loading loading = {windows, window.group};
    return convert_tiles_take(windows->tiles, first_item(windows, window.group), window.number,
                              load_window, &loading, tile, bytes);
}

/* To the window behind one, which nobody has taken before. False: there is none. */
static bool window_next_untaken(const struct convert_windows *windows, struct window *window)
{
    return window_next(windows, window) && window->number >= windows->taken[window->group];
}

/* What cannot be read ahead is read, and fails, at its turn. */
static void read_ahead(struct convert_windows *windows, struct window window)
{
    struct convert_tile *tile;
    const unsigned char *bytes;
    if (take_window(windows, window, &tile, &bytes) != DCP_OK)
        error_clear();
    else if (tile)
        convert_tiles_give(windows->tiles, tile);
}

static void *run_ahead(void *argument)
{
    struct convert_windows *windows = argument;
    pthread_mutex_lock(&windows->mutex);
    while (!windows->ending) {
        if (!windows->waiting) {
            pthread_cond_wait(&windows->changed, &windows->mutex);
            continue;
        }
        struct window window = windows->latest;
        windows->waiting = false;
        if (!window_next_untaken(windows, &window))
            continue;
        pthread_mutex_unlock(&windows->mutex);
        read_ahead(windows, window);
        pthread_mutex_lock(&windows->mutex);
    }
    pthread_mutex_unlock(&windows->mutex);
    return NULL;
}

static void announce(struct convert_windows *windows, struct window taken)
{
    pthread_mutex_lock(&windows->mutex);
    if (windows->latest.group != taken.group || windows->latest.number != taken.number) {
        windows->latest = taken;
        windows->waiting = true;
        if (windows->taken[taken.group] <= taken.number)
            windows->taken[taken.group] = taken.number + 1;
        pthread_cond_signal(&windows->changed);
    }
    pthread_mutex_unlock(&windows->mutex);
}

/* Bytes of an item that lie in one window. */
static dcp_status read_window(struct convert_windows *windows, size_t group,
                              const struct convert_item *item, uint64_t begin, size_t size,
                              unsigned char *to)
{
    const size_t element = dcp_dtype_size(item->dtype);
    const struct window window = {group, (int64_t)(begin / CONVERT_TILE)};
    const unsigned char *bytes;
    struct convert_tile *tile;
    uint64_t place = begin % CONVERT_TILE;
    for (const struct convert_item *before = first_item(windows, group); before < item; before++)
        place += padded(before->bytes);
    RETURN_IF_ERROR(take_window(windows, window, &tile, &bytes));
    announce(windows, window);
    if (!tile)
        return convert_read(windows->source, item, (int64_t)(begin / element),
                            (int64_t)(size / element), to);
    memcpy(to, bytes + place, size);
    convert_tiles_give(windows->tiles, tile);
    return DCP_OK;
}

dcp_status convert_windows_read(struct convert_windows *windows, const struct convert_item *item,
                                int64_t first, int64_t count, void *elements)
{
    size_t index = (size_t)(item - windows->source->items);
    size_t group = convert_find_last(windows->starts, windows->group_count, index);
    const uint64_t element = dcp_dtype_size(item->dtype);
    uint64_t begin = (uint64_t)first * element, end = begin + (uint64_t)count * element;
    unsigned char *to = elements;
    while (begin < end) {
        uint64_t room = CONVERT_TILE - begin % CONVERT_TILE, left = end - begin;
        size_t size = (size_t)(left < room ? left : room);
        RETURN_IF_ERROR(read_window(windows, group, item, begin, size, to));
        begin += size;
        to += size;
    }
    return DCP_OK;
}

/* ---- opening ---- */

dcp_status convert_windows_new(const struct convert_source *source, bool ahead,
                               struct convert_windows **windows)
{
    struct convert_windows *made = memory_allocate_zeroed(1, sizeof *made);
    *windows = made;
    if (!made)
        return error_no_memory(sizeof *made, "windows of a source");
    made->source = source;
    made->latest.group = SIZE_MAX;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->changed, NULL);
    dcp_status status = convert_tiles_new(TILES, &made->tiles);
    if (status == DCP_OK)
        status = make_groups(made);
    /* Without a thread windows are read at their turn. */
    if (status == DCP_OK && ahead)
        made->started = thread_start(&made->thread, run_ahead, made) == 0;
    if (status != DCP_OK) {
        convert_windows_free(made);
        *windows = NULL;
    }
    return status;
}

void convert_windows_stop_ahead(struct convert_windows *windows)
{
    pthread_mutex_lock(&windows->mutex);
    windows->ending = true;
    pthread_cond_signal(&windows->changed);
    pthread_mutex_unlock(&windows->mutex);
    if (windows->started)
        thread_join(&windows->thread);
    windows->started = false;
}

void convert_windows_free(struct convert_windows *windows)
{
    if (!windows)
        return;
    convert_windows_stop_ahead(windows);
    pthread_mutex_destroy(&windows->mutex);
    pthread_cond_destroy(&windows->changed);
    convert_tiles_free(windows->tiles);
    memory_release(windows->starts);
    memory_release(windows->taken);
    memory_release(windows);
}
