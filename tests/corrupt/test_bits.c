/* SPDX-License-Identifier: BSD-3-Clause */
/* Single bits of every file flipped: test_corrupt_bits [PER_FILE]. PER_FILE bytes of each file have
 * a bit flipped; 0: every bit of every file. */
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

static size_t per_file = 150;

static void flip(const struct checkpoint_sample *sample, size_t number, size_t bit)
{
    const struct sample_file *file = &sample->files[number];
    bool unchecked = strstr(file->name, ".json") != NULL;
    /* In ours, footers answer for what the metadata says. */
    bool covered = sample->ours || strstr(file->name, ".distcp") || strstr(file->name, ".pt");
    char what[200];

    snprintf(what, sizeof what, "a flipped bit of %s", file->name);
    file->bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    checkpoint_sample_write(sample, number, file->bytes, file->size);
    struct damage_report report = checkpoint_sample_examine(sample, what, bit, covered);
    if (sample->ours && !unchecked && report.faults == 0)
        fail_msg("%s: %s at %zu: not found", sample->title, what, bit);
    file->bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
}

static void flipped_bits(void **state)
{
    for (int number = 0; number < SAMPLE_COUNT; number++) {
        struct checkpoint_sample sample;
        if (!checkpoint_sample_make(&sample, number, *state))
            continue;
        for (size_t i = 0; i < sample.file_count; i++) {
            size_t bits = sample.files[i].size * 8;
            size_t step = per_file == 0 ? 1 : 1 + bits / per_file;
            for (size_t bit = 0; bit < bits; bit += step)
                flip(&sample, i, bit);
            checkpoint_sample_write(&sample, i, sample.files[i].bytes, sample.files[i].size);
        }
        checkpoint_sample_free(&sample);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(flipped_bits, scratch_setup, scratch_teardown),
    };

    if (argc > 1)
        per_file = strtoul(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
