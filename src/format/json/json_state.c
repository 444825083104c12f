/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/json/json_state.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { DIGITS_MAX = 4096, FLOAT_SIZE = 512 };

/* The containers that are being filled, each inside the one before. */
struct building {
    struct json_reader *reader;
    struct state_pool *pool;
    dcp_state *open[JSON_DEPTH_MAX];
    size_t depth;
};

static dcp_status made(dcp_state *node)
{
    return node ? DCP_OK : DCP_ERR_NO_MEMORY;
}

static dcp_status read_whole(struct building *building, struct json_text text, dcp_state **value)
{
    char digits[DIGITS_MAX + 2];
    bool negative = text.bytes[0] == '-';
    if (text.length > DIGITS_MAX)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: a whole number has %zu digits, too many to read",
                             building->reader->what, text.length);
    memcpy(digits, text.bytes, text.length);
    digits[text.length] = '\0';
    errno = 0;
    long long small = strtoll(digits, NULL, 10);
    if (errno == 0) {
        *value = node_int(building->pool, small);
        return made(*value);
    }
    errno = 0;
    unsigned long long large = strtoull(digits, NULL, 10);
    *value = errno == 0 && !negative ? node_uint(building->pool, large)
                                     : node_digits(building->pool, digits);
    return made(*value);
}

/* strtod() wants the decimal point of the locale. */
static dcp_status read_float(struct building *building, struct json_text text, dcp_state **value)
{
    char number[FLOAT_SIZE];
    const char *point = memchr(text.bytes, '.', text.length);
    size_t before = point ? (size_t)(point - text.bytes) : text.length;
    int length = snprintf(number, sizeof number, "%.*s%s%.*s",
                          (int)(before < FLOAT_SIZE ? before : FLOAT_SIZE), text.bytes,
                          point ? localeconv()->decimal_point : "",
                          (int)(point && text.length < FLOAT_SIZE ? text.length - before - 1 : 0),
                          point ? point + 1 : "");
    if (text.length >= FLOAT_SIZE || length < 0 || (size_t)length >= sizeof number)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: a number has %zu characters, too many to read",
                             building->reader->what, text.length);
    double read = strtod(number, NULL);
    if (!isfinite(read))
        return dcp_error_set(DCP_ERR_FORMAT, "%s: the number %s is too large",
                             building->reader->what, number);
    *value = node_new(building->pool, DCP_KIND_FLOAT);
    if (*value)
        (*value)->as.number = read;
    return made(*value);
}

static dcp_status read_number(struct building *building, dcp_state **value)
{
    struct json_text text;
    bool whole;
    RETURN_IF_ERROR(json_number(building->reader, &text, &whole));
    return whole ? read_whole(building, text, value) : read_float(building, text, value);
}

static dcp_status read_string(struct building *building, dcp_state **value)
{
    struct json_text text;
    RETURN_IF_ERROR(json_string(building->reader, &text));
    *value = node_text(building->pool, DCP_KIND_STRING, text.bytes, text.length);
    return made(*value);
}

static dcp_status open_container(struct building *building, bool is_object, dcp_state **value)
{
    struct json_reader *reader = building->reader;
    if (building->depth == JSON_DEPTH_MAX)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: nested deeper than %d at byte %zu", reader->what,
                             JSON_DEPTH_MAX, reader->position);
    RETURN_IF_ERROR(is_object ? json_enter_object(reader) : json_enter_array(reader));
    *value = node_new(building->pool, is_object ? DCP_KIND_DICT : DCP_KIND_LIST);
    if (*value)
        building->open[building->depth++] = *value;
    return made(*value);
}

static dcp_status read_word(struct building *building, enum json_kind kind, dcp_state **value)
{
    RETURN_IF_ERROR(json_skip(building->reader));
    *value = node_new(building->pool, kind == JSON_NULL ? DCP_KIND_NONE : DCP_KIND_BOOL);
    if (*value && kind != JSON_NULL)
        (*value)->as.boolean = kind == JSON_TRUE;
    return made(*value);
}

/* A value, or the beginning of a container. */
static dcp_status read_value(struct building *building, dcp_state **value)
{
    enum json_kind kind = json_peek(building->reader);
    switch (kind) {
    case JSON_OBJECT:
    case JSON_ARRAY:
        return open_container(building, kind == JSON_OBJECT, value);
    case JSON_STRING:
        return read_string(building, value);
    case JSON_NUMBER:
        return read_number(building, value);
    default:
        return read_word(building, kind, value);
    }
}

/* {"$float": "nan"} is how dcp_state_to_json() writes what JSON lacks. */
static void close_container(struct building *building)
{
    dcp_state *node = building->open[--building->depth];
    dcp_state *text = node->kind == DCP_KIND_DICT && node->as.children.count == 1
                          ? dcp_state_find(node, "$float")
                          : NULL;
    if (!text || text->kind != DCP_KIND_STRING)
        return;
    bool is_nan = strcmp(text->as.text.bytes, "nan") == 0;
    bool negative = strcmp(text->as.text.bytes, "-inf") == 0;
    if (!is_nan && !negative && strcmp(text->as.text.bytes, "inf") != 0)
        return;
    node->kind = DCP_KIND_FLOAT;
    node->as.number = is_nan ? (double)NAN : negative ? -(double)INFINITY : (double)INFINITY;
}

/* The next child of the innermost container, or its end. */
static dcp_status step(struct building *building)
{
    dcp_state *container = building->open[building->depth - 1], *key = NULL, *value = NULL;
    struct json_text name = {0};
    bool more;
    RETURN_IF_ERROR(node_is_dict(container) ? json_next_member(building->reader, &more, &name)
                                            : json_next_element(building->reader, &more));
    if (!more) {
        close_container(building);
        return DCP_OK;
    }
    if (node_is_dict(container)) {
        key = node_text(building->pool, DCP_KIND_STRING, name.bytes, name.length);
        RETURN_IF_ERROR(made(key));
    }
    RETURN_IF_ERROR(read_value(building, &value));
    return node_append(building->pool, container, key, value);
}

dcp_status json_read_state(struct json_reader *reader, struct state_pool *pool, dcp_state **value)
{
    struct building building = {.reader = reader, .pool = pool};
    dcp_status status = read_value(&building, value);
    while (status == DCP_OK && building.depth > 0)
        status = step(&building);
    return status;
}
