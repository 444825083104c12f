/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/metadata/metadata_encoder.h"

#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

#define NO_MODULE SHARED_COUNT

struct shared_form {
    const char *text;
    enum metadata_shared module; /* of a global; NO_MODULE: just a text */
};

static const struct shared_form forms[SHARED_DTYPES] = {
    [MODULE_METADATA] = {"torch.distributed.checkpoint.metadata", NO_MODULE},
    [MODULE_FILESYSTEM] = {"torch.distributed.checkpoint.filesystem", NO_MODULE},
    [MODULE_TORCH] = {"torch", NO_MODULE},
    [MODULE_SERIALIZATION] = {"torch.serialization", NO_MODULE},
    [CLASS_TENSOR] = {"TensorStorageMetadata", MODULE_METADATA},
    [CLASS_BYTES] = {"BytesStorageMetadata", MODULE_METADATA},
    [CLASS_CHUNK] = {"ChunkStorageMetadata", MODULE_METADATA},
    [CLASS_INDEX] = {"MetadataIndex", MODULE_METADATA},
    [CLASS_PROPERTIES] = {"TensorProperties", MODULE_METADATA},
    [CLASS_MEMORY_FORMAT] = {"_MEM_FORMAT_ENCODING", MODULE_METADATA},
    [CLASS_STORAGE] = {"_StorageInfo", MODULE_FILESYSTEM},
    [CLASS_SIZE] = {"Size", MODULE_TORCH},
    [CLASS_LAYOUT] = {"_get_layout", MODULE_SERIALIZATION},
    [KEY_PROPERTIES] = {"properties", NO_MODULE},
    [KEY_SIZE] = {"size", NO_MODULE},
    [KEY_CHUNKS] = {"chunks", NO_MODULE},
    [KEY_OFFSETS] = {"offsets", NO_MODULE},
    [KEY_SIZES] = {"sizes", NO_MODULE},
    [KEY_FQN] = {"fqn", NO_MODULE},
    [KEY_INDEX] = {"index", NO_MODULE},
    [KEY_OFFSET] = {"offset", NO_MODULE},
    [KEY_PATH] = {"relative_path", NO_MODULE},
    [KEY_LENGTH] = {"length", NO_MODULE},
    [KEY_TRANSFORMS] = {"transform_descriptors", NO_MODULE},
    [TEXT_ZSTD] = {"stream.zstd/1", NO_MODULE},
    [TEXT_STRIDED] = {"torch.strided", NO_MODULE},
};

void metadata_encoder_init(struct metadata_encoder *encoder, struct buffer *out)
{
    *encoder = (struct metadata_encoder){.out = out};
    name_table_init(&encoder->names);
}

void metadata_encoder_free(struct metadata_encoder *encoder)
{
    memory_release(encoder->sizes);
    name_table_free(&encoder->names);
}

dcp_status encoder_share_sizes(struct metadata_encoder *encoder, size_t count)
{
    enum { SLOTS_LEAST = 256, SLOTS_MOST = 65536 };
    size_t slots = SLOTS_LEAST;
    while (slots < SLOTS_MOST && slots / 4 < count)
        slots *= 2;
    encoder->sizes = memory_allocate_zeroed(slots, sizeof *encoder->sizes);
    if (encoder->sizes == NULL)
        return error_no_memory(slots * sizeof *encoder->sizes, "the sizes of a pickle");
    encoder->size_slots = slots;
    return DCP_OK;
}

static uint32_t memoize(struct metadata_encoder *encoder)
{
    pickle_put_op(encoder->out, OP_MEMOIZE);
    return encoder->memo_count++;
}

void encoder_put_text(struct metadata_encoder *encoder, const char *text)
{
    pickle_put_short_string(encoder->out, text, strlen(text));
}

/* A call of a shared class or function with the one argument that was put. */
static void end_call(struct metadata_encoder *encoder)
{
    pickle_put_op(encoder->out, OP_TUPLE1);
    pickle_put_op(encoder->out, OP_REDUCE);
}

void encoder_put_shared(struct metadata_encoder *encoder, enum metadata_shared which)
{
    if (encoder->shared[which] != 0) {
        pickle_get_memo(encoder->out, encoder->shared[which] - 1);
        return;
    }
    if (which >= SHARED_DTYPES) {
        encoder_put_shared(encoder, MODULE_TORCH);
        encoder_put_text(encoder, dcp_dtype_name((dcp_dtype)(which - SHARED_DTYPES)));
        pickle_put_op(encoder->out, OP_STACK_GLOBAL);
    } else if (which == VALUE_STRIDED) {
        encoder_put_shared(encoder, CLASS_LAYOUT);
        encoder_put_shared(encoder, TEXT_STRIDED);
        end_call(encoder);
    } else if (which == VALUE_CONTIGUOUS) {
        encoder_put_shared(encoder, CLASS_MEMORY_FORMAT);
        pickle_put_int(encoder->out, 0);
        end_call(encoder);
    } else if (forms[which].module != NO_MODULE) {
        encoder_put_shared(encoder, forms[which].module);
        encoder_put_text(encoder, forms[which].text);
        pickle_put_op(encoder->out, OP_STACK_GLOBAL);
    } else {
        encoder_put_text(encoder, forms[which].text);
    }
    encoder->shared[which] = memoize(encoder) + 1;
}

