/* SPDX-License-Identifier: BSD-3-Clause */
/* Nodes of state trees against the tagged values of expected.json. Differences fail the test. */
#ifndef TESTS_FORMAT_TAGGED_H
#define TESTS_FORMAT_TAGGED_H

#include <cjson/cJSON.h>

#include "dcp/state.h"

/* case_name: of the fixture, for the bytes of tensors. name: for the message. */
void assert_tagged(const dcp_state *node, const cJSON *tagged, const char *case_name,
                   const char *name);

#endif
