/* SPDX-License-Identifier: BSD-3-Clause */
#include "group/host_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/checksum.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/memory.h"
#include "group/collective.h"
#include "group/group.h"
#include "group/host_board.h"
#include "group/host_ranks.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* What a rank says of its memory: its host (0: it has no such memory), process, descriptor, what
 * that is, and size. */
enum {
    AT_PROCESS = 8,
    AT_DESCRIPTOR = 12,
    AT_DEVICE = 16,
    AT_INODE = 24,
    AT_SIZE = 32,
    RECORD_SIZE = 40
};

/* A rank's board is at the beginning of its memory. */
enum { BOARD_SIZE = MEMORY_PAGE, ALIGNMENT = 16 };
_Static_assert(sizeof(struct host_board) <= BOARD_SIZE, "room for a board");

struct region {
    unsigned char *mapped; /* NULL: none */
    size_t size;
};

struct other {
    struct region region; /* none: not reached */
    int process;          /* see host_rank */
    bool met;             /* in the last round */
};

struct host_memory {
    const dcp_group *group;
    int descriptor;          /* -1: none; open until all others have opened it */
    size_t size;             /* of the caller's, in any case */
    size_t between;          /* and where the group is on several hosts */
    struct region own;       /* none: no other rank reads it */
    void *charge;            /* for own */
    struct other *others;    /* by rank */
    struct host_ranks hosts; /* those together reach each other */
    uint32_t step;           /* that this rank has begun */
    uint32_t agreed;         /* of its last agreement */
    bool left;
};

static struct host_board *board_of(const struct region *region)
{
    return (void *)region->mapped;
}

/* The ranks of this rank's host. */
static size_t members_of(const struct host_memory *memory, const int **ranks)
{
    return host_ranks_with(&memory->hosts, dcp_group_rank(memory->group), ranks);
}

static bool is_alone(const struct host_memory *memory)
{
    const int *ranks;
    return members_of(memory, &ranks) <= 1;
}

uint64_t host_memory_needs(int ranks, size_t size)
{
    const struct host_memory *memory;
    return sizeof *memory + (uint64_t)ranks * sizeof *memory->others +
           host_ranks_needs((size_t)ranks) + BOARD_SIZE + size + MEMORY_PAGE;
}

/* Identifies what ranks must have in common to open each other's memory; 0: unknown. */
static uint64_t find_host(void)
{
    struct {
        char boot[MACHINE_TEXT];
        char pids[MACHINE_TEXT];
        char network[MACHINE_TEXT];
        uint64_t user;
    } host = {.user = geteuid()};
    machine_boot(host.boot);
    machine_namespace("pid", host.pids);
    machine_namespace("net", host.network);
    return *host.boot && *host.pids && *host.network ? xxh3_64(&host, sizeof host) : 0;
}

/* Memory that is no program, as some systems demand; Linux has that flag since 6.3. */
static int make_file(void)
{
    int descriptor = memfd_create("dcp", MFD_CLOEXEC | MFD_NOEXEC_SEAL);
    return descriptor < 0 && errno == EINVAL ? memfd_create("dcp", MFD_CLOEXEC) : descriptor;
}

uint64_t host_memory_host(void)
{
    int descriptor = make_file();
    if (descriptor < 0)
        return 0;
    close(descriptor);
    return find_host();
}

static size_t file_size(size_t bytes)
{
    return BOARD_SIZE + (bytes / MEMORY_PAGE + 1) * MEMORY_PAGE;
}

/* Without memory the record says so: host 0. */
static void describe(struct host_memory *memory, unsigned char record[RECORD_SIZE])
{
    struct stat info = {.st_size = 0};
    size_t size = file_size(memory->size + memory->between);
    memory->descriptor = make_file();
    bool made = memory->descriptor >= 0 && ftruncate(memory->descriptor, (off_t)size) == 0 &&
                fstat(memory->descriptor, &info) == 0;
    store_u64(record, made ? find_host() : 0);
    store_u32(record + AT_PROCESS, (uint32_t)getpid());
    store_u32(record + AT_DESCRIPTOR, (uint32_t)memory->descriptor);
    store_u64(record + AT_DEVICE, (uint64_t)info.st_dev);
    store_u64(record + AT_INODE, (uint64_t)info.st_ino);
    store_u64(record + AT_SIZE, (uint64_t)size);
}

