/* SPDX-License-Identifier: BSD-3-Clause */
#include "verify_scene.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "format/metadata/metadata_trailer.h"
#include "storage/files/files.h"

struct bytes {
    unsigned char *bytes;
    size_t size;
};

static struct bytes read_file(const struct file_ops *ops, const char *path)
{
    struct file_information about;
    struct bytes file;
    int descriptor;
    size_t moved;
    assert_int_equal(ops->open(ops->context, FILE_NO_DIRECTORY, path, FILE_READ, &descriptor), 0);
    assert_int_equal(ops->descriptor_information(ops->context, descriptor, &about), 0);
    file = (struct bytes){malloc((size_t)about.size), (size_t)about.size};
    assert_non_null(file.bytes);
    assert_int_equal(ops->pread(ops->context, descriptor, file.bytes, file.size, 0, &moved), 0);
    assert_int_equal(moved, file.size);
    ops->close(ops->context, descriptor);
    return file;
}

/* Replaces a file by its first bytes, as they have become. */
static void write_file(const struct file_ops *ops, const char *path, struct bytes file, size_t size)
{
    int descriptor;
    size_t moved;
    assert_int_equal(ops->unlink(ops->context, FILE_NO_DIRECTORY, path), 0);
    assert_int_equal(ops->open(ops->context, FILE_NO_DIRECTORY, path, FILE_CREATE_NEW, &descriptor),
                     0);
    assert_int_equal(ops->pwrite(ops->context, descriptor, file.bytes, size, 0, &moved), 0);
    assert_int_equal(moved, size);
    ops->close(ops->context, descriptor);
    free(file.bytes);
}

void verify_scene_make_bare(struct simulated_file_system *fs)
{
    const struct file_ops *ops = simulated_ops(fs);
    struct bytes shard = read_file(ops, VERIFY_SCENE_SHARD),
                 metadata = read_file(ops, VERIFY_SCENE "/.metadata");
    struct metadata_trailer trailer;
    uint64_t content;
    memcpy(&content, shard.bytes + shard.size - 40, sizeof content);
    write_file(ops, VERIFY_SCENE_SHARD, shard, (size_t)content);
    assert_int_equal(metadata_trailer_read(metadata.bytes, metadata.size, &trailer), DCP_OK);
    unsigned char *mark = memmem(metadata.bytes, metadata.size, "-8dc9-", 6);
    assert_non_null(mark);
    mark[1] = '4';
    write_file(ops, VERIFY_SCENE "/.metadata", metadata, trailer.pickle_size);
}

void verify_scene_fault(void *context, const char *file, uint64_t offset, const char *name,
                        const char *fault)
{
    struct scene_faults *faults = context;
    (void)file;
    (void)offset;
    if (strstr(fault, "XXH3"))
        faults->blocks++;
    else if (strstr(fault, "CRC-32") && *name)
        faults->records++;
}

void verify_scene_put(struct simulated_file_system *fs, const void *bytes, size_t size)
{
    const struct file_ops *ops = simulated_ops(fs);
    int descriptor;
    size_t moved;
    assert_int_equal(ops->make_directory(ops->context, FILE_NO_DIRECTORY, "run"), 0);
    assert_int_equal(
        ops->open(ops->context, FILE_NO_DIRECTORY, VERIFY_SCENE, FILE_CREATE_NEW, &descriptor), 0);
    assert_int_equal(ops->pwrite(ops->context, descriptor, bytes, size, 0, &moved), 0);
    assert_int_equal(moved, size);
    ops->close(ops->context, descriptor);
}

void verify_scene_damage(struct simulated_file_system *fs, const char *path, uint64_t at)
{
    const struct file_ops *ops = simulated_ops(fs);
    int descriptor;
    size_t moved;
    unsigned char byte;
    assert_int_equal(ops->open(ops->context, FILE_NO_DIRECTORY, path, FILE_READ, &descriptor), 0);
    assert_int_equal(ops->pread(ops->context, descriptor, &byte, 1, at, &moved), 0);
    ops->close(ops->context, descriptor);
    byte ^= 0x40;
    assert_int_equal(ops->open(ops->context, FILE_NO_DIRECTORY, path, FILE_WRITE, &descriptor), 0);
    assert_int_equal(ops->pwrite(ops->context, descriptor, &byte, 1, at, &moved), 0);
    ops->close(ops->context, descriptor);
}

static void describe_costly(void *context, void *directory, dcp_storage_traits *traits)
{
    (void)context;
    (void)directory;
    traits->request_size = VERIFY_SCENE_REQUEST;
}

void verify_scene_make_costly(dcp_storage *storage)
{
    storage->describe = describe_costly;
}

/* Hints may fail, and what a queue does not take is read without it. */
static bool is_needed(const char *operation)
{
    return strncmp(operation, "close", 5) != 0 && strncmp(operation, "cached", 6) != 0 &&
           strncmp(operation, "will_need", 9) != 0 && strncmp(operation, "queue_", 6) != 0;
}

void verify_scene_fail_each(struct simulated_file_system *fs, const dcp_storage *storage,
                            bool from_then_on)
{
    const dcp_open_options options = {.storage = storage};
    bool reached = true;
    for (long n = 1; reached; n += TRIAL_STEP) {
        uint64_t faults = 0;
        simulated_set_fault(fs, &(struct simulated_fault){.operation = n,
                                                          .kind = SIMULATED_ERROR,
                                                          .error_number = EIO,
                                                          .from_then_on = from_then_on});
        dcp_status status = dcp_verify(VERIFY_SCENE, &options, NULL, NULL, &faults);
        const char *name = simulated_operation_name(fs, n);
        reached = simulated_fault_reached(fs);
        if (reached && is_needed(name) && status == DCP_OK && faults == 0)
            fail_msg("operation %ld (%s) failed unnoticed", n, name);
        assert_int_equal(simulated_open_descriptors(fs), 0);
    }
    simulated_set_fault(fs, NULL);
}

void verify_scene_fail_each_allocation(const dcp_storage *storage)
{
    const dcp_open_options options = {.storage = storage};
    bool reached = true;
    long failures = 0, tried = 0;
    for (long n = 1; reached; n += TRIAL_STEP) {
        uint64_t faults = 0;
        failing_allocator_install(n, false);
        dcp_status status = dcp_verify(VERIFY_SCENE, &options, NULL, NULL, &faults);
        reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        assert_true(status == DCP_OK || (reached && status == DCP_ERR_NO_MEMORY));
        assert_int_equal(faults, 0);
        failures += status != DCP_OK;
        tried++;
    }
    assert_true(failures > tried / 2); /* those did without reading ahead */
}
