/* SPDX-License-Identifier: BSD-3-Clause */
/* Data that planners and storages send along with a plan: a dict. */
#ifndef PLAN_PLAN_DATA_H
#define PLAN_PLAN_DATA_H

#include "state/node.h"

struct plan_data {
    dcp_state *root; /* owns dict, or is dict itself */
    dcp_state *dict; /* NULL: not made yet */
};

/* The dict, made on the first call; NULL: no memory. */
dcp_state *plan_data_dict(struct plan_data *data);
void plan_data_free(struct plan_data *data);

#endif
