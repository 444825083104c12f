/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "fixtures.h"
#include "scratch.h"

cJSON *fixture_json(const char *path)
{
    size_t size;
    unsigned char *bytes = scratch_read(FIXTURES, path, &size);
    cJSON *json = cJSON_ParseWithLength((const char *)bytes, size);
    free(bytes);
    if (!json)
        fail_msg("%s is no JSON", path);
    return json;
}

char *fixture_path(const char *directory, const char *name)
{
    char *relative = scratch_path(directory, name), *path = scratch_path(FIXTURES, relative);
    free(relative);
    return path;
}

const char *fixture_text(const cJSON *object, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
}
