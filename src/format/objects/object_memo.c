/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/objects/object_encoder.h"
#include "format/streams/storage_class.h"

enum { SLOTS_FIRST = 64 };

static const struct {
    const char *module, *name;
} globals[GLOBAL_DTYPES] = {
    [GLOBAL_GETATTR] = {"__builtin__", "getattr"},
    [GLOBAL_ENCODE] = {"_codecs", "encode"},
    [GLOBAL_BYTEARRAY] = {"__builtin__", "bytearray"},
    [GLOBAL_COMPLEX] = {"__builtin__", "complex"},
    [GLOBAL_SET] = {"__builtin__", "set"},
    [GLOBAL_FROZENSET] = {"__builtin__", "frozenset"},
    [GLOBAL_SIZE] = {"torch", "Size"},
    [GLOBAL_DEVICE] = {"torch", "device"},
    [GLOBAL_ORDERED_DICT] = {"collections", "OrderedDict"},
    [GLOBAL_REBUILD_TYPED] = {"torch._utils", "_rebuild_tensor_v2"},
    [GLOBAL_REBUILD_UNTYPED] = {"torch._utils", "_rebuild_tensor_v3"},
    [GLOBAL_REBUILD_PARAMETER] = {"torch._utils", "_rebuild_parameter"},
    [GLOBAL_UNTYPED_STORAGE] = {"torch.storage", "UntypedStorage"},
};

/* Nodes are stored by value: if a call contains itself, its node exists twice, but the data that it
 * points to does not. */
static const void *identity_of(const dcp_state *node)
{
    if (node->kind == DCP_KIND_OPAQUE)
        return node->as.opaque;
    return node_is_dict(node) && node->as.children.making != NULL
               ? (const void *)node->as.children.making
               : node;
}

static struct encoder_slot *find_slot(const struct encoder *encoder, const void *identity)
{
    size_t mask = encoder->slot_capacity - 1;
    size_t i = (size_t)(((uintptr_t)identity >> 3) * UINT64_C(0x9e3779b97f4a7c15) >> 16) & mask;
    while (encoder->slots[i].identity != NULL && encoder->slots[i].identity != identity)
        i = (i + 1) & mask;
    return &encoder->slots[i];
}

struct encoder_slot *encoder_find_slot(const struct encoder *encoder, const dcp_state *node)
{
    return find_slot(encoder, identity_of(node));
}

static dcp_status grow_slots(struct encoder *encoder)
{
    struct encoder_slot *old = encoder->slots;
    size_t old_capacity = encoder->slot_capacity;
    size_t capacity = old_capacity == 0 ? SLOTS_FIRST : old_capacity * 2;
    struct encoder_slot *slots = memory_allocate_zeroed(capacity, sizeof *slots);
    if (slots == NULL)
        return error_no_memory(capacity * sizeof *slots, "the memo of an object");
    encoder->slots = slots;
    encoder->slot_capacity = capacity;
    for (size_t i = 0; i < old_capacity; i++)
        if (old[i].identity != NULL)
            *find_slot(encoder, old[i].identity) = old[i];
    memory_release(old);
    return DCP_OK;
}

static dcp_status take_slot(struct encoder *encoder, const void *identity,
                            struct encoder_slot **slot, bool *existing)
{
    if (encoder->slot_count >= encoder->slot_capacity / 4 * 3)
        RETURN_IF_ERROR(grow_slots(encoder));
    *slot = find_slot(encoder, identity);
    *existing = (*slot)->identity != NULL;
    if (!*existing) {
        (*slot)->identity = identity;
        encoder->slot_count++;
    }
    return DCP_OK;
}

dcp_status encoder_take_slot(struct encoder *encoder, const dcp_state *node,
                             struct encoder_slot **slot, bool *existing)
{
    return take_slot(encoder, identity_of(node), slot, existing);
}

dcp_status encoder_take_block(struct encoder *encoder, const struct state_block *block,
                              struct encoder_slot **slot, bool *existing)
{
    return take_slot(encoder, block, slot, existing);
}

uint32_t encoder_put_memo(struct encoder *encoder)
{
    pickle_put_memo(encoder->out, encoder->memo_count);
    return encoder->memo_count++;
}

static void put_global(struct encoder *encoder, size_t global, const char *module, const char *name)
{
    uint32_t *memo = &encoder->memo_of_global[global];
    if (*memo != 0) {
        pickle_get_memo(encoder->out, *memo - 1);
        return;
    }
    pickle_put_global(encoder->out, module, name);
    *memo = encoder_put_memo(encoder) + 1;
}

void encoder_put_global(struct encoder *encoder, enum encoder_global global)
{
    const char *module = globals[global].module;
    if (encoder->modern && strcmp(module, "__builtin__") == 0)
        module = "builtins";
    put_global(encoder, global, module, globals[global].name);
}

void encoder_put_dtype(struct encoder *encoder, dcp_dtype dtype)
{
    put_global(encoder, GLOBAL_DTYPES + (size_t)dtype, "torch", dcp_dtype_name(dtype));
}

void encoder_put_storage_class(struct encoder *encoder, dcp_dtype dtype)
{
    const char *class = storage_class_name(dtype);
    if (class != NULL)
        put_global(encoder, GLOBAL_STORAGES + (size_t)dtype, "torch", class);
    else
        encoder_put_global(encoder, GLOBAL_UNTYPED_STORAGE);
}
