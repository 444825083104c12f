/* SPDX-License-Identifier: BSD-3-Clause */
/* One shard file on every way of writing: the same bytes and checksums, whatever the sizes and
 * alignments, the buffers, and what goes wrong on the way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "fault/failing_allocator.h"
#include "fault/io_ways.h"
#include "fault/simulated_file_system.h"
#include "fault/transfer_watch.h"
#include "format/footer/footer.h"
#include "scratch.h"
#include "storage/opened.h"
#include "storage/shard/shard_output.h"

#define NAME "file"

/* What is appended, part by part, and what the file must hold then. */
struct script {
    unsigned char *memory; /* aligned; parts are taken out of it */
    unsigned char *content;
    uint64_t length; /* without the footer */
    size_t count;
    struct part {
        uint64_t skip; /* zeros in front */
        size_t from;   /* in memory */
        size_t size;
        bool reserve; /* by way of reserved space */
    } parts[24];
};

static const char footer[] = "the end, in a place of its own";

static void script_make(struct script *script, uint64_t seed, size_t count, size_t most)
{
    uint64_t random = seed;
    *script = (struct script){.count = count};
    for (size_t i = 0; i < count; i++) {
        struct part *part = &script->parts[i];
        part->reserve = scratch_below(&random, 4) == 0;
        part->size =
            (size_t)scratch_below(&random, scratch_below(&random, 2) ? (int64_t)most : 5000);
        part->size = part->reserve ? part->size % 8000 : part->size;
        part->from = (size_t)(scratch_below(&random, 3) ? 0 : scratch_below(&random, 5000));
        part->skip = (uint64_t)(scratch_below(&random, 3) ? 0 : scratch_below(&random, 20000));
        /* As planning does it: the data of large tensors begins at a page. */
        if (part->size >= 65536 && scratch_below(&random, 4) != 0)
            part->skip += MEMORY_PAGE - (script->length + part->skip) % MEMORY_PAGE;
        script->length += part->skip + part->size;
    }
    script->memory =
        aligned_alloc(MEMORY_PAGE, (most + 5000 + MEMORY_PAGE) / MEMORY_PAGE * MEMORY_PAGE);
    script->content = calloc(1, script->length + sizeof footer);
    assert_true(script->memory && script->content);
    scratch_fill(&random, script->memory, most + 5000);
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        const struct part *part = &script->parts[i];
        at += part->skip;
        memcpy(script->content + at, script->memory + part->from, part->size);
        at += part->size;
    }
    memcpy(script->content + at, footer, sizeof footer);
}

static void script_free(struct script *script)
{
    free(script->memory);
    free(script->content);
}

static dcp_status append_part(struct shard_output *output, const struct script *script,
                              const struct part *part)
{
    const unsigned char *bytes = script->memory + part->from;
    uint32_t crc = 0;
    RETURN_IF_ERROR(shard_output_skip(output, output->position + part->skip));
    if (part->reserve) {
        unsigned char *space;
        RETURN_IF_ERROR(shard_output_reserve(output, part->size, &space));
        memcpy(space, bytes, part->size);
        shard_output_commit(output, part->size, &crc);
    } else {
        RETURN_IF_ERROR(shard_output_append(output, bytes, part->size, &crc));
    }
    assert_int_equal(crc, crc32_update(0, bytes, part->size));
    return DCP_OK;
}

static void check_blocks(const struct shard_output *output, const struct script *script)
{
    uint64_t at = 0;
    assert_int_equal(output->position, script->length);
    for (size_t i = 0; i < output->block_count; i++, at += FOOTER_BLOCK_SIZE) {
        uint64_t left = script->length - at;
        size_t size = left < FOOTER_BLOCK_SIZE ? (size_t)left : FOOTER_BLOCK_SIZE;
        assert_int_equal(output->blocks[i], xxh3_64(script->content + at, size));
    }
    assert_true(at >= script->length);
}

