/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups of the caller's own collectives, and no group at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "fault/failing_allocator.h"
#include "group/group.h"

static const dcp_collective call = {"testing", 5};

/* A caller's collectives that do nothing but end as they are told. */
struct scripted {
    dcp_status status;
    const char *message; /* NULL: none */
    int calls;
    int closed;
};

static dcp_status scripted_end(struct scripted *scripted)
{
    scripted->calls++;
    if (scripted->status != DCP_OK && scripted->message != NULL)
        return dcp_error_set(scripted->status, "%s", scripted->message);
    return scripted->status;
}

static dcp_status scripted_all_gather(void *context, const dcp_collective *asked, const void *send,
                                      size_t bytes, void *receive)
{
    (void)asked;
    memcpy(receive, send, bytes);
    memcpy((unsigned char *)receive + bytes, send, bytes);
    return scripted_end(context);
}

static dcp_status scripted_broadcast(void *context, const dcp_collective *asked, int root,
                                     void *data, size_t bytes)
{
    (void)asked, (void)root, (void)data, (void)bytes;
    return scripted_end(context);
}

static void scripted_close(void *context)
{
    ((struct scripted *)context)->closed++;
}

static const dcp_group_operations operations = {
    .size_of = sizeof operations,
    .all_gather = scripted_all_gather,
    .broadcast = scripted_broadcast,
    .close = scripted_close,
};

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    struct scripted scripted = {0};
    dcp_group *group = (dcp_group *)&scripted;
    dcp_group_operations incomplete = operations;
    assert_int_equal(dcp_group_new(&operations, NULL, 0, 1, NULL), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_group_new(NULL, NULL, 0, 1, &group), DCP_ERR_ARGUMENT);
    assert_null(group);
    assert_int_equal(dcp_group_new(&operations, NULL, 0, 0, &group), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_group_new(&operations, NULL, -1, 2, &group), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_group_new(&operations, NULL, 2, 2, &group), DCP_ERR_ARGUMENT);
    assert_string_equal(dcp_error_message(), "rank 2 does not exist in a group of 2");
    incomplete.broadcast = NULL;
    assert_int_equal(dcp_group_new(&incomplete, NULL, 0, 1, &group), DCP_ERR_ARGUMENT);
    incomplete = operations;
    incomplete.all_gather = NULL;
    assert_int_equal(dcp_group_new(&incomplete, &scripted, 0, 1, &group), DCP_ERR_ARGUMENT);
    incomplete = operations;
    incomplete.size_of = 0;
    assert_int_equal(dcp_group_new(&incomplete, &scripted, 0, 1, &group), DCP_ERR_ARGUMENT);
    assert_int_equal(scripted.closed, 0);
    dcp_group_free(NULL);
}

static void operations_of_other_versions_are_taken_by_size(void **state)
{
    (void)state;
    struct {
        dcp_group_operations known;
        void *unknown;
    } longer = {operations, NULL};
    struct scripted scripted = {0};
    dcp_group *group;

    dcp_group_operations shorter = operations;
    shorter.size_of = offsetof(dcp_group_operations, gather);
    assert_int_equal(dcp_group_new(&shorter, &scripted, 0, 1, &group), DCP_OK);
    dcp_group_free(group);
    assert_int_equal(scripted.closed, 0); /* a version that knew no close */

    longer.known.size_of = sizeof longer;
    assert_int_equal(dcp_group_new(&longer.known, &scripted, 0, 1, &group), DCP_OK);
    dcp_group_free(group);
    assert_int_equal(scripted.closed, 1);
    longer.unknown = &scripted;
    assert_int_equal(dcp_group_new(&longer.known, &scripted, 0, 1, &group), DCP_ERR_ARGUMENT);
    assert_int_equal(scripted.closed, 1);
}

static void groups_without_memory_are_not_made(void **state)
{
    (void)state;
    struct scripted scripted = {0};
    for (long n = 1;; n++) {
        failing_allocator_install(n, false);
        dcp_group *group, *threads[3];
        dcp_status status = dcp_group_new(&operations, &scripted, 1, 3, &group);
        if (status == DCP_OK)
            dcp_group_free(group);
        else
            assert_null(group);
        scripted.closed = 0;
        if (status == DCP_OK)
            status = dcp_group_new_threads(3, threads);
        for (int i = 0; status != DCP_ERR_NO_MEMORY && i < 3; i++)
            dcp_group_free(threads[i]);
        bool reached = failing_allocator_reached();
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        assert_int_equal(failing_allocator_remove(), 0);
        if (!reached)
            break;
        assert_int_equal(scripted.closed, 0);
    }
}

