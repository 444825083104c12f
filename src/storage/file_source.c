/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/file_source.h"

#include "base/error.h"

static dcp_status read_file(void *context, uint64_t offset, void *bytes, size_t size)
{
    return storage_file_read(context, bytes, size, offset);
}

dcp_status file_source_open(struct file_source *source, const struct storage_directory *directory,
                            const char *name)
{
    const dcp_storage_access access = {.size_of = sizeof access, .trusted = true};
    RETURN_IF_ERROR(storage_file_open(&source->file, directory, name, &access));
    source->source = (struct byte_source){
        .read = read_file, .context = &source->file, .size = source->file.file.size};
    return DCP_OK;
}

void file_source_close(struct file_source *source)
{
    storage_file_close(&source->file);
}
