/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/path.h"

#include <stdbool.h>
#include <string.h>

#include "base/memory.h"

char *path_join(const char *directory, const char *name)
{
    size_t directory_length = strlen(directory);
    size_t name_length = strlen(name);
    bool slash = directory_length != 0 && directory[directory_length - 1] != '/';
    char *path = memory_allocate(directory_length + slash + name_length + 1);
    if (!path)
        return NULL;
    memcpy(path, directory, directory_length);
    if (slash)
        path[directory_length] = '/';
    memcpy(path + directory_length + slash, name, name_length + 1);
    return path;
}
