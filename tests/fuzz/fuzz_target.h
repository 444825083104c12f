/* SPDX-License-Identifier: BSD-3-Clause */
/* What libFuzzer, or the replay program in its place, calls. */
#ifndef FUZZ_TARGET_H
#define FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
