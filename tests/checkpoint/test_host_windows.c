/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows that ranks of one host read where they are: a rank that is slow reads them before they
 * are overwritten. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checkpoint/ranks.h"
#include "group/collective.h"

/* Many more windows of each rank than it has buffers. */
enum { RANKS = 3, ROWS = 3 * 1280, COLUMNS = 4096 };

/* Notes on their way from one rank to another. */
struct queue {
    uint64_t notes[1024];
    size_t put;
    size_t taken;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the queues */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct queue queues[RANKS][RANKS]; /* from, to */
static _Thread_local int own_rank;
static _Thread_local bool is_slow, lies;

static bool put_note(struct queue *queue, const void *note)
{
    if (queue->put == sizeof queue->notes / sizeof *queue->notes)
        return false;
    memcpy(&queue->notes[queue->put], note, sizeof *queue->notes);
    queue->notes[queue->put++] += lies ? (uint64_t)1 << 40 : 0;
    return true;
}

/* As that of MPI, ranks wait for those alone of which they receive something. Nothing but notes is
 * exchanged. */
static dcp_status exchange_notes(void *context, const dcp_collective *call, const void *send,
                                 const size_t *send_sizes, const size_t *send_offsets,
                                 void *receive, const size_t *receive_sizes,
                                 const size_t *receive_offsets)
{
    const struct timespec moment = {.tv_nsec = 20000000};
    bool sent = true;
    (void)context;
    (void)call;
    pthread_mutex_lock(&mutex);
    for (int to = 0; to < RANKS; to++)
        if (send_sizes[to] != 0)
            sent = sent && send_sizes[to] == sizeof queues[0][0].notes[0] &&
                   put_note(&queues[own_rank][to], (const char *)send + send_offsets[to]);
    pthread_cond_broadcast(&changed);
    for (int from = 0; from < RANKS; from++) {
        struct queue *queue = &queues[from][own_rank];
        while (receive_sizes[from] != 0 && queue->put == queue->taken && sent)
            pthread_cond_wait(&changed, &mutex);
        if (receive_sizes[from] != 0 && sent)
            memcpy((char *)receive + receive_offsets[from], &queue->notes[queue->taken++],
                   receive_sizes[from]);
    }
    pthread_mutex_unlock(&mutex);
    if (is_slow) /* to read what the notes are about, while other ranks go on */
        nanosleep(&moment, NULL);
    return sent ? DCP_OK : dcp_error_set(DCP_ERR_INTERNAL, "a message of %zu bytes", send_sizes[0]);
}

struct trial {
    int slow;  /* a rank */
    bool held; /* rank 0 has what is stored otherwise */
    bool lies; /* that rank says that its windows are behind the end of its memory */
};

static float value_at(int64_t row, int64_t column)
{
    return (float)(row * 31 + column);
}

/* A part of the rows of the tensor, in a tree; the memory is freed by the caller. */
static dcp_state *make_tree(int64_t first, int64_t count, bool filled, float **data)
{
    dcp_state *root = dcp_state_new();
    const dcp_tensor tensor = {.dtype = DCP_F32,
                               .ndim = 2,
                               .global_shape = {ROWS, COLUMNS},
                               .sharded = true,
                               .offsets = {first, 0},
                               .sizes = {count, COLUMNS},
                               .data = *data = malloc((size_t)(count * COLUMNS) * sizeof **data)};
    assert_non_null(*data);
    for (int64_t i = 0; i < count * COLUMNS; i++)
        (*data)[i] = filled ? value_at(first + i / COLUMNS, i % COLUMNS) : -1;
    assert_non_null(dcp_state_tensor(root, "t", &tensor));
    return root;
}

static dcp_status check(const float *data, int64_t first, int64_t count)
{
    for (int64_t i = 0; i < count * COLUMNS; i++)
        if (data[i] != value_at(first + i / COLUMNS, i % COLUMNS))
            return dcp_error_set(DCP_ERR_INTERNAL, "element %ld of rows from %ld on is %g", (long)i,
                                 (long)first, (double)data[i]);
    return DCP_OK;
}

static dcp_status distribute(struct rank *self, dcp_state *root)
{
    const dcp_distribute_state_options options = {.group = self->group,
                                                  .broadcast_from_rank0 = true};
    float *data = NULL;
    dcp_state *whole = self->rank == 0 ? make_tree(0, ROWS, true, &data) : NULL;
    dcp_status status = dcp_distribute_state(root, whole, &options, NULL);
    dcp_state_free(whole);
    free(data);
    return status;
}

static dcp_status take_part(struct rank *self)
{
    const struct trial *trial = self->context;
    const dcp_load_options options = {.group = self->group, .reading = DCP_READING_COOPERATIVE};
    int64_t count = trial->held ? ROWS / RANKS : ROWS;
    int64_t first = trial->held ? self->rank * count : 0;
    float *data;
    dcp_state *root = make_tree(first, count, false, &data);
    own_rank = self->rank;
    is_slow = self->rank == trial->slow;
    lies = is_slow && trial->lies;
    self->group->operations.all_to_all = exchange_notes;
    dcp_status status =
        trial->held ? distribute(self, root) : dcp_load(root, self->path, &options, NULL);
    if (status == DCP_OK)
        status = check(data, first, count);
    dcp_state_free(root);
    free(data);
    return status;
}

static void must_pass(const char *path, bool held)
{
    for (int slow = 0; slow < RANKS; slow++) {
        struct trial trial = {slow, held, false};
        memset(queues, 0, sizeof queues);
        ranks_must(RANKS, path, take_part, &trial);
        assert_true(queues[0][1].put > 1 && queues[0][2].put > 1);
    }
}

static void what_ranks_read_for_each_other_arrives(void **state)
{
    const dcp_save_options options = {.skip_sync = true};
    float *data;
    dcp_state *root = make_tree(0, ROWS, true, &data);
    must(dcp_save(root, *state, &options));
    dcp_state_free(root);
    free(data);
    must_pass(*state, false);
}

/* It sends to one rank after the other. */
static void what_rank_0_has_for_the_others_arrives(void **state)
{
    must_pass(*state, true);
}

static void a_window_outside_of_the_memory_is_refused(void **state)
{
    struct trial trial = {0, true, true};
    struct rank ranks[RANKS_MAX];
    memset(queues, 0, sizeof queues);
    ranks_run(ranks, RANKS, *state, take_part, &trial);
    for (int rank = 0; rank < RANKS; rank++)
        assert_int_equal(ranks[rank].status, DCP_ERR_GROUP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_ranks_read_for_each_other_arrives, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(what_rank_0_has_for_the_others_arrives, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(a_window_outside_of_the_memory_is_refused, directory_setup,
                                        directory_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
