/* SPDX-License-Identifier: BSD-3-Clause */
/* Shard files written one by one, what their footers say, and metadata rebuilt from that; over
 * files and in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "fault/failing_allocator.h"

enum { ROWS = 64, COLUMNS = 1024, HALF = ROWS / 2 };

static const char save_a[] = "save-a", save_b[] = "save-b", save_c[] = "save-c";
static const dcp_path_part w_path[] = {{.key = "model"}, {.key = "layer.w"}};
static const dcp_shard_name w_name = {"model.layer.w", w_path, 2};
static float elements[ROWS * COLUMNS];

/* NULL, or one in memory: every test runs over both. */
static dcp_storage *storage;

static int over_files(void **state)
{
    storage = NULL;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        elements[i] = (float)i;
    return directory_setup(state);
}

static int in_memory(void **state)
{
    return over_files(state) == 0 && dcp_storage_memory_new(&storage) == DCP_OK ? 0 : -1;
}

static int teardown(void **state)
{
    dcp_storage_memory_free(storage);
    return directory_teardown(state);
}

static void remove_file(const char *directory, const char *name)
{
    const dcp_storage *table = storage ? storage : dcp_storage_files();
    void *handle;
    bool created;
    must(table->open(table->context, directory, 0, &handle, &created));
    must(table->remove(table->context, handle, name));
    table->close(table->context, handle);
}

/* Rows first to first + count - 1 of the sample. */
static dcp_tensor rows_of(float *data, int64_t first, int64_t count)
{
    return (dcp_tensor){.dtype = DCP_F32,
                        .ndim = 2,
                        .sharded = true,
                        .requires_grad = true,
                        .data = data,
                        .global_shape = {ROWS, COLUMNS},
                        .offsets = {first, 0},
                        .sizes = {count, COLUMNS}};
}

static dcp_shard_writer *open_writer(const char *directory, const char *file, const char *save_id)
{
    const dcp_shard_writer_options options = {.storage = storage, .save_id = save_id};
    dcp_shard_writer *writer;
    must(dcp_shard_writer_open(directory, file, &options, &writer));
    return writer;
}

/* A file with some rows. */
static void write_rows(const char *directory, const char *file, const char *save_id, int64_t first,
                       int64_t count)
{
    dcp_shard_writer *writer = open_writer(directory, file, save_id);
    dcp_tensor tensor = rows_of(elements + first * COLUMNS, first, count);
    must(dcp_shard_writer_add_tensor(writer, &w_name, &tensor));
    must(dcp_shard_writer_seal(writer));
    dcp_shard_writer_free(writer);
}

static dcp_shard_list *read_list(const char *directory)
{
    dcp_shard_list *list;
    must(dcp_shard_list_read(directory, &(dcp_shard_list_options){.storage = storage}, &list));
    return list;
}

static dcp_status rebuild(const char *directory, const dcp_rebuild_options *options,
                          dcp_checkpoint **checkpoint)
{
    dcp_shard_list *list = read_list(directory);
    dcp_status status = dcp_shard_list_rebuild(list, options, checkpoint);
    dcp_shard_list_free(list);
    return status;
}

static void must_be_save(const dcp_checkpoint *checkpoint, const char *save_id)
{
    dcp_storage_meta meta;
    must(dcp_checkpoint_storage_meta(checkpoint, &meta));
    assert_string_equal(meta.save_id, save_id);
}

static void must_hold_elements(dcp_checkpoint *checkpoint)
{
    float *read = calloc(ROWS * COLUMNS, sizeof *read);
    const dcp_tensor whole = {
        .dtype = DCP_F32, .ndim = 2, .global_shape = {ROWS, COLUMNS}, .data = read};
    size_t index;
    must(dcp_checkpoint_find(checkpoint, w_name.name, &index));
    must(dcp_checkpoint_read_tensor(checkpoint, index, &whole, NULL));
    assert_memory_equal(read, elements, sizeof elements);
    free(read);
}

