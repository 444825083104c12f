/* SPDX-License-Identifier: BSD-3-Clause */
#include "arguments.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

float matrix_memory[64];

void check_refused(int line, dcp_status status, dcp_status expected, const char *part)
{
    if (status != expected || !strstr(dcp_error_message(), part))
        fail_msg("line %d: %d (%s) \"%s\", expected %d with \"%s\"", line, (int)status,
                 dcp_status_string(status), dcp_error_message(), (int)expected, part);
}

dcp_tensor matrix(int64_t rows, int64_t columns)
{
    return (dcp_tensor){
        .dtype = DCP_F32, .ndim = 2, .data = matrix_memory, .global_shape = {rows, columns}};
}

dcp_tensor piece(int64_t first, int64_t rows)
{
    dcp_tensor tensor = matrix(8, 2);
    tensor.sharded = true;
    tensor.offsets[0] = first;
    tensor.sizes[0] = rows;
    tensor.sizes[1] = 2;
    return tensor;
}
