/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/pickle_memo.h"

#include "base/error.h"
#include "base/memory.h"
#include "format/pickle.h"
#include "format/pickle_opcodes.h"

/* Stops quietly at whatever the reader will refuse. */
static void mark_fetched(struct pickle_memo *memo, const unsigned char *bytes, size_t size)
{
    const unsigned char *end = bytes + size;
    const unsigned char *at = bytes;
    while (at != NULL && at < end && *at != OP_STOP) {
        const unsigned char *next = pickle_opcode_skip(at, end);
        if (next != NULL && (*at == OP_BINGET || *at == OP_LONG_BINGET)) {
            uint64_t number = pickle_number(at + 1, *at == OP_BINGET ? 1 : 4);
            if (number / 64 < memo->words)
                memo->fetched[number / 64] |= UINT64_C(1) << number % 64;
        }
        at = next;
    }
}

dcp_status pickle_memo_prepare(struct pickle_memo *memo, const unsigned char *bytes, size_t size)
{
    /* Storing takes at least a byte, so that no honest number reaches the size of the input. */
    size_t words = size / 64 + 1;
    *memo = (struct pickle_memo){.words = words};
    memo->fetched = memory_allocate_zeroed(words, sizeof *memo->fetched);
    memo->before = memory_allocate_array(words, sizeof *memo->before);
    if (memo->fetched == NULL || memo->before == NULL) {
        pickle_memo_free(memo);
        return error_no_memory(words * 12, "the memo of a pickle");
    }
    mark_fetched(memo, bytes, size);

    uint32_t count = 0;
    for (size_t word = 0; word < words; word++) {
        memo->before[word] = count;
        count += (uint32_t)__builtin_popcountll(memo->fetched[word]);
    }
    memo->values = memory_allocate_zeroed(count, sizeof *memo->values);
    if (memo->values == NULL) {
        pickle_memo_free(memo);
        return error_no_memory(count * sizeof *memo->values, "the memo of a pickle");
    }
    return DCP_OK;
}

void pickle_memo_free(struct pickle_memo *memo)
{
    memory_release(memo->fetched);
    memory_release(memo->before);
    memory_release(memo->values);
    *memo = (struct pickle_memo){0};
}
