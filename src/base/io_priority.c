/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/io_priority.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"

/* As in linux/ioprio.h, which older systems do not have. */
enum { CLASS_SHIFT = 13, CLASS_REAL_TIME = 1, CLASS_BEST_EFFORT = 2, CLASS_IDLE = 3 };
enum { LOWEST_LEVEL = 7 };
enum { WHO_THREAD = 1 };
enum { UNTOUCHED = -1 };

uint16_t io_priority_number(dcp_io_priority priority)
{
    switch (priority) {
    case DCP_IO_PRIORITY_LOW:
        return CLASS_BEST_EFFORT << CLASS_SHIFT | LOWEST_LEVEL;
    case DCP_IO_PRIORITY_IDLE:
        return CLASS_IDLE << CLASS_SHIFT;
    case DCP_IO_PRIORITY_KEPT:
        break;
    }
    return 0;
}

static bool set(int number)
{
    return syscall(SYS_ioprio_set, WHO_THREAD, 0, number) == 0;
}

int io_priority_enter(dcp_io_priority priority)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    char reason[128];
    if (priority == DCP_IO_PRIORITY_KEPT)
        return UNTOUCHED;
    long before = syscall(SYS_ioprio_get, WHO_THREAD, 0);
    /* Only privileged processes may return to the real-time class. */
    if (before >= 0 && before >> CLASS_SHIFT == CLASS_REAL_TIME)
        errno = EPERM;
    else if (before >= 0 && set(io_priority_number(priority)))
        return (int)before;
    if (!atomic_flag_test_and_set(&said))
        log_line(DCP_LOG_INFO, "cannot change the I/O priority, continuing with the old one: %s",
                 strerror_r(errno, reason, sizeof reason));
    return UNTOUCHED;
}

void io_priority_leave(int before)
{
    if (before != UNTOUCHED)
        set(before);
}
