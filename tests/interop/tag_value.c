/* SPDX-License-Identifier: BSD-3-Clause */
#include "tag_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_hex(cJSON *tagged, const void *bytes, size_t length)
{
    char *hex = calloc(2, length + 1);

    for (size_t i = 0; hex && i < length; i++)
        snprintf(hex + 2 * i, 3, "%02x", ((const unsigned char *)bytes)[i]);
    cJSON_AddStringToObject(tagged, "hex", hex);
    free(hex);
}

/* As Python's float.hex(). */
static void add_float(cJSON *tagged, const char *name, double value)
{
    char text[40];

    if (isnan(value))
        snprintf(text, sizeof text, "nan");
    else if (value == 0)
        snprintf(text, sizeof text, "%s0x0.0p+0", signbit(value) ? "-" : "");
    else
        snprintf(text, sizeof text, "%.13a", value);
    cJSON_AddStringToObject(tagged, name, text);
}

static void add_complex(cJSON *tagged, const dcp_state *node)
{
    double real = 0, imaginary = 0;

    dcp_state_as_complex(node, &real, &imaginary);
    add_float(tagged, "re", real);
    add_float(tagged, "im", imaginary);
}

static void add_dtype(cJSON *tagged, const dcp_state *node)
{
    char text[80];
    dcp_dtype dtype = DCP_F32;

    dcp_state_as_dtype(node, &dtype);
    snprintf(text, sizeof text, "torch.%s", dcp_dtype_name(dtype));
    cJSON_AddStringToObject(tagged, "v", text);
}

static void add_size(cJSON *tagged, const dcp_state *node)
{
    cJSON *sizes = cJSON_AddArrayToObject(tagged, "v");

    for (size_t i = 0; i < dcp_state_count(node); i++)
        cJSON_AddItemToArray(sizes, cJSON_CreateRaw(dcp_state_int_digits(dcp_state_at(node, i))));
}

static void add_text(cJSON *tagged, const dcp_state *node)
{
    const char *text = "";
    size_t length = 0;

    dcp_state_as_text(node, &text, &length);
    if (strlen(text) == length)
        cJSON_AddStringToObject(tagged, "v", text);
    else
        add_hex(tagged, text, length);
}

static void add_children(cJSON *tagged, const dcp_state *node)
{
    cJSON *children = cJSON_AddArrayToObject(tagged, "v");

    for (size_t i = 0; i < dcp_state_count(node); i++) {
        cJSON *child = value_tagged(dcp_state_at(node, i));
        if (dcp_state_key_at(node, i)) {
            cJSON *pair = cJSON_CreateArray();
            cJSON_AddItemToArray(pair, value_tagged(dcp_state_key_at(node, i)));
            cJSON_AddItemToArray(pair, child);
            child = pair;
        }
        cJSON_AddItemToArray(children, child);
    }
}

static const char *tag_of(dcp_kind kind)
{
    switch (kind) {
    case DCP_KIND_NONE:
        return "none";
    case DCP_KIND_BOOL:
        return "bool";
    case DCP_KIND_INT:
        return "int";
    case DCP_KIND_FLOAT:
        return "float";
    case DCP_KIND_STRING:
        return "str";
    case DCP_KIND_BYTES:
        return "bytes";
    case DCP_KIND_COMPLEX:
        return "complex";
    case DCP_KIND_BYTEARRAY:
        return "bytearray";
    case DCP_KIND_ORDERED_DICT:
        return "odict";
    case DCP_KIND_DTYPE:
        return "dtype";
    case DCP_KIND_SIZE:
        return "size";
    case DCP_KIND_DEVICE:
        return "device";
    case DCP_KIND_LIST:
        return "list";
    case DCP_KIND_TUPLE:
        return "tuple";
    case DCP_KIND_DICT:
        return "dict";
    case DCP_KIND_SET:
        return "set";
    case DCP_KIND_FROZENSET:
        return "frozenset";
    default:
        return NULL; /* cannot be built by hand */
    }
}

cJSON *value_tagged(const dcp_state *node)
{
    cJSON *tagged = cJSON_CreateObject();
    const void *bytes = NULL;
    double number = 0;
    size_t length = 0;
    bool truth = false;

    cJSON_AddStringToObject(tagged, "t", tag_of(dcp_state_kind(node)));
    switch (dcp_state_kind(node)) {
    case DCP_KIND_NONE:
        break;
    case DCP_KIND_BOOL:
        dcp_state_as_bool(node, &truth);
        cJSON_AddBoolToObject(tagged, "v", truth);
        break;
    case DCP_KIND_INT:
        cJSON_AddStringToObject(tagged, "v", dcp_state_int_digits(node));
        break;
    case DCP_KIND_FLOAT:
        dcp_state_as_float(node, &number);
        add_float(tagged, "v", number);
        break;
    case DCP_KIND_COMPLEX:
        add_complex(tagged, node);
        break;
    case DCP_KIND_DTYPE:
        add_dtype(tagged, node);
        break;
    case DCP_KIND_SIZE:
        add_size(tagged, node);
        break;
    case DCP_KIND_STRING:
    case DCP_KIND_DEVICE:
        add_text(tagged, node);
        break;
    case DCP_KIND_BYTES:
    case DCP_KIND_BYTEARRAY:
        dcp_state_as_bytes(node, &bytes, &length);
        add_hex(tagged, bytes, length);
        break;
    default:
        add_children(tagged, node);
    }
    return tagged;
}
