/* SPDX-License-Identifier: BSD-3-Clause */
/* Elements in windows: every one arrives, in pieces of any size and in any order; small neighbours
 * are read at once; and what cannot be read fails under its name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/ranks.h"
#include "convert/convert_windows.h"
#include "fault/failing_allocator.h"
#include "fault/transfer_watch.h"
#include "storage/files/files.h"
#include "storage/scratch.h"

enum { SMALL = 700, MEDIUM = 8, TENSORS = SMALL + MEDIUM };

/* Bytes of a tensor: small ones, of which one is empty, and larger ones between them. */
static int64_t size_of(int tensor)
{
    static const int64_t large[] = {2500000, 4194304, 9000001};
    if (tensor >= SMALL)
        return 900000;
    if (tensor % 300 == 50)
        return large[tensor / 300];
    return tensor == 7 ? 0 : 3000 + tensor;
}

enum { PERIOD = 251 };

static unsigned char element_of(int tensor, int64_t element)
{
    return (unsigned char)(element % PERIOD + tensor);
}

static void save(const char *path)
{
    dcp_state *root = dcp_state_new();
    unsigned char *values[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        char name[16];
        const dcp_tensor tensor = {.dtype = DCP_U8,
                                   .ndim = 1,
                                   .global_shape = {size_of(i)},
                                   .data = values[i] = malloc((size_t)size_of(i) + 1)};
        assert_non_null(values[i]);
        for (int64_t e = 0; e < size_of(i); e++)
            values[i][e] = element_of(i, e);
        snprintf(name, sizeof name, "t%03d", i);
        assert_non_null(dcp_state_tensor(root, name, &tensor));
        if (i == 120)
            must(dcp_state_int(root, "u", 3));
    }
    must(dcp_save(root, path, NULL));
    dcp_state_free(root);
    for (int i = 0; i < TENSORS; i++)
        free(values[i]);
}

/* The tensor that an item is; -1: it is the object. */
static int tensor_of(const struct convert_item *item)
{
    return item->is_tensor ? atoi(item->name + 1) : -1;
}

static void expect_piece(struct convert_windows *windows, const struct convert_item *item,
                         int64_t first, int64_t count)
{
    unsigned char *bytes = malloc((size_t)count + 1);
    assert_non_null(bytes);
    must(convert_windows_read(windows, item, first, count, bytes));
    for (int64_t i = 0; i < count && i < PERIOD; i++)
        assert_int_equal(bytes[i], element_of(tensor_of(item), first + i));
    if (count > PERIOD) /* each is the one that is a period before */
        assert_memory_equal(bytes, bytes + PERIOD, (size_t)(count - PERIOD));
    free(bytes);
}

static void expect_all(struct convert_windows *windows, const struct convert_item *item,
                       int64_t piece)
{
    int64_t all = (int64_t)item->bytes;
    for (int64_t first = 0; first < all; first += piece)
        expect_piece(windows, item, first, all - first < piece ? all - first : piece);
}

static void open_source(struct convert_source *source, const char *path,
                        const dcp_convert_options *options)
{
    must(convert_source_open(source, path, options));
    must(convert_select(source));
    assert_int_equal(source->count, TENSORS + 1);
}

static void every_element_arrives(void **state)
{
    static const dcp_convert_options options = {.form = DCP_FORM_DCP};
    static const int64_t pieces[] = {223680, 1 << 20, 5000000, 1 << 30};
    struct convert_source source;
    struct convert_windows *windows;
    const char *path = path_in(state, "source");
    save(path);
    open_source(&source, path, &options);
    for (size_t p = 0; p < 2 * sizeof pieces / sizeof *pieces; p++) {
        must(convert_windows_new(&source, p % 2 == 1, &windows));
        for (size_t i = 0; i < source.count; i++)
            if (source.items[i].is_tensor)
                expect_all(windows, &source.items[i], pieces[p / 2]);
        convert_windows_free(windows);
    }
    /* There and back, and over and over. */
    must(convert_windows_new(&source, true, &windows));
    for (size_t i = 0; i < 2000; i++) {
        const struct convert_item *item = &source.items[i * 7919 % source.count];
        int64_t bytes = (int64_t)item->bytes, first = bytes / 3;
        if (item->is_tensor && item->bytes > 0)
            expect_piece(windows, item, first, bytes - first < 100 ? bytes - first : 100);
    }
    convert_windows_free(windows);
    convert_source_close(&source);
}

static long count_transfers(void)
{
    return transfer_watch_count(false).count + transfer_watch_count(true).count;
}

static void neighbours_are_read_at_once(void **state)
{
    const dcp_storage storage = files_storage(transfer_watch(&file_ops_system));
    const dcp_convert_options options = {.storage = &storage, .form = DCP_FORM_DCP};
    struct convert_source source;
    struct convert_windows *windows;
    const char *path = path_in(state, "source");
    save(path);
    open_source(&source, path, &options);
    for (int ahead = 0; ahead < 2; ahead++) {
        long before = count_transfers();
        must(convert_windows_new(&source, ahead, &windows));
        for (size_t i = 0; i < source.count; i++)
            if (source.items[i].is_tensor)
                expect_all(windows, &source.items[i], 4096);
        convert_windows_free(windows);
        assert_in_range(count_transfers() - before, 1, 150);
    }
    convert_source_close(&source);
}

