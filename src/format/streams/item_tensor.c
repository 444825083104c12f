/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/streams/item.h"
#include "format/streams/tensor_pickle.h"

/* A tensor's pickle has a few hundred bytes; one with Python attributes may have more. */
#define TENSOR_PICKLE_MAX (1u << 20)

dcp_status item_open_tensor(struct byte_source stream, struct arena *arena,
                            struct tensor_view *view)
{
    struct zip_archive archive;
    RETURN_IF_ERROR(zip_open(stream, &archive));

    dcp_status status = DCP_OK;
    const void *bytes = NULL;
    void *memory = NULL;
    struct pickle_document document = {0};
    struct tensor_pickle tensor;
    const struct zip_record *record = zip_find(&archive, "data.pkl");
    if (record == NULL)
        status = dcp_error_set(DCP_ERR_FORMAT, "zip archive has no record \"data.pkl\"");
    if (status == DCP_OK)
        status = zip_look(&archive, record, TENSOR_PICKLE_MAX, &bytes, &memory);
    if (status == DCP_OK)
        status = pickle_read(bytes, (size_t)record->size, true, &document);
    if (status == DCP_OK)
        status = tensor_pickle_parse(document.root, arena, &tensor);
    if (status == DCP_OK)
        status = tensor_pickle_view(&tensor, &archive, view);
    pickle_free(&document);
    memory_release(memory);
    zip_close(&archive);
    return status;
}

dcp_status item_check_view(const struct tensor_view *view, dcp_dtype dtype, int32_t ndim,
                           const int64_t *sizes)
{
    char found[128];
    char expected[128];
    if (view->dtype != dtype)
        return dcp_error_set(DCP_ERR_FORMAT, "stored tensor is %s, but the metadata says %s",
                             dcp_dtype_name(view->dtype), dcp_dtype_name(dtype));
    if (view->ndim != ndim ||
        (ndim != 0 && memcmp(view->sizes, sizes, (size_t)ndim * sizeof *sizes) != 0))
        return dcp_error_set(DCP_ERR_FORMAT, "stored tensor has shape %s, but the metadata says %s",
                             shape_format(view->ndim, view->sizes, found, sizeof found),
                             shape_format(ndim, sizes, expected, sizeof expected));
    return DCP_OK;
}
