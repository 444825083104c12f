/* SPDX-License-Identifier: BSD-3-Clause */
/* Every file cut, extended, or with a stretch of other bytes in it: test_corrupt_cuts [PER_FILE].
 * PER_FILE places of each file are tried; 0: every one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "samples.h"
#include "storage/scratch.h"

static size_t per_file = 60;

typedef void damage_function(const struct checkpoint_sample *sample, size_t file, size_t at);

/* In ours, footers answer for what the metadata says. */
static bool is_covered(const struct checkpoint_sample *sample, const struct sample_file *file)
{
    return sample->ours || strstr(file->name, ".distcp") || strstr(file->name, ".pt");
}

static size_t shard_count(const struct checkpoint_sample *sample)
{
    size_t count = 0;

    for (size_t i = 0; i < sample->file_count; i++)
        count += strstr(sample->files[i].name, ".distcp") != NULL;
    return count;
}

/* Without its checksum .metadata says the same, as PyTorch would write it. */
static bool cuts_checksum_off(const struct sample_file *file, size_t at)
{
    return strcmp(file->name, ".metadata") == 0 && at + 16 == file->size;
}

/* Whatever is missing of a file of ours must be found; but an only file that ends just where its
 * footer began looks as PyTorch's do. */
static void cut(const struct checkpoint_sample *sample, size_t number, size_t at)
{
    static const struct sample_file *without_footer;
    const struct sample_file *file = &sample->files[number];
    char what[200];

    snprintf(what, sizeof what, "%s cut", file->name);
    checkpoint_sample_write(sample, number, file->bytes, at);
    struct damage_report report =
        checkpoint_sample_examine(sample, what, at, is_covered(sample, file));
    if (!sample->ours || report.faults > 0 || strcmp(file->name, "metadata.json") == 0 ||
        cuts_checksum_off(file, at))
        return;
    if (shard_count(sample) > 1 || report.wrong > 0 || without_footer == file)
        fail_msg("%s: %s at %zu: not found", sample->title, what, at);
    without_footer = file;
}

static void extend(const struct checkpoint_sample *sample, size_t number, size_t at)
{
    const struct sample_file *file = &sample->files[number];
    unsigned char *longer = malloc(2 * file->size + 1);
    char what[200];

    snprintf(what, sizeof what, "%s with its beginning behind it", file->name);
    memcpy(longer, file->bytes, file->size);
    memcpy(longer + file->size, file->bytes, at);
    checkpoint_sample_write(sample, number, longer, file->size + at);
    checkpoint_sample_examine(sample, what, at, is_covered(sample, file));
    free(longer);
}

/* What a lost sector leaves. */
static void zero(const struct checkpoint_sample *sample, size_t number, size_t at)
{
    const struct sample_file *file = &sample->files[number];
    size_t length = file->size - at < 512 ? file->size - at : 512;
    unsigned char *copy = malloc(file->size + 1);
    char what[200];

    snprintf(what, sizeof what, "%s with 512 zero bytes", file->name);
    memcpy(copy, file->bytes, file->size);
    memset(copy + at, 0, length);
    checkpoint_sample_write(sample, number, copy, file->size);
    checkpoint_sample_examine(sample, what, at, sample->ours);
    free(copy);
}

/* Eight bytes of ones, where they may be a count, a length or an offset. */
static void fill(const struct checkpoint_sample *sample, size_t number, size_t at)
{
    const struct sample_file *file = &sample->files[number];
    size_t length = file->size - at < 8 ? file->size - at : 8;
    unsigned char *copy = malloc(file->size + 1);
    char what[200];

    snprintf(what, sizeof what, "%s with 8 bytes of ones", file->name);
    memcpy(copy, file->bytes, file->size);
    memset(copy + at, 0xff, length);
    checkpoint_sample_write(sample, number, copy, file->size);
    checkpoint_sample_examine(sample, what, at, is_covered(sample, file));
    free(copy);
}

static void damage_everywhere(const char *scratch, damage_function *damage)
{
    for (int number = 0; number < SAMPLE_COUNT; number++) {
        struct checkpoint_sample sample;
        if (!checkpoint_sample_make(&sample, number, scratch))
            continue;
        for (size_t i = 0; i < sample.file_count; i++) {
            size_t size = sample.files[i].size;
            size_t step = per_file == 0 ? 1 : 1 + size / per_file;
            for (size_t at = 0; at < size; at += step)
                damage(&sample, i, at);
            checkpoint_sample_write(&sample, i, sample.files[i].bytes, size);
        }
        checkpoint_sample_free(&sample);
    }
}

static void cut_files(void **state)
{
    damage_everywhere(*state, cut);
}

static void longer_files(void **state)
{
    damage_everywhere(*state, extend);
}

static void zeroed_sectors(void **state)
{
    damage_everywhere(*state, zero);
}

static void filled_fields(void **state)
{
    damage_everywhere(*state, fill);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, scratch_setup, scratch_teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(cut_files),
        TEST(longer_files),
        TEST(zeroed_sectors),
        TEST(filled_fields),
    };

    if (argc > 1)
        per_file = strtoul(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
