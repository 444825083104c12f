/* SPDX-License-Identifier: BSD-3-Clause */
/* The opcodes that the pickle reader knows, and what follows each of them in the input. */
#ifndef FORMAT_PICKLE_OPCODES_H
#define FORMAT_PICKLE_OPCODES_H

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

struct pickle_opcode_form {
    const char *name; /* NULL: an opcode that is refused */
    uint8_t fixed;    /* bytes of a fixed argument */
    uint8_t prefix;   /* or: bytes of the length in front of a counted one */
    uint8_t lines;    /* or: lines of text */
};

extern const struct pickle_opcode_form pickle_opcode_forms[256];

/* A little-endian number of 1, 2, 4 or 8 bytes. */
static inline uint64_t pickle_number(const unsigned char *bytes, size_t size)
{
    switch (size) {
    case 1:
        return bytes[0];
    case 2:
        return load_u16(bytes);
    case 4:
        return load_u32(bytes);
    default:
        return load_u64(bytes);
    }
}

const unsigned char *pickle_lines_skip(const unsigned char *at, const unsigned char *end,
                                       int lines);

/* The opcode after the one at `at`; NULL if that is unknown, or its argument runs over the end. */
static inline const unsigned char *pickle_opcode_skip(const unsigned char *at,
                                                      const unsigned char *end)
{
    const struct pickle_opcode_form *form = &pickle_opcode_forms[*at++];
    size_t needed = (size_t)form->fixed + form->prefix;
    if (form->name == NULL || needed > (size_t)(end - at))
        return NULL;
    if (form->prefix != 0) {
        uint64_t length = pickle_number(at, form->prefix);
        at += form->prefix;
        return length > (uint64_t)(end - at) ? NULL : at + length;
    }
    return form->lines == 0 ? at + needed : pickle_lines_skip(at, end, form->lines);
}

#endif
