/* SPDX-License-Identifier: BSD-3-Clause */
/* Compares a node with the tagged form of the Python value that it must be. */
#ifndef INTEROP_COMPARE_VALUE_H
#define INTEROP_COMPARE_VALUE_H

#include <cjson/cJSON.h>

#include <dcp.h>

/* @param directory that the files of tensors inside the value are relative to. */
bool value_matches(const dcp_state *node, const cJSON *expected, const char *directory);

#endif
