/* SPDX-License-Identifier: BSD-3-Clause */
/* Sessions over the simulated file system: whatever the last operation before a crash was and
 * whatever a power cut leaves of it, the old checkpoint is there or the new one; and every
 * operation may fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "fault/io_ways.h"
#include "fault/simulated_file_system.h"
#include "fault/slow_clock.h"
#include "sample.h"
#include "storage/verify/verify.h"

#define PATH "run/c"

/* Two checkpoints that differ in the number of their names. */
struct samples {
    struct sample old, new;
};

static void make_samples(struct samples *samples, uint32_t files)
{
    sample_make(&samples->old, &(struct sample_options){
                                   .seed = 1, .ranks = 2, .files = 1, .tensors = 2, .objects = 1});
    sample_make(&samples->new,
                &(struct sample_options){
                    .seed = 2, .ranks = 1, .files = files, .tensors = 3, .objects = 1});
}

static void free_samples(struct samples *samples)
{
    sample_free(&samples->old);
    sample_free(&samples->new);
}

static struct simulated_file_system *disk_with(const struct sample *sample)
{
    struct simulated_file_system *fs = simulated_new();
    if (sample)
        assert_int_equal(
            sample_save(sample, simulated_storage(fs), PATH, DCP_OVERWRITE_REFUSE, true), DCP_OK);
    struct simulated_file_system *durable = simulated_copy(fs);
    simulated_free(fs);
    return durable;
}

/* Which of the two is there, whole; NULL for none. */
static const struct sample *find(const struct samples *samples, struct simulated_file_system *fs,
                                 const char *when)
{
    struct metadata metadata;
    struct shard_reader *reader;
    enum storage_form form;
    dcp_status status =
        storage_read_metadata(simulated_storage(fs), storage_at(PATH), &form, &metadata, &reader);
    size_t names = metadata.count;
    shard_reader_free(reader);
    metadata_free(&metadata);
    if (status == DCP_ERR_NOT_FOUND)
        return NULL;
    const struct sample *found = names == samples->old.tensor_count + samples->old.object_count
                                     ? &samples->old
                                     : &samples->new;
    if (status == DCP_OK)
        status = sample_read(found, simulated_storage(fs), PATH, DCP_VERIFY_ALL, 0);
    if (status != DCP_OK)
        fail_msg("%s: %s", when, dcp_error_message());
    return found;
}

static void check_remainders(const struct samples *samples, const struct sample *before,
                             const struct simulated_file_system *crashed, long n)
{
    for (size_t i = 0; i < simulated_remainder_count(crashed, 10); i++) {
        char remainder[256], when[512];
        struct simulated_file_system *left = simulated_after_power_cut(crashed, i);
        simulated_remainder_name(crashed, i, remainder, sizeof remainder);
        snprintf(when, sizeof when, "crash after operation %ld (%s), %s", n,
                 simulated_operation_name(crashed, n), remainder);
        const struct sample *found = find(samples, left, when);
        if (found != before && found != &samples->new)
            fail_msg("%s: the old checkpoint is gone", when);
        /* The next save finds its way through the debris. */
        if (sample_save(&samples->new, simulated_storage(left), PATH, DCP_OVERWRITE_REPLACE,
                        true) != DCP_OK)
            fail_msg("%s: %s", when, dcp_error_message());
        assert_ptr_equal(find(samples, left, when), &samples->new);
        simulated_free(left);
    }
}

static void crash_everywhere(const struct samples *samples, const struct sample *before)
{
    struct simulated_file_system *disk = disk_with(before);
    for (long n = 1;; n += TRIAL_STEP) {
        struct simulated_file_system *fs = simulated_copy(disk);
        simulated_set_fault(fs, &(struct simulated_fault){.operation = n, .kind = SIMULATED_CRASH});
        dcp_status status =
            sample_save(&samples->new, simulated_storage(fs), PATH, DCP_OVERWRITE_REPLACE, true);
        assert_null(simulated_early_commit(fs));
        bool reached = simulated_fault_reached(fs);
        /* What was said to be saved stays. */
        check_remainders(samples, status == DCP_OK ? &samples->new : before, fs, n);
        simulated_free(fs);
        if (!reached) {
            assert_int_equal(status, DCP_OK);
            break;
        }
    }
    simulated_free(disk);
}

static void a_crash_in_a_first_save_leaves_all_or_nothing(void **state)
{
    (void)state;
    struct samples samples;
    make_samples(&samples, 2);
    for (size_t i = 0; i < IO_WAY_COUNT; i++) {
        samples.new.io = io_ways[i];
        crash_everywhere(&samples, NULL);
    }
    free_samples(&samples);
}

