/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/random.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/error.h"

dcp_status random_bytes(void *bytes, size_t size, const char *what)
{
    size_t filled = 0;
    while (filled < size) {
        ssize_t got = getrandom((unsigned char *)bytes + filled, size - filled, 0);
        char reason[128];
        if (got < 0 && errno != EINTR)
            return dcp_error_set(DCP_ERR_IO, "cannot get random bytes for %s: %s", what,
                                 strerror_r(errno, reason, sizeof reason));
        filled += got > 0 ? (size_t)got : 0;
    }
    return DCP_OK;
}
