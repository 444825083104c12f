/* SPDX-License-Identifier: BSD-3-Clause */
/* Metadata that is none: each fault is told by its name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "fixture.h"
#include "format/metadata/metadata_codec.h"
#include "metadata_variant.h"
#include "pickle_assembler.h"

struct refusal {
    struct metadata_variant variant;
    const char *message; /* a part of it */
};

#define BIG "LONG1 '\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01' "

static const struct refusal refusals[] = {
    {{.tensor = "NONE "}, "\"w\": expected TensorStorageMetadata or BytesStorageMetadata"},
    {{.tensor = NEW("other", "TensorStorageMetadata")}, "\"w\": expected TensorStorageMetadata"},
    {{.tensor = NEW(METADATA_MODULE, "TensorStorageMetadata")}, "properties: nothing"},
    {{.tensor = NEW(METADATA_MODULE, "TensorStorageMetadata") "NONE BUILD "},
     "properties: nothing, expected TensorProperties"},
    {{.object = NEW("os", "system")}, "\"step\": expected TensorStorageMetadata"},
    {{.properties = "NONE "}, "\"w\": properties: None, expected TensorProperties"},
    {{.properties = PROPERTIES(FLOAT32 "NONE NEWTRUE NONE ")},
     "expected a tuple of at least 5 values"},
    {{.properties = PROPERTIES(KEY("float32") "NONE NEWTRUE NONE NEWFALSE ")},
     "properties: a string, expected a dtype"},
    {{.properties = PROPERTIES("GLOBAL 'os' 'float32' NONE NEWTRUE NONE NEWFALSE ")},
     "\"os.float32\" is not a known dtype"},
    {{.properties = PROPERTIES("GLOBAL 'torch' 'load' NONE NEWTRUE NONE NEWFALSE ")},
     "\"torch.load\" is not a known dtype"},
    {{.size = "NONE "}, "\"w\": size: None, expected a torch.Size"},
    {{.size = "GLOBAL 'torch' 'Size' EMPTY_TUPLE REDUCE "}, "size: a call, expected a torch.Size"},
    {{.size = SIZE("NEWTRUE ")}, "size: dimension 0 is a bool"},
    {{.size = SIZE("BINFLOAT 4 ")}, "size: dimension 0 is a float"},
    {{.size = SIZE(BIG)}, "size: dimension 0 is an int, expected an int of 64 bits"},
    {{.size = SIZE(INT(-4))}, "size: dimension 0 is -4"},
    {{.size = SIZE("LONG1 '\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x7f' ")}, "of float32 overflow"},
    {{.chunks = "NONE "}, "\"w\": chunks: None, expected a list"},
    {{.chunks = LIST("NONE ")}, "\"w\": chunk 0: None, expected a ChunkStorageMetadata"},
    {{.chunks = LIST(NEW(METADATA_MODULE, "ChunkStorageMetadata"))},
     "chunk 0: a ChunkStorageMetadata has no fields"},
    {{.chunks = LIST(CHUNK("NONE ", SIZE(INT(4))))}, "chunk 0: offsets: None"},
    {{.chunks = LIST(CHUNK(SIZE(INT(0)), SIZE(INT(4) INT(1))))}, "1 offsets, but 2 sizes"},
    {{.chunks = LIST(CHUNK(SIZE(INT(0) INT(0)), SIZE(INT(4) INT(1))))},
     "2 dimensions, but the tensor has 1"},
    {{.chunks = LIST(CHUNK(SIZE(INT(0)), SIZE(INT(-4))))}, "sizes: dimension 0 is -4"},
    {{.chunks = LIST(CHUNK(SIZE(INT(0)), SIZE(INT(5))))}, "is not inside the shape [4]"},
    {{.chunks = LIST(CHUNK(SIZE(INT(0)), SIZE(INT(3))))}, "no chunk holds [3:4]"},
    {{.chunks = LIST(CHUNK(SIZE(INT(0)), SIZE(INT(4))) CHUNK(SIZE(INT(0)), SIZE(INT(4)))),
      .more_data = INDEX(KEY("fqn") KEY("w") KEY("offset") SIZE(INT(0))) PLACE("f", 0, 1577)},
     "\"w\": storage_data has no entry for the chunk at [0]"},
    {{.chunks = LIST(CHUNK(SIZE(INT(0)), SIZE(INT(2))) CHUNK(SIZE(INT(2)), SIZE(INT(2)))),
      .more_data = INDEX(KEY("fqn") KEY("w") KEY("offset") SIZE(INT(0))) PLACE("f", 0, 1577)},
     "\"w\": storage_data has no entry for the chunk at [2]"},
    {{.chunks = LIST(CHUNK(SIZE(INT(0)), SIZE(INT(1))) CHUNK(SIZE(INT(1)), SIZE(INT(1)))
                         CHUNK(SIZE(INT(2)), SIZE(INT(2))))},
     "\"w\": chunks: 3, but storage_data has only 2 more"},
    {{.chunks = LIST()}, "\"w\": storage_data has no chunk at [0]"},
    {{.index = "NONE "}, "key 0 of storage_data: None, expected a MetadataIndex"},
    {{.index = INDEX(KEY("index") INT(0))}, "fqn: nothing, expected a string"},
    {{.index = INDEX(KEY("fqn") INT(0))}, "fqn: an int, expected a string"},
    {{.index = INDEX(KEY("fqn") KEY("w") KEY("offset") INT(0))}, "offset: an int, expected"},
    {{.index = INDEX(KEY("fqn") KEY("w"))}, "\"w\": storage_data has no chunk at"},
    {{.index = INDEX(KEY("fqn") KEY("w") KEY("offset") SIZE(INT(1)))}, "no chunk at [1]"},
    {{.index = INDEX(KEY("fqn") KEY("v") KEY("offset") SIZE(INT(0)))},
     "\"v\": storage_data has this name, but state_dict_metadata does not"},
    {{.index = INDEX(KEY("fqn") KEY("step") KEY("offset") SIZE(INT(0)))},
     "\"step\": storage_data has no chunk at [0]"},
    {{.storage = "NONE "}, "\"w\": None, expected a _StorageInfo"},
    {{.storage = STORAGE(KEY("offset") INT(0) KEY("length") INT(1))},
     "relative_path: nothing, expected a string"},
    {{.storage = STORAGE(KEY("relative_path") KEY("f") KEY("length") INT(1))}, "offset: nothing"},
    {{.storage =
          STORAGE(KEY("relative_path") KEY("f") KEY("offset") "NEWTRUE " KEY("length") INT(1))},
     "offset: a bool, expected an int"},
    {{.storage = PLACE("f", -1, 100)}, "offset: -1"},
    {{.storage = PLACE("f", 0, -1)}, "length: -1"},
    {{.storage = PLACE("f", 0, 0)}, "length: 0"},
    {{.storage = STORAGE(KEY("relative_path") KEY("f") KEY("offset") INT(0) KEY("length") BIG)},
     "length: an int, expected an int of 64 bits"},
    {{.storage = STORAGE(KEY("relative_path") KEY("f") KEY(
          "offset") "LONG1 '\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x7f' " KEY("length") INT(1577))},
     "overflows"},
    {{.storage = PLACE("f", 0, 15)}, "the chunk has 16 bytes, but only 15 bytes are stored"},
    {{.storage = PLACE("../f", 0, 1577)}, "\"w\": file name \"../f\" is refused"},
    {{.storage = PLACE("/f", 0, 1577)}, "it is absolute"},
    {{.storage = PLACE("\\xed\\xa0\\x80", 0, 1577)}, "it is not UTF-8"},
    {{.storage = STORAGE(KEY("relative_path") KEY("f") KEY("offset") INT(0) KEY("length") INT(99)
                             KEY("transform_descriptors") KEY("stream.zstd/1"))},
     "transform_descriptors: a string, expected a list"},
    {{.storage = STORAGE(KEY("relative_path") KEY("f") KEY("offset") INT(0) KEY("length") INT(99)
                             KEY("transform_descriptors") LIST(INT(1)))},
     "transform_descriptors: an int, expected a string"},
    {{.more_entries = INT(7) "NONE "}, "a name is an int, expected a string"},
    {{.more_entries = KEY("a\\x00b") "NONE "}, "the name contains NUL"},
    {{.more_entries = KEY("\\xed\\xa0\\x80") "NONE "}, "is not UTF-8"},
    {{.more_entries = KEY("other") NEW(METADATA_MODULE, "BytesStorageMetadata")},
     "\"other\": chunks: 1, but storage_data has only 0 more"},
    {{.more_entries = KEY("other") NEW(METADATA_MODULE, "BytesStorageMetadata"),
      .more_data = INDEX(KEY("fqn") KEY("w") KEY("offset") SIZE(INT(0)) KEY("index") INT(1))
          PLACE("f", 0, 1577)},
     "\"other\": storage_data has no entry for the object"},
    {{.more_fields = KEY("state_dict_metadata") LIST()},
     "state_dict_metadata is a list, expected a dict"},
    {{.more_fields = KEY("storage_data") "NONE "}, "storage_data is None, expected a dict"},
};

