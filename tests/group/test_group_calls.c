/* SPDX-License-Identifier: BSD-3-Clause */
/* What callers send over a group, and what ranks hear that are in different calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/error.h"
#include "dcp/environment.h"
#include "group/collective.h"
#include "group/group.h"
#include "group/thread_ranks.h"

#define SOON_NS INT64_C(5000000000)

/* Runs a body on all ranks, over groups with all operations and with the two required ones. */
static void run_both(int size, rank_body body, struct thread_rank ranks[RANKS_MAX],
                     void (*check)(const struct thread_rank ranks[RANKS_MAX]))
{
    for (int derived = 0; derived < 2; derived++) {
        int64_t before = clock_monotonic_ns();
        thread_ranks_run(size, derived != 0, body, NULL, ranks);
        assert_true(clock_monotonic_ns() - before < SOON_NS);
        check(ranks);
    }
}

static void all_succeed(const struct thread_rank ranks[RANKS_MAX])
{
    for (int r = 0; r < ranks[0].size; r++)
        if (ranks[r].status != DCP_OK)
            fail_msg("rank %d of %d: %s", r, ranks[0].size, ranks[r].message);
}

static dcp_status wrong(const char *what)
{
    return dcp_error_set(DCP_ERR_INTERNAL, "wrong bytes of %s", what);
}

static dcp_status use_collectives(struct thread_rank *self)
{
    int own[3] = {self->rank, 10 * self->rank, -self->rank}, all[3 * RANKS_MAX];
    RETURN_IF_ERROR(dcp_group_barrier(self->group, 60));
    RETURN_IF_ERROR(dcp_group_all_gather(self->group, own, sizeof own, 60, all));
    for (int r = 0; r < self->size; r++)
        if (all[3 * r] != r || all[3 * r + 1] != 10 * r || all[3 * r + 2] != -r)
            return wrong("an all_gather");
    RETURN_IF_ERROR(dcp_group_all_gather(self->group, NULL, 0, 60, NULL));
    for (int root = 0; root < self->size; root++) {
        uint64_t word = self->rank == root ? 77 + (uint64_t)root : 0;
        RETURN_IF_ERROR(dcp_group_broadcast(self->group, root, sizeof word, 60, &word));
        if (word != 77 + (uint64_t)root)
            return wrong("a broadcast");
    }
    RETURN_IF_ERROR(dcp_group_agree(self->group, DCP_OK, 0));
    return DCP_OK;
}

static void callers_send_bytes(void **state)
{
    struct thread_rank ranks[RANKS_MAX];
    (void)state;
    for (int size = 1; size <= 5; size++)
        run_both(size, use_collectives, ranks, all_succeed);
    struct thread_rank alone = {.group = NULL, .rank = 0, .size = 1};
    assert_int_equal(use_collectives(&alone), DCP_OK);
}

/* ---- a status for all */

static dcp_status fail_on_two(struct thread_rank *self)
{
    dcp_status mine = DCP_OK;
    if (self->rank == 1)
        mine = dcp_error_set(DCP_ERR_NO_SPACE, "my disk is full");
    if (self->rank == 2)
        mine = dcp_error_set(DCP_ERR_IO, "my disk is broken");
    return dcp_group_agree(self->group, mine, 60);
}

static void hear_rank_1(const struct thread_rank ranks[RANKS_MAX])
{
    for (int r = 0; r < 3; r++) {
        assert_int_equal(ranks[r].status, DCP_ERR_NO_SPACE);
        assert_string_equal(ranks[r].message, "rank 1: my disk is full");
    }
}

static void one_status_becomes_that_of_all(void **state)
{
    struct thread_rank ranks[RANKS_MAX];
    (void)state;
    run_both(3, fail_on_two, ranks, hear_rank_1);
    assert_int_equal(dcp_group_agree(NULL, DCP_ERR_IO, 60), DCP_ERR_IO);
    assert_int_equal(dcp_group_agree(NULL, (dcp_status)4711, 60), DCP_ERR_ARGUMENT);
}

/* ---- ranks that pass different things */

