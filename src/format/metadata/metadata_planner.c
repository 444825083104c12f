/* SPDX-License-Identifier: BSD-3-Clause */
/* planner_data that is more than paths. */
#include "base/error.h"
#include "base/log.h"
#include "format/metadata/metadata_decoding.h"
#include "format/objects/object_builder.h"
#include "format/zip/zip.h"

static dcp_status build(struct metadata_decoding *decoding, size_t pickle_size,
                        const struct pickle_value *planner_data, dcp_state *root)
{
    /* .metadata has no storages, so tensors in it are refused. */
    static const struct zip_archive no_archive = {0};
    dcp_state *object = NULL;
    RETURN_IF_ERROR(dcp_state_none(root, "planner_data"));
    struct state_pool *pool = state_pool_new(root->root);
    if (pool == NULL)
        return DCP_ERR_NO_MEMORY;
    dcp_status status =
        object_build(planner_data, &decoding->document, pickle_size, &no_archive, pool, &object);
    if (status == DCP_OK)
        status = node_replace(dcp_state_at(root, 0), pool, object);
    if (status != DCP_OK)
        state_pool_free(pool);
    return status;
}

dcp_status metadata_decode_planner(struct metadata_decoding *decoding, size_t pickle_size,
                                   const struct pickle_value *planner_data)
{
    dcp_state *root = dcp_state_new();
    if (root == NULL)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = build(decoding, pickle_size, planner_data, root);
    if (status == DCP_OK) {
        decoding->metadata->planner_root = root;
        decoding->metadata->planner_data = dcp_state_at(root, 0);
        return DCP_OK;
    }
    dcp_state_free(root);
    if (status == DCP_ERR_NO_MEMORY)
        return status;
    log_line(DCP_LOG_WARNING, "ignoring planner_data: %s", dcp_error_message());
    error_clear();
    return DCP_OK;
}
