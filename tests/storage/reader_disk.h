/* SPDX-License-Identifier: BSD-3-Clause */
/* A reader of a file on a simulated disk, of which the page cache has every other group of 8 MiB.
 */
#ifndef TESTS_STORAGE_READER_DISK_H
#define TESTS_STORAGE_READER_DISK_H

#include "fault/simulated_file_system.h"
#include "storage/opened.h"
#include "storage/shard/shard_file.h"

#define READER_DISK_NAME "file"
#define READER_DISK_SIZE (((size_t)9 << 20) + 12345)

/* A file of a reader, the only one that it has. */
struct reader_disk {
    unsigned char *content;
    struct simulated_file_system *fs;
    struct shard_reader reader;
    struct shard_file file, *files[1];
    struct opened opened;
};

/* CMocka setup and teardown: *state is a disk. */
int reader_disk_setup(void **state);
int reader_disk_teardown(void **state);
/* io: flags of dcp_io. */
void reader_disk_open(struct reader_disk *disk, const struct file_ops *ops, uint32_t io);
/* Nothing may be in use. */
void reader_disk_close(struct reader_disk *disk);

#endif