/* One rank, with a group or without. */
static void one_rank_exchanges_with_itself(dcp_group *group)
{
    struct buffer payload, received;
    struct group_messages all;
    buffer_init(&payload, 0);
    buffer_init(&received, 0);
    buffer_append(&payload, "plan", 4);
    assert_int_equal(dcp_group_rank(group), 0);
    assert_int_equal(dcp_group_size(group), 1);
    assert_int_equal(group_gather(group, &call, 0, DCP_OK, "mine", 4, &all), DCP_OK);
    assert_int_equal(all.count, 1);
    assert_int_equal(all.offsets[1], 4);
    assert_memory_equal(all.bytes, "mine", 4);
    group_messages_free(&all);
    assert_int_equal(group_gather(group, &call, 0, DCP_OK, NULL, 0, &all), DCP_OK);
    group_messages_free(&all);
    assert_int_equal(group_scatter(group, &call, 0, DCP_OK, &payload, &received), DCP_OK);
    assert_int_equal(received.size, 4);
    assert_memory_equal(received.data, "plan", 4);
    assert_int_equal(group_broadcast(group, &call, 0, DCP_OK, "all", 3, &received), DCP_OK);
    assert_int_equal(received.size, 3);
    assert_int_equal(group_agree(group, &call, DCP_OK), DCP_OK);

    dcp_error_set(DCP_ERR_SHAPE, "mine");
    assert_int_equal(group_gather(group, &call, 0, DCP_ERR_SHAPE, "x", 1, &all), DCP_ERR_SHAPE);
    assert_null(all.bytes);
    assert_int_equal(group_scatter(group, &call, 0, DCP_ERR_SHAPE, &payload, &received),
                     DCP_ERR_SHAPE);
    assert_int_equal(group_broadcast(group, &call, 0, DCP_ERR_SHAPE, "x", 1, &received),
                     DCP_ERR_SHAPE);
    assert_int_equal(received.size, 0);
    assert_int_equal(group_agree(group, &call, DCP_ERR_SHAPE), DCP_ERR_SHAPE);
    assert_string_equal(dcp_error_message(), "mine");
    buffer_free(&payload);
    buffer_free(&received);
}

static void no_group_is_one_rank(void **state)
{
    (void)state;
    one_rank_exchanges_with_itself(NULL);
}

static void a_group_of_one_needs_no_collective(void **state)
{
    (void)state;
    struct scripted scripted = {.status = DCP_ERR_GROUP};
    dcp_group *group;
    assert_int_equal(dcp_group_new(&operations, &scripted, 0, 1, &group), DCP_OK);
    one_rank_exchanges_with_itself(group);
    assert_int_equal(scripted.calls, 0);
    dcp_group_free(group);
}

static void a_failed_collective_breaks_the_group(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *set;
        dcp_status expected;
        const char *message;
    } cases[] = {
        {DCP_ERR_TIMEOUT, "rank 1 did not make this call", DCP_ERR_TIMEOUT,
         "testing: rank 1 did not make this call"},
        {DCP_ERR_GROUP, NULL, DCP_ERR_GROUP, "testing: communication failed"},
        {1, NULL, DCP_ERR_CALLBACK, "testing: a collective returned 1, which is not a dcp_status"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct scripted scripted = {.status = (dcp_status)cases[i].status, .message = cases[i].set};
        dcp_group *group;
        assert_int_equal(dcp_group_new(&operations, &scripted, 0, 2, &group), DCP_OK);
        dcp_error_set(DCP_ERR_IO, "of something else");
        assert_int_equal(group_agree(group, &call, DCP_OK), cases[i].expected);
        assert_string_equal(dcp_error_message(), cases[i].message);
        int calls = scripted.calls;
        assert_int_equal(group_agree(group, &call, DCP_OK), DCP_ERR_STATE);
        assert_non_null(strstr(dcp_error_message(), cases[i].message));
        assert_int_equal(scripted.calls, calls);
        /* A rank that failed itself knows more than the group. */
        dcp_error_set(DCP_ERR_SHAPE, "mine");
        assert_int_equal(group_agree(group, &call, DCP_ERR_SHAPE), DCP_ERR_SHAPE);
        assert_string_equal(dcp_error_message(), "mine");
        dcp_group_free(group);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(operations_of_other_versions_are_taken_by_size),
        cmocka_unit_test(groups_without_memory_are_not_made),
        cmocka_unit_test(no_group_is_one_rank),
        cmocka_unit_test(a_group_of_one_needs_no_collective),
        cmocka_unit_test(a_failed_collective_breaks_the_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