static dcp_status write_script(const struct script *script, const struct file_ops *ops,
                               const char *path, uint32_t io, size_t buffer_bytes)
{
    struct shard_output output;
    struct opened opened;
    struct shard_output_options options = {
        .content_length = script->length,
        .buffer_bytes = buffer_bytes,
        .io = io,
        .threads = 3,
        .sync = true,
    };
    RETURN_IF_ERROR(opened_open(&opened, ops, path));
    dcp_status status = shard_output_create(&output, &opened.directory, opened.name, &options);
    if (status != DCP_OK) {
        opened_close(&opened);
        return status;
    }
    for (size_t i = 0; i < script->count && status == DCP_OK; i++)
        status = append_part(&output, script, &script->parts[i]);
    if (status == DCP_OK) {
        shard_output_end(&output);
        check_blocks(&output, script);
        status = shard_output_finish(&output, footer, sizeof footer);
    }
    shard_output_free(&output);
    opened_close(&opened);
    return status;
}

/* As script_make(), with records that several threads write. */
static void script_make_large(struct script *script, size_t way)
{
    static const size_t sizes[] = {(size_t)16 << 20, ((size_t)21 << 20) + 777, 5000};
    *script = (struct script){.count = 3};
    size_t most = ((size_t)22 << 20) + MEMORY_PAGE;
    uint64_t random = way + 1;
    script->memory = aligned_alloc(MEMORY_PAGE, most);
    script->content = calloc(1, ((size_t)38 << 20));
    assert_true(script->memory && script->content);
    scratch_fill(&random, script->memory, most);
    for (size_t i = 0; i < 3; i++) {
        struct part *part = &script->parts[i];
        *part = (struct part){.skip = 70 * way + 64, .size = sizes[i], .from = i * way};
        script->length += part->skip;
        memcpy(script->content + script->length, script->memory + part->from, part->size);
        script->length += part->size;
    }
    memcpy(script->content + script->length, footer, sizeof footer);
}

/* A record that one thread writes, and one that several do, both with memory and place at a page.
 */
static void script_make_aligned(struct script *script)
{
    size_t sizes[] = {(size_t)9 << 20, (size_t)20 << 20};
    uint64_t random = 5;
    *script = (struct script){.count = 2, .length = sizes[0] + sizes[1]};
    script->memory = aligned_alloc(MEMORY_PAGE, sizes[1]);
    script->content = calloc(1, script->length + sizeof footer);
    assert_true(script->memory && script->content);
    scratch_fill(&random, script->memory, sizes[1]);
    for (size_t i = 0; i < 2; i++) {
        script->parts[i].size = sizes[i];
        memcpy(script->content + (i ? sizes[0] : 0), script->memory, sizes[i]);
    }
    memcpy(script->content + script->length, footer, sizeof footer);
}

static void check_file(const struct script *script, const struct file_ops *ops, const char *path)
{
    struct buffer bytes;
    size_t count = (size_t)footer_block_count(script->length, FOOTER_BLOCK_SIZE);
    buffer_init(&bytes, 0);
    assert_int_equal(file_read_whole(FILE_PATHS(ops), path, UINT64_MAX, &bytes), DCP_OK);
    assert_int_equal(bytes.size, script->length + 8 * count + sizeof footer);
    assert_memory_equal(bytes.data, script->content, script->length);
    for (size_t i = 0; i < count; i++) {
        uint64_t at = i * (uint64_t)FOOTER_BLOCK_SIZE, left = script->length - at;
        size_t size = left < FOOTER_BLOCK_SIZE ? (size_t)left : FOOTER_BLOCK_SIZE;
        assert_int_equal(load_u64(bytes.data + script->length + 8 * i),
                         xxh3_64(script->content + at, size));
    }
    assert_memory_equal(bytes.data + script->length + 8 * count, footer, sizeof footer);
    buffer_free(&bytes);
}

