/* SPDX-License-Identifier: BSD-3-Clause */
/* An optimizer's state in any of its forms, found parameter by parameter. */
#ifndef STATE_OPTIMIZER_H
#define STATE_OPTIMIZER_H

#include "base/arena.h"
#include "base/name_table.h"
#include "dcp/optimizer.h"

/* A value under a dotted key. */
struct optimizer_leaf {
    const char *key; /* borrowed from the source */
    const dcp_state *node;
    struct optimizer_leaf *next;
};

struct optimizer_leaves {
    struct optimizer_leaf *first, *last;
};

/* What a source holds of one parameter. */
struct optimizer_part {
    const dcp_state *state;               /* of nested sources: the parameter's dict */
    const dcp_state *group;               /* of nested sources: its group, a dict */
    struct optimizer_leaves state_leaves; /* of flat ones */
    struct optimizer_leaves group_leaves;
};

struct optimizer_source {
    const dcp_optimizer_options *options;
    size_t group_count;
    struct name_table names;  /* parameter's name -> position */
    struct name_table others; /* of flat sources: names of other optimizers' parameters */
    struct optimizer_part *parts;
    const dcp_state *groups; /* of nested sources: the list of groups */
    struct arena arena;
};

/* Checks names and groups. Free in either case. */
dcp_status optimizer_source_init(struct optimizer_source *source,
                                 const dcp_optimizer_options *options);
void optimizer_source_free(struct optimizer_source *source);
/* Finds the parameters' parts. */
dcp_status optimizer_source_read(struct optimizer_source *source, const dcp_state *tree);
bool optimizer_part_has_state(const struct optimizer_part *part);

/* For a flat source: takes each key that begins with "param_groups.", without that prefix. Only
 * these keys show whether "w.x" is a parameter, or "x" a part of the state of "w". */
dcp_status optimizer_learn_name(struct optimizer_source *source, const char *key);
/* The parameter that a dotted key is about, the longest name that fits, and what follows its name
 * and the dot; false for others' parameters. */
bool optimizer_find_parameter(const struct optimizer_source *source, const char *key,
                              size_t *position, const char **rest);

#define OPTIMIZER_STATE  "state"
#define OPTIMIZER_GROUPS "param_groups"
#define OPTIMIZER_PARAMS "params"

#endif
