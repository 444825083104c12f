/* SPDX-License-Identifier: BSD-3-Clause */
/* The reference checkpoints of tests/fixtures and what must come out of them. */
#ifndef TESTS_STORAGE_FIXTURES_H
#define TESTS_STORAGE_FIXTURES_H

#include <cjson/cJSON.h>

/* Parses a JSON file below tests/fixtures; fails the test if it cannot. */
cJSON *fixture_json(const char *path);
/* Path below tests/fixtures of a case's file, freed by the caller. */
char *fixture_path(const char *directory, const char *name);
const char *fixture_text(const cJSON *object, const char *key);

#endif
