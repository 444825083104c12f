/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls by which Python rebuilds values that have a form here. Whatever differs from the form
 * that pickles have, and every other call, becomes an opaque node. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "format/objects/object_builder.h"

/* Makes the node, or leaves *node NULL if the call has another form. */
typedef dcp_status (*call_reader)(struct builder *builder, const struct pickle_call *call,
                                  dcp_state **node);

static const struct pickle_sequence *arguments_of(const struct pickle_call *call)
{
    return &call->arguments->as.sequence;
}

static struct pickle_value *argument(const struct pickle_call *call, uint32_t index)
{
    return index < arguments_of(call)->count ? arguments_of(call)->items[index] : NULL;
}

static bool argument_is(const struct pickle_call *call, uint32_t index, enum pickle_kind kind)
{
    const struct pickle_value *value = argument(call, index);
    return value != NULL && value->kind == kind;
}

/* Nothing was done to it afterwards. */
static bool is_untouched(const struct pickle_call *call)
{
    return call->state == NULL && call->items.count == 0 && call->pairs.count == 0;
}

/* Turns characters below 256 back to the bytes that they stand for, in place. */
static dcp_status decode_latin1(dcp_state *node)
{
    char *bytes = node->as.text.bytes;
    size_t length = node->as.text.length, used = 0;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c >= 0x80) {
            if (c > 0xc3 || i + 1 == length)
                return dcp_error_set(DCP_ERR_FORMAT,
                                     "bytes that are stored as text have a character above 255");
            c = (unsigned char)(c << 6 | ((unsigned char)bytes[++i] & 0x3f));
        }
        bytes[used++] = (char)c;
    }
    bytes[used] = '\0';
    node->as.text.length = used;
    return DCP_OK;
}

static dcp_status make_latin1(struct builder *builder, dcp_kind kind,
                              const struct pickle_value *text, dcp_state **node)
{
    RETURN_IF_ERROR(builder_charge(builder, text->as.text.length));
    *node = node_text(builder->pool, kind, text->as.text.bytes, text->as.text.length);
    RETURN_IF_ERROR(builder_made(*node));
    return decode_latin1(*node);
}

/* The text of (text, 'latin1'); NULL if it is something else. */
static const struct pickle_value *latin1_text(const struct pickle_call *call)
{
    const struct pickle_value *encoding = argument(call, 1);
    bool known = pickle_text_is(encoding, "latin1") || pickle_text_is(encoding, "latin-1");
    return known && arguments_of(call)->count == 2 && argument_is(call, 0, PICKLE_STRING) &&
                   is_untouched(call)
               ? argument(call, 0)
               : NULL;
}

/* _codecs.encode(text, 'latin1') */
static dcp_status read_encode(struct builder *builder, const struct pickle_call *call,
                              dcp_state **node)
{
    const struct pickle_value *text = latin1_text(call);
    return text != NULL ? make_latin1(builder, DCP_KIND_BYTES, text, node) : DCP_OK;
}

/* bytes() */
static dcp_status read_bytes(struct builder *builder, const struct pickle_call *call,
                             dcp_state **node)
{
    if (arguments_of(call)->count != 0 || !is_untouched(call))
        return DCP_OK;
    *node = node_text(builder->pool, DCP_KIND_BYTES, "", 0);
    return builder_made(*node);
}

/* bytearray(), bytearray(bytes), bytearray(text, 'latin-1') */
static dcp_status read_bytearray(struct builder *builder, const struct pickle_call *call,
                                 dcp_state **node)
{
    const struct pickle_value *first = argument(call, 0), *text = latin1_text(call);
    if (!is_untouched(call))
        return DCP_OK;
    if (first != NULL && text == NULL && arguments_of(call)->count == 1 &&
        pickle_is_call(first, "_codecs", "encode"))
        text = latin1_text(first->as.call);
    if (text != NULL)
        return make_latin1(builder, DCP_KIND_BYTEARRAY, text, node);
    bool is_empty = first == NULL;
    if (!is_empty && (arguments_of(call)->count != 1 || first->kind != PICKLE_BYTES))
        return DCP_OK;
    size_t length = is_empty ? 0 : first->as.text.length;
    RETURN_IF_ERROR(builder_charge(builder, length));
    *node =
        node_text(builder->pool, DCP_KIND_BYTEARRAY, is_empty ? "" : first->as.text.bytes, length);
    return builder_made(*node);
}

