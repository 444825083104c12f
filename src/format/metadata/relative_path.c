/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/metadata/relative_path.h"

#include <stdbool.h>
#include <string.h>

#include "base/checked.h"

enum { LENGTH_MAX = 4095 };

static bool is_dots(const char *component, size_t length)
{
    return (length == 1 && component[0] == '.') ||
           (length == 2 && component[0] == '.' && component[1] == '.');
}

static const char *component_fault(const char *path, size_t length)
{
    const char *end = path + length;
    for (const char *component = path;; component++) {
        const char *slash = memchr(component, '/', (size_t)(end - component));
        size_t size = (size_t)((slash != NULL ? slash : end) - component);
        if (size == 0)
            return "it has an empty component";
        if (is_dots(component, size))
            return "it has a component '.' or '..'";
        if (slash == NULL)
            return NULL;
        component = slash;
    }
}

static const char *fault(const char *path, size_t length)
{
    if (length == 0)
        return "it is empty";
    if (length > LENGTH_MAX)
        return "it is too long";
    if (memchr(path, '\0', length) != NULL)
        return "it contains NUL";
    if (!utf8_is_valid(path, length))
        return "it is not UTF-8";
    if (path[0] == '/')
        return "it is absolute";
    if (memchr(path, '\\', length) != NULL)
        return "it contains a backslash";
    if (length >= 2 && path[1] == ':')
        return "it begins with a drive letter";
    return component_fault(path, length);
}

dcp_status relative_path_check(const char *path, size_t length)
{
    const char *reason = fault(path, length);
    if (reason == NULL)
        return DCP_OK;
    return dcp_error_set(DCP_ERR_FORMAT, "file name \"%.*s\" is refused: %s",
                         length < 200 ? (int)length : 200, path, reason);
}
