/* SPDX-License-Identifier: BSD-3-Clause */
/* The tagged form of a value, as manifests have it (tests/fixtures/README.md). */
#ifndef INTEROP_TAG_VALUE_H
#define INTEROP_TAG_VALUE_H

#include <cjson/cJSON.h>

#include <dcp.h>

cJSON *value_tagged(const dcp_state *node);

#endif
