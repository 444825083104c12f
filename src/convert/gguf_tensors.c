/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/gguf_tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "convert/transform.h"
#include "convert/transform_recipe.h"

enum { ALIGNMENT = 32, BLOCK = 32, DIMENSIONS_MAX = 4, NAME_MAX_LENGTH = 63 };

#define LAYER                  "model.layers.*."
#define RENAME(from, to, more) "{\"rename\": \"" LAYER from "\", \"to\": \"blk.*." to "\"" more "},"
#define HEADS(name, heads, more)                                                                   \
    "{\"permute_heads\": \"" LAYER "self_attn." name "\", \"heads\": \"" heads "\"" more "},"
#define OPTIONAL ", \"optional\": true"
#define ATTENTION(p, to)                                                                           \
    RENAME("self_attn." p ".weight", to ".weight", "")                                             \
    RENAME("self_attn." p ".bias", to ".bias", OPTIONAL)
#define MLP(p, to)                                                                                 \
    RENAME("mlp." p ".weight", to ".weight", OPTIONAL)                                             \
    RENAME("mlp." p ".bias", to ".bias", OPTIONAL)
#define STACK_GATE "ffn_gate_exps"
#define STACK_DOWN "ffn_down_exps"
#define STACK_UP   "ffn_up_exps"
#define EXPERTS(w, to)                                                                             \
    "{\"stack\": \"" LAYER "block_sparse_moe.experts.#." w ".weight\", \"to\": \"blk.*." to        \
    ".weight\", \"dim\": 0, \"optional\": true},"

/* clang-format off */
/* Source: llama.cpp's tables for the architecture "llama", which Mixtral shares. */
static const char rules[] =
    "{\"others\": \"refuse\", \"rules\": ["
    "{\"drop\": \"**.rotary_emb.inv_freq\", \"optional\": true},"
    "{\"rename\": \"model.embed_tokens.weight\", \"to\": \"token_embd.weight\"},"
    "{\"rename\": \"lm_head.weight\", \"to\": \"output.weight\", \"optional\": true},"
    HEADS("q_proj.weight", "num_attention_heads", "")
    HEADS("k_proj.weight", "num_key_value_heads", "")
    HEADS("q_proj.bias", "num_attention_heads", OPTIONAL)
    HEADS("k_proj.bias", "num_key_value_heads", OPTIONAL)
    ATTENTION("q_proj", "attn_q")
    ATTENTION("k_proj", "attn_k")
    ATTENTION("v_proj", "attn_v")
    ATTENTION("o_proj", "attn_output")
    RENAME("input_layernorm.weight", "attn_norm.weight", "")
    RENAME("post_attention_layernorm.weight", "ffn_norm.weight", "")
    MLP("gate_proj", "ffn_gate")
    MLP("up_proj", "ffn_up")
    MLP("down_proj", "ffn_down")
    RENAME("block_sparse_moe.gate.weight", "ffn_gate_inp.weight", OPTIONAL)
    EXPERTS("w1", STACK_GATE)
    EXPERTS("w2", STACK_DOWN)
    EXPERTS("w3", STACK_UP)
    "{\"rename\": \"model.norm.weight\", \"to\": \"output_norm.weight\"}]}";
/* clang-format on */

static bool ends_in(const char *name, const char *end)
{
    size_t length = strlen(name), suffix = strlen(end);
    return length >= suffix && strcmp(name + length - suffix, end) == 0;
}

/* Which of a layer's stacks a name is of, in the converter's order; -1: of none. */
static int stack_of(const char *name)
{
    static const char *const ends[] = {"." STACK_GATE ".weight", "." STACK_DOWN ".weight",
                                       "." STACK_UP ".weight"};
    for (int i = 0; i < (int)(sizeof ends / sizeof *ends); i++)
        if (ends_in(name, ends[i]))
            return i;
    return -1;
}

/* Whether two stacks are of the same layer: "blk.LAYER.". */
static bool same_layer(const char *one, const char *other)
{
    size_t length = (size_t)(strrchr(one, '.') - one); /* before "weight" */
    while (length > 0 && one[length - 1] != '.')
        length--;
    return strncmp(one, other, length) == 0;
}

/* The stacks of a layer stand together, where the last of its experts stood. */
static dcp_status gather_stacks(struct convert_source *source)
{
    size_t count = 0;
    struct convert_item *items = arena_allocate_array(&source->arena, source->count, sizeof *items);
    if (!items)
        return error_no_memory(source->count * sizeof *items, "tensors of a GGUF file");
    for (size_t i = 0; i < source->count; i++) {
        const char *name = source->items[i].name;
        bool last = true;
        for (size_t k = i + 1; k < source->count && stack_of(name) >= 0 && last; k++)
            last = stack_of(source->items[k].name) < 0 || !same_layer(name, source->items[k].name);
        if (stack_of(name) < 0)
            items[count++] = source->items[i];
        for (int stack = 0; stack < 3 && stack_of(name) >= 0 && last; stack++)
            for (size_t k = 0; k <= i; k++)
                if (stack_of(source->items[k].name) == stack &&
                    same_layer(name, source->items[k].name))
                    items[count++] = source->items[k];
    }
    source->items = items;
    return DCP_OK;
}

