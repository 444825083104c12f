/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/json/json_reader.h"

#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

void json_init(struct json_reader *reader, const char *what, const char *text, size_t size,
               struct arena *arena)
{
    *reader = (struct json_reader){.what = what, .text = text, .size = size, .arena = arena};
}

bool json_text_is(struct json_text text, const char *expected)
{
    return text.length == strlen(expected) && memcmp(text.bytes, expected, text.length) == 0;
}

/* The character at the position, 0 at the end: no token begins with it. */
static char peek(const struct json_reader *reader)
{
    return reader->position < reader->size ? reader->text[reader->position] : '\0';
}

static char peek_token(struct json_reader *reader)
{
    while (reader->position < reader->size &&
           memchr(" \t\r\n", reader->text[reader->position], 4) != NULL)
        reader->position++;
    return peek(reader);
}

static dcp_status unexpected(const struct json_reader *reader, const char *expected)
{
    if (reader->position >= reader->size)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: ends at byte %zu, expected %s", reader->what,
                             reader->size, expected);
    unsigned char found = (unsigned char)peek(reader);
    char shown[8];
    snprintf(shown, sizeof shown, found > ' ' && found < 0x7f ? "'%c'" : "0x%02x", found);
    return dcp_error_set(DCP_ERR_FORMAT, "%s: byte %zu is %s, expected %s", reader->what,
                         reader->position, shown, expected);
}

static dcp_status take(struct json_reader *reader, char token, const char *expected)
{
    if (peek_token(reader) != token)
        return unexpected(reader, expected);
    reader->position++;
    return DCP_OK;
}

static dcp_status enter(struct json_reader *reader, char token, const char *expected)
{
    RETURN_IF_ERROR(take(reader, token, expected));
    reader->opened = true;
    return DCP_OK;
}

dcp_status json_enter_object(struct json_reader *reader)
{
    return enter(reader, '{', "an object");
}

dcp_status json_enter_array(struct json_reader *reader)
{
    return enter(reader, '[', "an array");
}

/* Reads the separator of a container's values: nothing at the beginning, otherwise a comma; or its
 * end. */
static dcp_status next(struct json_reader *reader, char end, const char *expected, bool *more)
{
    bool first = reader->opened;
    reader->opened = false;
    *more = false;
    if (peek_token(reader) == end) {
        reader->position++;
        return DCP_OK;
    }
    if (!first)
        RETURN_IF_ERROR(take(reader, ',', expected));
    *more = true;
    return DCP_OK;
}

dcp_status json_next_member(struct json_reader *reader, bool *more, struct json_text *key)
{
    RETURN_IF_ERROR(next(reader, '}', "',' or '}'", more));
    if (!*more)
        return DCP_OK;
    RETURN_IF_ERROR(json_string(reader, key));
    return take(reader, ':', "':'");
}

dcp_status json_next_element(struct json_reader *reader, bool *more)
{
    return next(reader, ']', "',' or ']'", more);
}

