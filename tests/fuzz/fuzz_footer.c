/* SPDX-License-Identifier: BSD-3-Clause */
/* Shard footers: the input as a file, and as the body of a footer whose trailer is right. What was
 * decoded survives encoding. */
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "format/footer/footer.h"
#include "fuzz_target.h"

/* Bytes in front of the footer: enough that pieces can lie somewhere; and of the sums of its two
 * blocks. */
enum { CONTENT_LENGTH = 5000, SUMS_SIZE = 16 };

static dcp_status decode(const struct buffer *file, struct footer *footer)
{
    bool found = false;
    return footer_decode(byte_source_memory(file->data, file->size), footer, &found);
}

static void encode(const struct footer *footer, struct buffer *file)
{
    buffer_init(file, 0);
    buffer_append_zeros(file, CONTENT_LENGTH + SUMS_SIZE);
    if (footer_encode(file, footer->save_id, footer->content_length, footer->block_size,
                      footer->pages, footer->page_count, &footer->contents) != DCP_OK)
        abort();
}

static void round_trip(const struct buffer *file)
{
    struct footer first;
    struct footer second;
    struct buffer once;
    struct buffer twice;
    if (decode(file, &first) != DCP_OK)
        return;
    encode(&first, &once);
    if (decode(&once, &second) != DCP_OK)
        abort();
    encode(&second, &twice);
    if (once.size != twice.size || memcmp(once.data, twice.data, once.size) != 0)
        abort();
    footer_free(&first);
    footer_free(&second);
    buffer_free(&once);
    buffer_free(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct footer footer;
    bool found = false;
    if (footer_decode(byte_source_memory(data, size), &footer, &found) == DCP_OK)
        footer_free(&footer);

    struct buffer file;
    buffer_init(&file, 0);
    buffer_append_zeros(&file, CONTENT_LENGTH + SUMS_SIZE);
    buffer_append(&file, data, size);
    buffer_append_u64(&file, CONTENT_LENGTH);
    buffer_append_u64(&file, size);
    buffer_append_u32(&file, 2); /* version */
    buffer_append_u32(&file, FOOTER_BLOCK_SIZE);
    const unsigned char *body = file.data + CONTENT_LENGTH + SUMS_SIZE;
    buffer_append_u64(&file, xxh3_64(body, size + 24));
    buffer_append(&file, "\211DCPEND\n", 8);
    round_trip(&file);
    buffer_free(&file);
    return 0;
}
