/* SPDX-License-Identifier: BSD-3-Clause */
/* Exchanges: every rank returns the same, whatever goes wrong on whichever rank. Each test runs on
 * groups that offer all collectives and on ones that offer only the two required. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "fault/failing_allocator.h"
#include "group/group.h"
#include "group/thread_ranks.h"

static const dcp_collective call = {"exchanging", 60};

enum exchange {
    EXCHANGE_GATHER,
    EXCHANGE_SCATTER,
    EXCHANGE_BROADCAST,
    EXCHANGE_SHARE,
    EXCHANGE_PASS,
    EXCHANGE_AGREE,
    EXCHANGES
};

/* Messages that every rank can compute: bytes of a generator seeded by all that matters. */
struct message_generator {
    uint64_t value;
};

static struct message_generator generator(uint64_t seed, uint64_t step, uint64_t rank)
{
    return (struct message_generator){(seed * 1000003 + step) * 1000003 + rank};
}

static uint64_t next_random(struct message_generator *of)
{
    uint64_t z = of->value += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Mostly small messages, some empty, some larger. */
static dcp_status message_of(uint64_t seed, uint64_t step, int rank, struct buffer *message)
{
    struct message_generator random = generator(seed, step, (uint64_t)rank);
    uint64_t kind = next_random(&random) % 8;
    size_t size = kind == 0 ? 0 : (size_t)(next_random(&random) % (kind == 1 ? 20000 : 100));
    for (size_t i = 0; i < size; i++)
        buffer_append_u8(message, (uint8_t)next_random(&random));
    return buffer_status(message);
}

static dcp_status check_message(uint64_t seed, uint64_t step, int rank, const void *bytes,
                                size_t size)
{
    struct buffer expected;
    buffer_init(&expected, 0);
    dcp_status status = message_of(seed, step, rank, &expected);
    if (status == DCP_OK &&
        (size != expected.size || (size != 0 && memcmp(bytes, expected.data, size) != 0)))
        status =
            dcp_error_set(DCP_ERR_INTERNAL, "step %d: wrong message of rank %d", (int)step, rank);
    buffer_free(&expected);
    return status;
}

static dcp_status gather_and_check(dcp_group *group, uint64_t seed, uint64_t step, int root,
                                   dcp_status mine)
{
    struct buffer payload;
    struct group_messages all;
    buffer_init(&payload, 0);
    if (mine == DCP_OK)
        mine = message_of(seed, step, dcp_group_rank(group), &payload);
    dcp_status status = group_gather(group, &call, root, mine, payload.data, payload.size, &all);
    bool expected = status == DCP_OK && dcp_group_rank(group) == root;
    if (all.count != (expected ? dcp_group_size(group) : 0))
        status = dcp_error_set(DCP_ERR_INTERNAL, "%d messages after a gather", all.count);
    for (int rank = 0; rank < all.count && status == DCP_OK; rank++)
        status = check_message(seed, step, rank, all.bytes + all.offsets[rank],
                               all.offsets[rank + 1] - all.offsets[rank]);
    group_messages_free(&all);
    buffer_free(&payload);
    return status;
}

static dcp_status scatter_and_check(dcp_group *group, uint64_t seed, uint64_t step, int root,
                                    dcp_status mine)
{
    struct buffer payloads[RANKS_MAX], received;
    buffer_init(&received, 0);
    for (int rank = 0; rank < RANKS_MAX; rank++)
        buffer_init(&payloads[rank], 0);
    for (int rank = 0; rank < dcp_group_size(group) && dcp_group_rank(group) == root; rank++)
        message_of(seed, step, rank, &payloads[rank]); /* its failure stays in the buffer */
    dcp_status status = group_scatter(group, &call, root, mine, payloads, &received);
    if (status == DCP_OK)
        status = check_message(seed, step, dcp_group_rank(group), received.data, received.size);
    else if (received.size != 0)
        status = dcp_error_set(DCP_ERR_INTERNAL, "something received after a failure");
    for (int rank = 0; rank < RANKS_MAX; rank++)
        buffer_free(&payloads[rank]);
    buffer_free(&received);
    return status;
}

static dcp_status broadcast_and_check(dcp_group *group, uint64_t seed, uint64_t step, int root,
                                      dcp_status mine)
{
    struct buffer payload, received;
    buffer_init(&payload, 0);
    buffer_init(&received, 0);
    buffer_append(&received, "of before", 9);
    if (mine == DCP_OK)
        mine = buffer_status(&received);
    if (mine == DCP_OK && dcp_group_rank(group) == root)
        mine = message_of(seed, step, root, &payload);
    dcp_status status =
        group_broadcast(group, &call, root, mine, payload.data, payload.size, &received);
    if (status == DCP_OK)
        status = check_message(seed, step, root, received.data, received.size);
    else if (received.size != 0)
        status = dcp_error_set(DCP_ERR_INTERNAL, "something received after a failure");
    buffer_free(&payload);
    buffer_free(&received);
    return status;
}

static dcp_status share_and_check(dcp_group *group, uint64_t seed, uint64_t step, int root,
                                  dcp_status mine)
{
    unsigned char record[GROUP_RECORD_MAX];
    const unsigned char *records;
    size_t size = 1 + (size_t)root * 40 % GROUP_RECORD_MAX;
    for (size_t i = 0; i < size; i++)
        record[i] = (unsigned char)(seed + step + i + (uint64_t)dcp_group_rank(group) * 7);
    dcp_status status = group_share(group, &call, mine, record, size, &records);
    for (int rank = 0; rank < dcp_group_size(group) && status == DCP_OK; rank++)
        for (size_t i = 0; i < size && status == DCP_OK; i++)
            if (records[(size_t)rank * size + i] !=
                (unsigned char)(seed + step + i + (uint64_t)rank * 7))
                status = dcp_error_set(DCP_ERR_INTERNAL, "wrong record of rank %d", rank);
    return status;
}

/* Some ranks pass on to the one after them. */
static dcp_status pass_and_check(dcp_group *group, uint64_t seed, uint64_t step, int root,
                                 dcp_status mine)
{
    struct buffer payload, received;
    int rank = dcp_group_rank(group), size = dcp_group_size(group);
    int to = (rank + root) % 3 != 0 && size > 1 ? (rank + 1) % size : -1;
    int from = (rank + size - 1) % size;
    buffer_init(&payload, 0);
    buffer_init(&received, 0);
    if (mine == DCP_OK && to >= 0)
        mine = message_of(seed, step, rank, &payload);
    dcp_status status = group_pass(group, &call, mine, to, payload.data, payload.size, &received);
    if (status == DCP_OK && (from + root) % 3 != 0 && size > 1)
        status = check_message(seed, step, from, received.data, received.size);
    else if (received.size != 0)
        status = dcp_error_set(DCP_ERR_INTERNAL, "something received that was not for this rank");
    buffer_free(&payload);
    buffer_free(&received);
    return status;
}

static dcp_status exchange_and_check(dcp_group *group, enum exchange exchange, uint64_t seed,
                                     uint64_t step, int root, dcp_status mine)
{
    switch (exchange) {
    case EXCHANGE_GATHER:
        return gather_and_check(group, seed, step, root, mine);
    case EXCHANGE_SCATTER:
        return scatter_and_check(group, seed, step, root, mine);
    case EXCHANGE_BROADCAST:
        return broadcast_and_check(group, seed, step, root, mine);
    case EXCHANGE_SHARE:
        return share_and_check(group, seed, step, root, mine);
    case EXCHANGE_PASS:
        return pass_and_check(group, seed, step, root, mine);
    default:
        return group_agree(group, &call, mine);
    }
}

static void assert_all(const struct thread_rank *ranks, int size, dcp_status status,
                       const char *message)
{
    for (int rank = 0; rank < size; rank++)
        if (ranks[rank].status != status || strcmp(ranks[rank].message, message) != 0)
            fail_msg("rank %d of %d: status %d, \"%s\"; expected %d, \"%s\"", rank, size,
                     ranks[rank].status, ranks[rank].message, status, message);
}

/* Random exchanges with random roots and messages, in which random ranks fail: all ranks return
 * the failure of the lowest, and go on with the next exchange. */
static dcp_status random_exchanges(struct thread_rank *self)
{
    uint64_t seed = *(uint64_t *)self->context;
    for (uint64_t step = 0; step < 60; step++) {
        struct message_generator random = generator(seed, step, 1000);
        enum exchange exchange = (enum exchange)(next_random(&random) % EXCHANGES);
        int root = (int)(next_random(&random) % (uint64_t)self->size);
        uint64_t failing = next_random(&random) & next_random(&random) & next_random(&random);
        failing &= (1u << self->size) - 1;
        dcp_status mine = DCP_OK;
        if (failing >> self->rank & 1)
            mine = dcp_error_set(DCP_ERR_SHAPE, "step %d fails", (int)step);
        dcp_status status = exchange_and_check(self->group, exchange, seed, step, root, mine);
        char expected[64] = "";
        if (failing != 0 && self->size > 1)
            snprintf(expected, sizeof expected, "rank %d: step %d fails", __builtin_ctzll(failing),
                     (int)step);
        else if (failing != 0)
            snprintf(expected, sizeof expected, "step %d fails", (int)step);
        if (status != (failing != 0 ? DCP_ERR_SHAPE : DCP_OK))
            return error_prefix(DCP_ERR_INTERNAL, "step %d, status %d", (int)step, status);
        if (failing != 0 && strcmp(expected, dcp_error_message()) != 0)
            return error_prefix(DCP_ERR_INTERNAL, "step %d, not \"%s\"", (int)step, expected);
    }
    return DCP_OK;
}

static void random_sequences_stay_in_step(void **state)
{
    (void)state;
    struct thread_rank ranks[RANKS_MAX];
    for (uint64_t seed = 0; seed < 24; seed++) {
        int size = (int)(seed % RANKS_MAX) + 1;
        thread_ranks_run(size, seed >= 12, random_exchanges, &seed, ranks);
        assert_all(ranks, size, DCP_OK, "");
    }
}

/* One rank fails before one exchange, with or without a message; the failure of all then passes
 * through the exchanges after it. */
struct failure {
    int rank;
    enum exchange exchange;
    bool without_message;
    int root;
};

static dcp_status fail_at_one(struct thread_rank *self)
{
    const struct failure *failure = self->context;
    dcp_status status = DCP_OK;
    for (enum exchange exchange = 0; exchange < EXCHANGES; exchange++) {
        if (exchange == failure->exchange && self->rank == failure->rank) {
            status = DCP_ERR_NO_SPACE;
            if (failure->without_message)
                error_clear();
            else
                dcp_error_set(DCP_ERR_NO_SPACE, "cannot write a: full");
        }
        status = exchange_and_check(self->group, exchange, 1, exchange, failure->root, status);
    }
    return status;
}

static void a_rank_failing_at_any_exchange_is_named_once(void **state)
{
    (void)state;
    struct thread_rank ranks[RANKS_MAX];
    for (unsigned i = 0; i < 3 * EXCHANGES * 2 * 3 * 2; i++) {
        struct failure failure = {.rank = (int)(i % 3),
                                  .exchange = i / 3 % EXCHANGES,
                                  .without_message = i / 3 / EXCHANGES % 2,
                                  .root = (int)(i / 6 / EXCHANGES % 3)};
        char expected[64];
        snprintf(expected, sizeof expected, "rank %d: %s", failure.rank,
                 failure.without_message ? "no space left" : "cannot write a: full");
        thread_ranks_run(3, i / 18 / EXCHANGES, fail_at_one, &failure, ranks);
        assert_all(ranks, 3, DCP_ERR_NO_SPACE, expected);
    }
}

static dcp_status all_exchanges(struct thread_rank *self)
{
    dcp_status status = DCP_OK;
    for (enum exchange exchange = 0; exchange < EXCHANGES; exchange++)
        status = exchange_and_check(self->group, exchange, 3, exchange, 1, status);
    return status;
}

/* Fails the n-th allocation inside the exchanges, on whichever rank makes it. */
struct allocation_failure {
    long n;
    _Atomic int ready, done;
};

static dcp_status all_exchanges_short_of_memory(struct thread_rank *self)
{
    struct allocation_failure *failure = self->context;
    failure->ready++;
    while (failure->ready < self->size)
        clock_sleep_ns(10000);
    if (self->rank == 0) {
        failing_allocator_install(failure->n, false);
        failure->ready = 100;
    }
    while (failure->ready < 100)
        clock_sleep_ns(10000);
    dcp_status status = all_exchanges(self);
    failure->done++;
    while (failure->done < self->size)
        clock_sleep_ns(10000);
    return status;
}

static void no_memory_on_one_rank_is_no_memory_on_all(void **state)
{
    (void)state;
    for (int derived = 0; derived < 2; derived++) {
        for (long n = 1;; n++) {
            struct thread_rank ranks[RANKS_MAX];
            struct allocation_failure failure = {.n = n};
            thread_ranks_run(3, derived, all_exchanges_short_of_memory, &failure, ranks);
            bool reached = failing_allocator_reached();
            failing_allocator_remove();
            if (!reached) {
                assert_all(ranks, 3, DCP_OK, "");
                break;
            }
            /* What check_message() allocates fails after an exchange, but before the last. */
            assert_all(ranks, 3, DCP_ERR_NO_MEMORY, ranks[0].message);
            assert_memory_equal(ranks[0].message, "rank ", 5);
            assert_non_null(strstr(ranks[0].message, ": no memory for "));
        }
    }
}

/* A rank that leaves before its n-th exchange. */
static dcp_status one_leaves(struct thread_rank *self)
{
    static const dcp_collective short_call = {"planning", 0.25};
    const struct failure *failure = self->context;
    if (self->rank == failure->rank)
        return DCP_OK;
    struct buffer received, payloads[RANKS_MAX];
    struct group_messages all = {0};
    const unsigned char *records;
    buffer_init(&received, 0);
    for (int rank = 0; rank < RANKS_MAX; rank++)
        buffer_init(&payloads[rank], 0);
    dcp_status status = DCP_OK;
    if (failure->exchange == EXCHANGE_GATHER)
        status = group_gather(self->group, &short_call, 0, DCP_OK, "a", 1, &all);
    else if (failure->exchange == EXCHANGE_SCATTER)
        status = group_scatter(self->group, &short_call, 0, DCP_OK, payloads, &received);
    else if (failure->exchange == EXCHANGE_BROADCAST)
        status = group_broadcast(self->group, &short_call, 0, DCP_OK, "a", 1, &received);
    else if (failure->exchange == EXCHANGE_SHARE)
        status = group_share(self->group, &short_call, DCP_OK, "a", 1, &records);
    else if (failure->exchange == EXCHANGE_PASS)
        status = group_pass(self->group, &short_call, DCP_OK, self->rank - 1, "a", 1, &received);
    else
        status = group_agree(self->group, &short_call, DCP_OK);
    group_messages_free(&all);
    buffer_free(&received);
    return status;
}

static void a_rank_that_never_comes_is_named_by_all_others(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3 * EXCHANGES * 2; i++) {
        struct thread_rank ranks[RANKS_MAX];
        struct failure failure = {.rank = (int)(i % 3), .exchange = i / 3 % EXCHANGES};
        char expected[64];
        snprintf(expected, sizeof expected,
                 "planning: rank %d did not make this call within 0.25 s", failure.rank);
        thread_ranks_run(3, i / 3 / EXCHANGES, one_leaves, &failure, ranks);
        for (int rank = 0; rank < 3; rank++) {
            assert_int_equal(ranks[rank].status, rank == failure.rank ? DCP_OK : DCP_ERR_TIMEOUT);
            if (rank != failure.rank)
                assert_string_equal(ranks[rank].message, expected);
        }
    }
}

