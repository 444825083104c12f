/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods of quantization that leave names which no other model has. */
#ifndef CONVERT_FOREIGN_METHOD_H
#define CONVERT_FOREIGN_METHOD_H

#include "convert/convert_source.h"

/* Looks for such a name in the checkpoint of a source: fills in quantized, unless config.json has
 * said it, and quantized_name. */
dcp_status foreign_method_find(struct convert_source *source);

#endif