static void names_what_is_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct buffer pickle;
        struct metadata metadata;
        metadata_variant_assemble(&pickle, &refusals[i].variant);
        dcp_status status = metadata_decode(pickle.data, pickle.size, &metadata);
        if (status == DCP_OK || strstr(dcp_error_message(), refusals[i].message) == NULL)
            fail_msg("refusal %zu: status %d, message \"%s\", expected \"%s\"", i, status,
                     status != DCP_OK ? dcp_error_message() : "", refusals[i].message);
        assert_int_equal(metadata.count, 0);
        buffer_free(&pickle);
    }
}

static void refuses_other_roots(void **state)
{
    (void)state;
    static const char *const scripts[] = {
        "PROTO 4 NONE STOP",
        "PROTO 4 " DICT(KEY("state_dict_metadata") DICT() KEY("storage_data") DICT()) "STOP",
        "PROTO 4 " NEW(METADATA_MODULE, "Metadata") "STOP",
        "PROTO 4 " NEW(METADATA_MODULE, "Metadata") "NONE BUILD STOP",
        "PROTO 4 " NEW(METADATA_MODULE, "Metadata")
            FIELDS(KEY("state_dict_metadata") DICT()) "STOP",
        "PROTO 4 " NEW(METADATA_MODULE, "Metadata") FIELDS(KEY("storage_data") DICT()) "STOP"};
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
        struct buffer pickle;
        struct metadata metadata;
        pickle_assemble(&pickle, scripts[i]);
        assert_int_equal(metadata_decode(pickle.data, pickle.size, &metadata), DCP_ERR_FORMAT);
        assert_non_null(strstr(dcp_error_message(), "not a .metadata file"));
        buffer_free(&pickle);
    }
}

static void refuses_every_truncation(void **state)
{
    (void)state;
    struct bytes bytes = fixture_file("sharded_tensor_w2/ckpt/.metadata");
    for (size_t size = 0; size < bytes.size; size++) {
        struct metadata metadata;
        assert_int_equal(metadata_decode(bytes.data, size, &metadata), DCP_ERR_FORMAT);
    }
    bytes_free(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_what_is_wrong),
        cmocka_unit_test(refuses_other_roots),
        cmocka_unit_test(refuses_every_truncation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
