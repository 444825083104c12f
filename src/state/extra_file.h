/* SPDX-License-Identifier: BSD-3-Clause */
/* Extra files of the caller, which belong to a checkpoint and are replaced with it. Each has a
 * name. The name of its file in the directory also contains the rank and the generation of the
 * save, so that an interrupted save does not change the extra files of the previous checkpoint. */
#ifndef STATE_EXTRA_FILE_H
#define STATE_EXTRA_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a name, and of the name of the file that holds it, the NUL at the end among them. */
enum { EXTRA_NAME_MAX = 64, EXTRA_FILE_MAX = 112 };

/* Why a name cannot be that of an extra file; NULL: it can. */
const char *extra_name_fault(const char *name, size_t length);

/* "__0.g2.extra.config.yaml"; name has no fault. */
void extra_file_name(char file[EXTRA_FILE_MAX], int rank, uint32_t generation, const char *name);
/* Whether a file's name is such a one; *name points into it. */
bool extra_file_parse(const char *file, int *rank, uint32_t *generation, const char **name);

/* One of a checkpoint. Texts are borrowed. */
struct extra_file {
    const char *name;
    const char *file; /* relative to the checkpoint's directory */
    uint32_t member;  /* of a union */
    uint64_t size;
    uint64_t digest; /* XXH3 of its bytes */
};

#endif
