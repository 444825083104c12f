/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks on hosts whose network fails in the middle of a save or load, and works again later: every
 * rank is told within its deadline, and what is stored is the old checkpoint or the new one.
 * run_hosts.sh starts it, where each host is a network namespace: a rank cuts its host off by
 * taking the interface down. */
#include <stdlib.h>
#include <unistd.h>

#include "dcp.h"
#include "dcp/mpi.h"
#include "fault/over_files.h"
#include "mpi/check.h"

enum { ELEMENTS = 2000003, LARGE = 64 << 10 };
/* Seconds: of a wait, and of all of a call. */
#define DEADLINE 2.0
#define MOST     (3 * DEADLINE)

int world_rank, world_size;

static char directory[256];
static int32_t *data;

/* ---- the system's file operations, of which one cuts the host off ---- */

/* The first of each; data: of tensors. */
enum cut { CUT_NEVER, CUT_WRITE, CUT_RENAME, CUT_READ, CUT_READ_DATA };

static enum cut cut_at;
static bool is_cut;

static void turn_network(const char *way)
{
    char command[64];
    snprintf(command, sizeof command, "ip link set dev eth0 %s", way);
    CHECK(system(command) == 0);
}

static void reach(enum cut operation)
{
    if (cut_at != operation || is_cut)
        return;
    is_cut = true;
    turn_network("down");
}

static int cutting_pwrite(void *context, int descriptor, const void *bytes, size_t size,
                          uint64_t offset, size_t *done)
{
    reach(CUT_WRITE);
    return file_ops_system.pwrite(context, descriptor, bytes, size, offset, done);
}

static int cutting_pread(void *context, int descriptor, void *bytes, size_t size, uint64_t offset,
                         size_t *done)
{
    reach(size < LARGE ? CUT_READ : CUT_READ_DATA);
    return file_ops_system.pread(context, descriptor, bytes, size, offset, done);
}

static int cutting_rename(void *context, int within, const char *from, const char *to)
{
    reach(CUT_RENAME);
    return file_ops_system.rename(context, within, from, to);
}

static struct file_ops cutting_ops(enum cut at)
{
    struct file_ops ops = file_ops_system;
    cut_at = at;
    is_cut = false;
    ops.pwrite = cutting_pwrite;
    ops.pread = cutting_pread;
    ops.rename = cutting_rename;
    return ops;
}

/* ---- a state of which all ranks save a part, and load everything ---- */

static dcp_state *make_state(bool whole)
{
    dcp_tensor tensor = {.dtype = DCP_I32, .ndim = 1, .global_shape = {ELEMENTS}, .data = data};
    int64_t part = ELEMENTS / world_size, first = world_rank * part;
    dcp_state *root = dcp_state_new();
    if (!whole) {
        tensor.sharded = true;
        tensor.offsets[0] = first;
        tensor.sizes[0] = world_rank + 1 == world_size ? ELEMENTS - first : part;
    }
    CHECK(dcp_state_tensor(root, "w", &tensor) != NULL);
    return root;
}

static dcp_status save(const struct file_ops *ops, dcp_group *group, int32_t value, double deadline)
{
    const dcp_save_options options = {
        .group = group, .overwrite = DCP_OVERWRITE_REPLACE, .timeout_seconds = deadline};
    dcp_state *root = make_state(false);
    for (int64_t i = 0; i < ELEMENTS; i++)
        data[i] = value;
    dcp_status status = save_over(ops, root, directory, &options);
    dcp_state_free(root);
    return status;
}

static dcp_status load(const struct file_ops *ops, dcp_group *group, double deadline)
{
    const dcp_load_options options = {
        .group = group, .reading = DCP_READING_COOPERATIVE, .timeout_seconds = deadline};
    dcp_state *root = make_state(true);
    memset(data, 0, ELEMENTS * sizeof *data);
    dcp_status status = load_over(ops, root, directory, &options, NULL);
    dcp_state_free(root);
    return status;
}

