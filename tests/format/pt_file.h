/* SPDX-License-Identifier: BSD-3-Clause */
/* A file of torch.save with tensors that are views of a few storages, each of which has one
 * checksum. */
#ifndef TESTS_FORMAT_PT_FILE_H
#define TESTS_FORMAT_PT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dcp.h"

enum { PT_FILE_DIMS = 3, PT_FILE_STORAGES = 4 };

struct pt_view {
    const char *name;
    uint32_t storage;
    uint32_t offset; /* in elements, as strides are */
    uint32_t ndim;
    uint32_t sizes[PT_FILE_DIMS];
    uint32_t strides[PT_FILE_DIMS];
};

struct pt_storage {
    dcp_dtype dtype; /* DCP_U8, DCP_BF16, DCP_F32, DCP_I64 or DCP_C64 */
    uint32_t elements;
    void *bytes;
};

struct pt_file {
    const struct pt_view *views;
    size_t count;
    size_t storages;                   /* at most PT_FILE_STORAGES without `contents` */
    uint32_t elements;                 /* of each storage, of float32: pt_file_element() */
    bool big_endian;                   /* says that elements are */
    bool deflated;                     /* storages are compressed, and their checksums are wrong */
    const struct pt_storage *contents; /* of each storage; NULL: as above */
};

/* Writes it as DIRECTORY/NAME. places: of the storages' data; NULL: not wanted. */
void pt_file_write(const struct pt_file *file, const char *directory, const char *name,
                   uint64_t *places);
/* Writes a checkpoint of PyTorch, DIRECTORY/NAME, of the first tensor alone, in a stream. Returns
 * the place of its data in __0_0.distcp. */
uint64_t pt_file_write_stream(const struct pt_file *file, const char *directory, const char *name);
/* The bits of an element of a storage. */
uint32_t pt_file_element(uint32_t storage, uint32_t index);

#endif