/* Takes this rank's memory now, as much as is used of its file: what is missing later would end the
 * process. */
static bool map_own(struct host_memory *memory)
{
    if (host_memory_is_whole(memory))
        memory->between = 0;
    size_t size = file_size(memory->size + memory->between);
    memory->charge = memory_allocate_beside(0, size);
    if (!memory->charge || fallocate(memory->descriptor, 0, 0, (off_t)size) != 0)
        return false;
    void *bytes =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory->descriptor, 0);
    if (bytes == MAP_FAILED)
        return false;
    memory->own = (struct region){bytes, size};
    return true;
}

static bool map_other(const unsigned char *record, struct other *other)
{
    char path[64];
    struct stat info;
    uint64_t size = load_u64(record + AT_SIZE);
    snprintf(path, sizeof path, "/proc/%" PRIu32 "/fd/%" PRIu32, load_u32(record + AT_PROCESS),
             load_u32(record + AT_DESCRIPTOR));
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (descriptor < 0)
        return false;
    void *bytes = MAP_FAILED;
    if (fstat(descriptor, &info) == 0 && (uint64_t)info.st_dev == load_u64(record + AT_DEVICE) &&
        (uint64_t)info.st_ino == load_u64(record + AT_INODE) && (uint64_t)info.st_size == size &&
        size > BOARD_SIZE)
        bytes = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (bytes == MAP_FAILED)
        return false;
    other->region = (struct region){bytes, (size_t)size};
    other->process = (int)syscall(SYS_pidfd_open, load_u32(record + AT_PROCESS), 0);
    return true;
}

static void close_file(struct host_memory *memory)
{
    if (memory->descriptor >= 0)
        close(memory->descriptor);
    memory->descriptor = -1;
}

static void unmap_all(struct host_memory *memory)
{
    for (size_t rank = 0; rank < memory->hosts.count; rank++) {
        struct other *other = &memory->others[rank];
        if (!other->region.mapped)
            continue;
        munmap(other->region.mapped, other->region.size);
        if (other->process >= 0)
            close(other->process);
        *other = (struct other){.process = -1};
    }
    if (memory->own.mapped) {
        host_board_leave(board_of(&memory->own));
        munmap(memory->own.mapped, memory->own.size);
    }
    memory_release(memory->charge);
    memory->own = (struct region){NULL, 0};
    memory->charge = NULL;
}

/* Finds which ranks are on one host. What is broadcast for other hosts comes to all, so ranks of a
 * host gain nothing then. */
static void find_hosts(struct host_memory *memory, const unsigned char *records)
{
    host_ranks_join(&memory->hosts, records, RECORD_SIZE);
    if (!group_multicast_is_direct(memory->group) && !host_memory_is_whole(memory))
        host_ranks_part_all(&memory->hosts);
}

/* Maps the memory of all ranks of this host; false: not possible. */
static bool map_all(struct host_memory *memory, const unsigned char *records)
{
    const int *ranks;
    size_t count = members_of(memory, &ranks);
    if (count == 1)
        return true;
    if (!map_own(memory))
        return false;
    for (size_t i = 0; i < count; i++) {
        size_t rank = (size_t)ranks[i];
        if (ranks[i] != memory->group->rank &&
            !map_other(records + rank * RECORD_SIZE, &memory->others[rank]))
            return false;
    }
    return true;
}

static dcp_status allocate(size_t ranks, struct host_memory *memory)
{
    memory->others = memory_allocate_zeroed(ranks, sizeof *memory->others);
    if (!memory->others)
        return error_no_memory(ranks * sizeof *memory->others, "ranks of this host");
    return host_ranks_new(ranks, &memory->hosts);
}

