/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "state/box.h"
#include "state/copy.h"
#include "state/random.h"

static const dcp_dtype real[] = {
    DCP_F64,  DCP_F32,       DCP_F16,     DCP_BF16,        DCP_I64,         DCP_I32,
    DCP_I16,  DCP_I8,        DCP_U64,     DCP_U32,         DCP_U16,         DCP_U8,
    DCP_BOOL, DCP_F8_E4M3FN, DCP_F8_E5M2, DCP_F8_E4M3FNUZ, DCP_F8_E5M2FNUZ, DCP_F8_E8M0FNU};
enum { REAL_COUNT = sizeof real / sizeof real[0] };

/* In the table: what PyTorch does not define. */
#define UNDEFINED UINT64_C(0x6d61726b65642121)
static const uint64_t cases[] = {
#include "convert_cases.inc"
};

static uint64_t convert_bits(dcp_dtype from, dcp_dtype to, uint64_t bits)
{
    uint64_t result = 0;
    const int64_t one = 1;
    copy_convert(1, &one, from, &bits, &one, to, &result, &one);
    return result;
}

static void elements_become_what_pytorch_makes_of_them(void **state)
{
    (void)state;
    const uint64_t *inputs = NULL;
    size_t compared = 0;
    for (const uint64_t *at = cases; at < cases + sizeof cases / sizeof cases[0];) {
        dcp_dtype from = (dcp_dtype)*at++;
        dcp_dtype to = (dcp_dtype)*at++;
        uint64_t count = *at++;
        if (from == to)
            inputs = at;
        for (uint64_t i = 0; i < count; i++, at++) {
            uint64_t bits = convert_bits(from, to, inputs[i]);
            if (*at == UNDEFINED)
                continue;
            if (bits != *at)
                fail_msg("%s %#jx in %s is %#jx, expected %#jx", dcp_dtype_name(from),
                         (uintmax_t)inputs[i], dcp_dtype_name(to), (uintmax_t)bits, (uintmax_t)*at);
            compared++;
        }
    }
    assert_true(compared > 4000);
}

static double to_double(dcp_dtype dtype, uint64_t bits)
{
    double value;
    bits = convert_bits(dtype, DCP_F64, bits);
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t from_double(dcp_dtype dtype, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return convert_bits(DCP_F64, dtype, bits);
}

/* Unsigned numbers have twice the range of signed ones. */
static void the_upper_half_of_unsigned_integers_is_reached(void **state)
{
    const float large = 3000000000.0f;
    uint64_t bits = 0;
    (void)state;
    memcpy(&bits, &large, sizeof large);
    assert_int_equal(convert_bits(DCP_F32, DCP_U32, bits), 3000000000);
    assert_int_equal(from_double(DCP_U32, 2147483649.0), 2147483649);
    assert_int_equal(from_double(DCP_U32, 4294967295.0), UINT32_MAX);
    assert_int_equal(from_double(DCP_U64, 18446744073709549568.0), UINT64_MAX - 2047);
}

/* A small float, as the papers define it. */
struct small {
    dcp_dtype dtype;
    int bits, mantissa, bias;
    double largest;
    bool infinite;  /* has infinities, or else what is too large becomes: */
    bool saturates; /* the largest number, or else NaN */
};

static const struct small smalls[] = {
    {DCP_F16, 16, 10, 15, 65504, true, false},
    {DCP_BF16, 16, 7, 127, 3.3895313892515355e38, true, false},
    {DCP_F8_E4M3FN, 8, 3, 7, 448, false, true},
    {DCP_F8_E4M3FNUZ, 8, 3, 8, 240, false, false},
    {DCP_F8_E5M2, 8, 2, 15, 57344, true, false},
    {DCP_F8_E5M2FNUZ, 8, 2, 16, 57344, false, false},
};

static void every_small_float_has_its_value(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof smalls / sizeof smalls[0]; i++) {
        const struct small *small = &smalls[i];
        for (uint64_t bits = 0; bits < UINT64_C(1) << small->bits; bits++) {
            uint64_t sign = bits >> (small->bits - 1);
            uint64_t magnitude = bits & ((UINT64_C(1) << (small->bits - 1)) - 1);
            int exponent = (int)(magnitude >> small->mantissa);
            double fraction = (double)(magnitude & ((UINT64_C(1) << small->mantissa) - 1)) +
                              (exponent > 0 ? ldexp(1, small->mantissa) : 0);
            double expected =
                ldexp(fraction, (exponent > 0 ? exponent : 1) - small->bias - small->mantissa);
            double value = to_double(small->dtype, bits);
            bool negative_zero = sign && magnitude == 0;
            if (expected <= small->largest &&
                !(negative_zero && !small->infinite && !small->saturates)) {
                assert_true(value == (sign ? -expected : expected));
                assert_true(signbit(value) == (int)sign || signbit(value));
                assert_int_equal(from_double(small->dtype, value), bits);
            } else if (small->infinite && expected == 2 * ldexp(1, (int)ilogb(small->largest))) {
                assert_true(isinf(value) && (value < 0) == (sign != 0));
            } else {
                assert_true(isnan(value));
            }
        }
    }
}