/* Loads through .metadata, and verifies. */
static void must_load(const char *directory)
{
    const dcp_load_options options = {.storage = storage};
    const dcp_open_options opening = {.storage = storage};
    float *read = calloc(ROWS * COLUMNS, sizeof *read);
    const dcp_tensor whole = {
        .dtype = DCP_F32, .ndim = 2, .global_shape = {ROWS, COLUMNS}, .data = read};
    dcp_state *root = dcp_state_new();
    uint64_t faults = 1;
    dcp_state_tensor(dcp_state_dict(root, "model"), "layer.w", &whole);
    must(dcp_load(root, directory, &options, NULL));
    assert_memory_equal(read, elements, sizeof elements);
    must(dcp_verify(directory, &opening, NULL, NULL, &faults));
    assert_int_equal(faults, 0);
    dcp_state_free(root);
    free(read);
}

/* ---- writing ---- */

static void check_locations(const char *directory, const dcp_shard_writer *writer)
{
    dcp_shard_list *list = read_list(directory);
    dcp_shard_info info;
    must(dcp_shard_list_file(list, 0, &info));
    must(info.status);
    assert_string_equal(info.problem, "");
    assert_string_equal(info.save_id, dcp_shard_writer_save_id(writer));
    assert_int_equal(info.size, dcp_shard_writer_file_size(writer));
    assert_int_equal(info.item_count, dcp_shard_writer_count(writer));
    size_t found = 0;
    for (size_t i = 0; i < info.item_count; i++) {
        dcp_shard_item item;
        must(dcp_shard_list_item(list, 0, i, &item));
        for (size_t k = 0; k < info.item_count; k++) {
            dcp_storage_location location;
            must(dcp_shard_writer_location(writer, k, &location));
            assert_string_equal(location.path, info.file);
            found += location.offset == item.offset && location.length == item.length;
        }
    }
    assert_int_equal(found, info.item_count);
    dcp_shard_list_free(list);
}

/* A strided chunk, a whole one, an object, and a stream that is encoded already. */
static dcp_shard_writer *write_sample(const char *directory, dcp_compression compression)
{
    static float columns[COLUMNS * HALF];
    const dcp_shard_writer_options options = {.storage = storage, .compression = compression};
    const dcp_shard_name object = {.name = "step"};
    dcp_shard_writer *writer;
    dcp_state *root = dcp_state_new();
    dcp_tensor first = rows_of(elements, 0, HALF);
    dcp_tensor second = rows_of(columns, HALF, HALF);
    for (int r = 0; r < HALF; r++)
        for (int c = 0; c < COLUMNS; c++)
            columns[c * HALF + r] = elements[(HALF + r) * COLUMNS + c];
    second.strided = true;
    second.strides[0] = 1;
    second.strides[1] = HALF;
    dcp_state_int(root, "step", 7);
    must(dcp_shard_writer_open(directory, "__0_0.distcp", &options, &writer));
    must(dcp_shard_writer_add_tensor(writer, &w_name, &first));
    must(dcp_shard_writer_add_object(writer, &object, dcp_state_find(root, "step")));
    must(dcp_shard_writer_add_tensor(writer, &w_name, &second));
    dcp_state_free(root);
    must(dcp_shard_writer_seal(writer));
    return writer;
}

static void check_sample(const char *directory, dcp_compression compression)
{
    dcp_checkpoint *checkpoint;
    int64_t step = 0;
    size_t index;
    dcp_entry entry;
    dcp_shard_writer *writer = write_sample(directory, compression);
    check_locations(directory, writer);
    dcp_shard_writer_free(writer);
    must(rebuild(directory, NULL, &checkpoint));
    must_hold_elements(checkpoint);
    must(dcp_checkpoint_find(checkpoint, "step", &index));
    dcp_state *read = dcp_state_new();
    must(dcp_checkpoint_read_object(checkpoint, index, read, "step", NULL));
    must(dcp_state_as_int(dcp_state_find(read, "step"), &step));
    assert_int_equal(step, 7);
    dcp_state_free(read);
    must(dcp_checkpoint_find(checkpoint, w_name.name, &index));
    must(dcp_checkpoint_entry(checkpoint, index, &entry));
    assert_int_equal(entry.path_length, 2);
    assert_string_equal(entry.path[1].key, "layer.w");
    const dcp_publish_options publishing = {.storage = storage};
    must(dcp_checkpoint_publish(checkpoint, directory, &publishing));
    must_fail(dcp_checkpoint_publish(checkpoint, directory, &publishing), DCP_ERR_EXISTS,
              ".metadata");
    const dcp_publish_options replacing = {.storage = storage, .overwrite = DCP_OVERWRITE_REPLACE};
    must(dcp_checkpoint_publish(checkpoint, directory, &replacing));
    dcp_checkpoint_close(checkpoint);
    must_load(directory);
}

