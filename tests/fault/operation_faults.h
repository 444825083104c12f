/* SPDX-License-Identifier: BSD-3-Clause */
/* One operation of a save or load fails, or is the last before a crash; and all of them in turn.
 * What is found afterwards is the old checkpoint or the new one, byte for byte. */
#ifndef FAULT_OPERATION_FAULTS_H
#define FAULT_OPERATION_FAULTS_H

#include <stdbool.h>
#include <stddef.h>

#include "fault/simulated_file_system.h"

/* The ways in which operations fail. What takes a large file byte by byte comes last. */
#define WAY_COUNT 11
extern const struct simulated_fault fault_ways[WAY_COUNT];
/* Of writing: chosen, and directly by a ring. The others differ below what is looked at here. */
#define FEW_WAYS 2

/* Only every n-th operation fails; 1 at first. */
extern long fault_stride;

/* Takes the stride from the command line. False: it is none. */
bool fault_stride_read(int argc, char **argv);

/* Before: an empty disk, or one with version 1, durable. */
struct simulated_file_system *disk_with(int version);
/* Short reads and writes always are; interruptions where the system call says that they happen. */
bool fault_is_harmless(const struct simulated_fault *way, const char *operation);
/* Fails the test, and says which operation had failed. */
void fail_with(const struct simulated_file_system *fs, long n, const char *what, int found);

/* Each operation of a save of version 2 over an old one fails in every way, and a retry works.
 * own_files: those of the checkpoint are not the library's. */
void loop_over_faults(int old, int size, bool own_files);
/* Each operation of such a save is the last before a crash: power cuts and kills. */
void loop_over_crashes(int old);

#endif