/* Rounding to nearest even, by the arithmetic of doubles. */
static double round_small(const struct small *small, double value)
{
    int exponent = value == 0 ? -1000 : ilogb(value);
    if (exponent < 1 - small->bias)
        exponent = 1 - small->bias;
    double step = ldexp(1, exponent - small->mantissa);
    double rounded = isinf(value) ? value : nearbyint(value / step) * step;
    if (fabs(rounded) <= small->largest)
        return rounded;
    if (small->infinite)
        return rounded < 0 ? -INFINITY : INFINITY;
    return small->saturates ? copysign(small->largest, rounded) : (double)NAN;
}

static void floats_round_to_the_nearest_small_float(void **state)
{
    (void)state;
    struct random random = {17};
    for (size_t i = 0; i < sizeof smalls / sizeof smalls[0]; i++) {
        const struct small *small = &smalls[i];
        for (int round = 0; round < 200000; round++) {
            uint32_t bits = (uint32_t)(random_next(&random) >> 20);
            if (round % 2 == 0) { /* near the small floats, on and beside ties */
                uint64_t code = random_next(&random) >> (64 - small->bits);
                float near = (float)to_double(small->dtype, code);
                memcpy(&bits, &near, sizeof bits);
                bits += (uint32_t)random_between(&random, 0, 8)
                        << random_between(&random, 0, 22 - small->mantissa);
            }
            float value;
            memcpy(&value, &bits, sizeof value);
            if (isnan(value))
                continue;
            double expected = round_small(small, (double)value);
            double result = to_double(small->dtype, convert_bits(DCP_F32, small->dtype, bits));
            if (isnan(expected) ? !isnan(result) : result != expected)
                fail_msg("%a in %s is %a, expected %a", (double)value, dcp_dtype_name(small->dtype),
                         result, expected);
        }
    }
}

static void all_pairs_of_real_dtypes_convert(void **state)
{
    (void)state;
    for (size_t i = 0; i < REAL_COUNT; i++)
        for (size_t j = 0; j < REAL_COUNT; j++) {
            assert_true(copy_can_convert(real[i], real[j]));
            for (int value = 1; value <= 4; value *= 2) {
                bool truth = real[i] == DCP_BOOL || real[j] == DCP_BOOL;
                uint64_t from = from_double(real[i], value);
                double result = to_double(real[j], convert_bits(real[i], real[j], from));
                assert_true(result == (truth ? 1 : value));
            }
        }
}

