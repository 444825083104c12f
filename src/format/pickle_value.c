/* SPDX-License-Identifier: BSD-3-Clause */
/* The small questions that all decoders ask of values. */
#include <string.h>

#include "format/pickle.h"

static bool same_text(const char *bytes, size_t length, const char *text)
{
    return strlen(text) == length && memcmp(bytes, text, length) == 0;
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
    for (uint32_t i = dict->as.sequence.count; i >= 2; i -= 2)
        if (pickle_text_is(items[i - 2], key))
            return items[i - 1];
    return NULL;
}
