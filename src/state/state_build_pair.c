/* SPDX-License-Identifier: BSD-3-Clause */
/* Building calls for keys that are no strings. */
#include "state/node_pair.h"
#include "state/state_build.h"

dcp_state *dcp_state_pair(dcp_state *dict)
{
    dcp_state *pair = NULL;
    dcp_status status = DCP_OK;
    if (!dict || !node_is_dict(dict))
        status = dcp_error_set(DCP_ERR_ARGUMENT, "a pair belongs to a dict, not to %s",
                               dict ? node_kind_name(dict->kind) : "NULL");
    if (status == DCP_OK) {
        pair = node_pair_new(build_pool(dict), dict);
        status = pair ? DCP_OK : DCP_ERR_NO_MEMORY;
    }
    return build_keep_failure(dict, status) == DCP_OK ? pair : NULL;
}

dcp_state *dcp_state_int_key(dcp_state *dict, int64_t key)
{
    dcp_state *pair = dcp_state_pair(dict);
    return pair && dcp_state_int(pair, NULL, key) == DCP_OK ? pair : NULL;
}
