/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/transform.h"

#include "base/error.h"

/* A file that the caller names. */
static dcp_status read_file(struct convert_source *source, const char *path, const char **text,
                            size_t *size)
{
    RETURN_IF_ERROR(convert_read_path(source, path, text, size));
    return *text ? DCP_OK : dcp_error_set(DCP_ERR_NOT_FOUND, "%s: there is no such file", path);
}

dcp_status convert_transform(struct convert_source *source)
{
    const dcp_convert_options *options = source->options;
    const char *text, *config = NULL;
    struct transform transform;
    size_t size, config_size = 0;
    if (!options->transform)
        return DCP_OK;
    RETURN_IF_ERROR(read_file(source, options->transform, &text, &size));
    if (options->transform_config)
        RETURN_IF_ERROR(read_file(source, options->transform_config, &config, &config_size));
    else if (source->form == DCP_FORM_HF)
        RETURN_IF_ERROR(convert_read_text(source, "config.json", &config, &config_size));
    RETURN_IF_ERROR(transform_read(options->transform, text, size, config, config_size,
                                   &source->arena, &transform));
    if (options->transform_inverse)
        RETURN_IF_ERROR(transform_invert(&transform, &source->arena));
    return transform_apply(&transform, source);
}
