/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks want of a few tensors, made up, and whether a share gives it to them. */
#ifndef TESTS_PLAN_SHARE_WISHES_H
#define TESTS_PLAN_SHARE_WISHES_H

#include "plan/share/load_share.h"

enum { ENTRIES = 3, PIECES = 2, ROWS = 12, COLUMNS = 10, RANKS_MOST = 6 };

/* Two-dimensional tensors of two pieces each, one above the other. */
struct stored {
    struct metadata metadata;
    struct metadata_entry entries[ENTRIES];
    struct metadata_piece pieces[ENTRIES][PIECES];
    int64_t numbers[PIECES][4];
    int64_t shape[2];
    int64_t rows;
};

/* A rank's plan of boxes, each of them cut by the pieces. */
struct wishes {
    struct load_plan plan;
    struct read_item items[64];
    int64_t numbers[64][4];
};

/* How often each element of each tensor came to a rank, and was read for others. */
struct counts {
    int got[ENTRIES][ROWS * COLUMNS];
    int read[ENTRIES][ROWS * COLUMNS];
};

extern const struct share_rules small_rules;
/* For rows of 4 KiB. */
extern const struct share_rules large_rules;

void stored_init(struct stored *stored, int64_t rows, int64_t columns);
void wish(struct wishes *wishes, const struct stored *stored, uint32_t entry,
          const int64_t offsets[2], const int64_t sizes[2]);
/* Every rank in a class of its own, but those that wish the same. */
dcp_status share(const struct stored *stored, struct wishes *wishes, uint32_t ranks,
                 const struct share_rules *rules, struct load_share *result);
/* Walks over all windows, as ranks do. */
void count_windows(const struct load_share *share, const struct stored *stored, uint32_t rank,
                   struct counts *counts);
void check_rank(const struct load_share *share, const struct stored *stored,
                const struct wishes *wishes, uint32_t rank);
/* No element that two ranks want is left to both of them. */
void check_shared(const struct load_share *share, const struct stored *stored,
                  const struct wishes *wishes);
/* Kinds of wishes: whole tensors, random boxes, the same as another rank's. */
void make_wishes(struct wishes *wishes, const struct stored *stored, uint32_t ranks,
                 uint64_t *seed);
void fill_loads(const struct load_share *share, const struct stored *stored,
                uint64_t loads[RANKS_MOST]);
/* Ranks that want columns of a tensor, together all of them; neighbours overlap at times. */
void wish_columns(struct wishes *wishes, const struct stored *stored, uint32_t entry,
                  uint32_t ranks, int64_t overlap);
struct share_rules striping(struct share_rules rules);
size_t count_striped(const struct load_share *share);

#endif
