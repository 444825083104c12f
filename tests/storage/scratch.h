/* SPDX-License-Identifier: BSD-3-Clause */
/* A temporary directory of real files, and random numbers that repeat. */
#ifndef TESTS_STORAGE_SCRATCH_H
#define TESTS_STORAGE_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* CMocka setup and teardown: *state is the path of a fresh directory, which is removed with all
 * that is in it. */
int scratch_setup(void **state);
int scratch_teardown(void **state);

/* Paths and contents; whatever goes wrong fails the test. Results are freed by the caller. */
char *scratch_path(const char *directory, const char *name);
void scratch_write(const char *directory, const char *name, const void *bytes, size_t size);
unsigned char *scratch_read(const char *directory, const char *name, size_t *size);
bool scratch_exists(const char *directory, const char *name);
void scratch_remove(const char *directory, const char *name);
/* Flips the bits of mask in one byte. */
void scratch_flip(const char *directory, const char *name, uint64_t offset, unsigned char mask);
/* Makes the save id of a directory's .metadata one that does not say that all files have footers,
 * as PyTorch's. */
void scratch_promise_nothing(const char *directory);
/* Leaves a directory's only shard file as who writes no footers would have. */
void scratch_drop_footer(const char *directory, const char *name);
/* System calls of this process that have read something; -1: the system does not count them. */
long scratch_count_reads(void);
/* Names in the directory, sorted, joined by spaces; static storage. */
const char *scratch_list(const char *directory);
void scratch_copy(const char *from, const char *to);

uint64_t scratch_random(uint64_t *state);
/* Fills memory, in little time under sanitizers as well. */
void scratch_fill(uint64_t *state, void *memory, size_t size);
/* 0 to limit - 1. */
int64_t scratch_below(uint64_t *state, int64_t limit);

#endif
