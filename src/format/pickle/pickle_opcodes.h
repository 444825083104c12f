/* SPDX-License-Identifier: BSD-3-Clause */
/* The opcodes that the pickle reader supports, and their arguments in the input. */
#ifndef FORMAT_PICKLE_PICKLE_OPCODES_H
#define FORMAT_PICKLE_PICKLE_OPCODES_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct pickle_opcode_form {
    const char *name; /* NULL: an opcode that is refused */
    uint8_t size;     /* bytes of the opcode and its argument if fixed, otherwise 0 */
    uint8_t prefix;   /* or: bytes of the length in front of a counted argument */
    uint8_t lines;    /* or: lines of text */
};

extern const struct pickle_opcode_form pickle_opcode_forms[256];

/* A little-endian number of 1, 2, 4 or 8 bytes. */
static inline uint64_t pickle_number(const unsigned char *bytes, size_t size)
{
    uint64_t number = 0;
    switch (size) {
    case 1:
        return bytes[0];
    case 2:
        return (uint64_t)bytes[0] | (uint64_t)bytes[1] << 8;
    case 4:
        memcpy(&number, bytes, 4);
        break;
    default:
        memcpy(&number, bytes, 8);
        break;
    }
    return size == 4 ? le32toh((uint32_t)number) : le64toh(number);
}

const unsigned char *pickle_lines_skip(const unsigned char *at, const unsigned char *end,
                                       int lines);

/* The opcode after the one at `at`; NULL if that is unknown, or its argument runs over the end. */
static inline const unsigned char *pickle_opcode_skip(const unsigned char *at,
                                                      const unsigned char *end)
{
    const struct pickle_opcode_form *form = &pickle_opcode_forms[*at];
    size_t left = (size_t)(end - at);
    if (form->name == NULL || form->size > left || form->prefix >= left)
        return NULL;
    if (form->prefix != 0) {
        uint64_t length = pickle_number(at + 1, form->prefix);
        left -= 1 + (size_t)form->prefix;
        return length > left ? NULL : at + 1 + form->prefix + length;
    }
    return form->lines == 0 ? at + form->size : pickle_lines_skip(at + 1, end, form->lines);
}

#endif