dcp_status host_memory_open(dcp_group *group, const struct dcp_collective *call, dcp_status mine,
                            size_t size, size_t between, struct host_memory **memory)
{
    unsigned char record[RECORD_SIZE] = {0}, mapped;
    const unsigned char *records, *all_mapped;
    const int *ranks;
    struct host_memory *made = *memory = memory_allocate_zeroed(1, sizeof *made);
    if (!made) {
        mine = mine == DCP_OK ? error_no_memory(sizeof *made, "memory of this host") : mine;
        return group_share(group, call, mine, record, sizeof record, &records);
    }
    made->group = group;
    made->descriptor = -1;
    made->size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    made->between = between;
    if (mine == DCP_OK)
        mine = allocate((size_t)dcp_group_size(group), made);
    if (mine == DCP_OK)
        describe(made, record);
    RETURN_IF_ERROR(group_share(group, call, mine, record, sizeof record, &records));
    if (dcp_group_size(group) == 1)
        return DCP_OK;
    find_hosts(made, records);
    bool had_others = !is_alone(made);
    mapped = map_all(made, records);
    RETURN_IF_ERROR(group_share(group, call, DCP_OK, &mapped, sizeof mapped, &all_mapped));
    close_file(made);
    host_ranks_part(&made->hosts, all_mapped);
    if (is_alone(made))
        unmap_all(made);
    if (had_others)
        log_line(DCP_LOG_DEBUG,
                 made->own.mapped
                     ? "rank %d: exchanges data with %zu ranks of its host through shared memory"
                     : "rank %d: the ranks of its host cannot open each other's memory: data goes "
                       "through the group",
                 group->rank, members_of(made, &ranks) - 1);
    return DCP_OK;
}

void host_memory_close(struct host_memory *memory)
{
    if (!memory)
        return;
    unmap_all(memory);
    close_file(memory);
    memory_release(memory->others);
    host_ranks_free(&memory->hosts);
    memory_release(memory);
}

unsigned char *host_memory_own(const struct host_memory *memory)
{
    return memory->own.mapped ? memory->own.mapped + BOARD_SIZE : NULL;
}

unsigned char *host_memory_between(const struct host_memory *memory)
{
    unsigned char *own = host_memory_own(memory);
    return own && memory->between != 0 ? own + memory->size : NULL;
}

bool host_memory_reaches(const struct host_memory *memory, int rank)
{
    return memory->others[rank].region.mapped != NULL;
}

const unsigned char *host_memory_of(const struct host_memory *memory, int rank, uint64_t offset,
                                    size_t size)
{
    const struct region *region = &memory->others[rank].region;
    size_t room = region->mapped ? region->size - BOARD_SIZE : 0;
    bool inside = offset <= room && size <= room - offset;
    return region->mapped && inside ? region->mapped + BOARD_SIZE + offset : NULL;
}

size_t host_memory_with(const struct host_memory *memory, int rank, const int **ranks)
{
    return host_ranks_with(&memory->hosts, rank, ranks);
}

bool host_memory_is_whole(const struct host_memory *memory)
{
    const int *ranks;
    return members_of(memory, &ranks) == (size_t)dcp_group_size(memory->group);
}

static dcp_status meet_rank(struct host_memory *memory, int rank, bool with, uint64_t *note,
                            const dcp_collective *call, struct deadline deadline)
{
    struct other *other = &memory->others[rank];
    const struct host_rank waited = {rank, other->process, board_of(&other->region)};
    if (with || other->met)
        RETURN_IF_ERROR(host_board_wait(&waited, memory->step, memory->agreed, call, deadline));
    if (with)
        *note = host_board_note(waited.board, memory->step);
    other->met = with;
    return DCP_OK;
}

dcp_status host_memory_meet(struct host_memory *memory, const struct dcp_collective *call,
                            const bool *with, uint64_t note, uint64_t *notes)
{
    struct collective_run run;
    struct deadline deadline = deadline_after(call->timeout_seconds);
    dcp_status status = DCP_OK;
    const int *ranks;
    size_t count = members_of(memory, &ranks);
    if (count <= 1)
        return DCP_OK;
    collective_name(memory->group, call, &run);
    host_board_begin(board_of(&memory->own), ++memory->step, note);
    for (size_t i = 0; i < count && status == DCP_OK; i++)
        if (ranks[i] != memory->group->rank)
            status =
                meet_rank(memory, ranks[i], with[ranks[i]], &notes[ranks[i]], &run.call, deadline);
    if (status == DCP_OK)
        return DCP_OK;
    memory->left = true;
    host_board_leave(board_of(&memory->own));
    return error_prefix(status, "%s", run.call.phase);
}

void host_memory_agree(struct host_memory *memory)
{
    if (is_alone(memory) || memory->left)
        return;
    memory->agreed = ++memory->step;
    host_board_agree(board_of(&memory->own), memory->step);
}