/* Who has failed by itself says so, also where it cannot be heard. */
static dcp_status fail_unheard(struct thread_rank *self)
{
    static const dcp_collective short_call = {"planning", 0.25};
    if (self->rank == 1)
        return DCP_OK;
    dcp_status mine = DCP_OK;
    if (self->rank == 2)
        mine = dcp_error_set(DCP_ERR_NO_SPACE, "cannot write a: full");
    return group_agree(self->group, &short_call, mine);
}

static void a_rank_that_is_not_heard_keeps_its_failure(void **state)
{
    (void)state;
    struct thread_rank ranks[RANKS_MAX];
    thread_ranks_run(3, false, fail_unheard, NULL, ranks);
    assert_int_equal(ranks[0].status, DCP_ERR_TIMEOUT);
    assert_int_equal(ranks[2].status, DCP_ERR_NO_SPACE);
    assert_string_equal(ranks[2].message, "cannot write a: full");
}

/* A callback's failure may be no status. */
static dcp_status fail_with_a_number(struct thread_rank *self)
{
    return group_agree(self->group, &call, self->rank == 1 ? (dcp_status)12345 : DCP_OK);
}

static void a_failure_that_is_no_status_is_the_groups(void **state)
{
    (void)state;
    struct thread_rank ranks[RANKS_MAX];
    thread_ranks_run(3, false, fail_with_a_number, NULL, ranks);
    for (int rank = 0; rank < 3; rank++)
        assert_int_equal(ranks[rank].status, DCP_ERR_GROUP);
}

