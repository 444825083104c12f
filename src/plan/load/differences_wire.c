/* SPDX-License-Identifier: BSD-3-Clause */
/* The message that carries differences:
 *
 *   tag, failure (a status), number of entries, a bit for each that is wanted, number of rules and
 *   patterns, a byte for each: whether it was used, number of lines, per line: difference (u8, with
 *   the high bit set if it was renamed), name (text), detail (text), stored name (text, if renamed)
 *
 * All numbers are varints. */
#include <string.h>

#include "base/error.h"
#include "plan/load/load_differences.h"
#include "plan/wire.h"

static const char message[] = "load differences";

enum { RENAMED = 0x80 };

dcp_status load_differences_encode(const struct load_differences *differences, struct buffer *out)
{
    buffer_append_u8(out, WIRE_DIFFERENCES);
    buffer_append_varint(out, (uint64_t)differences->failure);
    buffer_append_varint(out, differences->entry_count);
    buffer_append(out, differences->wanted, (differences->entry_count + 7) / 8);
    buffer_append_varint(out, differences->used_count);
    for (size_t i = 0; i < differences->used_count; i++)
        buffer_append_u8(out, differences->used[i]);
    buffer_append_varint(out, differences->count);
    for (size_t i = 0; i < differences->count; i++) {
        const struct load_difference *line = &differences->lines[i];
        bool renamed = strcmp(line->stored_name, line->name) != 0;
        buffer_append_u8(out, (uint8_t)(line->difference | (renamed ? RENAMED : 0)));
        buffer_append_text(out, line->name, strlen(line->name));
        buffer_append_text(out, line->detail, strlen(line->detail));
        if (renamed)
            buffer_append_text(out, line->stored_name, strlen(line->stored_name));
    }
    return buffer_status(out);
}

static dcp_status read_marks(struct reader *reader, struct load_differences *differences)
{
    uint64_t count = reader_varint(reader);
    uint64_t size = count / 8 + (count % 8 != 0);
    if (reader->failed || size > reader_left(reader))
        return wire_fault(reader, message, "the bitmap of wanted entries is too short");
    const unsigned char *bits = reader_bytes(reader, (size_t)size);
    size_t used_count = wire_count(reader);
    if (reader->failed)
        return wire_fault(reader, message, "the marks of used rules and patterns are too short");
    RETURN_IF_ERROR(differences_init(differences, (size_t)count, used_count));
    memcpy(differences->wanted, bits, (size_t)size);
    if (count % 8 != 0 && bits[size - 1] >> count % 8 != 0)
        return wire_fault(reader, message, "the bitmap of wanted entries has extra bits");
    for (size_t i = 0; i < used_count; i++)
        differences->used[i] = reader_u8(reader) != 0;
    return DCP_OK;
}

static dcp_status read_line(struct reader *reader, struct load_differences *differences)
{
    const char *name, *detail;
    size_t name_length, detail_length;
    uint8_t kind = reader_u8(reader), difference = kind & (RENAMED - 1);
    if (difference > DCP_DIFFERENCE_UNUSED)
        return wire_fault(reader, message, "a difference is of an unknown kind");
    RETURN_IF_ERROR(wire_text(reader, message, &name, &name_length));
    RETURN_IF_ERROR(wire_text(reader, message, &detail, &detail_length));
    RETURN_IF_ERROR(differences_add(differences, (dcp_difference)difference, name, name_length,
                                    detail, detail_length));
    if ((kind & RENAMED) == 0)
        return DCP_OK;
    RETURN_IF_ERROR(wire_text(reader, message, &name, &name_length));
    return differences_set_stored(differences, name, name_length);
}

/* There must be a failure exactly if there is a mismatch. */
static bool failure_is_plausible(const struct load_differences *differences)
{
    bool mismatched = false;
    for (size_t i = 0; i < differences->count && !mismatched; i++)
        mismatched = differences->lines[i].difference == DCP_DIFFERENCE_MISMATCHED;
    switch (differences->failure) {
    case DCP_OK:
        return !mismatched;
    case DCP_ERR_SHAPE:
    case DCP_ERR_DTYPE:
    case DCP_ERR_KIND:
        return mismatched;
    default:
        return false;
    }
}

dcp_status load_differences_decode(const void *bytes, size_t size,
                                   struct load_differences *differences)
{
    struct reader reader;
    *differences = (struct load_differences){0};
    reader_init(&reader, bytes, size);
    RETURN_IF_ERROR(wire_begin(&reader, WIRE_DIFFERENCES, message));
    uint32_t failure = wire_u32(&reader);
    RETURN_IF_ERROR(read_marks(&reader, differences));
    differences->failure = (dcp_status)failure;
    size_t count = wire_count(&reader);
    for (size_t i = 0; i < count; i++)
        RETURN_IF_ERROR(read_line(&reader, differences));
    RETURN_IF_ERROR(wire_end(&reader, message));
    if (!failure_is_plausible(differences))
        return wire_fault(&reader, message, "the failure contradicts the differences");
    return DCP_OK;
}
