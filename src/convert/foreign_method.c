/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/foreign_method.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"

#define COMPRESSED "compressed-tensors (no config.json says how)"

/* Ends of names; of_coded: beside a weight of 8 bits alone. */
static const struct {
    const char *end, *method;
    bool of_coded;
} ends[] = {
    {".qweight", "GPTQ or AWQ", false},
    {".weight.absmax", "bitsandbytes", false},
    {".SCB", "bitsandbytes", false},
    {".weight_scale_2", "ModelOpt", false},
    {".weight_packed", COMPRESSED, false},
    {".scale_weight", "ComfyUI", true},
    {".weight_scale", "ComfyUI or " COMPRESSED, true},
};

static bool is_coded(dcp_dtype dtype)
{
    return dtype == DCP_I8 || (dtype >= DCP_F8_E4M3FN && dtype <= DCP_F8_E5M2FNUZ);
}

/* Whether there is a weight of 8 bits whose name begins with so many bytes of another one. */
static dcp_status has_coded(const dcp_checkpoint *checkpoint, const char *name, size_t length,
                            bool *is_there)
{
    static const char weight[] = ".weight";
    char *text = memory_allocate(length + sizeof weight);
    dcp_entry entry;
    size_t index;
    *is_there = false;
    if (!text)
        return error_no_memory(length + sizeof weight, "a name");
    memcpy(text, name, length);
    memcpy(text + length, weight, sizeof weight);
    dcp_status status = dcp_checkpoint_find(checkpoint, text, &index);
    memory_release(text);
    if (status == DCP_OK) {
        status = dcp_checkpoint_entry(checkpoint, index, &entry);
        *is_there = status == DCP_OK && entry.is_tensor && is_coded(entry.dtype);
    }
    return status == DCP_ERR_NOT_FOUND ? DCP_OK : status;
}

/* The method that has tensors of such a name; NULL: none that is known. */
static dcp_status find_method(const dcp_checkpoint *checkpoint, const char *name,
                              const char **method)
{
    size_t length = strlen(name);
    *method = NULL;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t end = strlen(ends[i].end);
        bool is_there = true;
        if (length <= end || strcmp(name + length - end, ends[i].end) != 0)
            continue;
        if (ends[i].of_coded)
            RETURN_IF_ERROR(has_coded(checkpoint, name, length - end, &is_there));
        if (is_there)
            *method = ends[i].method;
        return DCP_OK;
    }
    return DCP_OK;
}

dcp_status foreign_method_find(struct convert_source *source)
{
    const char *method = NULL;
    dcp_entry entry;
    size_t count = dcp_checkpoint_count(source->checkpoint);
    for (size_t i = 0; i < count && !method; i++) {
        RETURN_IF_ERROR(dcp_checkpoint_entry(source->checkpoint, i, &entry));
        if (entry.is_tensor)
            RETURN_IF_ERROR(find_method(source->checkpoint, entry.name, &method));
        if (method)
            source->quantized_name = entry.name;
    }
    if (!source->quantized)
        source->quantized = method;
    return DCP_OK;
}
