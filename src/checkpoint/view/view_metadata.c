/* SPDX-License-Identifier: BSD-3-Clause */
/* A checkpoint's metadata as bytes, for storages that keep it in a place of their own. */
#include "base/error.h"
#include "base/sized.h"
#include "checkpoint/view/view.h"
#include "dcp/storage_reader.h"
#include "format/metadata/metadata_codec.h"

dcp_status dcp_checkpoint_encode(const dcp_checkpoint *checkpoint, dcp_sink sink, void *context)
{
    struct buffer encoded;

    if (!checkpoint || !sink)
        return dcp_error_set(DCP_ERR_ARGUMENT, "encoding metadata needs a checkpoint and a sink");
    buffer_init(&encoded, 0);
    dcp_status status = metadata_encode(checkpoint->metadata, &encoded);
    if (status == DCP_OK)
        status = error_checked(sink(context, encoded.data, encoded.size), "a sink");
    buffer_free(&encoded);
    return status;
}

dcp_status dcp_checkpoint_storage_meta_sized(const dcp_checkpoint *checkpoint,
                                             dcp_storage_meta *meta, size_t meta_size)
{
    if (!checkpoint || !meta)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "describing a save needs a checkpoint and a place for it");
    const struct metadata *metadata = checkpoint->metadata;
    const dcp_storage_meta ours = {.checkpoint_id = metadata->checkpoint_id,
                                   .save_id = metadata->save_id[0] ? metadata->save_id : NULL,
                                   .load_id = metadata->load_id,
                                   .modules = metadata->modules,
                                   .module_count = metadata->module_count};
    sized_write(meta, meta_size, &ours, sizeof ours);
    return DCP_OK;
}
