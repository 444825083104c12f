/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "convert/transform.h"
#include "state/dtype.h"

/* Kinds and their inverses; a cast and what is dropped have none of their own. */
static const enum transform_kind inverses[] = {
    [TRANSFORM_RENAME] = TRANSFORM_RENAME,     [TRANSFORM_JOIN] = TRANSFORM_SPLIT,
    [TRANSFORM_SPLIT] = TRANSFORM_JOIN,        [TRANSFORM_STACK] = TRANSFORM_UNSTACK,
    [TRANSFORM_UNSTACK] = TRANSFORM_STACK,     [TRANSFORM_TRANSPOSE] = TRANSFORM_TRANSPOSE,
    [TRANSFORM_PERMUTE] = TRANSFORM_UNPERMUTE, [TRANSFORM_UNPERMUTE] = TRANSFORM_PERMUTE,
    [TRANSFORM_CAST] = TRANSFORM_CAST,         [TRANSFORM_PAD] = TRANSFORM_CUT,
    [TRANSFORM_CUT] = TRANSFORM_PAD,           [TRANSFORM_DROP] = TRANSFORM_DROP,
    [TRANSFORM_TIE] = TRANSFORM_UNTIE,         [TRANSFORM_UNTIE] = TRANSFORM_TIE,
};

/* Whether every value of a dtype is one of the other. */
static bool is_widening(dcp_dtype from, dcp_dtype to)
{
    return (from == DCP_BF16 || from == DCP_F16 || from == DCP_F32) &&
           (to == DCP_F64 || (to == DCP_F32 && from != DCP_F32));
}

static const char *obstacle(const struct transform_rule *rule)
{
    if (rule->kind == TRANSFORM_DROP)
        return "what it drops is gone";
    if (rule->kind == TRANSFORM_CAST && !is_widening(rule->stored, rule->dtype))
        return "a cast is turned around only if it widens, and \"from\" says what";
    if (rule->kind == TRANSFORM_PAD && rule->size == 0)
        return "\"size\" does not say where padding begins";
    if (rule->kind == TRANSFORM_CUT && rule->multiple == 0)
        return "\"multiple\" does not say what was cut";
    return NULL;
}

static dcp_status invert_rule(struct transform_rule *rule)
{
    const char *why = obstacle(rule);
    const char **from = rule->from;
    size_t count = rule->from_count;
    dcp_dtype stored = rule->stored;
    if (why)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "rule %zu of the transform (\"%s\") has no inverse: %s; \"only\" says "
                             "that it is for one way",
                             rule->number, rule->from[0], why);
    rule->kind = inverses[rule->kind];
    rule->stored = rule->dtype;
    rule->dtype = stored;
    if (rule->to_count == 0 || rule->kind == TRANSFORM_TIE || rule->kind == TRANSFORM_UNTIE)
        return DCP_OK;
    rule->from = rule->to;
    rule->from_count = rule->to_count;
    rule->to = from;
    rule->to_count = count;
    return DCP_OK;
}

dcp_status transform_invert(struct transform *transform, struct arena *arena)
{
    struct transform_rule *rules =
        arena_allocate_array(arena, transform->count, sizeof *transform->rules);
    if (!rules)
        return error_no_memory(transform->count * sizeof *rules, "an inverse");
    for (size_t i = 0; i < transform->count; i++) {
        rules[i] = transform->rules[transform->count - 1 - i];
        if (!rules[i].forward_only && !rules[i].inverse_only)
            RETURN_IF_ERROR(invert_rule(&rules[i]));
        bool forward = rules[i].forward_only;
        rules[i].forward_only = rules[i].inverse_only;
        rules[i].inverse_only = forward;
    }
    transform->rules = rules;
    return DCP_OK;
}
