/* SPDX-License-Identifier: BSD-3-Clause */
/* The lazy flags of stored views: PyTorch stores conjugated and negated views as they lie in
 * memory, with a flag that says what is still to be done to the elements. */
#ifndef STATE_ELEMENT_SIGN_H
#define STATE_ELEMENT_SIGN_H

#include "dcp/tensor.h"

/* Whether elements can be negated; conjugating changes complex numbers alone. */
bool element_has_sign(dcp_dtype dtype);
/* In place, count dense elements. */
void element_negate(dcp_dtype dtype, void *elements, size_t count);
void element_conjugate(dcp_dtype dtype, void *elements, size_t count);

#endif
