/* SPDX-License-Identifier: BSD-3-Clause */
/* The headers of safetensors files, byte for byte those of the safetensors package. */
#ifndef CONVERT_SAFETENSORS_WRITE_H
#define CONVERT_SAFETENSORS_WRITE_H

#include "base/buffer.h"
#include "convert/convert_source.h"

/* Sorts the items as the package does, by dtype and name. DCP_ERR_UNSUPPORTED for dtypes and names
 * that the format does not have. */
dcp_status safetensors_sort(const struct convert_item **items, size_t count);
/* Appends the header of a file of items, in this order, with its length before it. The data follow
 * in the same order without gaps. */
dcp_status safetensors_put_header(const struct convert_item *const *items, size_t count,
                                  struct buffer *out);
/* Appends a JSON string of valid UTF-8; ascii: with escapes for all that is not, as Python's json
 * writes it. */
void safetensors_put_string(struct buffer *out, const char *text, bool ascii);

#endif
