/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "base/error.h"
#include "state/flatten.h"

static bool is_below(const struct flat_entry *entry, const struct flat_stateful *stateful)
{
    if (entry->path_length < stateful->path_length)
        return false;
    for (size_t i = 0; i < stateful->path_length; i++) {
        const dcp_path_part *a = &entry->path[i], *b = &stateful->path[i];
        if (!a->key != !b->key)
            return false;
        if (a->key ? strcmp(a->key, b->key) != 0 : a->position != b->position)
            return false;
    }
    return true;
}

/* There is something below it, and all of it is left out. */
static bool is_left_out(const struct flat_state *flat, const struct flat_stateful *stateful)
{
    size_t i = stateful->first_entry;
    while (i < flat->count && flat->entries[i].left_out && is_below(&flat->entries[i], stateful))
        i++;
    bool ended = i == flat->count || !is_below(&flat->entries[i], stateful);
    return i > stateful->first_entry && ended;
}

dcp_status flatten_notify(const struct flat_state *flat)
{
    for (size_t i = 0; i < flat->stateful_count; i++) {
        const struct flat_stateful *stateful = &flat->statefuls[i];
        if (!stateful->stateful->load_state_dict || is_left_out(flat, stateful))
            continue;
        error_clear();
        dcp_status status = error_checked(
            stateful->stateful->load_state_dict(stateful->stateful->context, stateful->dict),
            "load_state_dict");
        if (status != DCP_OK)
            return error_prefix(status, "%s", stateful->name);
    }
    return DCP_OK;
}
