/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensors inside objects, damaged ones too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "failing_allocator.h"
#include "object_reading.h"
#include "zip_builder.h"

#define PERSISTENT(type, count)                                                                    \
    "(X\7\0\0\0storagec" type "\nX\1\0\0\0"                                                        \
    "0X\3\0\0\0cpuK" count "tQ"
#define TENSOR(type, count, rest)                                                                  \
    "ctorch._utils\n_rebuild_tensor_v2\n(" PERSISTENT(type, count) rest                            \
        "\x89"                                                                                     \
        "ccollections\nOrderedDict\n)R"

static const float floats[] = {1, 2, 3, 4, 5, 6};

static const dcp_tensor *chunk_of(const dcp_state *node, dcp_tensor *chunk)
{
    assert_int_equal(node->kind, DCP_KIND_TENSOR);
    assert_int_equal(dcp_state_chunk(node, 0, chunk), DCP_OK);
    return chunk;
}

static void test_tensors_are_read_as_they_lie(void **state)
{
    (void)state;
    struct object object;
    dcp_tensor chunk;
    struct record record = {"archive/data/0", floats, sizeof floats, true};
    /* (storage as [2, 3], its transpose, both elements of a parameter at offset 4) */
    static const char pickle[] =
        "\x80\x02" TENSOR("torch\nFloatStorage", "\6", "K\0K\2K\3\x86K\3K\1\x86") "tR" TENSOR(
            "torch\nFloatStorage", "\6",
            "K\0K\3K\2\x86K\1K\3\x86") "tR"
                                       "ctorch._utils\n_rebuild_parameter\n" TENSOR(
                                           "torch\nFloatStorage", "\6",
                                           "K\4K\2\x85K\1\x85") "tR"
                                                                "\x88"
                                                                "ccollections\nOrderedDict\n)"
                                                                "R\x87R\x87.";
    for (int deflated = 0; deflated < 2; deflated++) {
        record.deflated = deflated;
        if (object_open_pickle(&object, pickle, sizeof pickle - 1, &record, 1) != DCP_OK)
            fail_msg("%s", dcp_error_message());
        assert_memory_equal(chunk_of(object_child(&object, 0), &chunk)->data, floats,
                            sizeof floats);
        assert_memory_equal(chunk_of(object_child(&object, 1), &chunk)->data, floats,
                            sizeof floats);
        assert_true(chunk.strided);
        assert_int_equal(chunk.strides[0], 1);
        assert_int_equal(chunk.strides[1], 3);
        assert_false(chunk.requires_grad);
        static const float last[] = {5, 6};
        assert_memory_equal(chunk_of(object_child(&object, 2), &chunk)->data, last, sizeof last);
        assert_true(chunk.requires_grad);
        assert_int_equal(chunk.ndim, 1);
        object_close(&object);
    }
}

static void test_flags_are_resolved(void **state)
{
    (void)state;
    struct object object;
    dcp_tensor chunk;
    struct record record = {"archive/data/0", floats, sizeof floats, false};
    static const char pickle[] = "\x80\x02" TENSOR(
        "torch\nComplexFloatStorage", "\3",
        "K\0K\3\x85K\1\x85") "}X\4\0\0\0conj\x88stR" TENSOR("torch\nFloatStorage", "\6",
                                                            "K\0K\6\x85K\1\x85") "}X\3\0\0\0neg\x88"
                                                                                 "stR\x86.";
    if (object_open_pickle(&object, pickle, sizeof pickle - 1, &record, 1) != DCP_OK)
        fail_msg("%s", dcp_error_message());
    static const float conjugated[] = {1, -2, 3, -4, 5, -6}, negated[] = {-1, -2, -3, -4, -5, -6};
    assert_memory_equal(chunk_of(object_child(&object, 0), &chunk)->data, conjugated,
                        sizeof conjugated);
    assert_memory_equal(chunk_of(object_child(&object, 1), &chunk)->data, negated, sizeof negated);
    object_close(&object);
}

static void test_byte_order(void **state)
{
    (void)state;
    struct object object;
    struct zip_builder builder;
    dcp_tensor chunk;
    static const unsigned char big[] = {0, 0, 0, 1, 0x3f, 0x80, 0, 0};
    static const uint32_t expected[] = {1, 0x3f800000};
    static const char pickle[] =
        "\x80\x02"
        "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nIntStorage\nX\1\0\0\0"
        "0X\3\0\0\0cpuK\2tQK\0K\2\x85K\1\x85\x89"
        "ccollections\nOrderedDict\n)RtR.";
    zip_builder_init(&builder);
    zip_builder_add(&builder, "archive/data.pkl", pickle, sizeof pickle - 1);
    zip_builder_add(&builder, "archive/byteorder", "big", 3);
    zip_builder_add(&builder, "archive/version", "3\n", 2);
    zip_builder_add(&builder, "archive/data/0", big, sizeof big);
    zip_builder_finish(&builder);
    assert_int_equal(object_open(&object, byte_source_memory(builder.out.data, builder.out.size)),
                     DCP_OK);
    assert_memory_equal(chunk_of(object.node, &chunk)->data, expected, sizeof expected);
    object_close(&object);
    zip_builder_free(&builder);
}

