/* SPDX-License-Identifier: BSD-3-Clause */
/* What a DCP directory has beside its entries: step and info of its save, extra files. */
#ifndef CONVERT_COPIED_EXTRAS_H
#define CONVERT_COPIED_EXTRAS_H

#include "convert/convert_source.h"
#include "dcp/save.h"

struct copied_extras {
    dcp_state *root; /* info is in it */
    dcp_extra_file *files;
    size_t count;
};

/* Reads what the source has, and has a save write it again. Extra files of a union's members stay:
 * they are counted as left out. */
dcp_status copied_extras_read(struct copied_extras *extras, struct convert_source *source,
                              dcp_save_options *save);
void copied_extras_free(struct copied_extras *extras);

#endif
