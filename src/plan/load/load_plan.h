/* SPDX-License-Identifier: BSD-3-Clause */
/* Load planning: compares what a rank wants with what is stored. Pure. */
#ifndef PLAN_LOAD_LOAD_PLAN_H
#define PLAN_LOAD_LOAD_PLAN_H

#include "base/buffer.h"
#include "dcp/types.h"
#include "plan/names/name_filter.h"
#include "plan/names/name_rules.h"
#include "state/flatten.h"
#include "state/metadata.h"

/* One region to read: from a stored piece into one chunk of a wanted tensor; or an object. */
struct read_item {
    uint32_t wanted; /* index into flat->entries */
    uint32_t chunk;  /* of the wanted tensor's node */
    uint32_t entry;  /* index into metadata->entries */
    uint32_t piece;
    struct box region; /* in the tensor's coordinates; tensors only */
};

struct load_plan {
    struct read_item *items; /* by file and offset of the piece */
    size_t count;
    uint64_t bytes_wanted; /* bytes of all regions, in the stored dtype */
    struct arena arena;
};

/* The options of a load that are about names; borrowed. */
struct load_names {
    struct name_filter filter;
    struct name_rules rules;
    const char *const *stored; /* by index into flat->entries: the stored name, which overrides the
                                  rules; an entry, or the array, may be NULL: the rules apply */
    const struct flat_state *flat; /* the tree that was planned last; NULL: none yet */
};

/* DCP_ERR_ARGUMENT for malformed patterns and rules. To be freed in either case. */
dcp_status load_names_init(struct load_names *names, const struct name_filter *filter,
                           const dcp_rename *renames, size_t rename_count);
void load_names_free(struct load_names *names);

/* The differences of one rank, or the merged ones of all. Texts are copies. */
struct load_differences {
    struct load_difference {
        dcp_difference difference;
        const char *name;
        const char *detail;
        const char
            *stored_name; /* the name that was looked for; the same as name if no rule changed it */
    } * lines;
    size_t count;
    size_t capacity;
    unsigned char *wanted; /* bitmap over metadata->entries: looked for, or left out by options */
    size_t entry_count;
    bool *used; /* of each rule, include and exclude pattern, in this order: some name matched */
    size_t used_count;
    dcp_status failure; /* of the first mismatch: DCP_ERR_SHAPE, DCP_ERR_DTYPE, DCP_ERR_KIND */
    struct arena arena;
};

/* Plans one rank's reading. Names that the options leave out are neither planned nor missing.
 * Proves that the stored pieces cover each wanted chunk (DCP_ERR_COVERAGE names the missing box)
 * and do not overlap in it (DCP_ERR_OVERLAP), so that each wanted element is written exactly once.
 * Missing names and mismatches become differences, not errors; mismatched entries are not planned.
 * names: NULL if stored names equal those of the tree. */
dcp_status load_plan_make(struct flat_state *flat, const struct metadata *metadata,
                          struct load_names *names, bool convert, struct load_plan *plan,
                          struct load_differences *differences);
/* Instead of load_plan_make(), if a planner makes the plan: applies the names; nothing is wanted
 * yet. */
dcp_status load_plan_skip(struct flat_state *flat, const struct metadata *metadata,
                          struct load_names *names, struct load_plan *plan,
                          struct load_differences *differences);
/* Sorts the items again after pieces have moved. */
void load_plan_sort(struct load_plan *plan, const struct metadata *metadata);
void load_plan_free(struct load_plan *plan);

/* Marks a stored name as wanted, too; it need not exist. */
void load_differences_want(struct load_differences *differences, const struct metadata *metadata,
                           const char *stored_name);
dcp_status load_differences_encode(const struct load_differences *differences, struct buffer *out);
dcp_status load_differences_decode(const void *bytes, size_t size,
                                   struct load_differences *differences);
/* Merges all ranks' lines, sorted by kind and name, without repetitions. Adds unexpected names
 * (entries that no rank wants and no filter leaves out) and patterns and rules that no rank
 * used. */
dcp_status load_differences_merge(const struct load_differences *ranks, int rank_count,
                                  const struct metadata *metadata, const struct load_names *names,
                                  struct load_differences *merged);
bool strictness_is_known(dcp_strictness strictness);
/* Whether missing names are an error. */
bool strictness_wants_all(dcp_strictness strictness);
/* DCP_OK, or the failure that the strictness (a valid value) makes of them. The message lists the
 * first few names, and the closest stored name of a missing one. allow_unused: patterns and rules
 * that apply to no name are not a failure. */
dcp_status load_differences_judge(const struct load_differences *merged, dcp_strictness strictness,
                                  bool allow_unused, const struct metadata *metadata);
/* Logs what the strictness says should be logged, in the same words. path: of the checkpoint. */
void load_differences_log(const struct load_differences *merged, dcp_strictness strictness,
                          const struct metadata *metadata, const char *path);
void load_differences_free(struct load_differences *differences);

#endif