static void threads_write_large_records_alike(void **state)
{
    static const size_t ways[] = {0, 64, 999};
    char *path = scratch_path(*state, NAME);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct script script;
        script_make_large(&script, ways[i]);
        for (size_t w = 0; w < IO_WAY_COUNT; w++) {
            dcp_status status =
                write_script(&script, &file_ops_system, path, io_ways[w], (size_t)8 << 20);
            if (status == DCP_OK) {
                check_file(&script, &file_ops_system, path);
                unlink(path);
            } else {
                assert_int_equal(status, DCP_ERR_UNSUPPORTED);
                print_message("not tested: %s\n", dcp_error_message());
            }
        }
        script_free(&script);
    }
    free(path);
}

/* Every operation in turn, once and from then on. */
static void threads_that_fail_are_noticed(void **state)
{
    struct script script;
    (void)state;
    script_make_large(&script, 64);
    for (size_t i = 0; i < IO_WAY_COUNT; i++) {
        bool reached = true;
        for (long n = 1; reached; n += TRIAL_STEP + n / 4) {
            struct simulated_file_system *fs = simulated_new();
            struct simulated_fault fault = {n, SIMULATED_ERROR, n % 2 ? EIO : ENOSPC, n % 3 == 0};
            simulated_set_fault(fs, &fault);
            dcp_status status = write_script(&script, simulated_ops(fs), NAME, io_ways[i], 1 << 20);
            reached = simulated_fault_reached(fs);
            const char *name = simulated_operation_name(fs, n);
            if (reached && strncmp(name, "pwrite", 6) == 0)
                assert_int_equal(status, n % 2 ? DCP_ERR_IO : DCP_ERR_NO_SPACE);
            assert_int_equal(simulated_open_descriptors(fs), 0);
            if (status == DCP_OK) {
                simulated_set_fault(fs, NULL);
                check_file(&script, simulated_ops(fs), NAME);
            }
            simulated_free(fs);
        }
    }
    script_free(&script);
}

static size_t count_descriptors(void)
{
    size_t count = 0;
    DIR *directory = opendir("/proc/self/fd");
    assert_non_null(directory);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

static void write_in(const char *directory)
{
    char *path = scratch_path(directory, NAME);
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct script script;
        script_make(&script, seed, seed == 6 ? 3 : 1 + (size_t)seed * 3,
                    seed == 6  ? 9000000
                    : seed % 2 ? 100000
                               : 3000000);
        for (size_t i = 0; i < IO_WAY_COUNT; i++) {
            size_t descriptors = count_descriptors();
            dcp_status status =
                write_script(&script, &file_ops_system, path, io_ways[i], seed << 18);
            assert_int_equal(count_descriptors(), descriptors);
            if (status == DCP_ERR_UNSUPPORTED) {
                print_message("not tested: %s\n", dcp_error_message());
                assert_false(scratch_exists(directory, NAME));
                continue;
            }
            assert_int_equal(status, DCP_OK);
            check_file(&script, &file_ops_system, path);
            scratch_remove(directory, NAME);
        }
        script_free(&script);
    }
    free(path);
}

static void every_way_writes_the_same_bytes(void **state)
{
    write_in(*state);
}

/* Where O_DIRECT has nothing to go around. */
static void every_way_works_in_memory(void **state)
{
    (void)state;
    char directory[] = "/dev/shm/dcp.XXXXXX";
    if (!mkdtemp(directory))
        skip();
    write_in(directory);
    rmdir(directory);
}

/* Every operation fails, in every way that a transfer can fail, at its submission or completion. */
static void check_fault(const struct script *script, const struct simulated_file_system *fs,
                        const struct simulated_fault *fault, dcp_status status)
{
    const char *name = simulated_operation_name(fs, fault->operation);
    bool transfer = strncmp(name, "pwrite", 6) == 0 || strncmp(name, "queue_submit", 12) == 0;
    bool lasting = fault->kind == SIMULATED_ERROR && fault->error_number == EIO;
    if (transfer && !lasting && status != DCP_OK)
        fail_msg("operation %ld (%s): %s", fault->operation, name, dcp_error_message());
    if (strncmp(name, "pwrite", 6) == 0 && lasting && status != DCP_ERR_IO)
        fail_msg("operation %ld (%s) failed unnoticed", fault->operation, name);
    assert_int_equal(simulated_open_descriptors(fs), 0);
    if (status != DCP_OK)
        return;
    struct simulated_file_system *seen = simulated_copy(fs);
    check_file(script, simulated_ops(seen), NAME);
    simulated_free(seen);
}

