/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/model_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "convert/model_config.h"

enum { COPY_BUFFER = 1 << 16 };

dcp_status model_files_add(struct safetensors_output *files, const char *name, const void *bytes,
                           size_t size)
{
    size_t file;
    RETURN_IF_ERROR(convert_output_add(&files->output, name, size, &file));
    RETURN_IF_ERROR(convert_output_write(&files->output, file, bytes, size, 0));
    return convert_output_seal(&files->output, file);
}

/* Weights in other files are those of the source once more. */
static bool is_carried(const char *name)
{
    static const char *const weights[] = {"*.safetensors", "*.safetensors.index*.json",
                                          "*.bin",         "*.bin.index*.json",
                                          "*.pt",          "*.pth",
                                          "*.gguf",        "*.distcp",
                                          "*.tmp",         ".*"};
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        if (fnmatch(weights[i], name, 0) == 0)
            return false;
    return true;
}

/* Copies what is open to a file of a name. */
static dcp_status copy_open(struct safetensors_output *files, const char *name, int from)
{
    char *buffer = memory_allocate(COPY_BUFFER);
    uint64_t offset = 0;
    size_t file;
    ssize_t read_now = 1;
    if (!buffer)
        return error_no_memory(COPY_BUFFER, name);
    dcp_status status = convert_output_add(&files->output, name, 0, &file);
    while (status == DCP_OK && read_now != 0) {
        read_now = read(from, buffer, COPY_BUFFER);
        if (read_now < 0 && errno == EINTR)
            continue;
        if (read_now < 0)
            status = dcp_error_set(DCP_ERR_IO, "%s: cannot be read: %s", name, strerror(errno));
        if (read_now > 0)
            status = convert_output_write(&files->output, file, buffer, (size_t)read_now, offset);
        offset += read_now > 0 ? (uint64_t)read_now : 0;
    }
    if (status == DCP_OK)
        status = convert_output_seal(&files->output, file);
    memory_release(buffer);
    return status;
}

static dcp_status carry_file(struct convert_source *source, struct safetensors_output *files,
                             int directory, const char *name)
{
    struct stat about;
    int from = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (from < 0)
        return dcp_error_set(DCP_ERR_IO, "%s/%s: cannot be opened: %s", source->path, name,
                             strerror(errno));
    bool regular = fstat(from, &about) == 0 && S_ISREG(about.st_mode);
    dcp_status status = regular ? copy_open(files, name, from) : DCP_OK;
    close(from);
    return status;
}

/* config.json says of which dtype the tensors are. */
static dcp_status carry_config(struct convert_source *source, struct safetensors_output *files)
{
    struct buffer changed;
    const char *text;
    size_t size;
    RETURN_IF_ERROR(convert_read_text(source, "config.json", &text, &size));
    if (!text)
        return DCP_OK;
    buffer_init(&changed, 0);
    dcp_dtype dequantize = source->options->dequantize;
    dcp_status status = dequantize != DCP_DTYPE_NONE
                            ? model_config_dequantize(text, size, dequantize, &changed)
                            : model_config_retype(text, size, source->options->dtype, &changed);
    if (status == DCP_OK)
        status = model_files_add(files, "config.json", changed.data, changed.size);
    buffer_free(&changed);
    return status;
}

dcp_status model_files_carry(struct convert_source *source, struct safetensors_output *files)
{
    bool retype =
        source->options->dtype != DCP_DTYPE_NONE || source->options->dequantize != DCP_DTYPE_NONE;
    dcp_status status = DCP_OK;
    if (source->form != DCP_FORM_HF)
        return DCP_OK;
    if (retype)
        RETURN_IF_ERROR(carry_config(source, files));
    DIR *directory = opendir(source->path);
    if (!directory)
        return dcp_error_set(DCP_ERR_IO, "%s: cannot be listed: %s", source->path, strerror(errno));
    for (struct dirent *entry; status == DCP_OK && (entry = readdir(directory)) != NULL;)
        if (is_carried(entry->d_name) && !(retype && strcmp(entry->d_name, "config.json") == 0))
            status = carry_file(source, files, dirfd(directory), entry->d_name);
    closedir(directory);
    return status;
}
