/* SPDX-License-Identifier: BSD-3-Clause */
/* Questions to what a folder holds. */
#ifndef RUN_RUN_CONTENTS_H
#define RUN_RUN_CONTENTS_H

#include "run/run_place.h"

/* A folder of a run, open for questions. */
struct run_contents {
    const struct run_place *place;
    const char *path;
    struct run_names names;
};

/* Bytes of small files that are read, at most. */
#define RUN_JSON_LIMIT ((uint64_t)64 << 20)

/* "path/name", "name" or "path"; NULL: no memory, said. To be released. */
char *run_contents_path(const struct run_contents *contents, const char *name);
/* Whether one of several signs is there: a pattern of names; pattern/file; FILE:KEY. */
dcp_status run_contents_show(const struct run_contents *contents, const char *signs, bool *shown);
/* Whether any name has one of these patterns. */
bool run_contents_have(const struct run_contents *contents, const char *patterns);
/* *key_found: the file is a JSON object with that key, of a value other than null; NULL: with any.
 * *found: there is a file of that name. */
dcp_status run_contents_json(const struct run_contents *contents, const char *name, const char *key,
                             bool *found, bool *key_found);

#endif
