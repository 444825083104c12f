/* SPDX-License-Identifier: BSD-3-Clause */
/* Safetensors directories: the input is the number of data bytes of every file, then the headers of
 * the files, each but the last ended by NUL. */
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "format/metadata/metadata_codec.h"
#include "fuzz_target.h"

static dcp_status add_file(struct metadata *metadata, const uint8_t *header, size_t header_size,
                           size_t data_size)
{
    struct buffer file;
    buffer_init(&file, 0);
    buffer_append_u64(&file, header_size);
    buffer_append(&file, header, header_size);
    buffer_append_zeros(&file, data_size);
    dcp_status status =
        safetensors_add(byte_source_memory(file.data, file.size), "fuzz.safetensors", metadata);
    buffer_free(&file);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct metadata metadata;
    dcp_status status = DCP_OK;
    metadata_init(&metadata);
    for (size_t at = 1; at < size && status == DCP_OK;) {
        const uint8_t *end = memchr(data + at, '\0', size - at);
        size_t header_size = end != NULL ? (size_t)(end - data) - at : size - at;
        status = add_file(&metadata, data + at, header_size, data[0]);
        at += header_size + 1;
    }
    if (status == DCP_OK && safetensors_finish(&metadata) == DCP_OK)
        for (size_t i = 0; i < metadata.count; i++)
            if (metadata_find(&metadata, metadata.entries[i].name) != &metadata.entries[i] ||
                metadata_check_entry(&metadata.entries[i]) != DCP_OK)
                abort();
    metadata_free(&metadata);
    return 0;
}
