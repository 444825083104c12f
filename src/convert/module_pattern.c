/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/module_pattern.h"

#include <regex.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"

/* What classes of characters are called there, and here. */
static const struct {
    char name;
    const char *ours;
} classes[] = {
    {'d', "[0-9]"},         {'D', "[^0-9]"},        {'w', "[A-Za-z0-9_]"},
    {'W', "[^A-Za-z0-9_]"}, {'s', "[ \t\n\r\f\v]"},
};

/* regcomp() copies what is repeated with a plus: a group in a group in a group is copied 2^3 times.
 */
enum { PATTERN_MAX = 1024, REPEATED_GROUPS_MAX = 4 };

static dcp_status refuse(const char *pattern)
{
    return dcp_error_set(DCP_ERR_UNSUPPORTED,
                         "config.json: quantization_config: the target \"re:%s\" has more than "
                         "simple expressions",
                         pattern);
}

/* Appends what a backslash and a character stand for; false: nothing that is known. */
static bool put_escape(struct buffer *out, char name)
{
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (classes[i].name == name) {
            buffer_append(out, classes[i].ours, strlen(classes[i].ours));
            return true;
        }
    if (!name || !strchr(".*+?()[]{}|^$\\/-_", name))
        return false;
    if (!strchr("/-_", name))
        buffer_append_u8(out, '\\');
    buffer_append_u8(out, (uint8_t)name);
    return true;
}

/* Python's expression as an extended one. Repetitions by number are refused: they can take any
 * amount of memory. */
static dcp_status translate(const char *pattern, struct buffer *out)
{
    int repeated = 0;
    buffer_append(out, "^(", 2);
    for (const char *at = pattern; *at; at++) {
        repeated += *at == '+' && at > pattern && at[-1] == ')';
        if (repeated > REPEATED_GROUPS_MAX)
            return refuse(pattern);
        if (*at == '\\') {
            if (!put_escape(out, *++at))
                return refuse(pattern);
        } else if (*at == '{' || (*at == '[' && strchr(at, '\\') != NULL)) {
            return refuse(pattern);
        } else if (strchr("*+?", *at) && (at[1] == '?' || at[1] == '+')) {
            if (at[1] == '+')
                return refuse(pattern);
            buffer_append_u8(out, (uint8_t)*at++); /* whether it is greedy decides nothing here */
        } else if (*at == '(' && at[1] == '?') {
            if (at[2] != ':')
                return refuse(pattern);
            buffer_append_u8(out, '(');
            at += 2;
        } else {
            buffer_append_u8(out, (uint8_t)*at);
        }
    }
    buffer_append(out, ")", 2); /* with the NUL */
    return buffer_status(out);
}

static dcp_status expression_matches(const char *pattern, const char *module, bool *matches)
{
    struct buffer text;
    regex_t expression;
    if (strlen(pattern) > PATTERN_MAX)
        return refuse("...");
    buffer_init(&text, 0);
    dcp_status status = translate(pattern, &text);
    if (status == DCP_OK &&
        regcomp(&expression, (const char *)text.data, REG_EXTENDED | REG_NOSUB) != 0)
        status = refuse(pattern);
    buffer_free(&text);
    if (status != DCP_OK)
        return status;
    *matches = regexec(&expression, module, 0, NULL, 0) == 0;
    regfree(&expression);
    return DCP_OK;
}

/* Weights of other modules than linear ones are those of embeddings. */
static enum module_match match_class(const char *name, const char *module)
{
    const char *last = strrchr(module, '.') ? strrchr(module, '.') + 1 : module;
    bool embeds = strstr(last, "embed") != NULL || strcmp(last, "wte") == 0;
    if (strcmp(name, "Linear") == 0)
        return embeds ? MODULE_NO_MATCH : MODULE_OF_CLASS;
    if (strcmp(name, "Embedding") == 0)
        return embeds ? MODULE_OF_CLASS : MODULE_NO_MATCH;
    return MODULE_OF_OTHER_CLASS;
}

dcp_status module_pattern_match(const char *target, const char *module, enum module_match *match)
{
    bool is_class = *target >= 'A' && *target <= 'Z' && !strchr(target, '.'), matches = false;
    *match = MODULE_NO_MATCH;
    if (strncmp(target, "re:", 3) == 0) {
        RETURN_IF_ERROR(expression_matches(target + 3, module, &matches));
        *match = matches ? MODULE_EXPRESSED : MODULE_NO_MATCH;
    } else if (strcmp(target, module) == 0) {
        *match = MODULE_NAMED;
    } else if (is_class) {
        *match = match_class(target, module);
    }
    return DCP_OK;
}