/* A payload that could not be built fails the scatter everywhere. */
static dcp_status scatter_what_was_not_built(struct thread_rank *self)
{
    struct buffer payloads[RANKS_MAX], received;
    buffer_init(&received, 0);
    for (int rank = 0; rank < self->size; rank++)
        buffer_init(&payloads[rank], 8);
    buffer_append_zeros(&payloads[2], 9);
    dcp_status status = group_scatter(self->group, &call, 1, DCP_OK, payloads, &received);
    for (int rank = 0; rank < self->size; rank++)
        buffer_free(&payloads[rank]);
    buffer_free(&received);
    return status;
}

static void a_broken_payload_is_the_roots_failure(void **state)
{
    (void)state;
    struct thread_rank ranks[RANKS_MAX];
    thread_ranks_run(4, false, scatter_what_was_not_built, NULL, ranks);
    assert_all(ranks, 4, DCP_ERR_UNSUPPORTED, "rank 1: the output exceeds its limit of 8 bytes");
}

/* A rank that takes no more than a few bytes fails for all, and the exchange ends all the same. */
static dcp_status receive_too_much(struct thread_rank *self)
{
    struct buffer received;
    char payload[100] = {0};
    buffer_init(&received, self->rank == 2 ? 50 : 0);
    dcp_status status =
        group_broadcast(self->group, &call, 0, DCP_OK, payload, sizeof payload, &received);
    buffer_free(&received);
    return status;
}

