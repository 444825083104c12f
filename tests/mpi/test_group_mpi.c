/* SPDX-License-Identifier: BSD-3-Clause */
/* Process groups over MPI, on as many ranks as this is started on. */
#include <stdlib.h>

#include "base/buffer.h"
#include "dcp/environment.h"
#include "dcp/mpi.h"
#include "fault/failing_allocator.h"
#include "group/collective.h"
#include "group/group.h"
#include "mpi/check.h"

int world_rank, world_size;

static const dcp_collective patient = {"testing", 60};

static dcp_group *new_group(MPI_Comm communicator)
{
    dcp_group *group;
    CHECK_STATUS(dcp_group_new_mpi(communicator, &group), DCP_OK);
    return group;
}

/* Byte at a position of the message of a rank. */
static unsigned char byte_of(int rank, size_t position)
{
    return (unsigned char)((size_t)rank * 31 + position * 7 + position / 251);
}

static unsigned char *message_of(int rank, size_t size)
{
    unsigned char *bytes = malloc(size + 1);
    for (size_t i = 0; i < size; i++)
        bytes[i] = byte_of(rank, i);
    return bytes;
}

static void check_message(const unsigned char *bytes, int rank, size_t size)
{
    for (size_t i = 0; i < size; i++)
        CHECK(bytes[i] == byte_of(rank, i));
}

static void wrong_arguments_are_refused(void)
{
    dcp_group *group;
    CHECK_STATUS(dcp_group_new_mpi(MPI_COMM_WORLD, NULL), DCP_ERR_ARGUMENT);
    CHECK_STATUS(dcp_group_new_mpi(MPI_COMM_NULL, &group), DCP_ERR_ARGUMENT);
    CHECK(group == NULL);
    if (world_size < 2)
        return;
    MPI_Comm half, between;
    MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - world_rank % 2, 9, &between);
    CHECK_STATUS(dcp_group_new_mpi(between, &group), DCP_ERR_ARGUMENT);
    MPI_Comm_free(&between);
    MPI_Comm_free(&half);
}

/* A group that one rank cannot make is made by none. */
static void one_rank_without_memory_fails_for_all(void)
{
    for (int poor = 0; poor < world_size; poor++) {
        dcp_group *group;
        if (world_rank == poor)
            failing_allocator_install(1, false);
        CHECK_STATUS(dcp_group_new_mpi(MPI_COMM_WORLD, &group), DCP_ERR_NO_MEMORY);
        CHECK(group == NULL);
        char expected[80];
        snprintf(expected, sizeof expected, "rank %d could not make its group: out of memory",
                 poor);
        if (world_rank == poor)
            CHECK(failing_allocator_remove() == 0);
        else
            CHECK_MESSAGE(expected);
    }
}

/* All but one rank make a group, and the one comes later, in vain: nobody waits longer than it has
 * said. The communicator is one of its own, as MPI may be busy with it for ever. */
