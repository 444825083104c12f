/* SPDX-License-Identifier: BSD-3-Clause */
/* Nodes of single values: leaves, names, and containers that will be filled. */
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "format/objects/object_builder.h"
#include "format/objects/object_integer.h"

struct name_part {
    const char *bytes; /* not NUL-terminated */
    size_t length;
};

static bool name_part_is(struct name_part part, const char *expected)
{
    return part.length == strlen(expected) && memcmp(part.bytes, expected, part.length) == 0;
}

/* A value of Python that has no kind here: its name, and its bytes as the only child. */
static dcp_status build_foreign_text(struct builder *builder, const char *name,
                                     enum opaque_form form, const struct pickle_value *value,
                                     dcp_state **node)
{
    dcp_state *bytes =
        node_text(builder->pool, DCP_KIND_BYTES, value->as.text.bytes, value->as.text.length);
    *node = node_text(builder->pool, DCP_KIND_OPAQUE, name, strlen(name));
    RETURN_IF_ERROR(builder_made(bytes));
    RETURN_IF_ERROR(builder_made(*node));
    (*node)->as.opaque->form = form;
    return node_append(builder->pool, *node, NULL, bytes);
}

static dcp_status build_text(struct builder *builder, dcp_kind kind,
                             const struct pickle_value *value, dcp_state **node)
{
    /* Python lets lone surrogates through. */
    if (kind == DCP_KIND_STRING && !utf8_is_valid(value->as.text.bytes, value->as.text.length))
        return build_foreign_text(builder, "builtins.str", OPAQUE_STRING, value, node);
    *node = node_text(builder->pool, kind, value->as.text.bytes, value->as.text.length);
    return builder_made(*node);
}

static dcp_status build_long(struct builder *builder, const struct pickle_value *value,
                             dcp_state **node)
{
    char *digits;
    if (value->as.text.length > INTEGER_BYTES_MAX)
        return build_foreign_text(builder, "builtins.int", OPAQUE_INTEGER, value, node);
    RETURN_IF_ERROR(integer_to_digits(value->as.text.bytes, value->as.text.length, &digits));
    *node = node_digits(builder->pool, digits);
    memory_release(digits);
    return builder_made(*node);
}

static dcp_status build_scalar(struct builder *builder, const struct pickle_value *value,
                               dcp_state **node)
{
    if (value->kind == PICKLE_INT) {
        *node = node_int(builder->pool, value->as.integer);
        return builder_made(*node);
    }
    dcp_kind kind = value->kind == PICKLE_NONE   ? DCP_KIND_NONE
                    : value->kind == PICKLE_BOOL ? DCP_KIND_BOOL
                                                 : DCP_KIND_FLOAT;
    *node = node_new(builder->pool, kind);
    RETURN_IF_ERROR(builder_made(*node));
    if (kind == DCP_KIND_BOOL)
        (*node)->as.boolean = value->as.boolean;
    if (kind == DCP_KIND_FLOAT)
        (*node)->as.number = value->as.number;
    return DCP_OK;
}

/* What Python 3 calls what Python 2 called otherwise, for up to protocol 2 pickles say it so. */
static void rename_global(struct name_part *module, struct name_part *name)
{
    static const struct {
        const char *old_module, *old_name, *module, *name;
    } renamed[] = {
        {"__builtin__", "xrange", "builtins", "range"},
        {"__builtin__", "long", "builtins", "int"},
        {"__builtin__", "unicode", "builtins", "str"},
        {"__builtin__", NULL, "builtins", NULL},
        {"copy_reg", NULL, "copyreg", NULL},
        {"exceptions", NULL, "builtins", NULL},
    };
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++) {
        if (!name_part_is(*module, renamed[i].old_module) ||
            (renamed[i].old_name != NULL && !name_part_is(*name, renamed[i].old_name)))
            continue;
        *module = (struct name_part){renamed[i].module, strlen(renamed[i].module)};
        if (renamed[i].name != NULL)
            *name = (struct name_part){renamed[i].name, strlen(renamed[i].name)};
        return;
    }
}

