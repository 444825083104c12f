/* SPDX-License-Identifier: BSD-3-Clause */
/* .metadata pickles that differ from a plain one in a part: a float32 tensor "w" of 4 elements in
 * one chunk, and an object "step", stored in one file. */
#ifndef TESTS_FORMAT_METADATA_VARIANT_H
#define TESTS_FORMAT_METADATA_VARIANT_H

#include "base/buffer.h"

#define METADATA_MODULE "torch.distributed.checkpoint.metadata"

/* Scripts of pickle_assembler.h for the parts. */
#define NEW(module, class) "GLOBAL '" module "' '" class "' EMPTY_TUPLE NEWOBJ "
#define KEY(text)          "SHORT_BINUNICODE '" text "' "
#define FIELDS(...)        "EMPTY_DICT MARK " __VA_ARGS__ "SETITEMS BUILD "
#define DICT(...)          "EMPTY_DICT MARK " __VA_ARGS__ "SETITEMS "
#define LIST(...)          "EMPTY_LIST MARK " __VA_ARGS__ "APPENDS "
#define TUPLE(...)         "MARK " __VA_ARGS__ "TUPLE "
#define INT(number)        "BININT " #number " "
#define SIZE(...)          "GLOBAL 'torch' 'Size' " TUPLE(__VA_ARGS__) "TUPLE1 REDUCE "
#define CHUNK(offsets, sizes)                                                                      \
    NEW(METADATA_MODULE, "ChunkStorageMetadata")                                                   \
    FIELDS(KEY("offsets") offsets KEY("sizes") sizes)
#define PROPERTIES(...) NEW(METADATA_MODULE, "TensorProperties") TUPLE(__VA_ARGS__) "BUILD "
#define FLOAT32         "GLOBAL 'torch' 'float32' "
#define TENSOR(properties, size, chunks)                                                           \
    NEW(METADATA_MODULE, "TensorStorageMetadata")                                                  \
    FIELDS(KEY("properties") properties KEY("size") size KEY("chunks") chunks)
#define INDEX(...) NEW(METADATA_MODULE, "MetadataIndex") FIELDS(__VA_ARGS__)
#define STORAGE(...)                                                                               \
    NEW("torch.distributed.checkpoint.filesystem", "_StorageInfo") FIELDS(__VA_ARGS__)
#define PLACE(path, offset, length)                                                                \
    STORAGE(KEY("relative_path") KEY(path) KEY("offset") INT(offset) KEY("length") INT(length))

/* NULL fields are the plain part. */
struct metadata_variant {
    const char *root;       /* the root's class and the call that makes it */
    const char *properties; /* of w */
    const char *size;
    const char *chunks;
    const char *tensor; /* the whole of w; then the three above are not used */
    const char *object; /* the whole of step */
    const char *more_entries;
    const char *paths;     /* planner_data, with its key; "": none */
    const char *index;     /* of w's chunk */
    const char *storage;   /* of w's chunk */
    const char *more_data; /* of storage_data */
    const char *more_fields;
};

/* Initializes out. */
void metadata_variant_assemble(struct buffer *out, const struct metadata_variant *variant);

#endif
