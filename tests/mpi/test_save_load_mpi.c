/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves and loads of real MPI ranks: what is saved comes back on another sharding; a file operation
 * that fails on one rank, whichever and wherever, is the same error on all; a rank that never comes
 * is a timeout that names it. Whole states in memory. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "dcp.h"
#include "dcp/mpi.h"
#include "fault/over_files.h"
#include "mpi/check.h"
#include "storage/shard/shard_reader.h"

#define ROWS    12
#define COLUMNS 5

int world_rank, world_size;

static char directory[256];

/* Loads are of all ranks for each other, who want everything. */
static bool together;

/* ---- the system's file operations, of which the n-th changing one fails ---- */

static long operations, failing;

static int count(void)
{
    return ++operations == failing ? EIO : 0;
}

#define FAILING(name, parameters, arguments)                                                       \
    static int failing_##name parameters                                                           \
    {                                                                                              \
        int error = count();                                                                       \
        return error ? error : file_ops_system.name arguments;                                     \
    }

FAILING(open, (void *context, int within, const char *path, unsigned flags, int *descriptor),
        (context, within, path, flags, descriptor))
FAILING(pwrite,
        (void *context, int descriptor, const void *bytes, size_t size, uint64_t offset,
         size_t *done),
        (context, descriptor, bytes, size, offset, done))
FAILING(pread,
        (void *context, int descriptor, void *bytes, size_t size, uint64_t offset, size_t *done),
        (context, descriptor, bytes, size, offset, done))
FAILING(sync, (void *context, int descriptor), (context, descriptor))
FAILING(sync_directory, (void *context, int within), (context, within))
FAILING(rename, (void *context, int within, const char *from, const char *to),
        (context, within, from, to))
FAILING(make_directory, (void *context, int within, const char *path), (context, within, path))

static struct file_ops failing_ops(long n)
{
    struct file_ops ops = file_ops_system;
    operations = 0;
    failing = n;
    ops.open = failing_open;
    ops.pwrite = failing_pwrite;
    ops.pread = failing_pread;
    ops.sync = failing_sync;
    ops.sync_directory = failing_sync_directory;
    ops.rename = failing_rename;
    ops.make_directory = failing_make_directory;
    return ops;
}

/* ---- a matrix whose elements tell where they belong ---- */

struct part {
    dcp_state *root;
    dcp_tensor tensor;
    int32_t data[ROWS * COLUMNS];
};

static int32_t element(const dcp_tensor *tensor, int64_t row, int64_t column)
{
    return (int32_t)((tensor->offsets[0] + row) * 100 + tensor->offsets[1] + column + 7);
}

static void part_init(struct part *part, dcp_group *group, int32_t dim, bool filled)
{
    dcp_mesh mesh = {1, {dcp_group_size(group)}, dcp_group_rank(group)};
    dcp_placement placement = dim < 0 ? dcp_replicate() : dcp_shard(dim);
    part->tensor = (dcp_tensor){
        .dtype = DCP_I32, .ndim = 2, .global_shape = {ROWS, COLUMNS}, .data = part->data};
    CHECK_STATUS(dcp_mesh_shard(&mesh, &part->tensor, &placement), DCP_OK);
    memset(part->data, 0, sizeof part->data);
    for (int64_t r = 0; filled && r < part->tensor.sizes[0]; r++)
        for (int64_t c = 0; c < part->tensor.sizes[1]; c++)
            part->data[r * part->tensor.sizes[1] + c] = element(&part->tensor, r, c);
    part->root = dcp_state_new();
    CHECK(dcp_state_tensor(part->root, "w", &part->tensor) != NULL);
    CHECK_STATUS(dcp_state_int(part->root, "step", filled ? 5 : 0), DCP_OK);
}

static void part_check(const struct part *part)
{
    int64_t step = 0;
    for (int64_t r = 0; r < part->tensor.sizes[0]; r++)
        for (int64_t c = 0; c < part->tensor.sizes[1]; c++)
            CHECK(part->data[r * part->tensor.sizes[1] + c] == element(&part->tensor, r, c));
    CHECK_STATUS(dcp_state_as_int(dcp_state_find(part->root, "step"), &step), DCP_OK);
    CHECK(step == 5);
}

static dcp_status save(const struct file_ops *ops, dcp_group *group, const char *path,
                       double timeout)
{
    struct part part;
    dcp_save_options options = {
        .group = group, .overwrite = DCP_OVERWRITE_REPLACE, .timeout_seconds = timeout};
    part_init(&part, group, 0, true);
    dcp_status status = save_over(ops, part.root, path, &options);
    dcp_state_free(part.root);
    return status;
}

static dcp_status load(const struct file_ops *ops, dcp_group *group, const char *path,
                       double timeout)
{
    struct part part;
    dcp_load_options options = {.group = group,
                                .timeout_seconds = timeout,
                                .reading = together ? DCP_READING_COOPERATIVE : DCP_READING_DIRECT};
    part_init(&part, group, together ? -1 : 1, false);
    dcp_status status = load_over(ops, part.root, path, &options, NULL);
    if (status == DCP_OK)
        part_check(&part);
    dcp_state_free(part.root);
    return status;
}

