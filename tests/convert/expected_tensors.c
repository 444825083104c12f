/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/expected_tensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "convert/sha256.h"
#include "dcp.h"

/* The rest of a line: a name, and what it is. */
static void expect_line(dcp_checkpoint *checkpoint, const char *line)
{
    char name[256], dtype[32], hash[80], found[65];
    int ndim = 0, used = 0, more = 0;
    size_t index;
    dcp_entry entry;
    assert_int_equal(sscanf(line, "%255s %31s %d%n", name, dtype, &ndim, &used), 3);
    must(dcp_checkpoint_find(checkpoint, name, &index));
    must(dcp_checkpoint_entry(checkpoint, index, &entry));
    assert_string_equal(dcp_dtype_name(entry.dtype), dtype);
    assert_int_equal(entry.ndim, ndim);
    dcp_tensor tensor = {.dtype = entry.dtype, .ndim = entry.ndim};
    for (int d = 0; d < ndim; d++, used += more) {
        long long size = -1;
        assert_int_equal(sscanf(line + used, "%lld%n", &size, &more), 1);
        assert_int_equal(entry.global_shape[d], size);
        tensor.global_shape[d] = size;
    }
    assert_int_equal(sscanf(line + used, "%79s", hash), 1);
    tensor.data = malloc((size_t)entry.bytes + 1);
    assert_non_null(tensor.data);
    must(dcp_checkpoint_read_tensor(checkpoint, index, &tensor, NULL));
    sha256_text(tensor.data, (size_t)entry.bytes, found);
    if (strcmp(found, hash) != 0)
        fail_msg("%s: its bytes are others", name);
    free(tensor.data);
}

void expect_tensors(const char *checkpoint, const char *expected, const char *kind)
{
    char line[512];
    size_t count = 0, length = strlen(kind);
    dcp_checkpoint *opened;
    FILE *file = fopen(expected, "r");
    assert_non_null(file);
    must(dcp_checkpoint_open(checkpoint, NULL, &opened));
    while (fgets(line, sizeof line, file))
        if (strncmp(line, kind, length) == 0 && line[length] == ' ') {
            expect_line(opened, line + length + 1);
            count++;
        }
    fclose(file);
    assert_true(count > 0);
    assert_int_equal(dcp_checkpoint_count(opened), count);
    dcp_checkpoint_close(opened);
}
