/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that are missing, in each other's place, of another checkpoint, or no files at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "samples.h"
#include "storage/scratch.h"

static void remove_anything(const char *path)
{
    if (unlink(path) != 0 && errno != ENOENT)
        assert_int_equal(rmdir(path), 0);
}

static void make_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int descriptor = socket(AF_UNIX, SOCK_STREAM, 0);

    assert_true(descriptor >= 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    (void)bind(descriptor, (struct sockaddr *)&address, sizeof address);
    close(descriptor);
}

static const char *const stand_ins[] = {"nothing",
                                        "an empty file",
                                        "a directory",
                                        "a FIFO",
                                        "a socket",
                                        "a link outside",
                                        "a link to itself",
                                        "a link to nothing",
                                        "a link to /dev/zero",
                                        "noise",
                                        "JSON that is not"};

enum { STAND_IN_COUNT = sizeof stand_ins / sizeof *stand_ins };

static void put_in_place(const struct checkpoint_sample *sample, const struct sample_file *file,
                         int stand_in, const char *scratch)
{
    char *path = scratch_path(sample->directory, file->name);
    char *outside = scratch_path(scratch, "outside");
    unsigned char noise[3000];

    scratch_write(scratch, "outside", file->bytes, file->size);
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (unsigned char)(i * i * 2654435761u >> 13);
    remove_anything(path);
    switch (stand_in) {
    case 0:
        break;
    case 1:
        scratch_write(sample->directory, file->name, "", 0);
        break;
    case 2:
        assert_int_equal(mkdir(path, 0777), 0);
        break;
    case 3:
        assert_int_equal(mkfifo(path, 0666), 0);
        break;
    case 4:
        make_socket(path);
        break;
    case 5:
        assert_int_equal(symlink(outside, path), 0);
        break;
    case 6:
        assert_int_equal(symlink(path, path), 0);
        break;
    case 7:
        assert_int_equal(symlink("nowhere", path), 0);
        break;
    case 8:
        assert_int_equal(symlink("/dev/zero", path), 0);
        break;
    case 9:
        scratch_write(sample->directory, file->name, noise, sizeof noise);
        break;
    default:
        scratch_write(sample->directory, file->name, "{\"a\": [1, 2, {\"b\"", 17);
    }
    free(outside);
    free(path);
}

static void files_that_are_none(void **state)
{
    for (int number = 0; number < SAMPLE_COUNT; number++) {
        struct checkpoint_sample sample;
        if (!checkpoint_sample_make(&sample, number, *state))
            continue;
        for (size_t i = 0; i < sample.file_count; i++) {
            char *path = scratch_path(sample.directory, sample.files[i].name);
            for (int stand_in = 0; stand_in < STAND_IN_COUNT; stand_in++) {
                put_in_place(&sample, &sample.files[i], stand_in, *state);
                /* Nothing tells how many files a directory of safetensors must have. */
                checkpoint_sample_examine(&sample, stand_ins[stand_in], i,
                                          !strstr(sample.title, "safetensors"));
                remove_anything(path);
            }
            checkpoint_sample_write(&sample, i, sample.files[i].bytes, sample.files[i].size);
            free(path);
        }
        checkpoint_sample_free(&sample);
    }
}

/* The files of one checkpoint in each other's place. */
static void exchanged_files(void **state)
{
    for (int number = 0; number < SAMPLE_COUNT; number++) {
        struct checkpoint_sample sample;
        if (!checkpoint_sample_make(&sample, number, *state))
            continue;
        for (size_t i = 0; i < sample.file_count; i++) {
            for (size_t k = 0; k < sample.file_count; k++) {
                const struct sample_file *a = &sample.files[i], *b = &sample.files[k];
                bool covered = strstr(a->name, ".distcp") && sample.ours;
                checkpoint_sample_write(&sample, i, b->bytes, b->size);
                checkpoint_sample_write(&sample, k, a->bytes, a->size);
                struct damage_report report =
                    checkpoint_sample_examine(&sample, a->name, k, covered);
                if (sample.ours && i != k && report.faults == 0)
                    fail_msg("%s: %s and %s exchanged: not found", sample.title, a->name, b->name);
                checkpoint_sample_write(&sample, i, a->bytes, a->size);
                checkpoint_sample_write(&sample, k, b->bytes, b->size);
            }
        }
        checkpoint_sample_free(&sample);
    }
}

/* A file of another save of the same state. */
static void files_of_another_save(void **state)
{
    char *other_place = scratch_path(*state, "other");

    assert_int_equal(mkdir(other_place, 0777), 0);
    for (int number = 0; number < SAMPLE_COUNT; number++) {
        struct checkpoint_sample sample, other;
        if (!checkpoint_sample_make(&sample, number, *state))
            continue;
        if (sample.ours && checkpoint_sample_make(&other, number, other_place)) {
            for (size_t i = 0; i < sample.file_count; i++) {
                const struct sample_file *file = &sample.files[i];
                for (size_t k = 0; k < other.file_count; k++)
                    if (strcmp(other.files[k].name, file->name) == 0)
                        checkpoint_sample_write(&sample, i, other.files[k].bytes,
                                                other.files[k].size);
                struct damage_report report =
                    checkpoint_sample_examine(&sample, file->name, i, true);
                bool empty = file->size == 0 || strcmp(file->name, "metadata.json") == 0;
                if (report.faults == 0 && !empty)
                    fail_msg("%s: %s of another save: not found", sample.title, file->name);
                checkpoint_sample_write(&sample, i, file->bytes, file->size);
            }
            checkpoint_sample_free(&other);
        }
        checkpoint_sample_free(&sample);
    }
    free(other_place);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(files_that_are_none),
        TEST(exchanged_files),
        TEST(files_of_another_save),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
