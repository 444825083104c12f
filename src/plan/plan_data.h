/* SPDX-License-Identifier: BSD-3-Clause */
/* What planners and storages of a caller's own want to travel with a plan: a dict. */
#ifndef PLAN_PLAN_DATA_H
#define PLAN_PLAN_DATA_H

#include "state/node.h"

struct plan_data {
    dcp_state *root; /* what dict is in, or dict itself */
    dcp_state *dict; /* NULL: nobody has asked for it */
};

/* The dict, made when it is first asked for; NULL: no memory. */
dcp_state *plan_data_dict(struct plan_data *data);
void plan_data_free(struct plan_data *data);

#endif