static void test_damaged_tensors_are_refused(void **state)
{
    (void)state;
    struct object object;
    struct zip_builder builder;
    static const char pickle[] =
        "\x80\x02" TENSOR("torch\nFloatStorage", "\6", "K\0K\6\x85K\1\x85") "tR\x85.";
    static const char outside[] =
        "\x80\x02" TENSOR("torch\nFloatStorage", "\6", "K\1K\6\x85K\1\x85") "tR\x85.";
    static const char huge[] =
        "\x80\x02" TENSOR("torch\nFloatStorage", "\6", "K\0J\0\0\0\x40K\1\x86K\0K\0\x86") "tR\x85.";
    static const char negative[] = "\x80\x02" TENSOR(
        "torch\nBoolStorage", "\x18", "K\0K\x18\x85K\1\x85") "}X\3\0\0\0neg\x88stR\x85.";
    struct record record = {"archive/data/0", floats, sizeof floats, false};
    struct record shorter = {"archive/data/0", floats, sizeof floats - 4, false};
    struct record elsewhere = {"archive/data/1", floats, sizeof floats, false};

    zip_builder_init(&builder);
    zip_builder_add_container(&builder, pickle, sizeof pickle - 1);
    zip_builder_add(&builder, "archive/data/0", floats, sizeof floats)->crc ^= 1;
    zip_builder_finish(&builder);
    assert_int_equal(object_open(&object, byte_source_memory(builder.out.data, builder.out.size)),
                     DCP_ERR_CHECKSUM);
    object_close(&object);
    zip_builder_free(&builder);

    const struct {
        const char *pickle;
        size_t size;
        const struct record *record;
    } cases[] = {{pickle, sizeof pickle, &shorter},
                 {pickle, sizeof pickle, &elsewhere},
                 {outside, sizeof outside, &record},
                 {negative, sizeof negative, &record},
                 {huge, sizeof huge, &record}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(
            object_open_pickle(&object, cases[i].pickle, cases[i].size - 1, cases[i].record, 1),
            DCP_ERR_FORMAT);
        object_close(&object);
    }
}

static void test_bare_storages_and_foreign_tensors_are_opaque(void **state)
{
    (void)state;
    struct object object;
    static const char storage[] = "\x80\x02" PERSISTENT("torch\nFloatStorage", "\6") ".";
    static const char meta[] =
        "\x80\x02"
        "ctorch._utils\n_rebuild_meta_tensor_no_storage\n(ctorch\nfloat32\nK\2\x85K\1\x85\x89tR.";
    assert_int_equal(READ(&object, storage), DCP_OK);
    assert_int_equal(object.node->kind, DCP_KIND_OPAQUE);
    assert_int_equal(dcp_state_count(object_child(&object, 0)), 5);
    object_close(&object);
    assert_int_equal(READ(&object, meta), DCP_OK);
    assert_string_equal(dcp_state_opaque_name(object.node),
                        "torch._utils._rebuild_meta_tensor_no_storage");
    object_close(&object);
}

/* Each shortened stream, and each with one byte changed, is read or refused. */
static void test_damage_everywhere(void **state)
{
    (void)state;
    struct object object;
    struct zip_builder builder;
    static const char pickle[] =
        "\x80\x02(" TENSOR("torch\nFloatStorage", "\6",
                           "K\0K\6\x85K\1\x85") "tR"
                                                "c_codecs\nencode\nX\1\0\0\0aX\6\0\0\0latin1\x86R"
                                                "ccollections\nOrderedDict\n)RK\1]q\1st.";
    zip_builder_init(&builder);
    zip_builder_add_container(&builder, pickle, sizeof pickle - 1);
    zip_builder_add(&builder, "archive/data/0", floats, sizeof floats);
    zip_builder_finish(&builder);
    for (size_t size = 0; size < builder.out.size; size++) {
        assert_int_not_equal(object_open(&object, byte_source_memory(builder.out.data, size)),
                             DCP_OK);
        object_close(&object);
    }
    for (size_t i = 0; i < builder.out.size; i++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            builder.out.data[i] ^= (unsigned char)(1u << bit);
            object_open(&object, byte_source_memory(builder.out.data, builder.out.size));
            object_close(&object);
            builder.out.data[i] ^= (unsigned char)(1u << bit);
        }
    }
    zip_builder_free(&builder);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    struct zip_builder builder;
    static const char pickle[] =
        "\x80\x02(" TENSOR("torch\nFloatStorage", "\6", "K\0K\6\x85K\1\x85") "tR" TENSOR(
            "torch\nFloatStorage", "\6",
            "K\1K\2\x85K\2\x85") "tR"
                                 "c_codecs\nencode\nX\1\0\0\0aX\6\0\0\0latin1\x86R"
                                 "ccollections\nOrderedDict\n)RK\1]q\1s"
                                 "\x8a\x09\0\0\0\0\0\0\0\0\x7f"
                                 "cm\nf\nK\1\x85Rt.";
    zip_builder_init(&builder);
    zip_builder_add_container(&builder, pickle, sizeof pickle - 1);
    zip_builder_add_deflated(&builder, "archive/data/0", floats, sizeof floats);
    zip_builder_finish(&builder);
    struct byte_source source = byte_source_memory(builder.out.data, builder.out.size);
    size_t failed = 0;
    for (;; failed++) {
        struct object object;
        failing_allocator_install(failed);
        dcp_status status = object_open(&object, source);
        object_close(&object);
        failing_allocator_remove();
        if (status == DCP_OK)
            break;
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
    }
    assert_true(failed > 20);
    zip_builder_free(&builder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors_are_read_as_they_lie),
        cmocka_unit_test(test_flags_are_resolved),
        cmocka_unit_test(test_byte_order),
        cmocka_unit_test(test_damaged_tensors_are_refused),
        cmocka_unit_test(test_bare_storages_and_foreign_tensors_are_opaque),
        cmocka_unit_test(test_damage_everywhere),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
