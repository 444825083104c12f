/* SPDX-License-Identifier: BSD-3-Clause */
/* A checkpoint is copied as it is, and is none at the other place before all of it is right. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "checkpoint/ranks.h"
#include "fault/failing_allocator.h"
#include "run/mirror_scene.h"
#include "run/run_scene.h"
#include "storage/scratch.h"
#include "storages/awkward_storage.h"

/* Saves one of several files, with something beside them. */
static const char *make_source(void **state)
{
    const char *source = path_in(state, "source");
    scene_save(NULL, source);
    scratch_write(source, "train_state.pt", "numbers", 7);
    scratch_write(source, ".dcp_owner.9", "dead", 4);
    scratch_write(source, "__7_0.g9.distcp", "of a dead save", 14);
    mkdir(scene_in(source, "tokenizer"), 0777);
    scratch_write(scene_in(source, "tokenizer"), "vocab.json", "{}", 2);
    return source;
}

static void expect_same(const char *source, const char *copy)
{
    static const char *const names[] = {".metadata",    "metadata.json",  "__0_0.distcp",
                                        "__0_1.distcp", "train_state.pt", "tokenizer/vocab.json"};
    uint64_t faults = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t size, copy_size;
        unsigned char *bytes = scratch_read(source, names[i], &size);
        unsigned char *copied = scratch_read(copy, names[i], &copy_size);
        assert_int_equal(size, copy_size);
        assert_memory_equal(bytes, copied, size);
        free(bytes);
        free(copied);
    }
    must(dcp_verify(copy, NULL, NULL, NULL, &faults));
    assert_int_equal(faults, 0);
}

static void all_of_a_checkpoint_is_copied_and_nothing_else(void **state)
{
    const char *source = make_source(state), *copy = path_in(state, "copy/deep");
    dcp_copied copied;
    must(dcp_checkpoint_copy(source, copy, NULL, &copied));
    expect_same(source, copy);
    assert_int_equal(copied.files, 6);
    assert_int_equal(copied.kept_files, 0);
    assert_false(copied.was_whole);
    assert_false(scratch_exists(copy, ".dcp_owner.9"));
    assert_false(scratch_exists(copy, "__7_0.g9.distcp"));
    must(dcp_checkpoint_copy(source, copy, NULL, &copied));
    assert_true(copied.was_whole);
    assert_int_equal(copied.files, 0);
}

static void a_dry_run_writes_nothing(void **state)
{
    const char *source = make_source(state), *copy = path_in(state, "copy");
    const dcp_copy_options options = {.dry_run = true};
    dcp_copied copied;
    must(dcp_checkpoint_copy(source, copy, &options, &copied));
    assert_int_equal(copied.files, 5);
    assert_int_not_equal(access(copy, F_OK), 0);
}

static void memory_and_an_object_store_take_copies(void **state)
{
    const char *source = make_source(state), *back = path_in(state, "back");
    struct awkward_storage bare;
    dcp_storage *memory;
    must(dcp_storage_memory_new(&memory));
    const dcp_copy_options there = {.destination = memory};
    must(dcp_checkpoint_copy(source, "run/step_1", &there, NULL));
    awkward_storage_init(&bare, memory, &(struct awkward_manner){.bare = true});
    const dcp_copy_options across = {.source = memory, .destination = &bare.table};
    must(dcp_checkpoint_copy("run/step_1", "elsewhere", &across, NULL));
    const dcp_copy_options here = {.source = &bare.table};
    must(dcp_checkpoint_copy("elsewhere", back, &here, NULL));
    expect_same(source, back);
    assert_int_equal(awkward_storage_open_count(&bare), 0);
    awkward_storage_destroy(&bare);
    dcp_storage_memory_free(memory);
}

