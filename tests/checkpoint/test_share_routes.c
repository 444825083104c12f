/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks of several hosts that read for each other: what several ranks of a host want is sent there
 * once, and read in time by all of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dcp.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "checkpoint/ranks.h"
#include "fault/real_syscall.h"
#include "group/collective.h"

/* Several windows of each reader for each tensor. */
enum { TENSORS = 5, ELEMENTS = 2 << 20 };
#define TENSOR_BYTES ((uint64_t)ELEMENTS * sizeof(float))

static _Thread_local bool is_slow;

/* In place of the C library's. A slow rank takes a while after it has begun a step, while others go
 * on. */
long syscall(long number, ...)
{
    va_list list;
    va_start(list, number);
    const struct syscall_arguments arguments = syscall_arguments(list);
    va_end(list);
    long result = real_syscall(number, &arguments);
    if (is_slow && number == SYS_futex && arguments.values[1] == FUTEX_WAKE)
        clock_sleep_ns(5000000);
    return result;
}

struct trial {
    const char *hosts;      /* of each rank, a digit */
    const unsigned *wanted; /* of each tensor, the ranks that want it */
    int slow;               /* a rank */
    atomic_uint_fast64_t sent;
    atomic_uint_fast64_t received[RANKS_MAX];
};

static struct trial *current;
static dcp_status (*real_all_to_all)(void *, const dcp_collective *, const void *, const size_t *,
                                     const size_t *, void *, const size_t *, const size_t *);
static _Thread_local int own_rank;

/* Counts what is sent. */
static dcp_status counted(void *context, const dcp_collective *call, const void *send,
                          const size_t *send_sizes, const size_t *send_offsets, void *receive,
                          const size_t *receive_sizes, const size_t *receive_offsets)
{
    for (size_t rank = 0; rank < strlen(current->hosts); rank++) {
        current->sent += send_sizes[rank];
        current->received[own_rank] += receive_sizes[rank];
        if (send_sizes[rank] != 0 && current->hosts[rank] == current->hosts[own_rank])
            return dcp_error_set(DCP_ERR_INTERNAL, "a message from rank %d to rank %zu of its host",
                                 own_rank, rank);
    }
    return real_all_to_all(context, call, send, send_sizes, send_offsets, receive, receive_sizes,
                           receive_offsets);
}

/* What is stored, of each tensor. */
static float *contents[TENSORS];

static int make_contents(void **state)
{
    for (int t = 0; t < TENSORS; t++) {
        contents[t] = malloc(TENSOR_BYTES);
        for (int i = 0; contents[t] && i < ELEMENTS; i++)
            contents[t][i] = (float)(i % 1000003 + 17 * t);
        if (!contents[t])
            return -1;
    }
    (void)state;
    return 0;
}

static int free_contents(void **state)
{
    for (int t = 0; t < TENSORS; t++)
        free(contents[t]);
    (void)state;
    return 0;
}

static void add(dcp_state *root, int number, float *data)
{
    char name[8];
    const dcp_tensor tensor = {
        .dtype = DCP_F32, .ndim = 1, .global_shape = {ELEMENTS}, .sizes = {ELEMENTS}, .data = data};
    snprintf(name, sizeof name, "t%d", number);
    assert_non_null(dcp_state_tensor(root, name, &tensor));
}

/* Those tensors that a rank wants, with nothing in them yet; the memory is freed by the caller. */
static dcp_state *make_tree(const unsigned *wanted, int rank, float *data[TENSORS])
{
    dcp_state *root = dcp_state_new();
    for (int t = 0; t < TENSORS; t++) {
        data[t] = NULL;
        if (!(wanted[t] >> rank & 1))
            continue;
        data[t] = malloc(TENSOR_BYTES);
        assert_non_null(data[t]);
        memset(data[t], 0xff, TENSOR_BYTES);
        add(root, t, data[t]);
    }
    return root;
}

static dcp_status check_and_free(float *data[TENSORS], dcp_status status)
{
    for (int t = 0; t < TENSORS; t++) {
        if (data[t] && status == DCP_OK && memcmp(data[t], contents[t], TENSOR_BYTES) != 0)
            status = dcp_error_set(DCP_ERR_INTERNAL, "tensor %d is not what is stored", t);
        free(data[t]);
    }
    return status;
}

