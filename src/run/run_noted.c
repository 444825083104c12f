/* SPDX-License-Identifier: BSD-3-Clause */
/* What notes in a run say of its checkpoints, and which of them is the best. */
#include "run/run_noted.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "run/run_mirror.h"
#include "run/run_stamp.h"

static dcp_status take_notes(const struct run_place *place, const struct run_names *names,
                             struct run_entry *entry)
{
    char pin[2 * RUN_NAME_MAX];
    struct run_made made;
    bool some = false;
    run_own_note_name(RUN_PIN, entry->name, pin);
    entry->pinned = run_names_has(names, pin);
    for (size_t i = 0; i < names->count && !some; i++)
        some = run_mirror_is_note_of(names->names[i], entry->name);
    if (!some || !entry->complete)
        return DCP_OK;
    dcp_status status = run_mirror_made(place, entry->name, &made);
    if (status != DCP_OK)
        return run_place_gives_up(status) ? status : DCP_OK;
    return run_mirror_count(place, names, entry->name, made.save_id, &entry->mirrored);
}

/* Of a run of ours, whose folder the checkpoints of the list lie in. */
static dcp_status read_notes(dcp_run_list *list, const struct run_place *place, const char *folder)
{
    struct run_names names;
    bool found;
    char *id = run_place_id(place, folder);
    if (!id)
        return DCP_ERR_NO_MEMORY;
    const struct run_place run = {place->storage, place->table, id};
    dcp_status status = run_place_list(&run, "", &names, &found);
    bool is_ours = status == DCP_OK && run_names_has(&names, RUN_OWN_FILE);
    for (size_t i = 0; i < list->count && is_ours && status == DCP_OK; i++)
        if (strcmp(list->entries[i].folder, folder) == 0)
            status = take_notes(&run, &names, &list->entries[i]);
    run_names_free(&names);
    memory_release(id);
    return status;
}

/* Of equal ones the newer. */
static dcp_status find_best(dcp_run_list *list, const struct run_place *place, const char *metric,
                            bool higher)
{
    const struct run_stamp_keys keys = {.metric = metric};
    struct run_entry *best = NULL;
    double value = 0;
    for (size_t i = 0; i < list->count; i++) {
        struct run_entry *entry = &list->entries[i];
        struct run_stamp stamp;
        if (!entry->complete || !run_is_candidate(entry))
            continue;
        dcp_status status = run_stamp_read(place, entry->path, NULL, 0, &keys, &stamp);
        if (run_place_gives_up(status))
            return status;
        if (status != DCP_OK || !stamp.has_metric)
            continue;
        if (!best || stamp.metric == value || (stamp.metric > value) == higher) {
            best = entry;
            value = stamp.metric;
        }
    }
    if (best)
        best->best = true;
    return DCP_OK;
}

dcp_status run_noted_read(dcp_run_list *list, const struct run_place *place,
                          const dcp_run_list_options *options)
{
    for (size_t i = 0; i < list->count; i++) {
        size_t first = 0;
        while (list->entries[first].folder != list->entries[i].folder)
            first++;
        if (first == i)
            RETURN_IF_ERROR(read_notes(list, place, list->entries[i].folder));
    }
    return options->metric ? find_best(list, place, options->metric, options->higher_is_better)
                           : DCP_OK;
}
