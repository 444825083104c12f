/* SPDX-License-Identifier: BSD-3-Clause */
#include "names.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

static bool matches(const char *pattern, const char *name)
{
    size_t length = strlen(pattern);
    if (strncmp(pattern, name, length) == 0 && (name[length] == '\0' || name[length] == '.'))
        return true; /* also of a name with a star in it */
    return strpbrk(pattern, "*?[") && fnmatch(pattern, name, FNM_NOESCAPE) == 0;
}

bool names_match(const struct text_list *patterns, const char *name)
{
    for (size_t i = 0; i < patterns->count; i++)
        if (matches(patterns->items[i], name))
            return true;
    return false;
}

static bool is_wanted(const struct text_list *include, const struct text_list *exclude,
                      const char *name)
{
    if (include && include->count > 0 && !names_match(include, name))
        return false;
    return !exclude || !names_match(exclude, name);
}

/* Each pattern is of some use; else it is a slip of the hand. */
static int check_used(const dcp_checkpoint *checkpoint, const char *command,
                      const struct text_list *include)
{
    size_t count = dcp_checkpoint_count(checkpoint);
    for (size_t p = 0; include && p < include->count; p++) {
        bool used = false;
        dcp_entry entry;
        for (size_t i = 0; i < count && !used; i++)
            used = dcp_checkpoint_entry(checkpoint, i, &entry) == DCP_OK &&
                   matches(include->items[p], entry.name);
        if (used)
            continue;
        fprintf(stderr, "dcp %s: no name matches ", command);
        print_plain(stderr, include->items[p]);
        fputs("; dcp ls shows the names\n", stderr);
        return EXIT_FAULT;
    }
    return EXIT_FINE;
}

int selection_make(const dcp_checkpoint *checkpoint, const char *command,
                   const struct text_list *include, const struct text_list *exclude,
                   struct selection *selection)
{
    size_t count = dcp_checkpoint_count(checkpoint);
    selection->count = 0;
    selection->items = calloc(count + 1, sizeof *selection->items);
    if (!selection->items) {
        fprintf(stderr, "dcp %s: not enough memory for %zu names\n", command, count);
        return EXIT_FAULT;
    }
    for (size_t i = 0; i < count; i++) {
        struct selected *item = &selection->items[selection->count];
        item->index = i;
        if (dcp_checkpoint_entry(checkpoint, i, &item->entry) != DCP_OK)
            return command_fail(command);
        selection->count += is_wanted(include, exclude, item->entry.name);
    }
    return check_used(checkpoint, command, include);
}

void selection_free(struct selection *selection)
{
    free(selection->items);
    *selection = (struct selection){0};
}

size_t name_prefix(const char *name, int depth)
{
    const char *at = name;
    for (int i = 0; i < depth; i++) {
        at += strcspn(at, ".");
        if (!*at)
            break;
        if (i + 1 < depth)
            at++;
    }
    return (size_t)(at - name);
}