static dcp_status expect_refusal(dcp_status status, const char *expected)
{
    if (status == DCP_ERR_ARGUMENT && strstr(dcp_error_message(), expected))
        return DCP_OK;
    return dcp_error_set(DCP_ERR_INTERNAL, "expected \"%s\", found status %d", expected, status);
}

/* Each is a mistake of rank 1; the group is fine afterwards. */
static dcp_status make_mistakes(struct thread_rank *self)
{
    char send[8] = {0}, all[8 * RANKS_MAX];
    bool wrong_one = self->rank == 1;
    dcp_group *group = self->group;
    RETURN_IF_ERROR(expect_refusal(dcp_group_all_gather(group, send, wrong_one ? 7 : 8, 60, all),
                                   "8 bytes on rank 0 and 7 on rank 1"));
    RETURN_IF_ERROR(expect_refusal(dcp_group_all_gather(group, wrong_one ? NULL : send, 8, 60, all),
                                   "rank 1: dcp_group_all_gather: a pointer is NULL"));
    RETURN_IF_ERROR(expect_refusal(dcp_group_broadcast(group, wrong_one ? 1 : 0, 8, 60, send),
                                   "root 0 on rank 0 and 1 on rank 1"));
    RETURN_IF_ERROR(expect_refusal(dcp_group_broadcast(group, wrong_one ? 9 : 0, 8, 60, send),
                                   "rank 1: dcp_group_broadcast: root 9 does not exist"));
    RETURN_IF_ERROR(expect_refusal(dcp_group_barrier(group, wrong_one ? -1 : 60),
                                   "rank 1: dcp_group_barrier: the timeout is -1"));
    RETURN_IF_ERROR(
        expect_refusal(dcp_group_agree(group, wrong_one ? (dcp_status)4711 : DCP_OK, 60),
                       "rank 1: dcp_group_agree: 4711 is not a dcp_status"));
    return dcp_group_barrier(group, 60);
}

static void different_arguments_are_refused_on_all_ranks(void **state)
{
    struct thread_rank ranks[RANKS_MAX];
    (void)state;
    run_both(3, make_mistakes, ranks, all_succeed);
}

/* Who takes another rank for the root of an exchange hears of it, on all ranks. */
static dcp_status choose_roots(struct thread_rank *self)
{
    static const dcp_collective call = {"telling", 60};
    struct buffer received;
    buffer_init(&received, 0);
    dcp_status status =
        group_broadcast(self->group, &call, self->rank == 2, DCP_OK, "word", 4, &received);
    buffer_free(&received);
    return status;
}

static void hear_of_roots(const struct thread_rank ranks[RANKS_MAX])
{
    for (int r = 0; r < 3; r++) {
        assert_int_equal(ranks[r].status, DCP_ERR_ARGUMENT);
        assert_non_null(strstr(ranks[r].message, "rank 0 on rank 0, but rank 1 on rank 2"));
    }
}

static void different_coordinators_are_refused_on_all_ranks(void **state)
{
    struct thread_rank ranks[RANKS_MAX];
    (void)state;
    run_both(3, choose_roots, ranks, hear_of_roots);
}

/* ---- ranks in different calls */

/* Each kind of exchange against each other, whichever rank is elsewhere. */
enum { KINDS = 6 };

static dcp_status begin(dcp_group *group, int kind)
{
    static const dcp_collective call = {"working", 60};
    static const char *const names[KINDS] = {"dcp_a", "dcp_b", "dcp_c", "dcp_d", "dcp_e", "dcp_f"};
    const unsigned char *records;
    struct group_messages all = {0};
    struct buffer received, payloads[RANKS_MAX] = {{0}};
    dcp_status status = DCP_OK;
    group_enter(group, names[kind]);
    buffer_init(&received, 0);
    for (int r = 0; r < RANKS_MAX; r++)
        buffer_init(&payloads[r], 0);
    if (kind == 0)
        status = group_agree(group, &call, DCP_OK);
    if (kind == 1)
        status = group_share(group, &call, DCP_OK, "records!", 8, &records);
    if (kind == 2)
        status = group_gather(group, &call, 1, DCP_OK, "gathered", 8, &all);
    if (kind == 3)
        status = group_scatter(group, &call, 1, DCP_OK, payloads, &received);
    if (kind == 4)
        status = group_broadcast(group, &call, 1, DCP_OK, "sent", 4, &received);
    if (kind == 5)
        status = group_pass(group, &call, DCP_OK, -1, NULL, 0, &received);
    group_messages_free(&all);
    buffer_free(&received);
    return status;
}

