/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "state/box.h"
#include "state/node.h"
#include "tagged.h"

static const struct {
    const char *tag;
    dcp_kind kind;
} tags[] = {
    {"none", DCP_KIND_NONE},           {"bool", DCP_KIND_BOOL},       {"int", DCP_KIND_INT},
    {"float", DCP_KIND_FLOAT},         {"complex", DCP_KIND_COMPLEX}, {"str", DCP_KIND_STRING},
    {"bytes", DCP_KIND_BYTES},         {"list", DCP_KIND_LIST},       {"tuple", DCP_KIND_TUPLE},
    {"bytearray", DCP_KIND_BYTEARRAY}, {"dict", DCP_KIND_DICT},       {"set", DCP_KIND_SET},
    {"frozenset", DCP_KIND_FROZENSET}, {"dtype", DCP_KIND_DTYPE},     {"size", DCP_KIND_SIZE},
    {"odict", DCP_KIND_ORDERED_DICT},  {"device", DCP_KIND_DEVICE},   {"tensor", DCP_KIND_TENSOR},
    {"other", DCP_KIND_OPAQUE},
};

static dcp_kind kind_of_tag(const char *tag)
{
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (strcmp(tags[i].tag, tag) == 0)
            return tags[i].kind;
    fail_msg("unknown tag %s", tag);
    return DCP_KIND_NONE;
}

static const cJSON *get(const cJSON *tagged, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(tagged, key);
    if (item == NULL)
        fail_msg("tagged value without %s", key);
    return item;
}

static void assert_number(double found, const char *expected)
{
    double wanted = strtod(expected, NULL);
    if (isnan(wanted))
        assert_true(isnan(found));
    else
        assert_memory_equal(&found, &wanted, sizeof found);
}

static void assert_text(const dcp_state *node, const cJSON *tagged)
{
    const char *bytes = node->as.text.bytes;
    size_t length = node->as.text.length;
    const cJSON *hex = cJSON_GetObjectItem(tagged, "hex");
    if (hex == NULL) {
        const char *text = get(tagged, "v")->valuestring;
        assert_int_equal(length, strlen(text));
        assert_memory_equal(bytes, text, length);
        return;
    }
    assert_int_equal(2 * length, strlen(hex->valuestring));
    for (size_t i = 0; i < length; i++) {
        char digits[3];
        snprintf(digits, sizeof digits, "%02x", (unsigned char)bytes[i]);
        assert_memory_equal(digits, hex->valuestring + 2 * i, 2);
    }
}

static void assert_children(const dcp_state *node, const cJSON *elements, const char *case_name,
                            const char *name)
{
    size_t index = 0;
    for (const cJSON *element = elements->child; element != NULL; element = element->next) {
        const struct state_child *child = &node->as.children.items[index++];
        if (node->kind == DCP_KIND_SIZE) {
            assert_int_equal((int64_t)child->value->as.integer.bits, (int64_t)element->valuedouble);
        } else if (node_is_dict(node)) {
            assert_tagged(child->key, element->child, case_name, name);
            assert_tagged(child->value, element->child->next, case_name, name);
        } else {
            assert_tagged(child->value, element, case_name, name);
        }
    }
}

static void assert_tensor(const dcp_state *node, const cJSON *tagged, const char *case_name)
{
    dcp_tensor chunk;
    uint64_t size;
    assert_int_equal(dcp_state_chunk(node, 0, &chunk), DCP_OK);
    assert_string_equal(dcp_dtype_name(chunk.dtype), get(tagged, "dtype")->valuestring);
    const cJSON *shape = get(tagged, "shape");
    assert_int_equal(chunk.ndim, cJSON_GetArraySize(shape));
    for (int32_t i = 0; i < chunk.ndim; i++)
        assert_int_equal(chunk.global_shape[i], (int64_t)cJSON_GetArrayItem(shape, i)->valuedouble);
    assert_true(shape_bytes(chunk.ndim, chunk.global_shape, chunk.dtype, &size));
    char path[256];
    snprintf(path, sizeof path, "%s/%s", case_name, get(tagged, "file")->valuestring);
    struct bytes expected = fixture_file(path);
    assert_int_equal(size, expected.size);
    if (size > 0)
        assert_memory_equal(chunk.data, expected.data, size);
    bytes_free(&expected);
}

/* Sets are listed in the order of repr; those of the fixtures are stored in that order, too. */
void assert_tagged(const dcp_state *node, const cJSON *tagged, const char *case_name,
                   const char *name)
{
    dcp_kind kind = kind_of_tag(get(tagged, "t")->valuestring);
    if (node->kind != kind)
        fail_msg("%s: a %s, expected a %s", name, node_kind_name(node->kind), node_kind_name(kind));
    switch (kind) {
    case DCP_KIND_NONE:
    case DCP_KIND_OPAQUE:
        break;
    case DCP_KIND_BOOL:
        assert_int_equal(node->as.boolean, cJSON_IsTrue(get(tagged, "v")));
        break;
    case DCP_KIND_INT:
        assert_string_equal(dcp_state_int_digits(node), get(tagged, "v")->valuestring);
        break;
    case DCP_KIND_FLOAT:
        assert_number(node->as.number, get(tagged, "v")->valuestring);
        break;
    case DCP_KIND_COMPLEX:
        assert_number(node->as.complex.real, get(tagged, "re")->valuestring);
        assert_number(node->as.complex.imaginary, get(tagged, "im")->valuestring);
        break;
    case DCP_KIND_DTYPE:
        assert_string_equal(dcp_dtype_name(node->as.dtype),
                            get(tagged, "v")->valuestring + strlen("torch."));
        break;
    case DCP_KIND_STRING:
    case DCP_KIND_BYTES:
    case DCP_KIND_BYTEARRAY:
    case DCP_KIND_DEVICE:
        assert_text(node, tagged);
        break;
    case DCP_KIND_TENSOR:
        assert_tensor(node, tagged, case_name);
        break;
    default:
        assert_int_equal(node->as.children.count, cJSON_GetArraySize(get(tagged, "v")));
        assert_children(node, get(tagged, "v"), case_name, name);
        break;
    }
}
