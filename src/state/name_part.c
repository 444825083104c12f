/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/name_part.h"

#include <string.h>

bool name_take_number(const char **text, uint64_t maximum, uint64_t *number)
{
    const char *digit = *text;
    if (digit[0] == '0' && digit[1] >= '0' && digit[1] <= '9')
        return false;
    for (*number = 0; *digit >= '0' && *digit <= '9'; digit++) {
        *number = *number * 10 + (uint64_t)(*digit - '0');
        if (*number > maximum)
            return false;
    }
    bool any = digit != *text;
    *text = digit;
    return any;
}

bool name_take_text(const char **text, const char *expected)
{
    size_t length = strlen(expected);
    if (strncmp(*text, expected, length) != 0)
        return false;
    *text += length;
    return true;
}
