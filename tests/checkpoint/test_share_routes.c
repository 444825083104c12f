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
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "checkpoint/ranks.h"
#include "checkpoint/share/share_routes.h"
#include "fault/real_syscall.h"
#include "group/collective.h"

/* Several windows of each reader for each tensor. */
enum { TENSORS = 6, ELEMENTS = 1 << 20 };
#define TENSOR_BYTES ((uint64_t)ELEMENTS * sizeof(int32_t))

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
    uint64_t false_offset;  /* where rank 0 says that it has what it received; 0: the truth */
    uint64_t sent;
    uint64_t received[RANKS_MAX];
};

static struct trial *current;
static _Thread_local int own_rank;

/* Messages that are under way, by sender and receiver; no bytes: there is none. */
static const unsigned char *under_way[RANKS_MAX][RANKS_MAX];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* Waits until a message is under way, or is not any more. */
static bool wait_until(const unsigned char *const *message, bool there)
{
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += 20;
    while ((*message != NULL) != there)
        if (pthread_cond_timedwait(&changed, &mutex, &deadline) != 0)
            return false;
    return true;
}

/* Before what a rank receives is where it says to the others of its host where they find it. */
static void lie(void *received, size_t ranks)
{
    uint64_t *table = (uint64_t *)received - (ranks + 1) / 2 * 2;
    for (size_t rank = 0; rank < ranks; rank++)
        table[rank] = current->false_offset;
}

/* In place of the group's: ranks without messages for each other do not wait for each other. */
static dcp_status send_and_receive(void *context, const dcp_collective *call, const void *send,
                                   const size_t *send_sizes, const size_t *send_offsets,
                                   void *receive, const size_t *receive_sizes,
                                   const size_t *receive_offsets)
{
    int ranks = (int)strlen(current->hosts);
    bool come = true;
    (void)context, (void)call;
    pthread_mutex_lock(&mutex);
    for (int rank = 0; rank < ranks; rank++) {
        current->sent += send_sizes[rank];
        current->received[own_rank] += receive_sizes[rank];
        come = come && (send_sizes[rank] == 0 || current->hosts[rank] != current->hosts[own_rank]);
        if (send_sizes[rank] != 0)
            under_way[own_rank][rank] = (const unsigned char *)send + send_offsets[rank];
    }
    pthread_cond_broadcast(&changed);
    for (int rank = 0; rank < ranks && come; rank++) {
        if (receive_sizes[rank] == 0)
            continue;
        come = wait_until(&under_way[rank][own_rank], true);
        if (come)
            memcpy((unsigned char *)receive + receive_offsets[rank], under_way[rank][own_rank],
                   receive_sizes[rank]);
        under_way[rank][own_rank] = NULL;
        pthread_cond_broadcast(&changed);
    }
    for (int rank = 0; rank < ranks && come; rank++)
        come = wait_until(&under_way[own_rank][rank], false);
    pthread_mutex_unlock(&mutex);
    if (current->false_offset != 0 && own_rank == 0 && receive)
        lie(receive, (size_t)ranks);
    if (!come)
        return dcp_error_set(DCP_ERR_INTERNAL,
                             "a message of rank %d does not come, or is for its host", own_rank);
    return DCP_OK;
}

/* What is stored, of each tensor. */
static int32_t *contents[TENSORS];

