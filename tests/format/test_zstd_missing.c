/* SPDX-License-Identifier: BSD-3-Clause */
/* A build without zstd says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "format/item.h"

static void test_names_the_option(void **state)
{
    (void)state;
    char byte = 0;
    void *bytes = &byte;
    size_t size = 1;
    assert_int_equal(item_decompress("\x28\xb5\x2f\xfd", 4, 100, &bytes, &size),
                     DCP_ERR_UNSUPPORTED);
    assert_null(bytes);
    assert_int_equal(size, 0);
    assert_non_null(strstr(dcp_error_message(), "DCP_ZSTD"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names_the_option)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
