/* SPDX-License-Identifier: BSD-3-Clause */
/* Recognizes the forms of files that torch.save writes and has written. */
#include <inttypes.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "format/torch_file/pt_file.h"

enum { HEAD_SIZE = 512, TAR_MAGIC_OFFSET = 257, SAFETENSORS_LENGTH_SIZE = 8 };

struct head {
    unsigned char bytes[HEAD_SIZE];
    size_t size;
    uint64_t file_size;
};

static bool has_at(const struct head *head, size_t offset, const void *bytes, size_t size)
{
    return offset + size <= head->size && memcmp(head->bytes + offset, bytes, size) == 0;
}

/* The size of a pickle of the number 0x1950a86a20f9469cfc6c, of any protocol: from 4 on it has a
 * frame. 0: it is none. */
static size_t legacy_magic_size(const struct head *head)
{
    static const unsigned char magic[] = {0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9,
                                          0x20, 0x6a, 0xa8, 0x50, 0x19, 0x2e};
    static const unsigned char frame[] = {0x95, sizeof magic, 0, 0, 0, 0, 0, 0, 0};
    size_t begin = has_at(head, 2, frame, sizeof frame) ? 2 + sizeof frame : 2;
    bool found =
        head->size > 2 && head->bytes[0] == 0x80 && has_at(head, begin, magic, sizeof magic);
    return found ? begin + sizeof magic : 0;
}

static bool is_pickle(const struct head *head)
{
    return head->size > 2 && head->bytes[0] == 0x80 && head->bytes[1] >= 2 && head->bytes[1] <= 5;
}

static bool is_safetensors(const struct head *head)
{
    return has_at(head, SAFETENSORS_LENGTH_SIZE, "{", 1) &&
           load_u64(head->bytes) <= head->file_size - SAFETENSORS_LENGTH_SIZE;
}

/* NULL: nothing known. */
static const char *name_form(const struct head *head)
{
    if (has_at(head, TAR_MAGIC_OFFSET, "ustar", 5))
        return "a tar file, as torch.save wrote it in 2016: load it with torch.load and save it "
               "again";
    if (has_at(head, 0, "PYTORCH1", 8))
        return "a file in the preview form of PyTorch 1.0";
    if (is_safetensors(head))
        return "a safetensors file: open the directory that it is in";
    if (is_pickle(head))
        return "a plain pickle, not written by torch.save";
    return NULL;
}

dcp_status pt_recognize(const struct byte_source *source, size_t *magic_size)
{
    struct head head = {.file_size = source->size};
    head.size = source->size < HEAD_SIZE ? (size_t)source->size : HEAD_SIZE;
    RETURN_IF_ERROR(byte_source_read(source, 0, head.bytes, head.size));
    *magic_size = legacy_magic_size(&head);
    if (*magic_size != 0 || has_at(&head, 0, "PK\3\4", 4))
        return DCP_OK;
    const char *form = name_form(&head);
    if (form != NULL)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "this is %s", form);
    return dcp_error_set(DCP_ERR_FORMAT,
                         "not a torch.save file: %" PRIu64 " bytes that begin with 0x%02x%02x%02x"
                         "%02x, expected a zip archive (0x504b0304)",
                         source->size, head.bytes[0], head.bytes[1], head.bytes[2], head.bytes[3]);
}
