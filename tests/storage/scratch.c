/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/metadata/metadata_trailer.h"
#include "scratch.h"

int scratch_setup(void **state)
{
    const char *parent = getenv("TMPDIR");
    char *path = malloc(4096);
    if (!path)
        return -1;
    snprintf(path, 4096, "%s/dcp-storage-XXXXXX", parent ? parent : "/tmp");
    *state = path;
    return mkdtemp(path) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

int scratch_teardown(void **state)
{
    int result = nftw(*state, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(*state);
    return result;
}

char *scratch_path(const char *directory, const char *name)
{
    size_t size = strlen(directory) + strlen(name) + 2;
    char *path = malloc(size);
    assert_non_null(path);
    snprintf(path, size, "%s/%s", directory, name);
    return path;
}

void scratch_write(const char *directory, const char *name, const void *bytes, size_t size)
{
    char *path = scratch_path(directory, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    free(path);
}

unsigned char *scratch_read(const char *directory, const char *name, size_t *size)
{
    char *path = scratch_path(directory, name);
    FILE *file = fopen(path, "rb");
    struct stat status;
    if (!file)
        fail_msg("cannot open %s", path);
    assert_int_equal(fstat(fileno(file), &status), 0);
    *size = (size_t)status.st_size;
    unsigned char *bytes = malloc(*size + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    bytes[*size] = '\0';
    fclose(file);
    free(path);
    return bytes;
}

bool scratch_exists(const char *directory, const char *name)
{
    char *path = scratch_path(directory, name);
    struct stat status;
    bool exists = lstat(path, &status) == 0;
    free(path);
    return exists;
}

void scratch_remove(const char *directory, const char *name)
{
    char *path = scratch_path(directory, name);
    assert_int_equal(remove(path), 0);
    free(path);
}

void scratch_flip(const char *directory, const char *name, uint64_t offset, unsigned char mask)
{
    char *path = scratch_path(directory, name);
    int descriptor = open(path, O_RDWR);
    unsigned char byte;
    assert_true(descriptor >= 0);
    assert_int_equal(pread(descriptor, &byte, 1, (off_t)offset), 1);
    byte ^= mask;
    assert_int_equal(pwrite(descriptor, &byte, 1, (off_t)offset), 1);
    close(descriptor);
    free(path);
}

/* .metadata that was changed cannot have one. */
static size_t without_trailer(const unsigned char *bytes, size_t size)
{
    struct metadata_trailer trailer;
    assert_int_equal(metadata_trailer_read(bytes, size, &trailer), DCP_OK);
    return trailer.pickle_size;
}

void scratch_promise_nothing(const char *directory)
{
    size_t size;
    unsigned char *bytes = scratch_read(directory, ".metadata", &size);
    unsigned char *mark = memmem(bytes, size, "-8dc9-", 6);
    assert_non_null(mark);
    size_t pickle_size = without_trailer(bytes, size);
    mark[1] = '4';
    scratch_write(directory, ".metadata", bytes, pickle_size);
    free(bytes);
}

void scratch_drop_footer(const char *directory, const char *name)
{
    enum { CONTENT_FROM_END = 40 };
    size_t size;
    uint64_t content;
    unsigned char *bytes = scratch_read(directory, name, &size);
    assert_true(size > CONTENT_FROM_END);
    memcpy(&content, bytes + size - CONTENT_FROM_END, sizeof content);
    assert_true(content < size);
    scratch_write(directory, name, bytes, (size_t)content);
    free(bytes);
    scratch_promise_nothing(directory);
}

long scratch_count_reads(void)
{
    long count = -1;
    char line[80];
    FILE *counters = fopen("/proc/self/io", "r");
    while (counters && fgets(line, sizeof line, counters) &&
           sscanf(line, "syscr: %ld", &count) != 1)
        ;
    if (counters)
        fclose(counters);
    return count;
}

const char *scratch_list(const char *directory)
{
    static char text[16384];
    struct dirent **entries;
    int count = scandir(directory, &entries, NULL, alphasort);
    size_t length = 0;
    assert_true(count >= 0);
    text[0] = '\0';
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
            length += (size_t)snprintf(text + length, sizeof text - length, "%s%s",
                                       length ? " " : "", name);
        assert_true(length < sizeof text);
        free(entries[i]);
    }
    free(entries);
    return text;
}

void scratch_copy(const char *from, const char *to)
{
    struct dirent **entries;
    int count = scandir(from, &entries, NULL, alphasort);
    assert_true(count >= 0);
    mkdir(to, 0777);
    for (int i = 0; i < count; i++) {
        char *path = scratch_path(from, entries[i]->d_name);
        struct stat status;
        if (stat(path, &status) == 0 && S_ISREG(status.st_mode)) {
            size_t size;
            unsigned char *bytes = scratch_read(from, entries[i]->d_name, &size);
            scratch_write(to, entries[i]->d_name, bytes, size);
            free(bytes);
        }
        free(path);
        free(entries[i]);
    }
    free(entries);
}

uint64_t scratch_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

void scratch_fill(uint64_t *state, void *memory, size_t size)
{
    uint64_t block[512];
    for (size_t at = 0; at < size; at += sizeof block) {
        size_t part = size - at < sizeof block ? size - at : sizeof block;
        for (size_t i = 0; i < (part + 7) / 8; i++)
            block[i] = scratch_random(state);
        memcpy((unsigned char *)memory + at, block, part);
    }
}

int64_t scratch_below(uint64_t *state, int64_t limit)
{
    return (int64_t)(scratch_random(state) % (uint64_t)limit);
}
