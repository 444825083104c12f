/* SPDX-License-Identifier: BSD-3-Clause */
/* torch.save files: the input is a file, or, if it begins like one, the pickle in it, beside a
 * storage that it may refer to. All that is named is looked at. */
#include <stdlib.h>
#include <string.h>

#include "../format/zip_builder.h"
#include "format/metadata/metadata_codec.h"
#include "fuzz_target.h"
#include "state/node.h"

enum { OBJECTS_MAX = 64 };

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void read_object(const struct metadata *metadata, const struct metadata_entry *entry)
{
    dcp_state *root = dcp_state_new(), *object;
    struct state_pool *pool = state_pool_new(root->root);
    pt_read_object(metadata, entry->pieces, pool, &object);
    state_pool_free(pool);
    dcp_state_free(root);
}

static void read_file(const uint8_t *data, size_t size)
{
    struct metadata metadata;
    size_t objects = 0;
    if (pt_decode(byte_source_memory(data, size), "fuzz.pt", &metadata) != DCP_OK)
        return;
    for (size_t i = 0; i < metadata.count; i++) {
        const struct metadata_entry *entry = &metadata.entries[i];
        require(metadata_find(&metadata, entry->name) == entry);
        require(metadata_check_entry(entry) == DCP_OK);
        require(entry->pieces->offset <= size &&
                entry->pieces->length <= size - entry->pieces->offset);
        if (!entry->is_tensor && objects++ < OBJECTS_MAX)
            read_object(&metadata, entry);
    }
    metadata_free(&metadata);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const unsigned char storage[64] = {1, 2, 3};
    struct zip_builder builder;
    if (size == 0 || data[0] != 0x80) {
        read_file(data, size);
        return 0;
    }
    zip_builder_init(&builder);
    zip_builder_add_container(&builder, data, size);
    zip_builder_add_deflated(&builder, "archive/data/0", storage, sizeof storage);
    zip_builder_finish(&builder);
    read_file(builder.out.data, builder.out.size);
    zip_builder_free(&builder);
    return 0;
}