static void a_rank_that_makes_no_group_holds_nobody(void)
{
    MPI_Comm communicator;
    MPI_Comm_dup(MPI_COMM_WORLD, &communicator);
    for (int late = 0; late < 2 && world_size > 1; late++) {
        dcp_group *group;
        double before = MPI_Wtime();
        if ((world_rank == world_size - 1) == late) {
            CHECK_STATUS(dcp_group_new_mpi_within(communicator, 0.3, &group), DCP_ERR_TIMEOUT);
            CHECK(group == NULL);
            CHECK(MPI_Wtime() - before < 1.3);
            CHECK(late || strstr(dcp_error_message(), "MPI_Comm_idup has waited for 0.3"));
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    dcp_group *group;
    CHECK_STATUS(dcp_group_new_mpi_within(MPI_COMM_WORLD, -1, &group), DCP_ERR_ARGUMENT);
    CHECK_STATUS(dcp_group_new_mpi_within(MPI_COMM_WORLD, 20, &group), DCP_OK);
    dcp_group_free(group);
}

/* Parts of parts share a communicator with ranks that are in other parts, or in none. */
static void parts_of_parts_know_their_ranks(void)
{
    dcp_group *whole = new_group(MPI_COMM_WORLD), *part = NULL, *half = NULL;
    CHECK_STATUS(dcp_group_split(whole, world_rank == 0 ? DCP_NO_COLOR : 1, -world_rank, 20, &part),
                 DCP_OK);
    if (world_rank != 0) {
        CHECK(dcp_group_rank(part) == world_size - 1 - world_rank);
        CHECK_STATUS(dcp_group_split(part, dcp_group_rank(part) % 2, 0, 20, &half), DCP_OK);
        CHECK(dcp_group_rank(half) == dcp_group_rank(part) / 2);
        int own = world_rank, all[16] = {0}, size = dcp_group_size(half);
        CHECK_STATUS(dcp_group_all_gather(half, &own, sizeof own, 20, all), DCP_OK);
        for (int r = 0; r < size; r++)
            CHECK(all[r] == world_size - 1 - (dcp_group_rank(part) % 2) - 2 * r);
        for (int root = 0; root < size; root++) {
            int word = dcp_group_rank(half) == root ? 7 * root : -1;
            CHECK_STATUS(dcp_group_broadcast(half, root, sizeof word, 20, &word), DCP_OK);
            CHECK(word == 7 * root);
        }
    }
    dcp_group_free(half);
    dcp_group_free(part);
    CHECK_STATUS(dcp_group_barrier(whole, 20), DCP_OK);
    dcp_group_free(whole);
}

/* One status for all, and who calls something else is named at once, whoever it is. */
static void ranks_in_different_calls_hear_so_at_once(void)
{
    for (int elsewhere = 0; elsewhere < world_size && world_size > 1; elsewhere++) {
        dcp_group *group = new_group(MPI_COMM_WORLD);
        char expected[200], bytes[8] = {0};
        dcp_status mine = world_rank == 1 ? dcp_error_set(DCP_ERR_IO, "no disk") : DCP_OK;
        CHECK_STATUS(dcp_group_agree(group, mine, 20), DCP_ERR_IO);
        CHECK_MESSAGE("rank 1: no disk");
        double before = MPI_Wtime();
        dcp_status status = world_rank == elsewhere ? dcp_group_barrier(group, 20)
                                                    : dcp_group_broadcast(group, 0, 8, 20, bytes);
        CHECK(MPI_Wtime() - before < 2);
        CHECK(status == DCP_ERR_GROUP);
        snprintf(
            expected, sizeof expected,
            elsewhere == 0
                ? "rank 0 is in dcp_group_barrier (a barrier), but rank %d in dcp_group_broadcast "
                  "(broadcasting bytes)"
                : "rank 0 is in dcp_group_broadcast (broadcasting bytes), but rank %d in "
                  "dcp_group_barrier (a barrier)",
            elsewhere == 0 ? 1 : elsewhere);
        CHECK(strncmp(dcp_error_message(), expected, strlen(expected)) == 0);
        CHECK_STATUS(dcp_group_barrier(group, 20), DCP_ERR_STATE);
        dcp_group_free(group);
    }
}

static int lines_logged;
static char last_line[256];

static void keep_line(void *context, dcp_log_level level, const char *line)
{
    (void)context;
    lines_logged += level == DCP_LOG_WARNING;
    snprintf(last_line, sizeof last_line, "%s", line);
}

static void long_waits_are_logged(void)
{
    if (world_size < 2)
        return;
    dcp_group *group = new_group(MPI_COMM_WORLD);
    dcp_set_log(keep_line, NULL, DCP_LOG_WARNING);
    dcp_set_log_waits(0.1);
    lines_logged = 0;
    double until = MPI_Wtime() + 0.5;
    while (world_rank == world_size - 1 && MPI_Wtime() < until)
        ;
    CHECK_STATUS(dcp_group_barrier(group, 20), DCP_OK);
    dcp_set_log(NULL, NULL, DCP_LOG_ERROR);
    dcp_set_log_waits(10);
    char expected[100];
    snprintf(expected, sizeof expected, "dcp_group_barrier: a barrier: waiting for rank %d for 0.",
             world_size - 1);
    if (world_rank == 0) {
        CHECK(lines_logged >= 1 && lines_logged <= 3);
        CHECK(strncmp(last_line, expected, strlen(expected)) == 0);
    }
    dcp_group_free(group);
}

/* Every collective with every root. Rank r's message has (r + 1) * unit bytes. */
static void collectives_move(dcp_group *group, size_t unit)
{
    int rank = dcp_group_rank(group), size = dcp_group_size(group);
    size_t sizes[16], total = 0;
    for (int r = 0; r < size; r++)
        total += sizes[r] = (size_t)(r + 1) * unit;
    unsigned char *mine = message_of(rank, sizes[rank]);
    unsigned char *everyone = malloc(total + unit * (size_t)size + 1);

    CHECK_STATUS(collective_all_gather(group, &patient, mine, unit, everyone), DCP_OK);
    for (int r = 0; r < size; r++)
        check_message(everyone + (size_t)r * unit, r, unit);
    for (int root = 0; root < size; root++) {
        memset(everyone, 0, total);
        if (rank == root)
            memcpy(everyone, mine, sizes[root]);
        CHECK_STATUS(collective_broadcast(group, &patient, root, everyone, sizes[root]), DCP_OK);
        check_message(everyone, root, sizes[root]);
        memset(everyone, 0, total);
        CHECK_STATUS(collective_gather(group, &patient, root, mine, sizes, NULL, everyone), DCP_OK);
        unsigned char *place = everyone;
        for (int r = 0; r < size && rank == root; place += sizes[r++])
            check_message(place, r, sizes[r]);
        memset(mine, 0, sizes[rank]);
        CHECK_STATUS(collective_scatter(group, &patient, root, everyone, sizes, NULL, mine),
                     DCP_OK);
        check_message(mine, rank, sizes[rank]);
    }
    free(everyone);
    free(mine);
}

/* Rank r's message to rank d is the (r + d) * unit bytes from its d-th on. */
static void all_to_all_moves(dcp_group *group, size_t unit)
{
    size_t sizes[2][16] = {{0}}, offsets[2][16] = {{0}}, total = 0, most = 0;
    for (int r = 0; r < world_size; r++) {
        sizes[0][r] = sizes[1][r] = r == world_rank ? 0 : (size_t)(r + world_rank) * unit;
        offsets[0][r] = (size_t)r;
        offsets[1][r] = total;
        total += sizes[1][r];
        most = sizes[0][r] > most ? sizes[0][r] : most;
    }
    unsigned char *mine = message_of(world_rank, most + (size_t)world_size);
    unsigned char *everyone = malloc(total + 1);
    CHECK_STATUS(collective_all_to_all(group, &patient, mine, sizes[0], offsets[0], everyone,
                                       sizes[1], offsets[1]),
                 DCP_OK);
    for (int r = 0; r < world_size; r++)
        for (size_t i = 0; i < sizes[1][r]; i++)
            CHECK(everyone[offsets[1][r] + i] == byte_of(r, i + (size_t)world_rank));
    free(everyone);
    free(mine);
}

static void everyone_sends_to_everyone(void)
{
    static const size_t units[] = {0, 1, 1000, 65537, 1500000};
    dcp_group *group = new_group(MPI_COMM_WORLD);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        all_to_all_moves(group, units[i]);
    collectives_move(group, 1000);
    dcp_group_free(group);
}

static void collectives_move_the_right_bytes(void)
{
    /* Empty, small, around a broadcast's change of ways, and in several pieces. */
    static const size_t units[] = {0, 1, 1000, 65536, 65537, 3000000};
    dcp_group *group = new_group(MPI_COMM_WORLD);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        collectives_move(group, units[i]);
    dcp_group_free(group);
}

static void sub_communicators_work_side_by_side(void)
{
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, -world_rank, &half);
    dcp_group *whole_group = new_group(MPI_COMM_WORLD);
    dcp_group *half_group = new_group(half);
    dcp_group *own_group = new_group(MPI_COMM_SELF);
    MPI_Comm_free(&half); /* the group has its own */
    CHECK(dcp_group_size(half_group) == (world_size + 1 - world_rank % 2) / 2);
    CHECK(dcp_group_rank(half_group) == dcp_group_size(half_group) - 1 - world_rank / 2);
    for (int i = 0; i < 3; i++) {
        collectives_move(half_group, 100);
        collectives_move(own_group, 100);
        collectives_move(whole_group, 100);
    }
    dcp_group_free(whole_group);
    dcp_group_free(half_group);
    dcp_group_free(own_group);
}

/* The last rank, if there are more than two, is in no part. */
static void parts_work_side_by_side(void)
{
    dcp_group *whole = new_group(MPI_COMM_WORLD), *part, *own;
    int members = world_size > 2 ? world_size - 1 : world_size;
    int color = world_rank < members ? world_rank % 2 : DCP_NO_COLOR;
    CHECK_STATUS(dcp_group_split(whole, color, -world_rank, 60, &part), DCP_OK);
    CHECK((part == NULL) == (color == DCP_NO_COLOR));
    CHECK_STATUS(dcp_group_split(whole, world_rank, 0, 60, &own), DCP_OK);
    CHECK(dcp_group_size(own) == 1 && dcp_group_rank(own) == 0);
    if (part != NULL) {
        CHECK(dcp_group_size(part) == (members + 1 - color) / 2);
        CHECK(dcp_group_rank(part) == dcp_group_size(part) - 1 - world_rank / 2);
    }
    for (int i = 0; i < 3; i++) {
        if (part != NULL)
            collectives_move(part, 100);
        collectives_move(own, 100);
        collectives_move(whole, 100);
    }
    dcp_group_free(whole);
    if (part != NULL)
        collectives_move(part, 1000);
    dcp_group_free(part);
    dcp_group_free(own);
}

/* Whichever allocation of which rank fails, nobody gets a part, and the group is as it was. */
static void a_split_that_fails_on_one_rank_fails_on_all(void)
{
    dcp_group *whole = new_group(MPI_COMM_WORLD), *part;
    for (int poor = 0; poor < world_size; poor++)
        for (long failing = 1, failed = 1; failed; failing++) {
            if (world_rank == poor)
                failing_allocator_install(failing, false);
            dcp_status status = dcp_group_split(whole, world_rank % 2, 0, 60, &part);
            CHECK(status == DCP_OK || (status == DCP_ERR_NO_MEMORY && part == NULL));
            failed = status != DCP_OK;
            dcp_group_free(part);
            if (world_rank == poor)
                CHECK(failing_allocator_remove() == 0);
            CHECK(failing < 50);
        }
    collectives_move(whole, 100);
    CHECK_STATUS(dcp_group_split(whole, world_rank == world_size - 1 ? -7 : 0, 0, 60, &part),
                 DCP_ERR_ARGUMENT);
    dcp_group_free(whole);
}

/* The caller has a receive of anything open on the communicator, and messages of its own under way.
 */
static void messages_never_meet_the_callers(void)
{
    int to = (world_rank + 1) % world_size, from = (world_rank + world_size - 1) % world_size;
    int received = -1;
    MPI_Request receive, send;
    MPI_Status status;
    MPI_Irecv(&received, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &receive);
    dcp_group *group = new_group(MPI_COMM_WORLD);
    collectives_move(group, 10);
    MPI_Isend(&world_rank, 1, MPI_INT, to, 1, MPI_COMM_WORLD, &send);
    collectives_move(group, 10);
    MPI_Wait(&receive, &status);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    CHECK(received == from && status.MPI_SOURCE == from && status.MPI_TAG == 1);
    dcp_group_free(group);
}

/* ---- exchanges */

enum exchange { EXCHANGE_GATHER, EXCHANGE_SCATTER, EXCHANGE_BROADCAST, EXCHANGE_AGREE, EXCHANGES };

static dcp_status exchange_once(dcp_group *group, enum exchange exchange, int root, size_t unit,
                                const dcp_collective *call, dcp_status mine)
{
    int rank = dcp_group_rank(group), size = dcp_group_size(group);
    unsigned char *message = message_of(rank, unit);
    struct group_messages all;
    struct buffer payloads[16], received;
    buffer_init(&received, 0);
    for (int r = 0; r < size; r++) {
        buffer_init(&payloads[r], 0);
        for (size_t i = 0; i < unit; i++)
            buffer_append_u8(&payloads[r], byte_of(r, i));
    }
    dcp_status status;
    switch (exchange) {
    case EXCHANGE_GATHER:
        status = group_gather(group, call, root, mine, message, unit, &all);
        for (int r = 0; r < all.count; r++)
            check_message(all.bytes + all.offsets[r], r, all.offsets[r + 1] - all.offsets[r]);
        CHECK(all.count == (status == DCP_OK && rank == root ? size : 0));
        group_messages_free(&all);
        break;
    case EXCHANGE_SCATTER:
        status = group_scatter(group, call, root, mine, payloads, &received);
        check_message(received.data, rank, received.size);
        break;
    case EXCHANGE_BROADCAST:
        status = group_broadcast(group, call, root, mine, message, unit, &received);
        check_message(received.data, root, received.size);
        break;
    default:
        status = group_agree(group, call, mine);
    }
    if (exchange == EXCHANGE_SCATTER || exchange == EXCHANGE_BROADCAST)
        CHECK(received.size == (status == DCP_OK ? unit : 0));
    buffer_free(&received);
    for (int r = 0; r < size; r++)
        buffer_free(&payloads[r]);
    free(message);
    return status;
}

static void each_rank_failing_at_each_exchange_is_the_failure_of_all(void)
{
    dcp_group *group = new_group(MPI_COMM_WORLD);
    for (int failing = -1; failing < world_size; failing++)
        for (enum exchange exchange = 0; exchange < EXCHANGES; exchange++)
            for (int root = 0; root < world_size; root++) {
                dcp_status mine = DCP_OK;
                if (world_rank == failing)
                    mine = dcp_error_set(DCP_ERR_NO_SPACE, "disk %d is full", root);
                CHECK_STATUS(exchange_once(group, exchange, root, 5000, &patient, mine),
                             failing < 0 ? DCP_OK : DCP_ERR_NO_SPACE);
                char expected[64];
                snprintf(expected, sizeof expected, "rank %d: disk %d is full", failing, root);
                if (failing >= 0)
                    CHECK_MESSAGE(world_size > 1 ? expected : expected + strlen("rank 0: "));
            }
    dcp_group_free(group);
}

/* One rank is missing from an exchange: all others name it within the deadline and a second. */
static void miss_one(int missing, enum exchange exchange, int root)
{
    static const dcp_collective hasty = {"planning", 0.2};
    dcp_group *group = new_group(MPI_COMM_WORLD);
    char expected[80];
    snprintf(expected, sizeof expected, "planning: rank %d did not make this call within 0.2 s",
             missing);
    if (world_rank != missing) {
        double before = MPI_Wtime();
        CHECK_STATUS(exchange_once(group, exchange, root, 10, &hasty, DCP_OK), DCP_ERR_TIMEOUT);
        CHECK(MPI_Wtime() - before < 1.2);
        CHECK_MESSAGE(expected);
        CHECK_STATUS(group_agree(group, &patient, DCP_OK), DCP_ERR_STATE);
        CHECK(strstr(dcp_error_message(), expected) != NULL);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    /* It comes late, and is told. */
    if (world_rank == missing) {
        double before = MPI_Wtime();
        CHECK_STATUS(group_agree(group, &patient, DCP_OK), DCP_ERR_STATE);
        CHECK(MPI_Wtime() - before < 1);
        CHECK(strstr(dcp_error_message(), expected) != NULL);
    }
    dcp_group_free(group);
}

static void a_missing_rank_is_named_in_time(void)
{
    for (int missing = 0; missing < world_size && world_size > 1; missing++)
        for (enum exchange exchange = 0; exchange < EXCHANGES; exchange++)
            if (missing == 0 || missing == world_size - 1 || exchange == EXCHANGE_GATHER)
                miss_one(missing, exchange, 0);
    if (world_size > 2)
        miss_one(1, EXCHANGE_SCATTER, 1);
}

/* The same while bytes are exchanged among all: large messages of others are under way. */
static void a_rank_missing_from_an_exchange_is_named(void)
{
    enum { UNIT = 2500000 };
    static const dcp_collective hasty = {"sharing what was read", 0.5};
    if (world_size < 2)
        return;
    dcp_group *group = new_group(MPI_COMM_WORLD);
    int missing = world_size - 1;
    size_t sizes[16], same[16] = {0}, places[16];
    for (int r = 0; r < world_size; r++) {
        sizes[r] = r == world_rank ? 0 : UNIT;
        places[r] = (size_t)r * UNIT;
    }
    unsigned char *mine = calloc(1, UNIT), *everyone = calloc((size_t)world_size, UNIT);
    if (world_rank != missing) {
        double before = MPI_Wtime();
        CHECK_STATUS(
            collective_all_to_all(group, &hasty, mine, sizes, same, everyone, sizes, places),
            DCP_ERR_TIMEOUT);
        CHECK(MPI_Wtime() - before < 1.5);
        char expected[80];
        snprintf(expected, sizeof expected, "rank %d did not make this call within 0.5 s", missing);
        CHECK(strstr(dcp_error_message(), expected) != NULL);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    free(everyone);
    free(mine);
    dcp_group_free(group);
}

static void several_missing_ranks_are_all_named(void)
{
    static const dcp_collective hasty = {"planning", 0.2};
    if (world_size < 4)
        return;
    dcp_group *group = new_group(MPI_COMM_WORLD);
    if (world_rank != 1 && world_rank != 3) {
        CHECK_STATUS(group_agree(group, &hasty, DCP_OK), DCP_ERR_TIMEOUT);
        CHECK_MESSAGE("planning: ranks 1, 3 did not make this call within 0.2 s");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    dcp_group_free(group);
}

/* A large message stays behind when its receiver never comes. The sender's memory is its own again
 * at once, whatever MPI still does; and the receiver may come after all. */
static void what_is_left_of_a_large_message_is_harmless(void)
{
    static const dcp_collective hasty = {"sending", 0.1};
    enum { LARGE = 3000000 };
    if (world_size < 2)
        return;
    dcp_group *group = new_group(MPI_COMM_WORLD);
    size_t sizes[16];
    for (int r = 0; r < world_size; r++)
        sizes[r] = LARGE;
    if (world_rank == 1) {
        unsigned char *message = message_of(1, LARGE);
        CHECK_STATUS(collective_gather(group, &hasty, 0, message, sizes, NULL, NULL),
                     DCP_ERR_TIMEOUT);
        CHECK_MESSAGE("sending: rank 0 did not make this call within 0.1 s");
        memset(message, 0xee, LARGE);
        free(message);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_rank == 0) {
        unsigned char *everyone = malloc((size_t)LARGE * (size_t)world_size);
        CHECK_STATUS(collective_gather(group, &hasty, 0, everyone, sizes, NULL, everyone),
                     DCP_ERR_STATE);
        free(everyone);
    }
    dcp_group_free(group);
}

/* Ranks that disagree on a size fail together, rather than read each other's bytes. */
static void sizes_out_of_step_are_a_failure(void)
{
    static const dcp_collective hasty = {"telling", 0.3};
    if (world_size < 2)
        return;
    for (int longer = 0; longer < 2; longer++) {
        dcp_group *group = new_group(MPI_COMM_WORLD);
        char bytes[64] = {0};
        dcp_status status = collective_broadcast(group, &hasty, 0, bytes,
                                                 world_rank == 0 ? (longer ? 40 : 10) : 20);
        CHECK(world_rank == 0 || status == DCP_ERR_GROUP);
        if (world_rank != 0 && !longer)
            CHECK_MESSAGE("telling: rank 0 sent 10 bytes, expected 20");
        MPI_Barrier(MPI_COMM_WORLD);
        CHECK(group_agree(group, &hasty, DCP_OK) == DCP_ERR_STATE);
        dcp_group_free(group);
    }
}

/* MPI_Init() promises calls from one thread only. */
static void no_copies_without_threads(void)
{
    dcp_group *group = new_group(MPI_COMM_WORLD), *copy;
    CHECK_STATUS(dcp_group_duplicate(group, 20, &copy), DCP_ERR_UNSUPPORTED);
    CHECK(copy == NULL);
    CHECK_STATUS(group_agree(group, &patient, DCP_OK), DCP_OK);
    dcp_group_free(group);
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {
#define TEST(name) {#name, name}
        TEST(wrong_arguments_are_refused),
        TEST(one_rank_without_memory_fails_for_all),
        TEST(a_rank_that_makes_no_group_holds_nobody),
        TEST(parts_of_parts_know_their_ranks),
        TEST(ranks_in_different_calls_hear_so_at_once),
        TEST(long_waits_are_logged),
        TEST(collectives_move_the_right_bytes),
        TEST(everyone_sends_to_everyone),
        TEST(no_copies_without_threads),
        TEST(sub_communicators_work_side_by_side),
        TEST(parts_work_side_by_side),
        TEST(a_split_that_fails_on_one_rank_fails_on_all),
        TEST(messages_never_meet_the_callers),
        TEST(each_rank_failing_at_each_exchange_is_the_failure_of_all),
        TEST(a_missing_rank_is_named_in_time),
        TEST(a_rank_missing_from_an_exchange_is_named),
        TEST(several_missing_ranks_are_all_named),
        TEST(what_is_left_of_a_large_message_is_harmless),
        TEST(sizes_out_of_step_are_a_failure),
        TEST(collectives_move_the_right_bytes), /* also beside broken groups */
    };
    dcp_group *group;
    if (dcp_group_new_mpi(MPI_COMM_NULL, &group) != DCP_ERR_STATE)
        return 1; /* MPI is not initialized */
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        double before = MPI_Wtime();
        tests[i].run();
        MPI_Barrier(MPI_COMM_WORLD);
        if (world_rank == 0)
            printf("ok %s (%.2f s)\n", tests[i].name, MPI_Wtime() - before);
    }
    MPI_Finalize();
    return 0;
}
