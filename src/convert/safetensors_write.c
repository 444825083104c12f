/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/safetensors_write.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "state/dtype.h"

/* The reader takes headers of so many bytes, as the package does. */
enum { HEADER_MAX = 100 * 1000 * 1000, LENGTH_SIZE = 8 };

/* Source: safetensors 0.8.0. Larger elements come first. */
static const dcp_dtype dtype_order[] = {
    DCP_U64,       DCP_I64,     DCP_F64, DCP_C64, DCP_F32,         DCP_U32,         DCP_I32,
    DCP_BF16,      DCP_F16,     DCP_U16, DCP_I16, DCP_F8_E5M2FNUZ, DCP_F8_E4M3FNUZ, DCP_F8_E8M0FNU,
    DCP_F8_E4M3FN, DCP_F8_E5M2, DCP_I8,  DCP_U8,  DCP_BOOL,
};

static size_t dtype_rank(dcp_dtype dtype)
{
    size_t rank = 0;
    while (rank < sizeof dtype_order / sizeof *dtype_order && dtype_order[rank] != dtype)
        rank++;
    return rank;
}

static int compare_items(const void *a, const void *b)
{
    const struct convert_item *const *left = a, *const *right = b;
    size_t one = dtype_rank((*left)->dtype), other = dtype_rank((*right)->dtype);
    if (one != other)
        return one < other ? -1 : 1;
    return strcmp((*left)->name, (*right)->name);
}

dcp_status safetensors_sort(const struct convert_item **items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct dtype_facts *facts = dtype_facts(items[i]->dtype);
        const char *name = items[i]->name;
        if (!facts || !facts->safetensors)
            return dcp_error_set(DCP_ERR_UNSUPPORTED,
                                 "\"%s\" is of dtype %s, which safetensors files do not have", name,
                                 facts ? facts->name : "none");
        if (strcmp(name, "__metadata__") == 0 || !utf8_is_valid(name, strlen(name)))
            return dcp_error_set(DCP_ERR_UNSUPPORTED,
                                 "\"%s\" cannot be a tensor's name in a safetensors file", name);
    }
    if (count > 1)
        qsort((void *)items, count, sizeof *items, compare_items);
    return DCP_OK;
}

/* Appends a character of valid UTF-8 as UTF-16 in hexadecimal; returns how many bytes it has. */
static size_t put_escape(struct buffer *out, const char *text)
{
    static const unsigned char masks[] = {0x7f, 0x1f, 0x0f, 0x07};
    unsigned char first = (unsigned char)*text;
    size_t more = first < 0x80 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    unsigned character = first & masks[more];
    for (size_t i = 1; i <= more; i++)
        character = character << 6 | ((unsigned char)text[i] & 0x3f);
    if (character < 0x10000)
        buffer_append_format(out, "\\u%04x", character);
    else
        buffer_append_format(out, "\\u%04x\\u%04x", 0xd800 + ((character - 0x10000) >> 10),
                             0xdc00 + ((character - 0x10000) & 0x3ff));
    return 1 + more;
}

void safetensors_put_string(struct buffer *out, const char *text, bool ascii)
{
    static const char shorts[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    buffer_append_u8(out, '"');
    while (*text) {
        unsigned char byte = (unsigned char)*text;
        const char *found = NULL;
        for (size_t i = 0; i + 1 < sizeof shorts && !found; i += 2)
            if (shorts[i] == *text)
                found = &shorts[i];
        if (!found && (byte < 0x20 || (ascii && byte >= 0x7f))) {
            text += put_escape(out, text);
            continue;
        }
        if (found)
            buffer_append_format(out, "\\%c", found[1]);
        else
            buffer_append_u8(out, byte);
        text++;
    }
    buffer_append_u8(out, '"');
}

static void put_item(const struct convert_item *item, uint64_t begin, struct buffer *out)
{
    safetensors_put_string(out, item->name, false);
    buffer_append_format(out, ":{\"dtype\":\"%s\",\"shape\":[",
                         dtype_facts(item->dtype)->safetensors);
    for (int32_t d = 0; d < item->ndim; d++)
        buffer_append_format(out, "%s%" PRId64, d > 0 ? "," : "", item->shape[d]);
    buffer_append_format(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin,
                         begin + item->bytes);
}

dcp_status safetensors_put_header(const struct convert_item *const *items, size_t count,
                                  struct buffer *out)
{
    static const char metadata[] = "{\"__metadata__\":{\"format\":\"pt\"}";
    size_t start = out->size;
    uint64_t position = 0;
    buffer_append_u64(out, 0);
    buffer_append(out, metadata, sizeof metadata - 1);
    for (size_t i = 0; i < count; i++) {
        buffer_append_u8(out, ',');
        put_item(items[i], position, out);
        if (!checked_add_u64(position, items[i]->bytes, &position) || position > INT64_MAX)
            return dcp_error_set(DCP_ERR_UNSUPPORTED, "a file of more than 2^63 bytes");
    }
    buffer_append_u8(out, '}');
    buffer_append(out, "       ", -(out->size - start) % 8); /* to a multiple of 8 */
    RETURN_IF_ERROR(buffer_status(out));
    size_t length = out->size - start - LENGTH_SIZE;
    if (length > HEADER_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "the header of a safetensors file of %zu tensors would have %zu "
                             "bytes, at most %d are allowed",
                             count, length, (int)HEADER_MAX);
    store_u64(out->data + start, length);
    return DCP_OK;
}