static const char *path_of(const char *name, long number)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s-%ld", directory, name, number);
    return path;
}

/* Every rank ended alike, with the same message. */
static void check_agreement(dcp_status status)
{
    char mine[1024], first[1024];
    int own = (int)status, lowest, highest;
    snprintf(mine, sizeof mine, "%s", dcp_error_message());
    memcpy(first, mine, sizeof first);
    MPI_Bcast(first, sizeof first, MPI_CHAR, 0, MPI_COMM_WORLD);
    MPI_Allreduce(&own, &lowest, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&own, &highest, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    CHECK(lowest == highest);
    if (status != DCP_OK)
        CHECK(strcmp(mine, first) == 0);
}

static void test_reshard(dcp_group *group)
{
    CHECK_STATUS(save(&file_ops_system, group, path_of("whole", 0), 30), DCP_OK);
    CHECK_STATUS(load(&file_ops_system, group, path_of("whole", 0), 30), DCP_OK);
}

/* Of the streams of so many objects. */
static uint64_t object_bytes(const char *path, int count)
{
    struct metadata metadata;
    struct shard_reader *reader;
    enum storage_form form;
    uint64_t bytes = 0;
    CHECK_STATUS(
        storage_read_metadata(dcp_storage_files(), storage_at(path), &form, &metadata, &reader),
        DCP_OK);
    for (size_t i = 0; i < metadata.count; i++)
        if (!metadata.entries[i].is_tensor) {
            bytes += metadata.entries[i].pieces[0].length;
            count--;
        }
    CHECK(count == 0);
    shard_reader_free(reader);
    metadata_free(&metadata);
    return bytes;
}

/* A matrix that ranks have rows of, to all of them and back from rank 0. */
static void test_whole_states(dcp_group *group)
{
    struct part part, whole;
    dcp_tensor found;
    int64_t step = 0;
    const dcp_gather_state_options get = {.group = group, .full_state_dict = true};
    const dcp_distribute_state_options set = {.group = group, .broadcast_from_rank0 = true};
    dcp_state *into = dcp_state_new();
    part_init(&part, group, 0, true);
    CHECK_STATUS(dcp_gather_state(part.root, &get, into), DCP_OK);
    CHECK_STATUS(dcp_state_chunk(dcp_state_find(into, "w"), 0, &found), DCP_OK);
    for (int64_t i = 0; i < ROWS * COLUMNS; i++)
        CHECK(((const int32_t *)found.data)[i] == element(&found, i / COLUMNS, i % COLUMNS));
    CHECK_STATUS(dcp_state_as_int(dcp_state_find(into, "step"), &step), DCP_OK);
    CHECK(step == 5);
    dcp_state_free(into);
    dcp_state_free(part.root);
    part_init(&whole, group, -1, true);
    part_init(&part, group, 1, false);
    CHECK_STATUS(dcp_distribute_state(part.root, world_rank == 0 ? whole.root : NULL, &set, NULL),
                 DCP_OK);
    part_check(&part);
    dcp_state_free(part.root);
    dcp_state_free(whole.root);
}

/* Everyone wants everything of a tensor that is cut and of many objects, and each byte is read
 * once. */
/* How often the log says that this rank shares memory with all other ranks of its host. */
struct sharing {
    char text[80];
    int count;
};

static void count_sharing(void *context, dcp_log_level level, const char *line)
{
    struct sharing *sharing = context;
    (void)level;
    sharing->count += strstr(line, sharing->text) != NULL;
}

static int ranks_of_this_host(void)
{
    MPI_Comm host;
    int size;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &size);
    MPI_Comm_free(&host);
    return size;
}

static void test_reading_for_each_other(dcp_group *group)
{
    enum { ELEMENTS = 5000003, OBJECTS = 200 };
    char name[16];
    const char *path = path_of("together", 0);
    int32_t *data = calloc(ELEMENTS, sizeof *data);
    dcp_tensor tensor = {.dtype = DCP_I32, .ndim = 1, .global_shape = {ELEMENTS}, .data = data};
    dcp_figures figures = {.size_of = sizeof figures};
    const dcp_save_options save_options = {.group = group};
    const dcp_load_options load_options = {
        .group = group, .reading = DCP_READING_COOPERATIVE, .figures = &figures};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "w", &tensor);
    for (int32_t i = 0; i < ELEMENTS; i++)
        data[i] = i * 7;
    for (int i = 0; i < OBJECTS; i++) {
        snprintf(name, sizeof name, "o%d", i);
        CHECK_STATUS(dcp_state_int(root, name, i + 1), DCP_OK);
    }
    CHECK_STATUS(dcp_save(root, path, &save_options), DCP_OK);
    memset(data, 0, ELEMENTS * sizeof *data);
    struct sharing sharing = {.count = 0};
    int near = ranks_of_this_host();
    snprintf(sharing.text, sizeof sharing.text, "exchanges data with %d ranks of its host",
             near - 1);
    dcp_set_log(count_sharing, &sharing, DCP_LOG_DEBUG);
    CHECK_STATUS(dcp_load(root, path, &load_options, NULL), DCP_OK);
    dcp_set_log(NULL, NULL, DCP_LOG_ERROR);
    CHECK(near == 1 ? sharing.count == 0 : sharing.count == 2); /* objects and tensors */
    for (int32_t i = 0; i < ELEMENTS; i++)
        CHECK(data[i] == i * 7);
    for (int i = 0; i < OBJECTS; i++) {
        int64_t value = 0;
        snprintf(name, sizeof name, "o%d", i);
        CHECK_STATUS(dcp_state_as_int(dcp_state_find(root, name), &value), DCP_OK);
        CHECK(value == i + 1);
    }
    uint64_t mine[2] = {figures.bytes_read, figures.bytes_exchanged}, all[2];
    MPI_Allreduce(mine, all, 2, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    uint64_t bytes = ELEMENTS * sizeof *data;
    uint64_t objects = object_bytes(path, OBJECTS);
    CHECK(all[0] >= bytes + objects);
    CHECK(all[0] < bytes + objects + (uint64_t)world_size * (256 << 10));
    CHECK(all[1] == (bytes + objects) * (uint64_t)(world_size - 1));
    dcp_state_free(root);
    free(data);
}

