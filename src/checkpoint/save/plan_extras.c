/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save/plan_extras.h"

#include <string.h>

#include "base/memory.h"
#include "dcp/state.h"

bool plan_extras_match(const struct plan_extras *a, const struct plan_extras *b)
{
    return a->kind.storage == b->kind.storage && a->kind.present == b->kind.present &&
           a->offered.size == b->offered.size &&
           (a->offered.size == 0 || memcmp(a->offered.data, b->offered.data, a->offered.size) == 0);
}

void plan_extras_free(struct plan_extras *extras)
{
    buffer_free(&extras->offered);
    buffer_free(&extras->dealt);
    dcp_state_free(extras->planner_root);
    memory_release(extras->results);
    save_plan_places_free(&extras->places);
    *extras = (struct plan_extras){0};
}
