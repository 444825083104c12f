/* SPDX-License-Identifier: BSD-3-Clause */
/* Integers beyond 64 bits: between the two's complement of pickles and the decimal digits of state
 * trees. Both ways cost the square of the length, hence the limit. */
#ifndef FORMAT_OBJECTS_OBJECT_INTEGER_H
#define FORMAT_OBJECTS_OBJECT_INTEGER_H

#include <stddef.h>

#include "dcp/status.h"

#define INTEGER_BYTES_MAX 2048 /* some 4900 digits: a little more than Python itself converts */

/* digits: memory_release(). size: at most INTEGER_BYTES_MAX. */
dcp_status integer_to_digits(const void *twos_complement, size_t size, char **digits);
/* The shortest little-endian two's complement of "-123" or "123"; the buffer has INTEGER_BYTES_MAX
 * bytes. DCP_ERR_UNSUPPORTED if it needs more, DCP_ERR_ARGUMENT for text other than digits. */
dcp_status integer_from_digits(const char *digits, unsigned char *twos_complement, size_t *size);

#endif
