/* SPDX-License-Identifier: BSD-3-Clause */
/* The order in which transformers gives a model's tensors to its writer, as far as names tell it,
 * and which of them count as one. */
#ifndef CONVERT_MODEL_ORDER_H
#define CONVERT_MODEL_ORDER_H

#include "convert/convert_source.h"

/* Puts the items in order: those of Llama and its like by their modules; those with experts apart,
 * which transformers keeps stacked, by the names that it has for them in memory. Others by name,
 * numbers as numbers, if by_name; else they stay. */
dcp_status model_order(struct convert_source *source, bool by_name);
/* Whether an item belongs to the same stack of experts as the one before, which is never divided
 * over two files. */
bool model_order_is_stacked(const struct convert_item *item, const struct convert_item *before);

#endif