static void every_call_that_fails_leaves_no_checkpoint_and_is_made_good(void **state)
{
    const char *source = make_source(state);
    struct awkward_storage storage;
    for (long n = 1;; n++) {
        dcp_storage *memory;
        dcp_checkpoint *opened = NULL;
        must(dcp_storage_memory_new(&memory));
        awkward_storage_init(&storage, memory, &(struct awkward_manner){0});
        awkward_storage_fail(
            &storage, &(struct awkward_fault){.call = AWKWARD_ANY, .n = n, .status = DCP_ERR_IO});
        const dcp_copy_options options = {.destination = &storage.table};
        const dcp_open_options open = {.storage = memory};
        dcp_status status = dcp_checkpoint_copy(source, "copy", &options, NULL);
        bool struck = awkward_storage_struck(&storage) != AWKWARD_ANY;
        awkward_storage_fail(&storage, NULL);
        assert_int_equal(awkward_storage_open_count(&storage), 0);
        if (status != DCP_OK && dcp_checkpoint_open("copy", &open, &opened) == DCP_OK) {
            uint64_t faults = 0;
            must(dcp_verify("copy", &open, NULL, NULL, &faults));
            assert_int_equal(faults, 0);
            dcp_checkpoint_close(opened);
        }
        must(dcp_checkpoint_copy(source, "copy", &options, NULL));
        must(dcp_checkpoint_open("copy", &open, &opened));
        dcp_checkpoint_close(opened);
        awkward_storage_destroy(&storage);
        dcp_storage_memory_free(memory);
        if (!struck)
            break;
    }
}

static void every_allocation_may_fail(void **state)
{
    const char *source = make_source(state), *copy = path_in(state, "copy");
    const dcp_copy_options options = {.trust_source = true};
    for (long n = 1;; n++) {
        failing_allocator_install(n, false);
        dcp_status status = dcp_checkpoint_copy(source, copy, &options, NULL);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        if (status != DCP_OK && status != DCP_ERR_NO_MEMORY)
            fail_msg("allocation %ld: %s", n, dcp_error_message());
        if (!reached)
            break;
        if (scratch_exists(copy, ".metadata"))
            expect_same(source, copy);
    }
    expect_same(source, copy);
}

/* ---- interruptions ---- */

static void a_killed_copy_goes_on_without_what_is_whole(void **state)
{
    const char *source = make_source(state), *copy = path_in(state, "copy");
    for (long n = 1; n <= 5; n++) {
        dcp_copied copied;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            const dcp_copy_options dying = {.destination =
                                                far_storage(&(struct far_manner){.exit_write = n})};
            dcp_checkpoint_copy(source, copy, &dying, NULL);
            _exit(1);
        }
        int ended;
        assert_int_equal(waitpid(child, &ended, 0), child);
        assert_int_equal(ended, 0);
        assert_false(scratch_exists(copy, ".metadata"));
        const dcp_copy_options options = {.destination = far_storage(NULL)};
        must(dcp_checkpoint_copy(source, copy, &options, &copied));
        expect_same(source, copy);
        assert_int_equal(copied.kept_files, n - 1);
        assert_int_equal(copied.files, 6 - (n - 1));
        assert_int_equal(far_writes(), 5 - (n - 1));
        must(dcp_checkpoint_remove(copy, NULL, NULL));
        scratch_remove(copy, "train_state.pt");
        scratch_remove(copy, "tokenizer/vocab.json");
    }
}

static bool stop_after(void *context)
{
    int *left = context;
    return (*left)-- <= 0;
}

struct course {
    uint64_t done[2], total[2]; /* of verifying, of copying */
    uint64_t end_at;            /* bytes of copying */
};

static bool follow(void *context, const dcp_progress *progress)
{
    struct course *course = context;
    int which = progress->phase == DCP_PHASE_WRITING;
    assert_true(which || progress->phase == DCP_PHASE_READING);
    assert_true(progress->bytes_done >= course->done[which]);
    assert_true(progress->bytes_done <= progress->bytes_total);
    course->done[which] = progress->bytes_done;
    course->total[which] = progress->bytes_total;
    return !which || progress->bytes_done < course->end_at;
}

