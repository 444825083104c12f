/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/pickle_memo.h"

#include "base/error.h"
#include "base/memory.h"
#include "format/pickle.h"
#include "format/pickle_opcodes.h"

static void note_fetch(struct pickle_memo *memo, uint64_t number)
{
    if (number / 64 < memo->words)
        memo->fetched[number / 64] |= UINT64_C(1) << number % 64;
}

/* Stops quietly at whatever the reader will refuse. The frequent opcodes have branches of their
 * own, which a processor foresees, where it would have to wait for a table. */
static void mark_fetched(struct pickle_memo *memo, const unsigned char *bytes, size_t size)
{
    const unsigned char *end = bytes + size;
    const unsigned char *at = bytes;
    while (at != NULL && at < end && *at != OP_STOP) {
        if (pickle_opcode_forms[*at].size == 1) {
            at += 1;
        } else if (*at == OP_LONG_BINGET && end - at >= 5) {
            note_fetch(memo, pickle_number(at + 1, 4));
            at += 5;
        } else if (*at == OP_BINGET && end - at >= 2) {
            note_fetch(memo, at[1]);
            at += 2;
        } else {
            at = pickle_opcode_skip(at, end);
        }
    }
}

/* Counts the fetched numbers in front of each word, up to the last one that has any. */
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
        count += (uint32_t)__builtin_popcountll(memo->fetched[word]);
    }
    memo->values = memory_allocate_zeroed(count, sizeof *memo->values);
    if (memo->values == NULL)
        return error_no_memory(count * sizeof *memo->values, "the memo of a pickle");
    return DCP_OK;
}

dcp_status pickle_memo_prepare(struct pickle_memo *memo, const unsigned char *bytes, size_t size)
{
    /* Storing takes at least a byte, so that no honest number reaches the size of the input. */
    size_t words = size / 64 + 1;
    *memo = (struct pickle_memo){.words = words};
    memo->fetched = memory_allocate_zeroed(words, sizeof *memo->fetched);
    if (memo->fetched == NULL)
        return error_no_memory(words * sizeof *memo->fetched, "the memo of a pickle");
    mark_fetched(memo, bytes, size);
    dcp_status status = count_fetched(memo);
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