static void test_written_file_is_a_checkpoint(void **state)
{
    check_sample(path_in(state, "plain"), DCP_COMPRESSION_NONE);
    if (DCP_HAVE_ZSTD)
        check_sample(path_in(state, "zstd"), DCP_COMPRESSION_ZSTD);
}

/* The file that a save of the same state writes, but for the save id. */
static void test_layout_is_that_of_a_save(void **state)
{
    const char *saved = path_in(state, "saved"), *written = path_in(state, "written");
    const dcp_save_options options = {.storage = storage};
    dcp_state *root = dcp_state_new();
    dcp_tensor whole = rows_of(elements, 0, ROWS);
    dcp_state_tensor(dcp_state_dict(root, "model"), "layer.w", &whole);
    must(dcp_save(root, saved, &options));
    dcp_state_free(root);
    write_rows(written, "__0_0.distcp", NULL, 0, ROWS);
    dcp_shard_list *lists[2] = {read_list(saved), read_list(written)};
    dcp_shard_item items[2];
    dcp_shard_info infos[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dcp_shard_list_count(lists[i]), 1);
        must(dcp_shard_list_file(lists[i], 0, &infos[i]));
        must(dcp_shard_list_item(lists[i], 0, 0, &items[i]));
        assert_true(items[i].is_tensor && items[i].requires_grad);
        assert_int_equal(items[i].sizes[0], ROWS);
    }
    assert_int_equal(items[0].offset, items[1].offset);
    assert_int_equal(items[0].length, items[1].length);
    assert_int_equal(infos[0].size, infos[1].size);
    dcp_shard_list_free(lists[0]);
    dcp_shard_list_free(lists[1]);
}

static void test_stream_is_stored_as_it_is(void **state)
{
    static const char bytes[] = "bytes of a stream";
    const char *directory = path_in(state, "c");
    const dcp_shard_name name = {.name = "blob"};
    dcp_storage_location location;
    dcp_shard_writer *writer = open_writer(directory, "blob.distcp", save_a);
    must(dcp_shard_writer_add_stream(writer, &name, bytes, sizeof bytes));
    must_fail(dcp_shard_writer_location(writer, 0, &location), DCP_ERR_STATE, "sealed");
    must(dcp_shard_writer_seal(writer));
    must(dcp_shard_writer_location(writer, 0, &location));
    assert_int_equal(location.length, sizeof bytes);
    must_fail(dcp_shard_writer_location(writer, 1, &location), DCP_ERR_ARGUMENT, "1");
    dcp_shard_writer_free(writer);
}

