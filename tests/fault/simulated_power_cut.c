/* SPDX-License-Identifier: BSD-3-Clause */
/* What a power cut leaves: the durable view and a choice of what was pending. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fault/simulated_node.h"

enum choice_kind {
    CHOICE_NOTHING,
    CHOICE_ALL,
    CHOICE_NO_BYTES,
    CHOICE_NO_NAMES,
    CHOICE_ONLY,
    CHOICE_ALL_BUT,
    CHOICE_TORN,
    CHOICE_RANDOM
};

struct choice {
    enum choice_kind kind;
    size_t change;
    size_t page;
    uint64_t random; /* state of a generator */
};

static struct choice choice_of(const struct simulated_file_system *fs, size_t index)
{
    if (index < CHOICE_ONLY)
        return (struct choice){.kind = (enum choice_kind)index};
    size_t of_changes = index - CHOICE_ONLY;
    if (of_changes < 3 * fs->change_count)
        return (struct choice){
            .kind = CHOICE_ONLY + of_changes % 3, .change = of_changes / 3, .page = 512};
    return (struct choice){.kind = CHOICE_RANDOM,
                           .page = index % 2 ? 512 : 4096,
                           .random = index * UINT64_C(0x9e3779b97f4a7c15)};
}

size_t simulated_remainder_count(const struct simulated_file_system *fs, size_t random_choices)
{
    return CHOICE_ONLY + 3 * fs->change_count + random_choices;
}

void simulated_remainder_name(const struct simulated_file_system *fs, size_t index, char *text,
                              size_t size)
{
    static const char *const names[] = {"nothing", "all",     "all but bytes", "all but names",
                                        "only",    "all but", "all before",    "random choice"};
    static const char *const kinds[] = {"write", "size", "new name", "removed name", "rename"};
    struct choice choice = choice_of(fs, index);
    if (choice.kind < CHOICE_ONLY)
        snprintf(text, size, "%s of what was pending", names[choice.kind]);
    else if (choice.kind == CHOICE_RANDOM)
        snprintf(text, size, "random choice %zu of what was pending", index);
    else {
        const struct change *change = &fs->changes[choice.change];
        snprintf(text, size, "%s%s pending change %zu (%s%s%s)", names[choice.kind],
                 choice.kind == CHOICE_TORN ? " and part of" : "", choice.change,
                 kinds[change->kind], change->name != NULL ? " " : "",
                 change->name != NULL ? change->name : "");
    }
}

static bool toss(struct choice *choice)
{
    uint64_t z = choice->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) & 1;
}

/* Pages of the file, some of which reached the disk: every other one, or at random. A write within
 * one page is torn in its middle, which a sector is not; but a journal of a few bytes could be. */
static void apply_torn(struct choice *choice, const struct change *change, struct view *view)
{
    bool random = choice->kind == CHOICE_RANDOM;
    if (!random && change->length <= choice->page) {
        change_apply_bytes(change, 0, change->length / 2, view);
        return;
    }
    bool even = true;
    for (size_t from = 0; from < change->length; even = !even) {
        size_t to = from + choice->page - (change->offset + from) % choice->page;
        if (to > change->length)
            to = change->length;
        if (random ? toss(choice) : even)
            change_apply_bytes(change, from, to, view);
        from = to;
    }
}

static void apply_chosen(struct choice *choice, size_t index, const struct change *change,
                         struct view *view)
{
    bool names = true, sizes = true, bytes = true;
    switch (choice->kind) {
    case CHOICE_NOTHING:
        return;
    case CHOICE_ALL:
        break;
    case CHOICE_NO_BYTES:
        bytes = false;
        break;
    case CHOICE_NO_NAMES:
        names = false;
        break;
    case CHOICE_ONLY:
        if (index != choice->change)
            return;
        break;
    case CHOICE_ALL_BUT:
        if (index == choice->change)
            return;
        break;
    case CHOICE_TORN:
        if (index > choice->change)
            return;
        names = index < choice->change;
        bytes = index < choice->change;
        break;
    case CHOICE_RANDOM:
        names = toss(choice);
        sizes = toss(choice);
        bytes = false;
        break;
    }
    if (sizes)
        change_apply_size(change, view);
    if (bytes)
        change_apply_bytes(change, 0, change->length, view);
    else if (choice->kind != CHOICE_NO_BYTES)
        apply_torn(choice, change, view);
    if (names)
        change_apply_name(change, view);
}

/* Adds one view of a node to a view of its twin. */
static void view_copy(const struct view *from, struct node *twin, struct view *to)
{
    struct change change = {
        .node = twin, .bytes = from->content.bytes, .length = from->content.stored};
    change.size = from->content.size;
    change_apply_size(&change, to);
    change_apply_bytes(&change, 0, change.length, to);
    change.kind = CHANGE_ADD;
    for (size_t i = 0; i < from->entries.count; i++) {
        change.name = from->entries.list[i].name;
        change.child = from->entries.list[i].node->twin;
        change_apply_name(&change, to);
    }
}

static void make_twins(const struct simulated_file_system *fs, struct simulated_file_system *copy)
{
    for (struct node *node = fs->nodes; node != NULL; node = node->next)
        node->twin =
            node == fs->root ? copy->root : simulated_node_new(copy, node->kind, node->path);
}

struct simulated_file_system *simulated_copy(const struct simulated_file_system *fs)
{
    struct simulated_file_system *copy = simulated_new();
    copy->capacity = fs->capacity;
    copy->allow_early_commits = fs->allow_early_commits;
    make_twins(fs, copy);
    for (struct node *node = fs->nodes; node != NULL; node = node->next) {
        view_copy(&node->seen, node->twin, &node->twin->seen);
        view_copy(&node->seen, node->twin, &node->twin->durable);
    }
    return copy;
}

struct simulated_file_system *simulated_after_power_cut(const struct simulated_file_system *fs,
                                                        size_t index)
{
    struct simulated_file_system *left = simulated_new();
    left->allow_early_commits = fs->allow_early_commits;
    left->capacity = fs->capacity;
    make_twins(fs, left);
    for (struct node *node = fs->nodes; node != NULL; node = node->next)
        view_copy(&node->durable, node->twin, &node->twin->seen);
    struct choice choice = choice_of(fs, index);
    for (size_t i = 0; i < fs->change_count; i++) {
        struct change change = fs->changes[i];
        change.node = change.node->twin;
        change.child = change.child != NULL ? change.child->twin : NULL;
        apply_chosen(&choice, i, &change, &change.node->seen);
    }
    for (struct node *node = left->nodes; node != NULL; node = node->next)
        node->twin = node;
    for (struct node *node = left->nodes; node != NULL; node = node->next) {
        if (node->seen.content.stored > node->seen.content.size)
            node->seen.content.stored = node->seen.content.size;
        view_copy(&node->seen, node, &node->durable);
    }
    return left;
}
