/* SPDX-License-Identifier: BSD-3-Clause */
/* Setters for the usual kinds of values. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

static void *field_of(const struct command_line *line, const struct option *option)
{
    return (char *)line->options + option->field;
}

bool option_flag(struct command_line *line, const struct option *option, const char *value)
{
    (void)value;
    *(bool *)field_of(line, option) = true;
    return true;
}

bool option_text(struct command_line *line, const struct option *option, const char *value)
{
    *(const char **)field_of(line, option) = value;
    return *value != '\0';
}

bool option_list(struct command_line *line, const struct option *option, const char *value)
{
    struct text_list *list = field_of(line, option);
    if (!list->items)
        list->items = option_keep(line, (size_t)line->argc * sizeof *list->items);
    if (!list->items)
        return false;
    list->items[list->count++] = value;
    return *value != '\0';
}

static bool read_integer(const char *text, const struct option *option, int64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoll(text, &end, 10);
    bool begins = (*text >= '0' && *text <= '9') || *text == '-';
    return begins && errno == 0 && end != text && *end == '\0' && *number >= option->least &&
           *number <= option->most;
}

bool option_int(struct command_line *line, const struct option *option, const char *value)
{
    int64_t number;
    if (!read_integer(value, option, &number) || number > INT32_MAX || number < INT32_MIN)
        return false;
    *(int32_t *)field_of(line, option) = (int32_t)number;
    return true;
}

bool option_int64(struct command_line *line, const struct option *option, const char *value)
{
    return read_integer(value, option, field_of(line, option));
}

bool option_bytes(struct command_line *line, const struct option *option, const char *value)
{
    static const char units[] = "KMGT";
    char *end;
    if (*value < '0' || *value > '9')
        return false;
    errno = 0;
    double number = strtod(value, &end), factor = 1;
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (unit) {
        double base = end[1] == 'B' ? 1000 : 1024;
        for (const char *step = units; step <= unit; step++)
            factor *= base;
        end += end[1] == 'B' ? 2 : 1;
    }
    if (errno != 0 || *end || !(number * factor >= 1) || number * factor >= 0x1p55)
        return false;
    *(uint64_t *)field_of(line, option) = (uint64_t)(number * factor);
    return true;
}

bool option_real(struct command_line *line, const struct option *option, const char *value)
{
    char *end;
    errno = 0;
    double number = strtod(value, &end);
    if (errno != 0 || end == value || *end || !(number >= 0) || isinf(number))
        return false;
    *(double *)field_of(line, option) = number;
    return true;
}

bool option_choice(struct command_line *line, const struct option *option, const char *value)
{
    for (const struct option_word *word = option->words; word->text; word++) {
        if (strcmp(word->text, value) != 0)
            continue;
        memcpy(field_of(line, option), &word->value, sizeof word->value);
        return true;
    }
    return false;
}

bool option_dtype(struct command_line *line, const struct option *option, const char *value)
{
    static const char *const shorts[][2] = {
        {"bf16", "bfloat16"}, {"fp16", "float16"}, {"fp32", "float32"}, {"fp64", "float64"}};
    dcp_dtype *dtype = field_of(line, option);
    for (size_t i = 0; i < sizeof shorts / sizeof *shorts; i++)
        if (strcmp(value, shorts[i][0]) == 0)
            value = shorts[i][1];
    *dtype = dcp_dtype_from_name(value);
    return *dtype != DCP_DTYPE_NONE;
}
