/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_CONVERT_SHA256_H
#define TESTS_CONVERT_SHA256_H

#include <stddef.h>

/* SHA-256 as 64 hexadecimal digits. */
void sha256_text(const void *bytes, size_t size, char text[65]);

#endif
