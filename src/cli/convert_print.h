/* SPDX-License-Identifier: BSD-3-Clause */
/* What dcp convert prints. */
#ifndef CLI_CONVERT_PRINT_H
#define CLI_CONVERT_PRINT_H

#include "command.h"

struct convert_given {
    dcp_convert_options options;
    struct text_list include, exclude;
    dcp_convert_rename *renames;
    size_t rename_count;
    bool masters, all;
    bool zstd;
    bool quiet;
    bool json;
    size_t told; /* items, of a dry run */
};

/* What the source, the first of paths but the last, is taken for, on standard error. */
void convert_print_source(char **paths, int count, const dcp_convert_report *report);
/* Of a dry run an item that would be written; the context is what was given. */
void convert_print_item(void *context, const dcp_convert_item *item);
/* What was done, behind the items. */
void convert_print_report(const struct convert_given *given, const dcp_convert_report *report);

#endif
