/* SPDX-License-Identifier: BSD-3-Clause */
/* What layouts of other frameworks have beside the files of a save, and what a commit moves. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "dcp/checkpoint.h"
#include "run/run_contents.h"
#include "run/run_manager.h"
#include "run/run_side.h"

#define CONFIG_FILE "run_config.yaml"
#define STATE_FILE  "train_state.pt"

static double note_of(const dcp_run *run, const char *name)
{
    for (size_t i = 0; i < run->note_count; i++)
        if (strcmp(run->notes[i].name, name) == 0)
            return run->notes[i].value;
    return 0;
}

/* ---- train_state.pt ---- */

static void fill_kempnerforge(const dcp_run *run, int64_t step, dcp_state *root)
{
    dcp_state_int(root, "step", step);
    dcp_state_int(root, "tokens_seen", (int64_t)note_of(run, "tokens_seen"));
    for (size_t i = 0; i < run->note_count; i++)
        if (strcmp(run->notes[i].name, "tokens_seen") != 0 &&
            strcmp(run->notes[i].name, "step") != 0)
            dcp_state_float(root, run->notes[i].name, run->notes[i].value);
}

/* Tensors without dimensions, as Bridge's TrainState has them. */
struct bridge_state {
    int64_t counts[4];
    float operations;
    uint8_t flags[3];
};

static void fill_bridge(const dcp_run *run, int64_t step, struct bridge_state *values,
                        dcp_state *root)
{
    static const char *const counts[] = {"step", "consumed_train_samples", "skipped_train_samples",
                                         "consumed_valid_samples"};
    static const char *const flags[] = {"do_train", "do_valid", "do_test"};
    static const char operations[] = "floating_point_operations_so_far";
    for (int i = 0; i < 4; i++) {
        values->counts[i] = i == 0 ? step : (int64_t)note_of(run, counts[i]);
        dcp_state_tensor(root, counts[i],
                         &(dcp_tensor){.dtype = DCP_I64, .data = &values->counts[i]});
    }
    values->operations = (float)note_of(run, operations);
    dcp_state_tensor(root, operations,
                     &(dcp_tensor){.dtype = DCP_F32, .data = &values->operations});
    for (int i = 0; i < 3; i++) {
        values->flags[i] = note_of(run, flags[i]) != 0;
        dcp_state_tensor(root, flags[i],
                         &(dcp_tensor){.dtype = DCP_BOOL, .data = &values->flags[i]});
    }
}

static dcp_status append(void *context, const void *bytes, size_t size)
{
    buffer_append(context, bytes, size);
    return buffer_status(context);
}

static dcp_status make_train_state(const dcp_run *run, int64_t step, struct buffer *bytes)
{
    struct bridge_state values;
    dcp_state *root = dcp_state_new();
    if (!root)
        return error_no_memory(0, STATE_FILE);
    if (run->own.layout == DCP_RUN_LAYOUT_BRIDGE)
        fill_bridge(run, step, &values, root);
    else
        fill_kempnerforge(run, step, root);
    dcp_status status = dcp_state_status(root);
    if (status == DCP_OK)
        status = dcp_object_encode(root, append, bytes);
    dcp_state_free(root);
    return status;
}

bool run_side_takes(const dcp_run *run, const dcp_extra_file *file)
{
    return run->own.layout == DCP_RUN_LAYOUT_BRIDGE && file->name &&
           strcmp(file->name, CONFIG_FILE) == 0;
}

static dcp_status write_config(const dcp_run *run, const char *name)
{
    for (size_t i = 0; i < run->options.file_count; i++) {
        const dcp_extra_file ours = run_option_file(run, i);
        if (run_side_takes(run, &ours))
            return run_place_publish(&run->place, name, CONFIG_FILE, ours.bytes, ours.size,
                                     DCP_PUBLISH_ALWAYS);
    }
    return DCP_OK;
}

dcp_status run_side_write(dcp_run *run, int64_t step, const char *name)
{
    struct buffer bytes;
    if (run->own.layout == DCP_RUN_LAYOUT_DCP)
        return DCP_OK;
    buffer_init(&bytes, 0);
    dcp_status status = make_train_state(run, step, &bytes);
    if (status == DCP_OK)
        status = run_place_publish(&run->place, name, STATE_FILE, bytes.data, bytes.size,
                                   DCP_PUBLISH_ALWAYS);
    if (status == DCP_OK)
        status = write_config(run, name);
    buffer_free(&bytes);
    return status;
}