/* "module.name" of Python 3, NUL-terminated; NULL: no memory. */
static char *global_text(const struct pickle_value *value, size_t *module_length, size_t *length)
{
    struct name_part module = {value->as.global.module, value->as.global.module_length};
    struct name_part name = {value->as.global.name, value->as.global.name_length};
    rename_global(&module, &name);
    *module_length = module.length;
    *length = module.length + 1 + name.length;
    char *text = memory_allocate(*length + 1);
    if (text == NULL)
        return NULL;
    memcpy(text, module.bytes, module.length);
    text[module.length] = '.';
    memcpy(text + module.length + 1, name.bytes, name.length);
    text[*length] = '\0';
    return text;
}

/* "torch.float32" is a dtype; everything else is a name. */
static dcp_status build_global(struct builder *builder, const struct pickle_value *value,
                               dcp_state **node)
{
    static const char prefix[] = "torch.";
    size_t module_length, length;
    char *text = global_text(value, &module_length, &length);
    if (text == NULL)
        return error_no_memory(length, "a name");
    dcp_status status = DCP_OK;
    dcp_dtype dtype = DCP_DTYPE_NONE;
    if (strncmp(text, prefix, sizeof prefix - 1) == 0)
        dtype = dcp_dtype_from_name(text + sizeof prefix - 1);
    if (memchr(text, '\0', length) != NULL || !utf8_is_valid(text, length)) {
        status = dcp_error_set(DCP_ERR_FORMAT, "an object of a class whose name is not text");
    } else {
        *node = dtype != DCP_DTYPE_NONE ? node_new(builder->pool, DCP_KIND_DTYPE)
                                        : node_text(builder->pool, DCP_KIND_OPAQUE, text, length);
        status = builder_made(*node);
    }
    if (status == DCP_OK && dtype != DCP_DTYPE_NONE) {
        (*node)->as.dtype = dtype;
    } else if (status == DCP_OK) {
        (*node)->as.opaque->module_length = module_length;
        (*node)->as.opaque->form = OPAQUE_NAME;
    }
    memory_release(text);
    return status;
}

/* A storage without a tensor: ('storage', class, key, location, elements) */
static dcp_status build_persistent(struct builder *builder, struct pickle_value *const *id,
                                   dcp_state **node)
{
    static const char name[] = "torch.storage.TypedStorage";
    *node = node_text(builder->pool, DCP_KIND_OPAQUE, name, sizeof name - 1);
    RETURN_IF_ERROR(builder_made(*node));
    struct pickle_sequence children = {.items = (struct pickle_value **)id, .count = 1};
    return builder_fill(builder, *node, children);
}

dcp_status builder_new(struct builder *builder, const struct pickle_value *value, dcp_state **node)
{
    switch ((enum pickle_kind)value->kind) {
    case PICKLE_NONE:
    case PICKLE_BOOL:
    case PICKLE_INT:
    case PICKLE_FLOAT:
        return build_scalar(builder, value, node);
    case PICKLE_LONG:
        return build_long(builder, value, node);
    case PICKLE_STRING:
        return build_text(builder, DCP_KIND_STRING, value, node);
    case PICKLE_BYTES:
        return build_text(builder, DCP_KIND_BYTES, value, node);
    case PICKLE_BYTEARRAY:
        return build_text(builder, DCP_KIND_BYTEARRAY, value, node);
    case PICKLE_TUPLE:
        return builder_container(builder, DCP_KIND_TUPLE, value->as.sequence, node);
    case PICKLE_LIST:
        return builder_container(builder, DCP_KIND_LIST, value->as.sequence, node);
    case PICKLE_DICT:
        return builder_container(builder, DCP_KIND_DICT, value->as.sequence, node);
    case PICKLE_SET:
        return builder_container(builder, DCP_KIND_SET, value->as.sequence, node);
    case PICKLE_FROZENSET:
        return builder_container(builder, DCP_KIND_FROZENSET, value->as.sequence, node);
    case PICKLE_GLOBAL:
        return build_global(builder, value, node);
    case PICKLE_CALL:
    case PICKLE_OBJECT:
        return builder_call(builder, value, node);
    case PICKLE_PERSISTENT:
        return build_persistent(builder, &value->as.id, node);
    case PICKLE_DIGEST:
        break;
    }
    return dcp_error_set(DCP_ERR_UNSUPPORTED, "an object of the metadata's own among others");
}
