/* SPDX-License-Identifier: BSD-3-Clause */
/* What tells this machine, and the namespaces of this process, from others. */
#ifndef BASE_MACHINE_H
#define BASE_MACHINE_H

/* Room for each of these texts. */
enum { MACHINE_TEXT = 72 };

/* The machine's since it was started last; "" if it is not known. What follows the end of the text
 * is zero, here and below. */
void machine_boot(char text[MACHINE_TEXT]);
/* A namespace of this process ("pid", "net"), as Linux names it: "pid:[4026531836]". */
void machine_namespace(const char *kind, char text[MACHINE_TEXT]);

#endif
