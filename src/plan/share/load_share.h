/* SPDX-License-Identifier: BSD-3-Clause */
/* Sharing the reading of a load: one rank reads data that several ranks want and sends it to the
 * others. Pure.
 *
 * Tensors and objects are shared separately, in two results, because objects are read before any
 * destination is changed. An object counts as a row of bytes, its stored stream.
 *
 * Each rank sends what it wants (share_wants_encode()). Ranks that want exactly the same form a
 * class, and one of them sends it. The coordinator divides the wants of all classes into regions,
 * each wanted by one set of ranks (load_share_make()), and assigns each region to a reader among
 * these ranks, balanced by bytes. Every rank gets the result (load_share_encode()). It does not
 * contain what only one rank wants: load_share_rest() gives the rest of a plan.
 *
 * Except for pieces that are striped: ranks want all of such a piece, but in short runs (columns),
 * so that each would read all of it to get its part. Stripe after stripe of it is read by one rank,
 * which sends each of the others the elements that it wants. Of small pieces, all in a lot are read
 * before some are sent, so that it sends to one set of ranks after the other, and not to each for
 * each piece. */
#ifndef PLAN_SHARE_LOAD_SHARE_H
#define PLAN_SHARE_LOAD_SHARE_H

#include "plan/load/load_plan.h"

/* A region that a rank wants, inside one piece. */
struct share_want {
    uint32_t entry;
    uint32_t piece;
    struct box region;
};

struct share_wants {
    struct share_want *wants;
    size_t count;
    struct arena arena;
};

/* The regions of a plan that can be shared: all except objects without a stream and, for a rank
 * that sees the files, views that are not stored row-major, because consecutive parts of those
 * would be read repeatedly. */
dcp_status share_wants_encode(const struct load_plan *plan, const struct metadata *metadata,
                              bool sees, struct buffer *out);
/* Free in either case. */
dcp_status share_wants_decode(const void *bytes, size_t size, const struct metadata *metadata,
                              struct share_wants *wants);
void share_wants_free(struct share_wants *wants);

/* Classes whose ranks all want a region. */
struct share_set {
    const uint32_t *classes; /* ascending */
    size_t count;
};

/* A region that the same ranks want; no two have a common element. */
struct share_region {
    uint32_t entry;
    uint32_t piece;
    uint32_t set;
    struct box box;
    bool striped; /* a part of a piece that is read in stripes */
};

/* Elements from to end - 1 of a region, row-major: what one rank reads. */
struct share_run {
    uint32_t region;
    uint32_t reader;
    int64_t from;
    int64_t end;
};

struct load_share {
    uint32_t rank_count;
    uint32_t class_count;
    const uint32_t *class_of; /* by rank */
    struct share_set *sets;
    size_t set_count;
    struct share_region *regions;
    size_t region_count;
    struct share_run *runs; /* by set, file, offset and from, then by lot or stripe: as they are
                             * read */
    size_t run_count;
    uint32_t *next;  /* of each run the next one of its reader, or run_count */
    uint32_t *first; /* of each rank the first run, or run_count */
    size_t window;   /* most bytes that a reader sends at once: see share_window_next() */
    uint64_t lot; /* bytes of a file, from a multiple of them on, whose small pieces one rank reads
                   * in succession; 0: each piece is by itself */

    /* Of what can be shared, by all ranks, in the stored dtypes. */
    uint64_t bytes_wanted;
    uint64_t bytes_distinct;
    uint64_t bytes_exchanged; /* each byte once for each rank that gets it */
    uint64_t objects_wanted;  /* as many, of objects; these two are not passed on */
    uint64_t objects_distinct;
    struct arena arena;
};

/* What load_share_make() is about, and how it may assign. */
struct share_rules {
    bool objects; /* else tensors */
    /* By file, the rank that holds its contents; then regions that only one rank wants are shared
     * as well. NULL: each rank that wants a region can read it. */
    const uint32_t *holders;
    dcp_verification verification;
    bool blocks;           /* files carry checksums of blocks, as far as is known */
    uint64_t cut_size;     /* bytes of the smallest part that may be worth it */
    uint64_t lot;          /* load_share::lot, at most */
    uint64_t striped_size; /* bytes of the smallest piece that is read in stripes */
    uint64_t long_run;     /* consecutive bytes that a rank may well read by itself; ranks that want
                            * all of a piece in shorter runs read it in stripes. 0: they do not */
    size_t receive_bytes;  /* memory of each rank for what it receives at once */
    size_t largest_window; /* at most this */
};

