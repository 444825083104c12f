/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/file_source.h"

#include "base/error.h"

static dcp_status read_file(void *context, uint64_t offset, void *bytes, size_t size)
{
    return file_read(context, bytes, size, offset);
}

dcp_status file_source_open(struct file_source *source, const struct file_ops *ops,
                            const char *path)
{
    RETURN_IF_ERROR(file_open(&source->file, ops, path, FILE_READ));
    source->source = (struct byte_source){.read = read_file, .context = &source->file};
    dcp_status status = file_size(&source->file, &source->source.size);
    if (status != DCP_OK)
        file_source_close(source);
    return status;
}

void file_source_close(struct file_source *source)
{
    struct error_story story;
    error_save(&story);
    file_close(&source->file);
    error_restore(&story);
}
