/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save/save_missing.h"

#include <inttypes.h>

#include "base/error.h"
#include "base/log.h"

enum { TENSORS_NAMED = 4 };

static void log_tensor(const char *path, const struct metadata_entry *entry)
{
    char text[METADATA_MISSING_TEXT];
    struct saved_error error;
    error_save(&error);
    /* Without memory to find the boxes, the save goes on. */
    bool known = metadata_format_missing(entry, text) == DCP_OK;
    error_restore(&error);
    log_line(DCP_LOG_WARNING, "%s: partial save: no rank holds %s of \"%s\"", path,
             known ? text : "parts", entry->name);
}

void save_missing_report(struct dcp_saving *saving)
{
    const struct metadata *metadata = &saving->coordinator.metadata;
    const char *path = saving->session.path;
    struct metadata_missing missing = metadata_sum_missing(metadata);
    saving->operation.figures.missing_tensors = missing.tensors;
    saving->operation.figures.missing_elements = missing.elements;
    /* Ranks that save by themselves do not know what the others hold. */
    if (missing.tensors == 0 || saving->options.without_collectives)
        return;
    size_t named = 0;
    for (size_t i = 0; i < metadata->count && named < TENSORS_NAMED; i++) {
        const struct metadata_entry *entry = &metadata->entries[i];
        if (!entry->is_tensor || metadata_count_missing(entry) == 0)
            continue;
        log_tensor(path, entry);
        named++;
    }
    log_line(DCP_LOG_WARNING,
             "%s: partial save: %" PRIu64 " tensor%s %s %" PRIu64 " element%s in all", path,
             missing.tensors, missing.tensors == 1 ? "" : "s",
             missing.tensors == 1 ? "lacks" : "lack", missing.elements,
             missing.elements == 1 ? "" : "s");
}
