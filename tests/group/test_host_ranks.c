/* SPDX-License-Identifier: BSD-3-Clause */
/* Which ranks are together, against looking at each pair. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "group/host_ranks.h"

enum { COUNT = 12, APART = 24, HOSTS = 4 };

struct scene {
    uint64_t numbers[COUNT];
    unsigned char able[COUNT];
    bool parted;
};

static bool are_together(const struct scene *scene, size_t a, size_t b)
{
    bool together = a == b || (scene->numbers[a] != 0 && scene->numbers[a] == scene->numbers[b]);
    for (size_t i = 0; i < COUNT && together && a != b && scene->parted; i++)
        together = scene->able[i] || scene->numbers[i] != scene->numbers[a];
    return together;
}

static void check(const struct host_ranks *hosts, const struct scene *scene)
{
    size_t firsts = 0; /* ranks that no lower one is with */
    for (size_t rank = 0; rank < COUNT; rank++) {
        const int *ranks;
        size_t count = host_ranks_with(hosts, (int)rank, &ranks), found = 0;
        for (size_t other = 0; other < COUNT; other++) {
            if (!are_together(scene, rank, other))
                continue;
            assert_true(found < count);
            assert_int_equal(ranks[found++], other);
        }
        assert_int_equal(found, count);
        firsts += ranks[0] == (int)rank;
    }
    assert_int_equal(host_ranks_hosts(hosts), firsts);
}

static void ranks_with_the_same_number_are_together(void **state)
{
    (void)state;
    srand(7);
    for (int round = 0; round < 2000; round++) {
        unsigned char records[COUNT * APART] = {0};
        struct scene scene = {.parted = false};
        struct host_ranks hosts;
        for (size_t rank = 0; rank < COUNT; rank++) {
            /* Numbers that differ in their upper half alone, too. */
            scene.numbers[rank] = (uint64_t)(rand() % HOSTS) << (rand() % 2 * 32);
            scene.able[rank] = rand() % 8 != 0;
            store_u64(records + rank * APART, scene.numbers[rank]);
        }
        assert_int_equal(host_ranks_new(COUNT, &hosts), DCP_OK);
        host_ranks_join(&hosts, records, APART);
        check(&hosts, &scene);
        host_ranks_part(&hosts, scene.able);
        scene.parted = true;
        check(&hosts, &scene);
        host_ranks_part_all(&hosts);
        memset(scene.numbers, 0, sizeof scene.numbers);
        check(&hosts, &scene);
        host_ranks_free(&hosts);
    }
}

static void of_none_there_are_none(void **state)
{
    struct host_ranks hosts = {.count = 0};
    const int *ranks;
    (void)state;
    assert_int_equal(host_ranks_with(&hosts, 0, &ranks), 0);
    host_ranks_free(&hosts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_with_the_same_number_are_together),
        cmocka_unit_test(of_none_there_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