static int make_contents(void **state)
{
    for (int t = 0; t < TENSORS; t++) {
        contents[t] = malloc(TENSOR_BYTES);
        for (int i = 0; contents[t] && i < ELEMENTS; i++)
            contents[t][i] = i + 17 * t;
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

static void add(dcp_state *root, int number, int32_t *data)
{
    char name[8];
    const dcp_tensor tensor = {
        .dtype = DCP_I32, .ndim = 1, .global_shape = {ELEMENTS}, .sizes = {ELEMENTS}, .data = data};
    snprintf(name, sizeof name, "t%d", number);
    assert_non_null(dcp_state_tensor(root, name, &tensor));
}

/* Those tensors that a rank wants, with nothing in them yet; the memory is freed by the caller. */
static dcp_state *make_tree(const unsigned *wanted, int rank, int32_t *data[TENSORS])
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

static dcp_status check_and_free(int32_t *data[TENSORS], dcp_status status)
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
    int32_t *data[TENSORS];
    dcp_state *root = make_tree(trial->wanted, self->rank, data);
    rank_set_host(trial->hosts[self->rank] - '0');
    own_rank = self->rank;
    is_slow = self->rank == trial->slow;
    self->group->operations.all_to_all = send_and_receive;
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

static const unsigned everything[TENSORS] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

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
    static const unsigned wanted[][TENSORS] = {{0x0f, 0x03, 0x0c, 0x05, 0x0a, 0x09},
                                               {0x3f, 0x30, 0x1c, 0x2b, 0x07, 0x38},
                                               {0x15, 0x2a, 0x3e, 0x21, 0x1f, 0x0c}};
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

static void a_window_outside_of_the_memory_is_refused(void **state)
{
    struct trial trial = {"1122", everything, .slow = -1, .false_offset = (uint64_t)1 << 40};
    struct rank ranks[RANKS_MAX];
    save(*state);
    current = &trial;
    ranks_run(ranks, 4, *state, load, &trial);
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(ranks[rank].status, DCP_ERR_GROUP);
        assert_non_null(strstr(ranks[rank].message, "rank 0 announces "));
        assert_non_null(strstr(ranks[rank].message, " bytes from 1099511627776 on of the memory"));
    }
}

/* One round: of each rank, the ranks that want its window, and the ways that each rank found. */
struct round {
    const char *hosts;
    unsigned wanted[RANKS_MAX];
    struct ways {
        bool to[RANKS_MAX], from[RANKS_MAX], shared[RANKS_MAX], meets[RANKS_MAX], passes[RANKS_MAX];
        uint32_t holders[RANKS_MAX];
    } ways[RANKS_MAX];
};

static dcp_status find_ways(struct rank *self, const struct host_memory *memory,
                            struct round *round)
{
    uint32_t classes[RANKS_MAX][RANKS_MAX], class_of[RANKS_MAX];
    struct share_set sets[RANKS_MAX];
    const struct load_share share = {.rank_count = (uint32_t)self->size,
                                     .class_count = (uint32_t)self->size,
                                     .class_of = class_of,
                                     .sets = sets,
                                     .set_count = (size_t)self->size};
    struct ways *ways = &round->ways[self->rank];
    struct share_routes routes;
    for (uint32_t set = 0; set < share.rank_count; set++) {
        sets[set] = (struct share_set){classes[set], 0};
        class_of[set] = set;
        for (uint32_t rank = 0; rank < share.rank_count; rank++)
            if (round->wanted[set] >> rank & 1)
                classes[set][sets[set].count++] = rank;
    }
    dcp_status status = share_routes_open(&share, (uint32_t)self->rank, &routes);
    routes.memory = memory;
    if (status == DCP_OK) {
        share_routes_begin(&routes);
        for (uint32_t reader = 0; reader < share.rank_count; reader++)
            share_routes_add(&routes, reader, reader);
        memcpy(ways->to, routes.to, share.rank_count * sizeof *ways->to);
        memcpy(ways->from, routes.from, share.rank_count * sizeof *ways->from);
        memcpy(ways->shared, routes.shared, share.rank_count * sizeof *ways->shared);
        memcpy(ways->meets, routes.meets, share.rank_count * sizeof *ways->meets);
        memcpy(ways->passes, routes.passes, share.rank_count * sizeof *ways->passes);
        memcpy(ways->holders, routes.holders, share.rank_count * sizeof *ways->holders);
    }
    share_routes_close(&routes);
    return status;
}

static dcp_status find_routes(struct rank *self)
{
    static const dcp_collective call = {"testing", 20};
    struct round *round = self->context;
    struct host_memory *memory;
    rank_set_host(round->hosts[self->rank] - '0');
    dcp_status status = host_memory_open(self->group, &call, DCP_OK, 1, 1, &memory);
    if (status == DCP_OK)
        status = find_ways(self, memory, round);
    host_memory_close(memory);
    return status;
}

/* A rank gets another's window where that is, or as a message, or from one that gets it so. */
static void check_ways_to(const struct round *round, int reader, int taker)
{
    const struct ways *ways = &round->ways[taker];
    bool wanted = round->wanted[reader] >> taker & 1;
    bool near = round->hosts[reader] == round->hosts[taker];
    uint32_t holder = ways->holders[reader];
    assert_int_equal(round->ways[reader].to[taker], ways->from[reader]);
    assert_int_equal(ways->from[reader], holder == (uint32_t)taker);
    if (!wanted || near) {
        assert_int_equal(holder, wanted ? (uint32_t)reader : SHARE_NO_RANK);
        assert_true(!wanted || ways->meets[reader]);
        return;
    }
    assert_true(holder < strlen(round->hosts) && round->hosts[holder] == round->hosts[taker]);
    assert_true(round->ways[holder].from[reader]);
    assert_true(holder == (uint32_t)taker || round->ways[holder].shared[reader]);
    assert_true(holder == (uint32_t)taker || ways->passes[holder]);
}

static void check_round(const struct round *round)
{
    int ranks = (int)strlen(round->hosts);
    for (int a = 0; a < ranks; a++)
        for (int b = 0; b < ranks; b++) {
            const struct ways *ways = &round->ways[a];
            if (a != b)
                check_ways_to(round, a, b);
            assert_int_equal(ways->meets[b], round->ways[b].meets[a]);
            assert_int_equal(ways->passes[b], round->ways[b].passes[a]);
            assert_true(!ways->meets[b] || ways->passes[b]); /* it is read after the messages */
            assert_true(!ways->passes[b] || round->hosts[a] == round->hosts[b]);
        }
}

static void all_ranks_find_the_same_ways(void **state)
{
    static const char *const hosts[] = {"11", "112", "1122", "121213", "11111222", "12341234"};
    srand(11);
    for (int i = 0; i < 300; i++) {
        struct round round = {.hosts = hosts[(size_t)i % (sizeof hosts / sizeof *hosts)]};
        for (int rank = 0; rank < RANKS_MAX; rank++)
            round.wanted[rank] = ((unsigned)rand() | (i % 3 == 0 ? (unsigned)rand() : 0)) & 0xff;
        ranks_must((int)strlen(round.hosts), *state, find_routes, &round);
        check_round(&round);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_all_want_is_sent_to_each_host_once, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(so_is_what_some_ranks_want, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(the_ranks_of_a_host_receive_in_turn, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(a_slow_rank_reads_what_another_received_for_it,
                                        directory_setup, directory_teardown),
        cmocka_unit_test_setup_teardown(a_window_outside_of_the_memory_is_refused, directory_setup,
                                        directory_teardown),
        cmocka_unit_test(all_ranks_find_the_same_ways),
    };
    return cmocka_run_group_tests(tests, make_contents, free_contents);
}
