/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "matrix_state.h"
#include "tag_value.h"

/* Objects are described by what the tree shows of them. */
static void describe_objects(struct matrix_state *state, const char *parent, const dcp_state *dict)
{
    for (size_t i = 0; state->entries && i < dcp_state_count(dict); i++) {
        const char *key = "";
        dcp_state_as_text(dcp_state_key_at(dict, i), &key, NULL);
        cJSON *entry = matrix_describe(state, parent, key, "object");
        cJSON_AddItemToObject(entry, "value", value_tagged(dcp_state_at(dict, i)));
    }
}

static void add_numbers(dcp_state *dict)
{
    dcp_state_none(dict, "none");
    dcp_state_bool(dict, "true", true);
    dcp_state_bool(dict, "false", false);
    dcp_state_int(dict, "zero", 0);
    dcp_state_int(dict, "byte", 255);
    dcp_state_int(dict, "short", 65536);
    dcp_state_int(dict, "minus", -1);
    dcp_state_int(dict, "beyond 32 bits", INT64_C(1) << 31);
    dcp_state_int(dict, "most", INT64_MAX);
    dcp_state_int(dict, "least", INT64_MIN);
    dcp_state_uint(dict, "most unsigned", UINT64_MAX);
    dcp_state_float(dict, "tenth", 0.1);
    dcp_state_float(dict, "minus zero", -0.0);
    dcp_state_float(dict, "infinite", (double)INFINITY);
    dcp_state_float(dict, "minus infinite", -(double)INFINITY);
    dcp_state_float(dict, "not a number", (double)NAN);
    dcp_state_float(dict, "subnormal", 0x1p-1074);
}

static void add_texts(dcp_state *dict)
{
    char bytes[256];
    char text[70000];

    for (int i = 0; i < 256; i++)
        bytes[i] = (char)i;
    memset(text, 'x', sizeof text);
    dcp_state_string(dict, "empty", "");
    dcp_state_string(dict, "ascii", "step");
    dcp_state_string(dict, "unicode", "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80");
    dcp_state_text(dict, "with NUL", "a\0b", 3);
    dcp_state_text(dict, "long", text, sizeof text);
    dcp_state_bytes(dict, "no bytes", "", 0);
    dcp_state_bytes(dict, "all bytes", bytes, sizeof bytes);
    dcp_state_bytes(dict, "many bytes", text, sizeof text);
}

static void add_containers(dcp_state *dict)
{
    dcp_state_list(dict, "empty list");
    dcp_state_tuple(dict, "empty tuple");

    dcp_state *numbers = dcp_state_list(dict, "2000 ints");
    for (int i = 0; i < 2000; i++)
        dcp_state_int(numbers, NULL, i * i);

    dcp_state *tuple = dcp_state_tuple(dict, "tuple");
    dcp_state_float(tuple, NULL, 0.9);
    dcp_state_string(tuple, NULL, "second");
    dcp_state *inner = dcp_state_dict(tuple, NULL);
    dcp_state_int(inner, "in a dict", 3);
    dcp_state_none(dcp_state_list(inner, "in a list"), NULL);
    dcp_state_tuple(tuple, NULL);
}

/* The ordered dict is in a tuple, as flattening would enter it elsewhere. */
static void add_python_values(dcp_state *dict)
{
    const int64_t sizes[] = {2, 0, 3, INT64_C(1) << 40, 5};
    char digits[601]; /* up to 255 bytes, beyond which PyTorch takes no int with weights_only */

    memset(digits, '9', sizeof digits - 1);
    digits[sizeof digits - 1] = '\0';
    dcp_state_complex(dict, "complex", 0.1, -0.0);
    dcp_state_complex(dict, "infinite complex", -(double)INFINITY, 0x1p-1074);
    dcp_state_bytearray(dict, "no bytearray", NULL, 0);
    dcp_state_bytearray(dict, "bytearray", "a\0\xff", 3);
    dcp_state_digits(dict, "beyond 64 bits", "18446744073709551616");
    dcp_state_digits(dict, "below 64 bits", "-9223372036854775809");
    dcp_state_digits(dict, "many digits", digits);
    dcp_state_dtype(dict, "dtype", DCP_BF16);
    dcp_state_size(dict, "no size", NULL, 0);
    dcp_state_size(dict, "size", sizes, 2);
    dcp_state_size(dict, "long size", sizes, 5);
    dcp_state_device(dict, "device", "cpu");
    dcp_state_device(dict, "device with index", "cuda:1");

    dcp_state *ordered = dcp_state_ordered_dict(dcp_state_tuple(dict, "ordered"), NULL);
    dcp_state_complex(ordered, "second", 1, 2);
    dcp_state_dtype(dcp_state_list(ordered, "first"), NULL, DCP_F32);
}

