/* SPDX-License-Identifier: BSD-3-Clause */
/* The memo of a pickle. It keeps only values that are fetched again.
 *
 * Picklers memoize almost every value and fetch few of them. A first pass over the opcodes finds
 * the numbers that are fetched. This keeps the memo as small as its use, regardless of the numbers
 * in the input, and shows the reader which values have no second reference. */
#ifndef FORMAT_PICKLE_PICKLE_MEMO_H
#define FORMAT_PICKLE_PICKLE_MEMO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dcp/status.h"

struct pickle_value;

struct pickle_memo {
    uint64_t *fetched;            /* a bit for each number; none from 64 * words on */
    uint32_t *before;             /* fetched numbers before each word */
    size_t words;                 /* in use: up to the last one with a bit */
    struct pickle_value **values; /* of the fetched numbers, in order */
    uint64_t end;                 /* 1 + the highest number stored */
    bool has_gaps;                /* a number below end was never stored */
};

dcp_status pickle_memo_prepare(struct pickle_memo *memo, const unsigned char *bytes, size_t size);
void pickle_memo_free(struct pickle_memo *memo);

/* The number of bits that are set. Written out, as the builtin becomes a function call on
 * processors that may lack the instruction. */
static inline uint32_t pickle_memo_count(uint64_t bits)
{
    bits -= bits >> 1 & UINT64_C(0x5555555555555555);
    bits = (bits & UINT64_C(0x3333333333333333)) + (bits >> 2 & UINT64_C(0x3333333333333333));
    bits = (bits + (bits >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (uint32_t)(bits * UINT64_C(0x0101010101010101) >> 56);
}

/* Where a number's value is kept; NULL if it is never fetched. */
static inline struct pickle_value **pickle_memo_place(const struct pickle_memo *memo,
                                                      uint64_t number)
{
    uint64_t word = number / 64;
    if (word >= memo->words)
        return NULL;
    uint64_t bit = UINT64_C(1) << number % 64;
    if ((memo->fetched[word] & bit) == 0)
        return NULL;
    return &memo->values[memo->before[word] + pickle_memo_count(memo->fetched[word] & (bit - 1))];
}

#endif
