/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/reader_disk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fault/at_path.h"
#include "storage/scratch.h"

void reader_disk_open(struct reader_disk *disk, const struct file_ops *ops, uint32_t io)
{
    const dcp_storage_access access = {.size_of = sizeof access, .io = io, .trusted = true};
    disk->reader = (struct shard_reader){.io = io,
                                         .file_count = 1,
                                         .files = disk->files,
                                         .mutex = PTHREAD_MUTEX_INITIALIZER,
                                         .pinned = &disk->file};
    disk->file = (struct shard_file){.reader = &disk->reader};
    assert_int_equal(opened_open(&disk->opened, ops, READER_DISK_NAME), DCP_OK);
    assert_int_equal(
        storage_file_open(&disk->file.file, &disk->opened.directory, disk->opened.name, &access),
        DCP_OK);
}

void reader_disk_close(struct reader_disk *disk)
{
    assert_int_equal(disk->file.users, 0);
    shard_reader_free_lanes(&disk->reader);
    storage_file_close(&disk->file.file);
    opened_close(&disk->opened);
    assert_int_equal(simulated_open_descriptors(disk->fs), 0);
}

int reader_disk_setup(void **state)
{
    uint64_t random = 5;
    struct reader_disk *disk = calloc(1, sizeof *disk);
    assert_non_null(disk);
    disk->content = malloc(READER_DISK_SIZE);
    disk->fs = simulated_new();
    assert_non_null(disk->content);
    scratch_fill(&random, disk->content, READER_DISK_SIZE);
    assert_int_equal(write_at_path(FILE_PATHS(simulated_ops(disk->fs)), READER_DISK_NAME,
                                   disk->content, READER_DISK_SIZE, true),
                     DCP_OK);
    *state = disk;
    return 0;
}

int reader_disk_teardown(void **state)
{
    struct reader_disk *disk = *state;
    simulated_free(disk->fs);
    free(disk->content);
    free(disk);
    return 0;
}
