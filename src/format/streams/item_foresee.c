/* SPDX-License-Identifier: BSD-3-Clause */
/* Predicts from the beginning of a tensor's stream where its elements are. Only the central
 * directory, at the end, is authoritative. */
#include <string.h>

#include "base/buffer.h"
#include "base/checksum.h"
#include "base/error.h"
#include "format/streams/item.h"
#include "format/streams/tensor_pickle.h"
#include "format/zip/zip_directory.h"

#define DESCRIPTOR_SIGNATURE 0x08074b50u
#define DESCRIPTOR_SIZE      16u
#define FLAG_DESCRIPTOR      0x0008u

/* A record as its local header shows it. */
struct local_record {
    const unsigned char *name;
    size_t name_length;
    const unsigned char *data;
    size_t size; /* size of the contents, if known; 0: unknown */
};

struct beginning {
    struct reader reader;
    const unsigned char *top; /* the directory that all names begin with, including the slash */
    size_t top_length;
};

/* Finds the descriptor that matches the size and CRC-32 of the bytes before it. */
static bool find_descriptor(const struct reader *reader, size_t *size)
{
    const unsigned char *data = reader->data + reader->position;
    for (size_t at = 0; at + DESCRIPTOR_SIZE <= reader_left(reader); at++)
        if (data[at] == 'P' && load_u32(data + at) == DESCRIPTOR_SIGNATURE &&
            load_u32(data + at + 8) == at && load_u32(data + at + 12) == at &&
            load_u32(data + at + 4) == crc32_update(0, data, at)) {
            *size = at;
            return true;
        }
    return false;
}

/* Reads a local header, up to the record's data. False if there is no header of a stored record in
 * the top directory. */
static bool read_header(struct beginning *beginning, struct local_record *record, unsigned *flags)
{
    struct reader *reader = &beginning->reader;
    uint32_t signature = reader_u32(reader);
    reader_u16(reader);
    *flags = reader_u16(reader);
    unsigned method = reader_u16(reader);
    reader_bytes(reader, 12); /* time, date, CRC, stored size */
    record->size = reader_u32(reader);
    record->name_length = reader_u16(reader);
    size_t extra_length = reader_u16(reader);
    record->name = reader_bytes(reader, record->name_length);
    reader_bytes(reader, extra_length);
    record->data = reader->data + reader->position;
    if (reader->failed || signature != ZIP_LOCAL_SIGNATURE || method != ZIP_METHOD_STORED ||
        (*flags & ZIP_FLAGS_REFUSED) != 0)
        return false;
    if (beginning->top == NULL) {
        const unsigned char *slash = memchr(record->name, '/', record->name_length);
        beginning->top = record->name;
        beginning->top_length = slash != NULL ? (size_t)(slash - record->name) + 1 : 0;
    }
    size_t length = beginning->top_length;
    if (length == 0 || record->name_length < length ||
        memcmp(record->name, beginning->top, length) != 0)
        return false;
    record->name += length;
    record->name_length -= length;
    return true;
}

/* Skips the record's data. */
static bool pass_record(struct beginning *beginning, unsigned flags, struct local_record *record)
{
    bool descriptor = (flags & FLAG_DESCRIPTOR) != 0;
    if (descriptor && !find_descriptor(&beginning->reader, &record->size))
        return false;
    return reader_bytes(&beginning->reader, record->size + (descriptor ? DESCRIPTOR_SIZE : 0)) !=
           NULL;
}

static bool is_named(const struct local_record *record, const char *name)
{
    return record->name_length == strlen(name) &&
           memcmp(record->name, name, record->name_length) == 0;
}

static bool is_storage(const struct local_record *record, const struct tensor_pickle *tensor)
{
    static const char folder[] = "data/";
    size_t length = sizeof folder - 1;
    return record->name_length == length + tensor->storage_key_length &&
           memcmp(record->name, folder, length) == 0 &&
           memcmp(record->name + length, tensor->storage_key, tensor->storage_key_length) == 0;
}

/* Skips the records behind the pickle up to the elements. */
static bool find_storage(struct beginning *beginning, const struct tensor_pickle *tensor,
                         struct tensor_view *view)
{
    struct local_record record;
    unsigned flags;
    bool swapped = false;
    while (read_header(beginning, &record, &flags)) {
        if (is_storage(&record, tensor)) {
            *view = (struct tensor_view){.dtype = tensor->dtype,
                                         .ndim = tensor->ndim,
                                         .sizes = tensor->sizes,
                                         .strides = tensor->strides,
                                         .storage_offset = tensor->storage_offset,
                                         .conjugate = tensor->conjugate,
                                         .negative = tensor->negative,
                                         .swapped = swapped,
                                         .data_offset = beginning->reader.position,
                                         .data_length = tensor->storage_bytes,
                                         .storage_bytes = tensor->storage_bytes};
            return true;
        }
        if (!pass_record(beginning, flags, &record))
            return false;
        if (is_named(&record, "byteorder"))
            swapped = record.size == 3 && memcmp(record.data, "big", 3) == 0;
    }
    return false;
}

dcp_status item_foresee_tensor(const void *bytes, size_t size, struct arena *arena,
                               struct tensor_view *view, bool *known)
{
    struct beginning beginning = {0};
    struct local_record record;
    struct pickle_document document = {0};
    struct tensor_pickle tensor;
    unsigned flags;
    *known = false;
    reader_init(&beginning.reader, bytes, size);
    if (!read_header(&beginning, &record, &flags) || !is_named(&record, "data.pkl") ||
        !pass_record(&beginning, flags, &record))
        return DCP_OK;
    dcp_status status = pickle_read(record.data, record.size, true, &document);
    if (status == DCP_OK)
        status = tensor_pickle_parse(document.root, arena, &tensor);
    if (status == DCP_OK)
        *known = find_storage(&beginning, &tensor, view);
    pickle_free(&document);
    return status == DCP_ERR_NO_MEMORY ? status : DCP_OK;
}

bool item_same_view(const struct tensor_view *a, const struct tensor_view *b)
{
    size_t bytes = (size_t)a->ndim * sizeof *a->sizes;
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           (bytes == 0 || (memcmp(a->sizes, b->sizes, bytes) == 0 &&
                           memcmp(a->strides, b->strides, bytes) == 0)) &&
           a->storage_offset == b->storage_offset && a->conjugate == b->conjugate &&
           a->negative == b->negative && a->swapped == b->swapped && a->deflated == b->deflated &&
           a->data_offset == b->data_offset && a->data_length == b->data_length &&
           a->storage_bytes == b->storage_bytes;
}
