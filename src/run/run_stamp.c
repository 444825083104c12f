/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/run_stamp.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "dcp/checkpoint.h"

static bool is_under(const char *name, const char *key)
{
    size_t length = key ? strlen(key) : 0;
    return key && strncmp(name, key, length) == 0 && (name[length] == '.' || !name[length]);
}

static dcp_status read_names(const dcp_checkpoint *checkpoint, const struct run_stamp_keys *keys,
                             struct run_stamp *stamp)
{
    size_t count = dcp_checkpoint_count(checkpoint);
    for (size_t i = 0; i < count; i++) {
        dcp_entry entry;
        RETURN_IF_ERROR(dcp_checkpoint_entry(checkpoint, i, &entry));
        if (keys->optimizer && is_under(entry.name, keys->optimizer)) {
            stamp->has_optimizer = true;
            /* An object holds them all. */
            stamp->optimizers |= strcmp(entry.name, keys->optimizer) == 0 ? UINT32_MAX
                                 : keys->optimizers
                                     ? run_optimizers_of(keys->optimizers, entry.name)
                                     : 0;
        } else if (is_under(entry.name, keys->rng))
            stamp->has_rng = true;
        else if (is_under(entry.name, keys->main_params))
            stamp->has_main_params = true;
        else
            stamp->has_model = true;
    }
    return DCP_OK;
}

/* Info that cannot be read has no metric. */
static dcp_status read_info(const dcp_checkpoint *checkpoint, const char *metric,
                            struct run_stamp *stamp)
{
    dcp_save_info info = {0};
    dcp_state *root = dcp_state_new();
    if (!root)
        return error_no_memory(0, "what metadata.json says");
    dcp_status status = dcp_checkpoint_info(checkpoint, root, "info", &info);
    if (info.save_id)
        snprintf(stamp->save_id, sizeof stamp->save_id, "%s", info.save_id);
    const dcp_state *found = dcp_state_find(dcp_state_find(root, "info"), metric ? metric : "");
    stamp->has_metric = status == DCP_OK && metric && found &&
                        dcp_state_as_float(found, &stamp->metric) == DCP_OK &&
                        !isnan(stamp->metric);
    dcp_state_free(root);
    return run_place_gives_up(status) ? status : DCP_OK;
}

dcp_status run_stamp_read(const struct run_place *place, const char *path,
                          const char *const *members, size_t member_count,
                          const struct run_stamp_keys *keys, struct run_stamp *stamp)
{
    const dcp_open_options options = {
        .storage = place->storage, .members = members, .member_count = member_count};
    dcp_checkpoint *checkpoint = NULL;
    *stamp = (struct run_stamp){0};
    char *id = run_place_id(place, path);
    if (!id)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = dcp_checkpoint_open(id, &options, &checkpoint);
    memory_release(id);
    if (status == DCP_OK)
        status = read_names(checkpoint, keys, stamp);
    if (status == DCP_OK)
        status = read_info(checkpoint, keys->metric, stamp);
    dcp_checkpoint_close(checkpoint);
    return status;
}
