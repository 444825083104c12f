/* SPDX-License-Identifier: BSD-3-Clause */
/* The metadata decoder. What it accepts survives encoding, and is its own union. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "format/metadata/metadata_codec.h"
#include "fuzz_target.h"

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void encode(const struct metadata *metadata, struct buffer *out)
{
    buffer_init(out, 0);
    require(metadata_encode(metadata, out) == DCP_OK);
}

/* What planners stored may have forms that are only read. */
static const dcp_state *writable_planner_data(const struct metadata *metadata)
{
    struct buffer out;
    buffer_init(&out, 0);
    dcp_status status = metadata_encode(metadata, &out);
    buffer_free(&out);
    return status == DCP_OK ? metadata->planner_data : NULL;
}

static void check_round_trip(const struct metadata *metadata)
{
    struct buffer first, second;
    struct metadata again, written = *metadata;
    if (metadata->planner_data != NULL)
        written.planner_data = writable_planner_data(metadata);
    encode(&written, &first);
    require(metadata_decode_part(first.data, first.size, &again) == DCP_OK);
    encode(&again, &second);
    require(first.size == second.size && memcmp(first.data, second.data, first.size) == 0);
    metadata_free(&again);
    buffer_free(&first);
    buffer_free(&second);
}

/* Two ranks with the same part are that part, if it is whole. */
static void check_union(const struct metadata *part)
{
    struct metadata twice;
    const struct metadata parts[2] = {*part, *part};
    dcp_status status = metadata_check_chunks(part);
    dcp_status united = metadata_unite(parts, 2, &twice);
    require(status != DCP_OK || united == DCP_OK);
    if (united != DCP_OK)
        return;
    require(twice.count == part->count);
    metadata_free(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct metadata metadata;
    if (metadata_decode_part(data, size, &metadata) == DCP_OK) {
        check_round_trip(&metadata);
        check_union(&metadata);
        metadata_free(&metadata);
    }
    if (metadata_decode(data, size, &metadata) == DCP_OK)
        metadata_free(&metadata);
    return 0;
}