static void transfers_end_that_were_cut_short(void **state)
{
    static const struct simulated_fault faults[] = {
        {0, SIMULATED_SHORT_ONE, 0, false},   {0, SIMULATED_SHORT_BY_ONE, 0, false},
        {0, SIMULATED_SHORT_BY_ONE, 0, true}, {0, SIMULATED_ERROR, EINTR, false},
        {0, SIMULATED_ERROR, EAGAIN, false},  {0, SIMULATED_ERROR, EIO, false},
        {0, SIMULATED_ERROR, EIO, true},
    };
    (void)state;
    struct script script;
    script_make(&script, 7, 6, 150000);
    for (size_t i = 0; i < IO_WAY_COUNT * (sizeof faults / sizeof *faults); i++) {
        struct simulated_fault fault = faults[i / IO_WAY_COUNT];
        bool reached = true;
        for (fault.operation = 1 + (long)(i % TRIAL_STEP); reached; fault.operation += TRIAL_STEP) {
            struct simulated_file_system *fs = simulated_new();
            simulated_set_fault(fs, &fault);
            dcp_status status = write_script(&script, simulated_ops(fs), NAME,
                                             io_ways[i % IO_WAY_COUNT], (size_t)1 << 18);
            reached = simulated_fault_reached(fs);
            check_fault(&script, fs, &fault, status);
            simulated_free(fs);
        }
        assert_true(fault.operation > 8);
    }
    script_free(&script);
}

static void missing_memory_leaves_nothing(void **state)
{
    (void)state;
    struct script script;
    script_make(&script, 8, 2, 100000);
    for (size_t i = 0; i < IO_WAY_COUNT; i++) {
        bool reached = true;
        for (long n = 1 + (long)(i % TRIAL_STEP); reached; n += TRIAL_STEP) {
            struct simulated_file_system *fs = simulated_new();
            failing_allocator_install(n, false);
            dcp_status status = write_script(&script, simulated_ops(fs), NAME, io_ways[i], 0);
            reached = failing_allocator_reached();
            assert_int_equal(failing_allocator_remove(), 0);
            assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
            assert_int_equal(simulated_open_descriptors(fs), 0);
            simulated_free(fs);
        }
    }
    script_free(&script);
}

static int log_lines;

static void count_line(void *context, dcp_log_level level, const char *line)
{
    (void)context, (void)level, (void)line;
    log_lines++;
}

static int refuse_queue(void *context, unsigned depth, void **queue)
{
    (void)context, (void)depth, (void)queue;
    return EPERM;
}

static struct file_ops refusing;

static int refuse_direct(void *context, int within, const char *path, unsigned flags,
                         int *descriptor)
{
    return flags & FILE_DIRECT ? EINVAL
                               : file_ops_system.open(context, within, path, flags, descriptor);
}

static int failing_close(void *context, int descriptor)
{
    int result = file_ops_system.close(context, descriptor);
    return result == 0 ? EIO : result;
}

/* Over a network, what could not be written may be said by the close alone. */
static void a_failed_close_is_noticed(void **state)
{
    struct script script;
    char *path = scratch_path(*state, NAME);
    script_make(&script, 9, 2, 100000);
    refusing = file_ops_system;
    refusing.close = failing_close;
    assert_int_equal(write_script(&script, &refusing, path, DCP_IO_AUTO, 1 << 20), DCP_ERR_IO);
    assert_non_null(strstr(dcp_error_message(), "cannot close"));
    script_free(&script);
    free(path);
}