struct scene {
    int elsewhere;
    int kind;
    int other;
};

static dcp_status be_elsewhere(struct thread_rank *self)
{
    const struct scene *scene = self->context;
    struct saved_error error;
    begin(self->group, self->rank == scene->elsewhere ? scene->other : scene->kind);
    error_save(&error);
    if (group_agree(self->group, &(dcp_collective){"going on", 60}, DCP_OK) != DCP_ERR_STATE)
        return dcp_error_set(DCP_ERR_INTERNAL, "the group is not broken");
    return error_restore(&error);
}

static void ranks_in_different_calls_hear_so_at_once(void **state)
{
    struct thread_rank ranks[RANKS_MAX];
    int64_t before = clock_monotonic_ns();
    (void)state;
    for (struct scene scene = {0}; scene.elsewhere < 3; scene.elsewhere += 2)
        for (scene.kind = 0; scene.kind < KINDS; scene.kind++)
            for (scene.other = 0; scene.other < KINDS; scene.other++) {
                char expected[200];
                if (scene.kind == scene.other)
                    continue;
                int first = scene.elsewhere == 0 ? scene.other : scene.kind;
                int second = scene.elsewhere == 0 ? scene.kind : scene.other;
                snprintf(
                    expected, sizeof expected,
                    "rank 0 is in dcp_%c (working), but rank %d in dcp_%c (working): all ranks of "
                    "a group must make the same calls in the same order",
                    'a' + first, scene.elsewhere == 0 ? 1 : 2, 'a' + second);
                for (int derived = 0; derived < 2; derived++) {
                    thread_ranks_run(3, derived != 0, be_elsewhere, &scene, ranks);
                    for (int r = 0; r < 3; r++) {
                        assert_int_equal(ranks[r].status, DCP_ERR_GROUP);
                        assert_string_equal(ranks[r].message, expected);
                    }
                }
            }
    assert_true(clock_monotonic_ns() - before < 4 * SOON_NS);
}

/* The same operation, another phase. */
static dcp_status be_ahead(struct thread_rank *self)
{
    group_enter(self->group, "dcp_save");
    return group_agree(self->group,
                       &(dcp_collective){self->rank == 1 ? "committing" : "planning", 60}, DCP_OK);
}

static void hear_of_phases(const struct thread_rank ranks[RANKS_MAX])
{
    for (int r = 0; r < 2; r++) {
        assert_int_equal(ranks[r].status, DCP_ERR_GROUP);
        assert_non_null(strstr(ranks[r].message, "rank 0 is in dcp_save (planning), but rank 1 in "
                                                 "dcp_save (committing)"));
    }
}

static void ranks_in_different_phases_hear_so_at_once(void **state)
{
    struct thread_rank ranks[RANKS_MAX];
    (void)state;
    run_both(2, be_ahead, ranks, hear_of_phases);
}

/* What a caller asks of a collective is checked on all ranks, so that nobody waits for the one. */
static dcp_status duplicate_wrongly(struct thread_rank *self)
{
    dcp_group *copy = NULL;
    dcp_status status = dcp_group_duplicate(self->group, self->rank == 1 ? -1 : 60, &copy);
    dcp_group_free(copy);
    return status;
}

static void hear_of_the_timeout(const struct thread_rank ranks[RANKS_MAX])
{
    for (int r = 0; r < 2; r++) {
        assert_int_equal(ranks[r].status, DCP_ERR_ARGUMENT);
        assert_non_null(strstr(ranks[r].message, "rank 1: dcp_group_duplicate: the timeout is -1"));
    }
}

static void a_wrong_timeout_of_one_rank_is_refused_on_all(void **state)
{
    struct thread_rank ranks[RANKS_MAX];
    (void)state;
    run_both(2, duplicate_wrongly, ranks, hear_of_the_timeout);
}

