/* SPDX-License-Identifier: BSD-3-Clause */
/* Recognizing checkpoints by the table of layouts: by names first, then by what is in them, then by
 * what is beside them. */
#include "run/run_search.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "run/run_contents.h"

static bool fits(const struct run_search *search, const struct run_layout *layout, const char *name,
                 struct run_numbers *numbers)
{
    const char *names = layout->names;
    if ((layout->folder && !run_name_match_any(layout->folder, search->base)) ||
        (layout->not_names && run_name_match_any(layout->not_names, name)))
        return false;
    while (*names) {
        char pattern[128];
        size_t length = strcspn(names, " ");
        memcpy(pattern, names, length);
        pattern[length] = '\0';
        if (run_name_match(pattern, name, numbers))
            return !numbers->has_step || numbers->step <= INT64_MAX - layout->first_step;
        names += length + (names[length] == ' ');
    }
    return false;
}

/* Whether a layout of folders, or of files, has such names. */
static bool fits_any(const struct run_search *search, const char *name, bool is_file)
{
    struct run_numbers numbers;
    if (search->own && !is_file && fits(search, search->own, name, &numbers))
        return true;
    for (size_t i = 0; i < run_layout_count; i++)
        if (run_layouts[i].is_file == is_file && fits(search, &run_layouts[i], name, &numbers))
            return true;
    return false;
}

/* ---- which layout ---- */

/* By signs; else the first of which there are traces, uncertainly; NULL: none. */
static dcp_status choose_folder(const struct run_search *search,
                                const struct run_contents *contents, const char *name,
                                const struct run_layout **layout, bool *certain)
{
    struct run_numbers numbers;
    *layout = NULL;
    *certain = search->own && fits(search, search->own, name, &numbers) &&
               run_contents_have(contents, search->own->signs);
    if (*certain) {
        *layout = search->own;
        return DCP_OK;
    }
    for (size_t i = 0; i < run_layout_count; i++) {
        const struct run_layout *tried = &run_layouts[i];
        if (tried->is_file || !fits(search, tried, name, &numbers))
            continue;
        RETURN_IF_ERROR(run_contents_show(contents, tried->signs, certain));
        if (*certain) {
            *layout = tried;
            return DCP_OK;
        }
        if (!*layout && tried->traces &&
            (contents->names.count == 0 || run_contents_have(contents, tried->traces)))
            *layout = tried;
    }
    return DCP_OK;
}

static const struct run_layout *choose_file(const struct run_search *search, const char *name)
{
    const struct run_layout *chosen = NULL;
    struct run_numbers numbers;
    for (size_t i = 0; i < run_layout_count; i++) {
        const struct run_layout *tried = &run_layouts[i];
        if (!tried->is_file || !fits(search, tried, name, &numbers))
            continue;
        if (search->beside[i])
            return tried;
        if (!chosen && !tried->beside)
            chosen = tried;
    }
    return chosen;
}

/* Checkpoints without a sign take the layout of neighbours that have one. */
void run_search_settle(const struct run_search *search, size_t first)
{
    dcp_run_list *list = search->list;
    bool *seen = search->beside;
    struct run_numbers numbers;
    for (size_t i = first; i < list->count; i++)
        if (list->entries[i].certain && list->entries[i].layout != search->own)
            seen[list->entries[i].layout - run_layouts] = true;
    for (size_t i = first; i < list->count; i++) {
        struct run_entry *entry = &list->entries[i];
        for (size_t l = 0; l < run_layout_count && !entry->certain; l++) {
            const struct run_layout *layout = &run_layouts[l];
            if (!seen[l] || !layout->shares || !fits(search, layout, entry->name, &numbers))
                continue;
            if (entry->kind == entry->layout->kind)
                entry->kind = layout->kind;
            entry->layout = layout;
            entry->certain = true;
        }
    }
}

/* ---- per-rank files ---- */

static void count_rank(const char *pattern, const char *name, int64_t *ranks)
{
    struct run_numbers numbers;
    if (!run_name_match(pattern, name, &numbers))
        return;
    int64_t rank = numbers.has_step ? numbers.step : 0;
    if (rank < RUN_RANKS_MAX && rank >= *ranks)
        *ranks = rank + 1;
}

/* $ in a pattern stands for the step's digits. Of sorted names those with the pattern's beginning
 * are looked at. */
static void count_ranks_beside(const struct run_search *search, const struct run_need *need,
                               struct run_entry *entry)
{
    char pattern[300];
    const char *dollar = strchr(need->path, '$');
    size_t before = (size_t)(dollar - need->path), digits = (size_t)entry->numbers.digit_count;
    memcpy(pattern, need->path, before);
    memcpy(pattern + before, entry->numbers.digits, digits);
    memcpy(pattern + before + digits, dollar + 1, strlen(dollar));
    size_t low = 0, high = search->names.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strncmp(search->names.names[middle], pattern, before + digits) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < search->names.count &&
           strncmp(search->names.names[low], pattern, before + digits) == 0;
         low++)
        count_rank(pattern, search->names.names[low], &entry->ranks);
}

static void count_ranks(const struct run_search *search, const struct run_names *contents,
                        struct run_entry *entry)
{
    for (const struct run_need *need = entry->layout->needs; need->kind != RUN_NEED_NONE; need++) {
        if (need->kind != RUN_NEED_RANKS)
            continue;
        if (need->beside)
            count_ranks_beside(search, need, entry);
        for (size_t i = 0; !need->beside && contents && i < contents->count; i++)
            count_rank(need->path, contents->names[i], &entry->ranks);
    }
}

