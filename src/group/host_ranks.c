/* SPDX-License-Identifier: BSD-3-Clause */
#include "group/host_ranks.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"

uint64_t host_ranks_needs(size_t count)
{
    const struct host_ranks *hosts;
    return (uint64_t)count * (sizeof *hosts->order + sizeof *hosts->places);
}

void host_ranks_part_all(struct host_ranks *hosts)
{
    for (size_t i = 0; i < hosts->count; i++) {
        hosts->order[i] = (int)i;
        hosts->places[i] = (struct host_place){(uint32_t)i, 1};
    }
}

dcp_status host_ranks_new(size_t count, struct host_ranks *hosts)
{
    *hosts = (struct host_ranks){.count = count};
    hosts->order = memory_allocate_zeroed(count, sizeof *hosts->order);
    hosts->places = memory_allocate_zeroed(count, sizeof *hosts->places);
    if (!hosts->order || !hosts->places) {
        host_ranks_free(hosts);
        return error_no_memory((size_t)host_ranks_needs(count), "ranks of hosts");
    }
    host_ranks_part_all(hosts);
    return DCP_OK;
}

void host_ranks_free(struct host_ranks *hosts)
{
    memory_release(hosts->order);
    memory_release(hosts->places);
    *hosts = (struct host_ranks){0};
}

/* Of ranks, by rank: numbers of their hosts. */
struct host_numbers {
    const unsigned char *first;
    size_t apart;
};

static uint64_t number_of(const struct host_numbers *numbers, int rank)
{
    return load_u64(numbers->first + (size_t)rank * numbers->apart);
}

/* By number, and the ranks of one number in ascending order. */
static int compare_ranks(const void *left, const void *right, void *numbers)
{
    int a = *(const int *)left, b = *(const int *)right;
    uint64_t number_a = number_of(numbers, a), number_b = number_of(numbers, b);
    if (number_a != number_b)
        return number_a < number_b ? -1 : 1;
    return (a > b) - (a < b);
}

void host_ranks_join(struct host_ranks *hosts, const unsigned char *numbers, size_t apart)
{
    struct host_numbers by_rank = {numbers, apart};
    for (size_t i = 0; i < hosts->count; i++)
        hosts->order[i] = (int)i;
    qsort_r(hosts->order, hosts->count, sizeof *hosts->order, compare_ranks, &by_rank);
    for (size_t first = 0, next; first < hosts->count; first = next) {
        uint64_t number = number_of(&by_rank, hosts->order[first]);
        next = first + 1;
        while (next < hosts->count && number != 0 &&
               number_of(&by_rank, hosts->order[next]) == number)
            next++;
        for (size_t i = first; i < next; i++)
            hosts->places[hosts->order[i]] =
                (struct host_place){(uint32_t)first, (uint32_t)(next - first)};
    }
}

void host_ranks_part(struct host_ranks *hosts, const unsigned char *able)
{
    for (size_t first = 0, count; first < hosts->count; first += count) {
        bool all = true;
        count = hosts->places[hosts->order[first]].count;
        for (size_t i = first; i < first + count; i++)
            all = all && able[hosts->order[i]];
        for (size_t i = first; i < first + count && !all; i++)
            hosts->places[hosts->order[i]] = (struct host_place){(uint32_t)i, 1};
    }
}

size_t host_ranks_with(const struct host_ranks *hosts, int rank, const int **ranks)
{
    struct host_place place = {0, 0};
    if (hosts->count != 0)
        place = hosts->places[rank];
    *ranks = hosts->order + place.first;
    return place.count;
}

size_t host_ranks_hosts(const struct host_ranks *hosts)
{
    size_t found = 0;
    for (size_t first = 0; first < hosts->count; found++)
        first += hosts->places[hosts->order[first]].count;
    return found;
}