static void a_crash_in_an_overwrite_leaves_the_old_or_the_new(void **state)
{
    (void)state;
    struct samples samples;
    make_samples(&samples, 2);
    for (size_t i = 0; i < IO_WAY_COUNT; i++) {
        samples.new.io = io_ways[i];
        crash_everywhere(&samples, &samples.old);
    }
    free_samples(&samples);
}

static void fail_everywhere(const struct samples *samples, const struct sample *before,
                            bool from_then_on)
{
    struct simulated_file_system *disk = disk_with(before);
    for (long n = 1;; n += TRIAL_STEP) {
        struct simulated_file_system *fs = simulated_copy(disk);
        simulated_set_fault(fs, &(struct simulated_fault){.operation = n,
                                                          .kind = SIMULATED_ERROR,
                                                          .error_number = ENOSPC,
                                                          .from_then_on = from_then_on});
        dcp_status status =
            sample_save(&samples->new, simulated_storage(fs), PATH, DCP_OVERWRITE_REPLACE, true);
        bool reached = simulated_fault_reached(fs);
        assert_int_equal(simulated_open_descriptors(fs), 0);
        struct simulated_file_system *after = simulated_copy(fs);
        const struct sample *found = find(samples, after, simulated_operation_name(fs, n));
        if (status == DCP_OK ? found != &samples->new : found != before && found != &samples->new)
            fail_msg("operation %ld (%s): the wrong checkpoint", n,
                     simulated_operation_name(fs, n));
        simulated_free(after);
        simulated_free(fs);
        if (!reached)
            break;
    }
    simulated_free(disk);
}

static void a_failed_operation_leaves_the_old_or_the_new(void **state)
{
    (void)state;
    struct samples samples;
    make_samples(&samples, 2);
    for (int round = 0; round < 4 * IO_WAY_COUNT; round++) {
        samples.new.io = io_ways[round / 4];
        fail_everywhere(&samples, round % 2 ? &samples.old : NULL, round % 4 >= 2);
    }
    free_samples(&samples);
}

/* What makes names and small files durable is waited for on threads then. The name of an only file
 * is durable with its bytes. */
static void a_slow_disk_is_no_different(void **state)
{
    (void)state;
    slow_clock_install();
    for (uint32_t files = 1; files <= 2; files++) {
        struct samples samples;
        make_samples(&samples, files);
        for (int over = 0; over < 2; over++) {
            const struct sample *before = over ? &samples.old : NULL;
            crash_everywhere(&samples, before);
            fail_everywhere(&samples, before, false);
            fail_everywhere(&samples, before, true);
        }
        free_samples(&samples);
    }
    slow_clock_remove();
}

/* Whether anything follows from its result: hints may fail. */
static bool counts(const char *operation)
{
    return strncmp(operation, "close", 5) != 0 && strncmp(operation, "cached", 6) != 0 &&
           strncmp(operation, "will_need", 9) != 0;
}

/* Reading and verifying end in an error or a fault wherever an operation fails. */
static void a_failed_operation_is_no_result(void **state)
{
    (void)state;
    struct samples samples;
    make_samples(&samples, 2);
    struct simulated_file_system *disk = disk_with(&samples.old);
    for (long n = 1;; n += TRIAL_STEP) {
        struct simulated_file_system *fs = simulated_copy(disk);
        uint64_t faults = 0;
        struct simulated_fault fault = {
            .operation = n, .kind = SIMULATED_ERROR, .error_number = EIO};
        simulated_set_fault(fs, &fault);
        dcp_status status =
            sample_read(&samples.old, simulated_storage(fs), PATH, DCP_VERIFY_ALL, 1);
        bool reached = simulated_fault_reached(fs);
        assert_int_equal(simulated_open_descriptors(fs), 0);
        const char *name = simulated_operation_name(fs, n);
        if (reached && status == DCP_OK && counts(name))
            fail_msg("operation %ld (%s) failed unnoticed", n, name);
        simulated_set_fault(fs, &fault);
        status = storage_verify(simulated_storage(fs), storage_at(PATH), NULL, NULL, NULL, &faults);
        name = simulated_operation_name(fs, n);
        if (simulated_fault_reached(fs) && status == DCP_OK && faults == 0 && counts(name))
            fail_msg("operation %ld (%s) failed unnoticed", n, name);
        reached = reached || simulated_fault_reached(fs);
        simulated_free(fs);
        if (!reached)
            break;
    }
    simulated_free(disk);
    free_samples(&samples);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crash_in_a_first_save_leaves_all_or_nothing),
        cmocka_unit_test(a_crash_in_an_overwrite_leaves_the_old_or_the_new),
        cmocka_unit_test(a_failed_operation_leaves_the_old_or_the_new),
        cmocka_unit_test(a_slow_disk_is_no_different),
        cmocka_unit_test(a_failed_operation_is_no_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
