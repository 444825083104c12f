/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks that threads write around the page cache and through it into one file, whose borders lie
 * within pages: the file is the same. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/thread.h"
#include "checkpoint/ranks.h"
#include "convert/convert_scene.h"
#include "convert/convert_writer.h"

enum { THREADS = 3, BLOCKS = 12, BLOCK = (1 << 20) + 4104, SIZE = BLOCKS * BLOCK + 777, HEAD = 77 };

struct trial {
    struct convert_output *output;
    size_t file;
    bool buffered;       /* as where the file system has no other way */
    size_t skew;         /* of memory from where it should lie */
    atomic_bool *direct; /* some thread went around the page cache */
};

static unsigned char byte_at(uint64_t offset)
{
    return (unsigned char)(offset * 2654435761u >> 13);
}

/* Every third block; the last one also has what is behind it. */
static dcp_status write_blocks(void *context, size_t thread)
{
    struct trial *trial = context;
    struct convert_writer writer;
    unsigned char *space = memory_allocate_large(BLOCK + 2 * MEMORY_PAGE);
    dcp_status status = space ? DCP_OK : DCP_ERR_NO_MEMORY;
    convert_writer_init(&writer, trial->output);
    writer.buffered = trial->buffered;
    for (size_t block = thread; block < BLOCKS && status == DCP_OK; block += THREADS) {
        uint64_t offset = HEAD + (uint64_t)block * BLOCK;
        size_t size = block + 1 < BLOCKS ? BLOCK : SIZE - (size_t)offset;
        unsigned char *bytes = space + offset % MEMORY_PAGE + trial->skew;
        for (size_t i = 0; i < size; i++)
            bytes[i] = byte_at(offset + i);
        status = convert_writer_write(&writer, trial->file, bytes, size, offset);
    }
    if (writer.direct >= 0)
        atomic_store(trial->direct, true);
    convert_writer_close(&writer);
    memory_release_aligned(space);
    return status;
}

static bool has_direct(const char *path)
{
    int file = open(path, O_WRONLY | O_CREAT | O_DIRECT, 0666);
    if (file >= 0)
        close(file);
    unlink(path);
    return file >= 0;
}

static void write_and_look(void **state, struct trial trial, bool skip_sync, bool direct)
{
    struct convert_output output;
    struct progress progress;
    unsigned char head[HEAD];
    size_t size;
    const char *path = path_in(state, "written");
    atomic_bool went_around = false;
    trial.output = &output;
    trial.direct = &went_around;
    progress_init(&progress, NULL, NULL);
    for (size_t i = 0; i < HEAD; i++)
        head[i] = byte_at(i);
    must(convert_output_begin(&output, path, false, skip_sync, NULL));
    must(convert_output_add(&output, NULL, SIZE, &trial.file));
    must(convert_output_write(&output, trial.file, head, sizeof head, 0));
    must(thread_run(THREADS, THREADS, write_blocks, &trial));
    must(convert_output_seal(&output, trial.file));
    must(convert_output_commit(&output, &(struct convert_source){0}, &progress));
    convert_output_end(&output);
    progress_free(&progress);
    assert_int_equal(went_around, direct && has_direct(path_in(state, "probe")));
    char *bytes = scene_read(path, &size);
    assert_int_equal(size, SIZE);
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)bytes[i] != byte_at(i))
            fail_msg("byte %zu differs", i);
    free(bytes);
    assert_int_equal(unlink(path), 0);
}

static void test_around_the_page_cache(void **state)
{
    write_and_look(state, (struct trial){.skew = 0}, false, true);
}

static void test_through_it(void **state)
{
    write_and_look(state, (struct trial){.buffered = true}, false, false);
    write_and_look(state, (struct trial){.skew = 8}, false, false);
    write_and_look(state, (struct trial){.skew = 0}, true, false);
}

/* What the file system does not take goes through the page cache, which knows why. */
static void test_failing(void **state)
{
    struct convert_output output;
    struct convert_writer writer;
    size_t file;
    unsigned char *space = memory_allocate_large(BLOCK);
    assert_non_null(space);
    memset(space, 1, BLOCK);
    must(convert_output_begin(&output, path_in(state, "written"), false, false, NULL));
    must(convert_output_add(&output, NULL, BLOCK, &file));
    convert_writer_init(&writer, &output);
    must(convert_writer_write(&writer, file, space, BLOCK, 0));
    if (writer.direct >= 0) { /* a file that cannot be written to */
        size_t size;
        close(writer.direct);
        writer.direct = open(output.names[file], O_RDONLY);
        memset(space, 2, BLOCK);
        must(convert_writer_write(&writer, file, space, BLOCK, 0));
        char *bytes = scene_read(output.names[file], &size);
        assert_int_equal(size, BLOCK);
        assert_memory_equal(bytes, space, BLOCK);
        free(bytes);
    }
    int writable = output.files[file];
    output.files[file] = open(output.names[file], O_RDONLY);
    must_fail(convert_writer_write(&writer, file, space, BLOCK, 0), DCP_ERR_IO,
              "cannot be written");
    close(writable);
    convert_writer_close(&writer);
    convert_output_end(&output);
    memory_release_aligned(space);
    scene_expect_names(*state, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_around_the_page_cache),
        TEST(test_through_it),
        TEST(test_failing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
