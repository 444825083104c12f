/* SPDX-License-Identifier: BSD-3-Clause */
/* Elements that are wanted in the order of the source's tensors, in pieces of any size: they are
 * read a window at a time, of a large tensor or of small ones that are neighbours. */
#ifndef CONVERT_CONVERT_WINDOWS_H
#define CONVERT_CONVERT_WINDOWS_H

#include "convert/convert_source.h"

struct convert_windows;

/* ahead: a thread reads the next window while one is used. */
dcp_status convert_windows_new(const struct convert_source *source, bool ahead,
                               struct convert_windows **windows);
/* From now on windows are read at their turn only. By one thread. */
void convert_windows_stop_ahead(struct convert_windows *windows);
void convert_windows_free(struct convert_windows *windows); /* NULL is allowed */
/* As convert_read(), of a tensor among the source's items. Any thread. */
dcp_status convert_windows_read(struct convert_windows *windows, const struct convert_item *item,
                                int64_t first, int64_t count, void *elements);

#endif