/* The dict is in a tuple, as flattening would enter it elsewhere. */
static void add_hashed_values(dcp_state *dict)
{
    dcp_state *set = dcp_state_set(dict, "set");
    dcp_state_string(set, NULL, "a");
    dcp_state *element = dcp_state_tuple(set, NULL);
    dcp_state_int(element, NULL, 1);
    dcp_state_float(element, NULL, 2);
    dcp_state_float(set, NULL, 1.5);
    dcp_state_digits(set, NULL, "18446744073709551616");
    dcp_state_none(set, NULL);
    dcp_state_bytes(set, NULL, "a", 1);
    dcp_state_set(dict, "empty set");
    dcp_state *many = dcp_state_set(dict, "many elements");
    for (int i = 10000; i < 12500; i++)
        dcp_state_int(many, NULL, i);

    dcp_state *keyed = dcp_state_dict(dcp_state_tuple(dict, "any key"), NULL);
    for (int i = 0; i < 20; i++)
        dcp_state_int(dcp_state_int_key(keyed, i * i), NULL, i);
    dcp_state *pair = dcp_state_pair(keyed);
    dcp_state_digits(pair, NULL, "-9223372036854775809");
    dcp_state_none(pair, NULL);
    pair = dcp_state_pair(keyed);
    dcp_state_float(pair, NULL, 0.5);
    dcp_state_none(dcp_state_list(pair, NULL), NULL);
    pair = dcp_state_pair(keyed);
    dcp_state_bytes(pair, NULL, "\xff", 1);
    dcp_state_int(dcp_state_dict(pair, NULL), "in a dict", 1);
    pair = dcp_state_pair(keyed);
    dcp_state *key = dcp_state_tuple(pair, NULL);
    dcp_state_none(key, NULL);
    dcp_state_complex(dcp_state_tuple(key, NULL), NULL, 1, 2);
    dcp_state_dtype(pair, NULL, DCP_F32);
    dcp_state_int(keyed, "string", 2);
}

static void add_values(struct matrix_state *state)
{
    dcp_state *dict = dcp_state_dict(state->root, "objects");

    add_numbers(dict);
    add_texts(dict);
    add_containers(dict);
    add_python_values(dict);
    add_hashed_values(dict);
    describe_objects(state, "objects", dict);
}

/* Parameter groups: a list of dicts, which is entered, so that positions become part of names. */
static void add_groups(struct matrix_state *state)
{
    dcp_state *list = dcp_state_list(state->root, "groups");
    char name[40];

    for (int i = 0; i < 2; i++) {
        dcp_state *group = dcp_state_dict(list, NULL);
        dcp_state_float(group, "lr", 0.1 / (i + 1));
        dcp_state_int(dcp_state_list(group, "params"), NULL, i);
        for (size_t k = 0; state->entries && k < dcp_state_count(group); k++) {
            const char *key = "";
            dcp_state_as_text(dcp_state_key_at(group, k), &key, NULL);
            snprintf(name, sizeof name, "%d.%s", i, key);
            cJSON *entry = matrix_describe(state, "groups", name, "object");
            cJSON *path = cJSON_GetObjectItemCaseSensitive(entry, "path");
            cJSON_ReplaceItemInArray(path, 1, cJSON_CreateNumber(i));
            cJSON_AddItemToArray(path, cJSON_CreateString(key));
            cJSON_AddItemToObject(entry, "value", value_tagged(dcp_state_at(group, k)));
        }
    }
}

void matrix_add_objects(struct matrix_state *state)
{
    add_values(state);
    add_groups(state);
}
