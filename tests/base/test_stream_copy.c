/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/stream_copy.h"
#include "dcp/environment.h"

enum { MOST = (1 << 20) + 200, MARGIN = 80 };

/* Wherever both begin and end, just these bytes arrive. */
static void copies_the_given_bytes(void **state)
{
    static const size_t sizes[] = {0,    1,      63,     4096,   8191,   8192,
                                   8255, 262143, 262144, 262145, 262207, 1 << 20};
    unsigned char *from = malloc(MOST), *to = malloc(MOST);
    (void)state;
    for (size_t i = 0; i < MOST; i++)
        from[i] = (unsigned char)(i * 7 + i / 251);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t shift = 0; shift < 70; shift += 1 + shift / 5) {
            size_t at = (shift * 13) % MARGIN;
            memset(to, 0xa5, MOST);
            stream_copy_prepare(to + shift, sizes[s]);
            stream_copy(to + shift, from + at, sizes[s]);
            assert_memory_equal(to + shift, from + at, sizes[s]);
            for (size_t i = 0; i < shift; i++)
                assert_int_equal(to[i], 0xa5);
            for (size_t i = shift + sizes[s]; i < shift + sizes[s] + 64; i++)
                assert_int_equal(to[i], 0xa5);
        }
    free(from);
    free(to);
}

static void is_public(void **state)
{
    enum { SIZE = 10000 };
    static unsigned char from[SIZE], to[SIZE + 1];
    (void)state;
    memset(from, 7, sizeof from);
    dcp_memory_copy(NULL, NULL, 0);
    dcp_memory_copy(to, from, SIZE);
    assert_memory_equal(to, from, SIZE);
    assert_int_equal(to[SIZE], 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(copies_the_given_bytes),
                                              cmocka_unit_test(is_public)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