/* What is there is not there: chosen, it is done without, and said once; demanded, it is an error.
 */
static void what_is_refused_is_done_without(void **state)
{
    struct script script;
    char *path = scratch_path(*state, NAME);
    script_make(&script, 9, 12, 3000000);
    assert_true(script.length >= STORAGE_LARGE_FILE);
    refusing = file_ops_system;
    refusing.queue_open = refuse_queue;
    refusing.open = refuse_direct;
    log_lines = 0;
    dcp_set_log(count_line, NULL, DCP_LOG_DEBUG);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(write_script(&script, &refusing, path, DCP_IO_AUTO, 1 << 20), DCP_OK);
        check_file(&script, &file_ops_system, path);
        scratch_remove(*state, NAME);
    }
    dcp_set_log(NULL, NULL, DCP_LOG_ERROR);
    assert_true(log_lines <= 2);
    assert_int_equal(write_script(&script, &refusing, path, DCP_IO_RING, 1 << 20),
                     DCP_ERR_UNSUPPORTED);
    assert_int_equal(write_script(&script, &refusing, path, DCP_IO_DIRECT, 1 << 20),
                     DCP_ERR_UNSUPPORTED);
    assert_false(scratch_exists(*state, NAME));
    script_free(&script);
    free(path);
}

/* Refused not before the first transfer. */
static void direct_transfers_become_buffered(void **state)
{
    (void)state;
    struct script script;
    script_make(&script, 9, 12, 3000000);
    assert_true(script.length >= STORAGE_LARGE_FILE);
    struct simulated_file_system *fs = simulated_new();
    simulated_refuse_direct(fs);
    assert_int_equal(write_script(&script, simulated_ops(fs), NAME, DCP_IO_AUTO, 1 << 20), DCP_OK);
    check_file(&script, simulated_ops(fs), NAME);
    assert_int_equal(simulated_ops(fs)->unlink(simulated_ops(fs)->context, FILE_NO_DIRECTORY, NAME),
                     0);
    assert_int_equal(write_script(&script, simulated_ops(fs), NAME, DCP_IO_DIRECT, 1 << 20),
                     DCP_ERR_IO);
    assert_int_equal(simulated_open_descriptors(fs), 0);
    simulated_free(fs);
    script_free(&script);
}

/* To gather ordinary pages costs a device more than the copy; the page cache copies anyhow. */
static void direct_writes_use_large_pages(void **state)
{
    static const uint32_t ways[] = {DCP_IO_RING | DCP_IO_DIRECT, DCP_IO_POOL | DCP_IO_DIRECT,
                                    DCP_IO_AUTO, DCP_IO_BUFFERED};
    struct script script;
    (void)state;
    script_make_aligned(&script);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct simulated_file_system *fs = simulated_new();
        const struct file_ops *ops = transfer_watch(simulated_ops(fs));
        transfer_watch_memory(script.memory, script.parts[1].size);
        assert_int_equal(write_script(&script, ops, NAME, ways[i], (size_t)8 << 20), DCP_OK);
        struct transfer_count direct = transfer_watch_count(true);
        struct transfer_count buffered = transfer_watch_count(false);
        bool around = ways[i] != DCP_IO_BUFFERED;
        /* The content, and the sums of its blocks. */
        assert_int_equal(direct.count, around ? (script.length >> 20) + 1 : 0);
        assert_int_equal(direct.largest, around ? 1 << 20 : 0);
        assert_int_equal(direct.callers, 0);
        assert_int_equal(direct.addresses % (1 << 20), 0);
        assert_int_equal(direct.lowest % (2 << 20), 0);
        assert_int_equal(buffered.callers, around ? 0 : script.length >> 20);
        check_file(&script, simulated_ops(fs), NAME);
        simulated_free(fs);
    }
    script_free(&script);
}

