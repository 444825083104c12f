/* SPDX-License-Identifier: BSD-3-Clause */
/* What goes wrong while ranks read for each other is one message on all ranks, and nobody hangs. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "checkpoint/wanted_parts.h"
#include "fault/failing_allocator.h"
#include "fault/over_files.h"
#include "fault/simulated_file_system.h"
#include "group/collective.h"

enum { RANKS = 3, ROWS = 40 };

/* The n-th call of an operation of one rank's group goes wrong. */
struct group_fault {
    int rank;
    long call;   /* of all_to_all; 0: none */
    bool absent; /* the rank sleeps instead, and comes too late */
    dcp_group_operations real;
    _Atomic long calls;
};

struct trial {
    const struct file_ops *ops[RANKS];
    struct group_fault fault;
    bool paired; /* with another group, which carries what was read, and whose operation it is */
    double timeout;
    int64_t rows;
    enum want want;
    dcp_verification verification;
};

static struct group_fault *faulty; /* operations get the group's context alone */

static dcp_status fail_all_to_all(void *context, const dcp_collective *call, const void *send,
                                  const size_t *send_sizes, const size_t *send_offsets,
                                  void *receive, const size_t *receive_sizes,
                                  const size_t *receive_offsets)
{
    if (++faulty->calls == faulty->call) {
        if (!faulty->absent)
            return dcp_error_set(DCP_ERR_GROUP, "the network is down");
        clock_sleep_ns(2500000000);
    }
    return faulty->real.all_to_all(context, call, send, send_sizes, send_offsets, receive,
                                   receive_sizes, receive_offsets);
}

static dcp_status load_body(struct rank *self)
{
    struct trial *trial = self->context;
    struct wanted_parts parts;
    const dcp_load_options options = {.group = self->group,
                                      .timeout_seconds = trial->timeout,
                                      .verification = trial->verification,
                                      .thread_count = 1,
                                      .reading = DCP_READING_COOPERATIVE};
    if (trial->paired) {
        dcp_group *bulk;
        must(dcp_group_duplicate(self->group, 30, &bulk));
        must(dcp_group_pair(self->group, bulk, 30));
    }
    if (trial->fault.call != 0 && trial->fault.rank == self->rank) {
        faulty = &trial->fault;
        dcp_group *group = self->group->bulk ? self->group->bulk : self->group;
        faulty->real = group->operations;
        group->operations.all_to_all = fail_all_to_all;
    }
    wanted_parts_init(&parts, trial->rows, trial->want, self->rank, self->size, false, false);
    dcp_status status = load_over(trial->ops[self->rank], parts.root, self->path, &options, NULL);
    if (status == DCP_OK)
        status = wanted_parts_check(&parts);
    wanted_parts_free(&parts);
    return status;
}

static struct trial trial_over(const struct file_ops *ops)
{
    struct trial trial = {.timeout = 30, .rows = ROWS};
    for (int r = 0; r < RANKS; r++)
        trial.ops[r] = ops;
    return trial;
}

/* Of a network, so that columns are read in stripes. */
static struct trial trial_of_columns(struct file_ops *ops)
{
    *ops = file_ops_system;
    ops->remote = over_network;
    struct trial trial = trial_over(ops);
    trial.want = WANT_COLUMNS;
    return trial;
}

static void expect_same_error(const struct rank *ranks, dcp_status status)
{
    for (int r = 0; r < RANKS; r++) {
        if (ranks[r].status != status)
            fail_msg("rank %d ended with %s: %s", r, dcp_status_string(ranks[r].status),
                     ranks[r].message);
        assert_string_equal(ranks[r].message, ranks[0].message);
    }
}

/* Each file operation of each rank fails in turn: the others hear of it, and what it says of the
 * destinations is right. */
