/* SPDX-License-Identifier: BSD-3-Clause */
/* What is whole at a place, and notes of what was copied. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "dcp/checkpoint.h"
#include "run/run_mirror.h"

enum { NOTE_NAME_MAX = 3 * RUN_NAME_MAX, NOTE_MAX = 8192 };

/* ---- what is there ---- */

struct looking {
    struct run_wholes *wholes;
    struct run_own own;
};

static void add(struct run_wholes *wholes, const struct run_own *own, const char *name,
                dcp_run_verdict verdict, const char *why)
{
    struct run_whole whole = {.verdict = verdict};
    if (wholes->status != DCP_OK || !run_own_step(own, name, &whole.step))
        return;
    if (wholes->count == wholes->capacity) {
        size_t capacity = wholes->capacity ? 2 * wholes->capacity : 32;
        struct run_whole *grown =
            memory_reallocate_array(wholes->items, capacity, sizeof *wholes->items);
        if (!grown) {
            wholes->status = error_no_memory(capacity * sizeof *grown, "checkpoints of a run");
            return;
        }
        wholes->items = grown;
        wholes->capacity = capacity;
    }
    snprintf(whole.name, sizeof whole.name, "%s", name);
    snprintf(whole.why, sizeof whole.why, "%.150s", why);
    wholes->items[wholes->count++] = whole;
}

static void take(void *context, const char *name, dcp_run_verdict verdict, const char *why)
{
    const struct looking *looking = context;
    add(looking->wholes, &looking->own, name, verdict, why);
}

static int compare_steps(const void *first, const void *second)
{
    const struct run_whole *a = first, *b = second;
    return (a->step > b->step) - (a->step < b->step);
}

dcp_status run_mirror_glance(const struct run_place *place, const struct run_own *own,
                             struct run_wholes *wholes)
{
    struct run_names names;
    bool found;
    *wholes = (struct run_wholes){.status = DCP_OK};
    dcp_status status = run_place_list(place, "", &names, &found);
    for (size_t i = 0; i < names.count && status == DCP_OK; i++) {
        char path[2 * RUN_NAME_MAX];
        uint64_t size;
        int64_t step;
        if (!run_own_step(own, names.names[i], &step))
            continue;
        snprintf(path, sizeof path, "%.127s/.metadata", names.names[i]);
        status = run_place_size(place, path, &size, &found);
        if (found)
            add(wholes, own, names.names[i], DCP_RUN_KEPT, "");
    }
    run_names_free(&names);
    if (wholes->count > 1)
        qsort(wholes->items, wholes->count, sizeof *wholes->items, compare_steps);
    return status == DCP_OK ? wholes->status : status;
}

dcp_status run_mirror_own(const struct run_place *place, struct run_own *own, bool *found)
{
    struct run_names names;
    bool is_folder;
    *own = (struct run_own){.digits = 1};
    *found = false;
    RETURN_IF_ERROR(run_place_list(place, "", &names, &is_folder));
    bool has_file = run_names_has(&names, RUN_OWN_FILE);
    dcp_status status = names.status;
    run_names_free(&names);
    if (status == DCP_ERR_NOT_FOUND || (status == DCP_OK && !has_file))
        return DCP_OK;
    RETURN_IF_ERROR(status);
    RETURN_IF_ERROR(run_own_read(place, "", own, found));
    return *found ? DCP_OK
                  : dcp_error_set(DCP_ERR_IO, "%s/" RUN_OWN_FILE " cannot be read", place->root);
}

dcp_status run_mirror_look(const struct run_place *place, const char *identity,
                           const dcp_run_keep *keep, struct run_wholes *wholes)
{
    struct looking looking = {.wholes = wholes};
    const dcp_run_prune_options options = {.storage = place->storage,
                                           .keep = keep,
                                           .identity = identity,
                                           .dry_run = true,
                                           .verdict = take,
                                           .verdict_context = &looking};
    bool found;
    *wholes = (struct run_wholes){.status = DCP_OK};
    RETURN_IF_ERROR(run_own_read(place, "", &looking.own, &found));
    RETURN_IF_ERROR(dcp_run_prune(place->root, &options, NULL));
    return wholes->status;
}

void run_wholes_free(struct run_wholes *wholes)
{
    memory_release(wholes->items);
    *wholes = (struct run_wholes){.status = DCP_OK};
}

