/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dcp/tensor.h"
#include "state/dtype.h"

static const struct {
    dcp_dtype dtype;
    size_t size;
    const char *name;
} dtypes[] = {
    {DCP_F64, 8, "float64"},
    {DCP_F32, 4, "float32"},
    {DCP_F16, 2, "float16"},
    {DCP_BF16, 2, "bfloat16"},
    {DCP_I64, 8, "int64"},
    {DCP_I32, 4, "int32"},
    {DCP_I16, 2, "int16"},
    {DCP_I8, 1, "int8"},
    {DCP_U64, 8, "uint64"},
    {DCP_U32, 4, "uint32"},
    {DCP_U16, 2, "uint16"},
    {DCP_U8, 1, "uint8"},
    {DCP_BOOL, 1, "bool"},
    {DCP_C128, 16, "complex128"},
    {DCP_C64, 8, "complex64"},
    {DCP_C32, 4, "complex32"},
    {DCP_BCOMPLEX32, 4, "bcomplex32"},
    {DCP_F8_E4M3FN, 1, "float8_e4m3fn"},
    {DCP_F8_E4M3FNUZ, 1, "float8_e4m3fnuz"},
    {DCP_F8_E5M2, 1, "float8_e5m2"},
    {DCP_F8_E5M2FNUZ, 1, "float8_e5m2fnuz"},
    {DCP_F8_E8M0FNU, 1, "float8_e8m0fnu"},
    {DCP_F4_E2M1FN_X2, 1, "float4_e2m1fn_x2"},
    {DCP_BITS8, 1, "bits8"},
    {DCP_BITS16, 2, "bits16"},
    {DCP_BITS1X8, 1, "bits1x8"},
    {DCP_BITS2X4, 1, "bits2x4"},
    {DCP_BITS4X2, 1, "bits4x2"},
};

static void every_dtype_has_a_size_and_a_name(void **state)
{
    (void)state;
    size_t known = 0;
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        assert_int_equal(dcp_dtype_size(dtypes[i].dtype), dtypes[i].size);
        assert_string_equal(dcp_dtype_name(dtypes[i].dtype), dtypes[i].name);
        assert_int_equal(dcp_dtype_from_name(dtypes[i].name), dtypes[i].dtype);
    }
    for (int value = -5; value < 300; value++)
        known += dcp_dtype_size((dcp_dtype)value) > 0;
    assert_int_equal(known, sizeof dtypes / sizeof dtypes[0]);
}

static void unknown_dtypes_have_neither(void **state)
{
    (void)state;
    assert_int_equal(dcp_dtype_size(DCP_DTYPE_NONE), 0);
    assert_null(dcp_dtype_name(DCP_DTYPE_NONE));
    assert_null(dcp_dtype_name((dcp_dtype)99));
    assert_int_equal(dcp_dtype_from_name("torch.float32"), DCP_DTYPE_NONE);
    assert_int_equal(dcp_dtype_from_name(""), DCP_DTYPE_NONE);
    assert_int_equal(dcp_dtype_from_name(NULL), DCP_DTYPE_NONE);
}

/* Each dtype is one line of the table, and no two are alike. */
static void lines_of_the_table_fit(void **state)
{
    const struct dtype_facts *facts, *other;
    size_t count = 0;
    (void)state;
    for (; (facts = dtype_facts_at(count)) != NULL; count++) {
        assert_ptr_equal(dtype_facts(facts->dtype), facts);
        assert_int_equal(dcp_dtype_size(facts->dtype), facts->size);
        assert_int_equal(dcp_dtype_from_name(facts->name), facts->dtype);
        assert_int_equal(facts->size % facts->numbers, 0);
        assert_int_equal(facts->numbers == 2, facts->sign == SIGN_PAIR);
        for (size_t i = 0; i < count; i++) {
            other = dtype_facts_at(i);
            assert_int_not_equal(facts->dtype, other->dtype);
            assert_string_not_equal(facts->name, other->name);
            if (facts->storage_class && other->storage_class)
                assert_string_not_equal(facts->storage_class, other->storage_class);
            if (facts->safetensors && other->safetensors)
                assert_string_not_equal(facts->safetensors, other->safetensors);
        }
    }
    assert_int_equal(count, 28);
    assert_null(dtype_facts(DCP_DTYPE_NONE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_has_a_size_and_a_name),
        cmocka_unit_test(unknown_dtypes_have_neither),
        cmocka_unit_test(lines_of_the_table_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
