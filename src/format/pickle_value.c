/* SPDX-License-Identifier: BSD-3-Clause */
/* The small questions that all decoders ask of values. */
#include <string.h>

#include "format/pickle.h"

static bool same_text(const char *bytes, size_t length, const char *text)
{
    return strlen(text) == length && memcmp(bytes, text, length) == 0;
}

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

bool pickle_is_global(const struct pickle_value *value, const char *module, const char *name)
{
    return value != NULL && value->kind == PICKLE_GLOBAL &&
           same_text(value->as.global.name, value->as.global.name_length, name) &&
           same_text(value->as.global.module, value->as.global.module_length, module);
}

bool pickle_is_call(const struct pickle_value *value, const char *module, const char *name)
{
    return value != NULL && (value->kind == PICKLE_CALL || value->kind == PICKLE_OBJECT) &&
           pickle_is_global(value->as.call->callable, module, name);
}

bool pickle_text_is(const struct pickle_value *value, const char *text)
{
    return value != NULL && value->kind == PICKLE_STRING &&
           same_text(value->as.text.bytes, value->as.text.length, text);
}

struct pickle_value *pickle_dict_get(const struct pickle_value *dict, const char *key)
{
    if (dict == NULL || dict->kind != PICKLE_DICT)
        return NULL;
    struct pickle_value **items = dict->as.sequence.items;
    size_t length = strlen(key);
    for (uint32_t i = dict->as.sequence.count; i >= 2; i -= 2) {
        const struct pickle_value *candidate = items[i - 2];
        if (candidate->kind == PICKLE_STRING && candidate->as.text.length == length &&
            memcmp(candidate->as.text.bytes, key, length) == 0)
            return items[i - 1];
    }
    return NULL;
}