static dcp_status load(struct rank *self)
{
    const struct trial *trial = self->context;
    const dcp_load_options options = {
        .group = self->group, .reading = DCP_READING_COOPERATIVE, .timeout_seconds = 20};
    float *data[TENSORS];
    dcp_state *root = make_tree(trial->wanted, self->rank, data);
    rank_set_host(trial->hosts[self->rank] - '0');
    own_rank = self->rank;
    is_slow = self->rank == trial->slow;
    self->group->operations.all_to_all = counted;
    dcp_status status = dcp_load(root, self->path, &options, NULL);
    dcp_state_free(root);
    return check_and_free(data, status);
}

/* Each byte is sent once to each host that wants it, but for that of the rank that reads it. */
static uint64_t expected_bytes(const struct trial *trial)
{
    uint64_t sum = 0;
    for (int t = 0; t < TENSORS; t++) {
        unsigned hosts = 0;
        for (size_t rank = 0; rank < strlen(trial->hosts); rank++)
            hosts |= (trial->wanted[t] >> rank & 1) << (trial->hosts[rank] - '0');
        sum += (uint64_t)(__builtin_popcount(hosts) - 1) * TENSOR_BYTES;
    }
    return sum;
}

static void save(const char *path)
{
    const dcp_save_options options = {.skip_sync = true};
    dcp_state *root = dcp_state_new();
    for (int t = 0; t < TENSORS; t++)
        add(root, t, contents[t]);
    must(dcp_save(root, path, &options));
    dcp_state_free(root);
}

static void must_load(const char *path, struct trial *trial)
{
    current = trial;
    ranks_must((int)strlen(trial->hosts), path, load, trial);
    assert_int_equal(trial->sent, expected_bytes(trial));
}

static const unsigned everything[TENSORS] = {0xff, 0xff, 0xff, 0xff, 0xff};

static void what_all_want_is_sent_to_each_host_once(void **state)
{
    static const char *const hosts[] = {"11",    "12",     "1122",    "1212",
                                        "11123", "121321", "1112222", "12341234"};
    save(*state);
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        must_load(*state, &(struct trial){hosts[i], everything, .slow = -1});
}

static void so_is_what_some_ranks_want(void **state)
{
    static const unsigned wanted[][TENSORS] = {{0x0f, 0x03, 0x0c, 0x05, 0x0a},
                                               {0x3f, 0x30, 0x1c, 0x2b, 0x07},
                                               {0x15, 0x2a, 0x3e, 0x21, 0x1f}};
    save(*state);
    must_load(*state, &(struct trial){"1122", wanted[0], .slow = -1});
    must_load(*state, &(struct trial){"121212", wanted[1], .slow = -1});
    must_load(*state, &(struct trial){"111222", wanted[2], .slow = -1});
    must_load(*state, &(struct trial){"112233", wanted[2], .slow = -1});
}

static void the_ranks_of_a_host_receive_in_turn(void **state)
{
    struct trial trial = {"11112222", everything, .slow = -1};
    save(*state);
    must_load(*state, &trial);
    for (int rank = 0; rank < 8; rank++) /* as much as its part of what all of its host receive */
        assert_in_range(trial.received[rank], TENSORS * TENSOR_BYTES / 16,
                        TENSORS * TENSOR_BYTES / 4);
}

static void a_slow_rank_reads_what_another_received_for_it(void **state)
{
    save(*state);
    for (int slow = 0; slow < 5; slow++)
        must_load(*state, &(struct trial){"11222", everything, .slow = slow});
}

int main(void)
{
    dcp_group *groups[1];
    if (dcp_group_new_threads(1, groups) != DCP_OK)
        return 1;
    real_all_to_all = groups[0]->operations.all_to_all;
    dcp_group_free(groups[0]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_all_want_is_sent_to_each_host_once, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(so_is_what_some_ranks_want, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(the_ranks_of_a_host_receive_in_turn, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(a_slow_rank_reads_what_another_received_for_it,
                                        directory_setup, directory_teardown),
    };
    return cmocka_run_group_tests(tests, make_contents, free_contents);
}
