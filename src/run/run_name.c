/* SPDX-License-Identifier: BSD-3-Clause */
/* Matching names. Patterns are the library's own; names are anybody's, of at most 255 bytes. */
#include "run/run_name.h"

#include <string.h>

enum { PATTERN_MAX = 128 };

/* Of one way to match: a group that is passed over leaves the pattern behind it. */
static bool match_at(const char *pattern, const char *name, struct run_numbers *numbers);

static bool is_number(char c)
{
    return c == '#' || c == '@' || c == '~' || c == '!' || c == '%';
}

static void take_number(char meaning, int64_t value, const char *digits, int count,
                        struct run_numbers *numbers)
{
    if (meaning == '#') {
        numbers->has_step = true;
        numbers->step = value;
        numbers->digits = digits;
        numbers->digit_count = count;
    } else if (meaning == '@') {
        numbers->epoch = value;
    } else if (meaning == '~') {
        numbers->version = value;
    } else if (meaning == '!') {
        numbers->evaluated = true;
    }
}

static bool match_number(const char *pattern, const char *name, struct run_numbers *numbers)
{
    int64_t value = 0;
    int count = 0, least = 0;
    char meaning = *pattern;
    while (*pattern == meaning) {
        pattern++;
        least++;
    }
    for (; name[count] >= '0' && name[count] <= '9'; count++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, name[count] - '0', &value))
            return false;
    if (count < least)
        return false;
    take_number(meaning, value, name, count, numbers);
    return match_at(pattern, name + count, numbers);
}

static size_t skip_digits(const char *text)
{
    return strspn(text, "0123456789");
}

/* Length of a decimal number; 0: there is none. */
static size_t decimal_length(const char *text)
{
    size_t sign = *text == '-' || *text == '+', whole = skip_digits(text + sign);
    size_t length = sign + whole, fraction = 0;
    if (text[length] == '.')
        fraction = skip_digits(text + length + 1);
    if (whole + fraction == 0)
        return 0;
    length += text[length] == '.' ? fraction + 1 : 0;
    if (text[length] != 'e' && text[length] != 'E')
        return length;
    size_t exponent = length + 1 + (text[length + 1] == '-' || text[length + 1] == '+');
    return skip_digits(text + exponent) > 0 ? exponent + skip_digits(text + exponent) : length;
}

static bool match_decimal(const char *pattern, const char *name, struct run_numbers *numbers)
{
    size_t length = decimal_length(name);
    return length > 0 && match_at(pattern, name + length, numbers);
}

static bool match_anything(const char *pattern, const char *name, struct run_numbers *numbers)
{
    const struct run_numbers before = *numbers;
    for (;; name++) {
        *numbers = before;
        if (match_at(pattern, name, numbers))
            return true;
        if (!*name)
            return false;
    }
}

/* With what is in the group, and without it. */
static bool match_group(const char *pattern, const char *name, struct run_numbers *numbers)
{
    const struct run_numbers before = *numbers;
    char with[PATTERN_MAX];
    const char *end = strchr(pattern, ']');
    size_t inside = (size_t)(end - pattern - 1), rest = strlen(end + 1);
    memcpy(with, pattern + 1, inside);
    memcpy(with + inside, end + 1, rest + 1);
    if (match_at(with, name, numbers))
        return true;
    *numbers = before;
    return match_at(end + 1, name, numbers);
}

static bool match_at(const char *pattern, const char *name, struct run_numbers *numbers)
{
    for (; *pattern; pattern++, name++) {
        if (is_number(*pattern))
            return match_number(pattern, name, numbers);
        if (*pattern == '^')
            return match_decimal(pattern + 1, name, numbers);
        if (*pattern == '*')
            return match_anything(pattern + 1, name, numbers);
        if (*pattern == '[')
            return match_group(pattern, name, numbers);
        if (*pattern != *name)
            return false;
    }
    return !*name;
}

bool run_name_match(const char *pattern, const char *name, struct run_numbers *numbers)
{
    *numbers = (struct run_numbers){0};
    return match_at(pattern, name, numbers);
}

bool run_name_match_any(const char *patterns, const char *name)
{
    while (*patterns) {
        char pattern[PATTERN_MAX];
        struct run_numbers numbers;
        size_t length = strcspn(patterns, " ");
        memcpy(pattern, patterns, length);
        pattern[length] = '\0';
        if (run_name_match(pattern, name, &numbers))
            return true;
        patterns += length + (patterns[length] == ' ');
    }
    return false;
}
