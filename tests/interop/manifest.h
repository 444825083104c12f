/* SPDX-License-Identifier: BSD-3-Clause */
/* What a checkpoint must contain: an expected.json, as tests/fixtures/README.md describes it. */
#ifndef INTEROP_MANIFEST_H
#define INTEROP_MANIFEST_H

#include <cjson/cJSON.h>

#include <dcp.h>

struct manifest_entry {
    const char *name;
    const cJSON *path;
    bool is_tensor;

    dcp_tensor whole; /* tensors: dtype, ndim, global_shape; `data` holds the expected bytes */
    size_t bytes;
    const cJSON *chunks; /* tensors; NULL if the manifest does not say */

    const cJSON *value;   /* objects: tagged form */
    const cJSON *storage; /* objects; NULL if the manifest does not say */
};

struct manifest {
    cJSON *document;
    char *directory;  /* that the manifest lies in */
    char *checkpoint; /* path */
    const char *kind;
    size_t count;
    struct manifest_entry *entries;
};

/* Exits with a message on stderr if the manifest is not as it should be. */
void manifest_read(struct manifest *manifest, const char *path);
void manifest_free(struct manifest *manifest);
bool manifest_needs(const struct manifest *manifest, const char *what);

/* Shape, dtype and contents of a tensor as a manifest describes it. `data` is owned by the caller.
 */
dcp_tensor manifest_tensor(const char *directory, const cJSON *description, size_t *bytes);

/* A whole small file, NUL-terminated; exits if it cannot be read. */
char *file_contents(const char *path, size_t *size);
/* "directory/name"; owned by the caller. */
char *path_of(const char *directory, const char *name);

#endif
