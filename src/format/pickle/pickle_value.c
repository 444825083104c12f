/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/pickle/pickle.h"

const char *pickle_kind_name(const struct pickle_value *value)
{
    static const char *const names[] = {[PICKLE_NONE] = "None",
                                        [PICKLE_BOOL] = "a bool",
                                        [PICKLE_INT] = "an int",
                                        [PICKLE_LONG] = "an int",
                                        [PICKLE_FLOAT] = "a float",
                                        [PICKLE_STRING] = "a string",
                                        [PICKLE_BYTES] = "bytes",
                                        [PICKLE_BYTEARRAY] = "a bytearray",
                                        [PICKLE_TUPLE] = "a tuple",
                                        [PICKLE_LIST] = "a list",
                                        [PICKLE_DICT] = "a dict",
                                        [PICKLE_SET] = "a set",
                                        [PICKLE_FROZENSET] = "a frozenset",
                                        [PICKLE_GLOBAL] = "a global",
                                        [PICKLE_CALL] = "a call",
                                        [PICKLE_OBJECT] = "an object",
                                        [PICKLE_PERSISTENT] = "a persistent id",
                                        [PICKLE_DIGEST] = "a finished object"};
    return value != NULL ? names[value->kind] : "nothing";
}
