/* SPDX-License-Identifier: BSD-3-Clause */
/* The bytes that say what a packed value is; dcp/packed.h has what follows them. */
#ifndef STATE_PACKED_H
#define STATE_PACKED_H

enum packed_kind {
    PACKED_NONE = 'N',
    PACKED_FALSE = '0',
    PACKED_TRUE = '1',
    PACKED_INT = 'i',
    PACKED_DIGITS = 'I',
    PACKED_FLOAT = 'f',
    PACKED_COMPLEX = 'c',
    PACKED_STRING = 's',
    PACKED_BYTES = 'b',
    PACKED_BYTEARRAY = 'B',
    PACKED_DTYPE = 'D',
    PACKED_DEVICE = 'V',
    PACKED_SIZE = 'Z',
    PACKED_LIST = '[',
    PACKED_TUPLE = '(',
    PACKED_DICT = '{',
    PACKED_ORDERED_DICT = 'O',
    PACKED_SET = 'S',
    PACKED_FROZENSET = 'F',
    PACKED_TENSOR = 't',
    PACKED_MESH_TENSOR = 'm',
    PACKED_STREAM = 'o',
    PACKED_OPAQUE = 'x'
};

#endif
