/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/number_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_MAX 17

/* The significant digits of the shortest decimal that parses back, and the exponent of the first
 * one. Printing and parsing agree on the locale's decimal point, which is then left out. */
static int shortest_digits(double magnitude, char digits[DIGITS_MAX + 1])
{
    char printed[40];
    for (int precision = 0; precision < DIGITS_MAX; precision++) {
        snprintf(printed, sizeof printed, "%.*e", precision, magnitude);
        if (strtod(printed, NULL) == magnitude)
            break;
    }
    int count = 0;
    const char *at = printed;
    for (; *at != 'e'; at++)
        if (*at >= '0' && *at <= '9')
            digits[count++] = *at;
    digits[count] = '\0';
    return (int)strtol(at + 1, NULL, 10);
}

const char *number_text(double value, char text[NUMBER_TEXT_MAX])
{
    if (isnan(value))
        return strcpy(text, "nan");
    const char *sign = signbit(value) ? "-" : "";
    if (isinf(value)) {
        snprintf(text, NUMBER_TEXT_MAX, "%sinf", sign);
        return text;
    }
    char digits[DIGITS_MAX + 1];
    int exponent = shortest_digits(fabs(value), digits);
    int count = (int)strlen(digits);
    if (exponent < -4 || exponent >= 16)
        snprintf(text, NUMBER_TEXT_MAX, "%s%c%s%se%+03d", sign, digits[0], count > 1 ? "." : "",
                 digits + 1, exponent);
    else if (exponent < 0)
        snprintf(text, NUMBER_TEXT_MAX, "%s0.%.*s%s", sign, -exponent - 1, "000", digits);
    else if (count <= exponent + 1)
        snprintf(text, NUMBER_TEXT_MAX, "%s%s%.*s.0", sign, digits, exponent + 1 - count,
                 "000000000000000");
    else
        snprintf(text, NUMBER_TEXT_MAX, "%s%.*s.%s", sign, exponent + 1, digits,
                 digits + exponent + 1);
    return text;
}