/* Of all elements, on all ranks. */
static int32_t loaded_value(dcp_group *group)
{
    int32_t lowest, highest;
    CHECK_STATUS(load(&file_ops_system, group, 30), DCP_OK);
    for (int64_t i = 1; i < ELEMENTS; i++)
        CHECK(data[i] == data[0]);
    MPI_Allreduce(&data[0], &lowest, 1, MPI_INT32_T, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&data[0], &highest, 1, MPI_INT32_T, MPI_MAX, MPI_COMM_WORLD);
    CHECK(lowest == highest);
    return lowest;
}

/* No host reaches the other: ranks are told which ones they have waited for. What has been
 * committed is no failure, but the other host does not know of it. */
static void check_answer(dcp_status status, enum cut at)
{
    if (at == CUT_RENAME) {
        CHECK(status == (world_rank < world_size / 2 ? DCP_OK : DCP_ERR_UNCONFIRMED));
        return;
    }
    CHECK(status == DCP_ERR_TIMEOUT);
    CHECK(strstr(dcp_error_message(), "did not make this call within 2 s") != NULL);
}

/* One rank cuts its host off when it comes to an operation; afterwards the network works again, and
 * so do new groups. */
static void cut_off(int rank, enum cut at, int32_t value)
{
    const struct file_ops ops = cutting_ops(world_rank == rank ? at : CUT_NEVER);
    dcp_group *group;
    CHECK_STATUS(dcp_group_new_mpi(MPI_COMM_WORLD, &group), DCP_OK);
    CHECK_STATUS(save(&file_ops_system, group, value, 30), DCP_OK);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    dcp_status status =
        at >= CUT_READ ? load(&ops, group, DEADLINE) : save(&ops, group, value + 1, DEADLINE);
    double seconds = MPI_Wtime() - start;
    if (world_rank == rank) {
        CHECK(is_cut);
        while (MPI_Wtime() - start < 1.5 * DEADLINE) /* until the others have given up */
            usleep(100000);
        turn_network("up");
    }
    CHECK(seconds < MOST);
    check_answer(status, at);
    if (status != DCP_OK)
        CHECK_STATUS(save(&file_ops_system, group, value + 2, DEADLINE), DCP_ERR_STATE);
    MPI_Barrier(MPI_COMM_WORLD);
    dcp_group_free(group);
    CHECK_STATUS(dcp_group_new_mpi(MPI_COMM_WORLD, &group), DCP_OK);
    int32_t found = loaded_value(group);
    CHECK(found == (at == CUT_RENAME ? value + 1 : value));
    CHECK_STATUS(save(&file_ops_system, group, value + 3, 30), DCP_OK);
    CHECK(loaded_value(group) == value + 3);
    dcp_group_free(group);
    if (world_rank == 0)
        printf("ok rank %d, operation %d: value %d of %d (%.1f s)\n", rank, (int)at, (int)found,
               (int)value, MPI_Wtime() - start);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    data = malloc(ELEMENTS * sizeof *data);
    CHECK(data != NULL);
    if (world_rank == 0) {
        const char *base = getenv("TMPDIR");
        snprintf(directory, sizeof directory, "%s/dcp-network-XXXXXX", base ? base : "/tmp");
        CHECK(mkdtemp(directory) != NULL);
    }
    MPI_Bcast(directory, sizeof directory, MPI_CHAR, 0, MPI_COMM_WORLD);
    cut_off(world_size - 1, CUT_WRITE, 10);
    cut_off(0, CUT_RENAME, 20);
    cut_off(0, CUT_READ, 30);
    cut_off(world_size - 1, CUT_READ_DATA, 40);
    if (world_rank == 0) {
        char command[300];
        snprintf(command, sizeof command, "rm -rf '%s'", directory);
        CHECK(system(command) == 0);
    }
    free(data);
    MPI_Finalize();
    return 0;
}
