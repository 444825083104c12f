/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/plan_data.h"

dcp_state *plan_data_dict(struct plan_data *data)
{
    if (!data->dict)
        data->root = data->dict = dcp_state_new();
    return data->dict;
}

void plan_data_free(struct plan_data *data)
{
    dcp_state_free(data->root);
    *data = (struct plan_data){0};
}
