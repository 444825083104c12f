/* SPDX-License-Identifier: BSD-3-Clause */
/* Which memory of the process a write would crash in: what is mapped, but not for writing. The
 * system lists it; it is looked at in portions, so that it takes no memory. */
#ifndef BASE_UNWRITABLE_H
#define BASE_UNWRITABLE_H

#include <stdint.h>

#include "base/text_lines.h"

enum { UNWRITABLE_MOST = 128 };

/* In ascending order; neighbours are joined. */
struct unwritable {
    size_t count;
    struct {
        uint64_t start, end;
    } ranges[UNWRITABLE_MOST];
};

/* The next portion of a list as proc_pid_maps(5) has it; false: there is no more. */
bool unwritable_read(struct text_lines *list, struct unwritable *unwritable);
/* Whether a byte of the range cannot be written. */
bool unwritable_has(const struct unwritable *unwritable, uint64_t start, uint64_t end);
/* The same of one byte, which is changed if it can be written: takes no longer than a system call.
 */
bool unwritable_byte(uint64_t address);

#endif