static void every_read_of_a_rank_can_fail(void **state)
{
    (void)state;
    struct simulated_file_system *fs = simulated_new();
    struct wanted_parts parts;
    wanted_parts_init(&parts, ROWS, WANT_ALL, 0, 1, false, true);
    must(save_over(simulated_ops(fs), parts.root, "/c", &(dcp_save_options){.thread_count = 1}));
    wanted_parts_free(&parts);
    long failures = 0;
    for (int odd = 0; odd < RANKS; odd++)
        for (long n = 1;; n += TRIAL_STEP) {
            struct simulated_file_system *own = simulated_copy(fs);
            struct trial trial = trial_over(simulated_ops(fs));
            struct rank ranks[RANKS_MAX];
            trial.ops[odd] = simulated_ops(own);
            simulated_set_fault(own, &(struct simulated_fault){.operation = n,
                                                               .kind = SIMULATED_ERROR,
                                                               .error_number = EIO});
            ranks_run(ranks, RANKS, "/c", load_body, &trial);
            bool reached = simulated_fault_reached(own);
            simulated_free(own);
            if (!reached) {
                expect_same_error(ranks, DCP_OK);
                break;
            }
            if (ranks[0].status == DCP_OK) /* a close, or what is done without */
                continue;
            expect_same_error(ranks, DCP_ERR_IO);
            char name[16];
            snprintf(name, sizeof name, "rank %d: ", odd);
            assert_non_null(strstr(ranks[0].message, name));
            failures += strstr(ranks[0].message, "tensors may be partly filled") != NULL;
        }
    assert_true(failures * TRIAL_STEP >= RANKS);
    simulated_free(fs);
}

/* One byte in the middle of the file is another one: it is the largest tensor's. */
static void damage(const char *path)
{
    char name[1024];
    unsigned char byte;
    snprintf(name, sizeof name, "%s/__0_0.distcp", path);
    int file = open(name, O_RDWR);
    assert_true(file >= 0);
    off_t place = lseek(file, 0, SEEK_END) / 2;
    assert_int_equal(pread(file, &byte, 1, place), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(file, &byte, 1, place), 1);
    close(file);
}

/* In a tensor that one rank reads as a whole, and in one that is cut or read in stripes, checked by
 * blocks, by the joined sums of its parts, or by that of a record. */
