/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>

#include "cat.h"

/* A number of the text, negative ones from the end. False: there is none. */
static bool read_index(const char **text, int64_t size, int64_t *index)
{
    char *end;
    errno = 0;
    long long number = strtoll(*text, &end, 10);
    if (end == *text || errno != 0)
        return false;
    *text = end;
    *index = number < 0 ? number + size : number;
    return true;
}

static int64_t clamp(int64_t value, int64_t size)
{
    return value < 0 ? 0 : value > size ? size : value;
}

/* "2", "0:4", ":4", "2:", ":" of one dimension. */
static bool take_dimension(const char **text, struct slice *slice, int32_t d)
{
    int64_t size = slice->walk.box.global_shape[d], begin = 0, end = size;
    bool has_begin = read_index(text, size, &begin);
    if (**text == ':') {
        ++*text;
        read_index(text, size, &end);
        begin = clamp(begin, size);
        end = clamp(end, size);
    } else {
        if (!has_begin || begin < 0 || begin >= size)
            return false;
        end = begin + 1;
        slice->dropped[d] = true;
    }
    slice->walk.box.offsets[d] = begin;
    slice->walk.box.sizes[d] = end > begin ? end - begin : 0;
    return true;
}

bool slice_take(struct slice *slice, const char *text)
{
    for (int32_t d = 0; d < slice->walk.box.ndim; d++) {
        if (!take_dimension(&text, slice, d))
            return false;
        if (*text == '\0')
            return true;
        if (*text != ',')
            return false;
        text++;
    }
    return false;
}
