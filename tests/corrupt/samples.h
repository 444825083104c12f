/* SPDX-License-Identifier: BSD-3-Clause */
/* Small whole checkpoints of every form, and a place to damage them in. */
#ifndef CORRUPT_SAMPLES_H
#define CORRUPT_SAMPLES_H

#include "contents.h"

struct sample_file {
    const char *name;
    unsigned char *bytes;
    size_t size;
};

/* A checkpoint in memory and, at path, on disk. */
struct checkpoint_sample {
    const char *title;
    bool ours;
    char *path;      /* what is opened */
    char *directory; /* where the files are */
    struct sample_file files[16];
    size_t file_count;
    struct contents *contents;
};

enum { SAMPLE_COUNT = 13 };

/* Puts sample `number` into a directory of its own inside of `scratch`. false: this build cannot
 * read it. */
bool checkpoint_sample_make(struct checkpoint_sample *sample, int number, const char *scratch);
void checkpoint_sample_free(struct checkpoint_sample *sample);

/* Writes one file anew; the original bytes are sample->files[file]. */
void checkpoint_sample_write(const struct checkpoint_sample *sample, size_t file,
                             const unsigned char *bytes, size_t size);

/* Reads the damaged checkpoint in every way. Fails the test if a failure had no message, memory
 * beyond the limit was asked for, or, where `covered`, a value was wrong without an error. */
struct damage_report checkpoint_sample_examine(const struct checkpoint_sample *sample,
                                               const char *what, size_t at, bool covered);

#endif