const struct run_whole *run_wholes_newest(const struct run_wholes *wholes)
{
    for (size_t i = wholes->count; i > 0; i--)
        if (wholes->items[i - 1].verdict == DCP_RUN_KEPT)
            return &wholes->items[i - 1];
    return NULL;
}

dcp_status run_mirror_made(const struct run_place *place, const char *name, struct run_made *made)
{
    const dcp_open_options options = {.storage = place->storage};
    dcp_checkpoint *checkpoint = NULL;
    dcp_save_info info = {0};
    *made = (struct run_made){.unix_time = 0};
    char *id = run_place_id(place, name);
    if (!id)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = dcp_checkpoint_open(id, &options, &checkpoint);
    memory_release(id);
    RETURN_IF_ERROR(status);
    status = dcp_checkpoint_info(checkpoint, NULL, NULL, &info);
    if (info.save_id)
        snprintf(made->save_id, sizeof made->save_id, "%s", info.save_id);
    made->unix_time = info.unix_time;
    dcp_checkpoint_close(checkpoint);
    return run_place_gives_up(status) ? status : DCP_OK;
}

/* ---- notes ---- */

static void name_note(const char *name, const char *destination, char note[NOTE_NAME_MAX])
{
    snprintf(note, NOTE_NAME_MAX, RUN_MIRRORED "%.127s.%016" PRIx64, name,
             xxh3_64(destination, strlen(destination)));
}

/* *same: it says that of this save. */
static dcp_status read_note(const struct run_place *place, const char *note, const char *save_id,
                            bool *same)
{
    struct buffer text;
    size_t length = strlen(save_id);
    buffer_init(&text, 0);
    dcp_status status = run_place_read(place, note, NOTE_MAX, &text, same);
    *same = status == DCP_OK && *same && text.size > length &&
            memcmp(text.data, save_id, length) == 0 && text.data[length] == '\n';
    buffer_free(&text);
    return status;
}

dcp_status run_mirror_is_noted(const struct run_place *place, const char *name, const char *save_id,
                               const char *destination, bool *noted)
{
    char note[NOTE_NAME_MAX];
    name_note(name, destination, note);
    return read_note(place, note, save_id, noted);
}

dcp_status run_mirror_note(const struct run_place *place, const char *name, const char *save_id,
                           const char *destination)
{
    char note[NOTE_NAME_MAX], text[NOTE_MAX];
    bool noted;
    name_note(name, destination, note);
    RETURN_IF_ERROR(read_note(place, note, save_id, &noted));
    if (noted)
        return DCP_OK;
    int length = snprintf(text, sizeof text, "%s\n%.4096s\n", save_id, destination);
    return run_place_publish(place, "", note, text, (size_t)length, DCP_PUBLISH_ALWAYS);
}

bool run_mirror_is_note_of(const char *note, const char *name)
{
    size_t prefix = sizeof RUN_MIRRORED - 1, length = strlen(name);
    return strncmp(note, RUN_MIRRORED, prefix) == 0 && strncmp(note + prefix, name, length) == 0 &&
           note[prefix + length] == '.' && strlen(note + prefix + length + 1) == 16 &&
           strspn(note + prefix + length + 1, "0123456789abcdef") == 16;
}

dcp_status run_mirror_count(const struct run_place *place, const struct run_names *names,
                            const char *name, const char *save_id, uint32_t *count)
{
    *count = 0;
    for (size_t i = 0; i < names->count; i++) {
        bool same;
        if (!run_mirror_is_note_of(names->names[i], name))
            continue;
        RETURN_IF_ERROR(read_note(place, names->names[i], save_id, &same));
        *count += same;
    }
    return DCP_OK;
}

dcp_status run_mirror_forget(const struct run_place *place, const char *name)
{
    struct run_names names;
    bool found;
    dcp_status status = run_place_list(place, "", &names, &found);
    for (size_t i = 0; i < names.count && status == DCP_OK; i++)
        if (run_mirror_is_note_of(names.names[i], name)) {
            status = run_place_remove(place, "", names.names[i]);
            if (status == DCP_ERR_NOT_FOUND)
                status = DCP_OK;
        }
    run_names_free(&names);
    return status;
}
