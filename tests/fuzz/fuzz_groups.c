/* SPDX-License-Identifier: BSD-3-Clause */
/* metadata.pkl of torch_checkpointing: what it says of items, files and the parts of ranks, none of
 * which is there. */
#include <stdlib.h>
#include <string.h>

#include "convert/source_groups.h"
#include "fuzz_target.h"

enum { RANKS = 3 };

static dcp_status find(void *context, size_t rank, size_t *file, size_t *entry, bool *found)
{
    (void)context;
    *file = rank;
    *entry = 0;
    *found = false;
    return DCP_OK;
}

static void look_at(struct groups *groups, const struct groups_item *item,
                    struct source_parts *parts)
{
    for (size_t rank = 0; rank < RANKS; rank++) {
        const char *name;
        if (groups_file(groups, item, rank, &name) == DCP_OK && name &&
            (*name == '/' || strncmp(name, "../", 3) == 0))
            abort();
    }
    for (size_t i = 0; i < item->group_count; i++) {
        const dcp_path_part path[] = {{.key = "item"}, {.position = (int64_t)parts->count}};
        int64_t shape[DCP_MAX_DIMS];
        int32_t ndim;
        if (groups_shape(item->groups[i], shape, &ndim) == DCP_OK &&
            source_parts_tensor(parts, path, 2, DCP_U8, ndim, shape) == DCP_OK &&
            groups_add(item->groups[i], parts, find, NULL) == DCP_OK &&
            source_parts_end(parts) == DCP_OK && !source_parts_are_complete(parts))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct groups groups;
    struct source_parts parts;
    struct arena arena;
    arena_init(&arena, 0);
    source_parts_init(&parts, &arena);
    if (groups_decode(&groups, data, size, &arena) == DCP_OK)
        for (size_t i = 0; i < groups.count; i++)
            look_at(&groups, &groups.items[i], &parts);
    groups_free(&groups);
    source_parts_free(&parts);
    arena_free(&arena);
    return 0;
}