static void other_dtypes_do_not_convert(void **state)
{
    (void)state;
    const dcp_dtype others[] = {DCP_C128,         DCP_C64,    DCP_C32,     DCP_BCOMPLEX32,
                                DCP_F4_E2M1FN_X2, DCP_BITS16, DCP_BITS2X4, DCP_DTYPE_NONE};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        for (size_t j = 0; j < REAL_COUNT; j++) {
            assert_false(copy_can_convert(others[i], real[j]));
            assert_false(copy_can_convert(real[j], others[i]));
        }
    assert_true(copy_can_convert(DCP_C64, DCP_C64));
    assert_false(copy_can_convert(DCP_DTYPE_NONE, DCP_DTYPE_NONE));
    assert_false(copy_can_convert(DCP_C64, DCP_C128));
}

static void equal_dtypes_are_copied(void **state)
{
    (void)state;
    const unsigned char source[3] = {0, 2, 255}; /* bools that are no 0 or 1 stay as they are */
    unsigned char destination[3];
    const int64_t size = 3;
    const int64_t stride = 1;
    copy_convert(1, &size, DCP_BOOL, source, &stride, DCP_BOOL, destination, &stride);
    assert_memory_equal(source, destination, 3);
}

/* Boxes with strides of every kind, against one element after the other. */
static void strided_boxes_convert_element_by_element(void **state)
{
    (void)state;
    enum { ROOM = 4096 };
    struct random random = {19};
    static unsigned char source[ROOM * 8];
    static unsigned char destination[ROOM * 8];
    static unsigned char expected[ROOM * 8];
    for (size_t i = 0; i < sizeof source; i++)
        source[i] = (unsigned char)(random_next(&random) >> 32);
    for (int round = 0; round < 3000; round++) {
        dcp_dtype from = real[random_between(&random, 0, REAL_COUNT - 1)];
        dcp_dtype to = real[random_between(&random, 0, REAL_COUNT - 1)];
        int64_t sizes[3], from_strides[3], to_strides[3], padded[3];
        for (int d = 0; d < 3; d++) {
            sizes[d] = random_between(&random, round % 50 == 0 ? 0 : 1, d == 2 ? 12 : 6);
            padded[d] = sizes[d] + random_between(&random, 0, 1);
            from_strides[d] = random_between(&random, -3, 40);
        }
        shape_strides(3, padded, to_strides);
        memset(destination, 0xee, sizeof destination);
        memset(expected, 0xee, sizeof expected);
        const unsigned char *origin = source + 64 * dcp_dtype_size(from);
        const int64_t one = 1;
        for (int64_t i = 0; i < sizes[0]; i++)
            for (int64_t j = 0; j < sizes[1]; j++)
                for (int64_t k = 0; k < sizes[2]; k++) {
                    int64_t at = i * from_strides[0] + j * from_strides[1] + k * from_strides[2];
                    int64_t put = i * to_strides[0] + j * to_strides[1] + k * to_strides[2];
                    copy_convert(1, &one, from, origin + at * (int64_t)dcp_dtype_size(from), &one,
                                 to, expected + put * (int64_t)dcp_dtype_size(to), &one);
                }
        copy_convert(3, sizes, from, origin, from_strides, to, destination, to_strides);
        assert_memory_equal(destination, expected, sizeof expected);
    }
}

static void long_rows_convert_in_blocks(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    static int32_t source[COUNT];
    static double destination[COUNT];
    for (int i = 0; i < COUNT; i++)
        source[i] = i * 7 - 9;
    const int64_t size = COUNT;
    const int64_t stride = 1;
    copy_convert(1, &size, DCP_I32, source, &stride, DCP_F64, destination, &stride);
    for (int i = 0; i < COUNT; i++)
        assert_true(destination[i] == i * 7 - 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_become_what_pytorch_makes_of_them),
        cmocka_unit_test(the_upper_half_of_unsigned_integers_is_reached),
        cmocka_unit_test(every_small_float_has_its_value),
        cmocka_unit_test(floats_round_to_the_nearest_small_float),
        cmocka_unit_test(all_pairs_of_real_dtypes_convert),
        cmocka_unit_test(other_dtypes_do_not_convert),
        cmocka_unit_test(equal_dtypes_are_copied),
        cmocka_unit_test(strided_boxes_convert_element_by_element),
        cmocka_unit_test(long_rows_convert_in_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
