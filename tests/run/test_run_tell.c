/* SPDX-License-Identifier: BSD-3-Clause */
/* What rank 0 tells the others of a run arrives as it is, and what cannot be right is refused by
 * all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/ranks.h"
#include "fault/failing_allocator.h"
#include "group/collective.h"
#include "run/run_tell.h"

enum { RANKS = 3 };

static dcp_run *run_of(const struct rank *self)
{
    dcp_run *run = calloc(1, sizeof *run);
    assert_non_null(run);
    run->options.group = self->group;
    run->rank = self->rank;
    run->size = self->size;
    return run;
}

/* ---- which run it is ---- */

static dcp_status tell_own(struct rank *self)
{
    const struct run_own *told = self->context;
    struct run_own own = {.identity = ""};
    dcp_run *run = run_of(self);
    if (self->rank == 0)
        own = *told;
    dcp_status status = run_tell_own(run, DCP_OK, &own);
    if (status == DCP_OK) {
        assert_string_equal(own.identity, told->identity);
        assert_string_equal(own.pattern, told->pattern);
        assert_int_equal(own.layout, told->layout);
        assert_string_equal(own.before, "at-");
        assert_string_equal(own.after, ".d");
        assert_int_equal(own.digits, 4);
    }
    free(run);
    return status;
}

static struct run_own some_run(void)
{
    struct run_own own = {.identity = "a-run"};
    must(run_own_set_pattern(&own, "at-{N:04d}.d", DCP_RUN_LAYOUT_BRIDGE));
    return own;
}

static void a_run_is_told(void **state)
{
    struct run_own own = some_run();
    (void)state;
    ranks_must(RANKS, "", tell_own, &own);
}

static void what_is_no_run_is_refused_by_all(void **state)
{
    struct run_own wrong[3] = {some_run(), some_run(), some_run()};
    struct rank ranks[RANKS_MAX];
    (void)state;
    strcpy(wrong[0].identity, "../run");
    strcpy(wrong[1].pattern, "at-N");
    wrong[2].layout = (dcp_run_layout)99;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ranks_run(ranks, RANKS, "", tell_own, &wrong[i]);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(ranks[r].status, DCP_ERR_GROUP);
            assert_string_equal(
                ranks[r].message,
                "rank 1: rank 0's message about the run does not fit this version of the library: "
                "all ranks need the same version");
        }
    }
}

/* ---- which checkpoint is resumed ---- */

static dcp_status tell_choice(struct rank *self)
{
    const struct run_choice *told = self->context;
    struct run_choice *choice = calloc(1, sizeof *choice);
    dcp_run *run = run_of(self);
    assert_non_null(choice);
    memset(choice, 0x55, sizeof *choice);
    if (self->rank == 0)
        *choice = *told;
    dcp_status status = run_tell_choice(run, DCP_OK, choice);
    if (status == DCP_OK) {
        assert_int_equal(choice->found, told->found);
        assert_int_equal(choice->named, told->named);
        assert_int_equal(choice->own, told->own);
        assert_int_equal(choice->no_optimizer, told->no_optimizer);
        assert_int_equal(choice->missing_optimizers, told->missing_optimizers);
        assert_int_equal(choice->pretrained, told->pretrained);
        assert_int_equal(choice->local, told->local);
        assert_int_equal(choice->kind, told->kind);
        assert_int_equal(choice->step, told->step);
        assert_string_equal(choice->name, told->name);
        assert_string_equal(choice->save_id, told->save_id);
        assert_string_equal(choice->path, told->path);
        assert_string_equal(choice->reason, told->reason);
    }
    free(choice);
    free(run);
    return status;
}

static void fill(char *text, size_t size, char with)
{
    memset(text, with, size - 1);
    text[size - 1] = '\0';
}

/* Each flag by itself, and texts as long as they may be. */
static void a_choice_is_told(void **state)
{
    struct run_choice choice = {.missing_optimizers = 0x80000001, .kind = -3, .step = -7};
    bool *const flags[] = {&choice.found,        &choice.named,      &choice.own,
                           &choice.no_optimizer, &choice.pretrained, &choice.local};
    (void)state;
    ranks_must(RANKS, "", tell_choice, &choice);
    fill(choice.name, sizeof choice.name, 'n');
    fill(choice.save_id, sizeof choice.save_id, 's');
    fill(choice.path, sizeof choice.path, 'p');
    fill(choice.reason, sizeof choice.reason, 'r');
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        *flags[i] = true;
        ranks_must(RANKS, "", tell_choice, &choice);
        *flags[i] = false;
    }
}

/* ---- messages that cannot be right ---- */

