/* SPDX-License-Identifier: BSD-3-Clause */
/* dcp ls --files: which file holds what. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ls.h"

struct place {
    const struct selected *item;
    dcp_stored_chunk chunk;
};

static int compare_places(const void *left, const void *right)
{
    const struct place *a = left, *b = right;
    int order = strcmp(a->chunk.file, b->chunk.file);
    if (order != 0 || a->chunk.offset == b->chunk.offset)
        return order;
    return a->chunk.offset < b->chunk.offset ? -1 : 1;
}

static int find_places(const dcp_checkpoint *checkpoint, const struct selection *selection,
                       struct place **places, size_t *count)
{
    size_t total = 0;
    for (size_t i = 0; i < selection->count; i++)
        total += selection->items[i].entry.chunk_count;
    *count = 0;
    *places = calloc(total + 1, sizeof **places);
    if (!*places) {
        fputs("dcp ls: not enough memory\n", stderr);
        return EXIT_FAULT;
    }
    for (size_t i = 0; i < selection->count; i++) {
        const struct selected *item = &selection->items[i];
        for (size_t c = 0; c < item->entry.chunk_count; c++) {
            struct place *place = &(*places)[(*count)++];
            place->item = item;
            if (dcp_checkpoint_chunk(checkpoint, item->index, c, &place->chunk) != DCP_OK)
                return command_fail("ls");
        }
    }
    if (*count > 1)
        qsort(*places, *count, sizeof **places, compare_places);
    return EXIT_FINE;
}

static void print_place(const struct place *place, bool json, bool first)
{
    const dcp_entry *entry = &place->item->entry;
    if (json) {
        fputs(first ? "{\"name\": " : ",\n  {\"name\": ", stdout);
        print_json_string(stdout, entry->name);
        printf(", \"offset\": %" PRIu64 ", \"length\": %" PRIu64 "}", place->chunk.offset,
               place->chunk.length);
        return;
    }
    printf("%14" PRIu64 "  ", place->chunk.offset);
    print_size(stdout, place->chunk.length, 10);
    fputs("  ", stdout);
    print_plain(stdout, entry->name);
    if (entry->is_tensor && entry->chunk_count > 1) {
        fputs(" from ", stdout);
        ls_print_numbers(place->chunk.offsets, entry->ndim);
        fputs(" ", stdout);
        ls_print_numbers(place->chunk.sizes, entry->ndim);
    }
    putchar('\n');
}

/* Places of one file. */
static void print_file(const struct place *places, size_t count, bool json, bool first)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += places[i].chunk.length;
    if (json) {
        fputs(first ? "\n {\"file\": " : ",\n {\"file\": ", stdout);
        print_json_string(stdout, places->chunk.file);
        printf(", \"bytes\": %" PRIu64 ", \"items\": [\n  ", bytes);
    } else {
        print_color(stdout, COLOR_BOLD);
        print_plain(stdout, places->chunk.file);
        print_color(stdout, COLOR_PLAIN);
        fputs(": ", stdout);
        print_size(stdout, bytes, 0);
        printf(" in %zu item%s\n", count, plural(count));
    }
    for (size_t i = 0; i < count; i++)
        print_place(&places[i], json, i == 0);
    if (json)
        fputs("]}", stdout);
}

int ls_files(dcp_checkpoint *checkpoint, const struct selection *selection, bool json)
{
    struct place *places;
    size_t count, files = 0;
    int status = find_places(checkpoint, selection, &places, &count);
    if (json && status == EXIT_FINE)
        putchar('[');
    for (size_t i = 0, next; i < count && status == EXIT_FINE; i = next) {
        for (next = i + 1; next < count; next++)
            if (strcmp(places[next].chunk.file, places[i].chunk.file) != 0)
                break;
        print_file(places + i, next - i, json, files++ == 0);
    }
    if (json && status == EXIT_FINE)
        fputs("\n]\n", stdout);
    else if (status == EXIT_FINE)
        printf("%zu file%s, %zu item%s\n", files, plural(files), count, plural(count));
    free(places);
    return status;
}
