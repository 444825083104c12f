/* SPDX-License-Identifier: BSD-3-Clause */
/* dcp ls for people: a line for each name. */
#include <inttypes.h>
#include <string.h>

#include "ls.h"

#define VALUE_COLUMNS 72

static int widest_dtype(const struct selection *selection)
{
    int widest = 8;
    for (size_t i = 0; i < selection->count; i++) {
        const dcp_entry *entry = &selection->items[i].entry;
        int length = entry->is_tensor ? (int)strlen(dcp_dtype_name(entry->dtype)) : 0;
        widest = length > widest ? length : widest;
    }
    return widest;
}

static void print_tensor(const dcp_entry *entry, int width)
{
    printf("  %-*s ", width, dcp_dtype_name(entry->dtype));
    print_size(stdout, entry->bytes, 10);
    fputs("  ", stdout);
    ls_print_numbers(entry->global_shape, entry->ndim);
    if (entry->chunk_count != 1)
        printf(" in %zu chunks", entry->chunk_count);
}

void print_value(char *text)
{
    size_t length = strlen(text);
    bool cut = length > VALUE_COLUMNS;
    if (cut) {
        length = VALUE_COLUMNS;
        while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
            length--;
        text[length] = '\0';
    }
    fputs("  ", stdout);
    print_plain(stdout, text);
    fputs(cut ? "..." : "", stdout);
}

static int print_extra_files(const dcp_checkpoint *checkpoint, int width)
{
    for (size_t i = 0; i < dcp_checkpoint_extra_file_count(checkpoint); i++) {
        dcp_extra_file_info info;
        if (dcp_checkpoint_extra_file(checkpoint, i, &info) != DCP_OK)
            return command_fail("ls");
        ls_print_name(info.name, width);
        printf("  extra file, %" PRIu64 " byte%s, in ", info.size, info.size == 1 ? "" : "s");
        print_plain(stdout, info.file);
        putchar('\n');
    }
    return EXIT_FINE;
}

static int print_object(dcp_checkpoint *checkpoint, size_t index)
{
    char *text = ls_value(checkpoint, index);
    int status = text ? EXIT_FINE : command_fail("ls");
    if (text)
        print_value(text);
    dcp_text_free(text);
    return status;
}

int ls_table(dcp_checkpoint *checkpoint, const struct selection *selection,
             const struct ls_form *form)
{
    bool all = selection->count == dcp_checkpoint_count(checkpoint);
    int status = print_save(checkpoint, form), width = ls_widest_name(selection);
    int dtype_width = widest_dtype(selection);
    uint64_t bytes = 0;
    size_t tensors = 0, extra = all ? dcp_checkpoint_extra_file_count(checkpoint) : 0;

    for (size_t i = 0; i < selection->count; i++) {
        const struct selected *item = &selection->items[i];
        ls_print_name(item->entry.name, width);
        if (item->entry.is_tensor) {
            print_tensor(&item->entry, dtype_width);
            tensors++;
            bytes += item->entry.bytes;
        } else if (print_object(checkpoint, item->index) != EXIT_FINE) {
            status = EXIT_FAULT;
        }
        putchar('\n');
    }
    if (extra > 0 && print_extra_files(checkpoint, width) != EXIT_FINE)
        status = EXIT_FAULT;
    print_sum(tensors, bytes, selection->count - tensors);
    if (extra > 0)
        printf(", %zu extra file%s", extra, plural(extra));
    putchar('\n');
    return status;
}
