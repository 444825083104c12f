/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/hooks/hooks.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/sized.h"

typedef void (*any_hook)(void);

dcp_status hooks_take(void *ours, size_t our_size, const void *theirs, const char *what)
{
    size_t their_size = 0;
    memset(ours, 0, our_size);
    if (!theirs)
        return DCP_OK;
    memcpy(&their_size, theirs, sizeof their_size);
    if (their_size < sizeof(size_t) + sizeof(void *))
        return dcp_error_set(DCP_ERR_ARGUMENT, "size_of is %zu, expected sizeof(%s)", their_size,
                             what);
    return sized_read(ours, our_size, theirs, their_size, what);
}

uint64_t hooks_mask(const void *table, size_t first, size_t size)
{
    const unsigned char *bytes = table;
    uint64_t mask = 0;
    for (size_t n = 0; first + n * sizeof(any_hook) < size; n++) {
        any_hook hook;
        memcpy(&hook, bytes + first + n * sizeof hook, sizeof hook);
        if (hook)
            mask |= (uint64_t)1 << n;
    }
    return mask;
}

dcp_status hook_status(dcp_status returned, const char *hook)
{
    if (returned == DCP_OK)
        return DCP_OK;
    char what[64];
    snprintf(what, sizeof what, "hook %s", hook);
    if (error_checked(returned, what) != returned)
        return DCP_ERR_CALLBACK;
    if (dcp_error_message()[0] == '\0')
        return dcp_error_set(returned, "hook %s failed without an error message", hook);
    return error_prefix(returned, "hook %s", hook);
}
