/* SPDX-License-Identifier: BSD-3-Clause */
/* Elements of any dtype as numbers: they are read as one of a few dtypes, without loss. */
#ifndef CLI_ELEMENT_H
#define CLI_ELEMENT_H

#include "command.h"

/* As what elements of a stored dtype are read (dcp_read_options::convert): real floats up to 32
 * bits as DCP_F32, ints up to 32 bits and bools as DCP_I64, and DCP_F64, DCP_U64, complex dtypes
 * and DCP_F4_E2M1FN_X2 as they are. DCP_DTYPE_NONE: they are no numbers. */
dcp_dtype element_dtype(dcp_dtype stored);
bool element_is_complex(dcp_dtype dtype);
/* Numbers in a stored element: 2 in DCP_F4_E2M1FN_X2. */
int element_numbers(dcp_dtype dtype);

/* Number `index` of what was read, also ints of 64 bits as they are. *imaginary: 0 if it is real.
 */
/* Whether element_value() takes elements of a stored dtype as they are, too. */
bool element_is_readable(dcp_dtype stored);
long double element_value(dcp_dtype read, const void *data, int64_t index, long double *imaginary);
/* The same as text, from which the element can be had again. */
void element_print(dcp_dtype read, const void *data, int64_t index);
/* The same as JSON: two numbers in an array for a complex or packed element; what is no number as
 * dcp_state_to_json() has it: {"$float": "nan"}. index: of the element. */
void element_print_json(dcp_dtype read, const void *data, int64_t index);
/* A float in the fewest digits that are it again. single: of DCP_F32. JSON has no others than
 * finite ones: null. */
void number_print(FILE *out, double value, bool single, bool json);

#endif
