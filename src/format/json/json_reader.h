/* SPDX-License-Identifier: BSD-3-Clause */
/* A pull parser for JSON that may be large and hostile, such as safetensors headers: integers are
 * exact, nothing recurses, nothing is built.
 *
 * Callers ask for what they expect next; anything else is DCP_ERR_FORMAT with the byte where it
 * happened. Callers check for duplicate keys. */
#ifndef FORMAT_JSON_JSON_READER_H
#define FORMAT_JSON_JSON_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "dcp/status.h"

enum { JSON_DEPTH_MAX = 64 };

struct json_reader {
    const char *what; /* begins every message: "model.safetensors: header" */
    const char *text;
    size_t size;
    size_t position;
    bool opened;         /* the last token opened a container */
    bool python;         /* NaN, Infinity and -Infinity are skipped, as Python writes them */
    struct arena *arena; /* for strings with escapes */
};

/* A string: valid UTF-8, perhaps with NUL inside; borrowed from the text or the arena. */
struct json_text {
    const char *bytes;
    size_t length;
};

void json_init(struct json_reader *reader, const char *what, const char *text, size_t size,
               struct arena *arena);
/* "{", then json_next_member() and one value, until there is no more: that was "}". */
dcp_status json_enter_object(struct json_reader *reader);
dcp_status json_next_member(struct json_reader *reader, bool *more, struct json_text *key);
/* "[", then json_next_element() and one value, until there is no more: that was "]". */
dcp_status json_enter_array(struct json_reader *reader);
dcp_status json_next_element(struct json_reader *reader, bool *more);

dcp_status json_string(struct json_reader *reader, struct json_text *text);
/* Digits alone: no sign, fraction or exponent. */
dcp_status json_u64(struct json_reader *reader, uint64_t *value);
/* The kind of the next value, by its first character; JSON_NOTHING: there is no value. */
enum json_kind {
    JSON_NOTHING,
    JSON_OBJECT,
    JSON_ARRAY,
    JSON_STRING,
    JSON_NUMBER,
    JSON_TRUE,
    JSON_FALSE,
    JSON_NULL
};
enum json_kind json_peek(struct json_reader *reader);
/* The text of a number, borrowed. whole: it has no fraction and no exponent. */
dcp_status json_number(struct json_reader *reader, struct json_text *text, bool *whole);
/* Any value, nested at most JSON_DEPTH_MAX deep. */
dcp_status json_skip(struct json_reader *reader);
/* Checks that only white space is left. */
dcp_status json_end(struct json_reader *reader);
bool json_text_is(struct json_text text, const char *expected);

#endif
