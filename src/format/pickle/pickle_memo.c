/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/pickle/pickle_memo.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/pickle/pickle.h"
#include "format/pickle/pickle_opcodes.h"

/* Makes room for more numbers. The highest one is not known beforehand, and far below the size of
 * the input in a well-formed pickle. */
static bool grow(struct pickle_memo *memo, uint64_t word)
{
    size_t words = memo->words != 0 ? memo->words : 64;
    while (words <= word)
        words *= 2;
    uint64_t *fetched = memory_reallocate_array(memo->fetched, words, sizeof *fetched);
    if (fetched == NULL)
        return false;
    memset(fetched + memo->words, 0, (words - memo->words) * sizeof *fetched);
    memo->fetched = fetched;
    memo->words = words;
    return true;
}

/* Numbers from the size of the input on are never stored: storing takes at least a byte. */
static inline bool note_fetch(struct pickle_memo *memo, uint64_t number, size_t size)
{
    uint64_t bit = UINT64_C(1) << number % 64;
    if (number >= size)
        return true;
    if (number / 64 >= memo->words && !grow(memo, number / 64))
        return false;
    if ((memo->fetched[number / 64] & bit) == 0)
        memo->fetched[number / 64] |= bit;
    return true;
}

/* Stops silently at input that the reader will refuse; false: no memory. Frequent opcodes have
 * branches of their own, which processors predict better than a table look-up. */
static bool mark_fetched(struct pickle_memo *memo, const unsigned char *bytes, size_t size)
{
    const unsigned char *end = bytes + size;
    const unsigned char *at = bytes;
    bool noted = true;
    while (noted && at != NULL && at < end && *at != OP_STOP) {
        if (pickle_opcode_forms[*at].size == 1) {
            at += 1;
        } else if (*at == OP_LONG_BINGET && end - at >= 5) {
            noted = note_fetch(memo, pickle_number(at + 1, 4), size);
            at += 5;
        } else if (*at == OP_BINGET && end - at >= 2) {
            noted = note_fetch(memo, at[1], size);
            at += 2;
        } else {
            at = pickle_opcode_skip(at, end);
        }
    }
    return noted;
}

/* Counts the fetched numbers before each word, up to the last word with any. */
static dcp_status count_fetched(struct pickle_memo *memo)
{
    while (memo->words != 0 && memo->fetched[memo->words - 1] == 0)
        memo->words--;
    memo->before = memory_allocate_array(memo->words, sizeof *memo->before);
    if (memo->before == NULL)
        return error_no_memory(memo->words * sizeof *memo->before, "the memo of a pickle");
    uint32_t count = 0;
    for (size_t word = 0; word < memo->words; word++) {
        memo->before[word] = count;
        count += pickle_memo_count(memo->fetched[word]);
    }
    memo->values = memory_allocate_zeroed(count, sizeof *memo->values);
    if (memo->values == NULL)
        return error_no_memory(count * sizeof *memo->values, "the memo of a pickle");
    return DCP_OK;
}

dcp_status pickle_memo_prepare(struct pickle_memo *memo, const unsigned char *bytes, size_t size)
{
    *memo = (struct pickle_memo){0};
    dcp_status status = mark_fetched(memo, bytes, size)
                            ? count_fetched(memo)
                            : error_no_memory(size / 8, "the memo of a pickle");
    if (status != DCP_OK)
        pickle_memo_free(memo);
    return status;
}

void pickle_memo_free(struct pickle_memo *memo)
{
    memory_release(memo->fetched);
    memory_release(memo->before);
    memory_release(memo->values);
    *memo = (struct pickle_memo){0};
}
