/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/run_json.h"

#include <string.h>

enum { DEPTH_MAX = 64 };

struct scan {
    const char *text;
    size_t size;
    size_t position;
    const char *key;
    int depth;
    bool is_object[DEPTH_MAX];
    size_t value; /* where the key's value begins; 0: not found */
};

static void skip_space(struct scan *scan)
{
    while (scan->position < scan->size && memchr(" \t\r\n", scan->text[scan->position], 4))
        scan->position++;
}

static char peek(struct scan *scan)
{
    skip_space(scan);
    return scan->position < scan->size ? scan->text[scan->position] : '\0';
}

static bool take(struct scan *scan, char expected)
{
    if (peek(scan) != expected || scan->position == scan->size)
        return false;
    scan->position++;
    return true;
}

/* *length: of what is between the quotes. */
static bool take_string(struct scan *scan, const char **start, size_t *length)
{
    if (!take(scan, '"'))
        return false;
    *start = scan->text + scan->position;
    for (; scan->position < scan->size; scan->position++) {
        char c = scan->text[scan->position];
        if (c == '"') {
            *length = (size_t)(scan->text + scan->position - *start);
            scan->position++;
            return true;
        }
        if ((unsigned char)c < 0x20)
            return false;
        if (c == '\\')
            scan->position++;
    }
    return false;
}

/* A number, or one of Python's and JSON's words. */
static bool take_plain(struct scan *scan)
{
    static const char *const words[] = {"true", "false", "null", "NaN", "Infinity", "-Infinity"};
    size_t left = scan->size - scan->position;
    const char *at = scan->text + scan->position;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t length = strlen(words[i]);
        if (left >= length && memcmp(at, words[i], length) == 0) {
            scan->position += length;
            return true;
        }
    }
    size_t length = 0;
    bool digit = false;
    for (; length < left && at[length] && strchr("+-.eE0123456789", at[length]); length++)
        digit = digit || (at[length] >= '0' && at[length] <= '9');
    scan->position += length;
    return digit;
}

static bool take_key(struct scan *scan)
{
    const char *start;
    size_t length;
    if (!take_string(scan, &start, &length) || !take(scan, ':'))
        return false;
    if (scan->depth == 1 && scan->key && length == strlen(scan->key) &&
        memcmp(start, scan->key, length) == 0) {
        skip_space(scan);
        scan->value = scan->position;
    }
    return true;
}

/* A value's beginning; of a container its first key or element comes next. *whole: it is over. */
static bool take_value(struct scan *scan, bool *whole)
{
    const char *start;
    size_t length;
    char c = peek(scan);
    *whole = true;
    if (c == '"')
        return take_string(scan, &start, &length);
    if (c != '{' && c != '[')
        return take_plain(scan);
    if (scan->depth == DEPTH_MAX)
        return false;
    scan->is_object[scan->depth++] = c == '{';
    scan->position++;
    if (peek(scan) == (c == '{' ? '}' : ']')) {
        scan->position++;
        scan->depth--;
        return true;
    }
    *whole = false;
    return c == '[' || take_key(scan);
}

/* After a value: closes containers that end here. *more: another value follows. */
static bool take_end(struct scan *scan, bool *more)
{
    *more = false;
    while (scan->depth > 0) {
        bool object = scan->is_object[scan->depth - 1];
        if (take(scan, ',')) {
            *more = true;
            return !object || take_key(scan);
        }
        if (!take(scan, object ? '}' : ']'))
            return false;
        scan->depth--;
    }
    return true;
}

static bool is_object(struct scan *scan)
{
    bool more = true;
    if (peek(scan) != '{')
        return false;
    while (more) {
        bool whole;
        if (!take_value(scan, &whole) || (whole && !take_end(scan, &more)))
            return false;
    }
    skip_space(scan);
    return scan->position == scan->size;
}

bool run_json_has(const char *text, size_t size, const char *key)
{
    struct scan scan = {.text = text, .size = size, .key = key};
    return is_object(&scan) && (!key || (scan.value && text[scan.value] != 'n'));
}

bool run_json_has_members(const char *text, size_t size, const char *key)
{
    struct scan scan = {.text = text, .size = size, .key = key};
    if (!is_object(&scan) || !scan.value || text[scan.value] != '{')
        return false;
    scan.position = scan.value + 1;
    return peek(&scan) != '}';
}