static dcp_status read_hex4(struct json_reader *reader, uint32_t *code)
{
    *code = 0;
    for (int i = 0; i < 4; i++) {
        char c = peek(reader);
        uint32_t digit;
        if (c >= '0' && c <= '9')
            digit = (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (uint32_t)(c - 'a') + 10;
        else if (c >= 'A' && c <= 'F')
            digit = (uint32_t)(c - 'A') + 10;
        else
            return unexpected(reader, "a hexadecimal digit");
        *code = *code * 16 + digit;
        reader->position++;
    }
    return DCP_OK;
}

/* The rest of a \u escape, with its second half where it is a surrogate pair; appends UTF-8. */
static dcp_status read_unicode(struct json_reader *reader, char **out)
{
    uint32_t code, low;
    RETURN_IF_ERROR(read_hex4(reader, &code));
    if (code >= 0xd800 && code <= 0xdfff) {
        if (code > 0xdbff || reader->size - reader->position < 6 ||
            memcmp(reader->text + reader->position, "\\u", 2) != 0)
            return unexpected(reader, "a surrogate pair");
        reader->position += 2;
        RETURN_IF_ERROR(read_hex4(reader, &low));
        if (low < 0xdc00 || low > 0xdfff)
            return unexpected(reader, "a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    if (code < 0x80) {
        *(*out)++ = (char)code;
        return DCP_OK;
    }
    int tail = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    *(*out)++ = (char)(lead[tail] | code >> (6 * tail));
    while (tail-- > 0)
        *(*out)++ = (char)(0x80 | (code >> (6 * tail) & 0x3f));
    return DCP_OK;
}

static dcp_status read_escape(struct json_reader *reader, char **out)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char c = peek(reader);
    if (c == 'u') {
        reader->position++;
        return read_unicode(reader, out);
    }
    const char *name = c != '\0' ? strchr(names, c) : NULL;
    if (name == NULL)
        return unexpected(reader, "an escape");
    reader->position++;
    *(*out)++ = values[name - names];
    return DCP_OK;
}

/* Finds the closing quote from the position on, which is the string's first byte. */
static dcp_status measure_string(struct json_reader *reader, size_t *length, bool *escaped)
{
    size_t start = reader->position, end = start;
    *escaped = false;
    while (end < reader->size && reader->text[end] != '"') {
        if ((unsigned char)reader->text[end] < 0x20) {
            reader->position = end;
            return unexpected(reader, "an escape instead of a control character");
        }
        if (reader->text[end] == '\\') {
            *escaped = true;
            end++;
        }
        end++;
    }
    if (end >= reader->size) {
        reader->position = reader->size;
        return unexpected(reader, "the end of a string");
    }
    *length = end - start;
    if (!utf8_is_valid(reader->text + start, *length))
        return dcp_error_set(DCP_ERR_FORMAT, "%s: the string at byte %zu is not UTF-8",
                             reader->what, start);
    return DCP_OK;
}

dcp_status json_string(struct json_reader *reader, struct json_text *text)
{
    RETURN_IF_ERROR(take(reader, '"', "a string"));
    size_t length;
    bool escaped;
    RETURN_IF_ERROR(measure_string(reader, &length, &escaped));
    text->bytes = reader->text + reader->position;
    text->length = length;
    size_t end = reader->position + length;
    if (escaped) {
        /* Every escape is longer than what it stands for. */
        char *copy = arena_allocate(reader->arena, length), *out = copy;
        if (copy == NULL)
            return error_no_memory(length, reader->what);
        while (reader->position < end) {
            char c = reader->text[reader->position++];
            if (c != '\\')
                *out++ = c;
            else
                RETURN_IF_ERROR(read_escape(reader, &out));
        }
        text->bytes = copy;
        text->length = (size_t)(out - copy);
    }
    reader->position = end + 1;
    return DCP_OK;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

dcp_status json_u64(struct json_reader *reader, uint64_t *value)
{
    char c = peek_token(reader);
    if (!is_digit(c))
        return unexpected(reader, "a whole number without a sign");
    *value = 0;
    do {
        if (!checked_multiply_u64(*value, 10, value) ||
            !checked_add_u64(*value, (uint64_t)(c - '0'), value))
            return unexpected(reader, "a number below 2^64");
        reader->position++;
        char previous = c;
        c = peek(reader);
        if (*value == 0 && previous == '0' && is_digit(c))
            return unexpected(reader, "a number without leading zeros");
    } while (is_digit(c));
    if (c == '.' || c == 'e' || c == 'E')
        return unexpected(reader, "a whole number");
    return DCP_OK;
}

static dcp_status skip_digits(struct json_reader *reader)
{
    if (!is_digit(peek(reader)))
        return unexpected(reader, "a digit");
    while (is_digit(peek(reader)))
        reader->position++;
    return DCP_OK;
}

static dcp_status skip_number(struct json_reader *reader)
{
    if (peek(reader) == '-')
        reader->position++;
    if (peek(reader) == '0')
        reader->position++;
    else
        RETURN_IF_ERROR(skip_digits(reader));
    if (peek(reader) == '.') {
        reader->position++;
        RETURN_IF_ERROR(skip_digits(reader));
    }
    if (peek(reader) == 'e' || peek(reader) == 'E') {
        reader->position++;
        if (peek(reader) == '-' || peek(reader) == '+')
            reader->position++;
        RETURN_IF_ERROR(skip_digits(reader));
    }
    return DCP_OK;
}

dcp_status json_number(struct json_reader *reader, struct json_text *text, bool *whole)
{
    char c = peek_token(reader);
    if (c != '-' && !is_digit(c))
        return unexpected(reader, "a number");
    text->bytes = reader->text + reader->position;
    RETURN_IF_ERROR(skip_number(reader));
    text->length = (size_t)(reader->text + reader->position - text->bytes);
    *whole = !memchr(text->bytes, '.', text->length) && !memchr(text->bytes, 'e', text->length) &&
             !memchr(text->bytes, 'E', text->length);
    return DCP_OK;
}

enum json_kind json_peek(struct json_reader *reader)
{
    switch (peek_token(reader)) {
    case '{':
        return JSON_OBJECT;
    case '[':
        return JSON_ARRAY;
    case '"':
        return JSON_STRING;
    case 't':
        return JSON_TRUE;
    case 'f':
        return JSON_FALSE;
    case 'n':
        return JSON_NULL;
    default:
        return is_digit(peek(reader)) || peek(reader) == '-' ? JSON_NUMBER : JSON_NOTHING;
    }
}

static dcp_status skip_scalar(struct json_reader *reader)
{
    static const char *const words[] = {"true", "false", "null", "NaN", "Infinity", "-Infinity"};
    size_t count = reader->python ? sizeof words / sizeof *words : 3;
    struct json_text ignored;
    char c = peek_token(reader);
    if (c == '"')
        return json_string(reader, &ignored);
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(words[i]);
        if (reader->size - reader->position >= length &&
            memcmp(reader->text + reader->position, words[i], length) == 0) {
            reader->position += length;
            return DCP_OK;
        }
    }
    if (c == '-' || is_digit(c))
        return skip_number(reader);
    return unexpected(reader, "a value");
}

dcp_status json_skip(struct json_reader *reader)
{
    bool is_object[JSON_DEPTH_MAX];
    size_t depth = 0;
    do {
        char c = peek_token(reader);
        if (c == '{' || c == '[') {
            if (depth == JSON_DEPTH_MAX)
                return dcp_error_set(DCP_ERR_FORMAT, "%s: nested deeper than %d at byte %zu",
                                     reader->what, JSON_DEPTH_MAX, reader->position);
            is_object[depth++] = c == '{';
            reader->position++;
            reader->opened = true;
        } else {
            RETURN_IF_ERROR(skip_scalar(reader));
        }
        bool more = false;
        struct json_text key;
        while (depth > 0 && !more) {
            RETURN_IF_ERROR(is_object[depth - 1] ? json_next_member(reader, &more, &key)
                                                 : json_next_element(reader, &more));
            if (!more)
                depth--;
        }
    } while (depth > 0);
    return DCP_OK;
}

dcp_status json_end(struct json_reader *reader)
{
    peek_token(reader);
    return reader->position == reader->size ? DCP_OK : unexpected(reader, "the end");
}
