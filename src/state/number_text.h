/* SPDX-License-Identifier: BSD-3-Clause */
/* Doubles as the shortest text that gives the same double back. */
#ifndef STATE_NUMBER_TEXT_H
#define STATE_NUMBER_TEXT_H

#define NUMBER_TEXT_MAX 40

/* As Python's repr(): "1.0", "1e-05", "nan", "-inf"; independent of the locale. Returns text. */
const char *number_text(double value, char text[NUMBER_TEXT_MAX]);

#endif
