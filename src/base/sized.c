/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/sized.h"

#include <string.h>

dcp_status sized_read(void *ours, size_t our_size, const void *theirs, size_t their_size,
                      const char *what)
{
    const unsigned char *bytes = theirs;
    memset(ours, 0, our_size);
    if (!bytes)
        return DCP_OK;
    for (size_t i = our_size; i < their_size; i++)
        if (bytes[i] != 0)
            return dcp_error_set(DCP_ERR_ARGUMENT,
                                 "%s has %zu bytes and sets a field at byte %zu, but this version "
                                 "of the library knows only %zu bytes",
                                 what, their_size, i, our_size);
    memcpy(ours, theirs, their_size < our_size ? their_size : our_size);
    return DCP_OK;
}

void sized_write(void *theirs, size_t their_size, const void *ours, size_t our_size)
{
    size_t common = their_size < our_size ? their_size : our_size;
    memcpy(theirs, ours, common);
    memset((unsigned char *)theirs + common, 0, their_size - common);
}
