/* SPDX-License-Identifier: BSD-3-Clause */
/* dcp ls --tree and --totals: what is below the parts of names. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ls.h"

/* Entries that stand next to each other in a sorted selection. */
struct group {
    size_t first, count;
    size_t tensors;
    uint64_t bytes;
};

static bool begins_with(const char *name, const char *prefix, size_t length)
{
    return strncmp(name, prefix, length) == 0 && (name[length] == '\0' || name[length] == '.');
}

/* Those from `first` on, below `end`, whose names begin with the prefix of this length. */
static struct group group_of(const struct selection *selection, size_t first, size_t end,
                             size_t length)
{
    struct group group = {.first = first};
    const char *prefix = selection->items[first].entry.name;
    for (size_t i = first; i < end; i++) {
        const dcp_entry *entry = &selection->items[i].entry;
        if (!begins_with(entry->name, prefix, length))
            break;
        group.count++;
        group.tensors += entry->is_tensor;
        group.bytes += entry->bytes;
    }
    return group;
}

/* By parts: "a.b" before "a-b", as a dot ends the part, and 2 before 10 where parts are numbers. */
static int compare_parts(const void *left, const void *right)
{
    const char *a = ((const struct selected *)left)->entry.name;
    const char *b = ((const struct selected *)right)->entry.name;
    for (;;) {
        size_t m = strcspn(a, "."), n = strcspn(b, ".");
        size_t digits_a = strspn(a, "0123456789"), digits_b = strspn(b, "0123456789");
        int order;
        if (m > 0 && n > 0 && digits_a == m && digits_b == n && m != n)
            return m < n ? -1 : 1;
        order = memcmp(a, b, m < n ? m : n);
        if (order != 0 || m != n)
            return order != 0 ? order : m < n ? -1 : 1;
        if (!a[m] || !b[n])
            return (a[m] != '\0') - (b[n] != '\0');
        a += m + 1;
        b += n + 1;
    }
}

static void sort_parts(struct selection *selection)
{
    if (selection->count > 1)
        qsort(selection->items, selection->count, sizeof *selection->items, compare_parts);
}

/* ---- --tree ---- */

static void print_leaf(const dcp_entry *entry)
{
    if (!entry->is_tensor) {
        fputs("  object\n", stdout);
        return;
    }
    printf("  %s ", dcp_dtype_name(entry->dtype));
    ls_print_numbers(entry->global_shape, entry->ndim);
    putchar('\n');
}

/* A line for the part at this level of the group's names. */
static void print_node(const struct selection *selection, const struct group *group, size_t from,
                       size_t length, int level)
{
    const dcp_entry *entry = &selection->items[group->first].entry;
    bool leaf = group->count == 1 && entry->name[length] == '\0';
    print_size(stdout, group->bytes, 10);
    printf("  %*s", 2 * level, "");
    if (!leaf)
        print_color(stdout, COLOR_BOLD);
    print_plain_part(stdout, entry->name + from, length - from);
    if (leaf) {
        print_leaf(entry);
        return;
    }
    print_color(stdout, COLOR_PLAIN);
    printf("  %zu name%s\n", group->count, plural(group->count));
}

/* Where a part of a name ends; all that follows at the last level that is shown. */
static size_t part_end(const char *name, size_t from)
{
    return from + strcspn(name + from, ".");
}

/* Levels that two names have in common, so that only what differs is printed anew. */
int ls_tree(dcp_checkpoint *checkpoint, struct selection *selection, const struct ls_form *form,
            int depth)
{
    int status = print_save(checkpoint, form);
    struct group all = {0};
    sort_parts(selection);
    for (size_t i = 0; i < selection->count; i++) {
        const char *name = selection->items[i].entry.name;
        const char *before = i > 0 ? selection->items[i - 1].entry.name : NULL;
        size_t from = 0, end;
        for (int level = 0; depth == 0 || level < depth; level++) {
            end = part_end(name, from);
            bool shown = before && begins_with(before, name, end) && (name[end] || before[end]);
            if (!shown) {
                struct group group = group_of(selection, i, selection->count, end);
                print_node(selection, &group, from, end, level);
            }
            if (!name[end])
                break;
            from = end + 1;
        }
        all.tensors += selection->items[i].entry.is_tensor;
        all.bytes += selection->items[i].entry.bytes;
    }
    print_sum(all.tensors, all.bytes, selection->count - all.tensors);
    putchar('\n');
    return status;
}

/* ---- --totals ---- */

enum { DTYPES = 256 };

static void print_total(const struct group *group, bool json, const char *key, const char *name,
                        size_t length, bool first)
{
    if (json) {
        char *text = strndup(name, length);
        printf("%s\n {\"%s\": ", first ? "" : ",", key);
        print_json_string(stdout, text ? text : "");
        printf(", \"tensors\": %zu, \"bytes\": %" PRIu64 ", \"objects\": %zu}", group->tensors,
               group->bytes, group->count - group->tensors);
        free(text);
        return;
    }
    print_size(stdout, group->bytes, 10);
    printf("  %8zu tensor%s  %6zu object%s  ", group->tensors, group->tensors == 1 ? " " : "s",
           group->count - group->tensors, group->count - group->tensors == 1 ? " " : "s");
    print_plain_part(stdout, name, length);
    putchar('\n');
}

static void total_prefixes(const struct selection *selection, int depth, bool json)
{
    for (size_t i = 0; i < selection->count;) {
        const char *name = selection->items[i].entry.name;
        size_t length = name_prefix(name, depth);
        struct group group = group_of(selection, i, selection->count, length);
        print_total(&group, json, "prefix", name, length, i == 0);
        i += group.count;
    }
}

/* Returns the group of all. */
static struct group total_dtypes(const struct selection *selection, bool json)
{
    struct group dtypes[DTYPES] = {0}, all = {.count = selection->count};
    bool first = true;
    for (size_t i = 0; i < selection->count; i++) {
        const dcp_entry *entry = &selection->items[i].entry;
        struct group *group = &dtypes[entry->is_tensor ? entry->dtype % DTYPES : 0];
        group->count++;
        group->tensors += entry->is_tensor;
        group->bytes += entry->bytes;
        all.tensors += entry->is_tensor;
        all.bytes += entry->bytes;
    }
    for (int dtype = 1; dtype < DTYPES; dtype++) {
        const char *name = dcp_dtype_name((dcp_dtype)dtype);
        if (dtypes[dtype].count == 0 || !name)
            continue;
        print_total(&dtypes[dtype], json, "dtype", name, strlen(name), first);
        first = false;
    }
    return all;
}

int ls_totals(struct selection *selection, int depth, bool json)
{
    sort_parts(selection);
    if (json)
        fputs("{\"prefixes\": [", stdout);
    total_prefixes(selection, depth, json);
    fputs(json ? "\n],\n\"dtypes\": [" : "\n", stdout);
    struct group all = total_dtypes(selection, json);
    if (json) {
        fputs("\n]}\n", stdout);
        return EXIT_FINE;
    }
    putchar('\n');
    print_sum(all.tensors, all.bytes, all.count - all.tensors);
    putchar('\n');
    return EXIT_FINE;
}
