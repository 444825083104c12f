/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a text is a whole JSON object, and has a key: nothing is built, nothing recurses. */
#ifndef RUN_RUN_JSON_H
#define RUN_RUN_JSON_H

#include <stdbool.h>
#include <stddef.h>

/* One object, nested at most 64 deep, with nothing behind it; with the key at its top and a value
 * other than null, unless key is NULL. Keys are compared as they are written. */
bool run_json_has(const char *text, size_t size, const char *key);
/* The same, where the value must be an object that is not empty. */
bool run_json_has_members(const char *text, size_t size, const char *key);

#endif
