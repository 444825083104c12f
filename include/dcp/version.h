/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file version.h
 * @brief Version of the library, and how its symbols are exported.
 */
#ifndef DCP_VERSION_H
#define DCP_VERSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DCP_VERSION_MAJOR  0
#define DCP_VERSION_MINOR  1
#define DCP_VERSION_PATCH  0
#define DCP_VERSION_STRING "0.1.0"
/** The version as one comparable number: major * 10000 + minor * 100 + patch. */
#define DCP_VERSION_NUMBER (DCP_VERSION_MAJOR * 10000 + DCP_VERSION_MINOR * 100 + DCP_VERSION_PATCH)

#if defined(__GNUC__)
#define DCP_API                __attribute__((visibility("default")))
#define DCP_PRINTF(text, args) __attribute__((format(printf, text, args)))
#else
#define DCP_API
#define DCP_PRINTF(text, args)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** @return the DCP_VERSION_NUMBER of the library that is linked, which may differ from the
 * header's. */
DCP_API int dcp_version_number(void);

/** @return the version of the library that is linked, as text; static storage. */
DCP_API const char *dcp_version_string(void);

#ifdef __cplusplus
}
#endif

#endif
