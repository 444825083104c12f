/* SPDX-License-Identifier: BSD-3-Clause */
/* What may have been meant by a name that nothing is called: names, and containers that names are
 * below, which are called nearly so. */
#ifndef PLAN_NAMES_NAME_NEAR_H
#define PLAN_NAMES_NAME_NEAR_H

#include <stddef.h>

#include "base/buffer.h"

enum { NEAR_NAMES_MAX = 3 };

/* A search: it is offered names one by one. Texts are borrowed. */
struct near_names {
    const char *wanted;
    size_t wanted_length;
    size_t limit; /* of the distance */
    struct near_name {
        const char *text; /* not NUL-terminated */
        size_t length;
        size_t distance;
    } found[NEAR_NAMES_MAX]; /* the nearest first */
    size_t count;
    const char *last; /* the name that was offered before */
    size_t left;      /* how many more will be compared */
};

void near_names_init(struct near_names *near, const char *wanted, size_t wanted_length);
/* Compares a name and the containers that it is below. */
void near_names_offer(struct near_names *near, const char *name);
/* Appends "; did you mean "a" or "b"?", each with the ending behind it; nothing if none is near. */
void near_names_append(const struct near_names *near, const char *ending, struct buffer *text);

#endif
