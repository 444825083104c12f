/* SPDX-License-Identifier: BSD-3-Clause */
/* Finding the folders of a run that hold checkpoints. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "run/run_contents.h"
#include "run/run_own.h"
#include "run/run_search.h"

/* The row of a run of ours; of one whose file cannot be understood there is none. */
static dcp_status find_own(struct run_search *search)
{
    struct run_own own;
    bool found;
    if (!run_names_has(&search->names, RUN_OWN_FILE))
        return DCP_OK;
    dcp_status status = run_own_read(search->place, search->folder, &own, &found);
    if (status != DCP_OK || !found)
        return run_place_gives_up(status) ? status : DCP_OK;
    char *names = arena_allocate(&search->list->arena, RUN_NAME_MAX);
    struct run_layout *row = arena_allocate(&search->list->arena, sizeof *row);
    if (!names || !row)
        return error_no_memory(sizeof *row + RUN_NAME_MAX, "the layout of a run");
    run_own_layout(&own, names, row);
    search->own = row;
    return DCP_OK;
}

static dcp_status search_names(struct run_search *search)
{
    size_t first = search->list->count;
    struct run_contents at = {search->place, search->folder, search->names};
    search->beside = memory_allocate_zeroed(run_layout_count, sizeof *search->beside);
    if (!search->beside)
        return error_no_memory(run_layout_count, "the layouts of a run");
    RETURN_IF_ERROR(find_own(search));
    for (size_t i = 0; i < run_layout_count; i++)
        if (run_layouts[i].beside)
            search->beside[i] = run_contents_have(&at, run_layouts[i].beside);
    for (size_t i = 0; i < search->names.count; i++)
        RETURN_IF_ERROR(run_search_take(search, search->names.names[i]));
    run_search_settle(search, first);
    return search->list->count > first
               ? run_mark_find(search->list, search->place, search->folder, &search->names)
               : DCP_OK;
}

/* Searches a folder, if it is one. */
static dcp_status search_folder(dcp_run_list *list, const struct run_place *place,
                                const char *folder, bool inner)
{
    struct run_search search = {.list = list, .place = place, .inner = inner};
    const char *path = *folder ? folder : place->root;
    const char *slash = strrchr(path, '/');
    search.base = slash ? slash + 1 : path;
    search.folder = run_list_text(list, folder);
    bool found;
    if (!search.folder)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = run_place_list(place, folder, &search.names, &found);
    if (status == DCP_OK && found)
        status = search_names(&search);
    memory_release(search.beside);
    run_names_free(&search.names);
    return status;
}

/* Whether checkpoints were found there by another name. */
static bool is_known(const dcp_run_list *list, const struct run_place *place, const char *folder)
{
    const char *last = NULL;
    for (size_t i = 0; i < list->count; i++) {
        if (list->entries[i].folder != last && *list->entries[i].folder &&
            run_place_is_same(place, list->entries[i].folder, folder))
            return true;
        last = list->entries[i].folder;
    }
    return false;
}

/* Searches those folders of one whose names have the patterns: links, or what is none. */
static dcp_status search_named(dcp_run_list *list, const struct run_search *of,
                               const char *patterns, bool links)
{
    const struct run_contents at = {.place = of->place, .path = of->folder};
    for (size_t i = 0; i < of->names.count; i++) {
        char text[RUN_LINK_MAX];
        const char *name = of->names.names[i];
        if (!run_name_match_any(patterns, name) || run_name_match_any(RUN_NO_FOLDERS, name))
            continue;
        char *path = run_contents_path(&at, name);
        dcp_status status = path ? DCP_OK : DCP_ERR_NO_MEMORY;
        if (path && run_place_is_link(of->place, path, text) == links &&
            !(links && is_known(list, of->place, path)))
            status = search_folder(list, of->place, path, of->inner);
        memory_release(path);
        RETURN_IF_ERROR(status);
    }
    return DCP_OK;
}

/* A link to a folder that was searched is no second one. */
static dcp_status search_below(dcp_run_list *list, const struct run_place *place,
                               const char *folder, const struct run_names *names,
                               const char *patterns, bool inner)
{
    const struct run_search of = {
        .place = place, .folder = folder, .names = *names, .inner = inner};
    RETURN_IF_ERROR(search_named(list, &of, patterns, false));
    return search_named(list, &of, patterns, true);
}

/* Folders with steps have others below them. */
static dcp_status search_inner(dcp_run_list *list, const struct run_place *place)
{
    size_t count = list->count;
    const char *last = NULL;
    for (size_t i = 0; i < count; i++) {
        const char *folder = list->entries[i].folder;
        struct run_names names;
        bool found;
        if (folder == last)
            continue;
        if (!list->folders[last != NULL])
            list->folders[last != NULL] = folder;
        last = folder;
        dcp_status status = run_place_list(place, folder, &names, &found);
        if (status == DCP_OK && found)
            status = search_below(list, place, folder, &names, RUN_INNER_FOLDERS, true);
        run_names_free(&names);
        RETURN_IF_ERROR(status);
    }
    return DCP_OK;
}

/* A link is of the step of what it leads to. */
static void follow_links(dcp_run_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        struct run_entry *entry = &list->entries[i];
        size_t target =
            entry->target ? run_list_find(list, entry->folder, entry->target) : SIZE_MAX;
        if (target != SIZE_MAX)
            entry->numbers = list->entries[target].numbers;
    }
}

dcp_status run_find(dcp_run_list *list, const struct run_place *place)
{
    struct run_names names;
    bool found;
    dcp_status status = run_place_list(place, "", &names, &found);
    if (status == DCP_OK)
        status = names.status;
    if (status == DCP_OK)
        status = search_folder(list, place, "", false);
    if (status == DCP_OK && list->count == 0)
        status = search_below(list, place, "", &names, RUN_FOLDERS, false);
    if (status == DCP_OK && list->count == 0)
        status = search_below(list, place, "", &names, "*", false);
    if (status == DCP_OK)
        status = search_inner(list, place);
    if (status == DCP_OK)
        follow_links(list);
    run_names_free(&names);
    return status;
}
