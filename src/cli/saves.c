/* SPDX-License-Identifier: BSD-3-Clause */
#include "saves.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The value behind "KEY": of a flat object as dcp_state_to_json() prints it; in a text that is a
 * value, a quote has a backslash, so that no key is found there. */
static const char *find_value(const char *line, const char *key)
{
    char quoted[64];
    int length = snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(line, quoted);
    if (!at)
        return NULL;
    at += length;
    return at + strspn(at, " ");
}

static bool take_number(const char *line, const char *key, double *number)
{
    const char *value = find_value(line, key);
    char *end;
    if (!value)
        return false;
    *number = strtod(value, &end);
    return end > value && isfinite(*number) && *number >= 0 && *number < 9e18;
}

/* What an escape stands for, and its length; those that dcp_state_to_json() does not write stay as
 * they are. */
static char unescape(const char *text, size_t *length)
{
    static const char digits[] = "0123456789abcdef";
    *length = 2;
    if (text[1] == '"' || text[1] == '\\')
        return text[1];
    const char *high =
        strncmp(text, "\\u00", 4) == 0 && text[4] ? strchr("01234567", text[4]) : NULL;
    const char *low = high && text[5] ? strchr(digits, text[5]) : NULL;
    char c = low ? (char)((text[4] - '0') * 16 + (low - digits)) : '\0';
    *length = c ? 6 : 1;
    return c ? c : *text;
}

/* As much of it as there is room for. */
static void take_text(const char *line, const char *key, char *text, size_t size)
{
    const char *value = find_value(line, key);
    size_t length = 0, used;
    text[0] = '\0';
    if (!value || *value++ != '"')
        return;
    for (; *value && *value != '"' && length + 1 < size; value += used) {
        used = 1;
        text[length++] = *value == '\\' ? unescape(value, &used) : *value;
    }
    text[length] = '\0';
}

static bool take_line(const char *line, struct save_line *save)
{
    double time, step, bytes;
    const char *saved = find_value(line, "saved");
    size_t length = strlen(line);
    *save = (struct save_line){0};
    if (length < 2 || line[0] != '{' || line[length - 1] != '}' || !saved ||
        !take_number(line, "unix_time", &time) || !take_number(line, "step", &step) ||
        !take_number(line, "bytes", &bytes) || !take_number(line, "seconds", &save->seconds) ||
        !take_number(line, "stall_seconds", &save->stall))
        return false;
    save->unix_time = (int64_t)time;
    save->step = (int64_t)step;
    save->bytes = (uint64_t)bytes;
    save->saved = strncmp(saved, "true", 4) == 0;
    take_text(line, "path", save->path, sizeof save->path);
    take_text(line, "run", save->run, sizeof save->run);
    return true;
}

/* False: no memory. */
static bool take_failure(const char *line, struct save_line *save)
{
    size_t size = find_value(line, "failure") ? strlen(line) + 1 : 1;
    save->failure = malloc(size);
    if (save->failure)
        take_text(line, "failure", save->failure, size);
    return save->failure != NULL;
}

/* A line of a copy to a mirror is no save's. */
static bool take_copy(const char *line, struct saves *saves)
{
    const char *mirrored = find_value(line, "mirrored");
    if (!mirrored)
        return false;
    saves->copies++;
    saves->failed_copies += strncmp(mirrored, "true", 4) != 0;
    return true;
}

static bool add(struct saves *saves, const char *line, struct save_line *save)
{
    if (saves->count == saves->capacity) {
        size_t capacity = saves->capacity ? 2 * saves->capacity : 64;
        struct save_line *grown = capacity > SIZE_MAX / sizeof *grown
                                      ? NULL
                                      : realloc(saves->lines, capacity * sizeof *grown);
        if (!grown)
            return false;
        saves->lines = grown;
        saves->capacity = capacity;
    }
    if (!take_failure(line, save))
        return false;
    saves->lines[saves->count++] = *save;
    return true;
}

static bool read_all(FILE *file, struct saves *saves)
{
    struct save_line save;
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    bool good = true;
    while (good && (length = getline(&line, &size, file)) > 0) {
        if (line[length - 1] == '\n')
            line[length - 1] = '\0';
        if (take_line(line, &save))
            good = add(saves, line, &save);
        else if (!take_copy(line, saves))
            saves->strange++;
    }
    good = good && !ferror(file);
    free(line);
    return good;
}

bool saves_read(const char *run, struct saves *saves)
{
    char path[4096];
    *saves = (struct saves){0};
    if (snprintf(path, sizeof path, "%s/dcp_saves.jsonl", run) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return false;
    }
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool good = read_all(file, saves);
    int code = errno;
    fclose(file);
    errno = code;
    return good;
}

void saves_free(struct saves *saves)
{
    for (size_t i = 0; i < saves->count; i++)
        free(saves->lines[i].failure);
    free(saves->lines);
    *saves = (struct saves){0};
}
