/* SPDX-License-Identifier: BSD-3-Clause */
#include "element.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

dcp_dtype element_dtype(dcp_dtype stored)
{
    switch (stored) {
    case DCP_F32:
    case DCP_F16:
    case DCP_BF16:
    case DCP_F8_E4M3FN:
    case DCP_F8_E4M3FNUZ:
    case DCP_F8_E5M2:
    case DCP_F8_E5M2FNUZ:
    case DCP_F8_E8M0FNU:
        return DCP_F32;
    case DCP_I64:
    case DCP_I32:
    case DCP_I16:
    case DCP_I8:
    case DCP_U32:
    case DCP_U16:
    case DCP_U8:
    case DCP_BOOL:
        return DCP_I64;
    case DCP_F64:
    case DCP_U64:
    case DCP_C128:
    case DCP_C64:
    case DCP_C32:
    case DCP_BCOMPLEX32:
    case DCP_F4_E2M1FN_X2:
        return stored;
    default:
        return DCP_DTYPE_NONE;
    }
}

bool element_is_complex(dcp_dtype dtype)
{
    return dtype == DCP_C128 || dtype == DCP_C64 || dtype == DCP_C32 || dtype == DCP_BCOMPLEX32;
}

int element_numbers(dcp_dtype dtype)
{
    return dtype == DCP_F4_E2M1FN_X2 ? 2 : 1;
}

bool element_is_readable(dcp_dtype stored)
{
    switch (stored) {
    case DCP_F16:
    case DCP_BF16:
    case DCP_I32:
    case DCP_I16:
    case DCP_I8:
    case DCP_U32:
    case DCP_U16:
    case DCP_U8:
    case DCP_BOOL:
        return true;
    default:
        return element_dtype(stored) == stored;
    }
}

static double half_value(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value = exponent == 31  ? (fraction ? NAN : INFINITY)
                   : exponent == 0 ? ldexp(fraction, -24)
                                   : ldexp(1024 + fraction, exponent - 25);
    return bits & 0x8000 ? -value : value;
}

static double bfloat_value(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static double read_half(dcp_dtype dtype, const void *data, int64_t index)
{
    uint16_t bits = ((const uint16_t *)data)[index];
    return dtype == DCP_C32 || dtype == DCP_F16 ? half_value(bits) : bfloat_value(bits);
}

/* The first of two is in the lower bits of the byte. */
static double packed_value(const void *data, int64_t index)
{
    static const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    unsigned bits = ((const unsigned char *)data)[index / 2] >> (index % 2 * 4) & 15;
    return bits & 8 ? -values[bits & 7] : values[bits & 7];
}

long double element_value(dcp_dtype read, const void *data, int64_t index, long double *imaginary)
{
    *imaginary = 0;
    switch (read) {
    case DCP_F32:
        return (long double)((const float *)data)[index];
    case DCP_F64:
        return (long double)((const double *)data)[index];
    case DCP_I64:
        return (long double)((const int64_t *)data)[index];
    case DCP_U64:
        return (long double)((const uint64_t *)data)[index];
    case DCP_F16:
    case DCP_BF16:
        return (long double)read_half(read, data, index);
    case DCP_I32:
        return (long double)((const int32_t *)data)[index];
    case DCP_I16:
        return (long double)((const int16_t *)data)[index];
    case DCP_I8:
        return (long double)((const int8_t *)data)[index];
    case DCP_U32:
        return (long double)((const uint32_t *)data)[index];
    case DCP_U16:
        return (long double)((const uint16_t *)data)[index];
    case DCP_U8:
        return (long double)((const uint8_t *)data)[index];
    case DCP_BOOL:
        return (long double)(((const uint8_t *)data)[index] != 0);
    case DCP_C64:
        *imaginary = (long double)((const float *)data)[2 * index + 1];
        return (long double)((const float *)data)[2 * index];
    case DCP_C128:
        *imaginary = (long double)((const double *)data)[2 * index + 1];
        return (long double)((const double *)data)[2 * index];
    case DCP_C32:
    case DCP_BCOMPLEX32:
        *imaginary = read_half(read, data, 2 * index + 1);
        return read_half(read, data, 2 * index);
    default:
        return packed_value(data, index);
    }
}

void number_print(FILE *out, double value, bool single, bool json)
{
    char text[40];
    if (!isfinite(value)) {
        fputs(json ? "null" : isnan(value) ? "nan" : value > 0 ? "inf" : "-inf", out);
        return;
    }
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        double back = strtod(text, NULL);
        if (single ? (float)back == (float)value : back == value)
            break;
    }
    fputs(text, out);
}

void element_print(dcp_dtype read, const void *data, int64_t index)
{
    bool single = read != DCP_F64 && read != DCP_C128;
    if (read == DCP_I64) {
        printf("%" PRId64, ((const int64_t *)data)[index]);
        return;
    }
    if (read == DCP_U64) {
        printf("%" PRIu64, ((const uint64_t *)data)[index]);
        return;
    }
    long double imaginary, real = element_value(read, data, index, &imaginary);
    number_print(stdout, (double)real, single, false);
    if (!element_is_complex(read))
        return;
    if (!signbit(imaginary) || isnan(imaginary))
        putchar('+');
    number_print(stdout, (double)imaginary, single, false);
    putchar('j');
}

static void float_print_json(double value, bool single)
{
    if (!isfinite(value))
        fputs("{\"$float\": \"", stdout);
    number_print(stdout, value, single, false);
    if (!isfinite(value))
        fputs("\"}", stdout);
}

void element_print_json(dcp_dtype read, const void *data, int64_t index)
{
    bool single = read != DCP_F64 && read != DCP_C128;
    long double imaginary, real;
    if (read == DCP_I64 || read == DCP_U64) {
        element_print(read, data, index);
        return;
    }
    int numbers = element_numbers(read);
    bool pair = numbers > 1 || element_is_complex(read);
    real = element_value(read, data, index * numbers, &imaginary);
    if (numbers > 1) {
        long double none;
        imaginary = element_value(read, data, index * numbers + 1, &none);
    }
    if (pair)
        putchar('[');
    float_print_json((double)real, single);
    if (pair) {
        fputs(", ", stdout);
        float_print_json((double)imaginary, single);
        putchar(']');
    }
}
