/* SPDX-License-Identifier: BSD-3-Clause */
/* The zip reader: every record of whatever opens. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "format/zip/zip.h"
#include "fuzz_target.h"

enum { RECORD_MAX = 1 << 20 };

static void read_record(const struct zip_archive *archive, const struct zip_record *record)
{
    uint64_t offset = 0;
    void *bytes = NULL;
    if (zip_find(archive, record->name) != record)
        abort();
    if (zip_data_offset(archive, record, &offset) == DCP_OK &&
        (offset > archive->source.size || record->stored_size > archive->source.size - offset))
        abort();
    if (zip_read(archive, record, RECORD_MAX, &bytes) == DCP_OK && record->size > RECORD_MAX)
        abort();
    memory_release(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zip_archive archive;
    if (zip_open(byte_source_memory(data, size), &archive) != DCP_OK)
        return 0;
    for (size_t i = 0; i < archive.count; i++)
        if (strlen(archive.records[i].name) <= ZIP_NAME_MAX)
            read_record(&archive, &archive.records[i]);
    zip_close(&archive);
    return 0;
}