static void a_copy_tells_how_far_it_is(void **state)
{
    const char *source = make_source(state), *copy = path_in(state, "copy");
    struct course course = {.end_at = UINT64_MAX};
    dcp_copy_options options = {
        .bytes_per_second = 100000, .progress = follow, .progress_context = &course};
    struct stat shard;
    dcp_copied copied;
    must(dcp_checkpoint_copy(source, copy, &options, &copied));
    assert_true(course.total[0] > 0 && course.done[0] == course.total[0]);
    assert_true(course.total[1] < 2 * copied.bytes && course.total[1] > copied.bytes);
    assert_true(course.done[1] > 0);

    /* A file that is there, and has other bytes, is read in vain. */
    uint64_t total = course.total[1];
    assert_int_equal(stat(scene_in(copy, "__0_0.distcp"), &shard), 0);
    scratch_write(copy, "__0_0.distcp", "x", 1);
    assert_int_equal(truncate(scene_in(copy, "__0_0.distcp"), shard.st_size), 0);
    assert_int_equal(unlink(scene_in(copy, ".metadata")), 0);
    course = (struct course){.end_at = UINT64_MAX};
    must(dcp_checkpoint_copy(source, copy, &options, &copied));
    assert_int_equal(copied.files, 2);
    assert_int_equal(course.total[1], total + 2 * (uint64_t)shard.st_size);

    course = (struct course){.end_at = 1};
    must_fail(dcp_checkpoint_copy(source, path_in(state, "another"), &options, NULL),
              DCP_ERR_CANCELLED, "progress function");
    assert_false(scratch_exists(path_in(state, "another"), ".metadata"));
}

static void a_copy_can_be_stopped(void **state)
{
    const char *source = make_source(state), *copy = path_in(state, "copy");
    int left = 4;
    const dcp_copy_options options = {.stopped = stop_after, .stopped_context = &left};
    must_fail(dcp_checkpoint_copy(source, copy, &options, NULL), DCP_ERR_CANCELLED, "stopped");
    assert_false(scratch_exists(copy, ".metadata"));
}

/* ---- damage ---- */

static void a_bit_that_turns_on_the_way_is_found(void **state)
{
    const char *source = make_source(state), *copy = path_in(state, "copy");
    for (long n = 1; n <= 5; n++) {
        const dcp_copy_options options = {.destination =
                                              far_storage(&(struct far_manner){.flip_write = n})};
        dcp_copied copied;
        must_fail(dcp_checkpoint_copy(source, copy, &options, NULL), DCP_ERR_CHECKSUM,
                  "is not what was copied");
        assert_false(scratch_exists(copy, ".metadata"));
        must(dcp_checkpoint_copy(source, copy, &options, &copied));
        expect_same(source, copy);
        assert_int_equal(copied.kept_files, n - 1);
        must(dcp_checkpoint_remove(copy, NULL, NULL));
        scratch_remove(copy, "train_state.pt");
        scratch_remove(copy, "tokenizer/vocab.json");
    }
}

static void a_damaged_source_is_not_copied(void **state)
{
    const char *source = make_source(state), *copy = path_in(state, "copy");
    scratch_flip(source, "__0_0.distcp", 100, 1);
    must_fail(dcp_checkpoint_copy(source, copy, NULL, NULL), DCP_ERR_CHECKSUM, "is damaged");
    assert_int_not_equal(access(copy, F_OK), 0);
    must_fail(dcp_checkpoint_copy(path_in(state, "none"), copy, NULL, NULL), DCP_ERR_NOT_FOUND,
              "none");
    scratch_remove(source, ".metadata");
    must_fail(dcp_checkpoint_copy(source, copy, NULL, NULL), DCP_ERR_NOT_FOUND, "no .metadata");
}