/* complex(real, imaginary) */
static dcp_status read_complex(struct builder *builder, const struct pickle_call *call,
                               dcp_state **node)
{
    if (arguments_of(call)->count != 2 || !argument_is(call, 0, PICKLE_FLOAT) ||
        !argument_is(call, 1, PICKLE_FLOAT) || !is_untouched(call))
        return DCP_OK;
    *node = node_new(builder->pool, DCP_KIND_COMPLEX);
    RETURN_IF_ERROR(builder_made(*node));
    (*node)->as.complex.real = argument(call, 0)->as.number;
    (*node)->as.complex.imaginary = argument(call, 1)->as.number;
    return DCP_OK;
}

/* set([...]), frozenset([...]) */
static dcp_status read_set_of(struct builder *builder, const struct pickle_call *call,
                              dcp_kind kind, dcp_state **node)
{
    struct pickle_sequence elements = {0};
    if (!is_untouched(call) || arguments_of(call)->count > 1)
        return DCP_OK;
    if (arguments_of(call)->count == 1) {
        if (!argument_is(call, 0, PICKLE_LIST) && !argument_is(call, 0, PICKLE_TUPLE))
            return DCP_OK;
        elements = argument(call, 0)->as.sequence;
    }
    return builder_container(builder, kind, elements, node);
}

static dcp_status read_set(struct builder *builder, const struct pickle_call *call,
                           dcp_state **node)
{
    return read_set_of(builder, call, DCP_KIND_SET, node);
}

static dcp_status read_frozenset(struct builder *builder, const struct pickle_call *call,
                                 dcp_state **node)
{
    return read_set_of(builder, call, DCP_KIND_FROZENSET, node);
}

/* OrderedDict(), then its pairs; attributes, as those of module state dicts, are kept aside. */
static dcp_status read_ordered_dict(struct builder *builder, const struct pickle_call *call,
                                    dcp_state **node)
{
    if (arguments_of(call)->count != 0 || call->items.count != 0)
        return DCP_OK;
    RETURN_IF_ERROR(builder_container(builder, DCP_KIND_ORDERED_DICT, call->pairs, node));
    return call->state != NULL ? builder_make_dict(builder, *node, call) : DCP_OK;
}

/* defaultdict(factory), then its pairs: a dict, as in PyTorch's flattening; the factory is kept
 * separately. */
static dcp_status read_defaultdict(struct builder *builder, const struct pickle_call *call,
                                   dcp_state **node)
{
    if (arguments_of(call)->count > 1 || call->items.count != 0 || call->state != NULL)
        return DCP_OK;
    RETURN_IF_ERROR(builder_container(builder, DCP_KIND_DICT, call->pairs, node));
    return builder_make_dict(builder, *node, call);
}

/* Counter({...}), which Counter() and its pairs are as well. */
static dcp_status read_counter(struct builder *builder, const struct pickle_call *call,
                               dcp_state **node)
{
    if (arguments_of(call)->count != 1 || !argument_is(call, 0, PICKLE_DICT) || !is_untouched(call))
        return DCP_OK;
    static struct pickle_value nothing = {.kind = PICKLE_TUPLE};
    const struct pickle_call empty = {.callable = call->callable, .arguments = &nothing};
    struct pickle_sequence pairs = argument(call, 0)->as.sequence;
    RETURN_IF_ERROR(builder_container(builder, DCP_KIND_DICT, pairs, node));
    return builder_make_dict(builder, *node, &empty);
}

/* torch.Size((4, 3)) */
static dcp_status read_size(struct builder *builder, const struct pickle_call *call,
                            dcp_state **node)
{
    if (arguments_of(call)->count != 1 || !argument_is(call, 0, PICKLE_TUPLE) ||
        !is_untouched(call))
        return DCP_OK;
    struct pickle_sequence sizes = argument(call, 0)->as.sequence;
    if (sizes.count > DCP_MAX_DIMS)
        return DCP_OK;
    for (uint32_t i = 0; i < sizes.count; i++)
        if (sizes.items[i]->kind != PICKLE_INT)
            return DCP_OK;
    return builder_container(builder, DCP_KIND_SIZE, sizes, node);
}

