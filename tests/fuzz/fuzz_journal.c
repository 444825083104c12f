/* SPDX-License-Identifier: BSD-3-Clause */
/* The journal of a conversion that is to be continued. Input: a byte of flags, then the file. With
 * the first flag, hashes of records are made right, so that what they say is believed. What is read
 * lies in the file, and what is noted behind it is read again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/checksum.h"
#include "convert/convert_journal.h"
#include "fuzz_target.h"

enum { HEAD_SIZE = sizeof CONVERT_JOURNAL_HEAD - 1 + 8, RECORD_MIN = 32, FINGERPRINT = 77 };

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void make_right(unsigned char *file, size_t size)
{
    if (size < HEAD_SIZE)
        return;
    memcpy(file, CONVERT_JOURNAL_HEAD, sizeof CONVERT_JOURNAL_HEAD - 1);
    store_u64(file + HEAD_SIZE - 8, FINGERPRINT);
    for (size_t at = HEAD_SIZE; size - at >= RECORD_MIN;) {
        uint64_t added = load_u64(file + at + 16);
        if (added > (size - at - RECORD_MIN) / 4)
            return;
        size_t hashed = RECORD_MIN - 8 + 4 * (size_t)added;
        store_u64(file + at + hashed, xxh3_64(file + at, hashed));
        at += hashed + 8;
    }
}

static bool write_journal(const char *directory, const unsigned char *file, size_t size)
{
    char path[96];
    snprintf(path, sizeof path, "%s/x.partial", directory);
    require(mkdir(path, 0700) == 0);
    snprintf(path, sizeof path, "%s/x.partial/journal", directory);
    FILE *out = fopen(path, "wb");
    bool written = out && fwrite(file, 1, size, out) == size;
    return out && fclose(out) == 0 && written;
}

/* Reads it, goes on, and reads that. */
static void read_and_continue(const char *target, size_t size)
{
    struct convert_journal journal, again;
    const uint32_t numbers[2] = {1, 2};
    if (convert_journal_open(&journal, FINGERPRINT, target) == DCP_OK) {
        uint64_t blocks = journal.blocks, bytes = journal.bytes;
        uint32_t last = blocks > 0 ? journal.numbers[blocks - 1] : 0;
        require(journal.end <= size || (size < HEAD_SIZE && blocks == 0));
        require(blocks <= size / 4 && blocks <= journal.capacity && bytes <= INT64_MAX);
        require(journal.kept == bytes);
        require(convert_journal_note(&journal, blocks + 2, 0, numbers) == DCP_OK);
        convert_journal_close(&journal);
        require(convert_journal_open(&again, FINGERPRINT, target) == DCP_OK);
        require(again.blocks == blocks + 2 && again.bytes == bytes && again.kept == bytes);
        require(blocks == 0 || again.numbers[blocks - 1] == last);
        require(again.numbers[blocks] == 1 && again.numbers[blocks + 1] == 2);
        again.committed = true;
        convert_journal_close(&again);
    } else {
        convert_journal_close(&journal);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char directory[] = "/tmp/fuzz_journal.XXXXXX", path[96];
    if (size < 1)
        return 0;
    unsigned char *file = malloc(size);
    require(file != NULL && mkdtemp(directory) != NULL);
    memcpy(file, data + 1, size - 1);
    if (data[0] & 1)
        make_right(file, size - 1);
    require(write_journal(directory, file, size - 1));
    snprintf(path, sizeof path, "%s/x", directory);
    read_and_continue(path, size - 1);
    snprintf(path, sizeof path, "%s/x.partial/journal", directory);
    unlink(path);
    snprintf(path, sizeof path, "%s/x.partial", directory);
    rmdir(path);
    require(rmdir(directory) == 0);
    free(file);
    return 0;
}