static void damage_is_found_by_its_reader(void **state)
{
    static const struct {
        const char *name;
        int64_t rows;
        bool striped;
        bool as_pytorch;
        const char *found;
    } cases[] = {{"small", ROWS, false, false, ""},
                 {"large", 4003, false, false, " has XXH3 "},
                 {"pytorch", 4003, false, true, " has CRC-32 "},
                 {"striped", 4003, true, false, " has XXH3 "},
                 {"striped pytorch", 4003, true, true, " has CRC-32 "}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = path_in(state, cases[i].name);
        wanted_parts_save(path, cases[i].rows, NULL);
        if (cases[i].as_pytorch)
            wanted_parts_as_pytorch(path);
        damage(path);
        for (dcp_verification how = DCP_VERIFY_ALL; how <= DCP_VERIFY_RECORDS; how++) {
            struct rank ranks[RANKS_MAX];
            struct file_ops ops;
            struct trial trial =
                cases[i].striped ? trial_of_columns(&ops) : trial_over(&file_ops_system);
            trial.rows = cases[i].rows;
            trial.verification = how;
            ranks_run(ranks, RANKS, path, load_body, &trial);
            expect_same_error(ranks, DCP_ERR_CHECKSUM);
            assert_non_null(strstr(ranks[0].message, "large (__0_0.distcp"));
            assert_non_null(strstr(ranks[0].message, "tensors may be partly filled: rank "));
            assert_non_null(strstr(ranks[0].message, cases[i].found));
        }
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Of objects first, then of tensors. */
static void a_failed_exchange_ends_the_load(void **state)
{
    const char *path = path_in(state, "c");
    wanted_parts_save(path, ROWS, NULL);
    for (int odd = 0; odd < RANKS; odd++)
        for (long call = 1; call <= 2; call++) {
            struct rank ranks[RANKS_MAX];
            struct trial trial = trial_over(&file_ops_system);
            trial.fault = (struct group_fault){.rank = odd, .call = call};
            trial.timeout = 3;
            double before = seconds();
            ranks_run(ranks, RANKS, path, load_body, &trial);
            assert_true(seconds() - before < 10);
            for (int r = 0; r < RANKS; r++) {
                const char *message = ranks[r].message;
                assert_int_equal(ranks[r].status, r == odd ? DCP_ERR_GROUP : DCP_ERR_TIMEOUT);
                assert_int_equal(strstr(message, "tensors may be partly filled") != NULL,
                                 call == 2);
                assert_non_null(
                    strstr(message, call == 1 ? "sharing objects" : "exchanging tensors"));
            }
        }
}

static void a_late_rank_is_named_by_the_others(void **state)
{
    const char *path = path_in(state, "c");
    wanted_parts_save(path, ROWS, NULL);
    struct rank ranks[RANKS_MAX];
    struct trial trial = trial_over(&file_ops_system);
    trial.fault = (struct group_fault){.rank = 1, .call = 1, .absent = true};
    trial.timeout = 2;
    double before = seconds();
    ranks_run(ranks, RANKS, path, load_body, &trial);
    assert_true(seconds() - before < 10);
    for (int r = 0; r < RANKS; r += 2) {
        assert_int_equal(ranks[r].status, DCP_ERR_TIMEOUT);
        assert_non_null(strstr(ranks[r].message, "rank 1 did not make this call within 2 s"));
    }
    assert_int_equal(ranks[1].status, DCP_ERR_STATE);
}

/* Of a group that carries what was read, and nothing else: each rank still hears what happened. */
static void a_failed_exchange_of_a_pair_is_everyones(void **state)
{
    const char *path = path_in(state, "c");
    struct rank ranks[RANKS_MAX];
    wanted_parts_save(path, 10 * ROWS, NULL);
    for (int rank = 0; rank < RANKS; rank++) {
        struct trial trial = trial_over(&file_ops_system);
        trial.rows = 10 * ROWS;
        trial.fault = (struct group_fault){.rank = rank, .call = 1};
        trial.paired = true;
        trial.timeout = 2;
        ranks_run(ranks, RANKS, path, load_body, &trial);
        expect_same_error(ranks, rank == 0 ? DCP_ERR_GROUP : DCP_ERR_TIMEOUT);
        assert_non_null(
            strstr(ranks[0].message, rank == 0 ? "the network is down" : "did not make this call"));
    }
}

/* A load of two ranks, of which the group may already lack memory. */
static dcp_status load_as_pair(const char *path, struct trial *trial)
{
    struct rank ranks[RANKS_MAX];
    dcp_status status = ranks_try(ranks, 2, path, load_body, trial);
    if (status != DCP_OK)
        return status;
    if (ranks[0].status != ranks[1].status)
        fail_msg("%s, but %s", ranks[0].message, ranks[1].message);
    return ranks[0].status;
}

/* A load that succeeds all the same did without: a thread, or a second lot. */
static void fail_every_allocation(const char *path, struct trial trial)
{
    long failures = 0;
    for (long n = 1;; n += TRIAL_STEP) {
        failing_allocator_install(n, false);
        dcp_status status = load_as_pair(path, &trial);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        if (!reached) {
            assert_int_equal(status, DCP_OK);
            break;
        }
        /* A tree without memory is none at all, which a load refuses. */
        if (status != DCP_OK && status != DCP_ERR_NO_MEMORY && status != DCP_ERR_ARGUMENT)
            fail_msg("allocation %ld: %s", n, dcp_status_string(status));
        failures += status != DCP_OK;
    }
    assert_true(failures * TRIAL_STEP > 100);
}

/* The large one is read by one rank, cut, so that the checksums of its parts are joined, or read in
 * stripes. */
static void every_allocation_can_fail(void **state)
{
    enum { CUT = 601 };
    struct file_ops ops;
    wanted_parts_save(path_in(state, "c"), ROWS, NULL);
    fail_every_allocation(path_in(state, "c"), trial_over(&file_ops_system));
    wanted_parts_save(path_in(state, "d"), CUT, NULL);
    struct trial striped = trial_of_columns(&ops), cut = trial_over(&file_ops_system);
    striped.rows = cut.rows = CUT;
    fail_every_allocation(path_in(state, "d"), striped);
    wanted_parts_as_pytorch(path_in(state, "d"));
    fail_every_allocation(path_in(state, "d"), cut);
}

/* Ranks are on several hosts, as those of one send no messages. */
static bool made_apart;

static int apart_setup(void **state)
{
    made_apart = !getenv("RANKS_APART");
    return directory_setup(state) || setenv("RANKS_APART", "-1", 0);
}

static int apart_teardown(void **state)
{
    if (made_apart)
        unsetenv("RANKS_APART");
    return directory_teardown(state);
}

#define directory_test(test)                                                                       \
    cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)
#define apart_test(test) cmocka_unit_test_setup_teardown(test, apart_setup, apart_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_read_of_a_rank_can_fail),
        directory_test(damage_is_found_by_its_reader),
        apart_test(a_failed_exchange_ends_the_load),
        apart_test(a_late_rank_is_named_by_the_others),
        apart_test(a_failed_exchange_of_a_pair_is_everyones),
        directory_test(every_allocation_can_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
