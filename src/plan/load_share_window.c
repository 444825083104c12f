/* SPDX-License-Identifier: BSD-3-Clause */
/* What a reader's runs look like on their way: window after window. */
#include "plan/load_share.h"

/* Where elements of any dtype are aligned. */
enum { SEGMENT_ALIGNMENT = 16 };

struct share_cursor share_cursor_start(const struct load_share *share, uint32_t reader)
{
    return (struct share_cursor){.run = share->first[reader]};
}

bool share_window_next(const struct load_share *share, const struct metadata *metadata,
                       struct share_window *window, struct share_cursor *cursor,
                       struct share_segment *segment)
{
    if (cursor->run == share->run_count)
        return false;
    const struct share_run *run = &share->runs[cursor->run];
    const struct share_atom *atom = &share->atoms[run->atom];
    if (window->begun && window->set != atom->set)
        return false;
    size_t size = dcp_dtype_size(metadata->entries[atom->entry].dtype);
    size_t place = (window->bytes + SEGMENT_ALIGNMENT - 1) / SEGMENT_ALIGNMENT * SEGMENT_ALIGNMENT;
    if (place > share->window || share->window - place < size)
        return false;
    int64_t room = (int64_t)((share->window - place) / size);
    int64_t from = cursor->element > run->from ? cursor->element : run->from;
    int64_t end = run->end - from < room ? run->end : from + room;
    *segment = (struct share_segment){run, from, end, place};
    window->begun = true;
    window->set = atom->set;
    window->bytes = place + (size_t)(end - from) * size;
    cursor->element = end;
    if (end == run->end) {
        cursor->run = share->next[cursor->run];
        cursor->element = 0;
    }
    return true;
}
