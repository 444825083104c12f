/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/extra_file.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "state/name_part.h"

static bool begins_with(const char *name, size_t length, const char *text)
{
    return length >= strlen(text) && memcmp(name, text, strlen(text)) == 0;
}

static bool ends_in(const char *name, size_t length, const char *text)
{
    size_t end = strlen(text);
    return length >= end && memcmp(name + length - end, text, end) == 0;
}

static bool is(const char *name, size_t length, const char *text)
{
    return length == strlen(text) && memcmp(name, text, length) == 0;
}

static bool is_stage(const char *name, size_t length)
{
    size_t digits = 2;
    while (digits < length && name[digits] >= '0' && name[digits] <= '9')
        digits++;
    return begins_with(name, length, "pp") && digits > 2 && digits == length;
}

/* What directories of checkpoints are recognized by, and what becomes such a file. */
static bool is_reserved(const char *name, size_t length)
{
    static const char *const endings[] = {".distcp", ".safetensors", ".tmp"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (ends_in(name, length, endings[i]))
            return true;
    return name[0] == '.' || begins_with(name, length, "__") || is_stage(name, length) ||
           is(name, length, "metadata.json") || is(name, length, "model.safetensors.index.json");
}

const char *extra_name_fault(const char *name, size_t length)
{
    if (length == 0)
        return "it is empty";
    if (length >= EXTRA_NAME_MAX)
        return "it has more than 63 bytes";
    if (!utf8_is_valid(name, length))
        return "it is not UTF-8";
    for (size_t i = 0; i < length; i++)
        if (name[i] == '/' || name[i] == '\\' || (unsigned char)name[i] < ' ' || name[i] == 0x7f)
            return "it has a slash, a backslash or a control character";
    return is_reserved(name, length) ? "checkpoints use such names themselves" : NULL;
}

void extra_file_name(char file[EXTRA_FILE_MAX], int rank, uint32_t generation, const char *name)
{
    snprintf(file, EXTRA_FILE_MAX, "__%d.g%" PRIu32 ".extra.%s", rank, generation, name);
}

bool extra_file_parse(const char *file, int *rank, uint32_t *generation, const char **name)
{
    uint64_t numbers[2] = {0, 0};
    if (!name_take_text(&file, "__") || !name_take_number(&file, INT_MAX, &numbers[0]) ||
        !name_take_text(&file, ".g") || !name_take_number(&file, UINT32_MAX, &numbers[1]) ||
        !name_take_text(&file, ".extra.") || extra_name_fault(file, strlen(file)))
        return false;
    *rank = (int)numbers[0];
    *generation = (uint32_t)numbers[1];
    *name = file;
    return true;
}