/* Of a source's first elements; with a thread, those that have been made after a while. */
static long transfers_of_first(const dcp_convert_options *options, const char *path, bool ahead,
                               long expected)
{
    struct convert_source source;
    struct convert_windows *windows;
    open_source(&source, path, options);
    long before = count_transfers();
    must(convert_windows_new(&source, ahead, &windows));
    expect_piece(windows, &source.items[0], 0, 100);
    for (int i = 0; i < 5000 && count_transfers() - before < expected; i++)
        usleep(1000);
    long made = count_transfers() - before;
    convert_windows_free(windows);
    convert_source_close(&source);
    return made;
}

static void the_next_window_is_read_meanwhile(void **state)
{
    const dcp_storage storage = files_storage(transfer_watch(&file_ops_system));
    const dcp_convert_options options = {.storage = &storage, .form = DCP_FORM_DCP};
    const char *path = path_in(state, "source");
    save(path);
    long alone = transfers_of_first(&options, path, false, 0);
    assert_true(alone > 0);
    assert_true(transfers_of_first(&options, path, true, alone + 1) > alone);
}

/* Of a large tensor's first elements, when all of the source has been read. */
static void what_was_taken_is_not_read_ahead(void **state)
{
    const dcp_storage storage = files_storage(transfer_watch(&file_ops_system));
    const dcp_convert_options options = {.storage = &storage, .form = DCP_FORM_DCP};
    struct convert_source source;
    struct convert_windows *windows;
    long made[2];
    const char *path = path_in(state, "source");
    save(path);
    open_source(&source, path, &options);
    for (int ahead = 0; ahead < 2; ahead++) {
        must(convert_windows_new(&source, ahead, &windows));
        for (size_t i = 0; i < source.count; i++)
            if (source.items[i].is_tensor)
                expect_all(windows, &source.items[i], 1 << 20);
        long before = count_transfers();
        expect_piece(windows, &source.items[650], 0, 100); /* t650, of 9 MB */
        usleep(50000);
        convert_windows_stop_ahead(windows);
        made[ahead] = count_transfers() - before;
        expect_all(windows, &source.items[0], 1 << 20); /* without the thread */
        convert_windows_free(windows);
    }
    assert_true(made[0] > 0);
    assert_int_equal(made[1], made[0]);
    convert_source_close(&source);
}

/* Changes a bit of a tensor, or changes it back. */
static void flip(const char *path, const char *name)
{
    dcp_checkpoint *checkpoint;
    dcp_stored_chunk chunk;
    size_t index;
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    must(dcp_checkpoint_find(checkpoint, name, &index));
    must(dcp_checkpoint_chunk(checkpoint, index, 0, &chunk));
    scratch_flip(path, "__0_0.distcp", chunk.offset + chunk.length / 2, 1);
    dcp_checkpoint_close(checkpoint);
}

static dcp_status read_all(struct convert_windows *windows, const struct convert_source *source)
{
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < source->count && status == DCP_OK; i++) {
        const struct convert_item *item = &source->items[i];
        unsigned char *bytes = malloc((size_t)item->bytes + 1);
        assert_non_null(bytes);
        if (item->is_tensor)
            status = convert_windows_read(windows, item, 0, (int64_t)item->bytes, bytes);
        free(bytes);
    }
    return status;
}

static void damage_is_named(void **state)
{
    static const dcp_convert_options options = {.form = DCP_FORM_DCP};
    static const char *const damaged[] = {"t020", "t550"};
    const char *path = path_in(state, "source");
    save(path);
    for (size_t d = 0; d < 2 * sizeof damaged / sizeof *damaged; d++) {
        struct convert_source source;
        struct convert_windows *windows;
        flip(path, damaged[d / 2]);
        open_source(&source, path, &options);
        must(convert_windows_new(&source, d % 2 == 1, &windows));
        must_fail(read_all(windows, &source), DCP_ERR_CHECKSUM, damaged[d / 2]);
        convert_windows_free(windows);
        convert_source_close(&source);
        flip(path, damaged[d / 2]);
    }
}

static dcp_status read_some(const char *path)
{
    static const dcp_convert_options options = {.form = DCP_FORM_DCP};
    struct convert_source source;
    struct convert_windows *windows = NULL;
    unsigned char bytes[100];
    dcp_status status = convert_source_open(&source, path, &options);
    if (status == DCP_OK)
        status = convert_select(&source);
    if (status == DCP_OK)
        status = convert_windows_new(&source, false, &windows);
    for (size_t i = 0; status == DCP_OK && i < source.count; i += 40)
        if (source.items[i].is_tensor)
            status = convert_windows_read(windows, &source.items[i], 0, 100, bytes);
    convert_windows_free(windows);
    convert_source_close(&source);
    return status;
}

static void missing_memory_is_an_error(void **state)
{
    const char *path = path_in(state, "source");
    bool reached = true;
    save(path);
    for (long n = 1; reached; n += TRIAL_STEP) {
        failing_allocator_install(n, false);
        dcp_status status = read_some(path);
        reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        /* Some of it can be done without. */
        assert_true(status == DCP_OK || (reached && status == DCP_ERR_NO_MEMORY));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_element_arrives, directory_setup, directory_teardown),
        cmocka_unit_test_setup_teardown(neighbours_are_read_at_once, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(the_next_window_is_read_meanwhile, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(what_was_taken_is_not_read_ahead, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(damage_is_named, directory_setup, directory_teardown),
        cmocka_unit_test_setup_teardown(missing_memory_is_an_error, directory_setup,
                                        directory_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
