/* SPDX-License-Identifier: BSD-3-Clause */
/* A build without zstd says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "format/streams/item_compress.h"
#include "format/streams/item_decompress.h"

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

static void test_refuses_to_compress(void **state)
{
    (void)state;
    struct item_compressor *compressor;
    assert_int_equal(item_compressor_check(0), DCP_ERR_UNSUPPORTED);
    assert_non_null(strstr(dcp_error_message(), "DCP_ZSTD"));
    assert_int_equal(item_compressor_new(0, 0, &compressor), DCP_ERR_UNSUPPORTED);
    assert_null(compressor);
    item_compressor_free(compressor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names_the_option),
                                       cmocka_unit_test(test_refuses_to_compress)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
