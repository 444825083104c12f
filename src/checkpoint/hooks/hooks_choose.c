/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/hooks/hooks_choose.h"

#include "base/error.h"

dcp_status hooks_choose(const struct hooks_choices *choices, const char *id, const void **table,
                        uint64_t *number)
{
    *table = choices->passed;
    *number = choices->passed ? HOOKS_PASSED : HOOKS_NONE;
    for (size_t i = 0; i < choices->count && !*table; i++) {
        bool takes = false;
        RETURN_IF_ERROR(choices->takes(choices->several[i], id, &takes));
        if (!takes)
            continue;
        *table = choices->several[i];
        *number = 2 + (uint64_t)i;
    }
    return DCP_OK;
}
