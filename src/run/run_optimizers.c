/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/run_optimizers.h"

#include <stdio.h>
#include <string.h>

static bool is_dict(const dcp_state *node)
{
    dcp_kind kind = dcp_state_kind(node);
    return kind == DCP_KIND_DICT || kind == DCP_KIND_ORDERED_DICT;
}

static bool is_optimizer(const dcp_state *node)
{
    dcp_kind kind = dcp_state_kind(node);
    return is_dict(node) || kind == DCP_KIND_LIST || kind == DCP_KIND_TUPLE ||
           kind == DCP_KIND_STATEFUL;
}

/* "KEY.CHILD"; false: a child that is no optimizer, or whose name may mean something else in a
 * pattern. */
static bool name_child(const dcp_state *all, const char *key, size_t index,
                       char name[RUN_OPTIMIZER_NAME_MAX])
{
    const char *child = "";
    size_t length = 0;
    int written;
    if (!is_optimizer(dcp_state_at(all, index)))
        return false;
    if (!is_dict(all)) {
        written = snprintf(name, RUN_OPTIMIZER_NAME_MAX, "%s.%zu", key, index);
    } else {
        if (dcp_state_as_text(dcp_state_key_at(all, index), &child, &length) != DCP_OK ||
            strpbrk(child, "*?[]\\."))
            return false;
        written = snprintf(name, RUN_OPTIMIZER_NAME_MAX, "%s.%s", key, child);
    }
    return written > 0 && written < RUN_OPTIMIZER_NAME_MAX;
}

void run_optimizers_find(const dcp_state *state, const char *key, struct run_optimizers *optimizers)
{
    const dcp_state *all = dcp_state_find(state, key);
    size_t count = is_optimizer(all) ? dcp_state_count(all) : 0;
    optimizers->count = 0;
    /* One optimizer has these. */
    if (count > RUN_OPTIMIZERS_MAX ||
        (count > 0 && is_dict(all) &&
         (dcp_state_find(all, "state") || dcp_state_find(all, "param_groups"))))
        return;
    for (size_t i = 0; i < count; i++) {
        if (!name_child(all, key, i, optimizers->names[optimizers->count])) {
            optimizers->count = 0;
            return;
        }
        optimizers->count++;
    }
}

uint32_t run_optimizers_of(const struct run_optimizers *optimizers, const char *name)
{
    uint32_t bits = 0;
    for (size_t i = 0; i < optimizers->count; i++) {
        size_t length = strlen(optimizers->names[i]);
        if (strncmp(name, optimizers->names[i], length) == 0 &&
            (name[length] == '.' || !name[length]))
            bits |= UINT32_C(1) << i;
    }
    return bits;
}
