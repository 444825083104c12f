/* SPDX-License-Identifier: BSD-3-Clause */
/* Mirrors of a run: what is whole where (run_mirror_look), copying what is lacking
 * (run_mirror_copy), behind training (run_mirror_thread), and back (run_mirror_back). */
#ifndef RUN_RUN_MIRROR_H
#define RUN_RUN_MIRROR_H

#include "dcp/run_mirror.h"
#include "run/run_own.h"

/* Before a checkpoint's name and a mirror's digits: it was copied. */
#define RUN_MIRRORED ".dcp_mirrored."

/* A checkpoint that some rules keep, or that they do not. */
struct run_whole {
    char name[RUN_NAME_MAX];
    int64_t step;
    dcp_run_verdict verdict;
    char why[160];
};

struct run_wholes {
    struct run_whole *items; /* oldest first */
    size_t count, capacity;
    dcp_status status; /* of taking them down */
};

/* Whose run a place is. Other than run_own_read() it tells a place that cannot be asked from one
 * where there is none. */
dcp_status run_mirror_own(const struct run_place *place, struct run_own *own, bool *found);
/* What is at a place, and what rules would do with it. keep: NULL: all is kept. */
dcp_status run_mirror_look(const struct run_place *place, const char *identity,
                           const dcp_run_keep *keep, struct run_wholes *wholes);
/* What a mirror has, taken for whole where it is committed, as copies are: one request for each,
 * oldest first. */
dcp_status run_mirror_glance(const struct run_place *place, const struct run_own *own,
                             struct run_wholes *wholes);
void run_wholes_free(struct run_wholes *wholes);
/* The newest one that is kept; NULL: none. */
const struct run_whole *run_wholes_newest(const struct run_wholes *wholes);

/* The save that made a checkpoint, and when; "" and 0: unknown. */
struct run_made {
    char save_id[64];
    int64_t unix_time;
};
dcp_status run_mirror_made(const struct run_place *place, const char *name, struct run_made *made);

/* Notes that a checkpoint was copied to a mirror. */
dcp_status run_mirror_note(const struct run_place *place, const char *name, const char *save_id,
                           const char *destination);
/* *noted: that save of it was. */
dcp_status run_mirror_is_noted(const struct run_place *place, const char *name, const char *save_id,
                               const char *destination, bool *noted);
/* Whether a name is that of a note of the checkpoint, whichever mirror's. */
bool run_mirror_is_note_of(const char *note, const char *name);
/* To how many mirrors the save was copied, as notes among the names in the run say. */
dcp_status run_mirror_count(const struct run_place *place, const struct run_names *names,
                            const char *name, const char *save_id, uint32_t *count);
/* Removes all notes of a checkpoint. */
dcp_status run_mirror_forget(const struct run_place *place, const char *name);

#endif
