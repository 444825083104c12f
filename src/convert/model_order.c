/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/model_order.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* The parts of the names of Llama and its like (Mistral, Qwen), each in the order of its module. */
static const char *const llama_parts[] = {
    "model",
    "lm_head",
    "embed_tokens",
    "layers",
    "norm",
    "self_attn",
    "mlp",
    "input_layernorm",
    "post_attention_layernorm",
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "q_norm",
    "k_norm",
    "gate_proj",
    "up_proj",
    "down_proj",
    "weight",
    "bias",
};
enum { LLAMA_PARTS = sizeof llama_parts / sizeof *llama_parts };

struct part {
    const char *text;
    size_t length;
};

/* Takes the next part of a name off; false: there is none. */
static bool next_part(const char **name, struct part *part)
{
    if (!*name)
        return false;
    const char *dot = strchr(*name, '.');
    part->text = *name;
    part->length = dot ? (size_t)(dot - *name) : strlen(*name);
    *name = dot ? dot + 1 : NULL;
    return true;
}

static bool part_is(struct part part, const char *text)
{
    return strlen(text) == part.length && memcmp(part.text, text, part.length) == 0;
}

static bool is_number(struct part part)
{
    for (size_t i = 0; i < part.length; i++)
        if (part.text[i] < '0' || part.text[i] > '9')
            return false;
    return part.length > 0;
}

/* Numbers of any length by value, before all that is none. */
static int compare_parts(struct part a, struct part b)
{
    bool number = is_number(a);
    if (number != is_number(b))
        return number ? -1 : 1;
    while (number && a.length > 1 && *a.text == '0')
        a.text++, a.length--;
    while (number && b.length > 1 && *b.text == '0')
        b.text++, b.length--;
    if (number && a.length != b.length)
        return a.length < b.length ? -1 : 1;
    int order = memcmp(a.text, b.text, a.length < b.length ? a.length : b.length);
    return order != 0 ? order : (a.length > b.length) - (a.length < b.length);
}

static int compare_names(const char *a, const char *b)
{
    struct part left, right;
    for (;;) {
        bool more = next_part(&a, &left), other = next_part(&b, &right);
        if (!more || !other)
            return (int)more - (int)other;
        int order = compare_parts(left, right);
        if (order != 0)
            return order;
    }
}

static int llama_rank(struct part part)
{
    for (int i = 0; i < LLAMA_PARTS; i++)
        if (part_is(part, llama_parts[i]))
            return i;
    return LLAMA_PARTS;
}

static bool is_llama(const char *name)
{
    struct part part;
    while (next_part(&name, &part))
        if (!is_number(part) && llama_rank(part) == LLAMA_PARTS)
            return false;
    return true;
}

static int compare_llama(const void *a, const void *b)
{
    const char *one = ((const struct convert_item *)a)->name;
    const char *other = ((const struct convert_item *)b)->name;
    struct part left, right;
    for (;;) {
        bool more = next_part(&one, &left), also = next_part(&other, &right);
        if (!more || !also)
            return (int)more - (int)also;
        int order = is_number(left) && is_number(right) ? compare_parts(left, right)
                                                        : llama_rank(left) - llama_rank(right);
        if (order != 0)
            return order;
    }
}

/* What a name of an expert's weight is made of: "PREFIX.experts.E.W.weight". */
struct expert {
    size_t prefix; /* bytes before "experts" */
    struct part number, weight;
};

static bool find_expert(const char *name, struct expert *expert)
{
    static const char word[] = "block_sparse_moe.experts.";
    const char *rest = strstr(name, word);
    struct part end;
    if (!rest)
        return false;
    expert->prefix = (size_t)(rest - name);
    rest += sizeof word - 1;
    return next_part(&rest, &expert->number) && is_number(expert->number) &&
           next_part(&rest, &expert->weight) && next_part(&rest, &end) && !rest &&
           part_is(end, "weight") &&
           (part_is(expert->weight, "w1") || part_is(expert->weight, "w2") ||
            part_is(expert->weight, "w3"));
}

/* A name as it is in memory, where Mixtral's experts are stacked, in room for it and some more. */
static void spell(const char *name, char *memory)
{
    static const char word[] = "block_sparse_moe.";
    const char *found = strstr(name, word);
    struct expert expert;
    if (!found) {
        strcpy(memory, name);
        return;
    }
    size_t before = (size_t)(found - name);
    memcpy(memory, name, before);
    strcpy(memory + before, "mlp.");
    if (find_expert(name, &expert))
        strcat(memory + before,
               part_is(expert.weight, "w2") ? "experts.down_proj" : "experts.gate_up_proj");
    else
        strcat(memory + before, found + sizeof word - 1);
}

/* An item and the name by which it is put in order. */
struct spelled {
    struct convert_item item;
    char *memory;
};

static int compare_spelled(const void *a, const void *b)
{
    const struct spelled *left = a, *right = b;
    struct expert one, other;
    int order = compare_names(left->memory, right->memory);
    if (order != 0)
        return order;
    if (!find_expert(left->item.name, &one) || !find_expert(right->item.name, &other))
        return compare_names(left->item.name, right->item.name);
    order = compare_parts(one.weight, other.weight);
    return order != 0 ? order : compare_parts(one.number, other.number);
}

/* By their names in memory. */
static dcp_status order_spelled(struct convert_source *source)
{
    struct spelled *spelled = arena_allocate_array(&source->arena, source->count, sizeof *spelled);
    if (!spelled)
        return error_no_memory(source->count * sizeof *spelled, "names in order");
    for (size_t i = 0; i < source->count; i++) {
        const struct convert_item *item = &source->items[i];
        size_t size = strlen(item->name) + sizeof "mlp.experts.gate_up_proj";
        spelled[i] = (struct spelled){*item, arena_allocate(&source->arena, size)};
        if (!spelled[i].memory)
            return error_no_memory(size, "a name");
        spell(item->name, spelled[i].memory);
    }
    qsort(spelled, source->count, sizeof *spelled, compare_spelled);
    for (size_t i = 0; i < source->count; i++)
        source->items[i] = spelled[i].item;
    return DCP_OK;
}

dcp_status model_order(struct convert_source *source, bool by_name)
{
    struct expert expert;
    bool experts = false, llama = true;
    for (size_t i = 0; i < source->count; i++) {
        experts |= find_expert(source->items[i].name, &expert);
        llama &= is_llama(source->items[i].name);
    }
    if (source->count < 2 || !(experts || llama || by_name))
        return DCP_OK;
    if (!experts && llama) {
        qsort(source->items, source->count, sizeof *source->items, compare_llama);
        return DCP_OK;
    }
    return order_spelled(source);
}

bool model_order_is_stacked(const struct convert_item *item, const struct convert_item *before)
{
    struct expert one, other;
    return find_expert(item->name, &one) && find_expert(before->name, &other) &&
           one.prefix == other.prefix && memcmp(item->name, before->name, one.prefix) == 0 &&
           compare_parts(one.weight, other.weight) == 0;
}
