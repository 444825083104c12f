/* SPDX-License-Identifier: BSD-3-Clause */
#include "compare_value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "manifest.h"

typedef bool match_function(const dcp_state *node, const cJSON *expected, const char *directory);

static const char *field(const cJSON *expected, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(expected, key));
}

static bool hex_matches(const unsigned char *bytes, size_t length, const char *hex)
{
    static const char digits[] = "0123456789abcdef";

    if (strlen(hex) != 2 * length)
        return false;
    for (size_t i = 0; i < length; i++)
        if (hex[2 * i] != digits[bytes[i] >> 4] || hex[2 * i + 1] != digits[bytes[i] & 15])
            return false;
    return true;
}

static bool double_matches(double value, const char *text)
{
    double expected = strtod(text, NULL);

    if (isnan(expected))
        return isnan(value);
    return memcmp(&value, &expected, sizeof value) == 0;
}

static bool match_none(const dcp_state *node, const cJSON *expected, const char *directory)
{
    (void)node, (void)expected, (void)directory;
    return true;
}

static bool match_bool(const dcp_state *node, const cJSON *expected, const char *directory)
{
    bool value;

    (void)directory;
    return dcp_state_as_bool(node, &value) == DCP_OK &&
           value == cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(expected, "v"));
}

static bool match_int(const dcp_state *node, const cJSON *expected, const char *directory)
{
    const char *digits = dcp_state_int_digits(node);

    (void)directory;
    return digits && strcmp(digits, field(expected, "v")) == 0;
}

static bool match_float(const dcp_state *node, const cJSON *expected, const char *directory)
{
    double value;

    (void)directory;
    return dcp_state_as_float(node, &value) == DCP_OK &&
           double_matches(value, field(expected, "v"));
}

static bool match_complex(const dcp_state *node, const cJSON *expected, const char *directory)
{
    double real, imaginary;

    (void)directory;
    return dcp_state_as_complex(node, &real, &imaginary) == DCP_OK &&
           double_matches(real, field(expected, "re")) &&
           double_matches(imaginary, field(expected, "im"));
}

static bool match_text(const dcp_state *node, const cJSON *expected, const char *directory)
{
    const char *text, *hex = field(expected, "hex"), *plain = field(expected, "v");
    size_t length;

    (void)directory;
    if (dcp_state_as_text(node, &text, &length) != DCP_OK)
        return false;
    if (hex)
        return hex_matches((const unsigned char *)text, length, hex);
    return length == strlen(plain) && memcmp(text, plain, length) == 0;
}

static bool match_bytes(const dcp_state *node, const cJSON *expected, const char *directory)
{
    const void *bytes;
    size_t length;

    (void)directory;
    return dcp_state_as_bytes(node, &bytes, &length) == DCP_OK &&
           hex_matches(bytes, length, field(expected, "hex"));
}

static bool match_dtype(const dcp_state *node, const cJSON *expected, const char *directory)
{
    const char *name = field(expected, "v");
    dcp_dtype dtype;

    (void)directory;
    return dcp_state_as_dtype(node, &dtype) == DCP_OK && strncmp(name, "torch.", 6) == 0 &&
           dcp_dtype_from_name(name + 6) == dtype;
}

static bool match_elements(const dcp_state *node, const cJSON *expected, const char *directory)
{
    const cJSON *values = cJSON_GetObjectItemCaseSensitive(expected, "v");
    const cJSON *value;
    size_t i = 0;

    if (dcp_state_count(node) != (size_t)cJSON_GetArraySize(values))
        return false;
    cJSON_ArrayForEach(
        value, values) if (!value_matches(dcp_state_at(node, i++), value, directory)) return false;
    return true;
}

/* Elements of sets come in any order, each once; mostly in the one that is expected. */
static bool match_set(const dcp_state *node, const cJSON *expected, const char *directory)
{
    const cJSON *values = cJSON_GetObjectItemCaseSensitive(expected, "v");
    const cJSON *value;
    size_t count = dcp_state_count(node), first = 0;

    if (count != (size_t)cJSON_GetArraySize(values))
        return false;
    cJSON_ArrayForEach(value, values)
    {
        size_t looked = 0;
        while (looked < count &&
               !value_matches(dcp_state_at(node, (first + looked) % count), value, directory))
            looked++;
        if (looked == count)
            return false;
        first += looked + 1;
    }
    return true;
}