/* Alike parts, so much that the buffers are used again and again. */
static void script_make_long(struct script *script, size_t count, size_t size)
{
    uint64_t random = 6;
    *script = (struct script){.count = count};
    script->memory = aligned_alloc(MEMORY_PAGE, size);
    script->content = calloc(1, count * size + sizeof footer);
    assert_true(script->memory && script->content);
    scratch_fill(&random, script->memory, size);
    for (size_t i = 0; i < count; i++) {
        script->parts[i].size = size;
        memcpy(script->content + script->length, script->memory, size);
        script->length += size;
    }
    memcpy(script->content + script->length, footer, sizeof footer);
}

static void large_files_have_large_buffers(void **state)
{
    static const struct {
        size_t part, buffer_bytes, largest;
    } cases[] = {{(size_t)11 << 20, (size_t)32 << 20, (size_t)2 << 20},
                 {(size_t)11 << 20, (size_t)8 << 20, (size_t)1 << 20},
                 {(size_t)9 << 20, (size_t)32 << 20, (size_t)1 << 20}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct script script;
        struct simulated_file_system *fs = simulated_new();
        const struct file_ops *ops = transfer_watch(simulated_ops(fs));
        script_make_long(&script, 6, cases[i].part);
        assert_int_equal(
            write_script(&script, ops, NAME, DCP_IO_RING | DCP_IO_DIRECT, cases[i].buffer_bytes),
            DCP_OK);
        assert_int_equal(transfer_watch_count(true).largest, cases[i].largest);
        check_file(&script, simulated_ops(fs), NAME);
        simulated_free(fs);
        script_free(&script);
    }
}

/* A buffer that is full while all others are under way can go as soon as one is written: of the
 * file's eight, and of the four that each thread of a large record has. */
static void the_next_bytes_are_at_hand(void **state)
{
    static const struct {
        size_t count, size;
        long at_once;
    } cases[] = {{6, (size_t)4 << 20, SHARD_OUTPUT_BUFFERS - 1}, {1, (size_t)24 << 20, 4 - 1}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct script script;
        struct simulated_file_system *fs = simulated_new();
        const struct file_ops *ops = transfer_watch(simulated_ops(fs));
        script_make_long(&script, cases[i].count, cases[i].size);
        assert_int_equal(
            write_script(&script, ops, NAME, DCP_IO_RING | DCP_IO_DIRECT, (size_t)8 << 20), DCP_OK);
        assert_int_equal(transfer_watch_at_once(), cases[i].at_once);
        check_file(&script, simulated_ops(fs), NAME);
        simulated_free(fs);
        script_free(&script);
    }
}

static void flags_are_checked(void **state)
{
    (void)state;
    for (size_t i = 0; i < IO_WAY_COUNT; i++)
        assert_int_equal(storage_check_io(io_ways[i]), DCP_OK);
    assert_int_equal(storage_check_io(DCP_IO_RING | DCP_IO_POOL), DCP_ERR_ARGUMENT);
    assert_int_equal(storage_check_io(DCP_IO_DIRECT | DCP_IO_BUFFERED), DCP_ERR_ARGUMENT);
    assert_int_equal(storage_check_io(16), DCP_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(threads_write_large_records_alike, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test(threads_that_fail_are_noticed),
        cmocka_unit_test_setup_teardown(every_way_writes_the_same_bytes, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test(every_way_works_in_memory),
        cmocka_unit_test(transfers_end_that_were_cut_short),
        cmocka_unit_test(missing_memory_leaves_nothing),
        cmocka_unit_test_setup_teardown(what_is_refused_is_done_without, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(a_failed_close_is_noticed, scratch_setup, scratch_teardown),
        cmocka_unit_test(direct_transfers_become_buffered),
        cmocka_unit_test(direct_writes_use_large_pages),
        cmocka_unit_test(large_files_have_large_buffers),
        cmocka_unit_test(the_next_bytes_are_at_hand),
        cmocka_unit_test(flags_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
