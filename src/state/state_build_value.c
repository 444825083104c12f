/* SPDX-License-Identifier: BSD-3-Clause */
/* Building calls for values that Python has and C has no type for. */
#include <inttypes.h>
#include <string.h>

#include "state/dtype.h"
#include "state/state_build.h"

/* What messages call a value. */
static const char *name_of(const char *key)
{
    return key ? key : "(an element)";
}

dcp_status dcp_state_bytearray(dcp_state *parent, const char *key, const void *bytes, size_t length)
{
    dcp_status status = build_check_place(parent, key);
    if (status == DCP_OK && !bytes && length > 0)
        status = dcp_error_set(DCP_ERR_ARGUMENT, "the bytes for \"%s\" are NULL", name_of(key));
    if (status != DCP_OK)
        return build_keep_failure(parent, status);
    return build_finish(parent, key,
                        node_text(build_pool(parent), DCP_KIND_BYTEARRAY, bytes, length));
}

dcp_status dcp_state_complex(dcp_state *parent, const char *key, double real, double imaginary)
{
    dcp_status status = build_check_place(parent, key);
    if (status != DCP_OK)
        return build_keep_failure(parent, status);
    dcp_state *node = node_new(build_pool(parent), DCP_KIND_COMPLEX);
    if (node) {
        node->as.complex.real = real;
        node->as.complex.imaginary = imaginary;
    }
    return build_finish(parent, key, node);
}

dcp_status dcp_state_digits(dcp_state *parent, const char *key, const char *digits)
{
    dcp_status status = build_check_place(parent, key);
    const char *first = digits ? digits + (*digits == '-') : NULL;
    if (status == DCP_OK && !digits)
        status = dcp_error_set(DCP_ERR_ARGUMENT, "the digits for \"%s\" are NULL", name_of(key));
    if (status == DCP_OK && first[0] == '0' && first[1] != '\0')
        status = dcp_error_set(DCP_ERR_ARGUMENT, "the int \"%.40s\" for \"%s\" begins with a 0",
                               digits, name_of(key));
    if (status != DCP_OK)
        return build_keep_failure(parent, status);
    return build_finish(parent, key, node_digits(build_pool(parent), digits));
}

dcp_status dcp_state_dtype(dcp_state *parent, const char *key, dcp_dtype value)
{
    dcp_status status = build_check_place(parent, key);
    if (status == DCP_OK && !dtype_is_savable(value))
        status = dcp_error_set(DCP_ERR_ARGUMENT,
                               "the value %d for \"%s\" is not a dtype that can be saved",
                               (int)value, name_of(key));
    if (status != DCP_OK)
        return build_keep_failure(parent, status);
    dcp_state *node = node_new(build_pool(parent), DCP_KIND_DTYPE);
    if (node)
        node->as.dtype = value;
    return build_finish(parent, key, node);
}

static dcp_status check_sizes(const char *key, const int64_t *sizes, size_t count)
{
    if (!sizes && count > 0)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the sizes for \"%s\" are NULL", name_of(key));
    for (size_t i = 0; i < count; i++)
        if (sizes[i] < 0)
            return dcp_error_set(DCP_ERR_ARGUMENT, "size %zu for \"%s\" is %" PRId64, i,
                                 name_of(key), sizes[i]);
    return DCP_OK;
}

dcp_status dcp_state_size(dcp_state *parent, const char *key, const int64_t *sizes, size_t count)
{
    dcp_status status = build_check_place(parent, key);
    if (status == DCP_OK)
        status = check_sizes(key, sizes, count);
    if (status != DCP_OK)
        return build_keep_failure(parent, status);
    struct state_pool *pool = build_pool(parent);
    dcp_state *node = node_new(pool, DCP_KIND_SIZE);
    for (size_t i = 0; i < count && node; i++) {
        dcp_state *size = node_int(pool, sizes[i]);
        if (!size || node_append(pool, node, NULL, size) != DCP_OK)
            node = NULL;
    }
    return build_finish(parent, key, node);
}

/* "cuda", "cuda:1": letters, digits and "_", then perhaps an index as PyTorch writes it. */
static bool is_device(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz_0123456789";
    size_t type = strspn(text, letters);
    if (type == 0 || text[type] == '\0')
        return type > 0;
    const char *index = text + type + 1;
    size_t length = strspn(index, "0123456789");
    return text[type] == ':' && length > 0 && length <= 3 && index[length] == '\0' &&
           (index[0] != '0' || length == 1);
}

dcp_status dcp_state_device(dcp_state *parent, const char *key, const char *device)
{
    dcp_status status = build_check_place(parent, key);
    if (status == DCP_OK && (!device || !is_device(device)))
        status = dcp_error_set(DCP_ERR_ARGUMENT, "\"%.80s\" for \"%s\" is not a device",
                               device ? device : "(NULL)", name_of(key));
    if (status != DCP_OK)
        return build_keep_failure(parent, status);
    return build_finish(parent, key,
                        node_text(build_pool(parent), DCP_KIND_DEVICE, device, strlen(device)));
}
