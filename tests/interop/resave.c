/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves what a checkpoint of any form holds as a checkpoint of ours, entry by entry, each under its
 * flattened name: resave FROM TO, or, with objects as the streams that are stored: resave FROM TO
 * streams */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dcp.h"

static dcp_status copy_tensor(dcp_checkpoint *checkpoint, size_t index, const dcp_entry *entry,
                              dcp_state *root)
{
    dcp_tensor tensor = {.dtype = entry->dtype, .ndim = entry->ndim};
    for (int32_t d = 0; d < entry->ndim; d++)
        tensor.global_shape[d] = entry->global_shape[d];
    tensor.data = malloc(entry->bytes + 1); /* until the process ends */
    if (!tensor.data)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for %s", entry->name);
    dcp_status status = dcp_checkpoint_read_tensor(
        checkpoint, index, &tensor, &(dcp_read_options){.verification = DCP_VERIFY_RECORDS});
    if (status == DCP_OK && !dcp_state_tensor(root, entry->name, &tensor))
        status = dcp_state_status(root);
    return status;
}

struct stream {
    unsigned char *bytes;
    size_t size;
};

static dcp_status append(void *context, const void *bytes, size_t size)
{
    struct stream *stream = context;
    unsigned char *longer = realloc(stream->bytes, stream->size + size + 1);
    if (!longer)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for a stream");
    memcpy(longer + stream->size, bytes, size);
    stream->bytes = longer;
    stream->size += size;
    return DCP_OK;
}

static dcp_status copy_stream(dcp_checkpoint *checkpoint, size_t index, const char *name,
                              dcp_state *root)
{
    struct stream stream = {0};
    dcp_status status = dcp_checkpoint_read_stream(checkpoint, index, 0, append, &stream, NULL);
    if (status == DCP_OK)
        status = dcp_state_stream(root, name, stream.bytes, stream.size);
    free(stream.bytes);
    return status;
}

int main(int argc, char **argv)
{
    dcp_checkpoint *checkpoint = NULL;
    dcp_state *root = dcp_state_new();
    bool streams = argc == 4 && strcmp(argv[3], "streams") == 0;
    dcp_status status =
        argc == 3 || streams ? dcp_checkpoint_open(argv[1], NULL, &checkpoint) : DCP_ERR_ARGUMENT;
    size_t count = status == DCP_OK ? dcp_checkpoint_count(checkpoint) : 0;
    for (size_t i = 0; i < count && status == DCP_OK; i++) {
        dcp_entry entry;
        status = dcp_checkpoint_entry(checkpoint, i, &entry);
        if (status == DCP_OK && entry.is_tensor)
            status = copy_tensor(checkpoint, i, &entry, root);
        else if (status == DCP_OK && streams)
            status = copy_stream(checkpoint, i, entry.name, root);
        else if (status == DCP_OK)
            status = dcp_checkpoint_read_object(checkpoint, i, root, entry.name, NULL);
    }
    if (status == DCP_OK)
        status = dcp_save(root, argv[2], NULL);
    if (status != DCP_OK)
        fprintf(stderr, "resave: %s\n", dcp_error_message());
    dcp_state_free(root);
    dcp_checkpoint_close(checkpoint);
    return status == DCP_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
