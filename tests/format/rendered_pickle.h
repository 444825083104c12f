/* SPDX-License-Identifier: BSD-3-Clause */
/* What a pickle holds, as a text that tests compare. */
#ifndef TEST_RENDERED_PICKLE_H
#define TEST_RENDERED_PICKLE_H

#include "format/pickle/pickle.h"

/* script: of what the value was read, for the message. */
void check_rendered(const struct pickle_value *value, const char *script, const char *expected);

#endif