static void test_contradictions_are_refused(void **state)
{
    const char *directory = path_in(state, "c");
    const dcp_tensor chunk = rows_of(elements, 0, HALF);
    const dcp_shard_name other = {.name = "other"};
    dcp_tensor wider = rows_of(elements, HALF, HALF), nothing = chunk;
    dcp_shard_writer *writer = open_writer(directory, "__0_0.distcp", save_a);
    nothing.data = NULL;
    must_fail(dcp_shard_writer_add_tensor(writer, &other, &nothing), DCP_ERR_ARGUMENT, "other");
    assert_int_equal(dcp_shard_writer_count(writer), 0);
    must(dcp_shard_writer_add_tensor(writer, &w_name, &chunk));
    must(dcp_shard_writer_add_tensor(writer, &w_name, &chunk));
    must_fail(dcp_shard_writer_seal(writer), DCP_ERR_DUPLICATE, "model.layer.w");
    must_fail(dcp_shard_writer_seal(writer), DCP_ERR_STATE, "already sealed or abandoned");
    must_fail(dcp_shard_writer_add_tensor(writer, &other, &chunk), DCP_ERR_STATE, "other");
    dcp_shard_writer_free(writer);
    wider.global_shape[0]++;
    writer = open_writer(directory, "__0_0.distcp", save_a);
    must(dcp_shard_writer_add_tensor(writer, &w_name, &chunk));
    must(dcp_shard_writer_add_tensor(writer, &w_name, &wider));
    must_fail(dcp_shard_writer_seal(writer), DCP_ERR_DUPLICATE, "shapes");
    dcp_shard_writer_free(writer);
    write_rows(directory, "__0_0.distcp", save_a, 0, ROWS);
    writer = open_writer(directory, "__0_0.distcp", save_a);
    must_fail(dcp_shard_writer_seal(writer), DCP_ERR_EXISTS, "__0_0.distcp");
    dcp_shard_writer_free(writer);
    const dcp_shard_writer_options options = {.storage = storage};
    static const char *const names[] = {"", ".distcp", "a/b.distcp", ".metadata", "x.bin"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        must_fail(dcp_shard_writer_open(directory, names[i], &options, &writer), DCP_ERR_ARGUMENT,
                  "is not a name");
}

static void test_unknown_list_options_are_refused(void **state)
{
    struct {
        dcp_shard_list_options known;
        char grown[8];
    } longer = {.grown = {1}};
    dcp_shard_list *list;
    must_fail(dcp_shard_list_read_sized(path_in(state, "c"), &longer.known, sizeof longer, &list),
              DCP_ERR_ARGUMENT, "dcp_shard_list_options");
    assert_null(list);
}

static void test_abandoned_file_is_gone(void **state)
{
    const char *directory = path_in(state, "c");
    dcp_shard_list *list;
    dcp_shard_writer *writer = open_writer(directory, "__0_0.distcp", save_a);
    must(dcp_shard_writer_seal(writer));
    dcp_shard_writer_abandon(writer);
    dcp_shard_writer_free(writer);
    if (!storage)
        must_fail(
            dcp_shard_list_read(directory, &(dcp_shard_list_options){.storage = storage}, &list),
            DCP_ERR_NOT_FOUND, directory);
}

/* ---- rebuilding ---- */

static void test_lost_metadata_is_rebuilt(void **state)
{
    const char *directory = path_in(state, "c");
    const dcp_save_options options = {.storage = storage, .thread_count = 3};
    const dcp_open_options opening = {.storage = storage};
    dcp_checkpoint *original, *rebuilt;
    dcp_state *root = dcp_state_new();
    dcp_tensor whole = rows_of(elements, 0, ROWS);
    dcp_state_tensor(dcp_state_dict(root, "model"), "layer.w", &whole);
    dcp_state *list = dcp_state_list(root, "list");
    dcp_state_int(dcp_state_dict(list, NULL), "a.b", 3);
    must(dcp_save(root, directory, &options));
    dcp_state_free(root);
    must(dcp_checkpoint_open(directory, &opening, &original));
    remove_file(directory, ".metadata");
    must(rebuild(directory, NULL, &rebuilt));
    dcp_storage_meta meta;
    must(dcp_checkpoint_storage_meta(original, &meta));
    must_be_save(rebuilt, meta.save_id);
    assert_int_equal(dcp_checkpoint_count(rebuilt), dcp_checkpoint_count(original));
    for (size_t i = 0; i < dcp_checkpoint_count(original); i++) {
        dcp_entry a, b;
        dcp_stored_chunk one, other;
        size_t index;
        must(dcp_checkpoint_entry(original, i, &a));
        must(dcp_checkpoint_find(rebuilt, a.name, &index));
        must(dcp_checkpoint_entry(rebuilt, index, &b));
        assert_int_equal(a.is_tensor, b.is_tensor);
        assert_int_equal(a.dtype, b.dtype);
        assert_int_equal(a.chunk_count, b.chunk_count);
        assert_int_equal(a.path_length, b.path_length);
        for (size_t p = 0; p < a.path_length; p++)
            assert_true(a.path[p].key ? strcmp(a.path[p].key, b.path[p].key) == 0
                                      : !b.path[p].key && a.path[p].position == b.path[p].position);
        must(dcp_checkpoint_chunk(original, i, 0, &one));
        must(dcp_checkpoint_chunk(rebuilt, index, 0, &other));
        assert_string_equal(one.file, other.file);
        assert_int_equal(one.offset, other.offset);
        assert_int_equal(one.length, other.length);
    }
    const dcp_publish_options publishing = {.storage = storage};
    must(dcp_checkpoint_publish(rebuilt, directory, &publishing));
    dcp_checkpoint_close(original);
    dcp_checkpoint_close(rebuilt);
    must_load(directory);
}

static void count_fault(void *context, const char *file, uint64_t offset, const char *name,
                        const char *fault)
{
    (void)file, (void)offset, (void)name;
    assert_true(*fault != '\0');
    ++*(int *)context;
}

static void test_missing_file_is_named(void **state)
{
    const char *directory = path_in(state, "c");
    int faults = 0;
    dcp_checkpoint *checkpoint;
    write_rows(directory, "__0_0.distcp", save_a, 0, HALF);
    write_rows(directory, "__2_0.distcp", save_a, HALF, HALF);
    must_fail(rebuild(directory, NULL, &checkpoint), DCP_ERR_NOT_FOUND, "rank 1 with number 0");
    const dcp_rebuild_options gaps = {.allow_gaps = true};
    must(rebuild(directory, &gaps, &checkpoint));
    must_hold_elements(checkpoint);
    dcp_checkpoint_close(checkpoint);
    const dcp_rebuild_options counted = {.allow_gaps = true, .file_count = 3};
    must_fail(rebuild(directory, &counted, &checkpoint), DCP_ERR_NOT_FOUND, "expected 3");
    remove_file(directory, "__2_0.distcp");
    const dcp_rebuild_options reporting = {.report = count_fault, .report_context = &faults};
    must_fail(rebuild(directory, &reporting, &checkpoint), DCP_ERR_COVERAGE,
              "\"model.layer.w\": no chunk holds [32:64, 0:1024]");
    assert_int_equal(faults, 1);
    assert_null(checkpoint);
}

static void test_saves_are_distinguished(void **state)
{
    const char *directory = path_in(state, "c");
    dcp_checkpoint *checkpoint;
    write_rows(directory, "__0_0.distcp", save_a, 0, ROWS);
    write_rows(directory, "__0_0.g1.distcp", save_b, 0, HALF);
    write_rows(directory, "__1_0.g1.distcp", save_b, HALF, HALF);
    write_rows(directory, "__0_0.g2.distcp", save_c, 0, HALF);
    must(rebuild(directory, NULL, &checkpoint));
    must_be_save(checkpoint, save_b);
    must_hold_elements(checkpoint);
    dcp_checkpoint_close(checkpoint);
    const dcp_rebuild_options first = {.save_id = save_a}, third = {.save_id = save_c};
    must(rebuild(directory, &first, &checkpoint));
    must_be_save(checkpoint, save_a);
    dcp_checkpoint_close(checkpoint);
    must_fail(rebuild(directory, &third, &checkpoint), DCP_ERR_COVERAGE, "[32:64, 0:1024]");
    const dcp_rebuild_options none = {.save_id = "save-d"};
    must_fail(rebuild(directory, &none, &checkpoint), DCP_ERR_NOT_FOUND, "save-d");
    write_rows(directory, "__1_0.g2.distcp", save_c, HALF, HALF);
    write_rows(directory, "x.g2.distcp", "save-e", 0, HALF);
    must(rebuild(directory, NULL, &checkpoint));
    must_be_save(checkpoint, save_c);
    dcp_checkpoint_close(checkpoint);
    write_rows(directory, "__9_0.g2.distcp", "save-e", HALF, HALF);
    must_fail(rebuild(directory, NULL, &checkpoint), DCP_ERR_DUPLICATE, "save-c and save-e");
}

/* ---- damage ---- */

static size_t read_file(const char *path, unsigned char **bytes)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    *bytes = malloc(1 << 20);
    size_t size = fread(*bytes, 1, 1 << 20, file);
    fclose(file);
    return size;
}

