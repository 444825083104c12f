/* SPDX-License-Identifier: BSD-3-Clause */
/* What a DCP directory has beside its entries: step and info of its save, extra files. */
#ifndef CONVERT_DCP_EXTRAS_H
#define CONVERT_DCP_EXTRAS_H

#include "convert/convert_source.h"
#include "dcp/save.h"

struct dcp_extras {
    dcp_state *root; /* info is in it */
    dcp_extra_file *files;
    size_t count;
};

/* Reads what the source has, and has a save write it again. Extra files of a union's members stay:
 * they are counted as left out. */
dcp_status dcp_extras_read(struct dcp_extras *extras, struct convert_source *source,
                           dcp_save_options *save);
void dcp_extras_free(struct dcp_extras *extras);

#endif