dcp_status encoder_put_name(struct metadata_encoder *encoder, const char *text,
                            uint32_t *memo_number)
{
    size_t length = strlen(text);
    uint64_t number = encoder->memo_count;
    bool existing;
    if (!utf8_is_valid(text, length))
        return dcp_error_set(DCP_ERR_ARGUMENT, "\"%s\" is not valid UTF-8", text);
    RETURN_IF_ERROR(name_table_add(&encoder->names, text, length, &number, &existing));
    if (existing) {
        pickle_get_memo(encoder->out, (uint32_t)number);
    } else {
        pickle_put_short_string(encoder->out, text, length);
        memoize(encoder);
    }
    *memo_number = (uint32_t)number;
    return DCP_OK;
}

void encoder_batch_next(struct metadata_encoder *encoder, size_t position, uint8_t opcode)
{
    enum { BATCH = 1000 };
    if (position % BATCH != 0)
        return;
    if (position != 0)
        pickle_put_op(encoder->out, opcode);
    pickle_put_op(encoder->out, OP_MARK);
}

void encoder_batch_end(struct metadata_encoder *encoder, size_t count, uint8_t opcode)
{
    if (count != 0)
        pickle_put_op(encoder->out, opcode);
}

void encoder_put_object(struct metadata_encoder *encoder, enum metadata_shared class)
{
    encoder_put_shared(encoder, class);
    pickle_put_op(encoder->out, OP_EMPTY_TUPLE);
    pickle_put_op(encoder->out, OP_NEWOBJ);
}

void encoder_put_object_once(struct metadata_encoder *encoder, const char *class)
{
    encoder_put_shared(encoder, MODULE_METADATA);
    encoder_put_text(encoder, class);
    pickle_put_op(encoder->out, OP_STACK_GLOBAL);
    pickle_put_op(encoder->out, OP_EMPTY_TUPLE);
    pickle_put_op(encoder->out, OP_NEWOBJ);
}

void encoder_begin_fields(struct metadata_encoder *encoder)
{
    pickle_put_op(encoder->out, OP_EMPTY_DICT);
    pickle_put_op(encoder->out, OP_MARK);
}

void encoder_end_fields(struct metadata_encoder *encoder)
{
    pickle_put_op(encoder->out, OP_SETITEMS);
    pickle_put_op(encoder->out, OP_BUILD);
}

void encoder_begin_tuple(struct metadata_encoder *encoder, size_t count)
{
    if (count > 3)
        pickle_put_op(encoder->out, OP_MARK);
}

void encoder_end_tuple(struct metadata_encoder *encoder, size_t count)
{
    static const uint8_t opcodes[] = {OP_EMPTY_TUPLE, OP_TUPLE1, OP_TUPLE2, OP_TUPLE3};
    pickle_put_op(encoder->out, count <= 3 ? opcodes[count] : OP_TUPLE);
}

static void put_size(struct metadata_encoder *encoder, int32_t ndim, const int64_t *numbers)
{
    encoder_put_shared(encoder, CLASS_SIZE);
    encoder_begin_tuple(encoder, (size_t)ndim);
    for (int32_t i = 0; i < ndim; i++)
        pickle_put_int(encoder->out, numbers[i]);
    encoder_end_tuple(encoder, (size_t)ndim);
    end_call(encoder);
}

static struct shared_size *slot_of(const struct metadata_encoder *encoder, int32_t ndim,
                                   const int64_t *numbers)
{
    uint64_t hash = (uint64_t)ndim;
    for (int32_t i = 0; i < ndim; i++) {
        hash = (hash ^ (uint64_t)numbers[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return &encoder->sizes[hash & (encoder->size_slots - 1)];
}

void encoder_put_size(struct metadata_encoder *encoder, int32_t ndim, const int64_t *numbers)
{
    if (encoder->sizes == NULL) {
        put_size(encoder, ndim, numbers);
        return;
    }
    struct shared_size *slot = slot_of(encoder, ndim, numbers);
    if (slot->numbers != NULL && slot->ndim == ndim &&
        memcmp(slot->numbers, numbers, (size_t)ndim * sizeof *numbers) == 0) {
        pickle_get_memo(encoder->out, slot->memo_number);
        return;
    }
    put_size(encoder, ndim, numbers);
    *slot = (struct shared_size){numbers, ndim, memoize(encoder)};
}
