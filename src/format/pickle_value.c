/* SPDX-License-Identifier: BSD-3-Clause */
/* The small questions that all decoders ask of values. */
#include <string.h>

#include "format/pickle.h"

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

bool pickle_global_is(const struct pickle_value *value, const char *module, size_t module_length,
                      const char *name, size_t name_length)
{
    return value != NULL && value->kind == PICKLE_GLOBAL &&
           value->as.global.name_length == name_length &&
           value->as.global.module_length == module_length &&
           memcmp(value->as.global.name, name, name_length) == 0 &&
           memcmp(value->as.global.module, module, module_length) == 0;
}

bool pickle_text_is(const struct pickle_value *value, const char *text)
{
    return value != NULL && value->kind == PICKLE_STRING && value->as.text.length == strlen(text) &&
           memcmp(value->as.text.bytes, text, value->as.text.length) == 0;
}

struct pickle_value *pickle_dict_find(const struct pickle_value *dict, const char *key,
                                      size_t length)
{
    if (dict == NULL || dict->kind != PICKLE_DICT)
        return NULL;
    struct pickle_value **items = dict->as.sequence.items;
    for (uint32_t i = dict->as.sequence.count; i >= 2; i -= 2) {
        const struct pickle_value *candidate = items[i - 2];
        if (candidate->kind == PICKLE_STRING && candidate->as.text.length == length &&
            memcmp(candidate->as.text.bytes, key, length) == 0)
            return items[i - 1];
    }
    return NULL;
}
