/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks on MPI ranks. CMocka's would leave the other ranks waiting for the one that failed. */
#ifndef TESTS_MPI_CHECK_H
#define TESTS_MPI_CHECK_H

#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "dcp/status.h"

extern int world_rank, world_size;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: rank %d of %d: %s is false; last message: %s\n", __FILE__,     \
                    __LINE__, world_rank, world_size, #condition, dcp_error_message());            \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                          \
        }                                                                                          \
    } while (0)

#define CHECK_STATUS(call, expected)                                                               \
    do {                                                                                           \
        dcp_status check_status_ = (call);                                                         \
        if (check_status_ != (expected)) {                                                         \
            fprintf(stderr, "%s:%d: rank %d of %d: %s gave %d, expected %d; message: %s\n",        \
                    __FILE__, __LINE__, world_rank, world_size, #call, check_status_, (expected),  \
                    dcp_error_message());                                                          \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                          \
        }                                                                                          \
    } while (0)

#define CHECK_MESSAGE(expected)                                                                    \
    do {                                                                                           \
        if (strcmp(dcp_error_message(), (expected)) != 0) {                                        \
            fprintf(stderr, "%s:%d: rank %d of %d: \"%s\", expected \"%s\"\n", __FILE__, __LINE__, \
                    world_rank, world_size, dcp_error_message(), (expected));                      \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                          \
        }                                                                                          \
    } while (0)

#endif
