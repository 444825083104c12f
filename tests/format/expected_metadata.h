/* SPDX-License-Identifier: BSD-3-Clause */
/* Compares decoded metadata with the expected.json of a reference checkpoint. */
#ifndef TESTS_FORMAT_EXPECTED_METADATA_H
#define TESTS_FORMAT_EXPECTED_METADATA_H

#include <cjson/cJSON.h>

#include "state/metadata.h"

/* Names, paths, dtypes, shapes, and for each stored piece box, file, range and transforms; nothing
 * missing, nothing else. Fails the test. */
void check_expected_metadata(const struct metadata *metadata, const cJSON *expected);

#endif
