/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>

#include "element.h"
#include "stat.h"

/* Elements whose sums are taken in doubles, before they are added to what is longer. */
enum { RUN = 1024 };

void summary_init(struct summary *summary)
{
    *summary = (struct summary){.least = HUGE_VALL, .most = -HUGE_VALL};
}

uint64_t summary_finite(const struct summary *summary)
{
    return summary->count - summary->nans - summary->infinities;
}

static void widen(struct summary *summary, long double least, long double most)
{
    if (least < summary->least)
        summary->least = least;
    if (most > summary->most)
        summary->most = most;
}

/* The usual case, so that it is not one number at a time. */
static void add_floats(struct summary *summary, const float *values, int64_t count)
{
    for (int64_t from = 0; from < count; from += RUN) {
        int64_t end = count - from < RUN ? count : from + RUN;
        double sum = 0, squares = 0;
        float least = INFINITY, most = -INFINITY;
        for (int64_t i = from; i < end; i++) {
            float value = values[i];
            if (!isfinite(value)) {
                summary->nans += isnan(value) != 0;
                summary->infinities += isinf(value) != 0;
                continue;
            }
            summary->zeros += value == 0;
            least = value < least ? value : least;
            most = value > most ? value : most;
            sum += (double)value;
            squares += (double)value * (double)value;
        }
        widen(summary, (long double)least, (long double)most);
        summary->sum += (long double)sum;
        summary->squares += (long double)squares;
    }
}

static void add_number(struct summary *summary, long double real, long double imaginary,
                       bool complex)
{
    if (isnan(real) || isnan(imaginary)) {
        summary->nans++;
        return;
    }
    if (isinf(real) || isinf(imaginary)) {
        summary->infinities++;
        return;
    }
    long double size = complex ? hypotl(real, imaginary) : real;
    summary->zeros += size == 0;
    widen(summary, size, size);
    summary->sum += size;
    summary->squares += real * real + imaginary * imaginary;
}

void summary_add(struct summary *summary, dcp_dtype read, const void *data, int64_t count)
{
    bool complex = element_is_complex(read);
    int64_t numbers = count * element_numbers(read);
    summary->count += (uint64_t)numbers;
    if (read == DCP_F32) {
        add_floats(summary, data, numbers);
        return;
    }
    for (int64_t i = 0; i < numbers; i++) {
        long double imaginary, real = element_value(read, data, i, &imaginary);
        add_number(summary, real, imaginary, complex);
    }
}

void summary_join(struct summary *summary, const struct summary *other)
{
    summary->count += other->count;
    summary->nans += other->nans;
    summary->infinities += other->infinities;
    summary->zeros += other->zeros;
    widen(summary, other->least, other->most);
    summary->sum += other->sum;
    summary->squares += other->squares;
}
