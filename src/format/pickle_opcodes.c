/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/pickle_opcodes.h"

#include <string.h>

#include "format/pickle.h"

#define FORM(opcode, ...) [OP_##opcode] = {.name = #opcode, __VA_ARGS__}

const struct pickle_opcode_form pickle_opcode_forms[256] = {
    FORM(MARK, 0),
    FORM(EMPTY_TUPLE, 0),
    FORM(STOP, 0),
    FORM(POP, 0),
    FORM(BINBYTES, .prefix = 4),
    FORM(SHORT_BINBYTES, .prefix = 1),
    FORM(BINFLOAT, .fixed = 8),
    FORM(BININT, .fixed = 4),
    FORM(BININT1, .fixed = 1),
    FORM(BININT2, .fixed = 2),
    FORM(NONE, 0),
    FORM(BINPERSID, 0),
    FORM(REDUCE, 0),
    FORM(BINSTRING, .prefix = 4),
    FORM(SHORT_BINSTRING, .prefix = 1),
    FORM(BINUNICODE, .prefix = 4),
    FORM(EMPTY_LIST, 0),
    FORM(APPEND, 0),
    FORM(BUILD, 0),
    FORM(GLOBAL, .lines = 2),
    FORM(APPENDS, 0),
    FORM(BINGET, .fixed = 1),
    FORM(LONG_BINGET, .fixed = 4),
    FORM(BINPUT, .fixed = 1),
    FORM(LONG_BINPUT, .fixed = 4),
    FORM(SETITEM, 0),
    FORM(TUPLE, 0),
    FORM(SETITEMS, 0),
    FORM(EMPTY_DICT, 0),
    FORM(PROTO, .fixed = 1),
    FORM(NEWOBJ, 0),
    FORM(TUPLE1, 0),
    FORM(TUPLE2, 0),
    FORM(TUPLE3, 0),
    FORM(NEWTRUE, 0),
    FORM(NEWFALSE, 0),
    FORM(LONG1, .prefix = 1),
    FORM(LONG4, .prefix = 4),
    FORM(SHORT_BINUNICODE, .prefix = 1),
    FORM(BINUNICODE8, .prefix = 8),
    FORM(BINBYTES8, .prefix = 8),
    FORM(EMPTY_SET, 0),
    FORM(ADDITEMS, 0),
    FORM(FROZENSET, 0),
    FORM(NEWOBJ_EX, 0),
    FORM(STACK_GLOBAL, 0),
    FORM(MEMOIZE, 0),
    FORM(FRAME, .fixed = 8),
    FORM(BYTEARRAY8, .prefix = 8),
};

const unsigned char *pickle_lines_skip(const unsigned char *at, const unsigned char *end, int lines)
{
    for (; at != NULL && lines > 0; lines--) {
        const unsigned char *newline = memchr(at, '\n', (size_t)(end - at));
        at = newline != NULL ? newline + 1 : NULL;
    }
    return at;
}