/* ---- after the commit ---- */

/* Megatron Core takes a directory for a checkpoint by two keys of metadata.json: they come in front
 * of this library's own. */
static dcp_status add_backend(const dcp_run *run)
{
    static const char keys[] =
        "{\n\t\"sharded_backend\": \"torch_dist\",\n\t\"sharded_backend_version\": 1,";
    char path[2 * RUN_NAME_MAX];
    struct buffer text, whole;
    bool found;
    snprintf(path, sizeof path, "%s/metadata.json", run->saving_name);
    buffer_init(&text, 0);
    buffer_init(&whole, 0);
    dcp_status status = run_place_read(&run->place, path, RUN_JSON_LIMIT, &text, &found);
    if (status == DCP_OK && (!found || text.size < 2 || text.data[0] != '{'))
        status = dcp_error_set(DCP_ERR_FORMAT, "%s/%s is not what the save has written", run->root,
                               path);
    if (status == DCP_OK) {
        buffer_append(&whole, keys, sizeof keys - 1);
        buffer_append(&whole, text.data + 1, text.size - 1);
        status = buffer_status(&whole);
    }
    if (status == DCP_OK)
        status = run_place_publish(&run->place, run->saving_name, "metadata.json", whole.data,
                                   whole.size, DCP_PUBLISH_ALWAYS);
    buffer_free(&text);
    buffer_free(&whole);
    return status;
}

static dcp_status move_trackers(const struct run_place *place, const char *name, int64_t step)
{
    char path[2 * RUN_NAME_MAX], number[24];
    struct buffer bytes;
    bool found;
    snprintf(path, sizeof path, "%s/" STATE_FILE, name);
    buffer_init(&bytes, 0);
    dcp_status status = run_place_read(place, path, RUN_JSON_LIMIT, &bytes, &found);
    if (status == DCP_OK && found)
        status = run_place_publish(place, "", "latest_train_state.pt", bytes.data, bytes.size,
                                   DCP_PUBLISH_ALWAYS);
    buffer_free(&bytes);
    RETURN_IF_ERROR(status);
    snprintf(number, sizeof number, "%" PRId64, step);
    return run_place_publish(place, "", "latest_checkpointed_iteration.txt", number, strlen(number),
                             DCP_PUBLISH_ALWAYS);
}

dcp_status run_side_mark(const struct run_place *place, const struct run_own *own, const char *name,
                         int64_t step)
{
    return own->layout == DCP_RUN_LAYOUT_BRIDGE ? move_trackers(place, name, step)
                                                : run_place_mark(place, "latest", name);
}

static dcp_status move_marks(const dcp_run *run)
{
    if (run->own.layout == DCP_RUN_LAYOUT_BRIDGE)
        RETURN_IF_ERROR(add_backend(run));
    return run_side_mark(&run->place, &run->own, run->saving_name, run->saving_step);
}

static void forget(const dcp_run *run, const char *prefix)
{
    char note[2 * RUN_NAME_MAX];
    run_own_note_name(prefix, run->saving_name, note);
    dcp_status status = run_place_remove(&run->place, "", note);
    if (status != DCP_OK && status != DCP_ERR_NOT_FOUND)
        log_line(DCP_LOG_WARNING, "%s/%s: %s", run->root, note, dcp_error_message());
}

/* What fails here does not make the checkpoint less whole: a resume finds it without marks. */
dcp_status run_committed(void *context, const char *path, const char *save_id)
{
    dcp_run *run = context;
    if (run->rank == 0) {
        dcp_status status = move_marks(run);
        if (status != DCP_OK)
            log_line(DCP_LOG_WARNING, "%s/%s is saved, but its marks are not: %s", run->root,
                     run->saving_name, dcp_error_message());
        forget(run, RUN_FAILED);
        forget(run, RUN_REMOVING);
        run_mirrors_post(&run->mirrors, run->saving_name);
        run_background_post(&run->background, run->saving_step);
    }
    return run->save.after_commit
               ? run->save.after_commit(run->save.after_commit_context, path, save_id)
               : DCP_OK;
}
