/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether the last layer's weight is the embedding, which the tensors decide. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "convert/convert_copy.h"
#include "convert/convert_target.h"

#define HEAD "lm_head.weight"

static bool ends_in(const char *name, const char *end)
{
    size_t length = strlen(name), suffix = strlen(end);
    return length >= suffix && strcmp(name + length - suffix, end) == 0;
}

static bool find_pair(const struct convert_source *source, size_t *head, size_t *embedding)
{
    bool has_head = false, has_embedding = false;
    for (size_t i = 0; i < source->count; i++) {
        const char *name = source->items[i].name;
        if (strcmp(name, HEAD) == 0) {
            *head = i;
            has_head = true;
        } else if (ends_in(name, "embed_tokens.weight") && !has_embedding) {
            *embedding = i;
            has_embedding = true;
        }
    }
    return has_head && has_embedding;
}

static bool same_shape(const struct convert_item *a, const struct convert_item *b)
{
    return a->is_tensor && b->is_tensor && a->dtype == b->dtype && a->stored == b->stored &&
           a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0);
}

static dcp_status compare(const struct convert_source *source, const struct convert_item *a,
                          const struct convert_item *b, bool *equal)
{
    size_t element = dcp_dtype_size(a->dtype);
    int64_t count = (int64_t)(a->bytes / element), most = (int64_t)(CONVERT_BLOCK / element);
    unsigned char *space = memory_allocate(2 * CONVERT_BLOCK);
    dcp_status status = DCP_OK;
    *equal = true;
    if (!space)
        return error_no_memory(2 * CONVERT_BLOCK, "blocks to compare");
    for (int64_t first = 0; first < count && *equal && status == DCP_OK; first += most) {
        int64_t size = count - first < most ? count - first : most;
        status = convert_read(source, a, first, size, space);
        if (status == DCP_OK)
            status = convert_read(source, b, first, size, space + CONVERT_BLOCK);
        if (status == DCP_OK)
            *equal = memcmp(space, space + CONVERT_BLOCK, (size_t)size * element) == 0;
    }
    memory_release(space);
    return status;
}

dcp_status convert_equal(const struct convert_source *source, const struct convert_item *a,
                         const struct convert_item *b, bool *equal)
{
    *equal = same_shape(a, b);
    return *equal ? compare(source, a, b, equal) : DCP_OK;
}

dcp_status convert_drop_tied(struct convert_source *source, uint64_t *tied)
{
    size_t head = 0, embedding = 0;
    bool equal = false;
    bool wanted = source->options->tied == DCP_TIED_DROP ||
                  (source->options->tied == DCP_TIED_AUTO && source->options->form >= DCP_FORM_HF &&
                   source->says_tied);
    *tied = 0;
    if (!wanted || !find_pair(source, &head, &embedding) ||
        !same_shape(&source->items[head], &source->items[embedding]))
        return DCP_OK;
    RETURN_IF_ERROR(compare(source, &source->items[head], &source->items[embedding], &equal));
    if (equal) {
        convert_leave_out(source, head);
        *tied = 1;
    }
    return DCP_OK;
}
