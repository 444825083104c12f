/* SPDX-License-Identifier: BSD-3-Clause */
/* CRC-32 in vectors of 32 or 64 bytes, where the processor multiplies polynomials in them
 * (VPCLMULQDQ): one and a half to two and a half times as fast as a library that knows vectors of
 * 16 bytes alone. */
#ifndef BASE_CRC32_WIDE_H
#define BASE_CRC32_WIDE_H

#include <stddef.h>
#include <stdint.h>

/* Fewer bytes are not worth it. */
#define CRC32_WIDE_LEAST ((size_t)1024)

/* Bytes in the widest vectors of this processor in which polynomials are multiplied: 64, 32, or 0.
 */
size_t crc32_wide_vector(void);
/* In vectors of that many bytes, or fewer than the widest: folds a multiple of 256 bytes, of
 * CRC32_WIDE_LEAST or more, behind others whose checksum is crc, into 16: the checksum of these,
 * begun with UINT32_MAX, is that of all of them. Returns how many bytes those were. */
size_t crc32_wide_fold(size_t vector, uint32_t crc, const void *bytes, size_t size,
                       unsigned char rest[16]);

#endif