static void write_file(const char *path, const unsigned char *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

static dcp_status status_of(const char *directory, size_t index)
{
    dcp_shard_list *list = read_list(directory);
    dcp_shard_info info;
    must(dcp_shard_list_file(list, index, &info));
    assert_int_equal(info.status == DCP_OK, info.problem[0] == '\0');
    assert_int_equal(info.status == DCP_OK, info.item_count != 0);
    dcp_status status = info.status;
    dcp_shard_list_free(list);
    return status;
}

static void test_damaged_footers_are_listed(void **state)
{
    const char *directory = path_in(state, "c"), *path = path_in(state, "c/__0_0.distcp");
    unsigned char *bytes;
    dcp_checkpoint *checkpoint;
    write_rows(directory, "__0_0.distcp", save_a, 0, 1);
    size_t size = read_file(path, &bytes);
    assert_int_equal(status_of(directory, 0), DCP_OK);
    for (size_t i = size - 100; i < size; i++) { /* body and trailer, behind the sums */
        bytes[i] ^= 0x41;
        write_file(path, bytes, size);
        assert_int_not_equal(status_of(directory, 0), DCP_OK);
        bytes[i] ^= 0x41;
    }
    for (size_t cut = 1; cut < size; cut += 97) {
        write_file(path, bytes, size - cut);
        assert_int_equal(status_of(directory, 0), DCP_ERR_NOT_FOUND);
    }
    must_fail(rebuild(directory, NULL, &checkpoint), DCP_ERR_NOT_FOUND, "valid footer");
    write_file(path, bytes, size);
    write_file(path_in(state, "c/__1_0.distcp"), bytes, size);
    assert_int_equal(status_of(directory, 1), DCP_ERR_FOREIGN);
    free(bytes);
}

/* ---- no memory ---- */

static dcp_status write_and_rebuild(const char *directory)
{
    const dcp_shard_writer_options options = {.save_id = save_a, .skip_sync = true};
    const dcp_publish_options publishing = {.overwrite = DCP_OVERWRITE_REPLACE, .skip_sync = true};
    const dcp_shard_name object = {.name = "step"};
    const dcp_tensor tensor = rows_of(elements, 0, ROWS);
    dcp_shard_writer *writer = NULL;
    dcp_shard_list *list = NULL;
    dcp_checkpoint *checkpoint = NULL;
    dcp_status status = dcp_shard_writer_open(directory, "__0_0.distcp", &options, &writer);
    if (status == DCP_OK)
        status = dcp_shard_writer_add_tensor(writer, &w_name, &tensor);
    if (status == DCP_OK)
        status = dcp_shard_writer_add_stream(writer, &object, "x", 1);
    if (status == DCP_OK)
        status = dcp_shard_writer_seal(writer);
    if (status == DCP_OK)
        status = dcp_shard_list_read(directory, NULL, &list);
    if (status == DCP_OK)
        status = dcp_shard_list_rebuild(list, NULL, &checkpoint);
    if (status == DCP_OK)
        status = dcp_checkpoint_publish(checkpoint, directory, &publishing);
    dcp_checkpoint_close(checkpoint);
    dcp_shard_list_free(list);
    dcp_shard_writer_abandon(writer);
    dcp_shard_writer_free(writer);
    return status;
}

static void test_no_memory(void **state)
{
    const char *directory = path_in(state, "c");
    for (long n = 1;; n++) {
        failing_allocator_install(n, false);
        dcp_status status = write_and_rebuild(directory);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        if (!reached) {
            must(status);
            break;
        }
        /* Some of what is allocated only makes things faster. */
        assert_true(status == DCP_ERR_NO_MEMORY || status == DCP_OK);
    }
}

#define OVER_BOTH(test)                                                                            \
    cmocka_unit_test_setup_teardown(test, over_files, teardown),                                   \
        cmocka_unit_test_setup_teardown(test, in_memory, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        OVER_BOTH(test_written_file_is_a_checkpoint),
        OVER_BOTH(test_layout_is_that_of_a_save),
        OVER_BOTH(test_stream_is_stored_as_it_is),
        OVER_BOTH(test_contradictions_are_refused),
        OVER_BOTH(test_unknown_list_options_are_refused),
        OVER_BOTH(test_abandoned_file_is_gone),
        OVER_BOTH(test_lost_metadata_is_rebuilt),
        OVER_BOTH(test_missing_file_is_named),
        OVER_BOTH(test_saves_are_distinguished),
        cmocka_unit_test_setup_teardown(test_damaged_footers_are_listed, over_files, teardown),
        cmocka_unit_test_setup_teardown(test_no_memory, over_files, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