static void a_copy_that_was_damaged_is_repaired_when_bytes_are_compared(void **state)
{
    const char *source = make_source(state), *copy = path_in(state, "copy");
    const dcp_copy_options compare = {.compare_all = true};
    dcp_copied copied;
    must(dcp_checkpoint_copy(source, copy, NULL, NULL));
    must(dcp_checkpoint_copy(source, copy, &compare, &copied));
    assert_true(copied.was_whole);
    scratch_flip(copy, "__0_1.distcp", 60, 1);
    must(dcp_checkpoint_copy(source, copy, NULL, &copied));
    assert_true(copied.was_whole);
    must(dcp_checkpoint_copy(source, copy, &compare, &copied));
    assert_int_equal(copied.kept_files, 4);
    expect_same(source, copy);
}

static void links_are_refused(void **state)
{
    const char *source = make_source(state), *copy = path_in(state, "copy");
    assert_int_equal(symlink("/etc/hostname", scene_in(source, "name")), 0);
    assert_int_not_equal(dcp_checkpoint_copy(source, copy, NULL, NULL), DCP_OK);
    assert_false(scratch_exists(copy, "name"));
    assert_false(scratch_exists(copy, ".metadata"));
}

/* ---- another checkpoint there ---- */

static void another_checkpoint_is_replaced_only_on_request(void **state)
{
    const char *source = make_source(state), *copy = path_in(state, "copy");
    const dcp_copy_options replace = {.replace = true};
    scene_save(NULL, copy);
    must_fail(dcp_checkpoint_copy(source, copy, NULL, NULL), DCP_ERR_EXISTS, "another checkpoint");
    must(dcp_checkpoint_copy(source, copy, &replace, NULL));
    expect_same(source, copy);
    scene_save(NULL, copy); /* a later generation, of other names */
    must(dcp_checkpoint_copy(source, copy, &replace, NULL));
    expect_same(source, copy);
    assert_false(scratch_exists(copy, "__0_0.g2.distcp"));
}

static void what_is_replaced_goes_before_a_file_of_its_own_does(void **state)
{
    const char *source = make_source(state), *copy = path_in(state, "copy");
    scene_save(NULL, copy);
    const dcp_copy_options options = {.replace = true,
                                      .destination = far_storage(&(struct far_manner){
                                          .fail_write = 1, .fail_status = DCP_ERR_NO_SPACE})};
    must_fail(dcp_checkpoint_copy(source, copy, &options, NULL), DCP_ERR_NO_SPACE, "far place");
    assert_false(scratch_exists(copy, ".metadata"));
}

/* ---- one owner of the destination ---- */

/* Tells the other process once it is asked for the second time, and waits until that one says so.
 */
struct meeting {
    int told[2], go[2], asked;
};

static bool meet(void *context)
{
    struct meeting *meeting = context;
    char byte = 0;
    if (++meeting->asked == 2)
        return write(meeting->told[1], &byte, 1) != 1 || read(meeting->go[0], &byte, 1) != 1;
    return false;
}

static void two_processes_do_not_mix_their_copies(void **state)
{
    const char *source = make_source(state), *copy = path_in(state, "copy");
    const char *other = path_in(state, "other");
    struct meeting meeting = {.asked = 0};
    char byte = 0;
    int ended;
    scene_save(NULL, other);
    assert_int_equal(pipe(meeting.told) | pipe(meeting.go), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const dcp_copy_options slow = {.stopped = meet, .stopped_context = &meeting};
        _exit(dcp_checkpoint_copy(source, copy, &slow, NULL) == DCP_OK ? 0 : 1);
    }
    assert_int_equal(read(meeting.told[0], &byte, 1), 1);
    const dcp_copy_options replace = {.replace = true};
    must_fail(dcp_checkpoint_copy(other, copy, &replace, NULL), DCP_ERR_BUSY, ".dcp_owner");
    must_fail(dcp_checkpoint_remove(copy, NULL, NULL), DCP_ERR_BUSY, ".dcp_owner");
    assert_int_equal(write(meeting.go[1], &byte, 1), 1);
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
    expect_same(source, copy);
    assert_false(scratch_exists(copy, ".dcp_owner"));
    must(dcp_checkpoint_copy(other, copy, &replace, NULL));
    for (int i = 0; i < 2; i++)
        close(meeting.told[i]), close(meeting.go[i]);
}