dcp_status gguf_tensors_name(struct convert_source *source, uint64_t heads,
                             uint64_t key_value_heads)
{
    struct transform transform;
    char config[128];
    int size =
        snprintf(config, sizeof config,
                 "{\"num_attention_heads\": %" PRIu64 ", \"num_key_value_heads\": %" PRIu64 "}",
                 heads, key_value_heads);
    RETURN_IF_ERROR(transform_read("GGUF's names", rules, sizeof rules - 1, config, (size_t)size,
                                   &source->arena, &transform));
    RETURN_IF_ERROR(transform_apply(&transform, source));
    return gather_stacks(source);
}

uint64_t gguf_align(uint64_t offset)
{
    return (offset + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static bool is_float(dcp_dtype dtype)
{
    return dtype == DCP_F64 || dtype == DCP_F32 || dtype == DCP_F16 || dtype == DCP_BF16;
}

/* That of the first matrix. */
static dcp_gguf_type guess_type(const struct convert_source *source)
{
    for (size_t i = 0; i < source->count; i++) {
        const struct convert_item *item = &source->items[i];
        if (item->ndim > 1)
            return item->dtype == DCP_BF16  ? DCP_GGUF_BF16
                   : item->dtype == DCP_F16 ? DCP_GGUF_F16
                                            : DCP_GGUF_F32;
    }
    return DCP_GGUF_F32;
}

/* Vectors, norms and routers stay precise. */
static enum gguf_tensor_type type_of(const struct convert_item *item, dcp_gguf_type type)
{
    if (item->ndim < 2 || ends_in(item->name, "_norm.weight") ||
        ends_in(item->name, "ffn_gate_inp.weight") || type == DCP_GGUF_F32)
        return GGUF_F32;
    if (type == DCP_GGUF_Q8_0)
        return item->shape[item->ndim - 1] % BLOCK == 0 ? GGUF_Q8_0 : GGUF_F16;
    return type == DCP_GGUF_BF16 ? GGUF_BF16 : GGUF_F16;
}

/* The item as the bytes of a type, by way of float32, as the gguf package does it. */
static dcp_status make_bytes(struct arena *arena, const struct convert_item *item,
                             struct gguf_tensor *tensor)
{
    uint64_t elements = item->bytes / dcp_dtype_size(item->dtype);
    dcp_dtype dtype = tensor->type == GGUF_F16    ? DCP_F16
                      : tensor->type == GGUF_BF16 ? DCP_BF16
                                                  : DCP_F32;
    struct convert_item wide = *item;
    if (elements > INT64_MAX / sizeof(float))
        return dcp_error_set(DCP_ERR_SHAPE, "%s: more than 2^63 bytes as float32", item->name);
    wide.bytes = elements * sizeof(float);
    if (item->dtype != DCP_F32)
        RETURN_IF_ERROR(transform_cast(arena, item, DCP_F32, &wide));
    tensor->item = wide;
    if (tensor->type == GGUF_Q8_0)
        return gguf_quantize(arena, &wide, &tensor->item);
    if (dtype == DCP_F32)
        return DCP_OK;
    tensor->item.bytes = elements * dcp_dtype_size(dtype);
    return transform_cast(arena, &wide, dtype, &tensor->item);
}

static dcp_status list_tensor(struct convert_source *source, size_t index, dcp_gguf_type type,
                              struct gguf_tensor *tensor)
{
    const struct convert_item *item = &source->items[index];
    if (!item->is_tensor || !is_float(item->dtype) || item->ndim < 1 ||
        item->ndim > DIMENSIONS_MAX || strlen(item->name) > NAME_MAX_LENGTH)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "%s: \"%s\" is no tensor of floats of 1 to %d dimensions, or its name "
                             "has more than %d bytes: dequantize the model, or exclude it",
                             source->path, item->name, (int)DIMENSIONS_MAX, (int)NAME_MAX_LENGTH);
    *tensor =
        (struct gguf_tensor){.type = type_of(item, type), .ndim = item->ndim, .shape = item->shape};
    return make_bytes(&source->arena, item, tensor);
}

dcp_status gguf_tensors_list(struct convert_source *source, dcp_gguf_type *type,
                             struct gguf_tensor **tensors)
{
    uint64_t offset = 0;
    *tensors = arena_allocate_array(&source->arena, source->count, sizeof **tensors);
    if (!*tensors)
        return error_no_memory(source->count * sizeof **tensors, "tensors of a GGUF file");
    if (*type == DCP_GGUF_AUTO)
        *type = guess_type(source);
    for (size_t i = 0; i < source->count; i++) {
        struct gguf_tensor *tensor = &(*tensors)[i];
        RETURN_IF_ERROR(list_tensor(source, i, *type, tensor));
        tensor->offset = offset;
        if (!checked_add_u64(offset, tensor->item.bytes, &offset) || offset > INT64_MAX / 2)
            return dcp_error_set(DCP_ERR_UNSUPPORTED, "%s: a file of more than 2^62 bytes",
                                 source->path);
        offset = gguf_align(offset);
    }
    return DCP_OK;
}
