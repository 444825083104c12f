/* SPDX-License-Identifier: BSD-3-Clause */
/* Joining paths and ids. */
#ifndef BASE_PATH_H
#define BASE_PATH_H

/* "directory/name", owned by the caller; NULL: no memory. */
char *path_join(const char *directory, const char *name);

#endif