/* As another process does that takes this one for dead. */
struct rival {
    const char *copy;
    int asked, when;
};

static bool take_over(void *context)
{
    struct rival *rival = context;
    if (rival->asked++ == rival->when)
        scratch_remove(rival->copy, ".dcp_owner");
    return false;
}

static void a_copy_that_was_taken_over_commits_nothing(void **state)
{
    const char *source = make_source(state), *copy = path_in(state, "copy");
    for (int when = 0;; when++) {
        struct rival rival = {.copy = copy, .when = when};
        const dcp_copy_options options = {.stopped = take_over, .stopped_context = &rival};
        dcp_status status = dcp_checkpoint_copy(source, copy, &options, NULL);
        if (status == DCP_OK && when > 0 && rival.asked <= when)
            break;
        assert_int_equal(status, DCP_ERR_BUSY);
        assert_non_null(strstr(dcp_error_message(), "nothing is committed"));
        assert_false(scratch_exists(copy, ".metadata"));
    }
    expect_same(source, copy);
}

static void a_destination_that_cannot_be_made_one_stays_as_it_was(void **state)
{
    const char *source = make_source(state), *copy = path_in(state, "copy");
    scratch_write(source, "__0_0.distcp", "damaged", 7);
    assert_int_not_equal(dcp_checkpoint_copy(source, copy, NULL, NULL), DCP_OK);
    assert_int_not_equal(access(copy, F_OK), 0);
    const dcp_copy_options options = {.takeover_seconds = -1};
    must_fail(dcp_checkpoint_copy(source, copy, &options, NULL), DCP_ERR_ARGUMENT,
              "takeover_seconds");
}

/* ---- large files, which are copied in parts ---- */

enum { PART = 1 << 20, LARGE = 5 * PART + 123, OTHER_FILES = 5 };

static unsigned char *large_bytes(void)
{
    unsigned char *bytes = malloc(LARGE);
    assert_non_null(bytes);
    for (size_t i = 0; i < LARGE; i++)
        bytes[i] = (unsigned char)(i * 2654435761U >> 24);
    return bytes;
}

static const char *make_large_source(void **state)
{
    const char *source = make_source(state);
    unsigned char *bytes = large_bytes();
    scratch_write(source, "A.bin", bytes, LARGE); /* before all others */
    free(bytes);
    return source;
}

static void expect_large(const char *copy)
{
    size_t size;
    unsigned char *bytes = large_bytes(), *copied = scratch_read(copy, "A.bin", &size);
    assert_int_equal(size, LARGE);
    assert_memory_equal(bytes, copied, LARGE);
    free(bytes);
    free(copied);
}

struct copy_call {
    const char *source, *copy;
    const dcp_storage *storage;
    dcp_status status;
};

static void *call_copy(void *argument)
{
    struct copy_call *call = argument;
    const dcp_copy_options options = {.destination = call->storage};
    call->status = dcp_checkpoint_copy(call->source, call->copy, &options, NULL);
    return NULL;
}

static void four_parts_of_a_file_are_under_way(void **state)
{
    const char *source = make_large_source(state), *copy = path_in(state, "copy");
    struct copy_call call = {source, copy, far_storage(&(struct far_manner){.held = true}), 0};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, call_copy, &call), 0);
    far_wait_held(4);
    assert_int_equal(far_writes(), 4);
    far_release();
    pthread_join(thread, NULL);
    must(call.status);
    expect_large(copy);
}

