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

/* ---- a failure ---- */

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_is_told),
        cmocka_unit_test(what_is_no_run_is_refused_by_all),
        cmocka_unit_test(a_choice_is_told),
        cmocka_unit_test(a_failure_of_rank_0_is_that_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
