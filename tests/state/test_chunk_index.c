/* SPDX-License-Identifier: BSD-3-Clause */
/* Many chunks of one tensor, added one by one: an overlap is found, however they come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "dcp/state.h"
#include "fault/failing_allocator.h"
#include "state/chunk_index.h"
#include "state/random.h"

enum { EDGE = 24 };

/* A tensor of EDGE elements a dimension, and who has each of them; -1: nobody. */
struct field {
    dcp_state *root;
    dcp_state *node;
    int32_t ndim;
    int owner[EDGE * EDGE * EDGE];
    dcp_tensor boxes[EDGE * EDGE * EDGE];
    int count;
};

/* The chunk that has one of the box's elements, or -1; paint: gives them to that one. */
static int visit(struct field *field, const dcp_tensor *box, int paint)
{
    for (int p = 0; p < EDGE * EDGE * EDGE; p++) {
        int rest = p;
        bool in = true;
        for (int32_t d = 0; d < field->ndim; d++, rest /= EDGE)
            in = in && rest % EDGE >= box->offsets[d] &&
                 rest % EDGE < box->offsets[d] + box->sizes[d];
        if (!in || rest != 0)
            continue;
        if (paint >= 0)
            field->owner[p] = paint;
        else if (field->owner[p] >= 0)
            return field->owner[p];
    }
    return -1;
}

static struct field *field_new(int32_t ndim)
{
    struct field *field = calloc(1, sizeof *field);
    assert_non_null(field);
    field->root = dcp_state_new();
    field->ndim = ndim;
    memset(field->owner, 0xff, sizeof field->owner);
    return field;
}

static void field_free(struct field *field)
{
    dcp_state_free(field->root);
    free(field);
}

static void add(struct field *field, const dcp_tensor *box)
{
    int taken = visit(field, box, -1);
    dcp_status status = DCP_OK;
    if (field->node == NULL)
        field->node = dcp_state_tensor(field->root, "t", box);
    else
        status = node_add_chunk(field->node, box);
    assert_int_equal(status, taken >= 0 ? DCP_ERR_OVERLAP : DCP_OK);
    if (taken >= 0)
        return;
    visit(field, box, field->count);
    field->boxes[field->count++] = *box;
    assert_int_equal(field->node->as.tensor->chunk_count, field->count);
}

static dcp_tensor random_box(struct random *random, int32_t ndim, int64_t largest)
{
    dcp_tensor box = {.dtype = DCP_U8, .ndim = ndim, .sharded = true};
    for (int32_t d = 0; d < ndim; d++) {
        box.global_shape[d] = EDGE;
        box.offsets[d] = random_between(random, 0, EDGE - 1);
        int64_t room = EDGE - box.offsets[d];
        box.sizes[d] = random_between(random, 0, room < largest ? room : largest);
    }
    return box;
}

static void random_boxes_are_distinguished(void **state)
{
    (void)state;
    struct random random = {7};
    for (int32_t ndim = 1; ndim <= 3; ndim++) {
        for (int64_t largest = 1; largest <= 9; largest += 4) {
            struct field *field = field_new(ndim);
            for (int tries = 0; tries < 1200; tries++) {
                dcp_tensor box = random_box(&random, ndim, largest);
                add(field, &box);
            }
            if (ndim == 3 && largest == 1)
                assert_true(field->count > 900);
            field_free(field);
        }
    }
}

/* The message names the chunk that is there, also when it came long before. */
static void the_right_chunk_is_named(void **state)
{
    (void)state;
    dcp_state *root = dcp_state_new();
    dcp_tensor chunk = {
        .dtype = DCP_U8, .ndim = 1, .sharded = true, .global_shape = {3000}, .sizes = {3}};
    dcp_state *node = dcp_state_tensor(root, "t", &chunk);
    for (chunk.offsets[0] = 3; chunk.offsets[0] < 2997; chunk.offsets[0] += 3)
        assert_int_equal(dcp_state_add_chunk(node, &chunk), DCP_OK);
    for (int64_t at = 0; at < 2997; at += 48) {
        char text[64];
        chunk.offsets[0] = at + 1;
        chunk.sizes[0] = 2;
        assert_int_equal(node_add_chunk(node, &chunk), DCP_ERR_OVERLAP);
        snprintf(text, sizeof text, "[%d:%d] overlaps the chunk [%d:%d]", (int)at + 1, (int)at + 3,
                 (int)at, (int)at + 3);
        assert_non_null(strstr(dcp_error_message(), text));
    }
    dcp_state_free(root);
}

/* Far less than comparing each with all: that would be 3e10 comparisons. */
static void many_chunks_take_no_time(void **state)
{
    (void)state;
    enum { SIDE = 512 };
    struct timespec start, end;
    dcp_state *root = dcp_state_new(), *node = NULL;
    dcp_tensor chunk = {.dtype = DCP_U8,
                        .ndim = 2,
                        .sharded = true,
                        .global_shape = {2 * SIDE, 2 * SIDE},
                        .sizes = {2, 2}};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    for (int i = 0; i < SIDE * SIDE; i++) {
        int place = (int)((int64_t)i * 40503 % (SIDE * SIDE)); /* each once, in disorder */
        chunk.offsets[0] = place / SIDE * 2;
        chunk.offsets[1] = place % SIDE * 2;
        if (node == NULL)
            node = dcp_state_tensor(root, "t", &chunk);
        else
            assert_int_equal(node_add_chunk(node, &chunk), DCP_OK);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    assert_true(end.tv_sec - start.tv_sec < 20);
    chunk.offsets[0] = 301;
    assert_int_equal(node_add_chunk(node, &chunk), DCP_ERR_OVERLAP);
    dcp_state_free(root);
}

/* A chunk that there was no memory for is not there, and can be added again. */
static void failed_allocations_change_nothing(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        dcp_tensor chunk = {
            .dtype = DCP_U8, .ndim = 1, .sharded = true, .global_shape = {4000}, .sizes = {2}};
        failing_allocator_install(n, false);
        dcp_state *root = dcp_state_new();
        dcp_state *node = root != NULL ? dcp_state_tensor(root, "t", &chunk) : NULL;
        for (size_t i = 1; i < 300 && node != NULL; i++) {
            chunk.offsets[0] = (int64_t)i * 2;
            dcp_status status = node_add_chunk(node, &chunk);
            if (status == DCP_OK)
                continue;
            assert_int_equal(status, DCP_ERR_NO_MEMORY);
            assert_int_equal(node->as.tensor->chunk_count, i);
            assert_int_equal(node_add_chunk(node, &chunk), DCP_OK);
        }
        for (chunk.offsets[0] = 1; chunk.offsets[0] < 598 && node != NULL; chunk.offsets[0]++)
            assert_int_equal(node_add_chunk(node, &chunk), DCP_ERR_OVERLAP);
        dcp_state_free(root);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        if (!reached)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_boxes_are_distinguished),
        cmocka_unit_test(the_right_chunk_is_named),
        cmocka_unit_test(many_chunks_take_no_time),
        cmocka_unit_test(failed_allocations_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
