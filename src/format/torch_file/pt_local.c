/* SPDX-License-Identifier: BSD-3-Clause */
/* DTensors in pickles: a call that names the function, the class, and in its state the part of the
 * rank and how the whole is placed. */
#include "format/torch_file/pt_file.h"

/* A parameter of a DTensor, and parameters of these. */
enum { WRAPPERS_MAX = 4 };

static bool is_dtensor_class(const struct pickle_value *value)
{
    return pickle_is_global(value, "torch.distributed.tensor", "DTensor") ||
           pickle_is_global(value, "torch.distributed._tensor.api", "DTensor") ||
           pickle_is_global(value, "torch.distributed._tensor", "DTensor");
}

/* The arguments of a call to which nothing was added. */
static const struct pickle_sequence *arguments_of(const struct pickle_value *value,
                                                  const char *module, const char *name)
{
    return pickle_is_call(value, module, name) && value->kind == PICKLE_CALL &&
                   value->as.call->arguments->kind == PICKLE_TUPLE
               ? &value->as.call->arguments->as.sequence
               : NULL;
}

/* An attribute: the state is a dict of them, or a tuple of two such dicts. */
static const struct pickle_value *attribute(const struct pickle_value *state, const char *name)
{
    if (state->kind != PICKLE_TUPLE)
        return pickle_dict_get(state, name);
    for (uint32_t i = 0; i < state->as.sequence.count; i++) {
        const struct pickle_value *found = pickle_dict_get(state->as.sequence.items[i], name);
        if (found)
            return found;
    }
    return NULL;
}

const struct pickle_value *pt_local_part(const struct pickle_value *value,
                                         const struct pickle_value **placement)
{
    const struct pickle_sequence *arguments;
    const struct pickle_value *inner = value;
    *placement = NULL;
    for (int i = 0; i < WRAPPERS_MAX; i++) {
        arguments = arguments_of(inner, "torch._utils", "_rebuild_parameter");
        if (!arguments || arguments->count == 0)
            break;
        inner = arguments->items[0];
    }
    arguments = arguments_of(inner, "torch._tensor", "_rebuild_from_type_v2");
    if (!arguments || arguments->count != 4 || !is_dtensor_class(arguments->items[1]))
        return value;
    const struct pickle_value *local = attribute(arguments->items[3], "_local_tensor");
    if (!local)
        return value;
    *placement = attribute(arguments->items[3], "_spec");
    return local;
}
