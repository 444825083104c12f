/* SPDX-License-Identifier: BSD-3-Clause */
/* The number in torch.save's last record. Nothing reads it; it is computed so that our files equal
 * PyTorch's to the last byte. It depends on the C++ library that PyTorch is built with: it combines
 * std::hash of each name in the iteration order of an unordered_set. */
#include <string.h>

#include "format/streams/stream_records.h"

#define BUCKETS                                                                                    \
    13u /* buckets of a set of up to 13 names; of a larger set, only so many names count */

static uint64_t combine(uint64_t seed, uint64_t value)
{
    return seed ^ (value + 0x9e3779b9u + (seed << 6) + (seed >> 2));
}

/* Murmur2 with 64 bits, as libstdc++ hashes strings. */
static uint64_t hash_name(const char *name)
{
    const uint64_t factor = 0xc6a4a7935bd1e995u;
    size_t length = strlen(name);
    uint64_t hash = 0xc70f6907u ^ (length * factor);
    size_t position = 0;
    for (; position + 8 <= length; position += 8) {
        uint64_t word = load_u64(name + position) * factor;
        hash = (hash ^ ((word ^ (word >> 47)) * factor)) * factor;
    }
    if (position < length) {
        unsigned char rest[8] = {0};
        memcpy(rest, name + position, length - position);
        hash = (hash ^ load_u64(rest)) * factor;
    }
    hash = (hash ^ (hash >> 47)) * factor;
    return hash ^ (hash >> 47);
}

/* A new name goes in front of the first one of its bucket, or else in front of all. */
uint64_t stream_names_hash(const struct stream_record *records, size_t count)
{
    uint64_t order[BUCKETS];
    count = count < BUCKETS ? count : BUCKETS;
    for (size_t i = 0; i < count; i++) {
        uint64_t hash = hash_name(records[i].name);
        size_t at = 0;
        while (at < i && order[at] % BUCKETS != hash % BUCKETS)
            at++;
        if (at == i)
            at = 0;
        memmove(order + at + 1, order + at, (i - at) * sizeof *order);
        order[at] = hash;
    }
    uint64_t seed = 0;
    for (size_t i = 0; i < count; i++)
        seed = combine(seed, order[i]);
    return seed;
}

/* All digits of 64 bits, with zeros in front. */
static void put_digits(uint64_t value, char *digits)
{
    for (size_t i = SERIALIZATION_ID_SIZE / 2; i-- > 0; value /= 10)
        digits[i] = (char)('0' + value % 10);
}

void stream_serialization_id(const struct stream_record *records, size_t count, uint64_t names_hash,
                             char id[SERIALIZATION_ID_SIZE + 1])
{
    uint64_t contents = 0;
    for (size_t i = 0; i < count; i++)
        if (records[i].size != 0)
            contents = combine(contents, records[i].crc);
    put_digits(names_hash, id);
    put_digits(contents, id + SERIALIZATION_ID_SIZE / 2);
    id[SERIALIZATION_ID_SIZE] = '\0';
}
