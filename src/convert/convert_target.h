/* SPDX-License-Identifier: BSD-3-Clause */
/* What a conversion writes. A target is told all names, dtypes and shapes first (the items of the
 * source), places them, takes the data, and commits. */
#ifndef CONVERT_CONVERT_TARGET_H
#define CONVERT_CONVERT_TARGET_H

#include "base/progress.h"
#include "convert/convert_journal.h"
#include "convert/convert_source.h"

struct convert_target {
    const char *path;
    struct progress *progress;
    dcp_convert_report *report;
    struct convert_journal *journal; /* NULL: it is not to be continued */
};

/* Each writes all of it, or leaves nothing. */
dcp_status convert_to_dcp(struct convert_source *source, const struct convert_target *target);
dcp_status convert_to_pt(struct convert_source *source, const struct convert_target *target);
dcp_status convert_to_safetensors(struct convert_source *source,
                                  const struct convert_target *target);
dcp_status convert_to_gguf(struct convert_source *source, const struct convert_target *target);
dcp_status convert_to_model(struct convert_source *source, const struct convert_target *target);

/* Tells the caller of an item, as it will lie in the destination. */
void convert_tell(const struct convert_source *source, const struct convert_item *item,
                  const char *type, int32_t ndim, const int64_t *shape);
/* Leaves out lm_head.weight if it shall go, and is the embedding; tied: counts it. */
dcp_status convert_drop_tied(struct convert_source *source, uint64_t *tied);

#endif