/* ---- operations that return what is no status */

static dcp_status odd_duplicate(void *context, const dcp_collective *call, void **copy)
{
    (void)context, (void)call, (void)copy;
    return (dcp_status)4711;
}

static dcp_status odd_split(void *context, const dcp_collective *call, int color, int rank,
                            int size, void **part)
{
    (void)context, (void)call, (void)color, (void)rank, (void)size, (void)part;
    return (dcp_status)4711;
}

static dcp_status make_groups_oddly(struct thread_rank *self)
{
    dcp_group *made = NULL;
    self->group->operations.duplicate = odd_duplicate;
    self->group->operations.split = odd_split;
    if (dcp_group_duplicate(self->group, 60, &made) != DCP_ERR_CALLBACK ||
        !strstr(dcp_error_message(), "the operation `duplicate` returned 4711, which is no"))
        return dcp_error_set(DCP_ERR_INTERNAL, "duplicate");
    if (dcp_group_split(self->group, 0, 0, 60, &made) != DCP_ERR_CALLBACK ||
        !strstr(dcp_error_message(), "the operation `split` returned 4711, which is no"))
        return dcp_error_set(DCP_ERR_INTERNAL, "split");
    return DCP_OK;
}

static void what_is_no_status_is_a_failure_of_the_callback(void **state)
{
    struct thread_rank ranks[RANKS_MAX];
    (void)state;
    run_both(3, make_groups_oddly, ranks, all_succeed);
}

/* ---- waits in the log */

struct lines {
    int count;
    char text[8][200];
    dcp_log_level level;
};

static void keep_line(void *context, dcp_log_level level, const char *line)
{
    struct lines *lines = context;
    if (lines->count < 8)
        snprintf(lines->text[lines->count++], sizeof lines->text[0], "%s", line);
    lines->level = level;
}

/* Rank 0 waits so long that it says so at 0.1, 0.2 and 0.4 s. */
static dcp_status come_late(struct thread_rank *self)
{
    if (self->rank != 0)
        clock_sleep_ns(600000000);
    return dcp_group_barrier(self->group, 60);
}

static void long_waits_are_logged(void **state)
{
    struct thread_rank ranks[RANKS_MAX];
    struct lines lines = {0};
    double before = 0;
    (void)state;
    dcp_set_log(keep_line, &lines, DCP_LOG_WARNING);
    dcp_set_log_waits(0.1);
    thread_ranks_run(2, false, come_late, NULL, ranks);
    dcp_set_log_waits(0);
    int logged = lines.count;
    thread_ranks_run(2, false, come_late, NULL, ranks);
    dcp_set_log(NULL, NULL, DCP_LOG_ERROR);
    dcp_set_log_waits(10);
    assert_in_range(logged, 2, 3);
    assert_int_equal(lines.count, logged);
    assert_int_equal(lines.level, DCP_LOG_WARNING);
    for (int i = 0; i < logged; i++) {
        static const char beginning[] = "dcp_group_barrier: a barrier: waiting for rank 1 for ";
        assert_memory_equal(lines.text[i], beginning, sizeof beginning - 1);
        double waited = strtod(lines.text[i] + sizeof beginning - 1, NULL);
        assert_true(waited >= 0.1 && waited >= 2 * before * 0.99);
        assert_non_null(strstr(lines.text[i], "s so far, for at most 60 s"));
        before = waited;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(callers_send_bytes),
        cmocka_unit_test(one_status_becomes_that_of_all),
        cmocka_unit_test(different_arguments_are_refused_on_all_ranks),
        cmocka_unit_test(different_coordinators_are_refused_on_all_ranks),
        cmocka_unit_test(ranks_in_different_calls_hear_so_at_once),
        cmocka_unit_test(ranks_in_different_phases_hear_so_at_once),
        cmocka_unit_test(a_wrong_timeout_of_one_rank_is_refused_on_all),
        cmocka_unit_test(what_is_no_status_is_a_failure_of_the_callback),
        cmocka_unit_test(long_waits_are_logged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
