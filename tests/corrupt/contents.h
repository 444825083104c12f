/* SPDX-License-Identifier: BSD-3-Clause */
/* All values of a checkpoint, read through the public interface: once when it is whole, and again
 * after something was done to it. */
#ifndef CORRUPT_CONTENTS_H
#define CORRUPT_CONTENTS_H

#include "dcp.h"

struct contents;

/* path must be whole. verification: of all reads. */
struct contents *contents_read(const char *path, dcp_verification verification);
void contents_free(struct contents *contents);

/* What came of it when a damaged checkpoint was read in every way. */
struct damage_report {
    uint64_t faults; /* that the verification found; at least 1 if it could not be made */
    bool opened;
    size_t wrong;       /* values that were given without an error and differ */
    char message[1200]; /* the last wrong one, or a failure without a message */
    bool unexplained;   /* a failure without a message, or one of ours */
};

void contents_compare(const struct contents *contents, const char *path,
                      struct damage_report *report);

/* Memory for the library: beyond the limit it fails, and is remembered. */
void memory_limit_install(size_t limit);
/* Whether the limit was met since the last question. */
bool memory_limit_met(void);

#endif
