/* SPDX-License-Identifier: BSD-3-Clause */
/* Figures of a run's saves, as dcp/run.h appends them to RUN/dcp_saves.jsonl. */
#ifndef CLI_SAVES_H
#define CLI_SAVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct save_line {
    int64_t unix_time; /* of its end, in seconds */
    int64_t step;
    bool saved;
    double stall, seconds;
    uint64_t bytes; /* of rank 0 */
    char path[128], run[64];
    char *failure; /* why it failed; "" if it did not */
};

struct saves {
    struct save_line *lines; /* in the order of the file */
    size_t count, capacity;
    size_t copies, failed_copies; /* to mirrors */
    size_t strange;               /* lines that were not understood, as a full disk leaves them */
};

/* False: there is no such file, or it cannot be read, with errno; or no memory. To be freed in any
 * case. */
bool saves_read(const char *run, struct saves *saves);
void saves_free(struct saves *saves);

#endif