/* torch.device('cuda', 1), torch.device('cpu') */
static dcp_status read_device(struct builder *builder, const struct pickle_call *call,
                              dcp_state **node)
{
    char text[64];
    const struct pickle_value *type = argument(call, 0), *index = argument(call, 1);
    if (arguments_of(call)->count > 2 || !argument_is(call, 0, PICKLE_STRING) ||
        (index != NULL && index->kind != PICKLE_INT) || !is_untouched(call) ||
        type->as.text.length > 32 || !utf8_is_valid(type->as.text.bytes, type->as.text.length) ||
        memchr(type->as.text.bytes, '\0', type->as.text.length) != NULL)
        return DCP_OK;
    int length = (int)type->as.text.length;
    if (index != NULL)
        length = snprintf(text, sizeof text, "%.*s:%" PRId64, length, type->as.text.bytes,
                          index->as.integer);
    else
        memcpy(text, type->as.text.bytes, type->as.text.length);
    RETURN_IF_ERROR(builder_charge(builder, 1));
    *node = node_text(builder->pool, DCP_KIND_DEVICE, text, (size_t)length);
    return builder_made(*node);
}

static const struct {
    const char *module, *name;
    call_reader read;
} known_calls[] = {
    {"_codecs", "encode", read_encode},
    {"builtins", "bytes", read_bytes},
    {"builtins", "bytearray", read_bytearray},
    {"builtins", "complex", read_complex},
    {"builtins", "set", read_set},
    {"builtins", "frozenset", read_frozenset},
    {"collections", "OrderedDict", read_ordered_dict},
    {"collections", "defaultdict", read_defaultdict},
    {"collections", "Counter", read_counter},
    {"torch", "Size", read_size},
    {"torch", "device", read_device},
};

/* Up to protocol 2 pickles say "__builtin__", as Python 2 did. */
static bool is_callable(const struct pickle_value *callable, const char *module, const char *name)
{
    return pickle_is_global(callable, module, name) ||
           (strcmp(module, "builtins") == 0 && pickle_is_global(callable, "__builtin__", name));
}

/* The node of the callable has the name, and many calls may share it; the result of a call has no
 * name.
 */
dcp_status builder_name_opaque(struct builder *builder, const struct pickle_call *call,
                               bool is_object, dcp_state *node)
{
    static char nameless[] = "builtins.object";
    dcp_state *callable = NULL;
    struct state_opaque *opaque = node->as.opaque;
    if (call->callable->kind == PICKLE_GLOBAL)
        RETURN_IF_ERROR(builder_value(builder, call->callable, &callable));
    bool is_named = callable != NULL && callable->kind == DCP_KIND_OPAQUE;
    opaque->name = is_named ? callable->as.opaque->name : nameless;
    opaque->module_length = is_named ? callable->as.opaque->module_length : strlen("builtins");
    opaque->has_callable = call->callable->kind != PICKLE_GLOBAL;
    opaque->has_state = call->state != NULL;
    opaque->has_items = call->items.count > 0;
    opaque->has_pairs = call->pairs.count > 0;
    opaque->argument_count = arguments_of(call)->count;
    if (is_named || opaque->has_callable)
        opaque->form = is_object ? OPAQUE_OBJECT : OPAQUE_CALL;
    return DCP_OK;
}

static dcp_status build_opaque(struct builder *builder, const struct pickle_value *value,
                               dcp_state **node)
{
    *node = node_new(builder->pool, DCP_KIND_OPAQUE);
    RETURN_IF_ERROR(builder_made(*node));
    RETURN_IF_ERROR(
        builder_name_opaque(builder, value->as.call, value->kind == PICKLE_OBJECT, *node));
    return builder_fill_opaque(builder, *node, value->as.call);
}

/* A tensor that shares its arguments with others takes more room than its pickle. */
static dcp_status build_tensor(struct builder *builder, const struct pickle_value *value,
                               dcp_state **node)
{
    RETURN_IF_ERROR(object_tensor_read(&builder->tensors, value, builder->pool, node));
    return builder_charge(builder, 16 + 4 * (uint64_t)(*node)->as.tensor->ndim);
}

dcp_status builder_call(struct builder *builder, const struct pickle_value *value, dcp_state **node)
{
    const struct pickle_call *call = value->as.call;
    *node = NULL;
    if (tensor_pickle_is_tensor(value))
        return build_tensor(builder, value, node);
    for (size_t i = 0; i < sizeof known_calls / sizeof *known_calls; i++)
        if (is_callable(call->callable, known_calls[i].module, known_calls[i].name))
            RETURN_IF_ERROR(known_calls[i].read(builder, call, node));
    return *node != NULL ? DCP_OK : build_opaque(builder, value, node);
}
