/* SPDX-License-Identifier: BSD-3-Clause */
/* A random checkpoint: tensors of every dtype in any memory layout, cut into chunks over ranks and
 * files, and a few objects; with writing it, and comparing what is read with what was written. */
#ifndef TESTS_STORAGE_SAMPLE_H
#define TESTS_STORAGE_SAMPLE_H

#include "layout.h"
#include "storage/shard/shard_reader.h"
#include "storage/shard/shard_writer.h"

#define SAMPLE_RANKS_MAX 4

struct sample_tensor {
    char name[32];
    dcp_dtype dtype;
    struct layout layout;
    unsigned char *dense; /* row-major */
    unsigned char *memory;
    size_t bytes;
};

struct sample_object {
    char name[32];
    struct buffer stream;
    char *json;
};

/* One chunk or object, on one rank. */
struct sample_item {
    int rank;
    uint32_t file;
    struct write_item item;
    struct state_chunk chunk;
    struct box_storage box;
    const struct sample_object *object;
    struct write_order order;
    struct write_result stored; /* without path; where writing has put it */
};

struct sample {
    int ranks;
    uint32_t files;
    uint32_t io; /* flags of dcp_io for writing; 0 after sample_make(), as what follows */
    bool zstd;
    uint32_t zstd_threads; /* 0: 1 */
    struct sample_tensor *tensors;
    size_t tensor_count;
    struct sample_object *objects;
    size_t object_count;
    struct sample_item *items;
    size_t item_count;
    dcp_path_part path; /* everything's: its content is of no consequence here */
};

struct sample_options {
    uint64_t seed;
    int ranks;
    uint32_t files; /* per rank */
    size_t tensors;
    size_t objects;
    bool large; /* one tensor of several megabytes among them */
};

void sample_make(struct sample *sample, const struct sample_options *options);
void sample_free(struct sample *sample);

/* All ranks' files of a session; *wrote: how many ranks succeeded. */
dcp_status sample_write(const struct sample *sample, const struct save_session *session);
/* The metadata of a session, to be freed. */
void sample_metadata(const struct sample *sample, const struct save_session *session,
                     struct metadata *metadata);
/* From begin to sweep, as a conductor does it, with its cleaning up after failures. */
dcp_status sample_save(const struct sample *sample, const dcp_storage *storage, const char *path,
                       dcp_overwrite overwrite, bool sync);

/* Reads everything whole and `boxes` random boxes of each tensor, and compares. The first failure
 * is returned; a difference fails the test. */
dcp_status sample_read(const struct sample *sample, const dcp_storage *storage, const char *path,
                       dcp_verification verification, int boxes);

#endif
