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

/* Escapes stay as they are, but for quotes and backslashes. */
static void take_text(const char *line, const char *key, char *text, size_t size)
{
    const char *value = find_value(line, key);
    size_t length = 0;
    text[0] = '\0';
    if (!value || *value++ != '"')
        return;
    for (; *value && *value != '"' && length + 1 < size; value++) {
        if (*value == '\\' && (value[1] == '"' || value[1] == '\\'))
            value++;
        text[length++] = *value;
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
    take_text(line, "failure", save->failure, sizeof save->failure);
    take_text(line, "run", save->run, sizeof save->run);
    return true;
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

static bool add(struct saves *saves, const struct save_line *line)
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
    saves->lines[saves->count++] = *line;
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
            good = add(saves, &save);
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
    free(saves->lines);
    *saves = (struct saves){0};
}