/* Halves of the world save at the same time, and each loads what the other has saved. */
static void test_sub_communicators(void)
{
    MPI_Comm half;
    dcp_group *group;
    int color = world_rank % 2, other = world_size > 1 ? 1 - color : 0;
    MPI_Comm_split(MPI_COMM_WORLD, color, world_rank, &half);
    CHECK_STATUS(dcp_group_new_mpi(half, &group), DCP_OK);
    CHECK_STATUS(save(&file_ops_system, group, path_of("half", color), 30), DCP_OK);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK_STATUS(load(&file_ops_system, group, path_of("half", other), 30), DCP_OK);
    dcp_group_free(group);
    MPI_Comm_free(&half);
}

/* Each operation of one rank fails in turn: all ranks fail alike and nothing is visible, or all
 * succeed. */
static void test_failing_rank(dcp_group *group, int odd, bool loads)
{
    int reached = 1;
    for (long n = 1; reached; n++) {
        const char *path = loads ? path_of("whole", 0) : path_of("failing", odd * 1000 + n);
        struct file_ops ops = failing_ops(world_rank == odd ? n : 0);
        dcp_status status = loads ? load(&ops, group, path, 30) : save(&ops, group, path, 30);
        check_agreement(status);
        reached = operations >= n;
        MPI_Bcast(&reached, 1, MPI_INT, odd, MPI_COMM_WORLD);
        if (!reached)
            CHECK(status == DCP_OK);
        if (!loads)
            CHECK_STATUS(load(&file_ops_system, group, path, 30),
                         status == DCP_OK ? DCP_OK : DCP_ERR_NOT_FOUND);
    }
}

static void test_absent_rank(int absent, bool loads)
{
    dcp_group *group;
    char name[32];
    double start = MPI_Wtime();
    CHECK_STATUS(dcp_group_new_mpi(MPI_COMM_WORLD, &group), DCP_OK);
    if (world_rank != absent) {
        dcp_status status = loads ? load(&file_ops_system, group, path_of("whole", 0), 0.5)
                                  : save(&file_ops_system, group, path_of("absent", absent), 0.5);
        CHECK(status == DCP_ERR_TIMEOUT);
        snprintf(name, sizeof name, "%d", absent);
        CHECK(strstr(dcp_error_message(), name) != NULL);
        CHECK(MPI_Wtime() - start < 1.5);
        CHECK(access(path_of("absent", absent), F_OK) != 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    dcp_group_free(group);
}

int main(int argc, char **argv)
{
    dcp_group *group;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    if (world_rank == 0) {
        const char *base = getenv("TMPDIR");
        snprintf(directory, sizeof directory, "%s/dcp-mpi-XXXXXX", base ? base : "/tmp");
        CHECK(mkdtemp(directory) != NULL);
    }
    MPI_Bcast(directory, sizeof directory, MPI_CHAR, 0, MPI_COMM_WORLD);
    CHECK_STATUS(dcp_group_new_mpi(MPI_COMM_WORLD, &group), DCP_OK);

    test_reshard(group);
    test_sub_communicators();
    test_reading_for_each_other(group);
    test_whole_states(group);
    for (int odd = 0; odd < world_size; odd++) {
        test_failing_rank(group, odd, false);
        test_failing_rank(group, odd, true);
        together = true;
        test_failing_rank(group, odd, true);
        together = false;
    }
    dcp_group_free(group);
    for (int absent = 0; world_size > 1 && absent < world_size; absent++) {
        test_absent_rank(absent, false);
        test_absent_rank(absent, true);
    }
    if (world_rank == 0) {
        char command[300];
        snprintf(command, sizeof command, "rm -rf '%s'", directory);
        CHECK(system(command) == 0);
    }
    MPI_Finalize();
    return 0;
}
