/* SPDX-License-Identifier: BSD-3-Clause */
/* Loaded before a program: each of its syncs takes FLUSH_MICROSECONDS longer, as on a disk that
 * takes so long to empty its cache. Syncs of several threads take that at the same time. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SEEN __attribute__((visibility("default")))

typedef int (*sync_function)(int descriptor);

static sync_function find(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    sync_function function;
    memcpy(&function, &found, sizeof function);
    return function;
}

static void pass_time(void)
{
    const char *text = getenv("FLUSH_MICROSECONDS");
    long microseconds = text ? strtol(text, NULL, 10) : 0;
    struct timespec time = {microseconds / 1000000, microseconds % 1000000 * 1000};
    if (microseconds > 0)
        nanosleep(&time, NULL);
}

SEEN int fsync(int descriptor)
{
    pass_time();
    return find("fsync")(descriptor);
}

SEEN int fdatasync(int descriptor)
{
    pass_time();
    return find("fdatasync")(descriptor);
}
