/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/pickle/pickle_opcodes.h"

#include <string.h>

#include "format/pickle/pickle.h"

#define PLAIN(opcode)           [OP_##opcode] = {.name = #opcode, .size = 1}
#define FIXED(opcode, argument) [OP_##opcode] = {.name = #opcode, .size = 1 + (argument)}
#define COUNTED(opcode, length) [OP_##opcode] = {.name = #opcode, .prefix = (length)}
#define LINES(opcode, number)   [OP_##opcode] = {.name = #opcode, .lines = (number)}

const struct pickle_opcode_form pickle_opcode_forms[256] = {
    PLAIN(MARK),
    PLAIN(EMPTY_TUPLE),
    PLAIN(STOP),
    PLAIN(POP),
    COUNTED(BINBYTES, 4),
    COUNTED(SHORT_BINBYTES, 1),
    FIXED(BINFLOAT, 8),
    FIXED(BININT, 4),
    FIXED(BININT1, 1),
    FIXED(BININT2, 2),
    PLAIN(NONE),
    PLAIN(BINPERSID),
    PLAIN(REDUCE),
    COUNTED(BINSTRING, 4),
    COUNTED(SHORT_BINSTRING, 1),
    COUNTED(BINUNICODE, 4),
    PLAIN(EMPTY_LIST),
    PLAIN(APPEND),
    PLAIN(BUILD),
    LINES(GLOBAL, 2),
    PLAIN(APPENDS),
    FIXED(BINGET, 1),
    FIXED(LONG_BINGET, 4),
    FIXED(BINPUT, 1),
    FIXED(LONG_BINPUT, 4),
    PLAIN(SETITEM),
    PLAIN(TUPLE),
    PLAIN(SETITEMS),
    PLAIN(EMPTY_DICT),
    FIXED(PROTO, 1),
    PLAIN(NEWOBJ),
    PLAIN(TUPLE1),
    PLAIN(TUPLE2),
    PLAIN(TUPLE3),
    PLAIN(NEWTRUE),
    PLAIN(NEWFALSE),
    COUNTED(LONG1, 1),
    COUNTED(LONG4, 4),
    COUNTED(SHORT_BINUNICODE, 1),
    COUNTED(BINUNICODE8, 8),
    COUNTED(BINBYTES8, 8),
    PLAIN(EMPTY_SET),
    PLAIN(ADDITEMS),
    PLAIN(FROZENSET),
    PLAIN(NEWOBJ_EX),
    PLAIN(STACK_GLOBAL),
    PLAIN(MEMOIZE),
    FIXED(FRAME, 8),
    COUNTED(BYTEARRAY8, 8),
};

const unsigned char *pickle_lines_skip(const unsigned char *at, const unsigned char *end, int lines)
{
    for (; at != NULL && lines > 0; lines--) {
        const unsigned char *newline = memchr(at, '\n', (size_t)(end - at));
        at = newline != NULL ? newline + 1 : NULL;
    }
    return at;
}
