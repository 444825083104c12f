/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/run_remove.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "run/run_contents.h"

enum { DEPTH_MAX = 16, PATTERN_ROOM = 512 };

/* Something else may have removed it. */
static dcp_status remove_file(const struct run_place *place, const char *folder, const char *name)
{
    dcp_status status = run_place_remove(place, folder, name);
    return status == DCP_ERR_NOT_FOUND ? DCP_OK : status;
}

/* Whether a path is a folder, and no link to one. */
static dcp_status is_own_folder(const struct run_place *place, const char *path, bool *yes)
{
    struct run_names names;
    void *directory;
    char *id = run_place_id(place, path);
    *yes = false;
    if (!id)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = run_place_open(place, id, DCP_OPEN_NO_LINK, &directory);
    if (status == DCP_OK) {
        run_place_close(place, directory);
        status = run_place_list(place, path, &names, yes);
        run_names_free(&names);
    }
    memory_release(id);
    return run_place_gives_up(status) ? status : DCP_OK;
}

/* ---- what makes a checkpoint of it ---- */

/* path: in the checkpoint. */
static bool is_commit(const struct run_layout *layout, const char *path)
{
    for (const struct run_need *need = layout->needs; need->kind != RUN_NEED_NONE; need++)
        if (need->kind == RUN_NEED_JSON && !need->beside && !need->optional &&
            strcmp(need->path, path) == 0)
            return true;
    return false;
}

static dcp_status remove_commits(const struct run_place *place, const struct run_entry *entry,
                                 const char *folder, bool deeper);

/* One name of a folder of it. deeper: in folders as well. */
static dcp_status remove_commit(const struct run_place *place, const struct run_entry *entry,
                                const char *folder, const char *name, bool deeper)
{
    const struct run_contents at = {.place = place, .path = folder};
    bool is_folder = false;
    char *path = run_contents_path(&at, name);
    if (!path)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = deeper ? is_own_folder(place, path, &is_folder) : DCP_OK;
    if (status == DCP_OK && is_folder)
        status = remove_commits(place, entry, path, false);
    else if (status == DCP_OK && (strcmp(name, ".metadata") == 0 ||
                                  is_commit(entry->layout, path + strlen(entry->path) + 1)))
        status = remove_file(place, folder, name);
    memory_release(path);
    return status;
}

static dcp_status remove_commits(const struct run_place *place, const struct run_entry *entry,
                                 const char *folder, bool deeper)
{
    struct run_names names;
    bool found;
    dcp_status status = run_place_list(place, folder, &names, &found);
    for (size_t i = 0; i < names.count && status == DCP_OK; i++)
        status = remove_commit(place, entry, folder, names.names[i], deeper);
    run_names_free(&names);
    return status;
}

/* ---- the rest ---- */

static dcp_status remove_all(const struct run_place *place, const char *folder, int depth)
{
    const struct run_contents at = {.place = place, .path = folder};
    struct run_names names;
    bool found;
    if (depth > DEPTH_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "%s/%s: folders in folders, more than %d deep",
                             place->root, folder, DEPTH_MAX);
    dcp_status status = run_place_list(place, folder, &names, &found);
    for (size_t i = 0; i < names.count && found && status == DCP_OK; i++) {
        bool is_folder = false;
        char *path = run_contents_path(&at, names.names[i]);
        status = path ? is_own_folder(place, path, &is_folder) : DCP_ERR_NO_MEMORY;
        if (status == DCP_OK)
            status = is_folder ? remove_all(place, path, depth + 1)
                               : remove_file(place, folder, names.names[i]);
        memory_release(path);
    }
    run_names_free(&names);
    if (status == DCP_OK && found)
        run_place_remove_folder(place, folder);
    return status;
}

/* ---- beside it ---- */

/* The pattern of a need, with the step's digits; false: it has none of its own. */
static bool fill_in(const struct run_need *need, const struct run_entry *entry,
                    char pattern[PATTERN_ROOM])
{
    const char *dollar = strchr(need->path, '$');
    size_t digits = (size_t)entry->numbers.digit_count;
    if (!need->beside || !dollar || strlen(need->path) + digits >= PATTERN_ROOM)
        return false;
    size_t before = (size_t)(dollar - need->path);
    memcpy(pattern, need->path, before);
    memcpy(pattern + before, entry->numbers.digits, digits);
    memcpy(pattern + before + digits, dollar + 1, strlen(dollar));
    return true;
}

static dcp_status remove_beside(const struct run_place *place, const struct run_entry *entry,
                                bool commits)
{
    struct run_names names;
    bool found;
    dcp_status status = run_place_list(place, entry->folder, &names, &found);
    for (const struct run_need *need = entry->layout->needs; need->kind != RUN_NEED_NONE; need++) {
        char pattern[PATTERN_ROOM];
        if ((need->kind == RUN_NEED_JSON) != commits || !fill_in(need, entry, pattern))
            continue;
        for (size_t i = 0; i < names.count && status == DCP_OK; i++)
            if (run_name_match_any(pattern, names.names[i]))
                status = remove_file(place, entry->folder, names.names[i]);
    }
    run_names_free(&names);
    return status;
}

bool run_shares_files(const struct run_layout *layout)
{
    for (const struct run_need *need = layout->needs; need->kind != RUN_NEED_NONE; need++)
        if (need->beside && strchr(need->path, '$'))
            return true;
    return false;
}

dcp_status run_remove(const struct run_place *place, const struct run_entry *entry)
{
    RETURN_IF_ERROR(remove_beside(place, entry, true));
    if (entry->layout->is_file) {
        RETURN_IF_ERROR(remove_file(place, entry->folder, entry->name));
    } else {
        RETURN_IF_ERROR(remove_commits(place, entry, entry->path, true));
        RETURN_IF_ERROR(remove_all(place, entry->path, 0));
    }
    return remove_beside(place, entry, false);
}