/* Where the name is in the message of a choice, after its length: after flags and numbers. */
enum { NAME_AT = 6 + 4 + 4 + 8 };

/* Two bytes that are in the place of the name's length, which is 0, and of the next text's. */
struct twist {
    unsigned char bytes[2];
    size_t path; /* length of the path: what is read as a name ends with it, and the rest fits */
};

struct twisted {
    dcp_group *inner;
    const struct twist *twist;
};

static dcp_status all_gather(void *context, const dcp_collective *call, const void *send,
                             size_t bytes, void *received)
{
    dcp_group *inner = ((struct twisted *)context)->inner;
    return inner->operations.all_gather(inner->context, call, send, bytes, received);
}

static dcp_status broadcast(void *context, const dcp_collective *call, int root, void *data,
                            size_t bytes)
{
    const struct twisted *twisted = context;
    dcp_group *inner = twisted->inner;
    dcp_status status = inner->operations.broadcast(inner->context, call, root, data, bytes);
    if (bytes >= sizeof(struct run_choice) && inner->rank != root)
        memcpy((unsigned char *)data + NAME_AT, twisted->twist->bytes, 2);
    return status;
}

static dcp_status tell_twisted(struct rank *self)
{
    static const dcp_group_operations operations = {
        .size_of = sizeof operations, .all_gather = all_gather, .broadcast = broadcast};
    struct twisted twisted = {self->group, self->context};
    struct run_choice *choice = calloc(1, sizeof *choice);
    struct rank over = *self;
    assert_non_null(choice);
    must(dcp_group_new(&operations, &twisted, self->rank, self->size, &over.group));
    fill(choice->path, twisted.twist->path + 1, 'p');
    over.context = choice;
    dcp_status status = tell_choice(&over);
    dcp_group_free(over.group);
    free(choice);
    return status;
}

static void texts_that_do_not_fit_are_refused(void **state)
{
    /* Lengths of 200, where there is room for 128; of 16383, more than the message has; and of 9,
     * though the text ends before. */
    static const struct twist twists[] = {{{0xc8, 1}, 198}, {{0xff, 0x7f}, 0}, {{9, 0}, 7}};
    struct rank ranks[RANKS_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof twists / sizeof *twists; i++) {
        ranks_run(ranks, RANKS, "", tell_twisted, (void *)&twists[i]);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(ranks[r].status, DCP_ERR_GROUP);
            assert_non_null(strstr(ranks[r].message, "message about the checkpoint to resume"));
        }
    }
}

/* ---- failures ---- */

/* Of any rank, whichever has none. */
static void without_memory_all_fail(void **state)
{
    struct run_own own = some_run();
    struct rank ranks[RANKS_MAX];
    bool reached = true;
    long failures = 0;
    (void)state;
    for (long n = 1; reached; n++) {
        failing_allocator_install(n, false);
        dcp_status status = ranks_try(ranks, RANKS, "", tell_own, &own);
        reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        for (int r = 0; status == DCP_OK && r < RANKS; r++)
            assert_int_equal(ranks[r].status, ranks[0].status);
        if (status == DCP_OK && ranks[0].status != DCP_OK) {
            assert_int_equal(ranks[0].status, DCP_ERR_NO_MEMORY);
            failures++;
        }
    }
    assert_true(failures >= RANKS);
}

static dcp_status tell_a_failure(struct rank *self)
{
    struct run_own own = {.identity = ""};
    dcp_run *run = run_of(self);
    dcp_status mine = self->rank == 0 ? dcp_error_set(DCP_ERR_IO, "no run") : DCP_OK;
    dcp_status status = run_tell_own(run, mine, &own);
    free(run);
    return status;
}

static void a_failure_of_rank_0_is_that_of_all(void **state)
{
    struct rank ranks[RANKS_MAX];
    (void)state;
    ranks_run(ranks, RANKS, "", tell_a_failure, NULL);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].status, DCP_ERR_IO);
        assert_string_equal(ranks[r].message, "rank 0: no run");
    }
}

static void a_stop_that_is_not_known_has_a_reason(void **state)
{
    dcp_run *run = calloc(1, sizeof *run);
    (void)state;
    assert_non_null(run);
    run->stop = (enum run_stop)200;
    assert_string_equal(dcp_run_stop_reason(run), "another rank asks for it");
    free(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_is_told),
        cmocka_unit_test(what_is_no_run_is_refused_by_all),
        cmocka_unit_test(a_choice_is_told),
        cmocka_unit_test(texts_that_do_not_fit_are_refused),
        cmocka_unit_test(without_memory_all_fail),
        cmocka_unit_test(a_failure_of_rank_0_is_that_of_all),
        cmocka_unit_test(a_stop_that_is_not_known_has_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
