/* SPDX-License-Identifier: BSD-3-Clause */
/* Which tensors of a .pt source share a storage, so that they do in another .pt file. */
#ifndef CONVERT_PT_STORAGES_H
#define CONVERT_PT_STORAGES_H

#include "convert/convert_source.h"
#include "state/node.h"

/* A storage that is kept as it is. */
struct pt_storage {
    struct state_block block; /* whose memory nobody touches */
    size_t item;              /* by which it is read: one with the smallest elements */
};

struct pt_storages {
    struct pt_storage *storages;
    size_t count;
    size_t *of_item; /* the storage of each item; SIZE_MAX: it gets one of its own, row-major */
};

/* All in the source's arena. */
dcp_status pt_storages_find(struct pt_storages *storages, struct convert_source *source);
/* Says how a tensor lies in its storage. */
dcp_status pt_storages_place(const struct pt_storages *storages,
                             const struct convert_source *source, const struct convert_item *item,
                             dcp_tensor *tensor);

#endif