static void a_receiver_without_room_fails_for_all(void **state)
{
    (void)state;
    struct thread_rank ranks[RANKS_MAX];
    thread_ranks_run(4, false, receive_too_much, NULL, ranks);
    assert_all(ranks, 4, DCP_ERR_UNSUPPORTED, "rank 2: the output exceeds its limit of 50 bytes");
}

/* In step s, rank r has (r + s) % 4 * 1000 bytes for the ranks d with (r + d + s) % 3 != 0. */
static bool goes_to(int from, int to, int step)
{
    return from != to && (from + to + step) % 3 != 0;
}

static dcp_status multicast_once(struct thread_rank *self, int step, unsigned char *received)
{
    enum { MOST = 3000 };
    unsigned char mine[MOST], scratch[MOST];
    size_t sizes[RANKS_MAX];
    unsigned char *places[RANKS_MAX]; /* in no order of ranks */
    bool to[RANKS_MAX], from[RANKS_MAX];
    for (int rank = 0; rank < self->size; rank++) {
        sizes[rank] = (size_t)((rank + step) % 4) * 1000;
        to[rank] = goes_to(self->rank, rank, step);
        from[rank] = goes_to(rank, self->rank, step);
        places[rank] = received + (size_t)((rank + step) % self->size) * MOST;
    }
    memset(mine, 1 + self->rank, sizeof mine);
    memset(received, 0, (size_t)self->size * MOST);
    if (group_multicast_scratch(self->group, MOST) > sizeof scratch)
        return dcp_error_set(DCP_ERR_INTERNAL, "needs more than the largest message");
    const struct group_multicast multicast = {sizes, mine, to, from, places, scratch};
    RETURN_IF_ERROR(group_multicast(self->group, &call, &multicast));
    for (int rank = 0; rank < self->size; rank++)
        for (size_t i = 0; i < MOST; i++) {
            int expected = from[rank] && i < sizes[rank] ? 1 + rank : 0;
            if (places[rank][i] != expected)
                return dcp_error_set(DCP_ERR_INTERNAL, "step %d: byte %zu from rank %d is %d", step,
                                     i, rank, places[rank][i]);
        }
    return DCP_OK;
}

