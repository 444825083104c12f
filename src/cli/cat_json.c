/* SPDX-License-Identifier: BSD-3-Clause */
/* dcp cat --json. */
#include <inttypes.h>
#include <string.h>

#include "cat.h"
#include "element.h"

void json_begin(const char *name, const char *type)
{
    fputs("{\"name\": ", stdout);
    print_json_string(stdout, name);
    printf(", \"type\": \"%s\"", type);
}

void json_end(const char *error)
{
    if (error) {
        fputs(", \"error\": ", stdout);
        print_json_string(stdout, error);
    }
    fputs("}\n", stdout);
}

/* ---- tensors ---- */

static int dimensions(const struct slice *slice)
{
    int count = 0;
    for (int32_t d = 0; d < slice->walk.box.ndim; d++)
        count += !slice->dropped[d];
    return count;
}

void json_print_head(const struct slice *slice, dcp_dtype stored)
{
    const dcp_tensor *box = &slice->walk.box;
    const char *comma = "";
    printf(", \"dtype\": \"%s\", \"shape\": [", dcp_dtype_name(stored));
    for (int32_t d = 0; d < box->ndim; d++) {
        if (slice->dropped[d])
            continue;
        printf("%s%" PRId64, comma, box->sizes[d]);
        comma = ", ";
    }
    fputs("], \"values\": ", stdout);
    if (slice->walk.count == 0)
        fputs("[]", stdout);
}

/* How many arrays begin with an element, or end in front of it: those of the last dimensions. */
static int arrays_at(const struct slice *slice, int64_t place)
{
    const dcp_tensor *box = &slice->walk.box;
    int64_t span = 1;
    int count = 0;
    for (int32_t d = box->ndim - 1; d >= 0; d--) {
        if (slice->dropped[d])
            continue;
        span *= box->sizes[d];
        if (place % span != 0)
            break;
        count++;
    }
    return count;
}

static void repeat(char c, int count)
{
    while (count-- > 0)
        putchar(c);
}

void json_print(const struct slice *slice, dcp_dtype stored, const dcp_tensor *block,
                int64_t before)
{
    dcp_dtype read = slice->walk.box.dtype;
    int64_t count = walk_elements(block);
    for (int64_t i = 0; i < count; i++) {
        int opened = arrays_at(slice, before + i);
        if (before + i > 0)
            fputs(opened > 0 ? ",\n " : ", ", stdout);
        repeat('[', opened);
        if (stored == DCP_BOOL)
            fputs(((const int64_t *)block->data)[i] ? "true" : "false", stdout);
        else
            element_print_json(read, block->data, i);
        repeat(']', arrays_at(slice, before + i + 1));
    }
}

void json_print_tail(const struct slice *slice, int64_t before)
{
    if (before == 0)
        fputs("null", stdout);
    else
        repeat(']', dimensions(slice) - arrays_at(slice, before));
}

/* ---- files ---- */

static bool is_text(const char *bytes, size_t size)
{
    size_t length;
    for (size_t at = 0; at < size; at += length) {
        length = utf8_sequence(bytes + at);
        if (length == 0 || bytes[at] == '\0')
            return false;
    }
    return true;
}

static void print_base64(const unsigned char *bytes, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t at = 0; at < size; at += 3) {
        size_t left = size - at;
        unsigned word = (unsigned)bytes[at] << 16;
        word |= left > 1 ? (unsigned)bytes[at + 1] << 8 : 0;
        word |= left > 2 ? (unsigned)bytes[at + 2] : 0;
        putchar(digits[word >> 18]);
        putchar(digits[word >> 12 & 63]);
        putchar(left > 1 ? digits[word >> 6 & 63] : '=');
        putchar(left > 2 ? digits[word & 63] : '=');
    }
}

void json_print_file(const char *bytes, size_t size)
{
    printf(", \"size\": %zu, ", size);
    if (is_text(bytes, size)) {
        fputs("\"text\": ", stdout);
        print_json_string(stdout, bytes);
    } else {
        fputs("\"base64\": \"", stdout);
        print_base64((const unsigned char *)bytes, size);
        putchar('"');
    }
}