static void a_part_that_fails_or_differs_is_noticed(void **state)
{
    const long writes = OTHER_FILES + 6;
    char name[32];
    make_large_source(state);
    for (long n = 0; n < 2 * writes; n++) {
        const struct far_manner flip = {.flip_write = n + 1};
        const struct far_manner fail = {.fail_write = n + 1 - writes, .fail_status = DCP_ERR_IO};
        const dcp_copy_options options = {.destination = far_storage(n < writes ? &flip : &fail)};
        snprintf(name, sizeof name, "copy_%ld", n);
        const char *copy = path_in(state, name);
        must_fail(dcp_checkpoint_copy(path_in(state, "source"), copy, &options, NULL),
                  n < writes ? DCP_ERR_CHECKSUM : DCP_ERR_IO,
                  n < writes ? "is not what was copied" : "the far place does not take it");
        assert_false(scratch_exists(copy, ".metadata"));
    }
    const char *copy = path_in(state, "copy");
    const dcp_copy_options well = {.destination = far_storage(NULL)};
    must(dcp_checkpoint_copy(path_in(state, "source"), copy, &well, NULL));
    assert_int_equal(far_writes(), writes);
    expect_large(copy);
}

static void exchanged_parts_are_other_bytes(void **state)
{
    const char *source = make_large_source(state), *copy = path_in(state, "copy");
    const dcp_copy_options compare = {.compare_all = true};
    dcp_copied copied;
    must(dcp_checkpoint_copy(source, copy, NULL, NULL));
    unsigned char *bytes = large_bytes(), *part = malloc(PART);
    assert_non_null(part);
    memcpy(part, bytes, PART);
    memcpy(bytes, bytes + PART, PART);
    memcpy(bytes + PART, part, PART);
    scratch_write(copy, "A.bin", bytes, LARGE);
    free(bytes);
    free(part);
    must(dcp_checkpoint_copy(source, copy, &compare, &copied));
    assert_true(copied.bytes >= LARGE);
    assert_false(copied.was_whole);
    expect_large(copy);
}

/* ---- the rate ---- */

static void the_rate_is_kept(void **state)
{
    const char *source = make_source(state), *copy = path_in(state, "copy");
    const dcp_copy_options options = {.bytes_per_second = 10000};
    dcp_copied copied;
    int64_t start = clock_monotonic_ns();
    must(dcp_checkpoint_copy(source, copy, &options, &copied));
    double seconds = (double)(clock_monotonic_ns() - start) / 1e9;
    /* Written, and most of it read back, but for a burst. */
    double least = (double)copied.bytes * 1.25 / 10000;
    if (seconds < least || seconds > 3 * least + 10)
        fail_msg("%f s for %d bytes", seconds, (int)copied.bytes);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)
    const struct CMUnitTest tests[] = {
        TEST(all_of_a_checkpoint_is_copied_and_nothing_else),
        TEST(a_dry_run_writes_nothing),
        TEST(memory_and_an_object_store_take_copies),
        TEST(every_call_that_fails_leaves_no_checkpoint_and_is_made_good),
        TEST(every_allocation_may_fail),
        TEST(a_killed_copy_goes_on_without_what_is_whole),
        TEST(a_copy_can_be_stopped),
        TEST(a_copy_tells_how_far_it_is),
        TEST(a_bit_that_turns_on_the_way_is_found),
        TEST(a_damaged_source_is_not_copied),
        TEST(a_copy_that_was_damaged_is_repaired_when_bytes_are_compared),
        TEST(links_are_refused),
        TEST(another_checkpoint_is_replaced_only_on_request),
        TEST(what_is_replaced_goes_before_a_file_of_its_own_does),
        TEST(two_processes_do_not_mix_their_copies),
        TEST(a_copy_that_was_taken_over_commits_nothing),
        TEST(a_destination_that_cannot_be_made_one_stays_as_it_was),
        TEST(four_parts_of_a_file_are_under_way),
        TEST(a_part_that_fails_or_differs_is_noticed),
        TEST(exchanged_parts_are_other_bytes),
        TEST(the_rate_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