static dcp_status multicast_body(struct thread_rank *self)
{
    static unsigned char received[RANKS_MAX][RANKS_MAX * 3000];
    for (int step = 0; step < 12; step++) {
        RETURN_IF_ERROR(multicast_once(self, step, received[self->rank]));
        RETURN_IF_ERROR(group_agree(self->group, &call, DCP_OK));
    }
    return DCP_OK;
}

static void messages_for_some_reach_those_alone(void **state)
{
    (void)state;
    struct thread_rank ranks[RANKS_MAX];
    for (int size = 1; size <= RANKS_MAX; size++)
        for (int derived = 0; derived < 2; derived++) {
            thread_ranks_run(size, derived, multicast_body, NULL, ranks);
            for (int rank = 0; rank < size; rank++)
                if (ranks[rank].status != DCP_OK)
                    fail_msg("rank %d of %d: %s", rank, size, ranks[rank].message);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_sequences_stay_in_step),
        cmocka_unit_test(a_rank_failing_at_any_exchange_is_named_once),
        cmocka_unit_test(no_memory_on_one_rank_is_no_memory_on_all),
        cmocka_unit_test(a_rank_that_never_comes_is_named_by_all_others),
        cmocka_unit_test(a_rank_that_is_not_heard_keeps_its_failure),
        cmocka_unit_test(a_failure_that_is_no_status_is_the_groups),
        cmocka_unit_test(a_broken_payload_is_the_roots_failure),
        cmocka_unit_test(a_receiver_without_room_fails_for_all),
        cmocka_unit_test(messages_for_some_reach_those_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
