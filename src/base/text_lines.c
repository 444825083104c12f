/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/text_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

bool text_lines_open(struct text_lines *lines, const char *path)
{
    lines->file = open(path, O_RDONLY | O_CLOEXEC);
    lines->taken = lines->length = 0;
    return lines->file >= 0;
}

/* Reads until the text holds the end of a line, or no more fits or comes. NULL: there is none. */
static char *find_end(struct text_lines *lines)
{
    char *end = memchr(lines->text + lines->taken, '\n', lines->length - lines->taken);
    ssize_t got = 1;
    if (end)
        return end;
    lines->length -= lines->taken;
    memmove(lines->text, lines->text + lines->taken, lines->length);
    lines->taken = 0;
    while (!end && lines->length < TEXT_LINES_ROOM && got != 0) {
        char *more = lines->text + lines->length;
        got = read(lines->file, more, TEXT_LINES_ROOM - lines->length);
        if (got < 0 && errno != EINTR)
            got = 0;
        if (got <= 0)
            continue;
        lines->length += (size_t)got;
        end = memchr(more, '\n', (size_t)got);
    }
    return end;
}

const char *text_lines_next(struct text_lines *lines)
{
    char *end = find_end(lines), *line = lines->text + lines->taken;
    if (!end && lines->taken == lines->length)
        return NULL;
    lines->taken = end ? (size_t)(end - lines->text) + 1 : lines->length;
    if (!end)
        end = lines->text + lines->length;
    *end = '\0';
    return line;
}

void text_lines_close(struct text_lines *lines)
{
    close(lines->file);
}
