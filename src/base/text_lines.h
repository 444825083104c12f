/* SPDX-License-Identifier: BSD-3-Clause */
/* The lines of a text that the system writes about a process, one after the other. Takes no
 * memory. */
#ifndef BASE_TEXT_LINES_H
#define BASE_TEXT_LINES_H

#include <stdbool.h>
#include <stddef.h>

enum { TEXT_LINES_ROOM = 4096 };

struct text_lines {
    int file;
    size_t taken, length; /* of the text: up to where lines have been given, and that is there */
    char text[TEXT_LINES_ROOM + 1];
};

/* false: the file cannot be opened; then there is nothing to close. */
bool text_lines_open(struct text_lines *lines, const char *path);
/* The next line, without its end, to be used until the next call; NULL: there is none. What is
 * longer than the room is cut into lines. */
const char *text_lines_next(struct text_lines *lines);
void text_lines_close(struct text_lines *lines);

#endif
