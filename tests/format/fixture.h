/* SPDX-License-Identifier: BSD-3-Clause */
/* The reference checkpoints of tests/fixtures, as tests of the format see them: what must come out,
 * and the bytes of the stored pieces. Whatever cannot be read fails the test. */
#ifndef TESTS_FORMAT_FIXTURE_H
#define TESTS_FORMAT_FIXTURE_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

#include "dcp/tensor.h"

struct bytes {
    unsigned char *data;
    size_t size;
};

struct fixture {
    char *directory;
    cJSON *expected; /* expected.json */
};

/* One stored chunk of a tensor, or an object's piece. */
struct fixture_piece {
    const char *name;
    bool zstd;
    dcp_dtype dtype; /* DCP_DTYPE_NONE: an object */
    int32_t ndim;
    int64_t global_shape[DCP_MAX_DIMS];
    int64_t offsets[DCP_MAX_DIMS];
    int64_t sizes[DCP_MAX_DIMS];
    struct bytes stream; /* as stored */
    struct bytes whole;  /* tensors: the expected bytes of the whole tensor */
};

void fixture_open(struct fixture *fixture, const char *name);
void fixture_close(struct fixture *fixture);
/* Calls visit for each stored piece; returns how many there are. */
size_t fixture_each_piece(const struct fixture *fixture,
                          void (*visit)(const struct fixture_piece *piece, void *context),
                          void *context);
/* The file at a path below the directory of all fixtures. */
struct bytes fixture_file(const char *path);
void bytes_free(struct bytes *bytes);

#endif