static bool match_pairs(const dcp_state *node, const cJSON *expected, const char *directory)
{
    const cJSON *pairs = cJSON_GetObjectItemCaseSensitive(expected, "v");
    const cJSON *pair;
    size_t i = 0;

    if (dcp_state_count(node) != (size_t)cJSON_GetArraySize(pairs))
        return false;
    cJSON_ArrayForEach(pair, pairs)
    {
        if (!value_matches(dcp_state_key_at(node, i), pair->child, directory) ||
            !value_matches(dcp_state_at(node, i), pair->child->next, directory))
            return false;
        i++;
    }
    return true;
}

static bool match_size(const dcp_state *node, const cJSON *expected, const char *directory)
{
    const cJSON *values = cJSON_GetObjectItemCaseSensitive(expected, "v");
    const cJSON *value;
    size_t i = 0;

    (void)directory;
    if (dcp_state_count(node) != (size_t)cJSON_GetArraySize(values))
        return false;
    cJSON_ArrayForEach(value, values)
    {
        int64_t extent;
        if (dcp_state_as_int(dcp_state_at(node, i++), &extent) != DCP_OK ||
            extent != (int64_t)value->valuedouble)
            return false;
    }
    return true;
}

/* Inside of objects tensors lie as they were stored. */
static bool elements_match(const dcp_tensor *found, const unsigned char *wanted)
{
    size_t size = dcp_dtype_size(found->dtype);
    int64_t position[DCP_MAX_DIMS] = {0};

    for (int32_t i = 0; i < found->ndim; i++)
        if (found->sizes[i] == 0)
            return true;
    for (;; wanted += size) {
        int64_t at = 0;
        int32_t i = found->ndim - 1;
        for (int32_t d = 0; d < found->ndim; d++)
            at += position[d] * found->strides[d];
        if (memcmp((const unsigned char *)found->data + at * (int64_t)size, wanted, size) != 0)
            return false;
        for (; i >= 0 && ++position[i] == found->sizes[i]; i--)
            position[i] = 0;
        if (i < 0)
            return true;
    }
}

static bool match_tensor(const dcp_state *node, const cJSON *expected, const char *directory)
{
    size_t bytes;
    dcp_tensor found, wanted = manifest_tensor(directory, expected, &bytes);
    bool same = dcp_state_chunk_count(node) == 1 && dcp_state_chunk(node, 0, &found) == DCP_OK &&
                found.dtype == wanted.dtype && found.ndim == wanted.ndim &&
                memcmp(found.global_shape, wanted.global_shape,
                       (size_t)wanted.ndim * sizeof *wanted.global_shape) == 0 &&
                elements_match(&found, wanted.data);

    free(wanted.data);
    return same;
}

/* A Python object that has no form here may be opaque; nothing is promised about what it shows. */
static const struct {
    const char *tag;
    dcp_kind kind;
    match_function *match;
} forms[] = {
    {"none", DCP_KIND_NONE, match_none},
    {"bool", DCP_KIND_BOOL, match_bool},
    {"int", DCP_KIND_INT, match_int},
    {"float", DCP_KIND_FLOAT, match_float},
    {"complex", DCP_KIND_COMPLEX, match_complex},
    {"str", DCP_KIND_STRING, match_text},
    {"bytes", DCP_KIND_BYTES, match_bytes},
    {"bytearray", DCP_KIND_BYTEARRAY, match_bytes},
    {"list", DCP_KIND_LIST, match_elements},
    {"tuple", DCP_KIND_TUPLE, match_elements},
    {"set", DCP_KIND_SET, match_set},
    {"frozenset", DCP_KIND_FROZENSET, match_set},
    {"dict", DCP_KIND_DICT, match_pairs},
    {"odict", DCP_KIND_ORDERED_DICT, match_pairs},
    {"dtype", DCP_KIND_DTYPE, match_dtype},
    {"device", DCP_KIND_DEVICE, match_text},
    {"size", DCP_KIND_SIZE, match_size},
    {"tensor", DCP_KIND_TENSOR, match_tensor},
    {"other", DCP_KIND_OPAQUE, match_none},
};

bool value_matches(const dcp_state *node, const cJSON *expected, const char *directory)
{
    const char *tag = field(expected, "t");

    for (size_t i = 0; node && tag && i < sizeof forms / sizeof *forms; i++)
        if (strcmp(forms[i].tag, tag) == 0)
            return dcp_state_kind(node) == forms[i].kind &&
                   forms[i].match(node, expected, directory);
    return false;
}
