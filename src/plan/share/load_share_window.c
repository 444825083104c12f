/* SPDX-License-Identifier: BSD-3-Clause */
/* What a reader's runs look like on their way: window after window. */
#include "base/error.h"
#include "base/memory.h"
#include "plan/share/load_share_assign.h"

/* Where elements of any dtype are aligned; and windows are no smaller, so that the largest element
 * finds its place. */
enum { SEGMENT_ALIGNMENT = 16, WINDOW_MIN = 256 };

/* From here on a segment has a window of its own: it may go to its place without a copy. */
#define LARGE_SEGMENT ((uint64_t)1 << 20)

struct share_cursor share_cursor_start(const struct load_share *share, uint32_t reader)
{
    return (struct share_cursor){.run = share->first[reader]};
}

/* Where the next segment of a run ends, of which not all has room: parts are about equal, so that
 * each is read in large pieces. */
static int64_t segment_end(const struct load_share *share, const struct metadata *metadata,
                           const struct share_run *run, int64_t from, int64_t room)
{
    int64_t rest = run->end - from, parts = (rest - 1) / room + 1;
    return share_choose_end(metadata, &share->regions[run->region], from, rest / parts, room);
}

bool share_window_next(const struct load_share *share, const struct metadata *metadata,
                       struct share_window *window, struct share_cursor *cursor,
                       struct share_segment *segment)
{
    if (cursor->run == share->run_count)
        return false;
    const struct share_run *run = &share->runs[cursor->run];
    const struct share_region *region = &share->regions[run->region];
    if (window->full ||
        (window->begun &&
         (window->set != region->set || !share_read_together(share, metadata, window->run, run))))
        return false;
    size_t size = share_element_size(&metadata->entries[region->entry]);
    size_t place = (window->bytes + SEGMENT_ALIGNMENT - 1) / SEGMENT_ALIGNMENT * SEGMENT_ALIGNMENT;
    if (place > share->window || share->window - place < size)
        return false;
    int64_t room = (int64_t)((share->window - place) / size);
    int64_t from = cursor->element > run->from ? cursor->element : run->from, end = run->end;
    if (end - from > room) {
        if (place > share->window / 2)
            return false;
        end = segment_end(share, metadata, run, from, room);
    }
    bool large = (uint64_t)(end - from) * size >= LARGE_SEGMENT;
    if (large && window->begun)
        return false;
    *segment = (struct share_segment){run, from, end, place};
    window->begun = true;
    window->run = run;
    window->full = large;
    window->set = region->set;
    window->bytes = place + (size_t)(end - from) * size;
    cursor->element = end;
    if (end == run->end) {
        cursor->run = share->next[cursor->run];
        cursor->element = 0;
    }
    return true;
}

/* Runs by set: those of set s are runs[starts[s]] to runs[starts[s + 1] - 1]. */
struct runs_by_set {
    size_t *starts;
    uint32_t *runs;
};

static dcp_status sort_by_set(const struct load_share *share, struct runs_by_set *by_set)
{
    by_set->starts = memory_allocate_zeroed(share->set_count + 2, sizeof *by_set->starts);
    by_set->runs = memory_allocate_array(share->run_count, sizeof *by_set->runs);
    if (by_set->starts == NULL || by_set->runs == NULL)
        return error_no_memory(share->run_count * sizeof *by_set->runs, "senders and receivers");
    for (size_t at = 0; at < share->run_count; at++)
        by_set->starts[share->regions[share->runs[at].region].set + 2]++;
    for (size_t set = 0; set < share->set_count; set++)
        by_set->starts[set + 2] += by_set->starts[set + 1];
    for (uint32_t at = 0; at < share->run_count; at++)
        by_set->runs[by_set->starts[share->regions[share->runs[at].region].set + 1]++] = at;
    return DCP_OK;
}

/* Ranks that some rank of a class gets something from. senders: marks of the ranks that have been
 * counted for the class. */
static uint32_t count_senders(const struct load_share *share, uint32_t class,
                              const struct runs_by_set *by_set, uint32_t *senders)
{
    uint32_t count = 0, rank = 0;
    while (share->class_of[rank] != class)
        rank++;
    for (uint32_t set = 0; set < share->set_count; set++) {
        size_t at = by_set->starts[set], end = by_set->starts[set + 1];
        if (at == end || !load_share_wants(share, set, rank))
            continue;
        for (; at < end; at++) {
            uint32_t reader = share->runs[by_set->runs[at]].reader;
            count += senders[reader] != class + 1;
            senders[reader] = class + 1;
        }
    }
    return count;
}

/* Most ranks that any rank gets something from. */
static dcp_status count_most_senders(const struct load_share *share, uint32_t *most)
{
    struct runs_by_set by_set = {0};
    uint32_t *senders = memory_allocate_zeroed(share->rank_count, sizeof *senders);
    dcp_status status = sort_by_set(share, &by_set);
    *most = 1;
    if (status == DCP_OK && senders == NULL)
        status = error_no_memory(share->rank_count * sizeof *senders, "senders and receivers");
    for (uint32_t class = 0; class < share->class_count && status == DCP_OK; class ++) {
        uint32_t count = count_senders(share, class, &by_set, senders);
        *most = count > *most ? count : *most;
    }
    memory_release(senders);
    memory_release(by_set.starts);
    memory_release(by_set.runs);
    return status;
}

/* In a window: with what aligns the next one. */
static uint64_t run_bytes(const struct load_share *share, const struct metadata *metadata,
                          const struct share_run *run)
{
    const struct metadata_entry *entry = &metadata->entries[share->regions[run->region].entry];
    return (uint64_t)(run->end - run->from) * share_element_size(entry) + SEGMENT_ALIGNMENT - 1;
}

/* The most bytes that a rank has to send to one set of ranks before it sends to another. */
static uint64_t longest_stretch(const struct load_share *share, const struct metadata *metadata,
                                uint32_t rank)
{
    uint64_t longest = 0, bytes = 0;
    uint32_t set = 0;
    for (uint32_t at = share->first[rank]; at < share->run_count; at = share->next[at]) {
        const struct share_run *run = &share->runs[at];
        if (share->regions[run->region].set != set)
            bytes = 0;
        set = share->regions[run->region].set;
        bytes += run_bytes(share, metadata, run);
        longest = bytes > longest ? bytes : longest;
    }
    return longest;
}

/* As large as memory allows, but no larger than what can be sent at once. */
dcp_status load_share_choose_window(struct load_share *share, const struct metadata *metadata,
                                    const struct share_rules *rules)
{
    uint64_t longest = 0;
    uint32_t senders;
    RETURN_IF_ERROR(count_most_senders(share, &senders));
    for (uint32_t rank = 0; rank < share->rank_count; rank++) {
        uint64_t bytes = longest_stretch(share, metadata, rank);
        longest = bytes > longest ? bytes : longest;
    }
    size_t window = rules->receive_bytes / senders;
    window = window < longest ? window : (size_t)longest + 15;
    window = window < rules->largest_window ? window : rules->largest_window;
    window = window / 16 * 16;
    share->window = window > WINDOW_MIN ? window : WINDOW_MIN;
    return DCP_OK;
}
