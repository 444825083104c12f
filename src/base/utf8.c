/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/checked.h"

/* Number of continuation bytes after a first byte that is not ASCII, and the range of the first of
 * them, which rules out overlong forms, surrogates and values beyond U+10FFFF. -1: not a valid
 * first byte. */
static int sequence_rest(unsigned char first, unsigned char *low, unsigned char *high)
{
    *low = 0x80;
    *high = 0xbf;
    if (first >= 0xc2 && first <= 0xdf)
        return 1;
    if (first >= 0xe0 && first <= 0xef) {
        if (first == 0xe0)
            *low = 0xa0;
        else if (first == 0xed)
            *high = 0x9f;
        return 2;
    }
    if (first >= 0xf0 && first <= 0xf4) {
        if (first == 0xf0)
            *low = 0x90;
        else if (first == 0xf4)
            *high = 0x8f;
        return 3;
    }
    return -1;
}

bool utf8_is_valid(const char *text, size_t length)
{
    const unsigned char *bytes = (const unsigned char *)text;
    size_t i = 0;
    while (i < length) {
        unsigned char first = bytes[i++];
        if (first < 0x80)
            continue;
        unsigned char low, high;
        int rest = sequence_rest(first, &low, &high);
        if (rest < 0 || (size_t)rest > length - i || bytes[i] < low || bytes[i] > high)
            return false;
        for (int k = 1; k < rest; k++)
            if ((bytes[i + (size_t)k] & 0xc0) != 0x80)
                return false;
        i += (size_t)rest;
    }
    return true;
}