/* ---- entries ---- */

static dcp_status add_entry(const struct run_search *search, const char *name,
                            const struct run_layout *layout, struct run_entry **added)
{
    dcp_run_list *list = search->list;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 16;
        struct run_entry *grown =
            memory_reallocate_array(list->entries, capacity, sizeof *list->entries);
        if (!grown)
            return error_no_memory(capacity * sizeof *grown, "checkpoints of a run");
        list->entries = grown;
        list->capacity = capacity;
    }
    const char *path = run_list_path(list, search->folder, name);
    if (!path)
        return DCP_ERR_NO_MEMORY;
    struct run_entry *entry = &list->entries[list->count++];
    *entry = (struct run_entry){.path = path,
                                .name = path + strlen(path) - strlen(name),
                                .folder = search->folder,
                                .layout = layout,
                                .kind = layout->kind,
                                .inner = search->inner,
                                .why = ""};
    fits(search, layout, entry->name, &entry->numbers);
    *added = entry;
    return DCP_OK;
}

/* target: of a link; NULL: none. */
static dcp_status make_link(dcp_run_list *list, struct run_entry *entry, const char *target)
{
    if (!target)
        return DCP_OK;
    entry->kind = DCP_RUN_LINK;
    entry->target = run_list_text(list, target);
    return entry->target ? DCP_OK : DCP_ERR_NO_MEMORY;
}

static dcp_status take_folder(const struct run_search *search, const char *name, const char *target,
                              const struct run_contents *contents)
{
    const struct run_layout *layout;
    struct run_entry *entry;
    bool certain = false;
    RETURN_IF_ERROR(choose_folder(search, contents, name, &layout, &certain));
    if (!layout)
        return DCP_OK;
    RETURN_IF_ERROR(add_entry(search, name, layout, &entry));
    entry->certain = certain;
    if (entry->kind == DCP_RUN_DCP && layout->needs[0].path[0] == '\0' &&
        !run_names_has(&contents->names, ".metadata") && run_contents_have(contents, "pp#"))
        entry->kind = DCP_RUN_DCP_STAGES;
    for (size_t i = 0; i < contents->names.count && entry->kind == DCP_RUN_DCP_STAGES; i++)
        count_rank("pp#", contents->names.names[i], &entry->ranks);
    count_ranks(search, &contents->names, entry);
    return make_link(search->list, entry, target);
}

/* What a file system without links makes of one: a text that is the name of a neighbour, or of
 * nothing. *is_link: it is such a text. */
static dcp_status read_link_text(const struct run_search *search, const char *path, uint64_t size,
                                 char text[RUN_LINK_MAX], bool *is_link)
{
    struct run_file file;
    *is_link = false;
    if (size == 0 || size > 255)
        return DCP_OK;
    dcp_status status = run_file_open(&file, search->place, path);
    if (status != DCP_OK)
        return run_place_gives_up(status) ? status : DCP_OK;
    status = run_file_read(&file, text, (size_t)size, 0);
    run_file_close(&file);
    text[size] = '\0';
    *is_link = status == DCP_OK && strlen(text) == size;
    for (size_t i = 0; i < size && *is_link; i++)
        *is_link = (unsigned char)text[i] >= 0x20;
    return run_place_gives_up(status) ? status : DCP_OK;
}

static dcp_status take_file(const struct run_search *search, const char *name, const char *path,
                            const char *target)
{
    const struct run_layout *layout = choose_file(search, name);
    struct run_entry *entry;
    char text[RUN_LINK_MAX];
    uint64_t size;
    bool found, is_text = false;
    RETURN_IF_ERROR(run_place_size(search->place, path, &size, &found));
    if (!found || !layout)
        return DCP_OK;
    if (!target)
        RETURN_IF_ERROR(read_link_text(search, path, size, text, &is_text));
    if (is_text && !run_names_has(&search->names, text))
        return DCP_OK;
    RETURN_IF_ERROR(add_entry(search, name, layout, &entry));
    entry->certain = true;
    count_ranks(search, NULL, entry);
    return make_link(search->list, entry, is_text ? text : target);
}

static dcp_status take_path(const struct run_search *search, const char *name, const char *path)
{
    char text[RUN_LINK_MAX];
    const char *target = run_place_is_link(search->place, path, text) ? text : NULL;
    bool found = false;
    if (fits_any(search, name, false)) {
        struct run_contents contents = {.place = search->place, .path = path};
        dcp_status status = run_place_list(search->place, path, &contents.names, &found);
        /* What may be a folder and cannot be listed is there, if not whole. Files, pipes and the
         * like are none. */
        dcp_status listing = contents.names.status;
        found = found ||
                (status == DCP_OK && !target && listing != DCP_OK && listing != DCP_ERR_NOT_FOUND &&
                 listing != DCP_ERR_KIND && listing != DCP_ERR_FORMAT);
        if (status == DCP_OK && found)
            status = take_folder(search, name, target, &contents);
        run_names_free(&contents.names);
        RETURN_IF_ERROR(status);
    }
    return !found && fits_any(search, name, true) ? take_file(search, name, path, target) : DCP_OK;
}

dcp_status run_search_take(const struct run_search *search, const char *name)
{
    struct run_contents at = {.place = search->place, .path = search->folder};
    if (!fits_any(search, name, false) && !fits_any(search, name, true))
        return DCP_OK;
    char *path = run_contents_path(&at, name);
    dcp_status status = path ? take_path(search, name, path) : DCP_ERR_NO_MEMORY;
    memory_release(path);
    return status;
}