/* wants: of each class. class_of: by rank, copied. share: free in either case. */
dcp_status load_share_make(const struct metadata *metadata, const struct share_wants *wants,
                           size_t class_count, const uint32_t *class_of, size_t rank_count,
                           const struct share_rules *rules, struct load_share *share);
dcp_status load_share_encode(const struct load_share *share, const struct metadata *metadata,
                             struct buffer *out);
dcp_status load_share_decode(const void *bytes, size_t size, const struct metadata *metadata,
                             uint32_t rank_count, struct load_share *share);
void load_share_free(struct load_share *share);
/* Has a share of objects fit metadata of the same structure, in which they may lie elsewhere and
 * have other lengths. */
void load_share_measure(struct load_share *share, const struct metadata *metadata);

/* A piece as a box: an object's stream is one of bytes. */
struct box share_piece_box(const struct metadata_entry *entry, uint32_t piece);
/* Bytes of an element of it. */
size_t share_element_size(const struct metadata_entry *entry);

/* The lot that a region's piece is in, in its file; SHARE_NO_LOT: none. */
uint64_t share_lot_of(const struct load_share *share, const struct metadata *metadata,
                      const struct share_region *region);
#define SHARE_NO_LOT UINT64_MAX
/* The pieces in lots are smaller, as they are stored and as elements. */
#define SHARE_LOT_PIECE ((uint64_t)1 << 20)

/* Bytes of a stripe, as far as the piece is not smaller; and at most, as stripes end where blocks
 * with a checksum do. */
#define SHARE_STRIPE      ((uint64_t)5 << 20)
#define SHARE_STRIPE_MOST (SHARE_STRIPE + ((uint64_t)1 << 20))

/* Elements of a piece, row-major. */
struct share_stripe {
    int64_t index;
    int64_t from;
    int64_t end;
};

/* The stripe that an element of a striped region lies in. */
struct share_stripe share_stripe_of(const struct metadata *metadata,
                                    const struct share_region *region, int64_t element);

/* Whether a rank reads two of its runs at once, before it sends either: they are of the same stripe
 * or lot. Runs of pieces that are not striped are read as they are sent. */
bool share_read_together(const struct load_share *share, const struct metadata *metadata,
                         const struct share_run *a, const struct share_run *b);

/* Whether a rank gets what is in a set. */
bool load_share_wants(const struct load_share *share, uint32_t set, uint32_t rank);

/* Whether a rank gets the object of an entry from this share. */
bool load_share_brings(const struct load_share *share, uint32_t rank, uint32_t entry);

/* The part of a rank's plan that it must read itself; objects are ignored. */
dcp_status load_share_rest(const struct load_share *share, uint32_t rank,
                           const struct load_plan *plan, const struct metadata *metadata,
                           struct load_plan *rest);

/* How far a reader's runs have been sent. */
struct share_cursor {
    uint32_t run;    /* index into share->runs; run_count at the end */
    int64_t element; /* of the run's region: what comes next, if that is not less than run.from */
};

struct share_cursor share_cursor_start(const struct load_share *share, uint32_t reader);

/* A window: some of the elements that follow each other in a reader's runs, all for the same set of
 * ranks and read together, in one message of share->window bytes at most. Zero is the start of one.
 */
struct share_window {
    bool begun;
    bool full; /* with a large segment, which is alone in it */
    const struct share_run *run;
    uint32_t set;
    size_t bytes; /* so far */
};

struct share_segment {
    const struct share_run *run;
    int64_t from;
    int64_t end;
    size_t place; /* of its bytes in the window; a multiple of 16 */
};

/* The next segment of a window; false at its end, which is also its beginning once the reader has
 * no more. */
bool share_window_next(const struct load_share *share, const struct metadata *metadata,
                       struct share_window *window, struct share_cursor *cursor,
                       struct share_segment *segment);

/* Whether sharing pays. */
struct share_costs {
    uint64_t wanted;         /* bytes: by all ranks */
    uint64_t distinct;       /* each once */
    uint64_t exchanged;      /* by all ranks */
    uint64_t reads_wanted;   /* by all ranks, if each piece is a separate read */
    uint64_t reads_distinct; /* each once */
    uint32_t rank_count;
    bool storage_is_shared; /* a network's file system, or reads that go around the page cache */
    uint32_t host_count;    /* whose ranks read what others have for them from their memory */
    bool broadcasts;        /* on several hosts it is sent to all ranks, one after the other */
    uint64_t group_rate;    /* bytes a second that each rank can send; 0: SHARE_GROUP_RATE */
};

#define SHARE_GROUP_RATE ((uint64_t)1 << 30)

bool load_share_pays(const struct share_costs *costs);

#endif
